// SPDX-License-Identifier: MIT
// Attention weights that follow a divisor, and perhaps the entries of q, k and v.
"use strict";

// --- the state: a divisor, a batch, and edits of q, k and v; it stands in the address ----------

const most = data.head_size;
const root = Math.sqrt(most);
const names = ["q", "k", "v"].filter((name) => data[name]);
const batches = (data.scores ?? data.q).length;
const state = {divisor: 1, batch: 0, edits: new Map()}; // edits: "q.batch.row.column" -> number

const isRoot = () => Math.abs(state.divisor - root) < 0.005;

// A divisor as the address writes it, or the root that this stands for.
function setDivisor(divisor) {
  state.divisor = Math.min(Math.max(divisor, 1), most);
  if (isRoot()) state.divisor = root;
}

// The matrices of the batch that is shown.
function matrices() {
  const shown = {};
  for (const name of ["scores", "mask", ...names]) {
    shown[name] = data[name] && numbers(data[name][state.batch]);
  }
  for (const [place, number] of state.edits) {
    const [name, batch, row, column] = place.split(".");
    if (Number(batch) === state.batch) shown[name][row][column] = number;
  }
  return shown;
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  setDivisor(Number(given.get("divisor") || data.divisor) || data.divisor);
  const batch = Number(given.get("batch"));
  state.batch = Number.isInteger(batch) && batch >= 0 && batch < batches ? batch : 0;
  state.edits = new Map();
  for (const [place, text] of given) {
    const [name, ...indices] = place.split(".");
    const known =
      names.includes(name) &&
      indices.length === 3 &&
      indices.reduce((list, i) => list?.[i], data[name]) !== undefined;
    if (known && Number.isFinite(parse(text))) state.edits.set(place, parse(text));
  }
}

let writing; // a timer, since browsers allow a page few changes a second

function writeAddress() {
  clearTimeout(writing);
  writing = setTimeout(() => {
    const address = new URLSearchParams({divisor: String(Number(state.divisor.toFixed(2)))});
    if (state.batch > 0) address.set("batch", state.batch);
    for (const [place, number] of state.edits) address.set(place, number);
    history.replaceState(null, "", `#${address}`);
  }, 200);
}

// --- what is on the page ------------------------------------------------------------------------

// A plain table of numbers.
function makeTable(parent, caption) {
  const {figcaption, table} = addFigure(parent, caption);
  return (matrix, title = caption) => {
    figcaption.textContent = title;
    table.replaceChildren();
    for (const numbersOfRow of matrix) {
      const row = add(table, "tr");
      for (const number of numbersOfRow) add(row, "td", {textContent: fixed(number, 4)});
    }
  };
}

// A table of fields. Returns what shows the matrix in them.
function makeFields(name) {
  const {table} = addFigure(element("matrices"), name);
  const fields = data[name][0].map((numbersOfRow, i) => {
    const row = add(table, "tr");
    return numbersOfRow.map((_, j) => {
      const label = `${name}, row ${i}, column ${j}`;
      const input = add(add(row, "td"), "input", {ariaLabel: label});
      return numberField(input, {
        name: label,
        take: (number) => change(() => edit(name, i, j, number)),
      });
    });
  });
  return {
    rows: [...table.rows],
    show: (matrix, anew) =>
      fields.forEach((row, i) => row.forEach((field, j) => field.show(matrix[i][j], anew))),
  };
}

function edit(name, i, j, number) {
  const place = `${name}.${state.batch}.${i}.${j}`;
  if (Object.is(number, numbers(data[name][state.batch][i][j]))) state.edits.delete(place);
  else state.edits.set(place, number);
}

const grids = {raw: makeGrid("Weights without division"), divided: makeGrid("")};
const fields = Object.fromEntries(names.map((name) => [name, makeFields(name)]));
const divisorField = numberField(element("divisor"), {
  name: "divisor",
  low: 1,
  high: most,
  text: (divisor) => String(Number(divisor.toFixed(2))),
  take: (divisor) => change(() => setDivisor(divisor)),
});
const tables = names.length > 0 && {
  scores: makeTable(element("scores"), "scores = q kᵀ"),
  scaled: makeTable(element("scores"), ""),
  output: makeTable(element("outputs"), ""),
};
const summary = {};
{
  const head = add(add(element("summary"), "thead"), "tr");
  const body = add(element("summary"), "tbody");
  add(head, "td");
  add(head, "th", {scope: "col", textContent: "without division"});
  summary.divided = add(head, "th", {scope: "col"});
  add(head, "th", {scope: "col", textContent: "all keys alike"});
  for (const [name, text] of Object.entries({
    spread: "spread of the scores",
    peak: "peak, mean over rows",
    entropy: "entropy in nats, mean over rows",
    slope: "slope, median over weights",
  })) {
    const row = add(body, "tr");
    add(row, "th", {scope: "row", textContent: text});
    summary[name] = [add(row, "td"), add(row, "td"), add(row, "td")];
  }
}

let shown; // matrices, and the steps of raw, divided and even attention

const divisorText = () => fixed(state.divisor, 2).replace(/\.?0+$/, "");

// Everything that follows from the state. What is being typed stays, unless all is shown anew.
function show(anew = false) {
  const of = matrices();
  const raw = attention(of, 1);
  shown = {of, raw, divided: attention(of, state.divisor), even: evenAttention(raw)};
  showControls(anew);
  const weights = [shown.raw, shown.divided].map((steps) => visible(steps.weights, steps.seen));
  const finite = weights[0].filter((w) => !Number.isNaN(w));
  const highest = finite.length > 0 ? Math.max(...finite, Number.MIN_VALUE) : 1;
  for (const name of ["raw", "divided"]) showGrid(grids[name], shown[name], highest);
  element("highest").textContent = fixed(highest, 2);
  const nan = weights.flat().filter(Number.isNaN).length;
  element("off-scale").hidden = nan === 0;
  element("off-scale").lastChild.textContent = ` ${nan} NaN`;
  element("hidden-keys").hidden = raw.seen.flat().every(Boolean);
  grids.divided.figcaption.textContent = `Weights divided by ${divisorText()}`;
  for (const {table, figcaption} of Object.values(grids))
    table.setAttribute("aria-label", figcaption.textContent);
  showSummary();
  for (const name of names) fields[name].show(of[name], anew);
  if (tables) {
    tables.scores(shown.divided.scores);
    tables.scaled(shown.divided.scaled, `scaled scores = scores / ${divisorText()}`);
    tables.output(shown.divided.output, `output = weights v, divided by ${divisorText()}`);
  }
  showCell();
}

function showControls(anew) {
  const text = divisorText();
  divisorField.show(state.divisor, anew);
  element("slider").value =
    most > 1 ? Math.round((200 * Math.log(state.divisor)) / Math.log(most)) : 0;
  element("slider").setAttribute(
    "aria-valuetext",
    isRoot() ? `${text}, the square root of ${most}` : text,
  );
  element("batch").value = state.batch;
  element("reset").hidden = state.edits.size === 0;
}

// --- what the numbers say -----------------------------------------------------------------------

const two = (number) => fixed(number, 2);
const slopeText = (number) =>
  number === 0 || number >= 0.01 || Number.isNaN(number)
    ? two(number)
    : number < 0.001
      ? number.toExponential(1).replace("-", "−")
      : fixed(number, 4);

// "0.30 instead of 0.48"
const comparedText = (a, b, of = "") =>
  a === b ? `${a}${of}, as without` : `${a}${of} instead of ${b}`;

function showSummary() {
  const [raw, divided, even] = ["raw", "divided", "even"].map((name) => measures(shown[name]));
  summary.divided.textContent = `divided by ${divisorText()}`;
  for (const name of ["spread", "peak", "entropy", "slope"]) {
    summary[name].forEach((cell, i) => {
      cell.textContent = (name === "slope" ? slopeText : two)([raw, divided, even][i][name]);
    });
  }
  const finite = visible(shown.raw.scores, shown.raw.seen).every(Number.isFinite);
  element("sentence").textContent = finite
    ? sentence(raw, divided, even)
    : "Not all scores are finite numbers, so there is nothing to compare. Smaller entries of q " +
      "and k bring them back.";
  element("verdict").textContent = finite ? verdict(raw, divided, even) : "";
  element("sleeper").hidden = asleep(raw, even) || !finite;
}

function sentence(raw, divided, even) {
  const share = (m) => (even.entropy > 0 ? m.entropy / even.entropy : 1);
  const percent = (m) => `${fixed(100 * share(m), 0)} %`;
  if (state.divisor === 1) {
    return (
      `Without division, the largest weight of a row is on average ${two(raw.peak)}. The rows ` +
      `have ${percent(raw)} of the entropy of even weights.`
    );
  }
  const times = state.divisor / root;
  return (
    `Divided by ${divisorText()}, the scores spread by ` +
    `${comparedText(two(divided.spread), two(raw.spread))}. The largest weight of a row is on ` +
    `average ${comparedText(two(divided.peak), two(raw.peak))}. The rows have ` +
    `${comparedText(percent(divided), percent(raw), " of the entropy of even weights")}.` +
    (times < 1.5
      ? ""
      : ` The divisor is ${fixed(times, 1)} times √${most}: ` +
        (share(divided) > 0.98
          ? "the weights are nearly even, and the head hardly listens to its scores."
          : "the further beyond, the more even the weights, and the less the head listens to its " +
            "scores."))
  );
}

const asleep = (of, even) => of.slope < 0.01 * even.slope;

// Whether training gets something back through the weights: slope_sentence() in apps/lesson.cpp.
function verdict(raw, divided, even) {
  if (Number.isNaN(even.slope)) return "No row sees two keys or more, so no weight has a choice.";
  const divisor = `divided by ${divisorText()}`;
  const rule =
    ` (Asleep: a median slope below ${slopeText(0.01 * even.slope)}, a hundredth of that of even ` +
    "weights.)";
  const one = state.divisor === 1;
  if (!asleep(raw, even) && !asleep(divided, even)) {
    return (
      (one ? "This softmax is awake" : "Both softmaxes are awake, without division too") +
      `: most weights follow their scores.${rule}`
    );
  }
  const asleepText = "is asleep: most weights hardly follow their scores";
  if (!asleep(raw, even))
    return `Without division the softmax is awake; ${divisor} it ${asleepText}.${rule}`;
  return (
    `Without division the softmax ${asleepText}. ` +
    (one
      ? "Move the slider until it wakes."
      : asleep(divided, even)
        ? `It still is, ${divisor}.`
        : `It is awake ${divisor}.`) +
    rule
  );
}

// "1·0 + −2.5·2 = ": what a score is the sum of, where that is short enough to read.
function termsText(query, key) {
  const short = (number) => String(Number(number.toPrecision(4))).replace("-", "−");
  return query?.length <= 8
    ? `${query.map((x, i) => `${short(x)}·${short(key[i])}`).join(" + ")} = `
    : "";
}

// The numbers of the current cell, in both grids.
function showCell() {
  element("hint").hidden = selected;
  element("told").hidden = !selected;
  element("cell").classList.toggle("kept", selected);
  if (!selected) return;
  const {weight: seen, row, column} = largest(shown.divided, current.i, current.j);
  const {q, k} = shown.of;
  const six = (matrix) => fixed(matrix[row][column], 6);
  const weightText = ({weights}) =>
    `weight ${six(weights)}, slope ${fixed(slope(weights[row][column]), 6)}`;
  element("told").textContent =
    `Query ${row}, key ${column}: ` +
    (seen === undefined
      ? "not seen. The mask hides this key from this query."
      : `q·k = ${termsText(q?.[row], k?.[column])}${six(shown.raw.scores)}\n` +
        `Without division: ${weightText(shown.raw)}\n` +
        `Divided by ${divisorText()}: scaled score ${six(shown.divided.scaled)}, ` +
        weightText(shown.divided));
  if (!valued) {
    for (const [name, {cells}] of Object.entries(grids)) {
      const weight = seen === undefined ? "not seen" : fixed(shown[name].weights[row][column], 4);
      cells[current.i][current.j].ariaLabel = `query ${row}, key ${column}: ${weight}`;
    }
  }
  for (const [name, {rows}] of Object.entries(fields)) {
    const linked = name === "q" ? row : column;
    rows.forEach((tableRow, i) => tableRow.classList.toggle("linked", i === linked));
  }
}

// --- what a person can do -----------------------------------------------------------------------

function change(changeState) {
  changeState();
  show();
  writeAddress();
}

function start() {
  element("description").textContent = data.description;
  element("to-root").firstChild.textContent = `√${most}`;
  element("to-root").lastChild.textContent = ` = ${Number(root.toFixed(2))}`;
  element("to-most").textContent = most;
  element("divisor").disabled = most === 1;
  element("slide").hidden = most === 1;
  element("one").hidden = most > 1;
  for (const id of ["matrices", "scores", "outputs"]) element(id).hidden = names.length === 0;
  element("off-scale").firstChild.style.background = `rgb(${data.nan_color})`;
  element("gradient").style.background =
    `linear-gradient(to right, ${data.colors.map((c) => `rgb(${c})`)})`;
  element("dense-note").hidden = valued;
  element("dense-note").textContent =
    "Rows are queries, columns are keys." +
    (each > 1 ? ` Each cell shows the largest of ${each} × ${each} weights.` : "");
  element("batch-choice").hidden = batches === 1;
  for (let batch = 0; batch < batches; ++batch)
    add(element("batch"), "option", {value: batch, textContent: batch});
  for (const grid of Object.values(grids)) grid.cells[0][0].tabIndex = 0;

  element("slider").addEventListener("input", (event) =>
    change(() => {
      const position = event.target.valueAsNumber / 200;
      setDivisor(position === 0.5 ? root : Number((most ** position).toFixed(2)));
    }),
  );
  element("to-one").addEventListener("click", () => change(() => setDivisor(1)));
  element("to-root").addEventListener("click", () => change(() => setDivisor(root)));
  element("to-most").addEventListener("click", () => change(() => setDivisor(most)));
  element("batch").addEventListener("change", (event) => {
    state.batch = Number(event.target.value);
    show(true);
    writeAddress();
  });
  element("reset").addEventListener("click", () => {
    state.edits.clear();
    show(true);
    writeAddress();
    element("controls").focus(); // the button is gone
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") unselect();
  });
  addEventListener("hashchange", () => {
    readAddress();
    show(true);
  });
  readAddress();
  show();
}

start();
