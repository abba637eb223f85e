// SPDX-License-Identifier: MIT
#include "mini/pretrained.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "files/json_file.h"
#include "files/with_prefix.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"
#include "modules/seeded_init.h"

namespace mini {
namespace {

namespace fs = std::filesystem;
using TensorDict = torch::OrderedDict<std::string, at::Tensor>;

constexpr const char* kConfigFile = "config.json";
constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kTokens = "transformer.wte.weight";
constexpr const char* kPositions = "transformer.wpe.weight";
constexpr const char* kHead = "lm_head.weight";
// The metadata of the files that `transformers` writes.
const std::map<std::string, std::string> kMetadata = {{"format", "pt"}};

using Words = std::initializer_list<std::string_view>;

std::string quoted(const fs::path& path) { return "'" + path.string() + "'"; }

bool starts_with_any(std::string_view name, Words prefixes) {
  return std::ranges::any_of(prefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

bool ends_with_any(std::string_view name, Words suffixes) {
  return std::ranges::any_of(suffixes, [&](auto suffix) { return name.ends_with(suffix); });
}

// ---- Names

// Removes the prefixes of wrappers, and adds the root `transformer.` that GPT-2 may leave out.
std::string our_name(std::string_view name) {
  while (starts_with_any(name, {"module.", "_orig_mod."})) name.remove_prefix(name.find('.') + 1);
  const bool rootless = starts_with_any(name, {"wte.", "wpe.", "h.", "ln_f."});
  return (rootless ? "transformer." : "") + std::string(name);
}

TensorDict with_our_names(const std::string& where, const TensorDict& tensors) {
  TensorDict renamed;
  for (const auto& item : tensors) {
    if (ends_with_any(item.key(), {".attn.bias", ".attn.masked_bias"})) {
      continue;  // the buffer of a causal mask
    }
    const std::string name = our_name(item.key());
    TORCH_CHECK(!renamed.contains(name), where, ": expected one tensor for ", name,
                ", got a second one named '", item.key(), "'");
    renamed.insert(name, item.value());
  }
  return renamed;
}

// Converts between GPT-2's orientation and ours, in either direction: the blocks of GPT-2 compute
// x W + b with W (in, out).
TensorDict transposed(const TensorDict& tensors) {
  TensorDict result;
  for (const auto& item : tensors) {
    const bool is_matrix =
        item.value().dim() == 2 &&
        ends_with_any(item.key(), {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"});
    result.insert(item.key(), is_matrix ? item.value().t() : item.value());
  }
  return result;
}

// ---- A model from tensors

// The options that names and shapes determine: all sizes but n_head.
GPTOptions read_sizes(const std::string& where, const TensorDict& tensors) {
  const auto embedding = [&](const char* name, const at::Tensor* tensor) {
    TORCH_CHECK(tensor != nullptr && tensor->defined(), where, ": expected ", name,
                ", got no such tensor");
    TORCH_CHECK(tensor->dim() == 2, where, ": expected ", name, " of two dimensions, got ",
                tensor->sizes());
    return tensor->sizes();
  };
  const at::Tensor* tokens = tensors.find(kTokens);
  const auto wte = embedding(kTokens, tokens != nullptr ? tokens : tensors.find(kHead));  // (V, C)
  const auto wpe = embedding(kPositions, tensors.find(kPositions));  // (block_size, C)
  constexpr std::string_view kBlock = "transformer.h.";  // then the layer, then the tensor's name
  std::set<std::string> blocks;
  for (const auto& item : tensors) {
    const std::string& name = item.key();
    if (name.starts_with(kBlock)) {
      blocks.insert(name.substr(kBlock.size(), name.find('.', kBlock.size()) - kBlock.size()));
    }
  }
  return GPTOptions(wte[0])
      .block_size(wpe[0])
      .n_layer(static_cast<int64_t>(blocks.size()))
      .n_embd(wte[1]);
}

// `tensors` have our names and orientation. The model draws no weights, since all are overwritten.
GPT make_gpt(const std::string& where, const GPTOptions& options, const TensorDict& tensors,
             bool convert_dtype) {
  return detail::with_prefix(where + ": ", [&] {
    GPT model(options, detail::Weights::kUndrawn);
    model->to(at::kFloat);  // the constructor uses LibTorch's default dtype
    load_state_dict(*model, tensors, {.convert_dtype = convert_dtype, .aliases = kGPTAliases});
    return model;
  });
}

GPT make_nanogpt(const std::string& where, const TensorDict& given, int64_t n_head,
                 const NanoGPTOptions& options) {
  const TensorDict tensors = with_our_names(where, given);
  return make_gpt(where,
                  read_sizes(where, tensors)
                      .n_head(n_head)
                      .bias(tensors.contains("transformer.ln_f.bias"))
                      .gelu_approximate(options.gelu_approximate)
                      .dropout(options.dropout),
                  tensors, options.convert_dtype);
}

// ---- GPT-2's configuration

[[noreturn]] void fail(const std::string& field, const std::string& expected,
                       const std::string& value) {
  throw std::runtime_error(field + ": expected " + expected + ", got " + value);
}

// `GPT` supports one value of each of these fields: the default of `transformers`.
void check_fixed_fields(const detail::Json& config) {
  const std::array<std::pair<const char*, detail::Json>, 4> fields = {{
      {"layer_norm_epsilon", 1e-5},
      {"scale_attn_by_inverse_layer_idx", false},
      {"add_cross_attention", false},
      {"tie_word_embeddings", true},
  }};
  for (const auto& [name, expected] : fields) {
    if (config.contains(name) && config[name] != expected) {
      fail(name, expected.dump(), config[name].dump());
    }
  }
}

std::string gelu_of(const detail::Json& config) {
  if (!config.contains("activation_function")) return "tanh";
  const auto activation = detail::json_member<std::string>(config, "activation_function");
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh") return "tanh";
  if (activation != "gelu") {
    fail("activation_function", "gelu_new, gelu_pytorch_tanh or gelu", activation);
  }
  return "none";
}

// `scale_attn_weights` false means that the scores are not divided.
std::optional<double> scale_of(const detail::Json& config) {
  const bool divided = !config.contains("scale_attn_weights") ||
                       detail::json_member<bool>(config, "scale_attn_weights");
  return divided ? std::nullopt : std::optional(1.0);
}

GPTOptions options_of(const detail::Json& config) {
  const auto model_type = detail::json_member<std::string>(config, "model_type");
  if (model_type != "gpt2") fail("model_type", "gpt2", model_type);
  check_fixed_fields(config);
  const auto n_embd = detail::json_member<int64_t>(config, "n_embd");
  const auto n_head = detail::json_member<int64_t>(config, "n_head");
  if (n_head < 1 || n_embd % n_head != 0) {
    fail("n_head", "a divisor of n_embd = " + std::to_string(n_embd), std::to_string(n_head));
  }
  if (config.contains("n_inner") && !config["n_inner"].is_null()) {
    const auto n_inner = detail::json_member<int64_t>(config, "n_inner");
    if (n_inner % 4 != 0 || n_inner / 4 != n_embd) {
      fail("n_inner", "null or 4 * n_embd with n_embd = " + std::to_string(n_embd),
           std::to_string(n_inner));
    }
  }
  return GPTOptions(detail::json_member<int64_t>(config, "vocab_size"))
      .block_size(detail::json_member<int64_t>(config, "n_positions"))
      .n_layer(detail::json_member<int64_t>(config, "n_layer"))
      .n_head(n_head)
      .n_embd(n_embd)
      .bias(true)
      .scale(scale_of(config))
      .gelu_approximate(gelu_of(config));
}

// Whether the scores are multiplied by 1 / sqrt(hs), which is the scale of every nanoGPT.
bool has_standard_scale(const GPTOptions& options) {
  const double head_size =
      static_cast<double>(options.n_embd()) / static_cast<double>(options.n_head());
  return !options.scale() || *options.scale() == 1.0 / std::sqrt(head_size);
}

detail::Json config_of(const GPTOptions& options) {
  return {{"model_type", "gpt2"},
          {"architectures", detail::Json::array({"GPT2LMHeadModel"})},
          {"vocab_size", options.vocab_size()},
          {"n_positions", options.block_size()},
          {"n_embd", options.n_embd()},
          {"n_layer", options.n_layer()},
          {"n_head", options.n_head()},
          {"n_inner", nullptr},
          {"activation_function", options.gelu_approximate() == "tanh" ? "gelu_new" : "gelu"},
          {"embd_pdrop", options.dropout()},
          {"attn_pdrop", options.dropout()},
          {"resid_pdrop", options.dropout()},
          {"layer_norm_epsilon", 1e-5},
          {"scale_attn_weights", has_standard_scale(options)},
          {"tie_word_embeddings", true},
          // The defaults of `transformers` are ids of GPT-2's own vocabulary.
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

// ---- GPT-2's directory

void check_files(const std::string& where, const fs::path& directory) {
  TORCH_CHECK(fs::is_directory(directory), where, ": expected a directory, got ",
              fs::exists(directory) ? "a file" : "no such file or directory");
  const auto has = [&](const char* name) { return fs::exists(directory / name); };
  TORCH_CHECK(has(kConfigFile), where, ": expected ", kConfigFile, ", got no such file");
  TORCH_CHECK(has(kWeightsFile), where, ": expected ", kWeightsFile, ", got ",
              has("model.safetensors.index.json") ? "shards (model.safetensors.index.json)"
              : has("pytorch_model.bin")          ? "pytorch_model.bin"
                                                  : "no such file");
}

void check_sizes(const std::string& where, const GPTOptions& config, const GPTOptions& weights) {
  const auto check = [&](const char* field, int64_t in_config, int64_t in_weights) {
    TORCH_CHECK(in_config == in_weights, where, ": ", field, " is ", in_config, " in ", kConfigFile,
                ", but ", in_weights, " in ", kWeightsFile);
  };
  check("vocab_size", config.vocab_size(), weights.vocab_size());
  check("n_positions", config.block_size(), weights.block_size());
  check("n_embd", config.n_embd(), weights.n_embd());
  check("n_layer", config.n_layer(), weights.n_layer());
}

// GPT-2 has a bias for every weight except the embeddings.
void add_zero_biases(TensorDict& tensors) {
  for (const auto& item : TensorDict(tensors)) {
    const std::string& name = item.key();
    if (name == kTokens || name == kPositions) continue;
    const std::string bias = name.substr(0, name.rfind('.')) + ".bias";
    tensors.insert(bias, at::zeros({item.value().size(0)}, item.value().options()));
  }
}

}  // namespace

GPT load_nanogpt(const TensorDict& tensors, int64_t n_head, const NanoGPTOptions& options) {
  return make_nanogpt("load_nanogpt", tensors, n_head, options);
}

GPT load_nanogpt(const fs::path& file, int64_t n_head, const NanoGPTOptions& options) {
  return make_nanogpt("load_nanogpt: " + quoted(file), load_safetensors(file).tensors, n_head,
                      options);
}

void save_nanogpt(const fs::path& file, const GPT& model) {
  TORCH_CHECK(has_standard_scale(model->options),
              "save_nanogpt: expected a model with scale 1 / sqrt(head size), which nanoGPT always "
              "uses, got scale ",
              *model->options.scale());
  save_safetensors(file, state_dict(*model, kGPTAliases), kMetadata);
}

GPT load_gpt2(const fs::path& directory, const GPT2Options& options) {
  const std::string where = "load_gpt2: " + quoted(directory);
  check_files(where, directory);
  GPTOptions config = detail::with_prefix(
      "load_gpt2: ", [&] { return detail::read_json(directory / kConfigFile, options_of); });
  const fs::path weights = directory / kWeightsFile;
  const std::string where_weights = "load_gpt2: " + quoted(weights);
  const TensorDict tensors = with_our_names(where_weights, load_safetensors(weights).tensors);
  check_sizes(where, config, read_sizes(where_weights, tensors));
  return make_gpt(where_weights, config.dropout(options.dropout), transposed(tensors),
                  options.convert_dtype);
}

void save_gpt2(const fs::path& directory, const GPT& model) {
  TORCH_CHECK(has_standard_scale(model->options) || *model->options.scale() == 1.0,
              "save_gpt2: expected a model with scale 1 / sqrt(head size) or 1, which are the two "
              "that a GPT-2's config.json can express, got scale ",
              *model->options.scale());
  TensorDict tensors = state_dict(*model);
  if (!model->options.bias()) add_zero_biases(tensors);
  std::error_code error;
  fs::create_directories(directory, error);
  TORCH_CHECK(!error, "save_gpt2: cannot create ", quoted(directory), ": ", error.message());
  save_safetensors(directory / kWeightsFile, transposed(tensors), kMetadata);
  detail::with_prefix("save_gpt2: ", [&] {
    detail::write_json(directory / kConfigFile, config_of(model->options));
  });
}

}  // namespace mini
