// SPDX-License-Identifier: MIT
// Attention inputs from a JSON file written by hand.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>

namespace mini::app {

/// The inputs of an attention call, in float64.
struct AttentionMatrices {
  at::Tensor q, k, v;              ///< (T, d) or (B, T, d)
  std::optional<at::Tensor> mask;  ///< bool (true = visible), or numbers to add
};

/// Reads an object with the keys `q`, `k`, `v` and optionally `mask`. Each value is a matrix, which
/// is a list of rows, or a list of matrices. A mask holds true and false, or numbers; the string
/// "-inf" in it hides a position.
///
/// Throws std::runtime_error that names the file, the place in it and what was expected.
AttentionMatrices read_attention_matrices(const std::filesystem::path& path);

}  // namespace mini::app
