// SPDX-License-Identifier: MIT
// The lesson's pages, and what the tests read from them.
import assert from "node:assert/strict";
import {run, write} from "./browser.mjs";

const commands = {
  comparison: ["compare_weights"],
  causal: ["compare_weights", "--causal"],
  trace: ["trace_attention"],
  wide: ["compare_weights", "--head-size", "512"],
  single: ["compare_weights", "--head-size", "1"],
  several: ["compare_weights", "--tokens", "24"],
  dozen: ["compare_weights", "--tokens", "12"],
  large: ["compare_weights", "--tokens", "70"],
};
const paths = {};

/** The path of the page that the named command writes. */
export const lessonPage = (name) =>
  (paths[name] ??= write(`${name}.html`, run(...commands[name], "--format", "html")));

export function assertClose(actual, expected, tolerance, what) {
  assert.equal(actual.length, expected.length, what);
  actual.forEach((number, i) =>
    assert.ok(
      Math.abs(number - expected[i]) <= tolerance,
      `${what}, number ${i}: got ${number}, expected ${expected[i]}`,
    ),
  );
}

export const grid = (page, which) => page.getByRole("grid").nth(which === "raw" ? 0 : 1);
export const cell = (page, which, row, column) =>
  grid(page, which).locator("tbody tr").nth(row).locator("td").nth(column);

export const divisorField = (page) => page.getByLabel("Divide every score by");
export const type = (page, divisor) => divisorField(page).fill(String(divisor));
export const sentence = (page) => page.locator("#sentence").textContent();
export const verdict = (page) => page.locator("#verdict").textContent();
export const isMarked = async (field) => (await field.getAttribute("aria-invalid")) === "true";
export const expectedText = (page) => page.locator("#expected").textContent();

export const waitForFragment = (page, fragment) =>
  page.waitForFunction((hash) => location.hash === hash, fragment);
export const waitForDivisor = (page, text) =>
  page.waitForFunction((value) => document.getElementById("divisor").value === value, text);

/** The numbers of the selected cell, by name. */
export async function told(page) {
  const text = (await page.locator("#told").textContent()).replaceAll("−", "-");
  const [, score, rawWeight, rawSlope, scaled, weight, slope] = text.match(
    /q·k = (?:.* = )?(\S+)\nWithout division: weight (\S+), slope (\S+)\nDivided by \S+: scaled score (\S+), weight (\S+), slope (\S+)$/,
  );
  return {score, rawWeight, rawSlope, scaled, weight, slope};
}

/** These numbers of each cell, or of each cell up to the diagonal. Selects the cells in turn. */
export async function readCells(page, size, causal, ...names) {
  const numbers = Object.fromEntries(names.map((name) => [name, []]));
  for (let row = 0; row < size; ++row) {
    for (let column = 0; column < (causal ? row + 1 : size); ++column) {
      await cell(page, "divided", row, column).focus();
      const all = await told(page);
      for (const name of names) numbers[name].push(Number(all[name]));
    }
  }
  return numbers;
}
