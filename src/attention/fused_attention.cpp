// SPDX-License-Identifier: MIT
#include "attention/fused_attention.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "attention/kernel_heads.h"
#include "attention/packed_heads.h"
#include "attention/units.h"
#include "kernels/attention_kernel.h"

namespace mini::detail {
namespace {

int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

// ---- Forward.

void run_forward(const KernelHeads& heads, const at::Tensor& output,
                 const at::Tensor& softmax_stats) {
  const kernels::HeadInputs& shape = heads.shape();
  const auto result = [&](int64_t head) {
    kernels::Forward forward;
    forward.output = heads.mutable_rows(output, head);
    if (softmax_stats.defined()) {
      forward.row_max = softmax_stats.mutable_data_ptr<float>() + head * 2 * shape.queries;
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

// The keys are cut three times: into parts, a thread's unit, where heads are few; a part into
// slices, which stay in the second-level cache while all queries pass; a slice, in the kernel, into
// blocks.

// Keys of a part. Each part has a dq of its own, and these are then summed: how, depends on the
// shape alone, so the bits of the sum do not depend on the number of threads.
int64_t keys_of_part(int64_t query_heads, int64_t key_heads, int64_t keys) {
  constexpr int64_t kUnits = 16;    // to aim for
  constexpr int64_t kFewest = 256;  // keys worth a unit
  // Where many query heads share a few key heads, four parts at most: each takes memory like dq.
  const int64_t most = query_heads < kUnits ? kUnits : 4;
  const int64_t wanted = std::min(most, divide_up(kUnits, key_heads));
  const int64_t parts = std::clamp(wanted, int64_t{1}, std::max<int64_t>(keys / kFewest, 1));
  return std::max<int64_t>(divide_up(divide_up(keys, parts), 64) * 64, 1);
}

// Keys of a slice: k, v, dk and dv of half a MiB.
int64_t keys_of_slice(const kernels::HeadInputs& shape) {
  constexpr int64_t kFloats = int64_t{1} << 17;
  const int64_t floats_of_key = 2 * (shape.head_size + shape.value_size);
  return std::max<int64_t>(kFloats / std::max<int64_t>(floats_of_key, 1) / 64, 1) * 64;
}

// dq += the sum of the partial ones.
void add_parts(const KernelHeads& heads, const at::Tensor& parts, const at::Tensor& dq) {
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

void run_backward(const KernelHeads& heads, const at::Tensor& d_output, const at::Tensor& output,
                  const at::Tensor& softmax_stats, const FusedGradients& result) {
  if (heads.count() == 0) {  // grouped, there may be keys all the same
    result.dk.zero_();
    result.dv.zero_();
    return;
  }
  const kernels::HeadInputs& shape = heads.shape();
  const int64_t group = heads.group();
  const int64_t key_heads = heads.count() / group;
  // Five products instead of the forward pass's two.
  const double work = 2.5 * static_cast<double>(heads.count()) * heads.work();

  // One query head's gradients; the first of a group writes dk and dv, the others add to them.
  const auto gradients = [&](int64_t head) {
    kernels::Backward backward;
    backward.output = heads.rows(output, head);
    backward.d_output = heads.rows(d_output, head);
    backward.row_max = softmax_stats.const_data_ptr<float>() + head * 2 * shape.queries;
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

  const int64_t part_keys = keys_of_part(heads.count(), key_heads, shape.keys);
  const int64_t parts = std::max<int64_t>(divide_up(shape.keys, part_keys), 1);
  at::Tensor more_dq;  // of the parts after the first
  if (parts > 1) {
    more_dq =
        at::empty({parts - 1, heads.count(), shape.queries, shape.head_size}, result.dq.options());
  }
  for_each_unit(
      key_heads * parts, work, kernels::backward_scratch(shape), [&](int64_t unit, float* scratch) {
        const int64_t part = unit / key_heads;  // with causality the first keys are the heaviest
        const int64_t first = unit % key_heads * group;
        const int64_t first_key = part * part_keys;
        for (int64_t head = first; head < first + group; ++head) {
          kernels::Backward backward = gradients(head);
          if (part > 0) {
            backward.dq = {more_dq.mutable_data_ptr<float>() + ((part - 1) * heads.count() + head) *
                                                                   shape.queries * shape.head_size,
                           shape.head_size};
          }
          const kernels::HeadInputs head_of_unit = heads[head];
          const int64_t end = std::min(first_key + part_keys, shape.keys);
          int64_t key = first_key;
          do {  // once even where there is no key: it writes zeros
            const int64_t keys = std::min(keys_of_slice(shape), end - key);
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

FusedGradients empty_gradients(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               bool packed) {
  if (packed && are_packed(q, k, v)) {
    auto [dq, dk, dv] =
        split_packed(at::empty(packed_sizes(q), q.options().dtype(at::kFloat)), q.size(-3));
    return {dq, dk, dv};
  }
  const auto gradient = [](const at::Tensor& of) {
    return empty_beside(of, of.sym_sizes(), at::kFloat);
  };
  return {gradient(q), gradient(k), gradient(v)};
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
  const auto has_tangent = [](const at::Tensor& t) { return t._fw_grad(0).defined(); };
  if (has_tangent(q) || has_tangent(k) || has_tangent(v) ||
      (options.mask && has_tangent(*options.mask))) {
    return "the fused kernel has no forward-mode derivatives";
  }
  if (options.mask && options.mask->requires_grad() && c10::GradMode::is_enabled()) {
    return "the fused kernel gives no gradient to a mask";
  }
  return nullptr;
}

FusedOutput fused_attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options, bool keep_stats) {
  const KernelHeads heads(q, k, v, options);
  at::DimVector sizes(q.sizes());
  sizes.back() = v.size(-1);
  // The direct way to an empty tensor takes a third of the dispatcher's time; small calls feel it.
  const bool plain = q.is_contiguous();
  FusedOutput result;
  result.output = plain ? at::Tensor(at::detail::empty_cpu(sizes, at::kFloat))
                        : empty_beside(q, c10::fromIntArrayRefSlow(sizes), at::kFloat);
  if (keep_stats) {
    sizes.end()[-2] = 2;
    sizes.back() = q.size(-2);
    result.softmax_stats = at::Tensor(at::detail::empty_cpu(sizes, at::kFloat));
  }
  run_forward(heads, result.output, result.softmax_stats);
  if (q.scalar_type() != at::kFloat) {
    result.output = result.output.to(q.scalar_type());
  }
  return result;
}

FusedGradients fused_attention_backward(const at::Tensor& d_output, const at::Tensor& q,
                                        const at::Tensor& k, const at::Tensor& v,
                                        const FusedOutput& forward, const AttentionOptions& options,
                                        bool packed) {
  const KernelHeads heads(q, k, v, options);
  FusedGradients result = empty_gradients(q, k, v, packed);
  run_backward(heads, readable(d_output), readable(forward.output),
               forward.softmax_stats.contiguous(), result);
  if (q.scalar_type() != at::kFloat) {
    for (at::Tensor* gradient : {&result.dq, &result.dk, &result.dv}) {
      *gradient = gradient->to(q.scalar_type());
    }
  }
  return result;
}

}  // namespace mini::detail
