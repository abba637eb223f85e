// SPDX-License-Identifier: MIT
// The lesson's pages on small and large screens, without scripts, as HTML.
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {test} from "node:test";
import {HtmlValidate} from "html-validate";
import {assertUsable, desktop, isClear, phone, small} from "./browser.mjs";
import {cell, grid, lessonPage} from "./lesson_pages.mjs";
import {onPage, open} from "./shared_browser.mjs";

const comparison = lessonPage("comparison");
const causal = lessonPage("causal");
const trace = lessonPage("trace");
const several = lessonPage("several");
const large = lessonPage("large");

onPage("a small screen hides no part of the page", comparison, {viewport: small}, async (page) => {
  for (const button of await page.locator(".ends button").all())
    assert.equal(await isClear(button), true, await button.textContent());
  const {x, width} = await grid(page, "raw").boundingBox();
  assert.ok(x + width <= small.width, `the grid ends at ${x + width}`);
  await cell(page, "divided", 0, 0).focus();
  for (const [which, row, key] of [
    ["divided", 1, "ArrowDown"],
    ["divided", 2, "ArrowDown"],
    ["divided", 3, "ArrowDown"],
    ["raw", 3, "Shift+Tab"],
    ["raw", 2, "ArrowUp"],
    ["raw", 1, "ArrowUp"],
    ["raw", 0, "ArrowUp"],
  ]) {
    await page.keyboard.press(key);
    assert.equal(await isClear(cell(page, which, row, 0)), true, `${which}, row ${row}`);
    assert.equal(await isClear(page.locator("#told")), true, "the numbers of the cell are in view");
  }
});

onPage(
  "a touch screen gets a hint without arrow keys",
  comparison,
  {viewport: phone, hasTouch: true, isMobile: true},
  async (page) => {
    assert.equal(await page.locator("#hint").innerText(), "Tap a cell to see its numbers.");
  },
);

test("without scripts, the pages say that they need JavaScript", async () => {
  for (const [path, title] of [
    [comparison, "Attention weights, without and with the division"],
    [trace, "Attention, step by step"],
  ]) {
    const page = await open(path, {javaScriptEnabled: false});
    assert.match(await page.locator("body").innerText(), /needs JavaScript/);
    assert.equal(await page.locator("main").isVisible(), false);
    assert.equal(await page.title(), title);
    assert.equal(await page.locator("h1").innerText(), title);
    await page.context().close();
  }
});

for (const [name, path] of [
  ["compare_weights", comparison],
  ["causal", causal],
  ["trace_attention", trace],
  ["24 tokens", several],
  ["many tokens", large],
]) {
  for (const [size, viewport] of [
    ["small screen", small],
    ["phone", phone],
    ["desktop", desktop],
  ]) {
    for (const colorScheme of ["light", "dark"]) {
      onPage(
        `${name} on a ${size}, ${colorScheme}: accessible, and nothing is cut off`,
        path,
        {viewport, colorScheme},
        async (page) => {
          await cell(page, "divided", 0, 1).focus();
          await assertUsable(page, viewport);
        },
      );
    }
  }
}

test("the pages are valid HTML, before their scripts run and after", async () => {
  const validator = new HtmlValidate({extends: ["html-validate:standard", "html-validate:a11y"]});
  for (const path of [comparison, trace, several, large]) {
    const page = await open(path);
    for (const html of [readFileSync(path, "utf8"), await page.content()]) {
      const {results} = await validator.validateString(html);
      assert.deepEqual(
        results.flatMap(({messages}) =>
          messages.map((m) => `${m.line}: ${m.ruleId}: ${m.message}`),
        ),
        [],
      );
    }
    await page.context().close();
  }
});
