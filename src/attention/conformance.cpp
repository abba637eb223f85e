// SPDX-License-Identifier: MIT
#include "mini/conformance.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <utility>

namespace mini {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Inputs {
  at::Tensor q, k, v;

  Inputs to(const at::TensorOptions& options) const {
    return {q.to(options), k.to(options), v.to(options)};
  }
  Inputs with_gradients() const {
    const auto leaf = [](const at::Tensor& t) { return t.detach().clone().requires_grad_(); };
    return {leaf(q), leaf(k), leaf(v)};
  }
};

// Thrown where a check does not hold.
struct Broken {
  std::string detail;
};

// Runs the points on one function and collects the results.
class Suite {
 public:
  Suite(const AttentionFunction& attention, const ConformanceOptions& options)
      : attention_(attention),
        given_(at::device(options.device).dtype(options.dtype)),
        generator_(at::make_generator<at::CPUGeneratorImpl>(uint64_t{1})) {
    const at::ScalarType dtype = options.dtype;
    TORCH_CHECK(
        dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf,
        "check_attention: expected float32, float64, bfloat16 or float16, got ", dtype);
  }

  std::vector<ConformanceResult> run() {
    values();
    shapes();
    arguments();
    masks();
    causality();
    hidden_keys();
    special_values();
    gradients();
    dropout();
    grouped_heads();
    return std::move(results_);
  }

 private:
  // A check of the current point. A check that the function does not support does not count.
  template <class Body>
  void check(const Body& body) {
    try {
      body();
      ++checks_;
    } catch (const c10::NotImplementedError&) {
    } catch (const Broken& broken) {
      ++checks_;
      if (detail_.empty()) detail_ = broken.detail;
    } catch (const c10::Error& error) {
      ++checks_;
      const std::string message = error.what_without_backtrace();
      if (detail_.empty()) detail_ = "throws: " + message.substr(0, message.find('\n'));
    } catch (const std::exception& error) {
      ++checks_;
      if (detail_.empty()) detail_ = std::string("throws: ") + error.what();
    }
  }

  void end_point(std::string point, std::string rule) {
    const Conformance status = checks_ == 0      ? Conformance::kUnsupported
                               : detail_.empty() ? Conformance::kHolds
                                                 : Conformance::kFails;
    results_.push_back({std::move(point), std::move(rule), status, std::move(detail_)});
    detail_.clear();
    checks_ = 0;
  }

  static void require(bool holds, const std::string& detail) {
    if (!holds) throw Broken{detail};
  }

  at::Tensor call(const Inputs& in, const AttentionOptions& options = {}) {
    return attention_(in.q, in.k, in.v, options);
  }

  // ---- Inputs

  at::Tensor random(at::IntArrayRef sizes) {
    return at::randn(sizes, generator_, at::kDouble).to(given_);
  }

  // q (leading..., Tq, d_k), k (leading..., Tk, d_k), v (leading..., Tk, d_v)
  Inputs draw(std::vector<int64_t> leading, int64_t Tq, int64_t Tk, int64_t d_k, int64_t d_v) {
    const auto part = [&](int64_t rows, int64_t columns) {
      std::vector<int64_t> sizes = leading;
      sizes.insert(sizes.end(), {rows, columns});
      return random(sizes);
    };
    at::Tensor q = part(Tq, d_k), k = part(Tk, d_k);
    return {q, k, part(Tk, d_v)};
  }

  at::Tensor tensor(std::vector<double> values, at::IntArrayRef sizes) const {
    return at::tensor(values, at::kDouble).reshape(sizes).to(given_);
  }
  at::Tensor bools(std::vector<double> values, at::IntArrayRef sizes) const {
    return at::tensor(values, at::kDouble).reshape(sizes).ne(0).to(given_.device());
  }

  // One query and keys of width 1, so that the scores are the given numbers.
  Inputs scores(const std::vector<double>& given, const std::vector<double>& values) const {
    const auto n = static_cast<int64_t>(given.size());
    return {tensor({1}, {1, 1, 1, 1}), tensor(given, {1, 1, n, 1}), tensor(values, {1, 1, n, 1})};
  }

  // ---- Expectations

  static AttentionOptions in_double(AttentionOptions options) {
    if (options.mask && options.mask->scalar_type() != at::kBool) {
      options.mask = options.mask->to(at::device(at::kCPU).dtype(at::kDouble));
    } else if (options.mask) {
      options.mask = options.mask->cpu();
    }
    return options;
  }

  static at::Tensor expected_output(const Inputs& in, const AttentionOptions& options) {
    const Inputs exact = in.to(at::device(at::kCPU).dtype(at::kDouble));
    return attention_steps(exact.q, exact.k, exact.v, in_double(options)).output;
  }

  static double error_of(const at::Tensor& output, const at::Tensor& expected) {
    if (expected.numel() == 0) return 0;
    return (output.detach().to(at::device(at::kCPU).dtype(at::kDouble)) - expected.detach())
        .abs()
        .max()
        .item<double>();
  }

  void require_close(const at::Tensor& got, const at::Tensor& expected, double peer_error,
                     const std::string& what) const {
    require(got.sizes() == expected.sizes(),
            c10::str(what, ": expected shape ", expected.sizes(), ", got ", got.sizes()));
    const double error = error_of(got, expected);
    const double bound = 2 * peer_error + (given_.dtype() == at::kDouble ? 1e-12 : 1e-6);
    require(error <= bound, c10::str(what, ": the error is ", error, ", the bound ", bound));
  }

  // The output against float64.
  void require_right(const Inputs& in, const AttentionOptions& options, const std::string& what) {
    const at::Tensor output = call(in, options);
    require(
        output.scalar_type() == in.q.scalar_type(),
        c10::str(what, ": expected dtype ", in.q.scalar_type(), ", got ", output.scalar_type()));
    const at::Tensor expected = expected_output(in, options);
    const at::Tensor peer = attention_steps(in.q, in.k, in.v, options).output;
    require_close(output, expected, error_of(peer, expected), what);
  }

  void require_equal(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
    require(at::equal(got.cpu(), expected.cpu()), what);
  }

  void require_numbers(const Inputs& in, const AttentionOptions& options,
                       const std::vector<double>& expected, const std::string& what) {
    const at::Tensor output = call(in, options).flatten().to(at::kCPU, at::kDouble);
    const double precision = given_.dtype() == at::kDouble  ? 1e-9
                             : given_.dtype() == at::kFloat ? 1e-6
                                                            : 1e-2;
    require(output.numel() == static_cast<int64_t>(expected.size()), what + ": wrong shape");
    for (size_t i = 0; i < expected.size(); ++i) {
      const double got = output[static_cast<int64_t>(i)].item<double>();
      const bool same = std::isnan(expected[i]) ? std::isnan(got)
                                                : std::abs(got - expected[i]) <=
                                                      precision * (1 + std::abs(expected[i]));
      require(same, c10::str(what, ": expected ", expected[i], ", got ", got));
    }
  }

  void require_refusal(const Inputs& in, const AttentionOptions& options, const std::string& what) {
    try {
      call(in, options);
    } catch (const c10::NotImplementedError&) {
      throw;
    } catch (const std::exception&) {
      return;
    }
    throw Broken{what + ": expected an error, got a result"};
  }

  static std::vector<at::Tensor> gradients_of(const at::Tensor& output, const Inputs& in,
                                              const at::Tensor& upstream) {
    return torch::autograd::grad({output}, {in.q, in.k, in.v}, {upstream}, /*retain_graph=*/false,
                                 /*create_graph=*/false, /*allow_unused=*/true);
  }

  void require_right_gradients(const Inputs& given, const AttentionOptions& options,
                               const std::string& what) {
    const Inputs in = given.with_gradients();
    const at::Tensor output = call(in, options);
    const at::Tensor upstream = random(output.sizes());
    const auto got = gradients_of(output, in, upstream);

    const auto by_steps = [&](const Inputs& of, const AttentionOptions& with) {
      const Inputs leaves = of.with_gradients();
      const at::Tensor steps = attention_steps(leaves.q, leaves.k, leaves.v, with).output;
      return gradients_of(steps, leaves, upstream.to(steps.options()));
    };
    const auto expected =
        by_steps(given.to(at::device(at::kCPU).dtype(at::kDouble)), in_double(options));
    const auto peer = by_steps(given, options);
    const char* names[] = {"dq", "dk", "dv"};
    for (size_t i = 0; i < 3; ++i) {
      require(got[i].defined(), c10::str(what, ": ", names[i], " is undefined"));
      require_close(got[i], expected[i], error_of(peer[i], expected[i]),
                    c10::str(what, ", ", names[i]));
    }
  }

  // ---- The points

  void values() {
    for (const auto& [T, d] : {std::pair<int64_t, int64_t>(4, 32), {1, 1}, {17, 5}, {64, 64}}) {
      check([&] { require_right(draw({2, 3}, T, T, d, d), {}, c10::str("T ", T, ", d ", d)); });
    }
    end_point("formula", "softmax(q k^T / sqrt(d_k)) v within the bound of error");

    for (const int64_t d : {1, 2, 3, 31, 257, 1000}) {
      check([&] { require_right(draw({1, 1}, 3, 3, d, d), {}, c10::str("d ", d)); });
    }
    end_point("head sizes", "any head size, odd and large ones too");

    for (const double scale : {1.0, 0.0, -2.0, 0.3}) {
      check([&] {
        require_right(draw({1, 2}, 5, 5, 8, 8), {.scale = scale}, c10::str("scale ", scale));
      });
    }
    for (const double scale : {kNan, kInf}) {
      check([&] {
        require_refusal(draw({1, 2}, 5, 5, 8, 8), {.scale = scale}, c10::str("scale ", scale));
      });
    }
    end_point("scale", "any finite factor on the scores; NaN and infinity are errors");

    check([&] { require_numbers(scores({1e4, -1e4, 0}, {1, 2, 3}), {}, {1}, "scores of 1e4"); });
    if (given_.dtype() != at::kHalf) {
      check([&] { require_numbers(scores({1e6, 1e6}, {1, 3}), {}, {2}, "equal scores of 1e6"); });
      check([&] {
        require_numbers(scores({-3e38, -2.5e38}, {1, 3}), {}, {3}, "scores of -3e38 and -2.5e38");
      });
    }
    if (given_.dtype() == at::kFloat || given_.dtype() == at::kDouble) {
      check([&] {
        const Inputs in{tensor({1000, 1}, {1, 1, 1, 2}), tensor({1000, 0, 1000, -1}, {1, 1, 2, 2}),
                        tensor({0, 1}, {1, 1, 2, 1})};
        require_numbers(in, {.scale = 1.0}, {0.268941421}, "scores 1e6 and 1e6 - 1");
      });
    }
    end_point("large scores", "as if the row maximum were subtracted exactly");
  }

  void shapes() {
    for (const std::vector<int64_t>& leading :
         {std::vector<int64_t>{}, {3}, {2, 3}, {2, 1, 3}, {1, 2, 1, 2}}) {
      check([&] {
        require_right(draw(leading, 4, 4, 8, 8), {},
                      c10::str(leading.size(), " leading dimensions"));
      });
    }
    end_point("leading dimensions", "any number of them, B x T x hs too");

    check([&] { require_right(draw({1, 2}, 3, 7, 8, 8), {}, "Tq 3, Tk 7"); });
    check([&] { require_right(draw({1, 2}, 7, 3, 8, 8), {}, "Tq 7, Tk 3"); });
    check([&] { require_right(draw({1, 2}, 1, 40, 8, 8), {}, "Tq 1, Tk 40"); });
    end_point("unequal lengths", "Tq and Tk may differ");

    check([&] { require_right(draw({1, 2}, 4, 4, 8, 3), {}, "d_k 8, d_v 3"); });
    check([&] { require_right(draw({1, 2}, 4, 4, 3, 20), {}, "d_k 3, d_v 20"); });
    end_point("value width", "d_v may differ from d_k");

    check([&] {
      Inputs in = draw({2, 3}, 6, 6, 8, 8);
      const at::Tensor expected = call(in);
      in.q = in.q.transpose(-2, -1).contiguous().transpose(-2, -1);
      in.k = at::stack({in.k, in.k}, -1).select(-1, 1);
      in.v = in.v.transpose(0, 1).contiguous().transpose(0, 1);
      require_close(call(in), expected.to(at::kCPU, at::kDouble), 0,
                    "transposed and sliced inputs");
    });
    check([&] {
      Inputs in = draw({1, 3}, 6, 6, 8, 8);
      in = {in.q.expand({2, 3, 6, 8}), in.k.expand({2, 3, 6, 8}), in.v.expand({2, 3, 6, 8})};
      require_right(in, {}, "expanded inputs");
    });
    end_point("strides", "any strides, 0 too");

    const auto empty = [&](std::vector<int64_t> leading, int64_t Tq, int64_t Tk) {
      const Inputs in = draw(std::move(leading), Tq, Tk, 8, 8);
      const at::Tensor output = call(in);
      require(output.sizes() == in.q.sizes(), c10::str("got shape ", output.sizes()));
      require(output.eq(0).all().item<bool>(), "expected zeros");
    };
    check([&] { empty({0, 2}, 3, 3); });
    check([&] { empty({1, 2}, 0, 3); });
    check([&] { empty({1, 2}, 3, 0); });
    check([&] { empty({1, 2}, 0, 0); });
    end_point("empty", "B, Tq or Tk = 0 gives an empty or zero result");
  }

  void arguments() {
    const Inputs in = draw({2, 2}, 4, 4, 8, 8);
    const auto refuses = [&](const Inputs& wrong, const std::string& what) {
      check([&] { require_refusal(wrong, {}, what); });
    };
    refuses({in.q.slice(0, 0, 1), in.k, in.v}, "q of batch 1, k and v of batch 2");
    refuses({in.q, in.k.slice(1, 0, 1), in.v.slice(1, 0, 1)},
            "two query heads, one key/value head");
    refuses({in.q, in.k, in.v.slice(1, 0, 1)}, "two key heads, one value head");
    end_point("no broadcast", "q, k and v must share their leading dimensions");

    refuses({in.q, in.k.narrow(-1, 0, 7), in.v}, "d_k 8 in q, 7 in k");
    refuses({in.q, in.k.narrow(-2, 0, 3), in.v}, "3 keys, 4 values");
    refuses({in.q, in.k.flatten(0, 1), in.v}, "k of another number of dimensions");
    const at::ScalarType other = given_.dtype() == at::kDouble ? at::kFloat : at::kDouble;
    refuses({in.q, in.k.to(other), in.v}, "k of another dtype");
    refuses({in.q.to(at::kLong), in.k.to(at::kLong), in.v.to(at::kLong)}, "whole numbers");
    refuses({at::Tensor(), in.k, in.v}, "an undefined q");
    end_point("wrong arguments", "an exception before any work");
  }

  void masks() {
    const Inputs in = draw({2, 3}, 4, 4, 8, 8);
    const at::Tensor seen = bools({1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}, {4, 4});
    check([&] { require_right(in, {.mask = seen}, "a mask (Tq, Tk)"); });
    check([&] {
      require_right(in, {.mask = seen.expand({2, 3, 4, 4}).contiguous()}, "a mask of 4 dimensions");
    });
    end_point("bool mask", "true where the query may attend to the key");

    const at::Tensor added = random({4, 4});
    check([&] { require_right(in, {.mask = added}, "a mask (Tq, Tk)"); });
    check([&] {
      const at::Tensor hiding = added.masked_fill(seen.logical_not(), -kInf);
      require_right(in, {.mask = hiding}, "a mask with -infinity");
    });
    end_point("float mask", "added to the scaled scores; -infinity hides");

    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      check([&] {
        require_right(in, {.mask = added.to(at::kBFloat16).to(dtype)},
                      c10::str("a mask of ", dtype));
      });
    }
    end_point("mask dtypes", "any floating dtype");

    const auto broadcasts = [&](at::IntArrayRef sizes) {
      check([&] { require_right(in, {.mask = random(sizes)}, c10::str("a mask of ", sizes)); });
    };
    broadcasts({1, 4});
    broadcasts({4, 1});
    broadcasts({4});
    broadcasts({2, 1, 1, 4});
    broadcasts({1, 3, 4, 1});
    end_point("mask broadcast", "from sizes of 1 and from one or two dimensions");

    check([&] {
      require_refusal(in, {.mask = random({3, 4, 4})}, "a mask of 3 dimensions on 4-D q");
    });
    check([&] { require_refusal(in, {.mask = random({3, 4})}, "a mask of another length"); });
    check([&] { require_refusal(in, {.mask = at::ones({4, 4}, at::kLong)}, "whole numbers"); });
    end_point("wrong masks", "an error; a mask of 3 dimensions on 4-D q is ambiguous");

    check([&] {
      const at::Tensor mask = added.detach().clone().requires_grad_();
      const at::Tensor output = call(in, {.mask = mask});
      const at::Tensor upstream = random(output.sizes());
      const at::Tensor got = torch::autograd::grad({output}, {mask}, {upstream})[0];
      const auto by_steps = [&](const Inputs& of) {
        const at::Tensor leaf = added.detach().to(of.q.options()).clone().requires_grad_();
        const at::Tensor steps = attention_steps(of.q, of.k, of.v, {.mask = leaf}).output;
        return torch::autograd::grad({steps}, {leaf}, {upstream.to(steps.options())})[0];
      };
      const at::Tensor expected = by_steps(in.to(at::device(at::kCPU).dtype(at::kDouble)));
      require_close(got, expected, error_of(by_steps(in), expected), "the gradient of the mask");
    });
    end_point("gradient of a mask", "flows to a floating mask");
  }

  void causality() {
    for (const Causal causal : {Causal::kUpperLeft, Causal::kLowerRight}) {
      const bool upper_left = causal == Causal::kUpperLeft;
      for (const auto& [Tq, Tk] : {std::pair<int64_t, int64_t>(5, 5), {3, 7}, {7, 3}, {1, 6}}) {
        check([&] {
          require_right(draw({1, 2}, Tq, Tk, 8, 8), {.causal = causal},
                        c10::str("Tq ", Tq, ", Tk ", Tk));
        });
      }
      end_point(upper_left ? "causal, upper left" : "causal, lower right",
                upper_left ? "query i sees keys j <= i" : "query i sees keys j <= i + Tk - Tq");
    }
    check([&] {
      const at::Tensor mask = bools({1, 0, 1, 1, 1, 1, 0, 1, 1}, {3, 3});
      require_right(draw({1, 2}, 3, 3, 8, 8), {.mask = mask, .causal = Causal::kUpperLeft},
                    "a bool mask");
    });
    check([&] {
      require_right(draw({1, 2}, 3, 3, 8, 8),
                    {.mask = random({3, 3}), .causal = Causal::kUpperLeft}, "a float mask");
    });
    end_point("causal with a mask", "a key is visible if both allow it");
  }

  void hidden_keys() {
    const at::Tensor nothing = bools({1, 1, 1, 0, 0, 0, 1, 0, 1}, {3, 3});
    const Inputs in = draw({1, 2}, 3, 3, 8, 8);
    for (const bool floating : {false, true}) {
      check([&] {
        AttentionOptions options{.mask = nothing};
        if (floating)
          options.mask = at::zeros({3, 3}, given_).masked_fill(nothing.logical_not(), -kInf);
        require_right(in, options, floating ? "a float mask" : "a bool mask");
        require(call(in, options).select(-2, 1).eq(0).all().item<bool>(),
                "the output of a row that sees no key is not 0");
      });
    }
    check([&] {
      require_right(draw({1, 2}, 5, 2, 8, 8), {.causal = Causal::kLowerRight},
                    "first queries without a key");
    });
    end_point("rows that see no key", "output 0, never NaN");

    check([&] { require_right_gradients(in, {.mask = nothing}, "a bool mask"); });
    check([&] {
      require_right_gradients(draw({1, 2}, 5, 2, 8, 8), {.causal = Causal::kLowerRight}, "causal");
    });
    end_point("gradients of such rows", "0, never NaN");

    check([&] {
      const AttentionOptions options{.mask = bools({1, 0, 1}, {1, 3})};
      const at::Tensor before = call(in, options);
      Inputs changed = in;
      changed.k = in.k.clone();
      changed.v = in.v.clone();
      changed.k.select(-2, 1).fill_(77);
      changed.v.select(-2, 1).fill_(-1e4);
      require_equal(call(changed, options), before, "a hidden key or value changes the output");
    });
    end_point("hidden keys", "have weight exactly 0");

    check([&] {
      Inputs changed = in;
      changed.k = in.k.clone();
      changed.k.select(-2, 1).fill_(kNan);
      const AttentionOptions options{.mask = bools({1, 0, 1}, {1, 3})};
      require(call(changed, options).isfinite().all().item<bool>(), "NaN in a hidden key shows");
    });
    end_point("NaN in a hidden key", "does not touch any row");
  }

  void special_values() {
    check([&] {
      Inputs in = draw({1, 1}, 3, 3, 8, 8);
      in.k = in.k.clone();
      in.k.select(-2, 2).fill_(kNan);
      const at::Tensor nan = call(in, {.causal = Causal::kUpperLeft}).isnan();
      require(!nan.slice(-2, 0, 2).any().item<bool>(), "NaN shows in a row that does not see it");
      require(nan.select(-2, 2).all().item<bool>(), "NaN does not show in the row that sees it");
    });
    check([&] { require_numbers(scores({-kInf, 1}, {1, 3}), {}, {3}, "one score of -infinity"); });
    check([&] {
      require_numbers(scores({-kInf, -kInf}, {1, 3}), {}, {kNan}, "visible scores of -infinity");
    });
    check([&] { require_numbers(scores({kInf, 0}, {1, 3}), {}, {kNan}, "a score of infinity"); });
    check([&] {
      require_numbers(scores({0, 0}, {1, 3}), {.mask = tensor({kInf, 0}, {1, 2})}, {kNan},
                      "a mask of infinity");
    });
    end_point("NaN and infinity", "show in the rows that see them");

    check([&] {
      const at::Tensor mask = at::tensor({-3.4e38, -2.5e38}, at::kDouble).to(given_.device());
      require_numbers(scores({0, 0}, {1, 3}), {.mask = mask.reshape({1, 2})}, {3}, "finite ends");
    });
    check([&] {
      const double lowest = std::numeric_limits<double>::lowest();
      const at::Tensor mask = at::tensor({lowest, lowest}, at::kDouble).to(given_.device());
      require_numbers(scores({0, 0}, {1, 3}), {.mask = mask.reshape({1, 2})}, {2},
                      "the lowest float64 number");
    });
    end_point("ends of a mask's range", "only -infinity hides; finite numbers do not");
  }

  void gradients() {
    for (const auto& [Tq, Tk] : {std::pair<int64_t, int64_t>(4, 4), {1, 9}, {40, 70}}) {
      check([&] {
        require_right_gradients(draw({2, 2}, Tq, Tk, 16, 16), {}, c10::str("Tq ", Tq, ", Tk ", Tk));
      });
    }
    check([&] {
      require_right_gradients(draw({2, 2}, 9, 9, 16, 5), {.causal = Causal::kLowerRight}, "causal");
    });
    check([&] {
      require_right_gradients(draw({1, 1}, 4, 4, 8, 8),
                              {.mask = bools({1, 0, 1, 1}, {1, 4}), .scale = -0.5},
                              "mask and scale");
    });
    end_point("gradients", "of q, k and v, within the bound of error");

    for (size_t only = 0; only < 3; ++only) {
      check([&] {
        Inputs in = draw({1, 2}, 5, 5, 8, 8);
        at::Tensor* parts[] = {&in.q, &in.k, &in.v};
        const Inputs all = in.with_gradients();
        const at::Tensor upstream = random(in.q.sizes());
        const auto expected = gradients_of(call(all), all, upstream);
        *parts[only] = parts[only]->detach().clone().requires_grad_();
        const at::Tensor got = torch::autograd::grad({call(in)}, {*parts[only]}, {upstream})[0];
        require_close(got, expected[only].to(at::kCPU, at::kDouble), 1e-6, "one input alone");
      });
    }
    end_point("gradients of a subset", "of the inputs");

    check([&] {
      const Inputs in = draw({1, 2}, 5, 5, 8, 8).with_gradients();
      const at::Tensor output = call(in);
      const auto expanded = gradients_of(output, in, at::ones({1}, given_).expand(output.sizes()));
      const Inputs again = Inputs{in.q.detach(), in.k.detach(), in.v.detach()}.with_gradients();
      const auto expected = gradients_of(call(again), again, at::ones_like(output));
      for (size_t i = 0; i < 3; ++i) {
        require_close(expanded[i], expected[i].to(at::kCPU, at::kDouble), 0, "stride 0");
      }
    });
    end_point("upstream strides", "an upstream gradient may have any strides");

    for (const double factor : {1.0, 100.0}) {
      check([&] {
        Inputs in = draw({1, 2}, 6, 1, 16, 16);
        in.k = in.k * factor;
        in = in.with_gradients();
        const at::Tensor output = call(in);
        const auto got = gradients_of(output, in, random(output.sizes()));
        require(got[0].eq(0).all().item<bool>() && got[1].eq(0).all().item<bool>(),
                "dq or dk is not 0");
      });
    }
    end_point("one visible key", "its weight is 1, and dq and dk are exactly 0");

    check([&] {
      const Inputs in = draw({1, 1}, 3, 3, 4, 4).with_gradients();
      const at::Tensor upstream = random({1, 1, 3, 4}), second = random({1, 1, 3, 4});
      const auto of = [&](const at::Tensor& output, const Inputs& inputs) {
        const auto first =
            torch::autograd::grad({output}, {inputs.q}, {upstream.to(output.options())},
                                  /*retain_graph=*/true, /*create_graph=*/true);
        require(first[0].requires_grad(), "the gradient has no graph");
        return torch::autograd::grad({first[0]}, {inputs.q, inputs.k, inputs.v},
                                     {second.to(output.options())}, false, false, true);
      };
      const auto got = of(call(in), in);
      const Inputs exact = Inputs{in.q.detach(), in.k.detach(), in.v.detach()}
                               .to(at::device(at::kCPU).dtype(at::kDouble))
                               .with_gradients();
      const auto expected = of(attention_steps(exact.q, exact.k, exact.v).output, exact);
      const double rounding = given_.dtype() == at::kDouble  ? 1e-12
                              : given_.dtype() == at::kFloat ? 1e-5
                                                             : 5e-2;
      for (size_t i = 0; i < 3; ++i) {
        require(got[i].defined(), "a second derivative is undefined");
        require_close(got[i], expected[i], rounding, "second derivative");
      }
    });
    end_point("second derivatives", "of q, k and v");
  }

  void dropout() {
    const auto seeded = [] { return at::make_generator<at::CPUGeneratorImpl>(uint64_t{7}); };
    const Inputs in = draw({1, 2}, 30, 30, 8, 8);
    // With these values the output is the sum of the weights that are kept, scaled.
    const Inputs sums{in.q, in.k, at::ones_like(in.v)};
    check([&] {
      require_equal(call(in, {.dropout = 0.5, .training = false}), call(in),
                    "dropout acts although training is false");
    });
    check([&] {
      const AttentionOptions options{.dropout = 1.0, .training = true, .generator = seeded()};
      require(call(in, options).eq(0).all().item<bool>(), "p = 1 does not give zeros");
    });
    check([&] {
      const AttentionOptions options{.dropout = 0.25, .training = true, .generator = seeded()};
      const double mean = call(sums, options).to(at::kDouble).mean().item<double>();
      // 1,800 weights: the mean is 1 with a standard deviation of 0.02 or, for weights of few keys, more.
      require(std::abs(mean - 1) < 0.15, c10::str("the weights sum to ", mean, " on average"));
      require(!at::equal(call(sums, options), at::ones_like(in.v)), "no weight is dropped");
    });
    check([&] {
      const auto once = [&] {
        return call(in, {.dropout = 0.5, .training = true, .generator = seeded()});
      };
      require_equal(once(), once(), "equal seeds give different results");
    });
    for (const double p : {-0.1, 1.5, kNan}) {
      check(
          [&] { require_refusal(in, {.dropout = p, .training = true}, c10::str("dropout ", p)); });
    }
    end_point("dropout", "on the weights while training; p in [0, 1]; a seed repeats it");
  }

  void grouped_heads() {
    const auto grouped = [&](int64_t query_heads, int64_t key_heads) {
      Inputs in = draw({2, query_heads}, 5, 5, 8, 8);
      in.k = in.k.narrow(1, 0, key_heads);
      in.v = in.v.narrow(1, 0, key_heads);
      return in;
    };
    for (const auto& [heads, key_heads] : {std::pair<int64_t, int64_t>(4, 2), {6, 1}, {3, 3}}) {
      check([&] {
        require_right(grouped(heads, key_heads), {.grouped_queries = true},
                      c10::str(heads, " query heads, ", key_heads, " key/value heads"));
      });
      check([&] {
        require_right_gradients(grouped(heads, key_heads),
                                {.causal = Causal::kUpperLeft, .grouped_queries = true},
                                c10::str(heads, " query heads, ", key_heads, " key/value heads"));
      });
    }
    check([&] { require_refusal(grouped(4, 3), {.grouped_queries = true}, "4 and 3 heads"); });
    end_point("grouped heads", "consecutive query heads share a key/value head");
  }

  const AttentionFunction& attention_;
  at::TensorOptions given_;
  at::Generator generator_;
  std::vector<ConformanceResult> results_;
  std::string detail_;
  int checks_ = 0;
};

}  // namespace

std::vector<ConformanceResult> check_attention(const AttentionFunction& attention,
                                               const ConformanceOptions& options) {
  return Suite(attention, options).run();
}

}  // namespace mini
