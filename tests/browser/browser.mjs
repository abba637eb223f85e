// SPDX-License-Identifier: MIT
// For tests and pictures: the output of the programs, and a browser that records errors of a page.
import assert from "node:assert/strict";
import {execFileSync} from "node:child_process";
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from "node:fs";
import {createRequire} from "node:module";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {pathToFileURL} from "node:url";
import {chromium} from "playwright-core";

/** Returns the output of a program. */
export const run = (app, ...options) =>
  execFileSync(join(process.env.MINI_APPS, app), options, {encoding: "utf8", maxBuffer: 1 << 26});

export const runJson = (app, ...options) => JSON.parse(run(app, ...options, "--format", "json"));

/** A temporary folder, removed when the process ends. */
export const folder = mkdtempSync(join(tmpdir(), "mini-browser-"));
process.on("exit", () => rmSync(folder, {recursive: true, force: true}));

export function write(name, content) {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

export const launch = () => chromium.launch({executablePath: process.env.MINI_CHROMIUM});

export const small = {width: 320, height: 568};
export const phone = {width: 375, height: 667};
export const desktop = {width: 1280, height: 800};

/**
 * Opens this file in a new page. `page.faults` lists errors, warnings in the console, and requests
 * for other files.
 */
export async function open(
  browser,
  path,
  {fragment = "", viewport = desktop, colorScheme = "light", ...options} = {},
) {
  const context = await browser.newContext({viewport, colorScheme, ...options});
  const page = await context.newPage();
  const url = pathToFileURL(path).href;
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(error.message));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) page.faults.push(message.text());
  });
  page.on("request", (request) => {
    if (request.url().split("#")[0] !== url && !request.url().startsWith("data:"))
      page.faults.push(request.url());
  });
  await page.goto(url + fragment);
  return page;
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Whether an element is in view and not covered. */
export const isClear = (locator) =>
  locator.evaluate((node) => {
    const {left, top, right, bottom} = node.getBoundingClientRect();
    const corners = [
      [left + 2, top + 2],
      [right - 2, bottom - 2],
    ];
    return corners.every(([x, y]) => node.contains(document.elementFromPoint(x, y)));
  });

/** Asserts that the page does not scroll sideways and that axe-core finds no serious fault. */
export async function assertUsable(page, viewport) {
  const width = await page.evaluate("document.documentElement.scrollWidth");
  assert.ok(width <= viewport.width, "the page scrolls sideways");
  await page.evaluate(axe);
  const {violations} = await page.evaluate("axe.run()");
  const serious = violations.filter(({impact}) => ["serious", "critical"].includes(impact));
  assert.deepEqual(
    serious.map(({id, nodes}) => [id, nodes.map(({html}) => html)]),
    [],
  );
}
