// SPDX-License-Identifier: MIT
// The page of inspect_attention: the weights of all heads as small grids, and of one head enlarged.
//
// Needs     common.js and the elements of heads.html. apps/gpt/heads_page.h describes the data.
"use strict";

const data = pageData();

// --- the state: a head, and with or without the division, all kept in the address ---------------

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

// --- the weights, as packed by apps/gpt/heads_page.cpp -------------------------------------------

const side = Math.ceil(data.tokens / data.values_each); // cells on a side of the enlarged grid
const mostSmall = 64; // the most cells on a side of a small grid

const lengthOf = (row, cells) => (data.causal ? row + 1 : cells); // without the hidden cells

// The rows of a grid.
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

// The rows with fewer cells: each is the largest of up to each x each cells, or NaN if one is NaN.
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

const unpacked = new Map(); // the grids that have been shown

function weightsOf(layer, head, division) {
  const name = `${layer}.${head}.${division}`;
  if (!unpacked.has(name)) unpacked.set(name, unpack(viewOf(layer, head)[division].weights));
  return unpacked.get(name);
}

// --- drawing -------------------------------------------------------------------------------------

// The colour scale is logarithmic, because nearly all weights of long rows are small. It ranges
// from a tenth of an even weight, or less, to 1.
const decades = Math.ceil(Math.log10(data.tokens)) + 1;

const colorOf = (weight) =>
  Number.isNaN(weight) ? data.nan_color : colorAt(data.colors, 1 + Math.log10(weight) / decades);

// Draws one pixel per cell. Hidden cells keep the background of the page.
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

// Pixels on a side of an enlarged cell, enough for the thin lines around the selected cell.
const pixelsOfCell = Math.max(4, Math.floor(768 / side));

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

// --- texts ---------------------------------------------------------------------------------------

// The text of a token with visible blanks. The data contain control characters as their symbols.
const blanks = {" ": "␣", "\u2409": "⇥", "\u240a": "⏎"};
const visibleText = (text) => text.replace(/[ \u2409\u240a]/g, (blank) => blanks[blank]);
const texts = data.texts.map(visibleText);

const dividedText = `divided by ${data.divided}`;

const shareText = (share) => `${fixed(100 * share, data.share_digits)} %`;
const percent = (figures) => shareText(figures.entropy_share);
const weightText = (weight) =>
  weight > 0 && weight < 0.001 ? weight.toExponential(3).replace("-", "−") : fixed(weight, 4);

// "query 3 ‘e’" or "queries 32 to 63"
function placeText(one, many, cell) {
  const first = cell * data.values_each;
  const last = Math.min(first + data.values_each, data.tokens) - 1;
  if (first < last) return `${many} ${first} to ${last}`;
  return texts.length > 0 ? `${one} ${first} ‘${texts[first]}’` : `${one} ${first}`;
}

let current = null; // the selected cell of the enlarged grid: {row, column}, or null

function tell() {
  element("hint").hidden = current !== null;
  element("told").hidden = current === null;
  element("cell").classList.toggle("kept", current !== null);
  if (!current) return;
  const {row, column} = current;
  markTokens();
  const place = `${placeText("Query", "Queries", row)}, ${placeText("key", "keys", column)}`;
  const weight = (division) => {
    const found = weightsOf(state.layer, state.head, division)[row][column];
    return found === undefined ? "hidden" : weightText(found);
  };
  const what = data.values_each > 1 ? "largest weight" : "weight";
  element("told").textContent =
    `${place}\n${what} ${dividedText}: ${weight("scaled")}\n` +
    `without the division: ${weight("unscaled")}`;
}

// Marks the query and the key of the selected cell, in the prompt and at the axes.
function markTokens() {
  const {row, column} = current;
  const within = (token, cell) => Math.floor(token / data.values_each) === cell;
  const prompt = element("prompt");
  [...prompt.children].forEach((span, token) => {
    span.classList.toggle("query", within(token, row));
    span.classList.toggle("key", within(token, column));
  });
  const query = prompt.children[row * data.values_each];
  if (query) prompt.scrollTop = query.offsetTop - prompt.clientHeight / 2;
  [...element("queries").children].forEach((label, i) =>
    label.classList.toggle("query", i === row),
  );
  [...element("keys").children].forEach((label, j) => label.classList.toggle("key", j === column));
}

function showAllFigures() {
  const table = element("all-figures").querySelector("table");
  const head = add(table, "thead"),
    body = add(table, "tbody");
  const [groups, names] = [add(head, "tr"), add(head, "tr")];
  add(groups, "td");
  add(names, "th", {scope: "col", textContent: "layer, head"});
  const columns = [
    ["entropy, share of even", percent],
    ["peak", ({peak}) => fixed(peak, 3)],
    ["distance in tokens", ({distance}) => fixed(distance, 2)],
  ];
  for (const [name] of columns) {
    add(groups, "th", {scope: "colgroup", colSpan: 2, textContent: name});
    for (const division of ["divided", "not divided"])
      add(names, "th", {scope: "col", textContent: division});
  }
  for (const view of data.views) {
    const row = add(body, "tr", {className: view.changes_most ? "most" : ""});
    add(row, "th", {scope: "row", textContent: `${view.layer}, ${view.head}`});
    for (const [, text] of columns) {
      for (const division of ["scaled", "unscaled"])
        add(row, "td", {textContent: text(view[division])});
    }
  }
  element("all-figures").open = data.views.length <= 32;
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
    ["entropy, share of even", percent],
    ["peak", (figures) => fixed(figures.peak, 3)],
    ["distance in tokens", (figures) => fixed(figures.distance, 2)],
  ]) {
    const row = add(body, "tr");
    add(row, "th", {scope: "row", textContent: name});
    for (const division of ["scaled", "unscaled"])
      add(row, "td", {textContent: text(view[division])});
  }
}

// --- the elements of the page -------------------------------------------------------------------

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

function makePrompt() {
  element("prompt").hidden = texts.length === 0;
  for (const text of texts) add(element("prompt"), "span", {textContent: text});
}

// Shows the tokens at the axes of the enlarged grid if each of them fits.
function showLabels() {
  const cell = element("axes").clientWidth / side;
  const fit = data.values_each === 1 && cell >= 8;
  const names = texts.length > 0 ? texts : Array.from({length: side}, (_, i) => String(i));
  const font = Math.min(0.9 * cell, 12);
  const longest = Math.max(...names.map((name) => name.length));
  element("keys").classList.toggle("turned", 0.7 * longest * font > cell);
  for (const axis of [element("keys"), element("queries")]) {
    axis.style.fontSize = `${font}px`;
    axis.replaceChildren();
    if (fit) names.forEach((name) => add(axis, "span", {textContent: name}));
  }
  if (current) markTokens();
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
        `Layer ${layer}, head ${head}: entropy ${percent(figures)} of that of even weights, ` +
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

// --- actions of the reader ----------------------------------------------------------------------

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

// Scrolls if a bar covers the selected cell.
function showCurrent() {
  const {top, height} = element("enlarged").getBoundingClientRect();
  const y = top + ((current.row + 0.5) / side) * height;
  const above = element("controls").getBoundingClientRect().bottom,
    below = element("cell").getBoundingClientRect().top;
  if (y < above || y > below) scrollBy(0, y - (above + below) / 2);
}

const backToAll = () => buttons[state.layer][state.head].button.focus();

function moveCell(event) {
  const {row, column} = current ?? {row: 0, column: 0};
  const last = side - 1;
  const target = moved(event, [row, column], [last, last], lengthOf(row, side) - 1);
  if (event.key === "Escape") backToAll();
  if (!target) return;
  event.preventDefault();
  select(...(current ? target : [0, 0]));
  showCurrent();
}

// --- starting the page --------------------------------------------------------------------------

function showConstants() {
  element("description").textContent = data.description;
  element("divided-label").textContent = dividedText;
  element("cells-note").textContent =
    data.values_each > 1
      ? `Each cell shows the largest of up to ${data.values_each} × ${data.values_each} weights` +
        (side > mostSmall ? "; in the small grids, of more." : ".")
      : "";
  const stops = Array.from(
    {length: 33},
    (_, i) => `rgb(${colorAt(data.colors, i / 32).map(Math.round)})`,
  );
  element("gradient").style.background = `linear-gradient(to right, ${stops})`;
  for (let decade = -decades; decade <= 0; ++decade)
    add(element("ticks"), "span", {textContent: String(Number((10 ** decade).toPrecision(1)))});

  element("hidden-keys").hidden = !data.causal;
  element("sentence").textContent = data.conclusion;
}

function listen() {
  new ResizeObserver(showLabels).observe(element("axes"));
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
}

keepScrollClear({top: element("controls"), bottom: element("cell")});
showConstants();
makeHeads();
makePrompt();
showAllFigures();
listen();
readAddress();
show();
