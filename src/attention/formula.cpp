// SPDX-License-Identifier: MIT
#include "attention/formula.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace mini::detail {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

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
    const at::Tensor mask = options.mask->detach().to(at::kCPU);
    added = mask.scalar_type() == at::kBool
                ? at::zeros(mask.sizes(), at::kDouble).masked_fill(mask.logical_not(), -kUnbounded)
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

// One query of one head: rows of the inputs, and of the results to fill.
struct Query {
  const double *q, *k, *v, *added, *d_output;
  double *weights, *output, *dscores, *dq, *dk, *dv;
  int64_t i, Tq, Tk, d_k, d_v;
  double scale;
  Causal causal;
};

void compute_output(const Query& row) {
  for (int64_t j = 0; j < row.Tk; ++j) {
    const bool hidden =
        row.added[j] == -kUnbounded || is_later(row.causal, row.i, j, row.Tq, row.Tk);
    double score = 0.0;
    for (int64_t c = 0; c < row.d_k; ++c) score += row.q[c] * row.k[j * row.d_k + c];
    row.weights[j] = hidden ? -kUnbounded : row.scale * score + row.added[j];
  }
  softmax(row.weights, row.Tk);
  for (int64_t j = 0; j < row.Tk; ++j) {
    if (row.weights[j] == 0.0) continue;  // a hidden value may be NaN
    for (int64_t c = 0; c < row.d_v; ++c) row.output[c] += row.weights[j] * row.v[j * row.d_v + c];
  }
}

void add_gradients(const Query& row) {
  double delta = 0.0;  // d_output . output
  for (int64_t c = 0; c < row.d_v; ++c) delta += row.d_output[c] * row.output[c];
  for (int64_t j = 0; j < row.Tk; ++j) {
    const double weight = row.weights[j];
    if (weight == 0.0) continue;
    double dweight = 0.0;  // d_output . v_j
    for (int64_t c = 0; c < row.d_v; ++c) {
      dweight += row.d_output[c] * row.v[j * row.d_v + c];
      row.dv[j * row.d_v + c] += weight * row.d_output[c];
    }
    row.dscores[j] = weight * (dweight - delta);
    for (int64_t c = 0; c < row.d_k; ++c) {
      row.dq[c] += row.scale * row.dscores[j] * row.k[j * row.d_k + c];
      row.dk[j * row.d_k + c] += row.scale * row.dscores[j] * row.q[c];
    }
  }
}

}  // namespace

FormulaResult attention_formula(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const AttentionOptions& options, const at::Tensor& upstream) {
  at::DimVector scores_shape(q.sizes()), output_shape(q.sizes());
  scores_shape.back() = k.size(-2);
  output_shape.back() = v.size(-1);
  const at::Tensor queries = by_head(q), keys = by_head(k), values = by_head(v);
  const at::Tensor added = added_by(options, scores_shape), d_outputs = by_head(upstream);
  const int64_t heads = queries.size(0), Tq = q.size(-2), Tk = k.size(-2);
  const int64_t group = keys.size(0) == 0 ? 1 : heads / keys.size(0);

  const auto zeros = [](at::IntArrayRef sizes) { return at::zeros(sizes, at::kDouble); };
  const at::Tensor output = zeros({heads, Tq, v.size(-1)}), weights = zeros({heads, Tq, Tk});
  const at::Tensor dscores = zeros({heads, Tq, Tk}), dq = zeros(queries.sizes());
  const at::Tensor dk = zeros(keys.sizes()), dv = zeros(values.sizes());
  // The first number of row i of a head, or of the head.
  const auto at_row = [](const at::Tensor& tensor, int64_t head, int64_t i = 0) {
    return tensor.data_ptr<double>() + (head * tensor.size(1) + i) * tensor.size(2);
  };
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t shared = head / group;  // the key/value head
    for (int64_t i = 0; i < Tq; ++i) {
      const Query row = {
          .q = at_row(queries, head, i),
          .k = at_row(keys, shared),
          .v = at_row(values, shared),
          .added = at_row(added, head, i),
          .d_output = at_row(d_outputs, head, i),
          .weights = at_row(weights, head, i),
          .output = at_row(output, head, i),
          .dscores = at_row(dscores, head, i),
          .dq = at_row(dq, head, i),
          .dk = at_row(dk, shared),
          .dv = at_row(dv, shared),
          .i = i,
          .Tq = Tq,
          .Tk = Tk,
          .d_k = q.size(-1),
          .d_v = v.size(-1),
          .scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1)))),
          .causal = options.causal};
      compute_output(row);
      add_gradients(row);
    }
  }
  return {output.view(output_shape), dq.view(q.sizes()), dk.view(k.sizes()), dv.view(v.sizes()),
          dscores.view(scores_shape)};
}

}  // namespace mini::detail
