// SPDX-License-Identifier: MIT
#include "mini/pretrained.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "files/json_file.h"
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

using Words = std::initializer_list<std::string_view>;

bool starts_with_one_of(std::string_view name, Words beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return name.starts_with(beginning); });
}

bool ends_with_one_of(std::string_view name, Words endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

// ---- Names

// Without what wrappers put in front, and with the root that GPT-2 alone may leave out.
std::string our_name(std::string_view name) {
  while (starts_with_one_of(name, {"module.", "_orig_mod."})) {
    name.remove_prefix(name.find('.') + 1);
  }
  const bool without_root = starts_with_one_of(name, {"wte.", "wpe.", "h.", "ln_f."});
  return (without_root ? "transformer." : "") + std::string(name);
}

TensorDict with_our_names(const std::string& where, const TensorDict& tensors) {
  TensorDict renamed;
  for (const auto& item : tensors) {
    if (ends_with_one_of(item.key(), {".attn.bias", ".attn.masked_bias"})) {
      continue;  // a buffer of the causal mask
    }
    const std::string name = our_name(item.key());
    TORCH_CHECK(!renamed.contains(name), where, ": expected one tensor for ", name, ", got two, '",
                item.key(), "' the second");
    renamed.insert(name, item.value());
  }
  return renamed;
}

// GPT-2 computes x W + b in the blocks, with W (in, out).
bool is_transposed_in_gpt2(const std::string& name, const at::Tensor& tensor) {
  return ends_with_one_of(name, {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"}) &&
         tensor.dim() == 2;
}

// From GPT-2's orientation to ours, or back.
TensorDict transposed(const TensorDict& tensors) {
  TensorDict result;
  for (const auto& item : tensors) {
    const at::Tensor& tensor = item.value();
    result.insert(item.key(), is_transposed_in_gpt2(item.key(), tensor) ? tensor.t() : tensor);
  }
  return result;
}

// ---- A model from tensors

// The sizes that shapes tell, all but n_head.
GPTOptions read_sizes(const std::string& where, const TensorDict& tensors) {
  const auto embedding = [&](const char* name, const at::Tensor* tensor) {
    TORCH_CHECK(tensor != nullptr && tensor->defined(), where, ": expected ", name,
                ", got no such tensor");
    TORCH_CHECK(tensor->dim() == 2, where, ": expected ", name, " of two dimensions, got ",
                tensor->sizes());
    return tensor->sizes();
  };
  const at::Tensor* tokens = tensors.find(kTokens);
  const auto wte =
      embedding(kTokens, tokens != nullptr ? tokens : tensors.find("lm_head.weight"));  // (V, C)
  const auto wpe = embedding(kPositions, tensors.find(kPositions));                     // (T, C)
  constexpr std::string_view kBlock = "transformer.h.";  // and its number, and the tensor's name
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

// `tensors` are by our names and in our orientation. They are copied one by one, and no weights are
// drawn before.
GPT make_gpt(const std::string& where, const GPTOptions& options, const TensorDict& tensors,
             bool convert_dtype) {
  try {
    const detail::LeaveUndrawn all_are_loaded;
    GPT model(options);
    load_state_dict(*model, tensors, {.convert_dtype = convert_dtype, .aliases = kGPTAliases});
    return model;
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, where, ": ", error.what_without_backtrace());
  }
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

// Fields of which our GPT can do one value, which is the package's default too.
void check_fixed_fields(const detail::Json& config) {
  const std::array<std::pair<const char*, detail::Json>, 5> fields = {{
      {"layer_norm_epsilon", 1e-5},
      {"scale_attn_weights", true},
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
  if (!config.contains("activation_function")) {
    return "tanh";
  }
  const auto activation = detail::json_member<std::string>(config, "activation_function");
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh") {
    return "tanh";
  }
  if (activation != "gelu") {
    fail("activation_function", "gelu_new, gelu_pytorch_tanh or gelu", activation);
  }
  return "none";
}

GPTOptions options_of(const detail::Json& config) {
  const auto model_type = detail::json_member<std::string>(config, "model_type");
  if (model_type != "gpt2") {
    fail("model_type", "gpt2", model_type);
  }
  check_fixed_fields(config);
  const auto n_embd = detail::json_member<int64_t>(config, "n_embd");
  const auto n_head = detail::json_member<int64_t>(config, "n_head");
  if (n_head < 1 || n_embd % n_head != 0) {
    fail("n_head", "a divisor of n_embd " + std::to_string(n_embd), std::to_string(n_head));
  }
  if (config.contains("n_inner") && !config["n_inner"].is_null()) {
    const auto n_inner = detail::json_member<int64_t>(config, "n_inner");
    if (n_inner % 4 != 0 || n_inner / 4 != n_embd) {
      fail("n_inner", "null or 4 n_embd, of n_embd " + std::to_string(n_embd),
           std::to_string(n_inner));
    }
  }
  return GPTOptions(detail::json_member<int64_t>(config, "vocab_size"))
      .block_size(detail::json_member<int64_t>(config, "n_positions"))
      .n_layer(detail::json_member<int64_t>(config, "n_layer"))
      .n_head(n_head)
      .n_embd(n_embd)
      .bias(true)
      .gelu_approximate(gelu_of(config));
}

GPTOptions read_config(const fs::path& file) {
  try {
    return detail::read_json(file, options_of);
  } catch (const std::runtime_error& error) {
    TORCH_CHECK(false, "load_gpt2: ", error.what());
  }
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
          {"tie_word_embeddings", true},
          // The package's defaults are tokens of GPT-2's own vocabulary.
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

// ---- GPT-2's directory

void check_files(const std::string& where, const fs::path& directory) {
  TORCH_CHECK(fs::is_directory(directory), where, ": expected a directory, got ",
              fs::exists(directory) ? "a file" : "none");
  const auto has = [&](const char* name) { return fs::exists(directory / name); };
  TORCH_CHECK(has(kConfigFile), where, ": expected ", kConfigFile, ", got no such file");
  TORCH_CHECK(has(kWeightsFile), where, ": expected ", kWeightsFile, ", got ",
              has("model.safetensors.index.json") ? "shards and their model.safetensors.index.json"
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

// A GPT-2 has a bias wherever it has a weight, embeddings aside.
void add_zero_biases(TensorDict& tensors) {
  for (const auto& item : TensorDict(tensors)) {
    const std::string& name = item.key();
    if (name == kTokens || name == kPositions) {
      continue;
    }
    const std::string bias = name.substr(0, name.rfind('.')) + ".bias";
    tensors.insert(bias, at::zeros({item.value().size(0)}, item.value().options()));
  }
}

}  // namespace

GPT load_nanogpt(const TensorDict& tensors, int64_t n_head, const NanoGPTOptions& options) {
  return make_nanogpt("load_nanogpt", tensors, n_head, options);
}

GPT load_nanogpt(const fs::path& file, int64_t n_head, const NanoGPTOptions& options) {
  return make_nanogpt("load_nanogpt: '" + file.string() + "'", load_safetensors(file).tensors,
                      n_head, options);
}

void save_nanogpt(const fs::path& file, const GPT& model) {
  save_safetensors(file, state_dict(*model, kGPTAliases), {{"format", "pt"}});
}

GPT load_gpt2(const fs::path& directory, const GPT2Options& options) {
  const std::string where = "load_gpt2: '" + directory.string() + "'";
  check_files(where, directory);
  GPTOptions config = read_config(directory / kConfigFile);
  const fs::path weights = directory / kWeightsFile;
  const std::string where_weights = "load_gpt2: '" + weights.string() + "'";
  const TensorDict tensors = with_our_names(where_weights, load_safetensors(weights).tensors);
  check_sizes(where, config, read_sizes(where_weights, tensors));
  return make_gpt(where_weights, config.dropout(options.dropout), transposed(tensors),
                  options.convert_dtype);
}

void save_gpt2(const fs::path& directory, const GPT& model) {
  TensorDict tensors = state_dict(*model);
  if (!model->options.bias()) {
    add_zero_biases(tensors);
  }
  std::error_code error;
  fs::create_directories(directory, error);
  TORCH_CHECK(!error, "save_gpt2: cannot make '", directory.string(), "': ", error.message());
  // `transformers` asks for the format, in which it then finds "pt".
  save_safetensors(directory / kWeightsFile, transposed(tensors), {{"format", "pt"}});
  try {
    detail::write_json(directory / kConfigFile, config_of(model->options));
  } catch (const std::runtime_error& failure) {
    TORCH_CHECK(false, "save_gpt2: ", failure.what());
  }
}

}  // namespace mini
