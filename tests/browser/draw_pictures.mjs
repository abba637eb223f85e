// SPDX-License-Identifier: MIT
// Draws the pictures of the docs:  node draw_pictures.mjs FOLDER
import {execFileSync} from "node:child_process";
import {mkdirSync, writeFileSync} from "node:fs";
import {join} from "node:path";
import {fileURLToPath} from "node:url";
import {folder, launch, open, run, write} from "./browser.mjs";

const target = process.argv[2];
mkdirSync(target, {recursive: true});
writeFileSync(join(target, "sweep_head_size.svg"), run("sweep_head_size", "--format", "svg"));

const browser = await launch();

// The output in a terminal, which script(1) provides, with its colours as HTML.
const command = `stty cols 80; ${join(process.env.MINI_APPS, "compare_weights")}`;
const text = execFileSync("script", ["-qec", command, "/dev/null"], {
  encoding: "utf8",
  env: {...process.env, COLORTERM: "truecolor", NO_COLOR: ""},
});
const html = text
  .replaceAll("\r", "")
  .replaceAll("&", "&amp;")
  .replaceAll("<", "&lt;")
  .replaceAll(
    /\x1b\[48;2;(\d+);(\d+);(\d+);38;2;(\d+);(\d+);(\d+)m/g,
    '<span style="background: rgb($1,$2,$3); color: rgb($4,$5,$6)">',
  )
  .replaceAll("\x1b[0m", "</span>");
const terminal = await open(
  browser,
  write(
    "terminal.html",
    `<!DOCTYPE html><meta charset="utf-8">
<pre style="display: inline-block; margin: 0; padding: 16px; color: #e6edf3; background: #14181d; font: 14px/1.25 monospace">
$ compare_weights
${html}</pre>`,
  ),
);
await terminal.locator("pre").screenshot({path: join(target, "compare_weights.png")});

const page = await open(
  browser,
  write("weights.html", run("compare_weights", "--format", "html")),
  {viewport: {width: 900, height: 780}},
);
await page.getByRole("grid").nth(1).locator("tbody tr").nth(3).locator("td").nth(2).hover();
await page.screenshot({path: join(target, "page.png")});

// The heads of a GPT trained on the README, for a prompt from its first paragraph.
const readme = fileURLToPath(new URL("../../README.md", import.meta.url));
const trained = join(folder, "run");
run(
  ...["train_gpt", "--data", readme, "--output", trained],
  ...["--batch-size", "12", "--steps", "400", "--threads", "1"],
);
const heads = await open(
  browser,
  write(
    "heads.html",
    run(
      ...["inspect_attention", "--model", trained, "--format", "html"],
      ...["--prompt", "A fused CPU kernel computes the same output faster."],
    ),
  ),
  {viewport: {width: 900, height: 1100}},
);
await heads.screenshot({path: join(target, "heads.png")});
await browser.close();
