// SPDX-License-Identifier: MIT
#include "attention/formula.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace mini::detail {
namespace {

at::Tensor as_double(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU, at::kDouble); }

// (..., rows, columns) -> (heads, rows, columns), contiguous
at::Tensor by_head(const at::Tensor& tensor) {
  int64_t heads = 1;
  for (int64_t i = 0; i < tensor.dim() - 2; ++i) heads *= tensor.size(i);
  return as_double(tensor).contiguous().view({heads, tensor.size(-2), tensor.size(-1)});
}

// What the mask adds to the scaled scores: -infinity hides a key.  (heads, Tq, Tk)
at::Tensor added_by(const AttentionOptions& options, at::IntArrayRef scores) {
  at::Tensor added = at::zeros({1, 1}, at::kDouble);
  if (options.mask) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const at::Tensor mask = options.mask->detach().to(at::kCPU);
    added = mask.scalar_type() == at::kBool
                ? at::zeros(mask.sizes(), at::kDouble).masked_fill(mask.logical_not(), -kInfinity)
                : mask.to(at::kDouble);
  }
  return by_head(added.expand(scores));
}

bool is_later(Causal causal, int64_t i, int64_t j, int64_t Tq, int64_t Tk) {
  switch (causal) {
    case Causal::kNone:
      return false;
    case Causal::kUpperLeft:
      return j > i;
    case Causal::kLowerRight:
      return j > i + (Tk - Tq);
  }
  return false;
}

// One row of weights from its scores, in place. A score of -infinity is hidden.
void softmax(double* row, int64_t n) {
  const double largest = n == 0 ? 0.0 : *std::max_element(row, row + n);
  if (std::isinf(largest)) {  // nothing is visible
    std::fill(row, row + n, 0.0);
    return;
  }
  double sum = 0.0;
  for (int64_t j = 0; j < n; ++j) sum += row[j] = std::exp(row[j] - largest);
  for (int64_t j = 0; j < n; ++j) row[j] /= sum;
}

}  // namespace

FormulaResult attention_formula(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const AttentionOptions& options, const at::Tensor& upstream) {
  at::DimVector scores_shape(q.sizes());
  scores_shape.back() = k.size(-2);
  at::DimVector output_shape(q.sizes());
  output_shape.back() = v.size(-1);
  const at::Tensor queries = by_head(q), keys = by_head(k), values = by_head(v);
  const at::Tensor added = added_by(options, scores_shape), d_outputs = by_head(upstream);
  const int64_t heads = queries.size(0), Tq = q.size(-2), Tk = k.size(-2);
  const int64_t d_k = q.size(-1), d_v = v.size(-1);
  const int64_t group = keys.size(0) == 0 ? 1 : heads / keys.size(0);
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(d_k)));

  const auto zeros = [](at::IntArrayRef sizes) { return at::zeros(sizes, at::kDouble); };
  at::Tensor output = zeros({heads, Tq, d_v}), weights = zeros({heads, Tq, Tk});
  at::Tensor dscores = zeros({heads, Tq, Tk}), dq = zeros(queries.sizes());
  at::Tensor dk = zeros(keys.sizes()), dv = zeros(values.sizes());
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t shared = head / group;  // the key/value head
    for (int64_t i = 0; i < Tq; ++i) {
      const double* q_i = queries.const_data_ptr<double>() + (head * Tq + i) * d_k;
      const double* d_output = d_outputs.const_data_ptr<double>() + (head * Tq + i) * d_v;
      const double* added_i = added.const_data_ptr<double>() + (head * Tq + i) * Tk;
      double* w = weights.mutable_data_ptr<double>() + (head * Tq + i) * Tk;
      double* ds = dscores.mutable_data_ptr<double>() + (head * Tq + i) * Tk;
      double* out = output.mutable_data_ptr<double>() + (head * Tq + i) * d_v;
      double* dq_i = dq.mutable_data_ptr<double>() + (head * Tq + i) * d_k;
      const auto row_of = [&](const at::Tensor& tensor, int64_t j, int64_t width) {
        return tensor.data_ptr<double>() + (shared * Tk + j) * width;
      };

      for (int64_t j = 0; j < Tk; ++j) {
        const double* k_j = row_of(keys, j, d_k);
        const bool hidden = std::isinf(added_i[j]) || is_later(options.causal, i, j, Tq, Tk);
        for (int64_t c = 0; c < d_k; ++c) w[j] += q_i[c] * k_j[c];
        w[j] = hidden ? -std::numeric_limits<double>::infinity() : scale * w[j] + added_i[j];
      }
      softmax(w, Tk);

      double delta = 0.0;  // sum over j of w_j (d_output . v_j)
      for (int64_t j = 0; j < Tk; ++j) {
        if (w[j] == 0.0) continue;
        const double* v_j = row_of(values, j, d_v);
        double* dv_j = row_of(dv, j, d_v);
        for (int64_t c = 0; c < d_v; ++c) {
          out[c] += w[j] * v_j[c];
          dv_j[c] += w[j] * d_output[c];
          ds[j] += d_output[c] * v_j[c];
        }
        delta += w[j] * ds[j];
      }
      for (int64_t j = 0; j < Tk; ++j) {
        ds[j] = w[j] == 0.0 ? 0.0 : w[j] * (ds[j] - delta);
        const double* k_j = row_of(keys, j, d_k);
        double* dk_j = row_of(dk, j, d_k);
        for (int64_t c = 0; c < d_k && ds[j] != 0.0; ++c) {
          dq_i[c] += scale * ds[j] * k_j[c];
          dk_j[c] += scale * ds[j] * q_i[c];
        }
      }
    }
  }
  return {output.view(output_shape), weights.view(scores_shape), dq.view(q.sizes()),
          dk.view(k.sizes()),        dv.view(v.sizes()),         dscores.view(scores_shape)};
}

}  // namespace mini::detail
