// SPDX-License-Identifier: MIT
// Grids of weights: their layout, cells and colours.
//
// Provides  gridLayout, largestWeight, makeGrid.
// Needs     common.js (add, fixed, moved), tables.js (addFigure), attention.js (peak, entropy).
"use strict";

// The layout of a grid for weights of this shape.
//   each      a cell shows the largest of up to each x each weights
//   valued    the cells contain their values
//   labelled  rows and columns have labels, and rows have measures
//   named     the labels of the columns contain the word "key"
function gridLayout(rows, columns) {
  const size = Math.max(rows, columns);
  return {
    rows,
    columns,
    each: Math.ceil(size / 64),
    valued: size <= 12,
    labelled: size <= 32,
    named: columns <= 6,
  };
}

// The largest visible weight of cell (i, j) and its place; NaN if one of them is NaN, undefined if
// all keys of the cell are hidden.
function largestWeight({rows, columns, each}, {weights, visible}, i, j) {
  let found = {row: i * each, column: j * each};
  for (let row = i * each; row < Math.min((i + 1) * each, rows); ++row) {
    for (let column = j * each; column < Math.min((j + 1) * each, columns); ++column) {
      const weight = weights[row][column];
      if (!visible[row][column]) continue;
      if (Number.isNaN(weight)) return {weight, row, column};
      if (!(weight <= found.weight)) found = {weight, row, column};
    }
  }
  return found;
}

// Whether black text is more legible on this colour than white text (relative luminance of WCAG 2).
function isBright(color) {
  const [r, g, b] = color.map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179;
}

function addHead(table, {columns, each, labelled, named}) {
  const head = add(add(table, "thead"), "tr");
  add(head, "th", {className: "corner", scope: "col", textContent: "query"});
  for (let j = 0; j < columns; j += each) {
    add(head, "th", {
      scope: "col",
      textContent: named ? `key ${j}` : j,
      ariaLabel: `key ${j}`,
    });
  }
  if (!labelled) return;
  for (const [name, title] of [
    ["peak", "largest weight of the row"],
    ["entropy", "how evenly the weights of the row are spread, in nats"],
  ])
    add(head, "th", {className: "measure", scope: "col", textContent: name, title});
}

// Appends a grid, in which the arrow keys move the focus from cell to cell.
//   colorOf   the colour [r, g, b] of a weight, given the weight and the highest weight
//   onSelect  called with the row and column of a cell that is pointed at or focused
function makeGrid(parent, {caption, layout, colorOf, onSelect}) {
  const {rows, columns, each, valued, labelled, named} = layout;
  const {figcaption, table} = addFigure(parent, caption);
  const kind = !labelled ? "dense" : !valued ? "fine" : named ? "" : "many";
  table.className = `grid ${kind}`;
  table.setAttribute("role", "grid");
  table.style.setProperty("--columns", columns);
  addHead(table, layout);
  const body = add(table, "tbody");
  const cells = [], // cells[i][j]
    measured = []; // measured[i]: the elements for peak and entropy
  for (let i = 0; i < rows; i += each) {
    const row = add(body, "tr");
    add(row, "th", {scope: "row", textContent: i});
    cells.push([]);
    for (let j = 0; j < columns; j += each) cells.at(-1).push(add(row, "td", {tabIndex: -1}));
    if (labelled) measured.push([add(row, "td"), add(row, "td")]);
  }
  const last = [cells.length - 1, cells[0].length - 1];
  cells.forEach((row, i) =>
    row.forEach((cell, j) => {
      cell.addEventListener("pointerenter", () => onSelect(i, j));
      cell.addEventListener("focus", () => onSelect(i, j));
      cell.addEventListener("keydown", (event) => {
        const target = moved(event, [i, j], last);
        if (!target) return;
        event.preventDefault();
        cells[target[0]][target[1]].focus();
      });
    }),
  );

  function paint(cell, weight, highest) {
    const hidden = weight === undefined;
    cell.classList.toggle("masked", hidden);
    cell.ariaLabel = hidden ? "hidden" : null;
    if (valued) cell.textContent = hidden ? "" : fixed(weight, 2);
    if (hidden) {
      cell.style.backgroundColor = cell.style.color = "";
      return;
    }
    const color = colorOf(weight, highest);
    cell.style.backgroundColor = `rgb(${color.map(Math.round)})`;
    cell.style.color = isBright(color) ? "#000" : "#fff";
  }

  let current = cells[0][0]; // the only cell in the tab order
  return {
    // Shows the weights under this title, in colours from 0 to `highest`.
    show(steps, highest, title) {
      figcaption.textContent = title;
      table.setAttribute("aria-label", title);
      cells.forEach((row, i) =>
        row.forEach((cell, j) => paint(cell, largestWeight(layout, steps, i, j).weight, highest)),
      );
      measured.forEach(([ofPeak, ofEntropy], i) => {
        ofPeak.textContent = fixed(peak(steps.weights[i]), 2);
        ofEntropy.textContent = fixed(entropy(steps.weights[i]), 2);
      });
    },
    // Puts cell (i, j) into the tab order, marked or not.
    setCurrent(i, j, isMarked) {
      current.tabIndex = -1;
      current.classList.remove("selected");
      current = cells[i][j];
      current.tabIndex = 0;
      current.classList.toggle("selected", isMarked);
    },
    setLabel(i, j, label) {
      cells[i][j].ariaLabel = label;
    },
  };
}
