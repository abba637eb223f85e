// SPDX-License-Identifier: MIT
// What the pages share: their data, colours, numbers, elements.
"use strict";

const element = (id) => document.getElementById(id);
const data = JSON.parse(element("data").textContent);

// Numbers as apps/report.cpp writes them: JSON has no infinity and no NaN.
const offScale = {nan: NaN, inf: Infinity, "-inf": -Infinity};
const numbers = (list) => (Array.isArray(list) ? list.map(numbers) : (offScale[list] ?? list));

// src/color_scale.cpp
function colorAt(position) {
  const place = Math.min(Math.max(position, 0), 1) * (data.colors.length - 1);
  const below = Math.min(Math.floor(place), data.colors.length - 2);
  return data.colors[below].map(
    (from, i) => from + (place - below) * (data.colors[below + 1][i] - from),
  );
}

function fixed(number, digits) {
  if (!Number.isFinite(number)) return Number.isNaN(number) ? "NaN" : number > 0 ? "∞" : "−∞";
  if (Math.abs(number) >= 1e6)
    return number.toExponential(Math.min(digits - 1, 3)).replace("e+", "e").replace(/^-/, "−");
  const text = number.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

function add(parent, tag, properties = {}) {
  return parent.appendChild(Object.assign(document.createElement(tag), properties));
}

// The cell of a grid that a key leads to, if any.
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

// What is scrolled to, by Tab or by an arrow key, ends up clear of the bars that stay in view.
for (const [id, side] of [
  ["controls", "scrollPaddingTop"],
  ["cell", "scrollPaddingBottom"],
]) {
  const bar = element(id);
  new ResizeObserver(() => {
    document.documentElement.style[side] = `${bar.offsetHeight + 12}px`;
  }).observe(bar);
}
