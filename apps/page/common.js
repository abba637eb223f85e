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
  const text = number.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

function add(parent, tag, properties = {}) {
  return parent.appendChild(Object.assign(document.createElement(tag), properties));
}
