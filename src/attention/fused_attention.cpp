// SPDX-License-Identifier: MIT
#include "attention/fused_attention.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>

#include "attention/kernel_heads.h"
#include "attention/kernel_target.h"
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
    // Reading memory costs about four times as much as the multiplications.
    for_each_unit(
        heads.count(), 4 * work, kernels::decode_scratch(shape),
        [&](int64_t head, float* scratch) { kernels::decode(heads[head], result(head), scratch); });
    return;
  }
  const int64_t blocks = divide_up(shape.queries, kernels::kQueryBlock);
  for_each_unit(heads.count() * blocks, work, kernels::forward_scratch(shape),
                [&](int64_t unit, float* scratch) {
                  const int64_t head = unit / blocks;
                  // The last block comes first: with causality it has the most work.
                  const int64_t block = blocks - 1 - unit % blocks;
                  const int64_t first = block * kernels::kQueryBlock;
                  kernels::forward(heads[head], result(head), first,
                                   std::min(kernels::kQueryBlock, shape.queries - first), scratch);
                });
}

// ---- Backward.

// The keys are split at three levels:
//   part   a unit of work for one thread; more than one part only if there are few heads
//   slice  keys that stay in the second-level cache while all queries are processed
//   block  keys that the kernel processes together

// Keys per part. Each part writes its own dq, and add_parts() sums them. The summation order
// depends only on the shape, so the bits of dq do not depend on the number of threads.
int64_t keys_of_part(int64_t query_heads, int64_t key_heads, int64_t keys) {
  constexpr int64_t kTargetUnits = 16;
  constexpr int64_t kMinKeys = 256;  // per part
  // Each part allocates another dq. With many query heads per key head, dq is larger than dk.
  const int64_t most = query_heads < kTargetUnits ? 8 : 4;
  const int64_t wanted = std::min(most, divide_up(kTargetUnits, key_heads));
  const int64_t parts = std::clamp(wanted, int64_t{1}, std::max<int64_t>(keys / kMinKeys, 1));
  return std::max<int64_t>(divide_up(divide_up(keys, parts), 128) * 128, 1);
}

struct KeyRange {
  int64_t first, end;
};

// The keys of a part: consecutive, or with causality half of them from the front and half from the
// back, because the first keys have the most work. The second range may be empty.
std::array<KeyRange, 2> ranges_of_part(int64_t part, int64_t parts, int64_t part_keys,
                                       const kernels::HeadInputs& shape) {
  const auto range = [&](int64_t i, int64_t width) {
    return KeyRange{std::min(i * width, shape.keys), std::min((i + 1) * width, shape.keys)};
  };
  if (shape.diagonal >= shape.keys || parts == 1) {
    return {range(part, part_keys), {shape.keys, shape.keys}};
  }
  return {range(part, part_keys / 2), range(2 * parts - 1 - part, part_keys / 2)};
}

// Keys per slice: their k, v, dk and dv fill half a MiB.
int64_t keys_of_slice(const kernels::HeadInputs& shape) {
  constexpr int64_t kFloats = int64_t{1} << 17;
  const int64_t floats_of_key = 2 * (shape.head_size + shape.value_size);
  return std::max<int64_t>(kFloats / std::max<int64_t>(floats_of_key, 1) / 64, 1) * 64;
}

// Adds the dq of all parts but the first to dq. more_dq (n_parts - 1, heads, Tq, hs)
void add_parts(const KernelHeads& heads, const at::Tensor& more_dq, const at::Tensor& dq) {
  const int64_t rows = heads.shape().queries;
  const int64_t width = heads.shape().head_size;
  at::parallel_for(0, heads.count() * rows, 1 + (1 << 15) / std::max<int64_t>(width, 1),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const kernels::Rows head = heads.mutable_rows(dq, i / rows);
                       float* row = head.data + i % rows * head.stride;
                       for (int64_t part = 0; part < more_dq.size(0); ++part) {
                         const float* added = more_dq.const_data_ptr<float>() +
                                              (part * heads.count() * rows + i) * width;
                         for (int64_t c = 0; c < width; ++c) row[c] += added[c];
                       }
                     }
                   });
}

void run_backward(const KernelHeads& heads, const at::Tensor& d_output, const at::Tensor& output,
                  const at::Tensor& softmax_stats, const FusedGradients& result) {
  if (heads.count() == 0) {  // with grouped queries there may still be key/value heads
    result.dk.zero_();
    result.dv.zero_();
    return;
  }
  const kernels::HeadInputs& shape = heads.shape();
  const int64_t group = heads.group();
  const int64_t key_heads = heads.count() / group;
  // Five matrix products; the forward pass has two.
  const double work = 2.5 * static_cast<double>(heads.count()) * heads.work();

  // The gradients of one query head. The first head of a group writes dk and dv; the others add.
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
  at::Tensor more_dq;  // dq of each part after the first
  if (parts > 1) {
    more_dq =
        at::empty({parts - 1, heads.count(), shape.queries, shape.head_size}, result.dq.options());
  }
  for_each_unit(
      key_heads * parts, work, kernels::backward_scratch(shape), [&](int64_t unit, float* scratch) {
        const int64_t part = unit / key_heads;
        const int64_t first = unit % key_heads * group;
        for (int64_t head = first; head < first + group; ++head) {
          kernels::Backward backward = gradients(head);
          if (part > 0) {
            backward.dq = {more_dq.mutable_data_ptr<float>() + ((part - 1) * heads.count() + head) *
                                                                   shape.queries * shape.head_size,
                           shape.head_size};
          }
          const kernels::HeadInputs head_of_unit = heads[head];
          for (const KeyRange& range : ranges_of_part(part, parts, part_keys, shape)) {
            // The first range runs once even without keys, to write zeros.
            for (int64_t key = range.first; key < range.end || !backward.add_to_dq;) {
              const int64_t keys = std::min(keys_of_slice(shape), range.end - key);
              kernels::backward(head_of_unit, backward, key, keys, scratch);
              backward.add_to_dq = true;
              key += keys;
            }
          }
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
    return empty_in_layout_of(of, of.sym_sizes(), at::kFloat);
  };
  return {gradient(q), gradient(k), gradient(v)};
}

}  // namespace

at::Tensor empty_in_layout_of(const at::Tensor& like, c10::SymIntArrayRef sizes,
                              at::ScalarType dtype) {
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
    return "the fused kernel runs only on the CPU";
  }
  if (k.scalar_type() != dtype || v.scalar_type() != dtype ||
      (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf)) {
    return "the fused kernel supports only float32, bfloat16 and float16";
  }
  if (options.training && options.dropout > 0.0) {
    return "the fused kernel does not support dropout";
  }
  const auto has_tangent = [](const at::Tensor& t) { return t._fw_grad(0).defined(); };
  if (has_tangent(q) || has_tangent(k) || has_tangent(v) ||
      (options.mask && has_tangent(*options.mask))) {
    return "the fused kernel does not support forward-mode derivatives";
  }
  if (options.mask && options.mask->requires_grad() && c10::GradMode::is_enabled()) {
    return "the fused kernel does not compute the gradient of a mask";
  }
  check_kernel_target();
  return nullptr;
}

FusedOutput fused_attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options, bool keep_stats) {
  const KernelHeads heads(q, k, v, options);
  at::DimVector sizes(q.sizes());
  sizes.back() = v.size(-1);
  // empty_cpu() takes a third of the time of at::empty(), which matters for small calls.
  const bool plain = q.is_contiguous();
  FusedOutput result;
  result.output = plain ? at::Tensor(at::detail::empty_cpu(sizes, at::kFloat))
                        : empty_in_layout_of(q, c10::fromIntArrayRefSlow(sizes), at::kFloat);
  if (keep_stats) {
    sizes.end()[-2] = 2;
    sizes.back() = q.size(-2);
    result.softmax_stats = at::Tensor(at::detail::empty_cpu(sizes, at::kFloat));
  }
  run_forward(heads, result.output, result.softmax_stats);
  if (q.scalar_type() != at::kFloat) {
    if (keep_stats) result.exact_output = result.output;
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
  const at::Tensor& output = forward.exact_output.defined() ? forward.exact_output : forward.output;
  run_backward(heads, readable(d_output), readable(output), forward.softmax_stats.contiguous(),
               result);
  if (q.scalar_type() != at::kFloat) {
    for (at::Tensor* gradient : {&result.dq, &result.dk, &result.dv}) {
      *gradient = gradient->to(q.scalar_type());
    }
  }
  return result;
}

}  // namespace mini::detail
