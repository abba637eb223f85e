// SPDX-License-Identifier: MIT
// The page of inspect_attention.
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {join} from "node:path";
import {test} from "node:test";
import {HtmlValidate} from "html-validate";
import {
  assertUsable,
  desktop,
  folder,
  isClear,
  phone,
  run,
  runJson,
  small,
  write,
} from "./browser.mjs";
import {onPage, open} from "./shared_browser.mjs";

/** Writes a safetensors file with q and k in float32, of irregular numbers up to `size`. */
function writeHeads(name, shape, size = 1.5) {
  const count = shape.reduce((a, b) => a * b);
  const header = JSON.stringify({
    q: {dtype: "F32", shape, data_offsets: [0, 4 * count]},
    k: {dtype: "F32", shape, data_offsets: [4 * count, 8 * count]},
  });
  const bytes = Buffer.alloc(8 + header.length + 8 * count);
  bytes.writeBigUInt64LE(BigInt(header.length), 0);
  bytes.write(header, 8);
  for (let i = 0; i < 2 * count; ++i)
    bytes.writeFloatLE(size * Math.sin(i * i * 0.7 + i), 8 + header.length + 4 * i);
  return write(name, bytes);
}

// Pages of a tiny model, of small and large scores, of many layers and of many tokens.
const text = write("text.txt", "to be or not to be, that is the question <b>\n".repeat(40));
const sizes = "--block-size 24 --n-layer 2 --n-head 3 --n-embd 24 --steps 2 --threads 1";
run("train_gpt", "--data", text, "--output", join(folder, "run"), ...sizes.split(" "));
const prompt = "to be,\nor not <b>";
const model = ["--model", join(folder, "run"), "--prompt", prompt];
const ofModel = write("model.html", run("inspect_attention", ...model, "--format", "html"));
const few = ["--tensors", writeHeads("few.safetensors", [2, 3, 6, 8])];
const ofFew = write("few.html", run("inspect_attention", ...few, "--format", "html"));
const calm = ["--tensors", writeHeads("calm.safetensors", [2, 3, 6, 8], 0.5)];
const ofCalm = write("calm.html", run("inspect_attention", ...calm, "--format", "html"));
const deep = ["--tensors", writeHeads("deep.safetensors", [12, 3, 6, 8])];
const ofDeep = write("deep.html", run("inspect_attention", ...deep, "--format", "html"));
const many = ["--tensors", writeHeads("many.safetensors", [1, 2, 300, 8]), "--causal"];
const ofMany = write("many.html", run("inspect_attention", ...many, "--format", "html"));
// 58 tokens: the labels of the rows are higher than the rows.
const sentence = ["--tensors", writeHeads("sentence.safetensors", [1, 2, 58, 8]), "--causal"];
const ofSentence = write(
  "sentence.html",
  run("inspect_attention", ...sentence, "--format", "html"),
);

const head = (page, layer, number) =>
  page.getByRole("button", {name: `Layer ${layer}, head ${number}:`});
const title = (page) => page.locator("#one-title").textContent();
const told = async (page) => (await page.locator("#told").textContent()).split("\n");
const without = (page) => page.getByRole("radio", {name: "without the division"});

for (const width of [320, 900, 1200])
  onPage(
    `each label is beside its row and above its column at ${width} px`,
    ofSentence,
    {viewport: {width, height: 900}},
    async (page) => {
      const grid = await page.locator("#enlarged").boundingBox();
      const centres = (axis) =>
        page.locator(`#${axis} span`).evaluateAll((labels) =>
          labels.map((label) => {
            const {x, y, width, height} = label.getBoundingClientRect();
            return {x: x + width / 2, y: y + height / 2};
          }),
        );
      const side = grid.height / 58;
      for (const [i, label] of (await centres("queries")).entries())
        assert.ok(Math.abs(label.y - (grid.y + (i + 0.5) * side)) < side / 2 + 1, `row ${i}`);
      for (const [j, label] of (await centres("keys")).entries())
        assert.ok(Math.abs(label.x - (grid.x + (j + 0.5) * side)) < side / 2 + 1, `column ${j}`);
    },
  );

onPage("a click enlarges a head and shows its measures", ofFew, {}, async (page) => {
  assert.equal(await page.locator(".row button").count(), 6);
  assert.equal(await title(page), "Layer 0, head 0, divided by √8 = 2.83");
  await head(page, 1, 2).click();
  assert.equal(await title(page), "Layer 1, head 2, divided by √8 = 2.83");
  assert.equal(await head(page, 1, 2).getAttribute("aria-pressed"), "true");
  assert.equal(await head(page, 0, 0).getAttribute("aria-pressed"), "false");
  const {scaled, unscaled} = runJson("inspect_attention", ...few).attention[5];
  const shown = await page
    .locator("#figures tbody tr")
    .evaluateAll((rows) => rows.map((row) => [...row.cells].slice(1).map((c) => c.textContent)));
  const texts = ({entropy, entropy_share, peak, distance}) => [
    entropy.toFixed(3),
    `${(100 * entropy_share).toFixed(0)} %`,
    peak.toFixed(3),
    distance.toFixed(2).replace("-", "−"),
  ];
  assert.deepEqual(
    shown,
    texts(scaled).map((text, i) => [text, texts(unscaled)[i]]),
  );
});

onPage("Enter enlarges a head, arrows move in it, Escape returns", ofFew, {}, async (page) => {
  await head(page, 0, 1).focus();
  await page.keyboard.press("Enter");
  assert.equal(await title(page), "Layer 0, head 1, divided by √8 = 2.83");
  assert.equal(await page.evaluate("document.activeElement.id"), "enlarged");
  for (const [key, place] of [
    ["ArrowRight", "Query 0, key 0"],
    ["ArrowRight", "Query 0, key 1"],
    ["ArrowDown", "Query 1, key 1"],
    ["End", "Query 1, key 5"],
    ["ArrowRight", "Query 1, key 5"],
    ["ArrowLeft", "Query 1, key 4"],
    ["ArrowUp", "Query 0, key 4"],
    ["ArrowUp", "Query 0, key 4"],
    ["Home", "Query 0, key 0"],
    ["PageDown", "Query 5, key 0"],
    ["PageUp", "Query 0, key 0"],
    ["Control+End", "Query 5, key 5"],
    ["Control+Home", "Query 0, key 0"],
  ]) {
    await page.keyboard.press(key);
    assert.equal((await told(page))[0], place, key);
  }
  await page.keyboard.press("Escape");
  const focused = () => page.evaluate("document.activeElement.getAttribute('aria-label')");
  assert.match(await focused(), /^Layer 0, head 1:/);
  await page.getByRole("button", {name: "All heads"}).click();
  assert.match(await focused(), /^Layer 0, head 1:/);
});

for (const viewport of [phone, desktop]) {
  onPage(
    `a click on a head of any layer brings it into view, ${viewport.width} wide`,
    ofDeep,
    {viewport},
    async (page) => {
      for (const layer of [11, 0, 5]) {
        await head(page, layer, 1).click();
        const {y, height} = await page.locator("#enlarged").boundingBox();
        assert.ok(
          y >= 40 && y + height <= viewport.height,
          `layer ${layer}: from ${y}, ${height} high`,
        );
      }
    },
  );
}

onPage("the switch removes the division in all grids", ofFew, {}, async (page) => {
  const pixels = () =>
    page.evaluate("[...document.querySelectorAll('canvas')].map((c) => c.toDataURL())");
  const divided = await pixels();
  const [, share] = (await head(page, 0, 0).textContent()).match(/^(\d+) %$/);
  await without(page).check();
  const raw = await pixels();
  assert.equal(divided.length, 7);
  divided.forEach((picture, i) => assert.notEqual(raw[i], picture, `canvas ${i}`));
  assert.equal(await title(page), "Layer 0, head 0, without the division");
  assert.equal(await page.evaluate("location.hash"), "#layer=0&head=0&division=none");
  const {unscaled, scaled} = runJson("inspect_attention", ...few).attention[0];
  assert.equal(share, (100 * scaled.entropy_share).toFixed(0));
  assert.equal(
    await head(page, 0, 0).textContent(),
    `${(100 * unscaled.entropy_share).toFixed(0)} %`,
  );
});

onPage(
  "the address contains the head and the division",
  ofFew,
  {fragment: "#layer=1&head=2&division=none"},
  async (page) => {
    assert.equal(await title(page), "Layer 1, head 2, without the division");
    assert.equal(await without(page).isChecked(), true);
    await page.getByRole("radio", {name: "divided by"}).check();
    await head(page, 0, 1).click();
    assert.equal(await page.evaluate("location.hash"), "#layer=0&head=1");
    await page.evaluate("location.hash = '#layer=7&head=x&division=none'");
    await page.waitForFunction(
      () =>
        document.getElementById("one-title").textContent ===
        "Layer 0, head 0, without the division",
    );
  },
);

onPage("a cell shows its tokens and both weights", ofModel, {}, async (page) => {
  assert.equal(await page.evaluate("data.views.length"), 6);
  const visible = prompt.replaceAll(" ", "␣").replace("\n", "⏎");
  assert.equal(await page.locator("#prompt").textContent(), visible);
  for (const axis of ["#queries", "#keys"]) {
    assert.equal(await page.locator(axis).textContent(), visible);
    const names = await page.locator(`${axis} span`).all();
    const grid = await page.locator("#enlarged").boundingBox();
    for (const [i, name] of names.entries()) {
      const box = await name.boundingBox();
      const [middle, start, length] =
        axis === "#keys"
          ? [box.x + box.width / 2, grid.x, grid.width]
          : [box.y + box.height / 2, grid.y, grid.height];
      const place = ((middle - start) / length) * names.length;
      assert.ok(Math.abs(place - i - 0.5) < 0.3, `${axis} ${i} is at ${place}`);
    }
  }
  await page.locator("#enlarged").hover({position: {x: 2, y: 2}});
  assert.deepEqual(await told(page), [
    "Query 0 ‘t’, key 0 ‘t’",
    "weight divided by √8 = 2.83: 1.0000",
    "without the division: 1.0000",
  ]);
  await page.locator("#enlarged").press("ArrowRight");
  assert.match((await told(page))[1], /: hidden$/);
  await page.locator("#enlarged").press("Control+Home");
  for (const key of [...Array(9).fill("ArrowDown"), ...Array(6).fill("ArrowRight")])
    await page.locator("#enlarged").press(key);
  assert.equal((await told(page))[0], "Query 9 ‘␣’, key 6 ‘⏎’");
  for (const [place, count] of [
    ["#prompt", 2],
    ["#queries", 1],
    ["#keys", 1],
  ])
    assert.equal(await page.locator(`${place} .query, ${place} .key`).count(), count);
  assert.equal(await page.locator("#prompt .query").textContent(), "␣");
  assert.equal(await page.locator("#prompt .key").textContent(), "⏎");
});

for (const [name, options, path, digits] of [
  ["a new model", model, ofModel, 2],
  ["small scores", calm, ofCalm, 1],
  ["wide scores", few, ofFew, 0],
]) {
  onPage(`shares have ${digits} decimals for ${name}`, path, {}, async (page) => {
    const {attention} = runJson("inspect_attention", ...options);
    for (const {layer, head: number, scaled} of attention) {
      assert.equal(
        await head(page, layer, number).textContent(),
        `${(100 * scaled.entropy_share).toFixed(digits)} %`,
      );
    }
  });
}

onPage("a table lists all heads and marks the most changed", ofFew, {}, async (page) => {
  const {attention} = runJson("inspect_attention", ...few);
  const share = (number) => `${(100 * number).toFixed(0)} %`;
  const rows = await page
    .locator("#all-figures tbody tr")
    .evaluateAll((all) => all.map((row) => [...row.cells].map((c) => c.textContent)));
  assert.deepEqual(
    rows,
    attention.map(({layer, head: number, scaled, unscaled}) => [
      `${layer}, ${number}`,
      ...[scaled, unscaled].map((f) => share(f.entropy_share)),
      ...[scaled, unscaled].map((f) => f.peak.toFixed(3)),
      ...[scaled, unscaled].map((f) => f.distance.toFixed(2).replace("-", "−")),
    ]),
  );
  const change = ({scaled, unscaled}) => Math.abs(scaled.entropy_share - unscaled.entropy_share);
  const most = attention.reduce((a, b) => (change(b) > change(a) ? b : a));
  assert.equal(
    await page.locator("#all-figures .most th").textContent(),
    `${most.layer}, ${most.head}`,
  );
  const text = await page.locator("#sentence").textContent();
  assert.ok(run("inspect_attention", ...few).endsWith(text), text);
  const first = "Averaged over the heads, the division by 2.83 changes the entropy from ";
  assert.ok(text.startsWith(first), text);
  const second = `\nHead ${most.head} of layer ${most.layer} changes most, from `;
  assert.ok(text.includes(second), text);
});

for (const viewport of [small, phone, desktop]) {
  onPage(
    `sticky bars cover neither a focused head nor the numbers, ${viewport.width} wide`,
    ofDeep,
    {viewport},
    async (page) => {
      for (const layer of [11, 6, 0]) {
        await head(page, layer, 1).focus();
        assert.equal(await isClear(head(page, layer, 1)), true, `layer ${layer}`);
      }
      await head(page, 5, 1).click();
      await page.keyboard.press("ArrowDown");
      assert.equal(await isClear(page.locator("#told")), true);
    },
  );
}

onPage("the cell that a key selects is in view", ofModel, {}, async (page) => {
  const enlarged = page.locator("#enlarged");
  await enlarged.evaluate((canvas) => canvas.focus({preventScroll: true}));
  for (const [key, row] of [
    ["Control+Home", 0],
    ["Control+End", prompt.length - 1],
    ["Control+Home", 0],
  ]) {
    await page.keyboard.press(key);
    const {y, height} = await enlarged.boundingBox();
    const bar = await page.locator("#controls").boundingBox();
    const told = await page.locator("#cell").boundingBox();
    const middle = y + ((row + 0.5) / prompt.length) * height;
    assert.ok(middle > bar.y + bar.height && middle < told.y, `${key}: ${middle}`);
  }
});

onPage(
  "a tap on a head keeps it in view",
  ofDeep,
  {viewport: phone, hasTouch: true, isMobile: true},
  async (page) => {
    assert.equal(await page.locator("#hint").innerText(), "Tap a cell to see its weight.");
    await head(page, 3, 1).tap();
    const {y, height} = await head(page, 3, 1).boundingBox();
    assert.ok(y + height > 0 && y < phone.height, `the head is at ${y}`);
  },
);

test("without scripts, the page says that it needs JavaScript", async () => {
  const page = await open(ofFew, {javaScriptEnabled: false});
  assert.match(await page.locator("body").innerText(), /needs JavaScript to draw the weights/);
  assert.equal(await page.locator("main").isVisible(), false);
  await page.context().close();
});

onPage("a cell of many tokens shows the largest of its weights exactly", ofMany, {}, async (page) => {
  assert.match(
    await page.locator("#cells-note").textContent(),
    /^Each cell shows the largest of up to 3 × 3 weights/,
  );
  assert.equal(await page.evaluate("document.querySelector('.row canvas').width"), 50);
  const [rows, small] = await page.evaluate(`[weightsOf(0, 1, "unscaled"),
    binned(weightsOf(0, 1, "unscaled"), 2)]`);
  assert.equal(rows.length, 100);
  assert.equal(rows[99].length, 100);
  small.forEach((row, i) =>
    row.forEach((weight, j) => {
      const of = [2 * i, 2 * i + 1].flatMap((r) => [rows[r][2 * j], rows[r][2 * j + 1]]);
      assert.equal(weight, Math.max(...of.filter((w) => w !== undefined)));
    }),
  );
  await page.locator("#enlarged").focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowDown");
  assert.equal((await told(page))[0], "Queries 3 to 5, keys 0 to 2");
});

for (const [name, path] of [
  ["a model", ofModel],
  ["many tokens", ofMany],
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
          await head(page, 0, 1).click();
          await assertUsable(page, viewport);
        },
      );
    }
  }
}

test("the page is valid HTML, before its scripts run and after", async () => {
  const validator = new HtmlValidate({extends: ["html-validate:standard", "html-validate:a11y"]});
  for (const path of [ofModel, ofFew]) {
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
