// SPDX-License-Identifier: MIT
// The weights of MultiHeadAttention: names, initial values, seeds, copies and conversion.
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "mini/multi_head_attention.h"
#include "support/module_support.h"

using namespace mini;
using namespace mini::test;

namespace {

using Options = MultiHeadAttentionOptions;

}  // namespace

TEST_CASE("MultiHeadAttention registers nanoGPT's parameters", "[multi_head_attention][weights]") {
  MultiHeadAttention plain(Options(12, 3));
  CHECK(parameter_names(*plain) == std::vector<std::string>{"c_attn.weight", "c_proj.weight"});
  MultiHeadAttention with_bias(Options(12, 3).bias(true));
  CHECK(parameter_names(*with_bias) ==
        std::vector<std::string>{"c_attn.weight", "c_attn.bias", "c_proj.weight", "c_proj.bias"});
  CHECK(with_bias->c_attn->weight.sizes() == at::IntArrayRef({36, 12}));
  CHECK(with_bias->c_attn->bias.sizes() == at::IntArrayRef({36}));
  CHECK(with_bias->c_proj->weight.sizes() == at::IntArrayRef({12, 12}));
  CHECK(with_bias->buffers().empty());
  for (const at::Tensor& parameter : with_bias->parameters()) {
    CHECK(parameter.requires_grad());
  }
}

TEST_CASE("equal seeds give equal MultiHeadAttention", "[multi_head_attention][weights]") {
  const Options options = Options(24, 4).bias(true).seed(42);
  const MultiHeadAttention first(options);
  at::rand({17});
  const MultiHeadAttention second(options);
  MultiHeadAttention in_a_thread{nullptr};
  std::thread([&] { in_a_thread = MultiHeadAttention(options); }).join();
  check_same_parameters(*second, *first);
  check_same_parameters(*in_a_thread, *first);
  const MultiHeadAttention other(Options(24, 4).bias(true).seed(43));
  CHECK_FALSE(at::equal(other->c_attn->weight, first->c_attn->weight));

  SECTION("the weights are those of two Linear drawn in order with that seed") {
    torch::manual_seed(42);
    const torch::nn::Linear c_attn(24, 72), c_proj(24, 24);
    CHECK_THAT(first->c_attn->weight, Equals(c_attn->weight));
    CHECK_THAT(first->c_attn->bias, Equals(c_attn->bias));
    CHECK_THAT(first->c_proj->weight, Equals(c_proj->weight));
    CHECK_THAT(first->c_proj->bias, Equals(c_proj->bias));
  }
  SECTION("its projections have the options of an ordinary Linear") {
    CHECK(first->c_attn->options.in_features() == 24);
    CHECK(first->c_attn->options.out_features() == 72);
    CHECK(first->c_attn->options.bias());
    CHECK(first->c_proj->options.out_features() == 24);
  }
  SECTION("the global generator is not used") {
    torch::manual_seed(7);
    const at::Tensor expected = at::rand({5});
    torch::manual_seed(7);
    const MultiHeadAttention again(options);
    CHECK_THAT(at::rand({5}), Equals(expected));
  }
}

TEST_CASE("MultiHeadAttention without a seed draws from the global generator",
          "[multi_head_attention][weights]") {
  torch::manual_seed(5);
  const MultiHeadAttention first(Options(12, 3));
  const MultiHeadAttention next(Options(12, 3));
  torch::manual_seed(5);
  const MultiHeadAttention again(Options(12, 3));
  check_same_parameters(*again, *first);
  CHECK_FALSE(at::equal(next->c_attn->weight, first->c_attn->weight));
}

TEST_CASE("the heads of one MultiHeadAttention have different weights",
          "[multi_head_attention][weights]") {
  const MultiHeadAttention attention(Options(32, 4).seed(42));
  std::vector<at::Tensor> parts;  // (hs, C)
  for (int64_t part = 0; part < 3; ++part) {
    for (int64_t head = 0; head < 4; ++head) {
      parts.push_back(rows_of_head(attention, part, head));
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      CHECK_FALSE(at::allclose(parts[i], parts[j], 0, 1e-3));
    }
  }
  // If all heads were equal, the stacked matrix would have the rank of one head.
  const auto rank = [](const at::Tensor& matrix) {
    return at::linalg_svdvals(matrix).gt(1e-3).sum().item<int64_t>();
  };
  for (int64_t part = 0; part < 3; ++part) {
    CHECK(rank(rows_of_head(attention, part, 0)) == 8);
    CHECK(rank(attention->c_attn->weight.detach().narrow(0, part * 32, 32)) > 24);
  }
}

TEST_CASE("MultiHeadAttention supports clone, save, load and conversion",
          "[multi_head_attention][weights]") {
  const at::Tensor x = at::randn({2, 6, 12});
  const Options options = Options(12, 3).causal(true).bias(true).scale(0.3);
  MultiHeadAttention attention(options);
  SECTION("a clone is equal and independent") {
    const auto clone = clone_of(attention);
    CHECK_THAT(clone->forward(x), Equals(attention(x)));
    {
      const at::NoGradGuard no_grad;
      clone->c_attn->weight.zero_();
    }
    CHECK_FALSE(at::equal(clone->forward(x), attention(x)));
  }
  SECTION("torch::save and torch::load restore the weights") {
    std::stringstream stream;
    torch::save(attention, stream);
    MultiHeadAttention loaded(options);
    CHECK_FALSE(at::equal(loaded(x), attention(x)));
    torch::load(loaded, stream);
    CHECK_THAT(loaded(x), Equals(attention(x)));
  }
  SECTION("to() converts it to another dtype") {
    const at::Tensor expected = attention(x);
    attention->to(at::kDouble);
    CHECK_THAT(attention(x.to(at::kDouble)), AllClose(expected, 1e-4, 1e-5));
    attention->to(at::kBFloat16);
    const at::Tensor halves = attention(x.to(at::kBFloat16));
    CHECK(halves.scalar_type() == at::kBFloat16);
    CHECK_THAT(halves, AllClose(expected, 5e-2, 5e-2));  // bfloat16 has 8 bits of precision
  }
}
