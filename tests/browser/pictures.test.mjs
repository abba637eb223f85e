// SPDX-License-Identifier: MIT
// Every SVG, those held as fixtures and those of the apps: well-formed, and drawn without loss.
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

test("there are fixtures", () => assert.ok(pictures.length > 8));

for (const [name, path] of pictures) {
  test(`${name} is well-formed XML`, () => {
    execFileSync(process.env.MINI_XMLLINT, ["--noout", "--nonet", path], {stdio: "pipe"});
  });

  test(`${name} shows all its text, none upon other`, async () => {
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
        assert.ok(apart, `'${a.text}' lies upon '${b.text}'`);
      }
    }
    assert.deepEqual(page.faults, []);
    await page.context().close();
  });
}
