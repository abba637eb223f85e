// SPDX-License-Identifier: MIT
// The modules under LibTorch's autocast.
#include "support/autocast.h"

#include "mini/block.h"
#include "mini/gpt.h"
#include "mini/head.h"
#include "support/error_of.h"
#include "support/module_support.h"

using namespace mini;
using namespace mini::test;

namespace {

/// Checks forward and backward of `module` under autocast, on the output of a `Linear`.
template <typename Module>
void check_under_autocast(Module module, at::ScalarType dtype) {
  INFO(c10::str(module->name(), " in ", dtype));
  torch::manual_seed(3);
  torch::nn::Linear before(8, 8);
  const at::Tensor x = at::randn({2, 5, 8});
  const at::Tensor expected = module(before(x));
  at::Tensor output;
  {
    const Autocast autocast(dtype);
    const at::Tensor input = before(x);
    REQUIRE(input.scalar_type() == dtype);
    output = module(input);
  }
  CHECK(output.scalar_type() == dtype);
  CHECK_THAT(output, AllClose(expected, 0.03, 0.06));

  output.sum().backward();
  for (const auto& item : module->named_parameters()) {
    INFO(item.key());
    REQUIRE(item.value().grad().defined());
    CHECK(item.value().grad().scalar_type() == at::kFloat);
  }
  CHECK(before->weight.grad().isfinite().all().template item<bool>());
}

}  // namespace

TEST_CASE("modules accept the output of a Linear under autocast", "[autocast]") {
  const auto dtype = GENERATE(at::kBFloat16, at::kHalf);
  check_under_autocast(Head(HeadOptions(8, 4).seed(1)), dtype);
  check_under_autocast(Head(HeadOptions(8, 4).causal(true).dropout(1e-9).seed(1)), dtype);
  check_under_autocast(MultiHeadAttention(MultiHeadAttentionOptions(8, 2).bias(true).seed(1)),
                       dtype);
  check_under_autocast(Mlp(MlpOptions(8).seed(1)), dtype);
  check_under_autocast(Mlp(MlpOptions(8).gelu_approximate("tanh").seed(1)), dtype);
  check_under_autocast(LayerNorm(LayerNormOptions(8)), dtype);
  check_under_autocast(LayerNorm(LayerNormOptions(8).bias(true)), dtype);
  check_under_autocast(Block(BlockOptions(8, 2).causal(true).bias(true).seed(1)), dtype);
}

TEST_CASE("two Heads in a row run under autocast", "[autocast]") {
  Head first(HeadOptions(8, 8).seed(1)), second(HeadOptions(8, 4).seed(2));
  const at::Tensor x = at::randn({2, 5, 8});
  const at::Tensor expected = second(first(x));
  const Autocast autocast;
  const at::Tensor output = second(first(x));
  CHECK(output.scalar_type() == at::kBFloat16);
  CHECK_THAT(output, AllClose(expected, 0.03, 0.03));
  CHECK(second->attention_steps(first(x)).weights.scalar_type() == at::kFloat);
}

TEST_CASE("under autocast, modules return float32 and half types as LibTorch's modules do",
          "[autocast]") {
  Block block(BlockOptions(8, 2).seed(1));
  LayerNorm norm(LayerNormOptions(8));
  torch::nn::LayerNorm libtorch_norm(torch::nn::LayerNormOptions({8}));
  const at::Tensor x = at::randn({2, 5, 8});
  const Autocast autocast;
  CHECK(block(x).scalar_type() == at::kFloat);  // x + attention
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    CHECK(norm(x.to(dtype)).scalar_type() == libtorch_norm(x.to(dtype)).scalar_type());
  }
}

TEST_CASE("a key/value cache works under autocast", "[autocast]") {
  const at::NoGradGuard no_grad;
  MultiHeadAttention attention(MultiHeadAttentionOptions(8, 2).causal(true).seed(1));
  const at::Tensor x = at::randn({1, 5, 8});
  const Autocast autocast;
  KvCache cache(5);
  const at::Tensor first = attention->forward(x.narrow(1, 0, 3), {}, &cache);
  const at::Tensor rest = attention->forward(x.narrow(1, 3, 2).to(at::kBFloat16), {}, &cache);
  CHECK_THAT(at::cat({first, rest}, 1), AllClose(attention(x), 0.03, 0.03));
}

TEST_CASE("a GPT trains under autocast", "[autocast]") {
  GPT model(small_gpt_options());
  const at::Tensor idx = at::arange(16).view({2, 8}).remainder(11);
  const double expected = model->loss(idx, idx).item<double>();
  at::Tensor loss;
  {
    const Autocast autocast;
    CHECK(model(idx).scalar_type() == at::kBFloat16);
    loss = model->loss(idx, idx);
  }
  CHECK(loss.scalar_type() == at::kFloat);
  CHECK(std::abs(loss.item<double>() - expected) < 0.02);
  loss.backward();
  for (const at::Tensor& parameter : model->parameters()) CHECK(parameter.grad().defined());
}

TEST_CASE("modules refuse float64 with float32 weights, under autocast too", "[autocast]") {
  Head head(HeadOptions(8, 4));
  const at::Tensor x = at::randn({2, 5, 8});
  const auto error = [&](at::ScalarType dtype) { return error_of([&] { head(x.to(dtype)); }); };
  CHECK_THAT(error(at::kBFloat16), ContainsSubstring("got x BFloat16 and weights Float"));
  const Autocast autocast;
  CHECK_THAT(error(at::kDouble), ContainsSubstring("got x Double and weights Float"));
  CHECK_THAT(error(at::kLong), ContainsSubstring("got x Long and weights Float"));
}
