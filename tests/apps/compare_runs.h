// SPDX-License-Identifier: MIT
// Reading the folder of a run, waiting for its steps, and comparing two finished runs.
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "apps/program.h"
#include "apps/tiny_run.h"
#include "mini/safetensors.h"
#include "support/support.h"

namespace mini::test {

using Tensors = torch::OrderedDict<std::string, at::Tensor>;

inline Tensors tensors_of(const std::filesystem::path& checkpoint, const std::string& file) {
  return mini::load_safetensors(checkpoint / (file + ".safetensors")).tensors;
}

inline bool same(const Tensors& a, const Tensors& b) {
  if (a.keys() != b.keys()) return false;
  return std::all_of(a.begin(), a.end(), [&](const Tensors::Item& item) {
    return at::equal(item.value(), b[item.key()]);
  });
}

inline nlohmann::json without_times(nlohmann::json line) {
  line.erase("seconds");
  line.erase("tokens_per_s");
  return line;
}

/// Checks that two runs have the same checkpoints, bit for bit, and the same metrics, except times.
inline void check_same_runs(const TinyFolder& folder, const std::string& actual,
                            const std::string& expected) {
  for (const std::string checkpoint : {"last", "best"}) {
    INFO(checkpoint);
    const std::filesystem::path a = folder / actual / checkpoint,
                                e = folder / expected / checkpoint;
    for (const std::string file : {"model", "optimizer", "generators"}) {
      INFO(file);
      CHECK(read_file(a / (file + ".safetensors")) == read_file(e / (file + ".safetensors")));
    }
    CHECK(without_times(nlohmann::json::parse(read_file(a / "state.json"))) ==
          without_times(nlohmann::json::parse(read_file(e / "state.json"))));
  }
  const auto a = folder.metrics(actual), e = folder.metrics(expected);
  REQUIRE(a.size() == e.size());
  for (std::size_t i = 0; i < e.size(); ++i) CHECK(without_times(a[i]) == without_times(e[i]));
}

inline std::size_t lines_of_metrics(const std::filesystem::path& run) {
  if (!std::filesystem::exists(run / "metrics.jsonl")) return 0;
  const std::string text = read_file(run / "metrics.jsonl");
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// Waits until the run has `steps` steps or the program has ended.
inline void wait_for_steps(Background& program, const std::filesystem::path& run,
                           std::size_t steps) {
  while (program.is_running() && lines_of_metrics(run) < steps) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

inline int64_t saved_step(const std::filesystem::path& checkpoint) {
  return nlohmann::json::parse(read_file(checkpoint / "state.json"))["step"].get<int64_t>();
}

inline std::set<std::string> files_of(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace mini::test
