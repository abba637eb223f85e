// SPDX-License-Identifier: MIT
// Grids of weights: their cells, their colours, and the cell that is selected in all of them.
"use strict";

const mostCells = 64; // a row or column of a grid
const mostLabels = 32; // a row or column that is labelled, and measured
const mostValues = 12; // a row or column whose values are written in the cells
const mostNames = 6; // a row whose keys are called so
const rows = (data.scores ?? data.q)[0].length,
  columns = (data.scores?.[0] ?? data.k)[0].length;
const size = Math.max(rows, columns);
const each = Math.ceil(size / mostCells); // values a side that a cell stands for
const valued = size <= mostValues;
const labelled = size <= mostLabels;

let current = {i: 0, j: 0}; // the cell of all grids that Tab leads to
let selected = false; // and whose numbers are told, once somebody has pointed at one

function isBright(color) {
  const [r, g, b] = color.map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179;
}

function addFigure(parent, caption) {
  const figure = add(parent, "figure");
  const figcaption = add(figure, "figcaption", {textContent: caption});
  return {figcaption, table: add(add(figure, "div", {className: "wide"}), "table")};
}

// A grid with roving focus. Its cells are grid.cells[row][column].
function makeGrid(caption) {
  const grid = {...addFigure(element("weights"), caption), cells: [], measures: []};
  const kind = !labelled ? "dense" : !valued ? "fine" : columns > mostNames ? "many" : "";
  grid.table.className = `grid ${kind}`;
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
  for (const name of labelled ? ["peak", "entropy"] : [])
    add(head, "th", {className: "measure", scope: "col", textContent: name});
  const body = add(grid.table, "tbody");
  for (let i = 0; i < rows; i += each) {
    const row = add(body, "tr");
    add(row, "th", {scope: "row", textContent: i});
    const cells = [];
    for (let j = 0; j < columns; j += each) cells.push(add(row, "td", {tabIndex: -1}));
    grid.cells.push(cells);
    if (labelled) grid.measures.push([add(row, "td"), add(row, "td")]);
  }
  const last = [grid.cells.length - 1, grid.cells[0].length - 1];
  grid.cells.forEach((cells, i) =>
    cells.forEach((cell, j) => {
      cell.addEventListener("pointerenter", () => select(i, j));
      cell.addEventListener("focus", () => select(i, j));
      cell.addEventListener("keydown", (event) => {
        const target = moved(event, [i, j], last);
        if (!target) return;
        event.preventDefault();
        grid.cells[target[0]][target[1]].focus();
      });
    }),
  );
  return grid;
}

// The largest of the weights that a cell stands for, NaN if there is one, and its place. The weight
// is undefined where none of them is seen.
function largest({weights, seen}, i, j) {
  let found = {row: i * each, column: j * each};
  for (let row = i * each; row < Math.min((i + 1) * each, rows); ++row) {
    for (let column = j * each; column < Math.min((j + 1) * each, columns); ++column) {
      const weight = weights[row][column];
      if (!seen[row][column]) continue;
      if (Number.isNaN(weight)) return {weight, row, column};
      if (!(weight <= found.weight)) found = {weight, row, column};
    }
  }
  return found;
}

function paint(cell, weight, highest) {
  const unseen = weight === undefined;
  cell.classList.toggle("unseen", unseen);
  cell.ariaLabel = unseen ? "not seen" : null;
  if (valued) cell.textContent = unseen ? "" : fixed(weight, 2);
  if (unseen) {
    cell.style.backgroundColor = cell.style.color = "";
    return;
  }
  const color = Number.isNaN(weight) ? data.nan_color : colorAt(weight / highest);
  cell.style.backgroundColor = `rgb(${color.map(Math.round)})`;
  cell.style.color = isBright(color) ? "#000" : "#fff";
}

function showGrid(grid, steps, highest) {
  grid.cells.forEach((cells, i) =>
    cells.forEach((cell, j) => paint(cell, largest(steps, i, j).weight, highest)),
  );
  grid.measures.forEach(([ofPeak, ofEntropy], i) => {
    ofPeak.textContent = fixed(peak(steps.weights[i]), 2);
    ofEntropy.textContent = fixed(entropy(steps.weights[i]), 2);
  });
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

function unselect() {
  for (const {cells} of Object.values(grids))
    cells[current.i][current.j].classList.remove("selected");
  selected = false;
  showCell();
}
