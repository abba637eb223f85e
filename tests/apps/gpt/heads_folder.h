// SPDX-License-Identifier: MIT
// Queries and keys for inspect_attention, and the weights that it should find.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "mini/safetensors.h"
#include "support/files.h"
#include "support/support.h"

namespace mini::test {

/// A folder with q and k in `heads.safetensors`.
struct HeadsFolder : TemporaryFolder {
  HeadsFolder(const at::Tensor& q, const at::Tensor& k, const std::string& key = "k") {
    torch::OrderedDict<std::string, at::Tensor> tensors;
    tensors.insert("q", q);
    tensors.insert(key, k);
    mini::save_safetensors(*this / "heads.safetensors", tensors);
  }
  std::string inspect(const std::string& options = "") const {
    return "inspect_attention --tensors '" + (*this / "heads.safetensors").string() + "' " +
           options;
  }
};

inline at::Tensor drawn(std::vector<int64_t> sizes, uint64_t seed) {
  torch::manual_seed(seed);
  return torch::randn(sizes, at::kDouble);
}

inline at::Tensor reference_weights(const at::Tensor& q, const at::Tensor& k, double scale,
                                    bool causal) {
  at::Tensor logits = scale * at::matmul(q, k.transpose(-2, -1));
  if (causal) {
    logits += at::full({q.size(-2), q.size(-2)}, -INFINITY, at::kDouble).triu(1);
  }
  return at::softmax(logits, -1);
}

}  // namespace mini::test
