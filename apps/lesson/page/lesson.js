// SPDX-License-Identifier: MIT
// The page of compare_weights and trace_attention: attention weights for any divisor of the scores,
// and for edited entries of q, k and v.
//
// Needs     common.js, attention.js, tables.js, fields.js, grid.js, sentences.js, and the elements
//           of lesson.html. apps/lesson/lesson_page.h describes the data.
"use strict";

const data = pageData();
const most = data.head_size;
const root = Math.sqrt(most);
const names = ["q", "k", "v"].filter((name) => data[name]);
const batches = (data.scores ?? data.q).length;

// --- the state: a divisor, a batch, and edits of q, k and v, all kept in the address ------------

const state = {divisor: 1, batch: 0, edits: new Map()}; // edits: "q.batch.row.column" -> number

const isRoot = () => Math.abs(state.divisor - root) < 0.005;

// A divisor that rounds to √d_k, as in the address, becomes √d_k exactly.
function setDivisor(divisor) {
  state.divisor = Math.min(Math.max(divisor, 1), most);
  if (isRoot()) state.divisor = root;
}

// The edited matrices of the current batch.
function matrices() {
  const edited = {};
  for (const name of ["scores", "mask", ...names])
    edited[name] = data[name] && numbers(data[name][state.batch]);
  for (const [place, number] of state.edits) {
    const [name, batch, row, column] = place.split(".");
    if (Number(batch) === state.batch) edited[name][row][column] = number;
  }
  return edited;
}

function edit(name, i, j, number) {
  const place = `${name}.${state.batch}.${i}.${j}`;
  if (Object.is(number, numbers(data[name][state.batch][i][j]))) state.edits.delete(place);
  else state.edits.set(place, number);
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  setDivisor(Number(given.get("divisor") || data.divisor) || data.divisor);
  const batch = Number(given.get("batch"));
  state.batch = Number.isInteger(batch) && batch >= 0 && batch < batches ? batch : 0;
  state.edits = new Map();
  for (const [place, text] of given) {
    const [name, ...indices] = place.split(".");
    const isKnown =
      names.includes(name) &&
      indices.length === 3 &&
      indices.reduce((list, i) => list?.[i], data[name]) !== undefined;
    const number = parseNumber(text);
    if (isKnown && Number.isFinite(number)) state.edits.set(place, number);
  }
}

let writing; // a timer, because browsers limit how often a page may change its address

function writeAddress() {
  clearTimeout(writing);
  writing = setTimeout(() => {
    const address = new URLSearchParams({divisor: String(Number(state.divisor.toFixed(2)))});
    if (state.batch > 0) address.set("batch", state.batch);
    for (const [place, number] of state.edits) address.set(place, number);
    history.replaceState(null, "", `#${address}`);
  }, 200);
}

function change(changeState) {
  changeState();
  show();
  writeAddress();
}

// --- the elements of the page -------------------------------------------------------------------

const queryCount = (data.scores ?? data.q)[0].length;
const keyCount = data.scores ? data.scores[0][0].length : data.k[0].length;
const layout = gridLayout(queryCount, keyCount);
const [raw, divided] = ["Weights without division", ""].map((caption) =>
  makeGrid(element("weights"), {
    caption,
    layout,
    colorOf: (weight, highest) =>
      Number.isNaN(weight) ? data.nan_color : colorAt(data.colors, weight / highest),
    onSelect: select,
  }),
);
const grids = {raw, divided};
const fields = Object.fromEntries(
  names.map((name) => [
    name,
    makeFields(element("matrices"), {
      name,
      rows: data[name][0].length,
      columns: data[name][0][0].length,
      message: element("expected"),
      onChange: (i, j, number) => change(() => edit(name, i, j, number)),
    }),
  ]),
);
const divisorField = numberField(element("divisor"), {
  name: "divisor",
  low: 1,
  high: most,
  text: (divisor) => String(Number(divisor.toFixed(2))),
  message: element("expected"),
  onChange: (divisor) => change(() => setDivisor(divisor)),
});
const tables = names.length > 0 && {
  scores: makeTable(element("scores"), "scores = q kᵀ"),
  scaled: makeTable(element("scores"), ""),
  output: makeTable(element("outputs"), ""),
};
const summary = makeSummary();

// The table of measures. Returns its elements that change.
function makeSummary() {
  const head = add(add(element("summary"), "thead"), "tr");
  const body = add(element("summary"), "tbody");
  add(head, "td");
  add(head, "th", {scope: "col", textContent: "without division"});
  const changing = {divided: add(head, "th", {scope: "col"})};
  add(head, "th", {scope: "col", textContent: "even weights"});
  for (const [name, text] of Object.entries({
    spread: "spread of the scores",
    peak: "peak, mean over rows",
    entropy: "entropy in nats, mean over rows",
    slope: "slope, median over weights",
  })) {
    const row = add(body, "tr");
    add(row, "th", {scope: "row", textContent: text});
    changing[name] = [add(row, "td"), add(row, "td"), add(row, "td")];
  }
  return changing;
}

// --- showing the state --------------------------------------------------------------------------

let shown; // the matrices, and the steps of attention without division, with it, for even weights

// `force` replaces text that is being typed.
function show(force = false) {
  const of = matrices();
  const undivided = attention(of, 1);
  shown = {
    of,
    raw: undivided,
    divided: attention(of, state.divisor),
    even: evenAttention(undivided),
  };
  showControls(force);
  showWeights();
  showMeasures();
  for (const name of names) fields[name].show(of[name], force);
  if (tables) {
    const by = divisorText(state.divisor);
    tables.scores(shown.divided.scores);
    tables.scaled(shown.divided.scaled, `scaled scores = scores / ${by}`);
    tables.output(shown.divided.output, `output = weights v, divided by ${by}`);
  }
  showCell();
}

function showControls(force) {
  const text = divisorText(state.divisor);
  divisorField.show(state.divisor, force);
  element("slider").value =
    most > 1 ? Math.round((200 * Math.log(state.divisor)) / Math.log(most)) : 0;
  element("slider").setAttribute(
    "aria-valuetext",
    isRoot() ? `${text}, the square root of ${most}` : text,
  );
  element("batch").value = state.batch;
  element("reset").hidden = state.edits.size === 0;
}

// Both grids share one colour scale, up to the highest weight without division.
function showWeights() {
  const weights = [shown.raw, shown.divided].map((s) => visibleEntries(s.weights, s.visible));
  const finite = weights[0].filter((w) => !Number.isNaN(w));
  const highest = finite.length > 0 ? Math.max(...finite, Number.MIN_VALUE) : 1;
  grids.raw.show(shown.raw, highest, "Weights without division");
  grids.divided.show(shown.divided, highest, `Weights divided by ${divisorText(state.divisor)}`);
  element("highest").textContent = fixed(highest, 2);
  const nan = weights.flat().filter(Number.isNaN).length;
  element("off-scale").hidden = nan === 0;
  element("off-scale").lastChild.textContent = ` ${nan} NaN`;
  element("hidden-keys").hidden = shown.raw.visible.flat().every(Boolean);
}

function showMeasures() {
  const measured = {
    raw: measures(shown.raw),
    divided: measures(shown.divided),
    even: measures(shown.even),
  };
  summary.divided.textContent = `divided by ${divisorText(state.divisor)}`;
  for (const name of ["spread", "peak", "entropy", "slope"]) {
    summary[name].forEach((cell, i) => {
      const number = Object.values(measured)[i][name];
      cell.textContent = name === "slope" ? slopeText(number) : twoDecimals(number);
    });
  }
  const allFinite = visibleEntries(shown.raw.scores, shown.raw.visible).every(Number.isFinite);
  element("sentence").textContent = allFinite
    ? effectOfDivision(measured, state.divisor, most)
    : "Some scores are not finite, so the weights cannot be compared. Enter smaller numbers in q " +
      "and k.";
  element("verdict").textContent = allFinite ? saturation(measured, state.divisor) : "";
  element("saturated-example").hidden = isSaturated(measured.raw, measured.even) || !allFinite;
}

// --- the selected cell --------------------------------------------------------------------------

const current = {i: 0, j: 0, isSelected: false}; // in both grids

function setCurrent(i, j, isSelected) {
  Object.assign(current, {i, j, isSelected});
  for (const grid of Object.values(grids)) grid.setCurrent(i, j, isSelected);
}

function select(i, j) {
  setCurrent(i, j, true);
  showCell();
}

function unselect() {
  setCurrent(current.i, current.j, false);
  showCell();
}

// "1·0 + −2.5·2 = ": the terms of a score, if there are at most 8.
function termsText(query, key) {
  const short = (number) => String(Number(number.toPrecision(4))).replace("-", "−");
  return query?.length <= 8
    ? `${query.map((x, i) => `${short(x)}·${short(key[i])}`).join(" + ")} = `
    : "";
}

// The numbers of the selected cell in both grids.
function showCell() {
  element("hint").hidden = current.isSelected;
  element("told").hidden = !current.isSelected;
  element("cell").classList.toggle("kept", current.isSelected);
  if (!current.isSelected) return;
  const {weight: found, row, column} = largestWeight(layout, shown.divided, current.i, current.j);
  const {q, k} = shown.of;
  const six = (matrix) => fixed(matrix[row][column], 6);
  const weightText = ({weights}) =>
    `weight ${six(weights)}, slope ${fixed(slope(weights[row][column]), 6)}`;
  element("told").textContent =
    `Query ${row}, key ${column}: ` +
    (found === undefined
      ? "hidden. The mask hides this key from this query."
      : `q·k = ${termsText(q?.[row], k?.[column])}${six(shown.raw.scores)}\n` +
        `Without division: ${weightText(shown.raw)}\n` +
        `Divided by ${divisorText(state.divisor)}: scaled score ${six(shown.divided.scaled)}, ` +
        weightText(shown.divided));
  if (!layout.valued) {
    for (const [name, grid] of Object.entries(grids)) {
      const weight = found === undefined ? "hidden" : fixed(shown[name].weights[row][column], 4);
      grid.setLabel(current.i, current.j, `query ${row}, key ${column}: ${weight}`);
    }
  }
  for (const [name, {rows}] of Object.entries(fields)) {
    const linked = name === "q" ? row : column;
    rows.forEach((tableRow, i) => tableRow.classList.toggle("linked", i === linked));
  }
}

// --- starting the page --------------------------------------------------------------------------

function showConstants() {
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
  element("dense-note").hidden = layout.valued;
  element("dense-note").textContent =
    "Rows are queries, columns are keys." +
    (layout.each > 1
      ? ` Each cell shows the largest of ${layout.each} × ${layout.each} weights.`
      : "");
  element("batch-choice").hidden = batches === 1;
  for (let batch = 0; batch < batches; ++batch)
    add(element("batch"), "option", {value: batch, textContent: batch});
}

function listen() {
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
    element("controls").focus(); // the focused button is hidden now
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") unselect();
  });
  addEventListener("hashchange", () => {
    readAddress();
    show(true);
  });
}

keepScrollClear({top: element("controls"), bottom: element("cell")});
showConstants();
setCurrent(0, 0, false);
listen();
readAddress();
show();
