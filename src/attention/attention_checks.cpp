// SPDX-License-Identifier: MIT
#include "attention/attention_checks.h"

#include <c10/util/Exception.h>

#include <cmath>

#include "strict_math.h"

namespace mini::detail {
namespace {

// Sizes are `SymInt`s. They are symbols while torch.compile traces, and a check on a symbol becomes
// a guard of the compiled function.

void check_kind(const char* function, const at::Tensor& q, const at::Tensor& k,
                const at::Tensor& v) {
  TORCH_CHECK(q.defined() && k.defined() && v.defined(), function,
              ": expected three tensors, got an undefined ",
              !q.defined()   ? "q"
              : !k.defined() ? "k"
                             : "v");
  TORCH_CHECK(
      q.layout() == at::kStrided && k.layout() == at::kStrided && v.layout() == at::kStrided,
      function, ": expected dense tensors, got layouts q ", q.layout(), ", k ", k.layout(), ", v ",
      v.layout());
  const at::ScalarType dtype = q.scalar_type();
  TORCH_CHECK(dtype == k.scalar_type() && dtype == v.scalar_type(), function,
              ": q, k and v must share a dtype, got q ", dtype, ", k ", k.scalar_type(), ", v ",
              v.scalar_type());
  TORCH_CHECK(
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf,
      function, ": expected float32, float64, bfloat16 or float16, got ", dtype);
  TORCH_CHECK(q.device() == k.device() && q.device() == v.device(), function,
              ": q, k and v must be on one device, got q ", q.device(), ", k ", k.device(), ", v ",
              v.device());
}

void check_shapes(const char* function, const at::Tensor& q, const at::Tensor& k,
                  const at::Tensor& v, bool grouped_queries) {
  TORCH_CHECK(q.dim() >= 2 && q.dim() == k.dim() && q.dim() == v.dim(), function,
              ": expected q (..., Tq, d_k), k (..., Tk, d_k), v (..., Tk, d_v) with the same "
              "number of dimensions, at least 2, got q ",
              q.sym_sizes(), ", k ", k.sym_sizes(), ", v ", v.sym_sizes());
  TORCH_CHECK(q.sym_size(-1) == k.sym_size(-1), function,
              ": q and k must share head_size d_k, got q ", q.sym_sizes(), " and k ",
              k.sym_sizes());
  TORCH_CHECK(k.sym_size(-2) == v.sym_size(-2), function,
              ": k and v must share their length Tk, got k ", k.sym_sizes(), " and v ",
              v.sym_sizes());

  const int64_t leading = q.dim() - 2;
  TORCH_CHECK(k.sym_sizes().slice(0, leading) == v.sym_sizes().slice(0, leading), function,
              ": k and v must share their leading dimensions, got k ", k.sym_sizes(), " and v ",
              v.sym_sizes());
  if (!grouped_queries) {
    TORCH_CHECK(q.sym_sizes().slice(0, leading) == k.sym_sizes().slice(0, leading), function,
                ": q and k must share their leading dimensions (they are not broadcast), got q ",
                q.sym_sizes(), " and k ", k.sym_sizes());
    return;
  }
  TORCH_CHECK(leading >= 1, function,
              ": grouped queries need a dimension of heads, (..., heads, T, d), got q ",
              q.sym_sizes());
  TORCH_CHECK(q.sym_sizes().slice(0, leading - 1) == k.sym_sizes().slice(0, leading - 1), function,
              ": q and k must share the dimensions before the heads, got q ", q.sym_sizes(),
              " and k ", k.sym_sizes());
  const c10::SymInt query_heads = q.sym_size(-3);
  const c10::SymInt key_heads = k.sym_size(-3);
  TORCH_CHECK(key_heads == 0 ? query_heads == 0 : query_heads % key_heads == 0, function,
              ": the heads of q must be a multiple of those of k and v, got ", query_heads, " and ",
              key_heads);
}

void check_mask(const char* function, const at::Tensor& q, const at::Tensor& k,
                const at::Tensor& mask) {
  TORCH_CHECK(mask.defined(), function, ": expected a mask, got an undefined tensor");
  TORCH_CHECK(mask.layout() == at::kStrided, function, ": expected a dense mask, got layout ",
              mask.layout());
  TORCH_CHECK(mask.scalar_type() == at::kBool || at::isFloatingType(mask.scalar_type()), function,
              ": expected a mask of bool (true = may attend) or of a floating dtype (added to the "
              "scaled scores), got ",
              mask.scalar_type());
  TORCH_CHECK(mask.device() == q.device(), function, ": the mask must be on the device of q, got ",
              mask.device(), " and q ", q.device());

  c10::SymDimVector scores_shape(q.sym_sizes());
  scores_shape.back() = k.sym_size(-2);
  TORCH_CHECK(mask.dim() <= 2 || mask.dim() == q.dim(), function,
              ": expected a mask of at most two dimensions (Tq, Tk), or as many as the scores ",
              c10::SymIntArrayRef(scores_shape), ", got ", mask.sym_sizes(),
              "; insert a dimension of size 1 where the mask is broadcast");
  const int64_t skipped = q.dim() - mask.dim();
  for (int64_t i = 0; i < mask.dim(); ++i) {
    TORCH_CHECK(mask.sym_size(i) == 1 || mask.sym_size(i) == scores_shape[skipped + i], function,
                ": expected a mask that broadcasts to the scores ",
                c10::SymIntArrayRef(scores_shape), ", got ", mask.sym_sizes());
  }
}

void check_numbers(const char* function, const at::Tensor& q, const AttentionOptions& options) {
  if (options.scale) {
    TORCH_CHECK(std::isfinite(*options.scale), function, ": expected a finite scale, got ",
                *options.scale);
    TORCH_CHECK(q.scalar_type() == at::kDouble || std::isfinite(static_cast<float>(*options.scale)),
                function, ": expected a scale that float32 can hold, got ", *options.scale);
  } else {
    TORCH_CHECK(q.sym_size(-1) > 0, function,
                ": the default scale 1 / sqrt(d_k) is undefined for d_k = 0; pass a scale, got q ",
                q.sym_sizes());
  }
  TORCH_CHECK(options.dropout >= 0.0 && options.dropout <= 1.0, function,
              ": expected a dropout probability in [0, 1], got ", options.dropout);
}

}  // namespace

void check_attention_arguments(const char* function, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionOptions& options) {
  check_kind(function, q, k, v);
  check_shapes(function, q, k, v, options.grouped_queries);
  if (options.mask) {
    check_mask(function, q, k, *options.mask);
  }
  check_numbers(function, q, options);
}

}  // namespace mini::detail
