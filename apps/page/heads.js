// SPDX-License-Identifier: MIT
// The weights of all heads as small grids, one of them large.
"use strict";

// --- the state: a head, and with or without the division; it stands in the address --------------

const state = {layer: 0, head: 0, division: "scaled"};

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const index = (name, count) => {
    const number = Number(given.get(name));
    return Number.isInteger(number) && number >= 0 && number < count ? number : 0;
  };
  state.layer = index("layer", data.layers);
  state.head = index("head", data.heads);
  state.division = given.get("division") === "none" ? "unscaled" : "scaled";
}

function writeAddress() {
  const address = new URLSearchParams({layer: state.layer, head: state.head});
  if (state.division === "unscaled") address.set("division", "none");
  history.replaceState(null, "", `#${address}`);
}

// --- cells: apps/page.cpp packs them -------------------------------------------------------------

const side = Math.ceil(data.tokens / data.values_each); // cells of a grid
const mostSmall = 64; // of a small one

const lengthOf = (row, cells) => (data.causal ? row + 1 : cells); // of a row of so many

// A grid as rows of numbers.
function unpack(base64) {
  const bytes = Uint8Array.from(atob(base64), (digit) => digit.charCodeAt(0));
  const numbers = new DataView(bytes.buffer);
  let next = 0;
  return Array.from({length: side}, (_, row) =>
    Array.from({length: lengthOf(row, side)}, () => {
      const number = numbers.getFloat32(next, true);
      next += 4;
      return number;
    }),
  );
}

const largerOrNan = (a, b) => (Number.isNaN(a) || b <= a ? a : b);

// The same in fewer cells, each the largest of each x each.
function binned(rows, each) {
  const bins = [];
  rows.forEach((row, i) => {
    const bin = (bins[Math.floor(i / each)] ??= []);
    row.forEach((weight, j) => {
      const place = Math.floor(j / each);
      bin[place] = largerOrNan(bin[place] ?? -Infinity, weight);
    });
  });
  return bins;
}

const viewOf = (layer, head) => data.views[layer * data.heads + head];

for (const {scaled, unscaled} of data.views) {
  for (const figures of [scaled, unscaled]) {
    for (const name of ["entropy", "entropy_share", "peak", "distance"])
      figures[name] = numbers(figures[name]);
  }
}

const unpacked = new Map(); // what has been looked at

function weightsOf(layer, head, division) {
  const name = `${layer}.${head}.${division}`;
  if (!unpacked.has(name)) unpacked.set(name, unpack(viewOf(layer, head)[division].weights));
  return unpacked.get(name);
}

// --- drawing --------------------------------------------------------------------------------------

// Of long rows nearly all weights are small, and lie apart only on a logarithmic scale: it goes from
// a tenth of an even weight, or less, to 1.
const decades = Math.ceil(Math.log10(data.tokens)) + 1;

const colorOf = (weight) =>
  Number.isNaN(weight) ? data.nan_color : colorAt(1 + Math.log10(weight) / decades);

// One pixel a cell; what no query sees is left as the page is.
function draw(canvas, rows) {
  canvas.width = canvas.height = rows.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(rows.length, rows.length);
  rows.forEach((row, i) =>
    row.forEach((weight, j) =>
      image.data.set([...colorOf(weight), 255], 4 * (i * rows.length + j)),
    ),
  );
  context.putImageData(image, 0, 0);
}

const pixelsOfCell = Math.max(4, Math.floor(768 / side)); // of the large grid, for its mark to be fine

function drawEnlarged() {
  const rows = weightsOf(state.layer, state.head, state.division);
  const cells = document.createElement("canvas");
  draw(cells, rows);
  const canvas = element("enlarged");
  canvas.width = canvas.height = side * pixelsOfCell;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(cells, 0, 0, canvas.width, canvas.height);
  if (current) {
    const [x, y] = [current.column, current.row].map((place) => place * pixelsOfCell);
    for (const [color, margin] of [
      ["#000", 3],
      ["#fff", 1],
    ]) {
      context.strokeStyle = color;
      context.lineWidth = 2;
      const extent = pixelsOfCell + 2 * margin;
      context.strokeRect(x - margin, y - margin, extent, extent);
    }
  }
}

// --- what is told ---------------------------------------------------------------------------------

const dividedText = `divided by √${data.head_size} = ${fixed(Math.sqrt(data.head_size), 2)}`;
const percent = (figures) => `${fixed(100 * figures.entropy_share, 0)} %`;
const weightText = (weight) =>
  weight > 0 && weight < 0.001 ? weight.toExponential(3).replace("-", "−") : fixed(weight, 4);

// "query 3 ‘e’" or "queries 32 to 63"
function placeText(one, many, cell) {
  const first = cell * data.values_each;
  const last = Math.min(first + data.values_each, data.tokens) - 1;
  if (first < last) return `${many} ${first} to ${last}`;
  return data.texts.length > 0 ? `${one} ${first} ‘${data.texts[first]}’` : `${one} ${first}`;
}

let current = null; // the cell of the large grid that is told, once somebody has pointed at one

function tell() {
  if (!current) return;
  const {row, column} = current;
  const place = `${placeText("Query", "Queries", row)}, ${placeText("key", "keys", column)}`;
  const weight = (division) => {
    const found = weightsOf(state.layer, state.head, division)[row][column];
    return found === undefined ? "not seen" : weightText(found);
  };
  const what = data.values_each > 1 ? "largest weight" : "weight";
  element("cell").textContent =
    `${place}\n${what} ${dividedText}: ${weight("scaled")}\n` +
    `without the division: ${weight("unscaled")}`;
}

function showFigures() {
  const view = viewOf(state.layer, state.head);
  element("figures").replaceChildren();
  const head = add(add(element("figures"), "thead"), "tr");
  const body = add(element("figures"), "tbody");
  add(head, "td");
  add(head, "th", {scope: "col", textContent: dividedText});
  add(head, "th", {scope: "col", textContent: "without the division"});
  for (const [name, text] of [
    ["entropy in nats", (figures) => fixed(figures.entropy, 3)],
    ["entropy of even", percent],
    ["peak", (figures) => fixed(figures.peak, 3)],
    ["distance in tokens", (figures) => fixed(figures.distance, 2)],
  ]) {
    const row = add(body, "tr");
    add(row, "th", {scope: "row", textContent: name});
    for (const division of ["scaled", "unscaled"])
      add(row, "td", {textContent: text(view[division])});
  }
}

// --- what is on the page ------------------------------------------------------------------------

const buttons = []; // buttons[layer][head]: {button, canvas, caption}

function makeHeads() {
  for (let layer = 0; layer < data.layers; ++layer) {
    const group = add(element("heads"), "div", {className: "layer"});
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", `Layer ${layer}`);
    add(group, "span", {textContent: `Layer ${layer}`});
    const row = add(group, "div", {className: "row"});
    row.style.setProperty("--heads", data.heads);
    buttons.push([]);
    for (let head = 0; head < data.heads; ++head) {
      const button = add(row, "button", {type: "button"});
      const canvas = add(button, "canvas");
      const caption = add(button, "span");
      button.addEventListener("click", () => enlarge(layer, head));
      buttons[layer].push({button, canvas, caption});
    }
  }
}

function show() {
  buttons.forEach((row, layer) =>
    row.forEach(({button, canvas, caption}, head) => {
      const figures = viewOf(layer, head)[state.division];
      const rows = weightsOf(layer, head, state.division);
      draw(canvas, binned(rows, Math.ceil(side / mostSmall)));
      caption.textContent = percent(figures);
      button.setAttribute(
        "aria-label",
        `Layer ${layer}, head ${head}: entropy ${percent(figures)} of even, ` +
          `peak ${fixed(figures.peak, 2)}, distance ${fixed(figures.distance, 1)} tokens`,
      );
    }),
  );
  for (const input of document.getElementsByName("division"))
    input.checked = input.value === state.division;
  showOne();
}

function showOne() {
  buttons.forEach((row, layer) =>
    row.forEach(({button}, head) => {
      const chosen = layer === state.layer && head === state.head;
      button.setAttribute("aria-pressed", String(chosen));
    }),
  );
  element("one-title").textContent =
    `Layer ${state.layer}, head ${state.head}, ` +
    (state.division === "scaled" ? dividedText : "without the division");
  showFigures();
  drawEnlarged();
  tell();
}

// --- what a person can do -----------------------------------------------------------------------

function enlarge(layer, head) {
  Object.assign(state, {layer, head});
  showOne();
  writeAddress();
  element("enlarged").focus({preventScroll: true});
  element("enlarged").scrollIntoView({block: "nearest"});
}

function select(row, column) {
  const within = (place) => Math.min(Math.max(place, 0), side - 1);
  current = {row: within(row), column: within(column)};
  drawEnlarged();
  tell();
}

const backToAll = () => buttons[state.layer][state.head].button.focus();

function moveCell(event) {
  const {row, column} = current ?? {row: 0, column: 0};
  const target = {
    ArrowUp: [row - 1, column],
    ArrowDown: [row + 1, column],
    ArrowLeft: [row, column - 1],
    ArrowRight: [row, column + 1],
    Home: [row, 0],
    End: [row, lengthOf(row, side) - 1],
  }[event.key];
  if (event.key === "Escape") backToAll();
  if (!target) return;
  event.preventDefault();
  if (current) select(...target);
  else select(0, 0);
}

function start() {
  element("description").textContent = data.description;
  element("divided-label").textContent = dividedText;
  element("cells-note").textContent =
    data.values_each > 1
      ? `Each cell shows the largest of up to ${data.values_each} × ${data.values_each} weights` +
        (side > mostSmall ? ", in the small grids of more." : ".")
      : "";
  const stops = Array.from({length: 33}, (_, i) => `rgb(${colorAt(i / 32).map(Math.round)})`);
  element("gradient").style.background = `linear-gradient(to right, ${stops})`;
  for (let decade = -decades; decade <= 0; ++decade)
    add(element("ticks"), "span", {textContent: String(Number((10 ** decade).toPrecision(1)))});

  makeHeads();
  for (const input of document.getElementsByName("division")) {
    input.addEventListener("change", () => {
      state.division = input.value;
      show();
      writeAddress();
    });
  }
  const canvas = element("enlarged");
  const pointed = (event) => {
    const {left, top, width, height} = canvas.getBoundingClientRect();
    select(
      Math.floor(((event.clientY - top) / height) * side),
      Math.floor(((event.clientX - left) / width) * side),
    );
  };
  canvas.addEventListener("pointermove", pointed);
  canvas.addEventListener("pointerdown", pointed);
  canvas.addEventListener("keydown", moveCell);
  element("back").addEventListener("click", backToAll);
  addEventListener("hashchange", () => {
    readAddress();
    show();
  });
  readAddress();
  show();
}

start();
