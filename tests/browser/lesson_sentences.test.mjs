// SPDX-License-Identifier: MIT
// The sentences of the lesson's pages, which follow the divisor.
import assert from "node:assert/strict";
import {run} from "./browser.mjs";
import {lessonPage, sentence, type, verdict} from "./lesson_pages.mjs";
import {onPage} from "./shared_browser.mjs";

const comparison = lessonPage("comparison");
const trace = lessonPage("trace");
const wide = lessonPage("wide");

onPage("the verdict follows the divisor where a softmax saturates", wide, {}, async (page) => {
  assert.equal(
    await verdict(page),
    "Without division, the softmax is saturated: most of its weights hardly change with the " +
      "scores. Divided by 22.63, it is not saturated. (Saturated: a median slope below 0.0019, " +
      "one hundredth of the slope of even weights.)",
  );
  assert.match(
    run("compare_weights", "--head-size", "512"),
    /unscaled softmax is saturated: .*scaled softmax is not saturated\..* slope below 0\.0019/s,
  );
  assert.equal(await page.locator("#saturated-example").isVisible(), false);
  await type(page, 1);
  assert.match(
    await verdict(page),
    /^The softmax is saturated: .* Increase the divisor until it is not\./,
  );
  await type(page, 1.1);
  assert.match(await verdict(page), /Divided by 1\.1, it is still saturated\./);
  await type(page, 512);
  assert.match(
    await sentence(page),
    / The divisor is 22\.6 times √512\. The weights are nearly even and hardly depend on the/,
  );
});

onPage("without a saturated softmax, the page names an example", comparison, {}, async (page) => {
  assert.match(
    await verdict(page),
    /^Neither softmax is saturated, without division or with it\. /,
  );
  const example = page.locator("#saturated-example");
  assert.match(await example.innerText(), /compare_weights --head-size.512 --format.html/);
  assert.doesNotMatch(await sentence(page), /times √32/);
  await type(page, 1);
  assert.match(await verdict(page), /^The softmax is not saturated\. /);
  await type(page, 1.001);
  assert.match(
    await sentence(page),
    /spread of 1\.51, as without division\. .* 0\.48, as without division\./,
  );
});

onPage("large numbers are short", trace, {fragment: "#divisor=2&v.0.0.0=1e29"}, async (page) => {
  assert.match(await page.locator("#outputs td").first().textContent(), /^\d\.\d{3}e28$/);
  await page.evaluate('location.hash = "divisor=2&q.0.0.0=1e29"');
  await page.waitForFunction(() => /spread of 2\.2e28 /.test(document.body.textContent));
});

onPage(
  "the page says that some scores are not finite",
  trace,
  {fragment: "#divisor=2&q.0.0.0=1e308&k.0.0.0=1e308"},
  async (page) => {
    assert.match(
      await sentence(page),
      /^Some scores are not finite, so the weights cannot be compared\./,
    );
    assert.equal(await verdict(page), "");
  },
);
