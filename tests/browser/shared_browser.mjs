// SPDX-License-Identifier: MIT
// One browser for all tests of a file.
import assert from "node:assert/strict";
import {after, before, test} from "node:test";
import * as chromium from "./browser.mjs";

let browser;
before(async () => {
  browser = await chromium.launch();
});
after(() => browser.close());

/** Opens this file in the browser. */
export const open = (path, options) => chromium.open(browser, path, options);

/** Defines a test with this file open. It fails if the page reports an error or loads anything. */
export function onPage(name, path, options, body) {
  test(name, async () => {
    const page = await open(path, options);
    await body(page);
    assert.deepEqual(page.faults, []);
    await page.context().close();
  });
}
