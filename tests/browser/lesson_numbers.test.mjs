// SPDX-License-Identifier: MIT
// The lesson's pages show the numbers of the library.
import assert from "node:assert/strict";
import {test} from "node:test";
import {run, runJson, write} from "./browser.mjs";
import {assertClose, lessonPage, readCells, type} from "./lesson_pages.mjs";
import {onPage, open} from "./shared_browser.mjs";

const comparison = lessonPage("comparison");
const causal = lessonPage("causal");
const trace = lessonPage("trace");

for (const [name, path, options] of [
  ["all keys", comparison, []],
  ["causal", causal, ["--causal"]],
]) {
  for (const divisor of [1, 2, 3.5, 5.66, 32]) {
    onPage(
      `compare_weights, ${name}: the numbers are the library's at divisor ${divisor}`,
      path,
      {},
      async (page) => {
        await type(page, divisor);
        const scale = divisor === 5.66 ? [] : ["--scale", String(1 / divisor)];
        const expected = runJson("compare_weights", ...options, ...scale);
        const {causal} = expected;
        const names = ["score", "scaled", "weight", "rawWeight", "slope"];
        const actual = await readCells(page, 4, causal, ...names);
        const visible = (matrix) =>
          matrix.flatMap((row, i) => (causal ? row.slice(0, i + 1) : row));
        const scores = visible(expected.scores);
        assertClose(actual.score, scores, 1e-6, "scores");
        assertClose(
          actual.scaled,
          scores.map((s) => s * expected.scale),
          1e-6,
          "scaled scores",
        );
        assertClose(actual.weight, visible(expected.scaled_weights), 1e-6, "weights");
        assertClose(
          actual.rawWeight,
          visible(expected.unscaled_weights),
          1e-6,
          "weights without division",
        );
        assertClose(
          actual.slope,
          visible(expected.scaled_weights).map((w) => w * (1 - w)),
          1e-6,
          "slopes",
        );

        const ofRows = await page.evaluate(
          "[shown.divided.weights.map(peak), shown.divided.weights.map(entropy)]",
        );
        assertClose(ofRows[0], expected.scaled_peaks, 1e-6, "peaks");
        assertClose(ofRows[1], expected.scaled_entropies, 1e-6, "entropies");
        const summary = await page.evaluate(
          '["raw", "divided", "even"].map((of) => measures(shown[of]))',
        );
        assertClose(
          summary.map((m) => m.slope),
          ["unscaled", "scaled", "even"].map((of) => expected[`${of}_median_slope`]),
          1e-6,
          "median slopes",
        );
        assertClose(
          summary.slice(0, 2).map((m) => m.entropy),
          [expected.unscaled_mean_entropy, expected.scaled_mean_entropy],
          1e-6,
          "mean entropies",
        );
        assertClose(
          summary.slice(0, 2).map((m) => m.spread),
          [expected.scores_spread, expected.scores_spread * expected.scale],
          1e-6,
          "spreads",
        );
      },
    );
  }
}

for (const divisor of [1, 1.5, 2, 3, 4]) {
  onPage(
    `trace_attention: every step is the library's at divisor ${divisor}`,
    trace,
    {},
    async (page) => {
      await type(page, divisor);
      const expected = runJson("trace_attention", "--scale", String(1 / divisor));
      const steps = await page
        .locator("#scores table, #outputs table")
        .evaluateAll((tables) =>
          tables.map((table) =>
            [...table.rows].map((row) =>
              [...row.cells].map((cell) => Number(cell.textContent.replace("−", "-"))),
            ),
          ),
        );
      for (const [i, name] of ["scores", "scaled_scores", "output"].entries()) {
        assertClose(steps[i].flat(), expected[name].flat(2), 5.1e-5, name); // shown with 4 decimals
      }
      const exact = await page.evaluate("shown.divided");
      for (const [name, key] of [
        ["scores", "scores"],
        ["scaled", "scaled_scores"],
        ["weights", "weights"],
        ["output", "output"],
      ]) {
        assertClose(exact[name].flat(), expected[key].flat(2), 1e-6, name);
      }
    },
  );
}

test("with masks and batches, the numbers are the library's", async () => {
  const input = write(
    "batches.json",
    JSON.stringify({
      q: [
        [
          [1, 0],
          [0, 1],
        ],
        [
          [2, 1],
          [1, 3],
        ],
      ],
      k: [
        [
          [1, 0],
          [0, 1],
        ],
        [
          [1, 1],
          [0, 2],
        ],
      ],
      v: [
        [[1], [3]],
        [[5], [7]],
      ],
      mask: [
        [
          [0.5, "-inf"],
          [0, -1],
        ],
        [
          ["-inf", "-inf"],
          [0, 0],
        ],
      ],
    }),
  );
  const path = write("batches.html", run("trace_attention", "--input", input, "--format", "html"));
  const expected = runJson("trace_attention", "--input", input);
  const page = await open(path);
  for (const batch of [0, 1]) {
    await page.getByLabel("Batch").selectOption(String(batch));
    const shown = await page.evaluate("shown.divided");
    assertClose(shown.weights.flat(), expected.weights[batch].flat(), 1e-9, "weights");
    assertClose(shown.output.flat(), expected.output[batch].flat(), 1e-9, "output");
  }
  await page.waitForFunction(() => location.hash.endsWith("&batch=1"));
  await page.reload();
  assert.equal(await page.getByLabel("Batch").inputValue(), "1");
  assert.deepEqual(page.faults, []);
  await page.context().close();
});
