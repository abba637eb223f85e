// SPDX-License-Identifier: MIT
// Attention and the measures of its weights. The tests compare this second copy of the formula with
// src/attention/composite_attention.cpp.
//
// Provides  attention, evenAttention, visibleEntries, slope, peak, entropy, measures,
//           saturatedShare, isSaturated.
// Needs     nothing.
//
// A matrix is a list of rows. q (Tq, d_k), k (Tk, d_k), v (Tk, d_v), scores and mask (Tq, Tk).
"use strict";

const transposed = (m) => m[0].map((_, j) => m.map((row) => row[j]));
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const product = (a, b) => a.map((row) => transposed(b).map((column) => dot(row, column)));

// The softmax of one row. The weights of a row without a visible key are 0.
function softmax(row) {
  const largest = Math.max(...row);
  if (largest === -Infinity) return row.map(() => 0);
  const powers = row.map((z) => Math.exp(z - largest));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / sum);
}

const masked = (row, mask) => row.map((z, j) => (mask[j] === -Infinity ? -Infinity : z + mask[j]));

// output = softmax(q k^T / divisor + mask) v. Also returns each step, and which keys are visible to
// each query. If `scores` is given, it replaces q k^T, and there is no output.
function attention({scores, q, k, v, mask}, divisor) {
  const steps = {scores: scores ?? product(q, transposed(k))};
  steps.scaled = steps.scores.map((row) => row.map((s) => s / divisor));
  steps.visible = steps.scores.map((row, i) => row.map((_, j) => mask?.[i][j] !== -Infinity));
  steps.weights = steps.scaled.map((row, i) => softmax(mask ? masked(row, mask[i]) : row));
  steps.output = v && product(steps.weights, v);
  return steps;
}

// The steps for equal weights on all visible keys of a row.
function evenAttention({visible}) {
  const weights = visible.map((row) => row.map((v) => (v ? 1 / row.filter(Boolean).length : 0)));
  return {visible, weights, scaled: visible.map((row) => row.map(() => 0))};
}

// The functions below follow include/mini/diagnostics.h.

const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
const slope = (w) => w * (1 - w);
const peak = (row) => Math.max(...row);
const entropy = (row) => row.reduce((sum, w) => sum - (w === 0 ? 0 : w * Math.log(w)), 0);

// The entries of all rows at visible keys.
const visibleEntries = (rows, visible) =>
  rows.flatMap((row, i) => row.filter((_, j) => visible[i][j]));

// The standard deviation. Dividing by the largest entry first keeps the squares from overflowing.
function spread(list) {
  const largest = Math.max(...list.map(Math.abs));
  if (list.length < 2 || largest === 0) return 0;
  const parts = list.map((s) => s / largest),
    average = mean(parts);
  const squares = parts.reduce((sum, s) => sum + (s - average) ** 2, 0);
  return largest * Math.sqrt(squares / (parts.length - 1));
}

// The lower median over the visible weights of rows with at least two visible keys, else NaN.
function medianSlope(weights, visible) {
  const slopes = weights.flatMap((row, i) => {
    const visibleWeights = row.filter((_, j) => visible[i][j]);
    return visibleWeights.length > 1 ? visibleWeights.map(slope) : [];
  });
  return slopes.sort((a, b) => a - b)[Math.floor((slopes.length - 1) / 2)] ?? NaN;
}

function measures({scaled, weights, visible}) {
  return {
    spread: spread(visibleEntries(scaled, visible)),
    peak: mean(weights.map(peak)),
    entropy: mean(weights.map(entropy)),
    slope: medianSlope(weights, visible),
  };
}

// The definition of apps/lesson/saturation.h: a median slope below this share of that of even weights.
const saturatedShare = 0.01;
const isSaturated = (of, even) => of.slope < saturatedShare * even.slope;
