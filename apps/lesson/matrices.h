// SPDX-License-Identifier: MIT
// Matrices in JSON files, as people write them by hand.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>

namespace mini::app {

/// What an attention call takes, in float64.
struct AttentionMatrices {
  at::Tensor q, k, v;              ///< (T, H) or (B, T, H)
  std::optional<at::Tensor> mask;  ///< truth values, or numbers to add
};

/// Reads an object with `q`, `k` and `v`, each a list of rows or a list of lists of rows, and
/// perhaps `mask`: true and false, or numbers, where the string "-inf" hides a position. Throws
/// std::runtime_error that names the file, the place in it and what was expected.
AttentionMatrices read_attention_matrices(const std::filesystem::path& path);

}  // namespace mini::app
