// SPDX-License-Identifier: MIT
// Tables of numbers with a caption.
//
// Provides  addFigure, makeTable.
// Needs     common.js (add, fixed).
"use strict";

// Appends a captioned, empty table to the parent.
function addFigure(parent, caption) {
  const figure = add(parent, "figure");
  const figcaption = add(figure, "figcaption", {textContent: caption});
  return {figcaption, table: add(add(figure, "div", {className: "wide"}), "table")};
}

// Appends a table. Returns a function that shows a matrix in it.
function makeTable(parent, caption) {
  const {figcaption, table} = addFigure(parent, caption);
  return (matrix, title = caption) => {
    figcaption.textContent = title;
    table.replaceChildren();
    for (const entries of matrix) {
      const row = add(table, "tr");
      for (const entry of entries) add(row, "td", {textContent: fixed(entry, 4)});
    }
  };
}
