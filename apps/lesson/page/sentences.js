// SPDX-License-Identifier: MIT
// The sentences that follow the slider.
//
// Provides  twoDecimals, slopeText, divisorText, effectOfDivision, saturation.
// Needs     common.js (fixed), attention.js (isSaturated, saturatedShare).
//
// raw, divided and even are the measures() without division, with it, and of even weights.
"use strict";

const twoDecimals = (number) => fixed(number, 2);
const slopeText = (number) =>
  number === 0 || number >= 0.01 || Number.isNaN(number)
    ? twoDecimals(number)
    : number < 0.001
      ? number.toExponential(1).replace("-", "−")
      : fixed(number, 4);
const divisorText = (divisor) => fixed(divisor, 2).replace(/\.?0+$/, "");

// "0.30 instead of 0.48"
const comparedText = (divided, raw, unit = "") =>
  `${divided}${unit}` + (divided === raw ? ", as without division" : ` instead of ${raw}`);

// How the division changes spread, peak and entropy.
function effectOfDivision({raw, divided, even}, divisor, headSize) {
  const share = (m) => (even.entropy > 0 ? m.entropy / even.entropy : 1);
  const percent = (m) => `${fixed(100 * share(m), 0)} %`;
  if (divisor === 1) {
    return (
      `Without division, the mean peak is ${twoDecimals(raw.peak)}. The mean entropy is ` +
      `${percent(raw)} of the entropy of even weights.`
    );
  }
  const compared = (name) => comparedText(twoDecimals(divided[name]), twoDecimals(raw[name]));
  const times = divisor / Math.sqrt(headSize);
  return (
    `Divided by ${divisorText(divisor)}, the scores have a spread of ${compared("spread")}. ` +
    `The mean peak is ${compared("peak")}. The mean entropy is ` +
    `${comparedText(percent(divided), percent(raw), " of the entropy of even weights")}.` +
    (times < 1.5
      ? ""
      : ` The divisor is ${fixed(times, 1)} times √${headSize}. ` +
        (share(divided) > 0.98
          ? "The weights are nearly even and hardly depend on the scores."
          : "The larger the divisor, the more even the weights, and the less they depend on the " +
            "scores."))
  );
}

// Which softmax is saturated, as saturation_text() in apps/lesson/lesson.cpp says it.
function saturation({raw, divided, even}, divisor) {
  if (Number.isNaN(even.slope))
    return "Each query sees at most one key, so no weight depends on the scores.";
  const rule =
    ` (Saturated: a median slope below ${slopeText(saturatedShare * even.slope)}, one hundredth ` +
    "of the slope of even weights.)";
  const byText = `Divided by ${divisorText(divisor)}`;
  const meaning = "most of its weights hardly change with the scores";
  const isRaw = isSaturated(raw, even),
    isDivided = isSaturated(divided, even);
  if (divisor === 1) {
    return isRaw
      ? `The softmax is saturated: ${meaning}. Increase the divisor until it is not.${rule}`
      : `The softmax is not saturated.${rule}`;
  }
  if (!isRaw && !isDivided)
    return `Neither softmax is saturated, without division or with it.${rule}`;
  if (!isRaw)
    return `Without division, the softmax is not saturated. ${byText}, it is: ${meaning}.${rule}`;
  return (
    `Without division, the softmax is saturated: ${meaning}. ` +
    `${byText}, it is ${isDivided ? "still" : "not"} saturated.${rule}`
  );
}
