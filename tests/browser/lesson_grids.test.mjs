// SPDX-License-Identifier: MIT
// The grids of the lesson's pages: colours, hidden keys, selection, many tokens.
import assert from "node:assert/strict";
import {isClear, runJson} from "./browser.mjs";
import {assertClose, cell, grid, lessonPage, sentence, told, type} from "./lesson_pages.mjs";
import {onPage} from "./shared_browser.mjs";

const comparison = lessonPage("comparison");
const causal = lessonPage("causal");
const trace = lessonPage("trace");
const several = lessonPage("several");
const dozen = lessonPage("dozen");
const large = lessonPage("large");

onPage("equal weights have equal colours in both grids", comparison, {}, async (page) => {
  const color = (which, row, column) =>
    cell(page, which, row, column).evaluate((td) => td.style.backgroundColor);
  await type(page, 1);
  assert.equal(await color("raw", 2, 3), "rgb(253, 231, 37)"); // of the largest weight, 0.52
  for (let column = 0; column < 4; ++column) {
    assert.equal(await color("divided", 1, column), await color("raw", 1, column));
  }
  await type(page, 32);
  assert.notEqual(await color("divided", 2, 3), await color("raw", 2, 3));
});

onPage("the cells of hidden keys have no colour and no value", causal, {}, async (page) => {
  for (const which of ["raw", "divided"]) {
    const hidden = cell(page, which, 0, 3);
    assert.equal(await hidden.textContent(), "");
    assert.equal(await hidden.getAttribute("aria-label"), "hidden");
    assert.equal(await hidden.evaluate((td) => td.style.backgroundColor), "");
    await hidden.hover();
    assert.match(await page.locator("#told").textContent(), /^Query 0, key 3: hidden\./);
    assert.equal(await cell(page, which, 3, 3).getAttribute("aria-label"), null);
  }
  assert.equal(await page.locator("#hidden-keys").isVisible(), true);
  const {scores_spread} = runJson("compare_weights", "--causal");
  assert.match(await sentence(page), new RegExp(`instead of ${scores_spread.toFixed(2)}\\. The`));
});

onPage("arrow keys move between cells, Tab between grids", comparison, {}, async (page) => {
  const focused = () =>
    page.evaluate(`(() => {
    const cell = document.activeElement, row = cell.closest("tr");
    return [cell.closest("table").getAttribute("aria-label"), row.rowIndex - 1, cell.cellIndex - 1];
  })()`);
  await page.getByRole("button", {name: "32", exact: true}).focus();
  await page.keyboard.press("Tab");
  assert.deepEqual(await focused(), ["Weights without division", 0, 0]);
  for (const key of ["ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "End", "ArrowUp"])
    await page.keyboard.press(key);
  assert.deepEqual(await focused(), ["Weights without division", 1, 3]);
  assert.match(await page.locator("#told").textContent(), /^Query 1, key 3: q·k = −0\.620302\n/);
  for (const which of ["raw", "divided"]) {
    assert.match(await cell(page, which, 1, 3).getAttribute("class"), /selected/);
  }
  await page.keyboard.press("Tab");
  assert.deepEqual(await focused(), ["Weights divided by 5.66", 1, 3]);
  for (const key of ["Home", "ArrowLeft", "ArrowUp", "ArrowUp"]) await page.keyboard.press(key);
  assert.deepEqual(await focused(), ["Weights divided by 5.66", 0, 0]);
  for (const [key, row, column] of [
    ["PageDown", 3, 0],
    ["ArrowRight", 3, 1],
    ["PageUp", 0, 1],
    ["Control+End", 3, 3],
    ["Control+Home", 0, 0],
  ]) {
    await page.keyboard.press(key);
    assert.deepEqual(await focused(), ["Weights divided by 5.66", row, column], key);
  }
  await page.keyboard.press("Escape");
  assert.equal(await page.locator(".selected").count(), 0);
  assert.equal(await page.locator("#hint").isVisible(), true);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate('document.activeElement.closest("table") === null'), true);
});

onPage("a cell under the mouse shows its numbers", comparison, {}, async (page) => {
  await cell(page, "raw", 3, 2).hover();
  const numbers = await told(page);
  const expected = {
    score: 1.602485,
    rawWeight: 0.497334,
    rawSlope: 0.249993,
    scaled: 0.283282,
    weight: 0.297662,
    slope: 0.209059,
  };
  for (const [name, number] of Object.entries(expected))
    assertClose([Number(numbers[name])], [number], 5e-6, name);
  assert.equal(await page.locator(".selected").count(), 2);
});

onPage(
  "NaN weights are red and counted",
  trace,
  {fragment: "#divisor=2&q.0.0.0=1e308&k.0.0.0=10"},
  async (page) => {
    assert.equal(await cell(page, "divided", 0, 1).textContent(), "NaN");
    const color = (row) => cell(page, "divided", row, 1).evaluate((td) => td.style.backgroundColor);
    assert.equal(await color(0), "rgb(214, 39, 40)");
    assert.notEqual(await color(1), "rgb(214, 39, 40)");
    assert.equal(await page.locator("#off-scale").innerText(), " 6 NaN");
    await page.getByRole("button", {name: "Undo all edits"}).click();
    assert.equal(await page.locator("#off-scale").isVisible(), false);
  },
);

onPage("a cell of a large grid shows the largest of its weights", large, {}, async (page) => {
  assert.equal(
    await page.locator("#dense-note").textContent(),
    "Rows are queries, columns are keys. Each cell shows the largest of 2 × 2 weights.",
  );
  assert.equal(await page.locator("tbody td[tabindex]").count(), 2 * 35 * 35);
  const expected = runJson("compare_weights", "--tokens", "70").scaled_weights;
  await cell(page, "divided", 3, 4).focus();
  const largest = Math.max(...[6, 7].flatMap((i) => [8, 9].map((j) => expected[i][j])));
  assertClose([Number((await told(page)).weight)], [largest], 1e-6, "the largest weight");
  assert.match(
    await cell(page, "divided", 3, 4).getAttribute("aria-label"),
    /^query [67], key [89]: 0\.\d{4}$/,
  );
});

for (const [tokens, path] of [
  [12, dozen],
  [24, several],
]) {
  onPage(`the grids of ${tokens} tokens have labels and measures`, path, {}, async (page) => {
    assert.equal(await grid(page, "raw").locator("thead th").count(), 1 + tokens + 2);
    assert.equal(await isClear(grid(page, "raw").locator("thead th").nth(tokens)), true);
    const {scaled_peaks, scaled_entropies} = runJson("compare_weights", "--tokens", String(tokens));
    for (const [i, measure] of [scaled_peaks, scaled_entropies].entries()) {
      const measured = cell(page, "divided", 5, tokens + i);
      assert.equal(await measured.textContent(), measure[5].toFixed(2));
      assert.equal(await isClear(measured), true);
    }
  });
}
