// SPDX-License-Identifier: MIT
// Attention weights that follow a divisor, and perhaps the entries of q, k and v.
"use strict";

// --- the formula: the second copy of the one in src/attention.cpp, and tested against it --------

const transposed = (m) => m[0].map((_, j) => m.map((row) => row[j]));
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const product = (a, b) => a.map((row) => transposed(b).map((column) => dot(row, column)));

// Of one row. A row that sees nothing has weights of 0.
function softmax(row) {
  const largest = Math.max(...row);
  if (largest === -Infinity) return row.map(() => 0);
  const powers = row.map((z) => Math.exp(z - largest));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / sum);
}

const masked = (row, mask) => row.map((z, j) => (mask[j] === -Infinity ? -Infinity : z + mask[j]));

// output = softmax(q k^T / divisor + mask) v
function attention({scores, q, k, v, mask}, divisor) {
  const steps = {scores: scores ?? product(q, transposed(k))};
  steps.scaled = steps.scores.map((row) => row.map((s) => s / divisor));
  steps.weights = steps.scaled.map((row, i) => softmax(mask ? masked(row, mask[i]) : row));
  steps.output = v && product(steps.weights, v);
  return steps;
}

// --- what can be read off it: include/mini/diagnostics.h ----------------------------------------

const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
const slope = (w) => w * (1 - w);
const peak = (row) => Math.max(...row);
const entropy = (row) => row.reduce((sum, w) => sum - (w === 0 ? 0 : w * Math.log(w)), 0);

function spread(rows) {
  const all = rows.flat(),
    average = mean(all);
  return all.length > 1
    ? Math.sqrt(all.reduce((sum, s) => sum + (s - average) ** 2, 0) / (all.length - 1))
    : 0;
}

// Of the weights that have a choice: visible ones, in rows that see at least two keys.
function medianSlope(weights, mask) {
  const slopes = weights.flatMap((row, i) => {
    const visible = row.filter((_, j) => !mask || mask[i][j] !== -Infinity);
    return visible.length > 1 ? visible.map(slope) : [];
  });
  return slopes.sort((a, b) => a - b)[Math.floor((slopes.length - 1) / 2)] ?? NaN;
}

function measures(steps, mask) {
  return {
    spread: spread(steps.scaled),
    peak: mean(steps.weights.map(peak)),
    entropy: mean(steps.weights.map(entropy)),
    slope: medianSlope(steps.weights, mask),
  };
}

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
    if (known && text !== "" && Number.isFinite(Number(text))) state.edits.set(place, Number(text));
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

// --- colours ------------------------------------------------------------------------------------

function isBright(color) {
  const [r, g, b] = color.map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179;
}

function paint(cell, weight, highest) {
  const color = Number.isNaN(weight) ? data.nan_color : colorAt(weight / highest);
  cell.style.backgroundColor = `rgb(${color.map(Math.round)})`;
  cell.style.color = isBright(color) ? "#000" : "#fff";
}

// --- what is on the page ------------------------------------------------------------------------

function addFigure(parent, caption) {
  const figure = add(parent, "figure");
  const figcaption = add(figure, "figcaption", {textContent: caption});
  return {figcaption, table: add(add(figure, "div", {className: "wide"}), "table")};
}

const mostCells = 64; // a row or column of a grid
const mostValues = 10; // a row or column whose values are written in the cells
const mostNames = 6; // a row whose keys are called so
const {weights} = attention(matrices(), 1);
const rows = weights.length,
  columns = weights[0].length;
const each = Math.ceil(Math.max(rows, columns) / mostCells); // values a side that a cell stands for
const dense = Math.max(rows, columns) > mostValues;

// A grid of weights with roving focus. Its cells are grid.cells[row][column].
function makeGrid(caption) {
  const grid = {...addFigure(element("weights"), caption), cells: [], measures: []};
  grid.table.className = dense ? "grid dense" : columns > mostNames ? "grid many" : "grid";
  grid.table.setAttribute("role", "grid");
  grid.table.style.setProperty("--columns", columns);
  const head = add(add(grid.table, "thead"), "tr");
  add(head, "th", {className: "corner", scope: "col", textContent: "query"});
  for (let j = 0; j < columns; j += each) {
    add(head, "th", {
      scope: "col",
      textContent: columns > mostNames ? j : `key ${j}`,
      ariaLabel: `key ${j}`,
    });
  }
  for (const name of dense ? [] : ["peak", "entropy"]) {
    add(head, "th", {className: "measure", scope: "col", textContent: name});
  }
  const body = add(grid.table, "tbody");
  for (let i = 0; i < rows; i += each) {
    const row = add(body, "tr");
    add(row, "th", {scope: "row", textContent: i});
    const cells = [];
    for (let j = 0; j < columns; j += each) cells.push(add(row, "td", {tabIndex: -1}));
    grid.cells.push(cells);
    if (!dense) grid.measures.push([add(row, "td"), add(row, "td")]);
  }
  grid.cells.forEach((cells, i) =>
    cells.forEach((cell, j) => {
      cell.addEventListener("pointerenter", () => select(i, j));
      cell.addEventListener("focus", () => select(i, j));
      cell.addEventListener("keydown", (event) => moveFocus(event, grid, i, j));
    }),
  );
  return grid;
}

function moveFocus(event, grid, i, j) {
  const last = grid.cells[0].length - 1;
  const target = {
    ArrowUp: [i - 1, j],
    ArrowDown: [i + 1, j],
    ArrowLeft: [i, j - 1],
    ArrowRight: [i, j + 1],
    Home: [i, 0],
    End: [i, last],
  }[event.key];
  if (!target) return;
  event.preventDefault();
  grid.cells[target[0]]?.[target[1]]?.focus();
}

function showGrid(grid, steps, highest) {
  grid.cells.forEach((cells, i) =>
    cells.forEach((cell, j) => {
      const {weight} = largest(steps.weights, i, j);
      paint(cell, weight, highest);
      if (!dense) cell.textContent = fixed(weight, 2);
    }),
  );
  grid.measures.forEach(([ofPeak, ofEntropy], i) => {
    ofPeak.textContent = fixed(peak(steps.weights[i]), 2);
    ofEntropy.textContent = fixed(entropy(steps.weights[i]), 2);
  });
}

// The largest of the weights that a cell stands for, NaN if there is one, and its place.
function largest(weights, i, j) {
  let found = {weight: -Infinity};
  for (let row = i * each; row < Math.min((i + 1) * each, rows); ++row) {
    for (let column = j * each; column < Math.min((j + 1) * each, columns); ++column) {
      const weight = weights[row][column];
      if (Number.isNaN(weight)) return {weight, row, column};
      if (weight > found.weight) found = {weight, row, column};
    }
  }
  return found;
}

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

// A table of inputs. Returns what shows the matrix in them.
function makeInputs(name) {
  const {table} = addFigure(element("matrices"), name);
  const inputs = data[name][0].map((numbersOfRow, i) => {
    const row = add(table, "tr");
    return numbersOfRow.map((_, j) => {
      const input = add(add(row, "td"), "input", {type: "number", step: "any", required: true});
      input.setAttribute("aria-label", `${name}, row ${i}, column ${j}`);
      input.addEventListener("input", () => {
        if (!input.checkValidity()) return;
        state.edits.set(`${name}.${state.batch}.${i}.${j}`, input.valueAsNumber);
        show();
        writeAddress();
      });
      input.addEventListener("blur", () => input.checkValidity() || show());
      return input;
    });
  });
  return {
    rows: inputs.map((row) => row[0].closest("tr")),
    show: (matrix) =>
      inputs.forEach((row, i) =>
        row.forEach((input, j) => {
          if (input !== document.activeElement || !input.checkValidity())
            input.value = matrix[i][j];
        }),
      ),
  };
}

const grids = {raw: makeGrid("Weights without division"), divided: makeGrid("")};
const inputs = Object.fromEntries(names.map((name) => [name, makeInputs(name)]));
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
let current = {i: 0, j: 0}; // the cell of both grids that Tab leads to
let selected = false; // and whose numbers are told, once somebody has pointed at one

const divisorText = () => fixed(state.divisor, 2).replace(/\.?0+$/, "");

// Everything that follows from the state.
function show() {
  const of = matrices();
  shown = {
    of,
    raw: attention(of, 1),
    divided: attention(of, state.divisor),
    even: attention(of, Infinity),
  };
  showControls();
  const finite = shown.raw.weights.flat().filter((w) => !Number.isNaN(w));
  const highest = finite.length > 0 ? Math.max(...finite, Number.MIN_VALUE) : 1;
  for (const name of ["raw", "divided"]) showGrid(grids[name], shown[name], highest);
  element("highest").textContent = fixed(highest, 2);
  const nan = [shown.raw, shown.divided].flatMap((steps) =>
    steps.weights.flat().filter(Number.isNaN),
  ).length;
  element("off-scale").hidden = nan === 0;
  element("off-scale").lastChild.textContent = ` ${nan} NaN`;
  grids.divided.figcaption.textContent = `Weights divided by ${divisorText()}`;
  for (const {table, figcaption} of Object.values(grids))
    table.setAttribute("aria-label", figcaption.textContent);
  showSummary();
  for (const name of names) inputs[name].show(of[name]);
  if (tables) {
    tables.scores(shown.divided.scores);
    tables.scaled(shown.divided.scaled, `scaled scores = scores / ${divisorText()}`);
    tables.output(shown.divided.output, `output = weights v, divided by ${divisorText()}`);
  }
  if (selected) showCell();
}

function showControls() {
  const text = divisorText();
  if (element("divisor") !== document.activeElement)
    element("divisor").value = Number(state.divisor.toFixed(2));
  element("slider").value =
    most > 1 ? Math.round((200 * Math.log(state.divisor)) / Math.log(most)) : 0;
  element("slider").setAttribute(
    "aria-valuetext",
    isRoot() ? `${text}, the square root of ${most}` : text,
  );
  element("batch").value = state.batch;
  element("reset").hidden = state.edits.size === 0;
}

function showSummary() {
  const of = ["raw", "divided", "even"].map((name) => measures(shown[name], shown.of.mask));
  summary.divided.textContent = `divided by ${divisorText()}`;
  for (const name of ["spread", "peak", "entropy", "slope"]) {
    summary[name].forEach((cell, i) => {
      const number = of[i][name];
      cell.textContent =
        name === "slope" && number < 0.01 && number > 0
          ? number.toExponential(1)
          : fixed(number, 2);
    });
  }
  const [raw, divided, even] = of;
  const two = (number) => fixed(number, 2);
  const share = (m) => fixed(even.entropy > 0 ? (100 * m.entropy) / even.entropy : 100, 0);
  element("sentence").textContent =
    state.divisor === 1
      ? `Without division, the largest weight of a row is ${two(raw.peak)} on average, and the rows ` +
        `keep ${share(raw)} % of the entropy that even weights have. Move the slider to divide.`
      : `Divided by ${divisorText()}, the scores spread by ${two(divided.spread)} instead of ` +
        `${two(raw.spread)}. The largest weight of a row is ${two(divided.peak)} on average ` +
        `instead of ${two(raw.peak)}, and the rows keep ${share(divided)} % of the entropy that ` +
        `even weights have instead of ${share(raw)} %.`;
}

function select(i, j) {
  for (const {cells} of Object.values(grids)) {
    cells[current.i][current.j].tabIndex = -1;
    cells[current.i][current.j].classList.remove("selected");
    cells[i][j].tabIndex = 0;
    cells[i][j].classList.add("selected");
  }
  current = {i, j};
  selected = true;
  showCell();
}

// "1·0 + −2.5·2 = ": what a score is the sum of, where that is short enough to read.
function termsText(query, key) {
  const short = (number) => String(Number(number.toFixed(3))).replace("-", "−");
  return query?.length <= 8
    ? `${query.map((x, i) => `${short(x)}·${short(key[i])}`).join(" + ")} = `
    : "";
}

// The numbers of the current cell, in both grids.
function showCell() {
  const {row, column} = largest(shown.divided.weights, current.i, current.j);
  const {q, k} = shown.of;
  const six = (matrix) => fixed(matrix[row][column], 6);
  const weightText = ({weights}) =>
    `weight ${six(weights)}, slope ${fixed(slope(weights[row][column]), 6)}`;
  element("cell").textContent =
    `Query ${row}, key ${column}: q·k = ${termsText(q?.[row], k?.[column])}${six(shown.raw.scores)}\n` +
    `Without division: ${weightText(shown.raw)}\n` +
    `Divided by ${divisorText()}: scaled score ${six(shown.divided.scaled)}, ` +
    weightText(shown.divided);
  if (dense) {
    for (const [name, {cells}] of Object.entries(grids)) {
      const weight = fixed(shown[name].weights[row][column], 4);
      cells[current.i][current.j].ariaLabel = `query ${row}, key ${column}: ${weight}`;
    }
  }
  for (const [name, {rows}] of Object.entries(inputs)) {
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
  Object.assign(element("divisor"), {min: 1, max: most});
  element("to-root").textContent = `√${most} = ${Number(root.toFixed(2))}`;
  element("to-most").textContent = most;
  element("slider").disabled = most === 1;
  for (const id of ["matrices", "scores", "outputs"]) element(id).hidden = names.length === 0;
  element("off-scale").firstChild.style.background = `rgb(${data.nan_color})`;
  element("gradient").style.background =
    `linear-gradient(to right, ${data.colors.map((c) => `rgb(${c})`)})`;
  element("dense-note").hidden = !dense;
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
  element("divisor").addEventListener("input", (event) => {
    if (event.target.checkValidity()) change(() => setDivisor(event.target.valueAsNumber));
  });
  element("divisor").addEventListener("blur", show);
  element("to-one").addEventListener("click", () => change(() => setDivisor(1)));
  element("to-root").addEventListener("click", () => change(() => setDivisor(root)));
  element("to-most").addEventListener("click", () => change(() => setDivisor(most)));
  element("batch").addEventListener("change", (event) =>
    change(() => {
      state.batch = Number(event.target.value);
    }),
  );
  element("reset").addEventListener("click", () => change(() => state.edits.clear()));
  addEventListener("hashchange", () => {
    readAddress();
    show();
  });
  readAddress();
  show();
}

start();
