// SPDX-License-Identifier: MIT
// nanoGPT's tensors: load_nanogpt and save_nanogpt.
#include <filesystem>
#include <map>
#include <string>

#include "mini/pretrained.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"
#include "support/error_of.h"
#include "support/files.h"
#include "support/pretrained_support.h"

using namespace mini;
using namespace mini::test;

TEST_CASE("load_nanogpt rebuilds the GPT whose tensors it gets", "[pretrained]") {
  for (const bool bias : {false, true}) {
    INFO("bias " << bias);
    GPT source = scrambled_gpt(small_gpt_options().bias(bias));
    GPT model = load_nanogpt(state_dict(*source, kGPTAliases), kHeads);
    check_same_options(model->options, source->options);
    check_same_parameters(*model, *source);
    CHECK_THAT(logits(model), Equals(logits(source)));
    CHECK(model->is_training());
    CHECK(model->parameters()[0].requires_grad());
    source->parameters()[0].detach().zero_();
    CHECK(model->parameters()[0].abs().sum().item<double>() > 0);  // a copy, not shared
  }
}

TEST_CASE("load_nanogpt reads what save_nanogpt wrote", "[pretrained]") {
  const TemporaryFolder folder;
  GPT source = scrambled_gpt(small_gpt_options());
  save_nanogpt(folder / "model", source);
  const SafetensorsFile file = load_safetensors(folder / "model");
  CHECK(file.metadata == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(file.tensors.size() == source->parameters().size() + 1);
  CHECK_THAT(file.tensors["lm_head.weight"], Equals(source->transformer->wte->weight));
  CHECK(file.tensors["transformer.h.1.attn.c_attn.weight"].sizes() == at::IntArrayRef({36, 12}));

  GPT model = load_nanogpt(folder / "model", kHeads);
  fs::remove(folder / "model");
  check_same_options(model->options, source->options);
  check_same_parameters(*model, *source);
}

TEST_CASE("load_nanogpt takes n_head, activation and dropout from the caller", "[pretrained]") {
  GPT source = scrambled_gpt(small_gpt_options());
  const Tensors tensors = state_dict(*source);
  GPT one_head = load_nanogpt(tensors, 1);
  CHECK(one_head->options.n_head() == 1);
  CHECK_FALSE(at::allclose(logits(one_head), logits(source)));

  GPT approximate = load_nanogpt(tensors, kHeads, {.gelu_approximate = "tanh"});
  CHECK(approximate->options.gelu_approximate() == "tanh");
  CHECK_FALSE(at::equal(logits(approximate), logits(source)));

  GPT dropping = load_nanogpt(tensors, kHeads, {.dropout = 0.5});
  CHECK_FALSE(at::allclose(logits(dropping), logits(source)));
  dropping->eval();
  CHECK_THAT(logits(dropping), Equals(logits(source)));
}

TEST_CASE("load_nanogpt does not use the global generator", "[pretrained]") {
  const Tensors tensors = state_dict(*scrambled_gpt(small_gpt_options()));
  torch::manual_seed(7);
  const at::Tensor expected = at::rand({5});
  torch::manual_seed(7);
  load_nanogpt(tensors, kHeads);
  CHECK_THAT(at::rand({5}), Equals(expected));
}

TEST_CASE("load_nanogpt accepts prefixes, mask buffers and either name of the head",
          "[pretrained]") {
  const GPT source = scrambled_gpt(small_gpt_options());
  const Tensors tensors = state_dict(*source);
  const auto check = [&](const Tensors& given) {
    check_same_parameters(*load_nanogpt(given, kHeads), *source);
  };
  for (const char* prefix : {"module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."}) {
    INFO(prefix);
    check(renamed(state_dict(*source, kGPTAliases),
                  [&](const std::string& n) { return prefix + n; }));
  }
  check(renamed(tensors, [](const std::string& n) {
    return n == "transformer.wte.weight" ? "lm_head.weight" : n;
  }));
  const at::Tensor mask = at::ones({1, 1, 8, 8}).tril();
  check(with(with(tensors, "transformer.h.0.attn.bias", mask), "transformer.h.1.attn.masked_bias",
             at::scalar_tensor(-1e4)));
}

TEST_CASE("load_nanogpt rejects wrong tensors by name", "[pretrained]") {
  const Tensors tensors = state_dict(*scrambled_gpt(small_gpt_options()));
  const auto error = [&](const Tensors& given, int64_t n_head = kHeads) {
    const std::string message = error_of([&] { load_nanogpt(given, n_head); });
    CHECK_THAT(message, ContainsSubstring("load_nanogpt: "));
    return message;
  };
  CHECK_THAT(error(Tensors()),
             ContainsSubstring("expected transformer.wte.weight, got no such tensor"));
  CHECK_THAT(error(without(tensors, "transformer.wpe.weight")),
             ContainsSubstring("expected transformer.wpe.weight, got no such tensor"));
  CHECK_THAT(error(with(tensors, "transformer.wte.weight", at::zeros({12}))),
             ContainsSubstring("expected transformer.wte.weight of two dimensions, got [12]"));
  CHECK_THAT(
      error(with(tensors, "transformer.wpe.weight", at::zeros({8, 13}))),
      ContainsSubstring("transformer.wpe.weight: wrong shape, expected [8, 12], got [8, 13]"));
  CHECK_THAT(error(without(tensors, "transformer.h.1.mlp.c_fc.weight")),
             ContainsSubstring("missing: transformer.h.1.mlp.c_fc.weight [48, 12]"));
  CHECK_THAT(error(with(tensors, "transformer.ln_f.bias", at::zeros({12}))),
             ContainsSubstring("missing: transformer.h.0.ln_1.bias [12]"));
  CHECK_THAT(error(with(tensors, "score.weight", at::zeros({12}))),
             ContainsSubstring("unexpected: score.weight"));
  CHECK_THAT(error(with(tensors, "transformer.ln_f.weight", at::ones({12}, at::kHalf))),
             ContainsSubstring("transformer.ln_f.weight: wrong dtype, expected Float, got Half"));
  CHECK_THAT(error(with(tensors, "lm_head.weight", at::zeros({11, 12}))),
             ContainsSubstring("one tensor in the module, given with two values"));
  CHECK_THAT(error(with(tensors, "module.wte.weight", at::zeros({11, 12}))),
             ContainsSubstring("expected one tensor for transformer.wte.weight, got a second "
                               "one named 'module.wte.weight'"));
  CHECK_THAT(
      error(renamed(tensors,
                    [](const std::string& n) { return n.starts_with("transformer.h.") ? "" : n; })),
      ContainsSubstring("n_layer 0"));
  CHECK_THAT(error(tensors, 5), ContainsSubstring("n_embd 12 and n_head 5"));
  CHECK_THAT(error(tensors, 0), ContainsSubstring("n_embd 12 and n_head 0"));
  CHECK_THAT(error_of([&] { load_nanogpt(tensors, kHeads, {.gelu_approximate = "fast"}); }),
             ContainsSubstring("expected gelu_approximate \"none\" or \"tanh\", got \"fast\""));
}

TEST_CASE("save_nanogpt refuses a scale that nanoGPT does not use", "[pretrained]") {
  const TemporaryFolder folder;
  for (const double scale : {1.0, 0.25}) {
    const GPT model = scrambled_gpt(small_gpt_options().scale(scale));
    CHECK_THAT(error_of([&] { save_nanogpt(folder / "model", model); }),
               ContainsSubstring("save_nanogpt: expected a model with scale 1 / sqrt(head size)") &&
                   ContainsSubstring(c10::str("got scale ", scale)));
  }
  CHECK_FALSE(std::filesystem::exists(folder / "model"));
}

TEST_CASE("load_nanogpt from a file names the file and every wrong tensor", "[pretrained]") {
  const TemporaryFolder folder;
  const Tensors tensors = state_dict(*scrambled_gpt(small_gpt_options()));
  save_safetensors(folder / "model", without(without(tensors, "transformer.h.0.ln_1.weight"),
                                             "transformer.ln_f.weight"));
  const std::string error = error_of([&] { load_nanogpt(folder / "model", kHeads); });
  CHECK_THAT(error, ContainsSubstring("load_nanogpt: '" + (folder / "model").string() + "': "));
  CHECK_THAT(error, ContainsSubstring("\n  missing: transformer.h.0.ln_1.weight [12]"));
  CHECK_THAT(error, ContainsSubstring("\n  missing: transformer.ln_f.weight [12]"));
  CHECK_THAT(error_of([&] { load_nanogpt(folder / "none", kHeads); }),
             ContainsSubstring((folder / "none").string()));
}

TEST_CASE("load_nanogpt converts weights of another dtype with convert_dtype", "[pretrained]") {
  GPT source = scrambled_gpt(small_gpt_options().bias(true));
  source->to(at::kHalf);  // converting back is exact
  const GPT model = load_nanogpt(state_dict(*source), kHeads, {.convert_dtype = true});
  CHECK(model->parameters()[0].scalar_type() == at::kFloat);
  source->to(at::kFloat);
  check_same_parameters(*model, *source);
}
