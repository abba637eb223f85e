// SPDX-License-Identifier: MIT
// A text and model sizes so small that training takes a second.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/program.h"
#include "support/support.h"

namespace mini::test {

/// Words in random order. Their characters have one or two bytes.
inline std::string tiny_text(int words = 600) {
  const std::vector<std::string> vocabulary = {"to", "be", "or", "not", "größe", "ist", "frage"};
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < words; ++i) {
    text += vocabulary[random() % vocabulary.size()] + (i % 8 == 7 ? "\n" : " ");
  }
  return text;
}

/// A folder with `text.txt`, for runs of train_gpt.
struct TinyFolder : TemporaryFolder {
  TinyFolder() { write_file(*this / "text.txt", tiny_text()); }

  std::string path_of(const std::string& name) const { return "'" + (*this / name).string() + "'"; }

  /// The command that trains a new run. `options` replace these options of the same name.
  std::string train(const std::string& run, const std::string& options = "") const {
    std::string command =
        "train_gpt --data " + path_of("text.txt") + " --output " + path_of(run) + " " + options;
    const std::vector<std::pair<std::string, std::string>> tiny = {
        {" --block-size ", "8"}, {" --batch-size ", "4"}, {" --n-layer ", "2"},
        {" --n-head ", "2"},     {" --n-embd ", "16"},    {" --threads ", "1"}};
    for (const auto& [name, value] : tiny) {
      if (command.find(name) == std::string::npos) command += name + value;
    }
    return command;
  }
  std::string resume(const std::string& run) const { return "train_gpt --resume " + path_of(run); }

  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::istringstream file(read_file(*this / run / "metrics.jsonl"));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
};

}  // namespace mini::test
