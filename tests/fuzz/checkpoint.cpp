// SPDX-License-Identifier: MIT
// libFuzzer's target for checkpoints. The first byte of the input chooses a file of a checkpoint,
// and the other bytes replace this file. load_checkpoint must either refuse the checkpoint or load
// a run that can train and be saved.
#include "mini/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "memory_file.h"
#include "mini/optimizer.h"

using mini::fuzz::MemoryFile;
using mini::fuzz::require;
using mini::fuzz::with_correct_length;

namespace fs = std::filesystem;

namespace {

constexpr std::array<const char*, 4> kFiles = {"state.json", "model.safetensors",
                                               "optimizer.safetensors", "generators.safetensors"};
const std::map<std::string, std::string> kConfig = {{"n", "1"}};

struct Run {
  torch::nn::Linear net{2, 1};
  mini::AdamW optimizer{mini::decay_groups(*net, torch::optim::AdamWOptions(0.1)),
                        torch::optim::AdamWOptions(0.1)};
  mini::TrainingState state{.step = 1, .seconds = 0.5, .config = kConfig};

  Run() {
    at::manual_seed(1);
    update();
    state.generators["windows"] = at::arange(8, at::kByte);
  }
  void update() {
    optimizer.zero_grad();
    net->forward(at::ones({1, 2})).sum().backward();
    optimizer.step();
  }
};

/// A folder whose files are in memory. They are those of a valid checkpoint, but for the one that
/// the fuzzer replaces.
class Checkpoint {
 public:
  Checkpoint() {
    std::string name = (fs::temp_directory_path() / "fuzz-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "mkdtemp succeeds");
    const fs::path saved = fs::path(name) / "saved";
    const Run run;
    mini::save_checkpoint(saved, *run.net, run.optimizer, run.state);
    fs::create_directory(path_ = fs::path(name) / "memory");
    for (std::size_t i = 0; i < kFiles.size(); ++i) {
      std::ifstream stream(saved / kFiles[i], std::ios::binary);
      valid_[i].assign(std::istreambuf_iterator<char>(stream), {});
      memory_[i].replace(valid_[i]);
      fs::create_symlink(memory_[i].path(), path_ / kFiles[i]);
    }
    root_ = name;
  }
  ~Checkpoint() { fs::remove_all(root_); }

  const fs::path& path() const { return path_; }
  void replace(std::size_t file, std::string_view bytes) { memory_[file].replace(bytes); }
  void restore(std::size_t file) { memory_[file].replace(valid_[file]); }

 private:
  fs::path root_, path_;
  std::array<MemoryFile, kFiles.size()> memory_;
  std::array<std::string, kFiles.size()> valid_;
};

void check(const Checkpoint& checkpoint, bool optimizer_is_valid) {
  static Run run;  // loaded again and again: construction would dominate the time
  const at::Tensor before = run.net->weight.detach().clone();
  try {
    run.state = mini::load_checkpoint(checkpoint.path(), *run.net, run.optimizer, kConfig);
  } catch (const c10::Error&) {  // every other exception is a finding
    if (optimizer_is_valid) {
      require(at::equal(run.net->weight, before), "a refused checkpoint changes nothing");
    }
    return;
  }
  require(run.state.config == kConfig, "the configuration is the expected one");
  require(run.state.step >= 0, "the step is not negative");
  run.update();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Checkpoint checkpoint;
  if (size == 0) return 0;
  const std::size_t file = data[0] % kFiles.size();
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool is_optimizer = kFiles[file] == std::string_view("optimizer.safetensors");
  checkpoint.replace(file, file == 0 ? std::string(bytes) : with_correct_length(bytes));
  check(checkpoint, !is_optimizer);
  checkpoint.restore(file);
  return 0;
}
