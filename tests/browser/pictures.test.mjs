// SPDX-License-Identifier: MIT
// The SVG files of the fixtures and of the programs: well-formed XML, and all text legible.
import assert from "node:assert/strict";
import {execFileSync} from "node:child_process";
import {readdirSync, readFileSync} from "node:fs";
import {join} from "node:path";
import {test} from "node:test";
import {fileURLToPath} from "node:url";
import {run, write} from "./browser.mjs";
import {open} from "./shared_browser.mjs";

const fixtures = fileURLToPath(new URL("../fixtures", import.meta.url));
const pictures = readdirSync(fixtures)
  .filter((name) => name.endsWith(".svg"))
  .map((name) => [name, write(name, readFileSync(join(fixtures, name)))]);
for (const [app, ...options] of [
  ["compare_weights"],
  ["compare_weights", "--tokens", "40"],
  ["softmax_saturation"],
  ["softmax_saturation", "--scores", "1,2,3,4,5,6,7,8,9"],
  ["sweep_head_size", "--rows", "100"],
]) {
  const name = [app, ...options].join(" ");
  pictures.push([name, write(`${name}.svg`, run(app, ...options, "--format", "svg"))]);
}

test("the fixtures include SVG files", () => assert.ok(pictures.length > 8));

for (const [name, path] of pictures) {
  test(`${name} is well-formed XML`, () => {
    execFileSync(process.env.MINI_XMLLINT, ["--noout", "--nonet", path], {stdio: "pipe"});
  });

  test(`the texts of ${name} neither overlap nor are cut off`, async () => {
    const page = await open(path);
    assert.equal(await page.evaluate("document.documentElement.tagName"), "svg");
    const texts = await page.evaluate(`[...document.querySelectorAll("text")].map((text) => {
      const {left, top, right, bottom} = text.getBoundingClientRect();
      return {text: text.textContent, left, top: top + 3, right, bottom: bottom - 3};
    })`);
    const [width, height] = await page.evaluate(
      `["width", "height"].map((side) => document.documentElement[side].baseVal.value)`,
    );
    for (const [i, a] of texts.entries()) {
      assert.ok(
        a.left >= 0 && a.top >= 0 && a.right <= width && a.bottom <= height,
        `'${a.text}' is cut off`,
      );
      for (const b of texts.slice(0, i)) {
        const apart =
          a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
        assert.ok(apart, `'${a.text}' overlaps '${b.text}'`);
      }
    }
    assert.deepEqual(page.faults, []);
    await page.context().close();
  });
}
