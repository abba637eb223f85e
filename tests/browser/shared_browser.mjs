// SPDX-License-Identifier: MIT
// The browser that the tests of a file share.
import assert from "node:assert/strict";
import {after, before, test} from "node:test";
import * as chromium from "./browser.mjs";

let browser;
before(async () => {
  browser = await chromium.launch();
});
after(() => browser.close());

/** A page with this file in it, in that browser. */
export const open = (path, options) => chromium.open(browser, path, options);

/** A test of one open page, which must end without faults. */
export function onPage(name, path, options, body) {
  test(name, async () => {
    const page = await open(path, options);
    await body(page);
    assert.deepEqual(page.faults, []);
    await page.context().close();
  });
}
