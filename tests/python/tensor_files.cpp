// SPDX-License-Identifier: MIT
// The program that test_tensor_files.py and bench_loading.py run: it copies safetensors files, and
// loads and saves the weights of modules.
#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"

namespace {

namespace fs = std::filesystem;

/// The same module as Tree in test_tensor_files.py. Tokens (B, T) -> (B, 4, T)
struct TreeImpl : torch::nn::Module {
  TreeImpl() {
    namespace nn = torch::nn;
    embedding = register_module("embedding", nn::Embedding(11, 6));
    body = register_module(
        "body", nn::Sequential(nn::Linear(6, 8), nn::LayerNorm(nn::LayerNormOptions({8})),
                               nn::Linear(nn::LinearOptions(8, 6).bias(false))));
    conv = register_module("conv", nn::Conv1d(nn::Conv1dOptions(6, 4, 3).padding(1)));
    norm = register_module("norm", nn::BatchNorm1d(4));
    scale = register_parameter("scale", torch::ones({}));
  }

  torch::Tensor forward(const torch::Tensor& tokens) {
    const torch::Tensor x = body->forward(embedding(tokens));  // (B, T, 6)
    return scale * norm(conv(x.transpose(1, 2)));              // (B, 4, T)
  }

  torch::nn::Embedding embedding{nullptr};
  torch::nn::Sequential body{nullptr};
  torch::nn::Conv1d conv{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor scale;
};
TORCH_MODULE(Tree);

/// Reads "tokens" from `input`, and writes the output of `tree` as "output" to `output`.
void evaluate(Tree& tree, const fs::path& input, const fs::path& output) {
  const torch::NoGradGuard no_grad;
  tree->eval();
  torch::OrderedDict<std::string, at::Tensor> results;
  results.insert("output", tree(mini::load_safetensors(input).tensors["tokens"]));
  mini::save_safetensors(output, results);
}

void resave(const fs::path& from, const fs::path& to) {
  const mini::SafetensorsFile file = mini::load_safetensors(from);
  mini::save_safetensors(to, file.tensors, file.metadata);
}

/// Copies each file NAME of the folder to NAME.copy. Prints one line for each file that is refused.
void copy_all(const fs::path& folder) {
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path());
  for (const fs::path& name : names) {
    try {
      resave(name, name.string() + ".copy");
    } catch (const c10::Error& error) {
      std::cout << error.what_without_backtrace() << '\n';
    }
  }
}

/// The memory of this process that no file backs, in bytes.
std::int64_t anonymous_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return 1024 * std::stoll(line.substr(8));
  }
  throw std::runtime_error("no RssAnon in /proc/self/status");
}

/// For each path on stdin, loads the file and sums every tensor. Prints the time in seconds, the
/// growth of memory in bytes, and the sums, for bench_loading.py.
void sum_files() {
  for (std::string path; std::getline(std::cin, path);) {
    const std::int64_t memory = anonymous_memory();
    const auto start = std::chrono::steady_clock::now();
    const auto tensors = mini::load_safetensors(path).tensors;
    std::vector<double> sums;
    for (const auto& item : tensors) sums.push_back(item.value().sum().item<double>());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::cout << std::setprecision(17) << seconds.count() << ' ' << anonymous_memory() - memory;
    for (const double sum : sums) std::cout << ' ' << sum;
    std::cout << std::endl;
  }
}

void run(const std::vector<std::string>& arguments) {
  const std::string& command = arguments.at(0);
  if (command == "copy") {
    resave(arguments.at(1), arguments.at(2));
  } else if (command == "copy-all") {
    copy_all(arguments.at(1));
  } else if (command == "sum") {
    sum_files();
  } else if (command == "load-tree") {  // WEIGHTS INPUT OUTPUT
    Tree tree;
    mini::load_state_dict(*tree, mini::load_safetensors(arguments.at(1)).tensors);
    evaluate(tree, arguments.at(2), arguments.at(3));
  } else if (command == "save-tree") {  // WEIGHTS INPUT OUTPUT
    torch::manual_seed(1);
    Tree tree;
    tree(torch::randint(11, {5, 7}));  // in training mode, so that the norm updates its statistics
    mini::save_safetensors(arguments.at(1), mini::state_dict(*tree), {{"format", "pt"}});
    evaluate(tree, arguments.at(2), arguments.at(3));
  } else if (command == "load-tied") {  // WEIGHTS ALL_NAMES
    const std::map<std::string, std::string> aliases = {{"head.weight", "embedding.weight"}};
    struct Tied : torch::nn::Module {
      Tied() { register_module("embedding", torch::nn::Embedding(5, 3)); }
    } tied;
    mini::load_state_dict(tied, mini::load_safetensors(arguments.at(1)).tensors,
                          {.aliases = aliases});
    mini::save_safetensors(arguments.at(2), mini::state_dict(tied, aliases));
  } else {
    throw std::invalid_argument("unknown command " + command);
  }
}

}  // namespace

int main(int argc, char** argv) { return mini::test::run_command(argc, argv, run); }
