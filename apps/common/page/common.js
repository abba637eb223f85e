// SPDX-License-Identifier: MIT
// What all pages share: their data, numbers as text, the colour scale, elements, keys.
//
// Provides  element, pageData, numbers, fixed, colorAt, add, moved, keepScrollClear.
// Needs     an element #data with the data of the page as JSON.
"use strict";

const element = (id) => document.getElementById(id);
const pageData = () => JSON.parse(element("data").textContent);

// JSON has no infinity and no NaN: apps/common/report.cpp writes them as strings.
const nonFinite = {nan: NaN, inf: Infinity, "-inf": -Infinity};
const numbers = (list) => (Array.isArray(list) ? list.map(numbers) : (nonFinite[list] ?? list));

// The number with so many decimals; in scientific notation from 1e6 on.
function fixed(number, digits) {
  if (!Number.isFinite(number)) return Number.isNaN(number) ? "NaN" : number > 0 ? "∞" : "−∞";
  if (Math.abs(number) >= 1e6)
    return number.toExponential(Math.min(digits - 1, 3)).replace("e+", "e").replace(/^-/, "−");
  const text = number.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

// The colour [r, g, b] at a position from 0 to 1, interpolated as in src/figures/color_scale.cpp.
function colorAt(colors, position) {
  const place = Math.min(Math.max(position, 0), 1) * (colors.length - 1);
  const below = Math.min(Math.floor(place), colors.length - 2);
  return colors[below].map((from, i) => from + (place - below) * (colors[below + 1][i] - from));
}

// Appends a new element with these properties to the parent and returns it.
function add(parent, tag, properties = {}) {
  return parent.appendChild(Object.assign(document.createElement(tag), properties));
}

// The cell [row, column] that a key leads to in a grid, or undefined for any other key.
function moved(event, [row, column], [lastRow, lastColumn], endOfRow = lastColumn) {
  const far = event.ctrlKey || event.metaKey;
  const target = {
    ArrowUp: [row - 1, column],
    ArrowDown: [row + 1, column],
    ArrowLeft: [row, column - 1],
    ArrowRight: [row, column + 1],
    PageUp: [row - 8, column],
    PageDown: [row + 8, column],
    Home: far ? [0, 0] : [row, 0],
    End: far ? [lastRow, lastColumn] : [row, endOfRow],
  }[event.key];
  const within = (place, last) => Math.min(Math.max(place, 0), last);
  return target && [within(target[0], lastRow), within(target[1], lastColumn)];
}

// Elements that Tab or an arrow key scrolls into view end up between the two sticky bars.
function keepScrollClear({top, bottom}) {
  for (const [bar, side] of [
    [top, "scrollPaddingTop"],
    [bottom, "scrollPaddingBottom"],
  ]) {
    new ResizeObserver(() => {
      document.documentElement.style[side] = `${bar.offsetHeight + 12}px`;
    }).observe(bar);
  }
}
