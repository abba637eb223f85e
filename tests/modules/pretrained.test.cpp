// SPDX-License-Identifier: MIT
#include "mini/pretrained.h"

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "files/json_file.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"
#include "support/error_of.h"
#include "support/files.h"
#include "support/module_support.h"

using namespace mini;
using namespace mini::test;

namespace {

namespace fs = std::filesystem;
using Tensors = torch::OrderedDict<std::string, at::Tensor>;

constexpr int64_t kHeads = 3;

GPTOptions small_options() {
  return GPTOptions(11).block_size(8).n_layer(2).n_head(kHeads).n_embd(12);
}

/// Weights that are all different, biases too.
GPT scrambled(const GPTOptions& options) {
  GPT model(options);
  scramble(*model, 0.3, 1);
  return model;
}

at::Tensor logits(GPT& model) {
  const at::NoGradGuard no_grad;
  return model(at::arange(16).view({2, 8}).remainder(11));
}

/// `tensors` under the names that `rename` makes of theirs; those it makes "" of are left out.
Tensors renamed(const Tensors& tensors,
                const std::function<std::string(const std::string&)>& rename) {
  Tensors result;
  for (const auto& item : tensors) {
    const std::string name = rename(item.key());
    if (!name.empty()) result.insert(name, item.value());
  }
  return result;
}

Tensors without(const Tensors& tensors, const std::string& name) {
  return renamed(tensors, [&](const std::string& n) { return n == name ? "" : n; });
}

Tensors with(Tensors tensors, const std::string& name, const at::Tensor& tensor) {
  tensors = without(tensors, name);
  tensors.insert(name, tensor);
  return tensors;
}

void check_same_options(const GPTOptions& actual, const GPTOptions& expected) {
  CHECK(actual.vocab_size() == expected.vocab_size());
  CHECK(actual.block_size() == expected.block_size());
  CHECK(actual.n_layer() == expected.n_layer());
  CHECK(actual.n_head() == expected.n_head());
  CHECK(actual.n_embd() == expected.n_embd());
  CHECK(actual.bias() == expected.bias());
  CHECK(actual.gelu_approximate() == expected.gelu_approximate());
}

/// A GPT-2 directory as `save_gpt2` writes it, for tests that change something about it.
struct GPT2Directory {
  explicit GPT2Directory(const GPT& model = scrambled(small_options().bias(true))) {
    save_gpt2(folder.path(), model);
  }

  fs::path config() const { return folder / "config.json"; }
  fs::path weights() const { return folder / "model.safetensors"; }

  mini::detail::Json read_config() const { return mini::detail::read_json(config()); }
  Tensors read_weights() const { return load_safetensors(weights()).tensors; }

  void set(const std::string& field, const mini::detail::Json& value) const {
    mini::detail::Json json = read_config();
    json[field] = value;
    mini::detail::write_json(config(), json);
  }
  void write_weights(const Tensors& tensors) const { save_safetensors(weights(), tensors); }

  std::string error_of_loading() const {
    return error_of([&] { load_gpt2(folder.path()); });
  }

  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("a nanoGPT's tensors make the GPT that had them", "[pretrained]") {
  for (const bool bias : {false, true}) {
    INFO("bias " << bias);
    GPT source = scrambled(small_options().bias(bias));
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

TEST_CASE("a nanoGPT goes through a file and back", "[pretrained]") {
  const TemporaryFolder folder;
  GPT source = scrambled(small_options());
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

TEST_CASE("what tensors do not tell about a nanoGPT is the caller's", "[pretrained]") {
  GPT source = scrambled(small_options());
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

TEST_CASE("loading draws nothing", "[pretrained]") {
  const GPT2Directory gpt2;
  const Tensors tensors = state_dict(*scrambled(small_options()));
  torch::manual_seed(7);
  const at::Tensor expected = at::rand({5});
  torch::manual_seed(7);
  load_nanogpt(tensors, kHeads);
  load_gpt2(gpt2.folder.path());
  CHECK_THAT(at::rand({5}), Equals(expected));
}

TEST_CASE("wrappers, mask buffers and either name of the head are known", "[pretrained]") {
  const GPT source = scrambled(small_options());
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

TEST_CASE("tensors that are no nanoGPT's are refused by name", "[pretrained]") {
  const Tensors tensors = state_dict(*scrambled(small_options()));
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
             ContainsSubstring("expected one tensor for transformer.wte.weight, got two, "
                               "'module.wte.weight' the second"));
  CHECK_THAT(
      error(renamed(tensors,
                    [](const std::string& n) { return n.starts_with("transformer.h.") ? "" : n; })),
      ContainsSubstring("n_layer 0"));
  CHECK_THAT(error(tensors, 5), ContainsSubstring("n_embd 12 and n_head 5"));
  CHECK_THAT(error(tensors, 0), ContainsSubstring("n_embd 12 and n_head 0"));
  CHECK_THAT(error_of([&] { load_nanogpt(tensors, kHeads, {.gelu_approximate = "fast"}); }),
             ContainsSubstring("expected gelu_approximate to be none or tanh, got fast"));
}

TEST_CASE("an error of a file's weights names it, and every tensor", "[pretrained]") {
  const TemporaryFolder folder;
  const Tensors tensors = state_dict(*scrambled(small_options()));
  save_safetensors(folder / "model", without(without(tensors, "transformer.h.0.ln_1.weight"),
                                             "transformer.ln_f.weight"));
  const std::string error = error_of([&] { load_nanogpt(folder / "model", kHeads); });
  CHECK_THAT(error, ContainsSubstring("load_nanogpt: '" + (folder / "model").string() + "': "));
  CHECK_THAT(error, ContainsSubstring("\n  missing: transformer.h.0.ln_1.weight [12]"));
  CHECK_THAT(error, ContainsSubstring("\n  missing: transformer.ln_f.weight [12]"));
  CHECK_THAT(error_of([&] { load_nanogpt(folder / "none", kHeads); }),
             ContainsSubstring((folder / "none").string()));
}

TEST_CASE("weights of another dtype are converted when asked", "[pretrained]") {
  GPT source = scrambled(small_options().bias(true));
  source->to(at::kHalf);  // what is converted back is exact
  GPT model = load_nanogpt(state_dict(*source), kHeads, {.convert_dtype = true});
  CHECK(model->parameters()[0].scalar_type() == at::kFloat);
  source->to(at::kFloat);
  check_same_parameters(*model, *source);

  source->to(at::kHalf);
  const GPT2Directory gpt2(source);
  CHECK_THAT(gpt2.error_of_loading(),
             ContainsSubstring("load_gpt2: '" + gpt2.weights().string() + "'"));
  CHECK_THAT(gpt2.error_of_loading(), ContainsSubstring("wrong dtype, expected Float, got Half"));
  check_same_parameters(*load_gpt2(gpt2.folder.path(), {.convert_dtype = true}), *model);
}

TEST_CASE("a GPT-2 directory gives back the GPT that was saved", "[pretrained]") {
  for (const char* gelu : {"none", "tanh"}) {
    INFO(gelu);
    GPT source = scrambled(small_options().bias(true).gelu_approximate(gelu));
    const GPT2Directory gpt2(source);
    CHECK(gpt2.folder.entries() == std::set<std::string>{"config.json", "model.safetensors"});
    GPT model = load_gpt2(gpt2.folder.path());
    check_same_options(model->options, source->options);
    check_same_parameters(*model, *source);
    CHECK_THAT(logits(model), Equals(logits(source)));
  }
}

TEST_CASE("a GPT-2 directory has the package's names, orientation and fields", "[pretrained]") {
  const GPT source = scrambled(small_options().bias(true).dropout(0.25).gelu_approximate("tanh"));
  const GPT2Directory gpt2(source);
  CHECK(load_safetensors(gpt2.weights()).metadata["format"] == "pt");
  const Tensors weights = gpt2.read_weights();
  const Tensors ours = state_dict(*source);
  CHECK(weights.size() == ours.size());
  for (const auto& item : ours) {
    INFO(item.key());
    REQUIRE(weights.contains(item.key()));
    const bool in_block = item.key().find(".h.") != std::string::npos;
    CHECK_THAT(weights[item.key()],
               Equals(in_block && item.value().dim() == 2 ? item.value().t() : item.value()));
  }
  CHECK(gpt2.read_config() == mini::detail::Json::parse(R"({
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 11,
    "n_positions": 8, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": null,
    "activation_function": "gelu_new", "embd_pdrop": 0.25, "attn_pdrop": 0.25,
    "resid_pdrop": 0.25, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true,
    "bos_token_id": null, "eos_token_id": null})"));
}

TEST_CASE("a GPT without biases becomes a GPT-2 with zeros", "[pretrained]") {
  GPT source = scrambled(small_options());
  const GPT2Directory gpt2(source);
  GPT model = load_gpt2(gpt2.folder.path());
  CHECK(model->options.bias());
  CHECK_THAT(logits(model), AllClose(logits(source), 1e-5, 1e-5));
  const auto expected = source->named_parameters();
  CHECK(model->parameters().size() == expected.size() + 2 * 6 + 1);
  for (const auto& item : model->named_parameters()) {
    INFO(item.key());
    const at::Tensor* same = expected.find(item.key());
    CHECK_THAT(item.value(), Equals(same != nullptr ? *same : at::zeros_like(item.value())));
  }
}

TEST_CASE("saving makes the directory, and leaves other files in it", "[pretrained]") {
  const TemporaryFolder folder;
  const GPT model = scrambled(small_options());
  save_gpt2(folder / "a/b", model);
  write_file(folder / "a/b/tokenizer.json", "{}");
  save_gpt2(folder / "a/b", model);
  CHECK(read_file(folder / "a/b/tokenizer.json") == "{}");
  load_gpt2(folder / "a/b");

  write_file(folder / "file", "");
  CHECK_THAT(error_of([&] { save_gpt2(folder / "file", model); }),
             ContainsSubstring("save_gpt2: cannot make '" + (folder / "file").string() + "'"));
  fs::create_directory(folder / "c");
  fs::create_directory(folder / "c/config.json");
  CHECK_THAT(error_of([&] { save_gpt2(folder / "c", model); }),
             ContainsSubstring("save_gpt2: cannot write '" + (folder / "c/config.json").string()));
}

TEST_CASE("a GPT-2's names may lack their root; its head and masks may be there", "[pretrained]") {
  const GPT source = scrambled(small_options().bias(true));
  const GPT2Directory gpt2(source);
  Tensors weights = renamed(gpt2.read_weights(), [](const std::string& n) {
    return n.substr(std::string("transformer.").size());
  });
  weights.insert("h.0.attn.bias", at::ones({1, 1, 8, 8}, at::kBool).tril());
  weights.insert("h.0.attn.masked_bias", at::scalar_tensor(-1e4));
  weights.insert("lm_head.weight", weights["wte.weight"]);
  gpt2.write_weights(weights);
  check_same_parameters(*load_gpt2(gpt2.folder.path()), *source);
}

TEST_CASE("fields of a GPT-2's configuration that this GPT can do", "[pretrained]") {
  const GPT2Directory gpt2;
  const auto gelu = [&] { return load_gpt2(gpt2.folder.path())->options.gelu_approximate(); };
  CHECK(gelu() == "none");
  gpt2.set("activation_function", "gelu_new");
  CHECK(gelu() == "tanh");
  gpt2.set("activation_function", "gelu_pytorch_tanh");
  CHECK(gelu() == "tanh");
  gpt2.set("n_inner", 48);
  gpt2.set("attn_pdrop", 0.3);
  CHECK(load_gpt2(gpt2.folder.path())->options.dropout() == 0.0);
  CHECK(load_gpt2(gpt2.folder.path(), {.dropout = 0.1})->options.dropout() == 0.1);

  // What is left out is as in the package.
  mini::detail::write_json(gpt2.config(),
                           mini::detail::Json::parse(R"({"model_type": "gpt2", "vocab_size": 11,
      "n_positions": 8, "n_embd": 12, "n_layer": 2, "n_head": 3})"));
  CHECK(gelu() == "tanh");
}

TEST_CASE("a GPT-2's configuration that this GPT cannot do is refused by field", "[pretrained]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"model_type": "llama"})", "model_type: expected gpt2, got llama"},
      {R"({"model_type": null})", "model_type: expected a string, got null"},
      {R"({"activation_function": "relu"})",
       "activation_function: expected gelu_new, gelu_pytorch_tanh or gelu, got relu"},
      {R"({"activation_function": 1})", "activation_function: expected a string, got 1"},
      {R"({"n_inner": 40})", "n_inner: expected null or 4 n_embd, of n_embd 12, got 40"},
      {R"({"n_inner": 49})", "n_inner: expected null or 4 n_embd, of n_embd 12, got 49"},
      {R"({"layer_norm_epsilon": 1e-6})", "layer_norm_epsilon: expected 1e-05, got 1e-06"},
      {R"({"scale_attn_weights": false})", "scale_attn_weights: expected true, got false"},
      {R"({"scale_attn_by_inverse_layer_idx": true})",
       "scale_attn_by_inverse_layer_idx: expected false, got true"},
      {R"({"add_cross_attention": true})", "add_cross_attention: expected false, got true"},
      {R"({"tie_word_embeddings": false})", "tie_word_embeddings: expected true, got false"},
      {R"({"n_head": 5})", "n_head: expected a divisor of n_embd 12, got 5"},
      {R"({"n_head": 0})", "n_head: expected a divisor of n_embd 12, got 0"},
      {R"({"n_head": "3"})", "n_head: expected a whole number, got \"3\""},
      {R"({"n_layer": 2.5})", "n_layer: expected a whole number, got 2.5"},
  };
  const GPT2Directory gpt2;
  const mini::detail::Json good = gpt2.read_config();
  for (const auto& [change, fragment] : cases) {
    mini::detail::Json config = good;
    config.update(mini::detail::Json::parse(change));
    mini::detail::write_json(gpt2.config(), config);
    CHECK_THAT(gpt2.error_of_loading(),
               ContainsSubstring("load_gpt2: '" + gpt2.config().string() + "': " + fragment));
  }
  for (const char* field :
       {"model_type", "vocab_size", "n_positions", "n_embd", "n_layer", "n_head"}) {
    mini::detail::Json config = good;
    config.erase(field);
    mini::detail::write_json(gpt2.config(), config);
    CHECK_THAT(gpt2.error_of_loading(),
               ContainsSubstring(std::string(field) + ": expected a value"));
  }
  write_file(gpt2.config(), "{");
  CHECK_THAT(gpt2.error_of_loading(),
             ContainsSubstring("load_gpt2: '" + gpt2.config().string() + "' is not JSON"));
  write_file(gpt2.config(), "[]");
  CHECK_THAT(gpt2.error_of_loading(),
             ContainsSubstring("model_type: expected a member of an object"));
}

TEST_CASE("sizes that a GPT-2's weights do not have are refused with both", "[pretrained]") {
  const GPT2Directory gpt2;
  const mini::detail::Json good = gpt2.read_config();
  const auto check = [&](const char* field, int64_t value, const std::string& fragment) {
    gpt2.set(field, value);
    CHECK_THAT(gpt2.error_of_loading(),
               ContainsSubstring("load_gpt2: '" + gpt2.folder.path().string() + "': " + fragment));
    mini::detail::write_json(gpt2.config(), good);
  };
  check("vocab_size", 50257, "vocab_size is 50257 in config.json, but 11 in model.safetensors");
  check("n_positions", 1024, "n_positions is 1024 in config.json, but 8 in model.safetensors");
  check("n_embd", 15, "n_embd is 15 in config.json, but 12 in model.safetensors");
  check("n_layer", int64_t{1} << 40,
        "n_layer is 1099511627776 in config.json, but 2 in model.safetensors");

  gpt2.write_weights(
      with(gpt2.read_weights(), "transformer.h.0.mlp.c_fc.weight", at::zeros({12, 40})));
  CHECK_THAT(gpt2.error_of_loading(),
             ContainsSubstring("transformer.h.0.mlp.c_fc.weight: wrong shape, expected [48, 12], "
                               "got [40, 12]"));
}

TEST_CASE("what is missing in a GPT-2 directory is said, and what is there instead",
          "[pretrained]") {
  const GPT2Directory gpt2;
  const std::string where = "load_gpt2: '" + gpt2.folder.path().string() + "': ";
  fs::remove(gpt2.weights());
  CHECK_THAT(gpt2.error_of_loading(),
             ContainsSubstring(where + "expected model.safetensors, got no such file"));
  write_file(gpt2.folder / "pytorch_model.bin", "");
  CHECK_THAT(gpt2.error_of_loading(),
             ContainsSubstring(where + "expected model.safetensors, got pytorch_model.bin"));
  write_file(gpt2.folder / "model.safetensors.index.json", "{}");
  CHECK_THAT(gpt2.error_of_loading(),
             ContainsSubstring(where + "expected model.safetensors, got shards and their "
                                       "model.safetensors.index.json"));
  write_file(gpt2.weights(), "damaged");
  CHECK_THAT(gpt2.error_of_loading(), ContainsSubstring(gpt2.weights().string()));
  fs::remove(gpt2.config());
  CHECK_THAT(gpt2.error_of_loading(),
             ContainsSubstring(where + "expected config.json, got no such file"));
  CHECK_THAT(error_of([&] { load_gpt2(gpt2.folder / "none"); }),
             ContainsSubstring("expected a directory, got none"));
  CHECK_THAT(error_of([&] { load_gpt2(gpt2.weights()); }),
             ContainsSubstring("expected a directory, got a file"));
}
