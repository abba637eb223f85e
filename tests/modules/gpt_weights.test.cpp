// SPDX-License-Identifier: MIT
// The weights of a GPT: names, initial values, seeds and the tied head.
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "mini/gpt.h"
#include "mini/state_dict.h"
#include "support/module_support.h"

using namespace mini;
using namespace mini::test;

namespace {

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("GPT registers nanoGPT's parameters, each once", "[gpt][weights]") {
  const GPT plain(small_gpt_options());
  CHECK(parameter_names(*plain) ==
        Names{"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
              "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_proj.weight",
              "transformer.h.0.ln_2.weight", "transformer.h.0.mlp.c_fc.weight",
              "transformer.h.0.mlp.c_proj.weight", "transformer.h.1.ln_1.weight",
              "transformer.h.1.attn.c_attn.weight", "transformer.h.1.attn.c_proj.weight",
              "transformer.h.1.ln_2.weight", "transformer.h.1.mlp.c_fc.weight",
              "transformer.h.1.mlp.c_proj.weight", "transformer.ln_f.weight"});
  const GPT with_bias(small_gpt_options().n_layer(1).bias(true));
  CHECK(parameter_names(*with_bias) ==
        Names{"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
              "transformer.h.0.ln_1.bias", "transformer.h.0.attn.c_attn.weight",
              "transformer.h.0.attn.c_attn.bias", "transformer.h.0.attn.c_proj.weight",
              "transformer.h.0.attn.c_proj.bias", "transformer.h.0.ln_2.weight",
              "transformer.h.0.ln_2.bias", "transformer.h.0.mlp.c_fc.weight",
              "transformer.h.0.mlp.c_fc.bias", "transformer.h.0.mlp.c_proj.weight",
              "transformer.h.0.mlp.c_proj.bias", "transformer.ln_f.weight",
              "transformer.ln_f.bias"});
  CHECK(plain->transformer->wte->weight.sizes() == at::IntArrayRef({11, 12}));
  CHECK(plain->transformer->wpe->weight.sizes() == at::IntArrayRef({8, 12}));
  CHECK(plain->transformer->wte->options.num_embeddings() == 11);
  CHECK(plain->buffers().empty());
  for (const at::Tensor& parameter : plain->parameters()) {
    CHECK(parameter.requires_grad());
    CHECK(parameter.is_leaf());
  }
}

TEST_CASE("GPT draws GPT-2's initial weights in the order of its parameters", "[gpt][weights]") {
  const GPT model(GPTOptions(65).bias(true).seed(42));
  auto generator = at::make_generator<at::CPUGeneratorImpl>(42);
  for (const auto& parameter : model->named_parameters()) {
    INFO(parameter.key());
    const at::Tensor& value = parameter.value();
    if (value.dim() == 2) {
      const bool residual = parameter.key().find("c_proj") != std::string::npos;
      const double std = residual ? 0.02 / std::sqrt(8.0) : 0.02;
      CHECK_THAT(value, Equals(at::empty(value.sizes()).normal_(0, std, generator)));
      CHECK(std::abs(value.std().item<double>() / std - 1) < 0.05);
    } else {
      const bool is_bias = parameter.key().find("bias") != std::string::npos;
      CHECK_THAT(value, Equals(at::full(value.sizes(), is_bias ? 0.0 : 1.0)));
    }
  }
}

TEST_CASE("a seeded GPT uses its own generator, an unseeded GPT the global one", "[gpt][weights]") {
  torch::manual_seed(7);
  const at::Tensor expected = at::rand({5});
  torch::manual_seed(7);
  const GPT first(small_gpt_options().seed(42)), second(small_gpt_options().seed(42)),
      other(small_gpt_options().seed(43));
  CHECK_THAT(at::rand({5}), Equals(expected));
  check_same_parameters(*second, *first);
  CHECK_FALSE(at::equal(other->transformer->wte->weight, first->transformer->wte->weight));

  torch::manual_seed(42);
  const GPT unseeded(small_gpt_options()), next(small_gpt_options());
  check_same_parameters(*unseeded, *first);
  CHECK_FALSE(at::equal(next->transformer->wte->weight, first->transformer->wte->weight));

  const auto& h = first->transformer->h;
  CHECK_FALSE(at::equal(h->at<BlockImpl>(0).attn->c_attn->weight,
                        h->at<BlockImpl>(1).attn->c_attn->weight));
}

TEST_CASE("a module built after a GPT draws its weights", "[gpt][weights]") {
  const GPT model(small_gpt_options());
  torch::manual_seed(1);
  const Mlp mlp(MlpOptions(6));
  torch::manual_seed(1);
  const torch::nn::Linear c_fc(torch::nn::LinearOptions(6, 24).bias(false));
  CHECK_THAT(mlp->c_fc->weight, Equals(c_fc->weight));
}

TEST_CASE("the head of a GPT stays tied", "[gpt][weights]") {
  GPT model(small_gpt_options().seed(1));
  const at::Tensor idx = random_ids({2, 6});
  const auto is_tied = [&](GPTImpl& gpt) {
    const at::NoGradGuard no_grad;
    gpt.transformer->wte->weight.zero_();  // if the head is tied, all logits become 0
    return gpt.forward(idx).abs().sum().item<double>() == 0;
  };
  SECTION("after clone") {
    const auto clone = clone_of(model);
    CHECK_THAT(clone->forward(idx), Equals(model(idx)));
    CHECK(clone->parameters().size() == model->parameters().size());
    CHECK(is_tied(*clone));
    CHECK(model(idx).abs().sum().item<double>() > 0);  // a copy, not shared
    const auto names = parameter_names(*clone);
    for (size_t i = 1; i < names.size(); ++i) {
      INFO(names[i]);
      CHECK_FALSE(clone->parameters()[i].is_alias_of(model->parameters()[i]));
    }
  }
  SECTION("after to()") {
    const at::Tensor expected = model(idx);
    model->to(at::kDouble);
    CHECK_THAT(model(idx), AllClose(expected, 1e-4, 1e-5));
    CHECK(model(idx).scalar_type() == at::kDouble);
    CHECK(is_tied(*model));
    CHECK(model->parameters().size() == 15);
  }
  SECTION("after load_state_dict, with the weight under either name") {
    GPT other(small_gpt_options().seed(2));
    const auto tensors = state_dict(*model, kGPTAliases);
    CHECK(tensors.size() == 16);
    CHECK(tensors["lm_head.weight"].is_alias_of(model->transformer->wte->weight));
    load_state_dict(*other, tensors, {.aliases = kGPTAliases});
    check_same_parameters(*other, *model);
    CHECK_THAT(other(idx), Equals(model(idx)));

    torch::OrderedDict<std::string, at::Tensor> by_alias;
    for (const auto& item : tensors) {
      if (item.key() != "transformer.wte.weight") by_alias.insert(item.key(), item.value());
    }
    GPT third(small_gpt_options().seed(3));
    load_state_dict(*third, by_alias, {.aliases = kGPTAliases});
    CHECK_THAT(third(idx), Equals(model(idx)));
    CHECK(is_tied(*third));
  }
  SECTION("after torch::save and torch::load") {
    std::stringstream stream;
    torch::save(model, stream);
    GPT loaded(small_gpt_options().seed(2));
    torch::load(loaded, stream);
    CHECK_THAT(loaded(idx), Equals(model(idx)));
    CHECK(is_tied(*loaded));
  }
  SECTION("tokens that are not in idx get a gradient through the head") {
    model->loss(idx, idx).backward();
    const at::Tensor gradient = model->transformer->wte->weight.grad();
    const at::Tensor unseen = at::ones({11}, at::kBool).index_fill(0, idx.flatten(), 0);
    REQUIRE(unseen.any().item<bool>());
    CHECK(gradient.abs().sum(1).min().item<double>() > 0);
  }
}
