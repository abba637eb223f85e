// SPDX-License-Identifier: MIT
// The formula, the second copy of the one in src/attention.cpp and tested against it, and what can
// be read off its weights.
"use strict";

const transposed = (m) => m[0].map((_, j) => m.map((row) => row[j]));
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const product = (a, b) => a.map((row) => transposed(b).map((column) => dot(row, column)));

// Of one row. A row that sees nothing has weights of 0.
function softmax(row) {
  const largest = Math.max(...row);
  if (largest === -Infinity) return row.map(() => 0);
  const powers = row.map((z) => Math.exp(z - largest));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / sum);
}

const masked = (row, mask) => row.map((z, j) => (mask[j] === -Infinity ? -Infinity : z + mask[j]));

// output = softmax(q k^T / divisor + mask) v, and which keys each query has seen
function attention({scores, q, k, v, mask}, divisor) {
  const steps = {scores: scores ?? product(q, transposed(k))};
  steps.scaled = steps.scores.map((row) => row.map((s) => s / divisor));
  steps.seen = steps.scores.map((row, i) => row.map((_, j) => mask?.[i][j] !== -Infinity));
  steps.weights = steps.scaled.map((row, i) => softmax(mask ? masked(row, mask[i]) : row));
  steps.output = v && product(steps.weights, v);
  return steps;
}

// The same where all keys that a query sees weigh the same.
function evenAttention({seen}) {
  const weights = seen.map((row) => row.map((s) => (s ? 1 / row.filter(Boolean).length : 0)));
  return {seen, weights, scaled: seen.map((row) => row.map(() => 0))};
}

// --- include/mini/diagnostics.h -----------------------------------------------------------------

const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
const slope = (w) => w * (1 - w);
const peak = (row) => Math.max(...row);
const entropy = (row) => row.reduce((sum, w) => sum - (w === 0 ? 0 : w * Math.log(w)), 0);

// The entries of all rows at places that are seen.
const visible = (rows, seen) => rows.flatMap((row, i) => row.filter((_, j) => seen[i][j]));

// The standard deviation. Of parts of the largest, whose squares are never too large.
function spread(list) {
  const largest = Math.max(...list.map(Math.abs));
  if (list.length < 2 || largest === 0) return 0;
  const parts = list.map((s) => s / largest),
    average = mean(parts);
  const squares = parts.reduce((sum, s) => sum + (s - average) ** 2, 0);
  return largest * Math.sqrt(squares / (parts.length - 1));
}

// Of the weights that have a choice: visible ones, in rows that see at least two keys.
function medianSlope(weights, seen) {
  const slopes = weights.flatMap((row, i) => {
    const ofRow = row.filter((_, j) => seen[i][j]);
    return ofRow.length > 1 ? ofRow.map(slope) : [];
  });
  return slopes.sort((a, b) => a - b)[Math.floor((slopes.length - 1) / 2)] ?? NaN;
}

function measures({scaled, weights, seen}) {
  return {
    spread: spread(visible(scaled, seen)),
    peak: mean(weights.map(peak)),
    entropy: mean(weights.map(entropy)),
    slope: medianSlope(weights, seen),
  };
}
