// SPDX-License-Identifier: MIT
#include "mini/conformance.h"

#include <map>
#include <set>

#include "support/attention_support.h"
#include "support/conformance_paths.h"
#include "support/targets.h"

using namespace mini;
using namespace mini::test;

namespace {

// The points that fail, with their first broken check.
std::map<std::string, std::string> failures(const AttentionFunction& attention,
                                            const ConformanceOptions& options = {}) {
  std::map<std::string, std::string> broken;
  for (const ConformanceResult& result : check_attention(attention, options)) {
    if (result.status == Conformance::kFails) broken[result.point] = result.detail;
  }
  return broken;
}

std::set<std::string> unsupported_points(const AttentionFunction& attention) {
  std::set<std::string> points;
  for (const ConformanceResult& result : check_attention(attention)) {
    if (result.status == Conformance::kUnsupported) points.insert(result.point);
  }
  return points;
}

using Broken = std::map<std::string, std::string>;

at::Tensor right(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const AttentionOptions& options) {
  return mini::scaled_dot_product_attention(q, k, v, options);
}

}  // namespace

TEST_CASE("every path of attention meets the contract in every dtype", "[attention][conformance]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    INFO(dtype);
    CHECK(failures(right, {.dtype = dtype}) == Broken());
    CHECK(failures(by_composite_path, {.dtype = dtype}) == Broken());
    CHECK(failures(by_operator, {.dtype = dtype}) == Broken());
    CHECK(failures(by_head, {.dtype = dtype}) == Broken());
  }
}

TEST_CASE("the fused path meets the contract on every instruction set",
          "[attention][conformance]") {
  for_each_target([] {
    CHECK(failures(by_fused_path) == Broken());
    CHECK(failures(by_fused_path, {.dtype = at::kBFloat16}) == Broken());
  });
  CHECK(unsupported_points(by_fused_path) == std::set<std::string>{"gradient of a mask"});
}

TEST_CASE("each point of the conformance suite fails for a function that breaks it",
          "[attention][conformance]") {
  const auto breaks = [](const char* point, const AttentionFunction& attention) {
    INFO(point);
    CHECK(failures(attention).contains(point));
  };
  using T = const at::Tensor&;
  using O = const AttentionOptions&;
  const auto with = [](O options, const auto& change) {
    AttentionOptions changed = options;
    change(changed);
    return changed;
  };
  breaks("formula", [](T q, T k, T v, O o) { return right(q, k, v, o) * 1.001; });
  breaks("head sizes", [](T q, T k, T v, O o) {
    return q.size(-1) > 500 ? right(q, k, v, o) + 0.01 : right(q, k, v, o);
  });
  breaks("scale", [&](T q, T k, T v, O o) {
    return right(q, k, v, with(o, [](auto& c) { c.scale = {}; }));
  });
  breaks("large scores", [](T q, T k, T v, O) {
    const at::Tensor weights = (at::matmul(q, k.mT()) / std::sqrt(q.size(-1))).exp();
    return at::matmul(weights / weights.sum(-1, true), v);
  });
  breaks("leading dimensions", [](T q, T k, T v, O o) {
    TORCH_CHECK(q.dim() == 4, "expected 4 dimensions");
    return right(q, k, v, o);
  });
  breaks("unequal lengths", [](T q, T k, T v, O o) {
    TORCH_CHECK(q.size(-2) == k.size(-2), "expected equal lengths");
    return right(q, k, v, o);
  });
  breaks("value width", [](T q, T k, T v, O o) {
    TORCH_CHECK(q.size(-1) == v.size(-1), "expected equal widths");
    return right(q, k, v, o);
  });
  breaks("strides", [](T q, T k, T v, O o) {
    return q.is_contiguous() ? right(q, k, v, o) : right(q, k, v, o) + 1;
  });
  breaks("empty", [](T q, T k, T v, O o) {
    return k.size(-2) == 0 ? right(q, k, v, o) + kNan : right(q, k, v, o);
  });
  breaks("no broadcast", [](T q, T k, T v, O o) {
    return at::matmul(at::matmul(q, k.mT()).softmax(-1), v) + 0 * o.dropout;
  });
  breaks("wrong arguments",
         [](T q, T k, T v, O o) { return q.defined() ? right(q, k, v, o) : right(k, k, v, o); });
  breaks("bool mask", [&](T q, T k, T v, O o) {
    return right(q, k, v, with(o, [](auto& c) {
                   if (c.mask && c.mask->scalar_type() == at::kBool) c.mask = c.mask->logical_not();
                 }));
  });
  breaks("float mask", [&](T q, T k, T v, O o) {
    return right(q, k, v, with(o, [](auto& c) {
                   if (c.mask && c.mask->is_floating_point()) c.mask = *c.mask * 2;
                 }));
  });
  breaks("mask dtypes", [](T q, T k, T v, O o) {
    TORCH_CHECK(!o.mask || o.mask->scalar_type() != at::kHalf, "no float16");
    return right(q, k, v, o);
  });
  breaks("mask broadcast", [](T q, T k, T v, O o) {
    TORCH_CHECK(!o.mask || o.mask->dim() != 1, "no mask of one dimension");
    return right(q, k, v, o);
  });
  breaks("wrong masks", [&](T q, T k, T v, O o) {
    return right(q, k, v, with(o, [&](auto& c) {
                   if (c.mask && c.mask->dim() == 3 && q.dim() == 4) c.mask = c.mask->unsqueeze(0);
                 }));
  });
  breaks("gradient of a mask", [&](T q, T k, T v, O o) {
    return right(q, k, v, with(o, [](auto& c) {
                   if (c.mask) c.mask = c.mask->detach();
                 }));
  });
  for (const char* point : {"causal, upper left", "causal, lower right"}) {
    breaks(point, [&](T q, T k, T v, O o) {
      return right(q, k, v, with(o, [](auto& c) {
                     if (c.causal != Causal::kNone) {
                       c.causal = c.causal == Causal::kUpperLeft ? Causal::kLowerRight
                                                                 : Causal::kUpperLeft;
                     }
                   }));
    });
  }
  breaks("causal with a mask", [&](T q, T k, T v, O o) {
    return right(q, k, v, with(o, [](auto& c) {
                   if (c.causal != Causal::kNone) c.mask = {};
                 }));
  });
  breaks("rows that see no key", [](T q, T k, T v, O o) {
    const at::Tensor output = right(q, k, v, o);
    return o.mask ? output.masked_fill(output.eq(0), kNan) : output;
  });
  breaks("gradients of such rows", [](T q, T k, T v, O o) {
    if (!o.mask || o.mask->scalar_type() != at::kBool) return right(q, k, v, o);
    const at::Tensor scores = at::matmul(q, k.mT()) / std::sqrt(static_cast<double>(q.size(-1)));
    const at::Tensor weights = scores.masked_fill(o.mask->logical_not(), -kInf).softmax(-1);
    return at::matmul(weights, v).nan_to_num(0.0);
  });
  breaks("hidden keys", [&](T q, T k, T v, O o) {
    return right(q, k, v, with(o, [](auto& c) {
                   if (c.mask && c.mask->scalar_type() == at::kBool) {
                     c.mask = c.mask->logical_not().to(at::kFloat) * -10;
                   }
                 }));
  });
  breaks("NaN in a hidden key", [](T q, T k, T v, O o) { return right(q, k, v, o) + 0 * k.sum(); });
  breaks("NaN and infinity", [](T q, T k, T v, O o) { return right(q, k, v, o).nan_to_num(0); });
  breaks("ends of a mask's range", [&](T q, T k, T v, O o) {
    return right(q, k, v, with(o, [](auto& c) {
                   if (c.mask && c.mask->is_floating_point()) c.mask = c.mask->to(at::kFloat);
                 }));
  });
  breaks("gradients", [](T q, T k, T v, O o) {
    const at::Tensor output = right(q, k, v, o);
    return output * 0.5 + output.detach() * 0.5;
  });
  breaks("gradients of a subset", [](T q, T k, T v, O o) {
    return right(q, k.requires_grad() && !q.requires_grad() ? k.detach() + 0 * k : k, v, o);
  });
  breaks("one visible key",
         [](T q, T k, T v, O o) { return right(q, k, v, o) + 1e-8 * at::matmul(q, k.mT()).sum(); });
  breaks("second derivatives", [](T q, T k, T v, O o) {
    struct Once : torch::autograd::Function<Once> {
      static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q_,
                                const at::Tensor& k_, const at::Tensor& v_) {
        context->save_for_backward({q_, k_, v_});
        return right(q_, k_, v_, {});
      }
      static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                     torch::autograd::variable_list upstream) {
        const auto saved = context->get_saved_variables();
        const Inputs in = Inputs{saved[0], saved[1], saved[2]}.requires_grad();
        const at::AutoGradMode with_grad(true);
        return torch::autograd::grad({right(in.q, in.k, in.v, {})}, {in.q, in.k, in.v},
                                     {upstream[0].detach()});
      }
    };
    return q.requires_grad() && !o.mask ? Once::apply(q, k, v) : right(q, k, v, o);
  });
  breaks("upstream strides", [](T q, T k, T v, O o) {
    struct Dense : torch::autograd::Function<Dense> {
      static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
        return x.clone();
      }
      static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                     torch::autograd::variable_list upstream) {
        return {upstream[0].is_contiguous() ? upstream[0] : upstream[0] * 2};
      }
    };
    return Dense::apply(right(q, k, v, o));
  });
  breaks("dropout", [&](T q, T k, T v, O o) {
    return right(q, k, v, with(o, [](auto& c) { c.training = false; }));
  });
  breaks("grouped heads", [](T q, T k, T v, O o) {
    if (!o.grouped_queries || k.size(1) == 0 || q.size(1) % k.size(1) != 0)
      return right(q, k, v, o);
    AttentionOptions plain = o;
    plain.grouped_queries = false;
    const int64_t group = q.size(1) / k.size(1);  // in turns, not consecutive
    return right(q, k.repeat({1, group, 1, 1}), v.repeat({1, group, 1, 1}), plain);
  });
}

TEST_CASE("check_attention reports what a function does not support", "[attention][conformance]") {
  const auto none = [](const at::Tensor&, const at::Tensor&, const at::Tensor&,
                       const AttentionOptions&) -> at::Tensor { unsupported("anything"); };
  for (const ConformanceResult& result : check_attention(none)) {
    INFO(result.point);
    CHECK(result.status == Conformance::kUnsupported);
  }
  CHECK_THROWS_WITH(check_attention(right, {.dtype = at::kLong}),
                    ContainsSubstring("check_attention: expected float32, float64"));
}
