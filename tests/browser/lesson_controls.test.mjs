// SPDX-License-Identifier: MIT
// The inputs of the lesson's pages: slider, fields, address.
import assert from "node:assert/strict";
import {runJson, write} from "./browser.mjs";
import {
  assertClose,
  cell,
  divisorField,
  expectedText,
  isMarked,
  lessonPage,
  type,
  waitForDivisor,
  waitForFragment,
} from "./lesson_pages.mjs";
import {onPage} from "./shared_browser.mjs";

const comparison = lessonPage("comparison");
const trace = lessonPage("trace");
const single = lessonPage("single");

onPage("the slider sets the divisor, by mouse and keyboard", comparison, {}, async (page) => {
  const slider = page.getByRole("slider", {name: "Divisor"});
  const divisor = page.getByLabel("Divide every score by");
  assert.equal(await slider.getAttribute("aria-valuetext"), "5.66, the square root of 32");
  const weight = cell(page, "divided", 0, 0);
  assert.equal(await weight.textContent(), "0.29");

  await slider.focus();
  await page.keyboard.press("Home");
  assert.equal(await divisor.inputValue(), "1");
  assert.equal(await weight.textContent(), "0.43");
  await page.keyboard.press("ArrowRight");
  assert.equal(await divisor.inputValue(), "1.02");
  await page.keyboard.press("End");
  assert.equal(await divisor.inputValue(), "32");
  assert.equal(await weight.textContent(), "0.26");

  const box = await slider.boundingBox();
  await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2);
  assert.equal(await divisor.inputValue(), "5.66");
  const mark = await page.getByRole("button", {name: "√32 = 5.66"}).boundingBox();
  assert.ok(
    Math.abs(mark.x + mark.width / 2 - box.x - box.width / 2) < 2,
    "the mark is below the middle",
  );
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width - 2, box.y + box.height / 2, {steps: 5});
  await page.mouse.up();
  assert.equal(await divisor.inputValue(), "32");

  await page.getByRole("button", {name: "no division"}).click();
  assert.equal(await divisor.inputValue(), "1");
  assert.match(await page.locator("#sentence").textContent(), /^Without division/);
  await page.getByRole("button", {name: "√32 = 5.66"}).click();
  assert.equal(await divisor.inputValue(), "5.66");
  assert.match(
    await page.locator("#sentence").textContent(),
    /^Divided by 5\.66, the scores have a spread of 0\.27 instead of 1\.51\./,
  );
});

onPage("the address contains the divisor", comparison, {fragment: "#divisor=3"}, async (page) => {
  const divisor = page.getByLabel("Divide every score by");
  assert.equal(await divisor.inputValue(), "3");
  await type(page, 7.5);
  await waitForFragment(page, "#divisor=7.5");
  await page.reload();
  assert.equal(await divisor.inputValue(), "7.5");
  await page.getByRole("button", {name: "√32 = 5.66"}).click();
  await waitForFragment(page, "#divisor=5.66");
  await page.evaluate('location.hash = "divisor=2"');
  await waitForDivisor(page, "2");
  for (const [written, read] of [
    ["99", "32"],
    ["0.5", "1"],
    ["-3", "1"],
    ["x", "5.66"],
    ["", "5.66"],
    ["NaN", "5.66"],
  ]) {
    await page.evaluate((hash) => {
      location.hash = hash;
    }, `divisor=${written}`);
    await waitForDivisor(page, read);
  }
});

onPage("an invalid divisor is marked and ignored", comparison, {}, async (page) => {
  const divisor = divisorField(page);
  const inForce = () => cell(page, "divided", 0, 0).textContent();
  const invalid = ["", "-", "x", "0.5", "33", "-1", "1,5", "1/3", "0x10", "1e400", "Infinity"];
  for (const wrong of invalid) {
    await divisor.fill(wrong);
    assert.equal(await isMarked(divisor), true, wrong);
    assert.equal(
      await expectedText(page),
      `divisor: expected a number from 1 to 32, got “${wrong}”; the page uses 5.66.`,
    );
    assert.equal(await inForce(), "0.29", wrong);
  }
  await divisor.fill("");
  await divisor.pressSequentially("100"); // 1 and 10 are valid
  await divisor.blur();
  assert.equal(await divisor.inputValue(), "100");
  assert.equal(await inForce(), "0.29");
  await divisor.press("Escape");
  assert.equal(await divisor.inputValue(), "5.66");
  await divisor.fill("33");
  await page.getByRole("button", {name: "no division"}).click();
  assert.equal(await divisor.inputValue(), "1");
  assert.equal(await isMarked(divisor), false);
  assert.equal(await expectedText(page), "");
  for (const right of ["2.5e0", "+7", " 3 ", ".5e1"]) {
    await divisor.fill(right);
    assert.equal(await isMarked(divisor), false, right);
    assert.equal(await page.evaluate("state.divisor"), Number(right));
  }
});

onPage("an edited entry changes every step", trace, {}, async (page) => {
  const entry = page.getByLabel("q, row 0, column 1", {exact: true});
  await entry.fill("-2.5");
  const matrices = runJson("trace_attention");
  matrices.q[0][0][1] = -2.5;
  const input = write("edited.json", JSON.stringify({q: matrices.q, k: matrices.k, v: matrices.v}));
  const expected = runJson("trace_attention", "--input", input);
  const shown = await page.evaluate("shown.divided");
  for (const [name, key] of [
    ["scores", "scores"],
    ["scaled", "scaled_scores"],
    ["weights", "weights"],
    ["output", "output"],
  ]) {
    assertClose(shown[name].flat(), expected[key].flat(2), 1e-6, name);
  }
  await cell(page, "divided", 0, 1).hover();
  assert.match(
    await page.locator("#told").textContent(),
    /q·k = 1·0 \+ −2\.5·2 \+ 1·0 \+ 0·1 = −5\.000000\n/,
  );
  await waitForFragment(page, "#divisor=2&q.0.0.1=-2.5");
  await page.reload();
  assert.equal(await entry.inputValue(), "-2.5");

  const scores = async () => (await page.evaluate("shown.divided.scores")).flat();
  for (const wrong of ["", "-", "1,5", "1/3", "1e400", "2x"]) {
    await entry.fill(wrong);
    await entry.blur();
    assert.equal(await isMarked(entry), true, wrong);
    assert.match(
      await expectedText(page),
      /^q, row 0, column 1: expected a number .*; the page uses -2\.5\.$/,
    );
    assertClose(await scores(), expected.scores.flat(2), 1e-6, "scores");
  }
  await entry.fill("0"); // the original number is not an edit
  assert.equal(await page.getByRole("button", {name: "Undo all edits"}).isVisible(), false);
  await entry.fill("12345678.125");
  assert.equal(await entry.getAttribute("title"), "12345678.125");
  assert.ok(await entry.evaluate((field) => field.scrollWidth <= field.clientWidth), "cut off");
  await page.getByRole("button", {name: "Undo all edits"}).click();
  assert.equal(await entry.inputValue(), "0");
  assert.equal(await page.evaluate("document.activeElement.id"), "controls");
  await waitForFragment(page, "#divisor=2");
});

onPage("a head of size 1 has no slider", single, {}, async (page) => {
  assert.equal(await page.locator("#slide").isVisible(), false);
  assert.equal(await page.locator("#one").isVisible(), true);
  assert.equal(await divisorField(page).isDisabled(), true);
});
