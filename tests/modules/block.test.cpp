// SPDX-License-Identifier: MIT
#include "mini/block.h"

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "support/module_support.h"

using namespace mini;
using namespace mini::test;

namespace {

using Names = std::vector<std::string>;

// The equation of a block, computed with LibTorch's functions.
at::Tensor reference(const Block& block, const at::Tensor& x, const char* gelu) {
  const int64_t C = block->options.n_embd(), nh = block->options.n_head();
  const auto norm = [&](const at::Tensor& rows, const LayerNorm& layer) {
    return at::layer_norm(rows, {C}, layer->weight, layer->bias);
  };
  const auto linear = [](const at::Tensor& rows, const torch::nn::Linear& layer) {
    return at::linear(rows, layer->weight, layer->bias);
  };
  const std::vector<at::Tensor> qkv =
      linear(norm(x, block->ln_1), block->attn->c_attn).chunk(3, -1);
  const auto heads = [&](const at::Tensor& wide) {
    return wide.reshape({x.size(0), x.size(1), nh, C / nh}).transpose(1, 2);
  };
  const at::Tensor attended = at::scaled_dot_product_attention(
      heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), {}, 0.0, block->options.causal());
  const at::Tensor middle = x + linear(attended.transpose(1, 2).flatten(2), block->attn->c_proj);
  const at::Tensor inner = linear(norm(middle, block->ln_2), block->mlp->c_fc);
  return middle + linear(at::gelu(inner, gelu), block->mlp->c_proj);
}

}  // namespace

TEST_CASE("LayerNorm normalises each row, then applies weight and bias", "[block]") {
  LayerNorm norm(LayerNormOptions(2));
  const at::Tensor x = torch::tensor({{{1.0F, 3.0F}, {5.0F, 5.0F}}});
  CHECK_THAT(norm(x), AllClose(torch::tensor({{{-1.0F, 1.0F}, {0.0F, 0.0F}}}), 0, 1e-5));
  CHECK(parameter_names(*norm) == Names{"weight"});
  CHECK_FALSE(norm->bias.defined());

  LayerNorm with_bias(LayerNormOptions(2).bias(true));
  CHECK(parameter_names(*with_bias) == Names{"weight", "bias"});
  CHECK_THAT(with_bias->weight, Equals(at::ones({2})));
  CHECK_THAT(with_bias->bias, Equals(at::zeros({2})));
  {
    const at::NoGradGuard no_grad;
    with_bias->weight.fill_(2);
    with_bias->bias.fill_(3);
  }
  CHECK_THAT(with_bias(x), AllClose(torch::tensor({{{1.0F, 5.0F}, {3.0F, 3.0F}}}), 0, 1e-4));
  CHECK_THAT(clone_of(with_bias)->forward(x), Equals(with_bias(x)));

  CHECK(norm(at::zeros({0, 4, 2})).sizes() == at::IntArrayRef({0, 4, 2}));
  CHECK(printed(*norm) == "mini::LayerNorm(n_embd=2)");
  CHECK(printed(*with_bias) == "mini::LayerNorm(n_embd=2, bias=true)");
  CHECK_THROWS_WITH(LayerNorm(LayerNormOptions(0)),
                    ContainsSubstring("LayerNorm: expected n_embd above 0, got 0"));
  CHECK_THROWS_WITH(
      norm(at::zeros({2, 3})),
      ContainsSubstring("LayerNorm::forward: expected x (..., T, C) with C = n_embd = "
                        "2, got [2, 3]"));
}

TEST_CASE("Mlp is c_proj(gelu(c_fc(x)))", "[block]") {
  Mlp mlp(MlpOptions(6).bias(true).seed(1));
  const at::Tensor x = at::randn({2, 3, 6});
  const at::Tensor inner = at::linear(x, mlp->c_fc->weight, mlp->c_fc->bias);
  const at::Tensor gelu = 0.5 * inner * (1 + at::erf(inner / std::sqrt(2.0)));
  CHECK_THAT(mlp(x),
             AllClose(at::linear(gelu, mlp->c_proj->weight, mlp->c_proj->bias), 1e-5, 1e-6));
  CHECK(parameter_names(*mlp) == Names{"c_fc.weight", "c_fc.bias", "c_proj.weight", "c_proj.bias"});
  CHECK(mlp->c_fc->weight.sizes() == at::IntArrayRef({24, 6}));
  CHECK(mlp->c_proj->weight.sizes() == at::IntArrayRef({6, 24}));
  CHECK(parameter_names(*Mlp(MlpOptions(6))) == Names{"c_fc.weight", "c_proj.weight"});

  SECTION("gelu_approximate \"tanh\" is GPT-2's approximation") {
    Mlp approximate(MlpOptions(6).bias(true).seed(1).gelu_approximate("tanh"));
    const at::Tensor tanh =
        0.5 * inner * (1 + at::tanh(std::sqrt(2.0 / M_PI) * (inner + 0.044715 * inner.pow(3))));
    const at::Tensor expected = at::linear(tanh, mlp->c_proj->weight, mlp->c_proj->bias);
    CHECK_THAT(approximate(x), AllClose(expected, 1e-5, 1e-6));
    CHECK_FALSE(at::equal(approximate(x), mlp(x)));
  }
  SECTION("the seed draws the weights of two Linear in order") {
    torch::manual_seed(1);
    const torch::nn::Linear c_fc(6, 24), c_proj(24, 6);
    CHECK_THAT(mlp->c_fc->weight, Equals(c_fc->weight));
    CHECK_THAT(mlp->c_proj->weight, Equals(c_proj->weight));
  }
  SECTION("dropout zeroes elements of the output while training") {
    Mlp dropping(MlpOptions(6).bias(true).seed(1).dropout(0.5));
    const at::Tensor output = dropping(x), kept = output.ne(0);
    CHECK(kept.logical_not().sum().item<int64_t>() > 0);
    CHECK_THAT(output.masked_select(kept), AllClose(2 * mlp(x).masked_select(kept), 1e-5, 1e-6));
    dropping->eval();
    CHECK_THAT(dropping(x), Equals(mlp(x)));
  }
  SECTION("it prints its constructor call and rejects invalid options") {
    CHECK(printed(*Mlp(MlpOptions(6))) == "mini::Mlp(n_embd=6)");
    CHECK(printed(*Mlp(MlpOptions(6).bias(true).dropout(0.1).gelu_approximate("tanh").seed(1))) ==
          "mini::Mlp(n_embd=6, bias=true, dropout=0.1, gelu_approximate=tanh, seed=1)");
    CHECK_THROWS_WITH(Mlp(MlpOptions(0)), ContainsSubstring("Mlp: expected n_embd above 0, got 0"));
    CHECK_THROWS_WITH(Mlp(MlpOptions(6).dropout(2)), ContainsSubstring("Mlp: expected a dropout"));
    CHECK_THROWS_WITH(
        Mlp(MlpOptions(6).gelu_approximate("erf")),
        ContainsSubstring("Mlp: expected gelu_approximate \"none\" or \"tanh\", got \"erf\""));
    CHECK_THROWS_WITH(mlp(at::zeros({2, 3, 5})), ContainsSubstring("Mlp::forward: expected x"));
  }
}

TEST_CASE("Block adds attention and MLP to the residual stream, each after its layer norm",
          "[block]") {
  const at::Tensor x = at::randn({2, 6, 12});
  for (const bool causal : {false, true}) {
    for (const char* gelu : {"none", "tanh"}) {
      INFO("causal " << causal << ", gelu " << gelu);
      Block block(BlockOptions(12, 3).bias(true).causal(causal).gelu_approximate(gelu).seed(1));
      scramble(*block, 0.1, 2);
      CHECK_THAT(block(x), AllClose(reference(block, x, gelu), 1e-5, 1e-5));
      CHECK_THAT(block->attention_steps(x).weights,
                 Equals(block->attn->attention_steps(block->ln_1(x)).weights));
    }
  }
}

TEST_CASE("Block registers nanoGPT's parameters", "[block]") {
  CHECK(parameter_names(*Block(BlockOptions(12, 3))) ==
        Names{"ln_1.weight", "attn.c_attn.weight", "attn.c_proj.weight", "ln_2.weight",
              "mlp.c_fc.weight", "mlp.c_proj.weight"});
  CHECK(parameter_names(*Block(BlockOptions(12, 3).bias(true))) ==
        Names{"ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
              "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias",
              "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"});
}

TEST_CASE("equal seeds give equal Blocks; attention and MLP draw different weights", "[block]") {
  torch::manual_seed(7);
  const at::Tensor expected = at::rand({5});
  torch::manual_seed(7);
  const Block first(BlockOptions(12, 3).seed(42)), second(BlockOptions(12, 3).seed(42));
  CHECK_THAT(at::rand({5}), Equals(expected));  // the global generator is not used
  check_same_parameters(*second, *first);
  CHECK_FALSE(at::equal(first->attn->c_attn->weight[0], first->mlp->c_fc->weight[0]));
  const Block other(BlockOptions(12, 3).seed(43));
  CHECK_FALSE(at::equal(other->attn->c_attn->weight, first->attn->c_attn->weight));
  CHECK_FALSE(at::equal(other->mlp->c_fc->weight, first->mlp->c_fc->weight));
}

TEST_CASE("Block passes mask and cache to its attention", "[block]") {
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({2, 6, 12});
  SECTION("mask") {
    Block block(BlockOptions(12, 3).seed(1));
    Block causal(BlockOptions(12, 3).seed(1).causal(true));
    const at::Tensor keep = at::ones({6, 6}, at::kBool).tril();
    CHECK_THAT(block(x, keep), AllClose(causal(x), 1e-5, 1e-6));
    CHECK_THAT(block->attention_steps(x, keep).weights.triu(1), Equals(at::zeros({2, 3, 6, 6})));
    CHECK_FALSE(at::allclose(block(x), causal(x)));
  }
  SECTION("cache") {
    Block block(BlockOptions(12, 3).seed(1).causal(true));
    KvCache cache(6);
    const at::Tensor first = block->forward(x.narrow(1, 0, 4), {}, &cache);
    const at::Tensor rest = block->forward(x.narrow(1, 4, 2), {}, &cache);
    CHECK(cache.length() == 6);
    CHECK_THAT(at::cat({first, rest}, 1), AllClose(block(x), 1e-5, 1e-6));
  }
}

TEST_CASE("Block applies dropout in training mode only", "[block]") {
  const at::Tensor x = at::randn({2, 6, 12});
  Block block(BlockOptions(12, 3).seed(1).dropout(0.5));
  Block plain(BlockOptions(12, 3).seed(1));
  CHECK(block->attn->options.dropout() == 0.5);
  CHECK(block->mlp->options.dropout() == 0.5);
  CHECK_FALSE(at::equal(block(x), block(x)));
  torch::manual_seed(3);
  const at::Tensor first = block(x);
  torch::manual_seed(3);
  CHECK_THAT(block(x), Equals(first));
  block->eval();
  CHECK_THAT(block(x), Equals(plain(x)));
  block->train();
  CHECK_FALSE(at::equal(block(x), block(x)));
}

TEST_CASE("Block supports clone, save, load and conversion", "[block]") {
  const at::Tensor x = at::randn({2, 6, 12});
  const BlockOptions options = BlockOptions(12, 3).bias(true).causal(true);
  Block block(options);
  scramble(*block, 0.1, 2);
  const at::Tensor expected = block(x);

  const auto clone = clone_of(block);
  CHECK_THAT(clone->forward(x), Equals(expected));
  scramble(*clone, 0.1, 3);
  CHECK_THAT(block(x), Equals(expected));
  CHECK_FALSE(at::equal(clone->forward(x), expected));

  std::stringstream stream;
  torch::save(block, stream);
  Block loaded(options);
  torch::load(loaded, stream);
  CHECK_THAT(loaded(x), Equals(expected));

  block->to(at::kDouble);
  CHECK_THAT(block(x.to(at::kDouble)), AllClose(expected, 1e-4, 1e-5));
  block->to(at::kBFloat16);  // 8 bits of precision
  CHECK_THAT(block(x.to(at::kBFloat16)), AllClose(expected, 5e-2, 5e-2));
}

TEST_CASE("Block accepts empty batches and sequences, and works in Sequential", "[block]") {
  Block block(BlockOptions(12, 3));
  CHECK(block(at::zeros({0, 6, 12})).sizes() == at::IntArrayRef({0, 6, 12}));
  CHECK(block(at::zeros({2, 0, 12})).sizes() == at::IntArrayRef({2, 0, 12}));
  torch::nn::Sequential model(block, Block(BlockOptions(12, 4)));
  CHECK(model->forward(at::zeros({2, 6, 12})).sizes() == at::IntArrayRef({2, 6, 12}));
}

TEST_CASE("Block prints its constructor call", "[block]") {
  CHECK(printed(*Block(BlockOptions(128, 4))) == "mini::Block(n_embd=128, n_head=4)");
  CHECK(printed(*Block(
            BlockOptions(128, 4).bias(true).causal(true).dropout(0.1).gelu_approximate("tanh").seed(
                42))) ==
        "mini::Block(n_embd=128, n_head=4, bias=true, causal=true, dropout=0.1, "
        "gelu_approximate=tanh, seed=42)");
  CHECK(printed(*Block(BlockOptions(12, 3).scale(0.5))) ==
        "mini::Block(n_embd=12, n_head=3, scale=0.5)");
  CHECK_THROWS_WITH(Block(BlockOptions(12, 3).scale(NAN)),
                    ContainsSubstring("Block: expected a finite scale, got nan"));
}

TEST_CASE("Block rejects invalid options and inputs", "[block]") {
  CHECK_THROWS_WITH(Block(BlockOptions(128, 3)),
                    ContainsSubstring("Block: expected n_embd to be a multiple of n_head, both "
                                      "above 0, got n_embd 128 and n_head 3"));
  CHECK_THROWS_WITH(Block(BlockOptions(128, 0)), ContainsSubstring("and n_head 0"));
  CHECK_THROWS_WITH(Block(BlockOptions(128, 4).dropout(1.5)),
                    ContainsSubstring("Block: expected a dropout probability in [0, 1], got 1.5"));
  CHECK_THROWS_WITH(
      Block(BlockOptions(128, 4).gelu_approximate("")),
      ContainsSubstring("Block: expected gelu_approximate \"none\" or \"tanh\", got \"\""));
  Block block(BlockOptions(12, 3));
  CHECK_THROWS_WITH(
      block(at::zeros({2, 6, 11})),
      ContainsSubstring("Block::forward: expected x (..., T, C) with C = n_embd = 12, "
                        "got [2, 6, 11]"));
  CHECK_THROWS_WITH(block->attention_steps(at::zeros({12})),
                    ContainsSubstring("Block::attention_steps: expected x (..., T, C)"));
}
