// SPDX-License-Identifier: MIT
// What a transformer block computes between its matrix products: GELU and layer norm. As in
// attention_kernel.h, arguments are plain numbers and pointers, and the functions do not allocate,
// do not throw and keep no state.
#pragma once

#include <cstdint>

namespace mini::kernels {

/// y[i] = x[i] Phi(x[i]), where Phi is the distribution function of N(0, 1).
void gelu(const float* x, int64_t n, float* y);

/// dx[i] = dy[i] (Phi(x[i]) + x[i] phi(x[i])), where phi is the density of N(0, 1).
void gelu_backward(const float* dy, const float* x, int64_t n, float* dx);

/// y = (x - mean) rstd weight + bias for each row of `width` contiguous numbers, where mean and
/// variance are those of the row and rstd = 1 / sqrt(variance + eps).
struct Norm {
  const float* weight = nullptr;  ///< (width)
  const float* bias = nullptr;    ///< (width), or null for 0
  int64_t width = 0;
  float eps = 0.0F;
};

/// x, y (rows, width); mean, rstd (rows).
void layer_norm(const Norm& norm, const float* x, int64_t rows, float* y, float* mean, float* rstd);

/// What the backward pass reads and writes. dweight and dbias are sums over all rows.
struct NormGradients {
  const float* dy;           ///< (rows, width)
  const float* x;            ///< (rows, width)
  const float *mean, *rstd;  ///< (rows)
  float* dx;                 ///< (rows, width)
  float *dweight, *dbias;    ///< (width)
};
void layer_norm_backward(const Norm& norm, const NormGradients& gradients, int64_t rows);

}  // namespace mini::kernels
