// SPDX-License-Identifier: MIT
// The conformance checks: every path follows the contract, and each point catches a fault.
#include "mini/conformance.h"

#include <map>
#include <set>

#include "support/attention_functions.h"
#include "support/attention_support.h"
#include "support/error_of.h"
#include "support/targets.h"

using namespace mini;
using namespace mini::test;

namespace {

void check_all_points(const NamedAttention& attention, at::ScalarType dtype, size_t at_least) {
  const auto points =
      check_attention(attention.function, {.dtype = dtype, .features = attention.features});
  CHECK(points.size() >= at_least);
  for (const ConformancePoint& point : points) {
    INFO(c10::str(attention.name, " in ", dtype, ": ", point.rule, ": expected ", point.expected,
                  ", got ", point.actual, " (", point.detail, ")"));
    CHECK(point.passed);
  }
}

using Options = AttentionOptions;
using T = at::Tensor;

/// The contract's attention with `change` applied to the options first.
template <typename Change>
AttentionFunction with_options(Change change) {
  return [=](const T& q, const T& k, const T& v, const Options& options) {
    Options changed = options;
    change(changed, q);
    return mini::scaled_dot_product_attention(q, k, v, changed);
  };
}

/// The contract's attention, and `change` applied to the output.
template <typename Change>
AttentionFunction with_output(Change change) {
  return [=](const T& q, const T& k, const T& v, const Options& options) {
    return change(mini::scaled_dot_product_attention(q, k, v, options), q);
  };
}

/// Returns zeros of the right shape where the contract requires an error.
AttentionFunction never_refuses() {
  return [](const T& q, const T& k, const T& v, const Options& options) {
    try {
      return mini::scaled_dot_product_attention(q, k, v, options);
    } catch (const c10::Error&) {
      return at::zeros({1});
    }
  };
}

/// The naive formula: softmax(scale q k^T + mask) v, with `fill` at hidden positions.
T naive(const T& q, const T& k, const T& v, const Options& options, double fill) {
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1))));
  T scores = at::matmul(q, k.transpose(-2, -1)) * scale;
  if (options.mask) {
    scores = options.mask->scalar_type() == at::kBool
                 ? scores.masked_fill(options.mask->logical_not(), fill)
                 : scores + options.mask->to(scores.scalar_type()).clamp_min(fill);
  }
  if (options.causal != Causal::kNone) {
    const int64_t Tq = q.size(-2), Tk = k.size(-2);
    const int64_t shift = options.causal == Causal::kLowerRight ? Tk - Tq : 0;
    scores = scores.masked_fill(at::ones({Tq, Tk}, at::kBool).triu(1 + shift), fill);
  }
  return at::matmul(at::softmax(scores, -1), v);
}

AttentionFunction naive_with(double fill) {
  return [=](const T& q, const T& k, const T& v, const Options& options) {
    return naive(q, k, v, options, fill);
  };
}

AttentionFunction only_dimensions(int64_t allowed) {
  return [=](const T& q, const T& k, const T& v, const Options& options) {
    TORCH_CHECK(!q.defined() || q.dim() == allowed, "other dimensions");
    return mini::scaled_dot_product_attention(q, k, v, options);
  };
}

/// Functions with one fault each.
std::vector<std::pair<std::string, AttentionFunction>> broken_functions() {
  const auto no_values = [](const T& x) { return at::nan_to_num(x, 0.0, 0.0, 0.0); };
  return {
      {"twice the output", with_output([](T y, const T&) { return y * 2; })},
      {"only three dimensions", only_dimensions(3)},
      {"only four dimensions", only_dimensions(4)},
      {"never an error", never_refuses()},
      {"finite fill", naive_with(-1e4)},
      {"infinite fill", naive_with(-kInf)},
      {"no NaN", with_output([=](T y, const T&) { return no_values(y); })},
      {"ignores the scale", with_options([](Options& o, const T&) {
         if (o.scale && std::isfinite(*o.scale)) o.scale = std::nullopt;
       })},
      {"ignores the mask", with_options([](Options& o, const T&) { o.mask = std::nullopt; })},
      {"inverted bool mask", with_options([](Options& o, const T&) {
         if (o.mask && o.mask->scalar_type() == at::kBool) o.mask = o.mask->logical_not();
       })},
      {"detached mask", with_options([](Options& o, const T&) {
         if (o.mask) o.mask = o.mask->detach();
       })},
      {"ignores causal", with_options([](Options& o, const T&) { o.causal = Causal::kNone; })},
      {"the other causal corner", with_options([](Options& o, const T&) {
         if (o.causal != Causal::kNone) {
           o.causal = o.causal == Causal::kUpperLeft ? Causal::kLowerRight : Causal::kUpperLeft;
         }
       })},
      {"always drops", with_options([](Options& o, const T&) { o.training = true; })},
      {"ignores dropout", with_options([](Options& o, const T&) { o.training = false; })},
      {"keeps what it should drop", with_options([](Options& o, const T&) {
         if (o.dropout > 0.0 && o.dropout < 1.0) o.dropout = 1.0 - o.dropout;
       })},
      {"ignores the generator",
       with_options([](Options& o, const T&) { o.generator = std::nullopt; })},
      {"no gradients", with_output([](T y, const T&) { return y.detach(); })},
      {"float32 output", with_output([](T y, const T&) { return y.to(at::kFloat); })},
      {"float64 output", with_output([](T y, const T&) { return y.to(at::kDouble); })},
      {"skips the last row of a long block", with_output([](T y, const T&) {
         return y.numel() > 0 && y.size(-2) > 64
                    ? at::cat({y.narrow(-2, 0, 64), y.narrow(-2, 64, y.size(-2) - 64) * 0}, -2)
                    : y;
       })},
      {"full masks only", with_options([](Options& o, const T& q) {
         TORCH_CHECK(!o.mask || (o.mask->dim() == 2 && o.mask->size(0) == q.size(-2)), "mask");
       })},
      {"masks of q's dtype only", with_options([](Options& o, const T& q) {
         TORCH_CHECK(!o.mask || o.mask->scalar_type() == at::kBool ||
                         o.mask->scalar_type() == q.scalar_type(),
                     "mask");
       })},
      {"no maximum subtracted",
       [](const T& q, const T& k, const T& v, const Options& o) {
         if (o.mask || o.causal != Causal::kNone || o.dropout > 0 || o.grouped_queries ||
             !q.defined() || !k.defined() || q.size(-1) != 1) {
           return mini::scaled_dot_product_attention(q, k, v, o);
         }
         const T weights = at::matmul(q, k.transpose(-2, -1)).exp();
         return at::matmul(weights / weights.sum(-1, true), v);
       }},
      {"scale rounded into q",
       [](const T& q, const T& k, const T& v, const Options& o) {
         if (!o.scale || *o.scale != 1.0) return mini::scaled_dot_product_attention(q, k, v, o);
         Options changed = o;
         changed.scale = std::log(2.0);
         return mini::scaled_dot_product_attention(q * (1 / std::log(2.0)), k, v, changed);
       }},
      {"float32 arithmetic",
       [](const T& q, const T& k, const T& v, const Options& o) {
         if (!q.defined() || q.scalar_type() != at::kDouble) {
           return mini::scaled_dot_product_attention(q, k, v, o);
         }
         return mini::scaled_dot_product_attention(q.to(at::kFloat), k.to(at::kFloat),
                                                   v.to(at::kFloat), o)
             .to(at::kDouble);
       }},
      {"half arithmetic",
       [](const T& q, const T& k, const T& v, const Options& o) {
         const bool half =
             q.defined() && (q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf);
         return half ? naive(q, k, v, o, -kInf) : mini::scaled_dot_product_attention(q, k, v, o);
       }},
      {"gradient of v only",
       [](const T& q, const T& k, const T& v, const Options& o) {
         return mini::scaled_dot_product_attention(q.detach(), k.detach(), v, o);
       }},
      {"first-order gradients only",
       [](const T& q, const T& k, const T& v, const Options& o) {
         struct Once : torch::autograd::Function<Once> {
           static T forward(torch::autograd::AutogradContext* context, const T& x) {
             context->save_for_backward({});
             return x.clone();
           }
           static torch::autograd::variable_list backward(
               torch::autograd::AutogradContext*, const torch::autograd::variable_list& dy) {
             return {dy[0].detach()};
           }
         };
         return mini::scaled_dot_product_attention(Once::apply(q), Once::apply(k), Once::apply(v),
                                                   o);
       }},
      {"imprecise gradient of one key",
       [](const T& q, const T& k, const T& v, const Options& o) {
         return mini::scaled_dot_product_attention(q, k, v, o) + 1e-5 * (q.sum() + k.sum()) -
                1e-5 * (q.detach().sum() + k.detach().sum());
       }},
      {"writes into q",
       [](const T& q, const T& k, const T& v, const Options& o) {
         const T y = mini::scaled_dot_product_attention(q, k, v, o);
         if (!q.requires_grad()) q.detach().mul_(2);
         return y;
       }},
      {"assumes contiguous rows",
       [](const T& q, const T& k, const T& v, const Options& o) {
         if (q.dim() != 3 || q.numel() == 0) {
           return mini::scaled_dot_product_attention(q, k, v, o);
         }
         return mini::scaled_dot_product_attention(
             q.as_strided(q.sizes(), c10::contiguous_strides(q.sizes())), k, v, o);
       }},
      {"refuses empty tensors",
       [](const T& q, const T& k, const T& v, const Options& o) {
         TORCH_CHECK(q.numel() > 0 && k.numel() > 0, "empty");
         return mini::scaled_dot_product_attention(q, k, v, o);
       }},
      {"refuses other lengths and widths",
       [](const T& q, const T& k, const T& v, const Options& o) {
         TORCH_CHECK(q.sizes() == k.sizes() && k.sizes() == v.sizes(), "other sizes");
         return mini::scaled_dot_product_attention(q, k, v, o);
       }},
      {"the wrong key/value head",
       [](const T& q, const T& k, const T& v, const Options& o) {
         return o.grouped_queries && k.defined()
                    ? mini::scaled_dot_product_attention(q, k.flip({1}), v, o)
                    : mini::scaled_dot_product_attention(q, k, v, o);
       }},
      {"one key/value head only",
       [](const T& q, const T& k, const T& v, const Options& o) {
         return mini::scaled_dot_product_attention(q, k.narrow(1, 0, 1), v.narrow(1, 0, 1), o);
       }},
      {"rounds the scores",
       [](const T& q, const T& k, const T& v, const Options& o) {
         return mini::scaled_dot_product_attention(q * 1.0001, k, v, o);
       }},
  };
}

}  // namespace

TEST_CASE("every path of attention follows the contract", "[attention][conformance]") {
  for (const NamedAttention& attention : our_attention_functions()) {
    check_all_points(attention, at::kFloat, attention.features.separate_inputs ? 50 : 25);
  }
}

TEST_CASE("attention follows the contract on every instruction set and in every dtype",
          "[attention][conformance]") {
  const NamedAttention fused = our_attention_functions()[0];
  for_each_target([&] {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      check_all_points(fused, dtype, 50);
    }
  });
  for (const NamedAttention& attention : our_attention_functions()) {
    check_all_points(attention, at::kDouble, 25);
  }
}

TEST_CASE("each point of the contract catches a fault", "[attention][conformance]") {
  // The faults that each point catches. A fault that fails more than a third of the points shows
  // little about one of them, so only the basic points may rely on it.
  std::map<std::string, std::string> caught;
  const std::set<std::string> basic = {"softmax(q kᵀ / √d_k) v", "q, k, v (B, T, d)"};
  for (const ConformancePoint& point : check_attention(mini::scaled_dot_product_attention)) {
    caught[point.rule];
  }
  for (const auto& [fault, function] : broken_functions()) {
    std::vector<std::string> failed;
    for (const ConformancePoint& point : check_attention(function)) {
      CHECK(point.actual.empty() == point.passed);
      if (!point.passed) failed.push_back(point.rule);
    }
    INFO(fault);
    CHECK_FALSE(failed.empty());
    for (const std::string& rule : failed) {
      if (3 * failed.size() <= caught.size() || basic.contains(rule)) caught[rule] += fault + "; ";
    }
  }
  for (const auto& [rule, faults] : caught) {
    INFO(rule);
    CHECK_FALSE(faults.empty());
  }
}

TEST_CASE("a feature that a function does not offer is not checked", "[attention][conformance]") {
  const AttentionFunction refuses_masks = [](const T& q, const T& k, const T& v,
                                             const Options& options) {
    TORCH_CHECK(!options.mask, "no masks");
    return mini::scaled_dot_product_attention(q, k, v, options);
  };
  for (const ConformancePoint& point :
       check_attention(refuses_masks, {.features = {.masks = false}})) {
    INFO(point.rule);
    CHECK(point.passed);
  }
  const auto points = check_attention(refuses_masks);
  const auto failed = std::find_if(points.begin(), points.end(), [](const auto& p) {
    return p.rule == std::string("bool mask: true = may attend");
  });
  REQUIRE(failed != points.end());
  CHECK_FALSE(failed->passed);
  CHECK(failed->actual == "error");
  CHECK_THAT(failed->detail, ContainsSubstring("no masks"));
}

TEST_CASE("check_attention leaves LibTorch's generator and grad mode unchanged",
          "[attention][conformance]") {
  const at::NoGradGuard no_grad;
  torch::manual_seed(1);
  const T expected = at::rand({4});
  torch::manual_seed(1);
  check_attention(mini::scaled_dot_product_attention);
  CHECK_THAT(at::rand({4}), Equals(expected));
  CHECK_FALSE(at::GradMode::is_enabled());
  CHECK_THAT(error_of([] { check_attention({}); }), ContainsSubstring("got an empty one"));
  CHECK_THAT(
      error_of([] { check_attention(mini::scaled_dot_product_attention, {.dtype = at::kLong}); }),
      ContainsSubstring("expected float32, float64, bfloat16 or float16, got Long"));
}
