// SPDX-License-Identifier: MIT
#include "fused_attention.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/attention_kernel.h"
#include "operator.h"

namespace mini {
namespace {

// ---- Tensors as the kernel reads and writes them: float32, adjacent elements in a row.

bool has_adjacent_elements(const at::Tensor& tensor) {
  return tensor.stride(-1) == 1 || tensor.size(-1) <= 1;
}

at::Tensor readable(const at::Tensor& tensor) {
  const at::Tensor floats = tensor.scalar_type() == at::kFloat ? tensor : tensor.to(at::kFloat);
  return has_adjacent_elements(floats) ? floats : floats.contiguous();
}

// Elements from the first one of a tensor (..., T, d) to that of one of its heads. `leading` are
// the sizes that number the heads; `group` consecutive ones share a place in the tensor.
int64_t head_offset(at::IntArrayRef leading, at::IntArrayRef strides, int64_t head, int64_t group) {
  int64_t offset = 0;
  for (size_t d = leading.size(); d-- > 0; group = 1) {
    offset += head % leading[d] / group * strides[d];
    head /= leading[d];
  }
  return offset;
}

// A call of attention, as heads for the kernel.
class Heads {
 public:
  Heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
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
    shape_.scale = static_cast<float>(
        options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1)))));
    shape_.diagonal = options.causal == Causal::kNone         ? shape_.keys
                      : options.causal == Causal::kLowerRight ? shape_.keys - shape_.queries
                                                              : 0;
    if (options.mask) {
      set_mask(*options.mask);
    }
  }

  int64_t count() const { return count_; }
  /// Consecutive query heads that share a key and value head.
  int64_t group() const { return group_; }
  /// Sizes and kinds, the same for each head.
  const kernels::Head& shape() const { return shape_; }
  /// Work of one head, in multiplications and additions of one product of q and k.
  double work() const {
    const double visible = shape_.diagonal < shape_.keys ? 0.5 : 1.0;
    return 2.0 * visible * static_cast<double>(shape_.queries) * static_cast<double>(shape_.keys) *
           static_cast<double>(shape_.head_size + shape_.value_size);
  }

  kernels::Head operator[](int64_t head) const {
    kernels::Head result = shape_;
    result.q = rows(q_, head, 1);
    result.k = rows(k_, head, group_);
    result.v = rows(v_, head, group_);
    if (mask_.defined()) {
      const int64_t offset = head_offset(leading_, mask_strides_, head, 1);
      if (result.mask.visible != nullptr) result.mask.visible += offset;
      if (result.mask.added != nullptr) result.mask.added += offset;
    }
    return result;
  }

  /// One head's rows in a tensor with the leading sizes of q.
  kernels::ConstRows rows(const at::Tensor& tensor, int64_t head) const {
    return rows(tensor, head, 1);
  }
  kernels::Rows mutable_rows(const at::Tensor& tensor, int64_t head, int64_t group = 1) const {
    return {tensor.mutable_data_ptr<float>() + head_offset(leading_, tensor.strides(), head, group),
            tensor.stride(-2)};
  }

 private:
  kernels::ConstRows rows(const at::Tensor& tensor, int64_t head, int64_t group) const {
    return {tensor.const_data_ptr<float>() + head_offset(leading_, tensor.strides(), head, group),
            tensor.stride(-2)};
  }

  // Strides of the mask as if it had the dimensions of the scores: 0 where it is shared.
  void set_mask(const at::Tensor& mask) {
    mask_ = mask.scalar_type() == at::kBool ? mask : mask.to(at::kFloat);
    const int64_t missing = q_.dim() - mask.dim();
    mask_strides_.resize(static_cast<size_t>(q_.dim()), 0);
    for (int64_t d = 0; d < mask.dim(); ++d) {
      mask_strides_[static_cast<size_t>(missing + d)] = mask.size(d) == 1 ? 0 : mask_.stride(d);
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
  kernels::Head shape_;
};

// ---- Threads.

// Memory of one task: on the stack if it is small, so that a small call allocates nothing.
class TaskScratch {
 public:
  explicit TaskScratch(int64_t floats) {
    if (floats > static_cast<int64_t>(std::size(on_stack_))) {
      on_heap_ = c10::GetCPUAllocator()->allocate(static_cast<size_t>(floats) * sizeof(float));
    }
  }
  float* data() { return on_heap_ ? static_cast<float*>(on_heap_.get()) : on_stack_; }

 private:
  alignas(64) float on_stack_[4096];
  at::DataPtr on_heap_;
};

// body(unit, scratch) for each unit. Units go to whichever thread is free, in order of their
// number: give heavy units small numbers.
template <class Body>
void for_each_unit(int64_t units, double work_of_all, int64_t scratch_floats, const Body& body) {
  // Below this much work (about 10 us on one core) waking a second thread costs more than it
  // brings.
  constexpr double kWorthAThread = 1e6;
  // Work to take at once, so that the counter is not what threads wait for.
  constexpr double kWorthATurn = 2e5;
  const int64_t threads = at::get_num_threads();
  if (units <= 1 || threads == 1 || work_of_all < kWorthAThread || at::in_parallel_region()) {
    TaskScratch scratch(scratch_floats);
    for (int64_t unit = 0; unit < units; ++unit) body(unit, scratch.data());
    return;
  }
  const double work_of_unit = work_of_all / static_cast<double>(units);
  const int64_t turn = std::max<int64_t>(1, static_cast<int64_t>(kWorthATurn / work_of_unit));
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min(threads, units), 1, [&](int64_t, int64_t) {
    TaskScratch scratch(scratch_floats);
    for (int64_t begin = next.fetch_add(turn); begin < units; begin = next.fetch_add(turn)) {
      const int64_t end = std::min(begin + turn, units);
      for (int64_t unit = begin; unit < end; ++unit) body(unit, scratch.data());
    }
  });
}

int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

// ---- Forward.

void run_forward(const Heads& heads, const at::Tensor& output, const at::Tensor& softmax) {
  const kernels::Head& shape = heads.shape();
  const auto result = [&](int64_t head) {
    kernels::Forward forward;
    forward.output = heads.mutable_rows(output, head);
    if (softmax.defined()) {
      forward.row_max = softmax.mutable_data_ptr<float>() + head * 2 * shape.queries;
      forward.log_sum = forward.row_max + shape.queries;
    }
    return forward;
  };
  const double work = static_cast<double>(heads.count()) * heads.work();

  if (shape.queries <= kernels::kDecodeQueries) {
    // Reading memory costs about four times what the multiplications alone would.
    for_each_unit(
        heads.count(), 4 * work, kernels::decode_scratch(shape),
        [&](int64_t head, float* scratch) { kernels::decode(heads[head], result(head), scratch); });
    return;
  }
  const int64_t blocks = divide_up(shape.queries, kernels::kQueryBlock);
  for_each_unit(heads.count() * blocks, work, kernels::forward_scratch(shape),
                [&](int64_t unit, float* scratch) {
                  const int64_t head = unit / blocks;
                  const int64_t block = blocks - 1 - unit % blocks;  // with causality the heaviest
                  const int64_t first = block * kernels::kQueryBlock;
                  kernels::forward(heads[head], result(head), first,
                                   std::min(kernels::kQueryBlock, shape.queries - first), scratch);
                });
}

// ---- Backward.

// Keys of one unit. Few heads are cut into parts, each with a dq of its own that is then summed:
// how, depends on the shape alone, so the bits of the sum do not depend on the number of threads.
int64_t keys_of_unit(int64_t key_heads, int64_t keys) {
  constexpr int64_t kUnits = 16;    // to aim for
  constexpr int64_t kFewest = 256;  // keys worth a unit
  const int64_t parts = std::clamp(divide_up(kUnits, std::max<int64_t>(key_heads, 1)), int64_t{1},
                                   std::max<int64_t>(keys / kFewest, 1));
  return std::max<int64_t>(divide_up(divide_up(keys, parts), 64) * 64, 1);
}

// Keys that a unit takes at a time: their k, v, dk and dv stay in the second-level cache (half a
// MiB) while all queries pass.
int64_t keys_at_a_time(const kernels::Head& shape) {
  constexpr int64_t kFloats = int64_t{1} << 17;
  const int64_t floats_of_key = 2 * (shape.head_size + shape.value_size);
  return std::max<int64_t>(kFloats / std::max<int64_t>(floats_of_key, 1) / 64, 1) * 64;
}

// dq += the sum of the partial ones.
void add_parts(const Heads& heads, const at::Tensor& parts, const at::Tensor& dq) {
  const int64_t rows = heads.shape().queries;
  const int64_t width = heads.shape().head_size;
  at::parallel_for(0, heads.count() * rows, 1 + (1 << 15) / std::max<int64_t>(width, 1),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const kernels::Rows head = heads.mutable_rows(dq, i / rows);
                       float* row = head.data + i % rows * head.stride;
                       for (int64_t part = 0; part < parts.size(0); ++part) {
                         const float* added = parts.const_data_ptr<float>() +
                                              (part * heads.count() * rows + i) * width;
                         for (int64_t c = 0; c < width; ++c) row[c] += added[c];
                       }
                     }
                   });
}

void run_backward(const Heads& heads, const at::Tensor& d_output, const at::Tensor& output,
                  const at::Tensor& softmax, const FusedGradients& result) {
  const kernels::Head& shape = heads.shape();
  const int64_t group = heads.group();
  const int64_t key_heads = heads.count() / group;
  const double work = 2.5 * static_cast<double>(heads.count()) * heads.work();

  // One query head's gradients; the first of a group writes dk and dv, the others add to them.
  const auto gradients = [&](int64_t head) {
    kernels::Backward backward;
    backward.output = heads.rows(output, head);
    backward.d_output = heads.rows(d_output, head);
    backward.row_max = softmax.const_data_ptr<float>() + head * 2 * shape.queries;
    backward.log_sum = backward.row_max + shape.queries;
    backward.dq = heads.mutable_rows(result.dq, head);
    backward.dk = heads.mutable_rows(result.dk, head, group);
    backward.dv = heads.mutable_rows(result.dv, head, group);
    backward.add_to_dk_dv = head % group != 0;
    return backward;
  };

  if (shape.queries <= kernels::kDecodeQueries) {
    for_each_unit(key_heads, 4 * work, kernels::decode_scratch(shape),
                  [&](int64_t unit, float* scratch) {
                    for (int64_t head = unit * group; head < (unit + 1) * group; ++head) {
                      kernels::decode_backward(heads[head], gradients(head), scratch);
                    }
                  });
    return;
  }

  const int64_t unit_keys = keys_of_unit(key_heads, shape.keys);
  const int64_t parts = std::max<int64_t>(divide_up(shape.keys, unit_keys), 1);
  at::Tensor more_dq;  // of the parts after the first
  if (parts > 1) {
    more_dq =
        at::empty({parts - 1, heads.count(), shape.queries, shape.head_size}, result.dq.options());
  }
  for_each_unit(
      key_heads * parts, work, kernels::backward_scratch(shape), [&](int64_t unit, float* scratch) {
        const int64_t part = unit / key_heads;  // with causality the first keys are the heaviest
        const int64_t first = unit % key_heads * group;
        const int64_t first_key = part * unit_keys;
        for (int64_t head = first; head < first + group; ++head) {
          kernels::Backward backward = gradients(head);
          if (part > 0) {
            backward.dq = {more_dq.mutable_data_ptr<float>() + ((part - 1) * heads.count() + head) *
                                                                   shape.queries * shape.head_size,
                           shape.head_size};
          }
          const kernels::Head head_of_unit = heads[head];
          const int64_t end = std::min(first_key + unit_keys, shape.keys);
          int64_t key = first_key;
          do {  // once even where there is no key: it writes zeros
            const int64_t keys = std::min(keys_at_a_time(shape), end - key);
            kernels::backward(head_of_unit, backward, key, keys, scratch);
            backward.add_to_dq = true;
            key += keys;
          } while (key < end);
        }
      });
  if (parts > 1) {
    add_parts(heads, more_dq, result.dq);
  }
}

at::Tensor empty_floats_like(const at::Tensor& tensor) {
  return empty_beside(tensor, tensor.sym_sizes(), at::kFloat);
}

}  // namespace

at::Tensor empty_beside(const at::Tensor& like, c10::SymIntArrayRef sizes, at::ScalarType dtype) {
  const auto options = like.options().dtype(dtype);
  if (sizes == like.sym_sizes()) {
    at::Tensor same = at::empty_like(like, options);
    if (same.sym_strides().back() == 1) {
      return same;
    }
  }
  return at::empty_symint(sizes, options);
}

const char* fused_attention_obstacle(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const AttentionOptions& options) {
  const at::Device device = q.device();
  const at::ScalarType dtype = q.scalar_type();
  if (!device.is_cpu() || k.device() != device || v.device() != device) {
    return "the fused kernel is for the CPU";
  }
  if (k.scalar_type() != dtype || v.scalar_type() != dtype ||
      (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf)) {
    return "the fused kernel computes in float32, for float32, bfloat16 and float16";
  }
  if (options.training && options.dropout > 0.0) {
    return "the fused kernel has no dropout";
  }
  if (options.mask && options.mask->requires_grad() && c10::GradMode::is_enabled()) {
    return "the fused kernel gives no gradient to a mask";
  }
  return nullptr;
}

FusedOutput fused_attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options, bool keep_softmax) {
  const Heads heads(q, k, v, options);
  at::DimVector sizes(q.sizes());
  sizes.back() = v.size(-1);
  // The direct way to an empty tensor takes a third of the dispatcher's time; small calls feel it.
  const bool plain = q.is_contiguous();
  FusedOutput result;
  result.output = plain ? at::Tensor(at::detail::empty_cpu(sizes, at::kFloat))
                        : empty_beside(q, c10::fromIntArrayRefSlow(sizes), at::kFloat);
  if (keep_softmax) {
    sizes.end()[-2] = 2;
    sizes.back() = q.size(-2);
    result.softmax = at::Tensor(at::detail::empty_cpu(sizes, at::kFloat));
  }
  run_forward(heads, result.output, result.softmax);
  if (q.scalar_type() != at::kFloat) {
    result.output = result.output.to(q.scalar_type());
  }
  return result;
}

FusedGradients fused_attention_backward(const at::Tensor& d_output, const at::Tensor& q,
                                        const at::Tensor& k, const at::Tensor& v,
                                        const FusedOutput& forward,
                                        const AttentionOptions& options) {
  const Heads heads(q, k, v, options);
  FusedGradients result{empty_floats_like(q), empty_floats_like(k), empty_floats_like(v)};
  run_backward(heads, readable(d_output), readable(forward.output), forward.softmax, result);
  if (q.scalar_type() != at::kFloat) {
    for (at::Tensor* gradient : {&result.dq, &result.dk, &result.dv}) {
      *gradient = gradient->to(q.scalar_type());
    }
  }
  return result;
}

at::Tensor fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionOptions& options) {
  const bool needs_gradient =
      c10::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  // Wrapped tensors (tracing, vmap) have no memory to point at; the dispatcher knows what to do.
  const bool wrapped = at::isTensorSubclassLike(q) || at::isTensorSubclassLike(k) ||
                       at::isTensorSubclassLike(v) ||
                       (options.mask && at::isTensorSubclassLike(*options.mask));
  if (needs_gradient || wrapped) {
    return dispatch_attention(q, k, v, options);
  }
  return fused_attention_forward(q, k, v, options, /*keep_softmax=*/false).output;
}

}  // namespace mini
