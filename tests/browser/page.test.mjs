// SPDX-License-Identifier: MIT
// The page of compare_weights and trace_attention, used as a person would.
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {test} from "node:test";
import {HtmlValidate} from "html-validate";
import {
  assertUsable,
  desktop,
  isClear,
  phone,
  run,
  runJson,
  small,
  write,
} from "./browser.mjs";
import {onPage, open} from "./shared_browser.mjs";

const comparison = write("compare.html", run("compare_weights", "--format", "html"));
const causal = write("causal.html", run("compare_weights", "--causal", "--format", "html"));
const trace = write("trace.html", run("trace_attention", "--format", "html"));
const wide = write("wide.html", run("compare_weights", "--head-size", "512", "--format", "html"));
const single = write("single.html", run("compare_weights", "--head-size", "1", "--format", "html"));
const several = write("several.html", run("compare_weights", "--tokens", "24", "--format", "html"));
const dozen = write("dozen.html", run("compare_weights", "--tokens", "12", "--format", "html"));
const large = write("large.html", run("compare_weights", "--tokens", "70", "--format", "html"));

function assertClose(actual, expected, tolerance, what) {
  assert.equal(actual.length, expected.length, what);
  actual.forEach((number, i) =>
    assert.ok(
      Math.abs(number - expected[i]) <= tolerance,
      `${what}, number ${i}: got ${number}, expected ${expected[i]}`,
    ),
  );
}

const grid = (page, which) => page.getByRole("grid").nth(which === "raw" ? 0 : 1);
const cell = (page, which, row, column) =>
  grid(page, which).locator("tbody tr").nth(row).locator("td").nth(column);

const divisorField = (page) => page.getByLabel("Divide every score by");
const type = (page, divisor) => divisorField(page).fill(String(divisor));
const sentence = (page) => page.locator("#sentence").textContent();
const verdict = (page) => page.locator("#verdict").textContent();
const isMarked = async (field) => (await field.getAttribute("aria-invalid")) === "true";
const expectedText = (page) => page.locator("#expected").textContent();

const waitForFragment = (page, fragment) =>
  page.waitForFunction((hash) => location.hash === hash, fragment);
const waitForDivisor = (page, text) =>
  page.waitForFunction((value) => document.getElementById("divisor").value === value, text);

/** The numbers that the page tells of a cell, under their names. */
async function told(page) {
  const text = (await page.locator("#told").textContent()).replaceAll("−", "-");
  const [, score, rawWeight, rawSlope, scaled, weight, slope] = text.match(
    /q·k = (?:.* = )?(\S+)\nWithout division: weight (\S+), slope (\S+)\nDivided by \S+: scaled score (\S+), weight (\S+), slope (\S+)$/,
  );
  return {score, rawWeight, rawSlope, scaled, weight, slope};
}

/** The named numbers of the cells, or of those up to the diagonal, as read off cell by cell. */
async function readCells(page, size, causal, ...names) {
  const numbers = Object.fromEntries(names.map((name) => [name, []]));
  for (let row = 0; row < size; ++row) {
    for (let column = 0; column < (causal ? row + 1 : size); ++column) {
      await cell(page, "divided", row, column).focus();
      const all = await told(page);
      for (const name of names) numbers[name].push(Number(all[name]));
    }
  }
  return numbers;
}

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
        const told = (matrix) => matrix.flatMap((row, i) => (causal ? row.slice(0, i + 1) : row));
        const scores = told(expected.scores);
        assertClose(actual.score, scores, 1e-6, "scores");
        assertClose(
          actual.scaled,
          scores.map((s) => s * expected.scale),
          1e-6,
          "scaled scores",
        );
        assertClose(actual.weight, told(expected.scaled_weights), 1e-6, "weights");
        assertClose(
          actual.rawWeight,
          told(expected.unscaled_weights),
          1e-6,
          "weights without division",
        );
        assertClose(
          actual.slope,
          told(expected.scaled_weights).map((w) => w * (1 - w)),
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
        assertClose(steps[i].flat(), expected[name].flat(2), 5.1e-5, name); // as four decimals show
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

onPage("the slider moves the divisor, by mouse and by keyboard", comparison, {}, async (page) => {
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
    /^Divided by 5\.66, the scores spread by 0\.27 instead of 1\.51\./,
  );
});

onPage("the colours of both grids mean the same weights", comparison, {}, async (page) => {
  const color = (which, row, column) =>
    cell(page, which, row, column).evaluate((td) => td.style.backgroundColor);
  await type(page, 1);
  assert.equal(await color("raw", 2, 3), "rgb(253, 231, 37)"); // the largest weight, 0.52
  for (let column = 0; column < 4; ++column) {
    assert.equal(await color("divided", 1, column), await color("raw", 1, column));
  }
  await type(page, 32);
  assert.notEqual(await color("divided", 2, 3), await color("raw", 2, 3));
});

onPage("the divisor stands in the address", comparison, {fragment: "#divisor=3"}, async (page) => {
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

onPage("what is no divisor is marked, and changes nothing", comparison, {}, async (page) => {
  const divisor = divisorField(page);
  const inForce = () => cell(page, "divided", 0, 0).textContent();
  const none = ["", "-", "x", "0.5", "33", "-1", "1,5", "1/3", "0x10", "1e400", "Infinity"];
  for (const wrong of none) {
    await divisor.fill(wrong);
    assert.equal(await isMarked(divisor), true, wrong);
    assert.equal(
      await expectedText(page),
      `divisor: expected a number from 1 to 32, got “${wrong}”; it stays 5.66.`,
    );
    assert.equal(await inForce(), "0.29", wrong);
  }
  await divisor.fill("");
  await divisor.pressSequentially("100"); // 1 and 10 are divisors
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

onPage("keys that the mask hides are no small weights", causal, {}, async (page) => {
  for (const which of ["raw", "divided"]) {
    const hidden = cell(page, which, 0, 3);
    assert.equal(await hidden.textContent(), "");
    assert.equal(await hidden.getAttribute("aria-label"), "not seen");
    assert.equal(await hidden.evaluate((td) => td.style.backgroundColor), "");
    await hidden.hover();
    assert.match(await page.locator("#told").textContent(), /^Query 0, key 3: not seen\./);
    assert.equal(await cell(page, which, 3, 3).getAttribute("aria-label"), null);
  }
  assert.equal(await page.locator("#hidden-keys").isVisible(), true);
  const {scores_spread} = runJson("compare_weights", "--causal");
  assert.match(await sentence(page), new RegExp(`instead of ${scores_spread.toFixed(2)}\\. The`));
});

onPage("the page says whether a softmax sleeps, as the slider goes", wide, {}, async (page) => {
  assert.equal(
    await verdict(page),
    "Without division the softmax is asleep: most weights hardly follow their scores. It is " +
      "awake divided by 22.63. (Asleep: a median slope below 0.0019, a hundredth of that of even " +
      "weights.)",
  );
  assert.match(
    run("compare_weights", "--head-size", "512"),
    /that softmax sleeps, the scaled one not\..*a median slope below 0\.0019/s,
  );
  assert.equal(await page.locator("#sleeper").isVisible(), false);
  await type(page, 1);
  assert.match(await verdict(page), /asleep: .* Move the slider until it wakes\./);
  await type(page, 1.1);
  assert.match(await verdict(page), /It still is, divided by 1\.1\./);
  await type(page, 512);
  assert.match(
    await sentence(page),
    / The divisor is 22\.6 times √512: the weights are nearly even, and the head hardly listens/,
  );
});

onPage("where nothing sleeps the page points to what does", comparison, {}, async (page) => {
  assert.match(await verdict(page), /^Both softmaxes are awake, without division too: /);
  const sleeper = page.locator("#sleeper");
  assert.match(await sleeper.innerText(), /compare_weights --head-size.512 --format.html/);
  assert.doesNotMatch(await sentence(page), /times √32/);
  await type(page, 1);
  assert.match(await verdict(page), /^This softmax is awake: /);
  await type(page, 1.001);
  assert.match(await sentence(page), /scores spread by 1\.51, as without\. .* 0\.48, as without\./);
});

onPage("cells are reached by keyboard, one stop a grid", comparison, {}, async (page) => {
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

onPage("pointing at a cell tells its numbers", comparison, {}, async (page) => {
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

onPage("an edited entry moves every step", trace, {}, async (page) => {
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
      /^q, row 0, column 1: expected a number .*; it stays -2\.5\.$/,
    );
    assertClose(await scores(), expected.scores.flat(2), 1e-6, "scores");
  }
  await entry.fill("0"); // as it was: no edit
  assert.equal(await page.getByRole("button", {name: "Undo all edits"}).isVisible(), false);
  await entry.fill("12345678.125");
  assert.equal(await entry.getAttribute("title"), "12345678.125");
  assert.ok(await entry.evaluate((field) => field.scrollWidth <= field.clientWidth), "cut off");
  await page.getByRole("button", {name: "Undo all edits"}).click();
  assert.equal(await entry.inputValue(), "0");
  assert.equal(await page.evaluate("document.activeElement.id"), "controls");
  await waitForFragment(page, "#divisor=2");
});

onPage("large numbers stay short", trace, {fragment: "#divisor=2&v.0.0.0=1e29"}, async (page) => {
  assert.match(await page.locator("#outputs td").first().textContent(), /^\d\.\d{3}e28$/);
  await page.evaluate('location.hash = "divisor=2&q.0.0.0=1e29"');
  await page.waitForFunction(() => /spread by 2\.2e28 /.test(document.body.textContent));
});

onPage(
  "scores that are not finite are said to be so",
  trace,
  {fragment: "#divisor=2&q.0.0.0=1e308&k.0.0.0=1e308"},
  async (page) => {
    assert.match(await sentence(page), /^Not all scores are finite numbers, so there is nothing/);
    assert.equal(await verdict(page), "");
  },
);

onPage(
  "weights that are no numbers are red, and counted",
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

test("masks and batches are the library's", async () => {
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
    await page.getByLabel("in batch").selectOption(String(batch));
    const shown = await page.evaluate("shown.divided");
    assertClose(shown.weights.flat(), expected.weights[batch].flat(), 1e-9, "weights");
    assertClose(shown.output.flat(), expected.output[batch].flat(), 1e-9, "output");
  }
  await page.waitForFunction(() => location.hash.endsWith("&batch=1"));
  await page.reload();
  assert.equal(await page.getByLabel("in batch").inputValue(), "1");
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

onPage("many tokens are binned, and the page says so", large, {}, async (page) => {
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
  onPage(`${tokens} tokens keep their labels and measures`, path, {}, async (page) => {
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

onPage("a head of size 1 has nothing to slide", single, {}, async (page) => {
  assert.equal(await page.locator("#slide").isVisible(), false);
  assert.equal(await page.locator("#one").isVisible(), true);
  assert.equal(await divisorField(page).isDisabled(), true);
});

onPage("a small screen covers and cuts nothing", comparison, {viewport: small}, async (page) => {
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
    assert.equal(await isClear(page.locator("#told")), true, "what it tells is in view");
  }
});

onPage(
  "a screen that is touched hears of no arrow keys",
  comparison,
  {viewport: phone, hasTouch: true, isMobile: true},
  async (page) => {
    assert.equal(await page.locator("#hint").innerText(), "Tap a cell to see its numbers.");
  },
);

test("without scripts the pages say what they need", async () => {
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
        `${name} on a ${size}, ${colorScheme}: no serious fault, nothing cut off`,
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

test("the page is valid HTML, before its script runs and after", async () => {
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
