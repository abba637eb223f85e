// SPDX-License-Identifier: MIT
// torch.func.vmap in C++.
#pragma once

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>

#include "support/support.h"

namespace mini::test {

/// While an object exists, operations on its batched tensors work on `examples` tensors at once.
class Vmap {
 public:
  explicit Vmap(int64_t examples)
      : level_(at::functorch::initAndPushDynamicLayer(at::functorch::TransformType::Vmap, examples,
                                                      at::functorch::RandomnessType::Error)) {}
  ~Vmap() { at::functorch::popDynamicLayerAndDeleteMetadata(); }
  Vmap(const Vmap&) = delete;
  Vmap& operator=(const Vmap&) = delete;

  /// examples (N, ...) as one tensor (...).
  at::Tensor batched(const at::Tensor& examples) const {
    return at::functorch::addBatchDim(examples, 0, level_);
  }

  /// The inverse of `batched`, for a result that depends on a batched tensor.
  at::Tensor examples(const at::Tensor& result) const {
    const auto [tensor, dimension] = at::functorch::unwrapTensorAtLevel(result, level_);
    return tensor.movedim(dimension.value(), 0);
  }

 private:
  int64_t level_;
};

}  // namespace mini::test
