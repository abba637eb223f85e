// SPDX-License-Identifier: MIT
// Converts tensors of any dtype and strides to heads that the kernel can read: float32 with
// contiguous rows.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include "attention/composite_attention.h"
#include "kernels/attention_kernel.h"
#include "mini/attention.h"

namespace mini::detail {

inline bool has_adjacent_elements(const at::Tensor& tensor) {
  return tensor.stride(-1) == 1 || tensor.size(-1) <= 1;
}

/// The tensor itself if it is float32 with contiguous rows, otherwise such a copy.
inline at::Tensor readable(const at::Tensor& tensor) {
  const at::Tensor floats = tensor.resolve_neg().to(at::kFloat);
  return has_adjacent_elements(floats) ? floats : floats.contiguous();
}

/// Offset of a head in a tensor (..., T, d), in elements. `leading` are the leading sizes of q;
/// they number the heads. `group` consecutive heads share one head of the tensor.
inline int64_t head_offset(at::IntArrayRef leading, at::IntArrayRef strides, int64_t head,
                           int64_t group) {
  int64_t offset = 0;
  for (size_t d = leading.size(); d-- > 0; group = 1) {
    offset += head % leading[d] / group * strides[d];
    head /= leading[d];
  }
  return offset;
}

/// The heads of one attention call.
class KernelHeads {
 public:
  KernelHeads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
              const AttentionOptions& options)
      : q_(readable(q)), k_(readable(k)), v_(readable(v)) {
    const size_t leading = static_cast<size_t>(q.dim() - 2);
    leading_ = q_.sizes().slice(0, leading);
    count_ = c10::multiply_integers(leading_);
    if (options.grouped_queries && k.size(-3) > 0) {
      group_ = q.size(-3) / k.size(-3);
    }
    shape_.queries = q.size(-2);
    shape_.keys = k.size(-2);
    shape_.head_size = q.size(-1);
    shape_.value_size = v.size(-1);
    shape_.scale = static_cast<float>(attention_scale(q, options));
    shape_.diagonal = options.causal == Causal::kNone         ? shape_.keys
                      : options.causal == Causal::kLowerRight ? shape_.keys - shape_.queries
                                                              : 0;
    if (options.mask) {
      set_mask(*options.mask);
    }
  }

  int64_t count() const { return count_; }
  /// Number of consecutive query heads that share a key/value head.
  int64_t group() const { return group_; }
  /// Sizes, scale, diagonal and mask strides, the same for each head.
  const kernels::HeadInputs& shape() const { return shape_; }
  /// Floating-point operations of one head's forward pass, q k^T and P v. Halved if causality hides
  /// about half of the scores.
  double work() const {
    const double visible = shape_.diagonal < shape_.keys - shape_.queries / 2 ? 0.5 : 1.0;
    return 2.0 * visible * static_cast<double>(shape_.queries) * static_cast<double>(shape_.keys) *
           static_cast<double>(shape_.head_size + shape_.value_size);
  }

  kernels::HeadInputs operator[](int64_t head) const {
    kernels::HeadInputs result = shape_;
    result.q = rows(q_, head, 1);
    result.k = rows(k_, head, group_);
    result.v = rows(v_, head, group_);
    if (mask_.defined()) {
      const int64_t offset = head_offset(leading_, mask_strides_, head, 1);
      result.mask.visible = at_offset(result.mask.visible, offset);
      result.mask.added = at_offset(result.mask.added, offset);
    }
    return result;
  }

  /// The rows of one head in a tensor with the leading sizes of q.
  kernels::ConstRows rows(const at::Tensor& tensor, int64_t head) const {
    return rows(tensor, head, 1);
  }
  kernels::Rows mutable_rows(const at::Tensor& tensor, int64_t head, int64_t group = 1) const {
    return {at_offset(tensor.mutable_data_ptr<float>(),
                      head_offset(leading_, tensor.strides(), head, group)),
            tensor.stride(-2)};
  }

 private:
  /// An empty tensor has no memory, and an offset from a null pointer is undefined behaviour.
  template <typename T>
  static T* at_offset(T* data, int64_t offset) {
    return data == nullptr ? nullptr : data + offset;
  }

  kernels::ConstRows rows(const at::Tensor& tensor, int64_t head, int64_t group) const {
    return {at_offset(tensor.const_data_ptr<float>(),
                      head_offset(leading_, tensor.strides(), head, group)),
            tensor.stride(-2)};
  }

  // Gives the mask the dimensions of the scores, with stride 0 where it is broadcast.
  void set_mask(const at::Tensor& mask) {
    mask_ = mask;
    for (int64_t d = 0; d < mask.dim(); ++d) {  // a conversion would write each repetition
      if (mask.stride(d) == 0 && mask.size(d) > 1) mask_ = mask_.narrow(d, 0, 1);
    }
    if (mask.scalar_type() != at::kBool) {
      mask_ = mask_as(mask_.resolve_neg(), at::kFloat);
    }
    const int64_t missing = q_.dim() - mask.dim();
    mask_strides_.resize(static_cast<size_t>(q_.dim()), 0);
    for (int64_t d = 0; d < mask.dim(); ++d) {
      mask_strides_[static_cast<size_t>(missing + d)] = mask_.size(d) == 1 ? 0 : mask_.stride(d);
    }
    if (mask_.scalar_type() == at::kBool) {
      shape_.mask.visible = mask_.const_data_ptr<bool>();
    } else {
      shape_.mask.added = mask_.const_data_ptr<float>();
    }
    shape_.mask.row_stride = mask_strides_[mask_strides_.size() - 2];
    shape_.mask.key_stride = mask_strides_.back();
  }

  at::Tensor q_, k_, v_, mask_;
  at::IntArrayRef leading_;
  at::DimVector mask_strides_;
  int64_t count_ = 0;
  int64_t group_ = 1;
  kernels::HeadInputs shape_;
};

}  // namespace mini::detail
