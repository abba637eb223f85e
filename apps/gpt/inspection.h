// SPDX-License-Identifier: MIT
// What inspect_attention looks at: each head of a model on a text, or of a file of queries and
// keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/head_view.h"
#include "gpt/run_folder.h"

namespace mini::app {

struct InspectedHead : HeadComparison {
  int64_t layer, head;

  /// Whether its figures are numbers.
  bool is_finite() const;
  /// How far the division moves it, towards even weights or away from them.
  double change() const;
};

struct Inspection {
  int64_t layers, heads;  ///< heads of each layer
  int64_t tokens;
  int64_t head_size;
  bool causal;
  std::vector<std::string> texts = {};  ///< of the tokens, where they have any
  std::vector<InspectedHead> views = {};

  /// What scores are divided by.
  double root() const;
  /// Weights a side that a cell of the page stands for.
  int64_t values_each() const;
};

/// The heads of a model on the tokens idx (1, T). Throws c10::Error for more than it can read.
Inspection inspect_model(TrainedModel& trained, const at::Tensor& idx);

/// The heads of a safetensors file with q and k, both (layers, heads, T, hs), (heads, T, hs) or
/// (T, hs). Throws std::runtime_error or c10::Error, with the path, if it has no such tensors.
Inspection inspect_tensors(const std::string& file, bool causal);

}  // namespace mini::app
