// SPDX-License-Identifier: MIT
// Built by a parent project with -ffast-math and -Ofast: attention has the same results and the
// same errors as without. This program is compiled with these options too, so it leaves the tests
// for NaN to LibTorch.
#include <mini/mini.h>
#include <torch/torch.h>

#include <cstdio>
#include <functional>
#include <limits>
#include <string>

namespace {

int failures = 0;

void check(const std::string& what, bool holds) {
  if (!holds) {
    ++failures;
    std::printf("wrong: %s\n", what.c_str());
  }
}

// `message` is the start of the expected error.
void check_refused(const std::string& message, const std::function<void()>& call) {
  std::string error = "no error";
  try {
    call();
  } catch (const c10::Error& refused) {
    error = refused.what_without_backtrace();
  }
  check("expected \"" + message + "\", got \"" + error + "\"", error.starts_with(message));
}

bool holds_everywhere(const at::Tensor& t) { return t.all().item<bool>(); }

void check_attention(const mini::AttentionOptions& options) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double hidden : {kInfinity, 0.0}) {
    const at::Tensor q = torch::randn({1, 2, 70, 24}), k = torch::randn({1, 2, 90, 24}),
                     v = torch::randn({1, 2, 90, 24});
    mini::AttentionOptions with_mask = options;
    if (hidden > 0.0) {
      at::Tensor mask = torch::randn({70, 90});
      mask = mask.masked_fill(mask > 0.5, -hidden);
      mask[3].fill_(-hidden);  // this query sees no key
      with_mask.mask = mask;
    }
    mini::AttentionOptions exact_options = with_mask;
    if (with_mask.mask) exact_options.mask = with_mask.mask->to(at::kDouble);
    const at::Tensor exact = mini::scaled_dot_product_attention(
        q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), exact_options);
    check("attention takes the fused path", mini::attention_path(q, k, v, with_mask).fused);
    const at::Tensor output = mini::scaled_dot_product_attention(q, k, v, with_mask);
    check("attention agrees with float64", at::allclose(output.to(at::kDouble), exact, 1e-5, 1e-5));
    if (with_mask.mask)
      check("a row that sees no key is 0", holds_everywhere(output.select(2, 3).eq(0)));
  }
}

}  // namespace

int main() {
#ifndef __FAST_MATH__
#error "the parent project compiles with -ffast-math"
#endif
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  torch::manual_seed(1);
  check_attention({});
  check_attention({.causal = mini::Causal::kLowerRight});

  const at::Tensor x = torch::randn({1, 8, 16});
  at::Tensor with_nan = x.clone();
  with_nan[0][5].fill_(kNaN);
  const at::Tensor output = mini::scaled_dot_product_attention(
      with_nan, with_nan, x, {.causal = mini::Causal::kUpperLeft});
  check("NaN in a visible key propagates", holds_everywhere(output.slice(1, 5).isnan()));
  check("NaN in a hidden key does not affect a row",
        holds_everywhere(output.slice(1, 0, 5).isfinite()));

  check_refused("scaled_dot_product_attention: expected a finite scale",
                [&] { mini::scaled_dot_product_attention(x, x, x, {.scale = kNaN}); });
  mini::GPT model(mini::GPTOptions(11).block_size(8).n_layer(1).n_head(2).n_embd(16));
  mini::GenerateOptions temperature{.new_tokens = 1};
  temperature.temperature = kNaN;
  const at::Tensor prompt = torch::zeros({1, 2}, at::kLong);
  check_refused("generate: expected a finite temperature",
                [&] { mini::generate(model, prompt, temperature); });
  {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.fill_(kNaN);
  }
  check_refused("generate: expected finite logits",
                [&] { mini::generate(model, prompt, {.new_tokens = 1}); });
  check_refused("GPT: expected a dropout probability",
                [&] { mini::GPT(mini::GPTOptions(11).dropout(kNaN)); });

  if (failures == 0) std::printf("the same results and errors\n");
  return failures;
}
