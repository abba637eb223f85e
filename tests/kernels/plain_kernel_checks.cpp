// SPDX-License-Identifier: MIT
// Compares the kernels with formulas in float64, without LibTorch and Catch2, so that the program
// can be compiled for another processor and run under an emulator.
//
//   plain_kernel_checks NAME    fails if the kernels use another instruction set than NAME
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention_kernel.h"
#include "kernels/block_kernel.h"
#include "kernels/targets.h"

using namespace mini::kernels;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

int failures = 0;
int64_t checks = 0;

void fail(const std::string& where, double actual, double expected) {
  if (++failures <= 20) {
    std::printf("%s: expected %.9g, got %.9g\n", where.c_str(), expected, actual);
  }
}

void check_close(const std::string& where, double actual, double expected,
                 double relative_error = 2e-5, double absolute_error = 3e-5) {
  ++checks;
  // The comparison is false for NaN.
  if (!(std::abs(actual - expected) <= absolute_error + relative_error * std::abs(expected))) {
    fail(where, actual, expected);
  }
}

void check_equal(const std::string& where, double actual, double expected) {
  check_close(where, actual, expected, 0.0, 0.0);
}

std::mt19937 generator(7);

float normal() { return std::normal_distribution<float>()(generator); }
bool chance(double p) { return std::bernoulli_distribution(p)(generator); }

// A matrix whose rows have a margin of NaN. A kernel that uses the margin computes NaN; a kernel
// that overwrites the margin fails check_margin.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns)
      : rows_(rows),
        stride_(columns + 3),
        numbers_(static_cast<size_t>(rows * stride_ + kMargin + 1), kNaN) {}

  static Matrix random(int64_t rows, int64_t columns) {
    Matrix matrix(rows, columns);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) matrix(i, j) = normal();
    }
    return matrix;
  }

  float& operator()(int64_t i, int64_t j) { return *at(i, j); }
  float operator()(int64_t i, int64_t j) const { return *const_cast<Matrix*>(this)->at(i, j); }
  operator ConstRows() const { return {numbers_.data() + kMargin, stride_}; }
  operator Rows() { return {numbers_.data() + kMargin, stride_}; }

  void check_margin(const std::string& where) const {
    const int64_t columns = stride_ - 3;
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = columns; j < stride_; ++j) {
        ++checks;
        if (!std::isnan((*this)(i, j))) fail(where + ": margin", (*this)(i, j), kNaN);
      }
    }
  }

 private:
  static constexpr int64_t kMargin = 1;  // so that rows are not aligned

  float* at(int64_t i, int64_t j) {
    return &numbers_[static_cast<size_t>(kMargin + i * stride_ + j)];
  }

  int64_t rows_, stride_;
  std::vector<float> numbers_;
};

class ScratchMemory {
 public:
  explicit ScratchMemory(int64_t floats)
      : memory_(static_cast<float*>(
            ::operator new(static_cast<size_t>(floats + 16) * sizeof(float), kAlignment))) {
    std::fill_n(memory_, floats + 16, kNaN);
  }
  ~ScratchMemory() { ::operator delete(memory_, kAlignment); }
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;
  operator float*() { return memory_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  float* memory_;
};

// ---- Attention.

struct Size {
  int64_t Tq, Tk, d_k, d_v;
};

struct Options {
  std::string name;
  int64_t diagonal;
  Mask mask;
  float scale;
};

// Output and gradients of softmax(scale * q k^T + mask) v in float64.
struct Exact {
  std::vector<double> output, dq, dk, dv;
};

// What a key adds to its scaled score: -infinity hides it.
double added_to_score(const Options& options, int64_t i, int64_t j) {
  if (j > i + options.diagonal) return -kInfinity;
  const int64_t at = i * options.mask.row_stride + j * options.mask.key_stride;
  if (options.mask.added != nullptr) return options.mask.added[at];
  if (options.mask.visible != nullptr && !options.mask.visible[at]) return -kInfinity;
  return 0.0;
}

Exact exact_attention(const Size& size, const Options& options, const Matrix& q, const Matrix& k,
                      const Matrix& v, const Matrix& d_output) {
  const auto [Tq, Tk, d_k, d_v] = size;
  const auto zeros = [](int64_t n) { return std::vector<double>(static_cast<size_t>(n)); };
  Exact exact{zeros(Tq * d_v), zeros(Tq * d_k), zeros(Tk * d_k), zeros(Tk * d_v)};
  const double scale = options.scale;
  std::vector<double> weights = zeros(Tk), d_weights = zeros(Tk);
  for (int64_t i = 0; i < Tq; ++i) {
    double row_max = -kInfinity, sum = 0.0, delta = 0.0;
    for (int64_t j = 0; j < Tk; ++j) {
      double score = 0.0;
      for (int64_t c = 0; c < d_k; ++c) score += static_cast<double>(q(i, c)) * k(j, c);
      weights[j] = scale * score + added_to_score(options, i, j);
      row_max = std::max(row_max, weights[j]);
    }
    if (row_max == -kInfinity) continue;  // a row that sees no key is 0
    for (double& weight : weights) sum += weight = std::exp(weight - row_max);
    for (int64_t j = 0; j < Tk; ++j) {
      weights[j] /= sum;
      d_weights[j] = 0.0;
      for (int64_t c = 0; c < d_v; ++c) {
        exact.output[i * d_v + c] += weights[j] * v(j, c);
        exact.dv[j * d_v + c] += weights[j] * d_output(i, c);
        d_weights[j] += static_cast<double>(d_output(i, c)) * v(j, c);
      }
      delta += weights[j] * d_weights[j];
    }
    for (int64_t j = 0; j < Tk; ++j) {
      const double d_score = scale * weights[j] * (d_weights[j] - delta);
      for (int64_t c = 0; c < d_k; ++c) {
        exact.dq[i * d_k + c] += d_score * k(j, c);
        exact.dk[j * d_k + c] += d_score * q(i, c);
      }
    }
  }
  return exact;
}

// `times` is how often the kernel added the same gradient.
void check_matrix(const std::string& where, const Matrix& actual,
                  const std::vector<double>& expected, int64_t rows, int64_t columns,
                  double times = 1.0) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < columns; ++c) {
      check_close(where, actual(i, c), times * expected[i * columns + c]);
    }
  }
  actual.check_margin(where);
}

struct Statistics {
  explicit Statistics(int64_t rows)
      : row_max(static_cast<size_t>(rows), kNaN), log_sum(static_cast<size_t>(rows), kNaN) {}
  std::vector<float> row_max, log_sum;
};

void check_attention(const Size& size, const Options& options) {
  const int64_t Tq = size.Tq, Tk = size.Tk, d_k = size.d_k, d_v = size.d_v;
  const std::string where = "Tq " + std::to_string(Tq) + " Tk " + std::to_string(Tk) + " d_k " +
                            std::to_string(d_k) + " d_v " + std::to_string(d_v) + ", " +
                            options.name;
  const Matrix q = Matrix::random(Tq, d_k), k = Matrix::random(Tk, d_k),
               v = Matrix::random(Tk, d_v), d_output = Matrix::random(Tq, d_v);
  const Exact exact = exact_attention(size, options, q, k, v, d_output);
  const HeadInputs head{q, k, v, options.mask, Tq, Tk, d_k, d_v, options.scale, options.diagonal};

  Matrix output(Tq, d_v);
  Statistics statistics(Tq);
  const Forward forward_result{output, statistics.row_max.data(), statistics.log_sum.data()};
  {
    ScratchMemory scratch(forward_scratch(head));
    for (int64_t first = 0; first < Tq; first += kQueryBlock) {
      forward(head, forward_result, first, std::min(kQueryBlock, Tq - first), scratch);
    }
    check_matrix(where + ", forward", output, exact.output, Tq, d_v);
  }

  const auto gradients = [&](Matrix& dq, Matrix& dk, Matrix& dv) {
    Backward result;
    result.output = output;
    result.d_output = d_output;
    result.row_max = statistics.row_max.data();
    result.log_sum = statistics.log_sum.data();
    result.dq = dq;
    result.dk = dk;
    result.dv = dv;
    return result;
  };
  const auto check_gradients = [&](const std::string& function, const Matrix& dq, const Matrix& dk,
                                   const Matrix& dv, double times) {
    check_matrix(where + ", " + function + ", dq", dq, exact.dq, Tq, d_k);
    check_matrix(where + ", " + function + ", dk", dk, exact.dk, Tk, d_k, times);
    check_matrix(where + ", " + function + ", dv", dv, exact.dv, Tk, d_v, times);
  };

  // Two slices of keys for each of two query heads that share the keys and values.
  {
    Matrix dq(Tq, d_k), dk(Tk, d_k), dv(Tk, d_v);
    ScratchMemory scratch(backward_scratch(head));
    const int64_t slice = (Tk + 1) / 2;
    Backward result = gradients(dq, dk, dv);
    for (const bool second_head : {false, true}) {
      result.add_to_dk_dv = second_head;
      for (int64_t first = 0; first < Tk; first += slice) {
        result.add_to_dq = first > 0;
        backward(head, result, first, std::min(slice, Tk - first), scratch);
      }
    }
    check_gradients("backward", dq, dk, dv, 2.0);
  }

  if (Tq > kDecodeQueries) return;
  ScratchMemory scratch(decode_scratch(head));
  output = Matrix(Tq, d_v);
  statistics = Statistics(Tq);
  const Forward decode_result{output, statistics.row_max.data(), statistics.log_sum.data()};
  decode(head, decode_result, scratch);
  check_matrix(where + ", decode", output, exact.output, Tq, d_v);
  Matrix dq(Tq, d_k), dk(Tk, d_k), dv(Tk, d_v);
  decode_backward(head, gradients(dq, dk, dv), scratch);
  check_gradients("decode_backward", dq, dk, dv, 1.0);
}

void check_attention_options(const Size& size) {
  const auto [Tq, Tk, d_k, d_v] = size;
  const float scale = 1.0F / std::sqrt(static_cast<float>(d_k));
  // Row 0 of `visible` hides each key.
  std::vector<char> visible(static_cast<size_t>(Tq * Tk));
  std::vector<float> added(visible.size());
  for (size_t i = 0; i < visible.size(); ++i) {
    visible[i] = static_cast<int64_t>(i) >= Tk && chance(0.6);
    added[i] = chance(0.2) ? -kInfinity : normal();
  }
  static_assert(sizeof(bool) == sizeof(char));
  const Mask boolean{nullptr, reinterpret_cast<const bool*>(visible.data()), Tk, 1};
  const Mask floating{added.data(), nullptr, Tk, 1};
  const Mask padding{nullptr, boolean.visible + (Tq - 1) * Tk, 0, 1};
  const Mask transposed{added.data(), nullptr, 1, Tq};
  for (const Options& options : {Options{"plain", Tk, {}, scale},
                                 {"upper left", 0, {}, scale},
                                 {"lower right", Tk - Tq, {}, scale},
                                 {"boolean mask", Tk, boolean, scale},
                                 {"floating mask", Tk, floating, scale},
                                 {"transposed mask", Tk, transposed, scale},
                                 {"padding and causal", Tk - Tq, padding, scale},
                                 {"scale", Tk, {}, -1.5F * scale}}) {
    check_attention(size, options);
  }
}

// NaN in a hidden key does not affect a row; in a visible key it propagates.
void check_nan() {
  constexpr int64_t kRows = 70, kNaNKey = 40, kWidth = 24;
  const Matrix q = Matrix::random(kRows, kWidth), v = Matrix::random(kRows, kWidth);
  Matrix k = Matrix::random(kRows, kWidth);
  k(kNaNKey, 5) = kNaN;
  const HeadInputs head{q, k, v, {}, kRows, kRows, kWidth, kWidth, 0.2F, /*diagonal=*/0};
  ScratchMemory scratch(std::max(forward_scratch(head), decode_scratch(head)));
  Matrix output(kRows, kWidth);
  forward(head, {output}, 0, kRows, scratch);
  for (int64_t i = 0; i < kRows; ++i) {
    check_equal("NaN in a key, row " + std::to_string(i), std::isnan(output(i, 0)), i >= kNaNKey);
  }
}

// ---- 2^x, GELU and layer norm.

void check_exp2() {
  std::vector<float> x;
  for (float value = -125.5F; value <= 0.0F; value += 0.00813F) x.push_back(value);
  std::vector<float> y(x.size());
  mini::kernels::exp2(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    check_close("exp2", y[i], std::exp2(static_cast<double>(x[i])), 2e-7, 0.0);
  }
  const float special[] = {0.0F, -kInfinity, -1e30F, kNaN};
  float result[4];
  mini::kernels::exp2(special, 4, result);
  check_equal("exp2(0)", result[0], 1.0);
  check_equal("exp2(-infinity)", result[1], 0.0);
  check_equal("exp2(-1e30)", result[2], 0.0);
  check_equal("exp2(NaN) is NaN", std::isnan(result[3]), true);
}

void check_gelu() {
  std::vector<float> x, dy;
  for (float value = -9.0F; value <= 9.0F; value += 0.0137F) x.push_back(value);
  for (size_t i = 0; i < x.size(); ++i) dy.push_back(normal());
  const auto n = static_cast<int64_t>(x.size());
  std::vector<float> y(x.size()), dx(x.size());
  gelu(x.data(), n, y.data());
  gelu_backward(dy.data(), x.data(), n, dx.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i], cdf = 0.5 * std::erfc(-at * std::sqrt(0.5)),
                 density = std::exp(-0.5 * at * at) / std::sqrt(2.0 * std::acos(-1.0));
    check_close("gelu", y[i], at * cdf, 1e-6, 1e-6);
    check_close("gelu_backward", dx[i], dy[i] * (cdf + at * density), 1e-6, 2e-6);
  }
}

void check_layer_norm(int64_t rows, int64_t width) {
  const auto random = [](int64_t n) {
    std::vector<float> numbers(static_cast<size_t>(n));
    for (float& number : numbers) number = normal();
    return numbers;
  };
  const std::vector<float> x = random(rows * width), dy = random(rows * width),
                           weight = random(width), bias = random(width);
  std::vector<float> y(x.size()), dx(x.size()), dweight(weight.size()), dbias(weight.size()),
      mean(static_cast<size_t>(rows)), rstd(mean.size());
  const Norm norm{weight.data(), bias.data(), width, 1e-5F};
  layer_norm(norm, x.data(), rows, y.data(), mean.data(), rstd.data());
  layer_norm_backward(
      norm,
      {dy.data(), x.data(), mean.data(), rstd.data(), dx.data(), dweight.data(), dbias.data()},
      rows);

  const std::string where = "layer norm of width " + std::to_string(width);
  const auto count = static_cast<double>(width);
  std::vector<double> exact_dweight(weight.size()), exact_dbias(weight.size());
  for (int64_t row = 0; row < rows; ++row) {
    const float *xs = x.data() + row * width, *dys = dy.data() + row * width;
    double m = 0.0, variance = 0.0, mean_g = 0.0, mean_gn = 0.0;
    for (int64_t c = 0; c < width; ++c) m += xs[c] / count;
    for (int64_t c = 0; c < width; ++c) variance += (xs[c] - m) * (xs[c] - m) / count;
    const double r = 1.0 / std::sqrt(variance + norm.eps);
    for (int64_t c = 0; c < width; ++c) {
      const double normed = (xs[c] - m) * r, g = static_cast<double>(dys[c]) * weight[c];
      mean_g += g / count;
      mean_gn += g * normed / count;
      exact_dweight[c] += dys[c] * normed;
      exact_dbias[c] += dys[c];
      check_close(where + ", y", y[row * width + c], normed * weight[c] + bias[c]);
    }
    for (int64_t c = 0; c < width; ++c) {
      const double normed = (xs[c] - m) * r, g = static_cast<double>(dys[c]) * weight[c];
      check_close(where + ", dx", dx[row * width + c], r * (g - mean_g - normed * mean_gn));
    }
  }
  for (int64_t c = 0; c < width; ++c) {
    check_close(where + ", dweight", dweight[c], exact_dweight[c]);
    check_close(where + ", dbias", dbias[c], exact_dbias[c]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::printf("usage: plain_kernel_checks NAME_OF_THE_INSTRUCTION_SET\n");
    return 2;
  }
  if (target_name() != argv[1]) {
    std::printf("expected kernels for %s, got %s\n", argv[1], target_name().c_str());
    return 1;
  }
  // Sizes around the boundaries of blocks (64, 128, 256), panels and tiles.
  for (const Size& size : {Size{1, 1, 1, 1},
                           {1, 33, 40, 40},
                           {2, 300, 17, 5},
                           {4, 4, 32, 32},
                           {5, 3, 3, 7},
                           {7, 9, 8, 9},
                           {9, 7, 15, 31},
                           {16, 16, 64, 64},
                           {17, 15, 48, 65},
                           {31, 33, 1, 130},
                           {33, 31, 127, 2},
                           {63, 65, 31, 32},
                           {65, 63, 129, 16},
                           {129, 127, 32, 7},
                           {257, 300, 8, 16}}) {
    check_attention_options(size);
  }
  check_nan();
  check_exp2();
  check_gelu();
  for (const int64_t width : {1, 3, 4, 5, 31, 64, 129}) check_layer_norm(9, width);

  std::printf("%s: %lld comparisons, %d failures\n", target_name().c_str(),
              static_cast<long long>(checks), failures);
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
