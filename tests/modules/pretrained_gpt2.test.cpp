// SPDX-License-Identifier: MIT
// GPT-2 directories of Hugging Face: load_gpt2 and save_gpt2.
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "files/json_file.h"
#include "mini/pretrained.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"
#include "support/error_of.h"
#include "support/files.h"
#include "support/pretrained_support.h"

using namespace mini;
using namespace mini::test;

namespace {

namespace fs = std::filesystem;

/// A GPT-2 directory that `save_gpt2` wrote. Tests change its files.
struct GPT2Directory {
  explicit GPT2Directory(const GPT& model = scrambled_gpt(small_gpt_options().bias(true))) {
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

TEST_CASE("load_gpt2 reads what save_gpt2 wrote", "[pretrained]") {
  for (const char* gelu : {"none", "tanh"}) {
    INFO(gelu);
    GPT source = scrambled_gpt(small_gpt_options().bias(true).gelu_approximate(gelu));
    const GPT2Directory gpt2(source);
    CHECK(gpt2.folder.entries() == std::set<std::string>{"config.json", "model.safetensors"});
    GPT model = load_gpt2(gpt2.folder.path());
    check_same_options(model->options, source->options);
    check_same_parameters(*model, *source);
    CHECK_THAT(logits(model), Equals(logits(source)));
  }
}

TEST_CASE("save_gpt2 writes a scale of 1 and refuses one that config.json cannot express",
          "[pretrained]") {
  GPT undivided = scrambled_gpt(small_gpt_options().bias(true).scale(1.0));
  const GPT2Directory gpt2(undivided);
  CHECK(gpt2.read_config()["scale_attn_weights"] == false);
  GPT model = load_gpt2(gpt2.folder.path());
  CHECK(model->options.scale() == 1.0);
  CHECK_THAT(logits(model), Equals(logits(undivided)));

  const GPT2Directory standard(scrambled_gpt(small_gpt_options().bias(true).scale(0.5)));  // hs 4
  CHECK(standard.read_config()["scale_attn_weights"] == true);

  const TemporaryFolder folder;
  const GPT divided_by_head_size = scrambled_gpt(small_gpt_options().scale(0.25));
  CHECK_THAT(error_of([&] { save_gpt2(folder / "gpt2", divided_by_head_size); }),
             ContainsSubstring("save_gpt2: expected a model with scale 1 / sqrt(head size) or 1") &&
                 ContainsSubstring("got scale 0.25"));
  CHECK_FALSE(std::filesystem::exists(folder / "gpt2"));
}

TEST_CASE("load_gpt2 does not use the global generator", "[pretrained]") {
  const GPT2Directory gpt2;
  torch::manual_seed(7);
  const at::Tensor expected = at::rand({5});
  torch::manual_seed(7);
  load_gpt2(gpt2.folder.path());
  CHECK_THAT(at::rand({5}), Equals(expected));
}

TEST_CASE("load_gpt2 converts weights of another dtype with convert_dtype", "[pretrained]") {
  GPT source = scrambled_gpt(small_gpt_options().bias(true));
  source->to(at::kHalf);  // converting back is exact
  const GPT2Directory gpt2(source);
  CHECK_THAT(gpt2.error_of_loading(),
             ContainsSubstring("load_gpt2: '" + gpt2.weights().string() + "'"));
  CHECK_THAT(gpt2.error_of_loading(), ContainsSubstring("wrong dtype, expected Float, got Half"));
  source->to(at::kFloat);
  check_same_parameters(*load_gpt2(gpt2.folder.path(), {.convert_dtype = true}), *source);
}

TEST_CASE("save_gpt2 writes the names, orientation and fields of transformers", "[pretrained]") {
  const GPT source =
      scrambled_gpt(small_gpt_options().bias(true).dropout(0.25).gelu_approximate("tanh"));
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
    "resid_pdrop": 0.25, "layer_norm_epsilon": 1e-5, "scale_attn_weights": true,
    "tie_word_embeddings": true, "bos_token_id": null, "eos_token_id": null})"));
}

TEST_CASE("save_gpt2 writes zero biases for a GPT without biases", "[pretrained]") {
  GPT source = scrambled_gpt(small_gpt_options());
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

TEST_CASE("save_gpt2 creates the directory and keeps other files in it", "[pretrained]") {
  const TemporaryFolder folder;
  const GPT model = scrambled_gpt(small_gpt_options());
  save_gpt2(folder / "a/b", model);
  write_file(folder / "a/b/tokenizer.json", "{}");
  save_gpt2(folder / "a/b", model);
  CHECK(read_file(folder / "a/b/tokenizer.json") == "{}");
  load_gpt2(folder / "a/b");

  write_file(folder / "file", "");
  CHECK_THAT(error_of([&] { save_gpt2(folder / "file", model); }),
             ContainsSubstring("save_gpt2: cannot create '" + (folder / "file").string() + "'"));
  fs::create_directory(folder / "c");
  fs::create_directory(folder / "c/config.json");
  CHECK_THAT(error_of([&] { save_gpt2(folder / "c", model); }),
             ContainsSubstring("save_gpt2: cannot write '" + (folder / "c/config.json").string()));
}

TEST_CASE("load_gpt2 accepts names without root, mask buffers and the tied head", "[pretrained]") {
  const GPT source = scrambled_gpt(small_gpt_options().bias(true));
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

TEST_CASE("load_gpt2 reads the supported fields of config.json", "[pretrained]") {
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

  // Missing fields take the defaults of transformers.
  mini::detail::write_json(gpt2.config(),
                           mini::detail::Json::parse(R"({"model_type": "gpt2", "vocab_size": 11,
      "n_positions": 8, "n_embd": 12, "n_layer": 2, "n_head": 3})"));
  CHECK(gelu() == "tanh");
}

TEST_CASE("load_gpt2 rejects unsupported configurations by field", "[pretrained]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"model_type": "llama"})", "model_type: expected gpt2, got llama"},
      {R"({"model_type": null})", "model_type: expected a string, got null"},
      {R"({"activation_function": "relu"})",
       "activation_function: expected gelu_new, gelu_pytorch_tanh or gelu, got relu"},
      {R"({"activation_function": 1})", "activation_function: expected a string, got 1"},
      {R"({"n_inner": 40})", "n_inner: expected null or 4 * n_embd with n_embd = 12, got 40"},
      {R"({"n_inner": 49})", "n_inner: expected null or 4 * n_embd with n_embd = 12, got 49"},
      {R"({"layer_norm_epsilon": 1e-6})", "layer_norm_epsilon: expected 1e-05, got 1e-06"},
      {R"({"scale_attn_weights": 1})", "scale_attn_weights: expected true or false, got 1"},
      {R"({"scale_attn_by_inverse_layer_idx": true})",
       "scale_attn_by_inverse_layer_idx: expected false, got true"},
      {R"({"add_cross_attention": true})", "add_cross_attention: expected false, got true"},
      {R"({"tie_word_embeddings": false})", "tie_word_embeddings: expected true, got false"},
      {R"({"n_head": 5})", "n_head: expected a divisor of n_embd = 12, got 5"},
      {R"({"n_head": 0})", "n_head: expected a divisor of n_embd = 12, got 0"},
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

TEST_CASE("load_gpt2 rejects sizes in config.json that differ from the weights", "[pretrained]") {
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

TEST_CASE("load_gpt2 names the missing file and what it found instead", "[pretrained]") {
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
             ContainsSubstring(where + "expected model.safetensors, got shards "
                                       "(model.safetensors.index.json)"));
  write_file(gpt2.weights(), "damaged");
  CHECK_THAT(gpt2.error_of_loading(), ContainsSubstring(gpt2.weights().string()));
  fs::remove(gpt2.config());
  CHECK_THAT(gpt2.error_of_loading(),
             ContainsSubstring(where + "expected config.json, got no such file"));
  CHECK_THAT(error_of([&] { load_gpt2(gpt2.folder / "none"); }),
             ContainsSubstring("expected a directory, got no such file or directory"));
  CHECK_THAT(error_of([&] { load_gpt2(gpt2.weights()); }),
             ContainsSubstring("expected a directory, got a file"));
}
