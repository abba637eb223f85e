// SPDX-License-Identifier: MIT
#include "mini/checkpoint.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <stdexcept>
#include <string_view>

#include "files/atomic_folder.h"
#include "files/json_file.h"
#include "mini/optimizer.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"

namespace mini {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "mini-transformer checkpoint";
constexpr int64_t kVersion = 1;
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";
constexpr const char* kHexDigits = "0123456789abcdef";

std::string to_hex(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.contiguous();
  std::string text;
  for (const uint8_t byte :
       at::ArrayRef<uint8_t>(bytes.const_data_ptr<uint8_t>(), bytes.nbytes())) {
    text += {kHexDigits[byte / 16], kHexDigits[byte % 16]};
  }
  return text;
}

at::Tensor from_hex(const std::string& text) {
  const std::string_view digits = kHexDigits;
  if (text.size() % 2 != 0 || text.find_first_not_of(digits) != std::string::npos) {
    throw std::runtime_error("expected bytes in hexadecimal");
  }
  const at::Tensor bytes = at::empty({static_cast<int64_t>(text.size() / 2)}, at::kByte);
  for (std::size_t i = 0; i < text.size() / 2; ++i) {
    const std::size_t high = digits.find(text[2 * i]), low = digits.find(text[2 * i + 1]);
    bytes.mutable_data_ptr<uint8_t>()[i] = static_cast<uint8_t>(16 * high + low);
  }
  return bytes;
}

detail::Json to_json(const TrainingState& state) {
  detail::Json json = {{"format", kFormat},        {"version", kVersion},
                       {"step", state.step},       {"seconds", state.seconds},
                       {"best_val_loss", nullptr},  // JSON has no infinity
                       {"config", state.config},   {"generators", detail::Json::object()}};
  if (std::isfinite(state.best_val_loss)) json["best_val_loss"] = state.best_val_loss;
  for (const auto& [name, bytes] : state.generators) json["generators"][name] = to_hex(bytes);
  return json;
}

TrainingState from_json(const detail::Json& json) {
  if (detail::json_member<std::string>(json, "format") != kFormat) {
    throw std::runtime_error("expected a " + std::string(kFormat));
  }
  const auto version = detail::json_member<int64_t>(json, "version");
  if (version != kVersion) {
    throw std::runtime_error("expected version " + std::to_string(kVersion) + ", got " +
                             std::to_string(version));
  }
  TrainingState state;
  state.step = detail::json_member<int64_t>(json, "step");
  state.seconds = detail::json_member<double>(json, "seconds");
  const bool none_yet = json.contains("best_val_loss") && json["best_val_loss"].is_null();
  if (!none_yet) state.best_val_loss = detail::json_member<double>(json, "best_val_loss");
  const auto config = detail::json_member<detail::Json>(json, "config");
  for (const auto& item : config.items()) {
    state.config[item.key()] = detail::json_member<std::string>(config, item.key());
  }
  const auto generators = detail::json_member<detail::Json>(json, "generators");
  for (const auto& item : generators.items()) {
    state.generators[item.key()] =
        from_hex(detail::json_member<std::string>(generators, item.key()));
  }
  return state;
}

/// "n_layer 4 there, 6 here; ..." for whatever is not the same; "" if nothing.
std::string differences(const std::map<std::string, std::string>& there,
                        const std::map<std::string, std::string>& here) {
  const auto value = [](const auto& config, const std::string& name) {
    const auto found = config.find(name);
    return found == config.end() ? "none" : found->second;
  };
  std::map<std::string, std::string> all = there;
  all.insert(here.begin(), here.end());
  std::string list;
  for (const auto& [name, ignored] : all) {
    const std::string saved = value(there, name), given = value(here, name);
    if (saved == given) continue;
    list += (list.empty() ? "" : "; ") + name + " " + saved + " there, " + given + " here";
  }
  return list;
}

/// The tensors of a file that belongs to `step`.
torch::OrderedDict<std::string, at::Tensor> load_tensors(const fs::path& path, int64_t step) {
  const SafetensorsFile file = load_safetensors(path);
  const auto found = file.metadata.find("step");
  TORCH_CHECK(found != file.metadata.end() && found->second == std::to_string(step),
              "load_checkpoint: ", path.string(), ": expected tensors of step ", step, ", got ",
              found == file.metadata.end() ? "none" : found->second);
  return file.tensors;
}

}  // namespace

void save_checkpoint(const fs::path& path, const torch::nn::Module& module,
                     const torch::optim::AdamW& optimizer, const TrainingState& state) {
  const std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                       {"step", std::to_string(state.step)}};
  try {
    detail::AtomicFolder folder(path);
    save_safetensors(folder.path() / kModelFile, state_dict(module), metadata);
    save_safetensors(folder.path() / kOptimizerFile, optimizer_state_dict(optimizer, module),
                     metadata);
    detail::write_json(folder.path() / kStateFile, to_json(state));
    folder.commit();
  } catch (const std::runtime_error& error) {
    TORCH_CHECK(false, "save_checkpoint: ", error.what());
  }
}

TrainingState load_checkpoint(const fs::path& path, torch::nn::Module& module,
                              torch::optim::AdamW& optimizer,
                              const std::map<std::string, std::string>& config) {
  TrainingState state;
  fs::path folder;
  try {
    folder = detail::AtomicFolder::find(path);
    state = detail::read_json(folder / kStateFile, from_json);
  } catch (const std::runtime_error& error) {
    TORCH_CHECK(false, "load_checkpoint: ", error.what());
  }
  const std::string difference = differences(state.config, config);
  TORCH_CHECK(difference.empty(), "load_checkpoint: ", path.string(),
              ": another configuration: ", difference);
  const auto model_tensors = load_tensors(folder / kModelFile, state.step);
  const auto optimizer_tensors = load_tensors(folder / kOptimizerFile, state.step);
  load_state_dict(module, model_tensors);
  load_optimizer_state_dict(optimizer, module, optimizer_tensors);
  return state;
}

}  // namespace mini
