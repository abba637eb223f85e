// SPDX-License-Identifier: MIT
// The heads that inspect_attention measures: those of a model on a text, or those of a file of
// queries and keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/head_view.h"
#include "gpt/run_folder.h"

namespace mini::app {

struct InspectedHead : HeadComparison {
  int64_t layer, head;

  /// Whether the figures are finite.
  bool is_finite() const;
  /// How much the division changes the entropy share, in either direction.
  double change() const;
};

struct Inspection {
  int64_t layers, heads;  ///< heads per layer
  int64_t tokens;
  int64_t head_size;
  bool causal;
  /// Of the scores in the scaled views: sqrt(head_size), unless the model has another.
  double divisor;
  bool undivided = false;               ///< the model does not divide its scores
  std::vector<std::string> texts = {};  ///< of the tokens; empty for a file of queries and keys
  std::vector<InspectedHead> views = {};

  bool divides_by_root() const;
  /// A cell of the page shows the largest of values_each() x values_each() weights.
  int64_t values_each() const;
};

/// The heads of a model on the tokens idx (1, T). Throws c10::Error if T exceeds its block size.
Inspection inspect_model(TrainedModel& trained, const at::Tensor& idx);

/// The heads of a safetensors file with q and k, both (layers, heads, T, hs), (heads, T, hs) or
/// (T, hs). Throws std::runtime_error or c10::Error, with the path, if it has no such tensors.
Inspection inspect_tensors(const std::string& file, bool causal);

}  // namespace mini::app
