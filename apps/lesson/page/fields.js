// SPDX-License-Identifier: MIT
// Text fields for numbers. The page ignores text that is not a complete number in the valid range.
//
// Provides  parseNumber, numberField, makeFields.
// Needs     common.js (add), tables.js (addFigure).
"use strict";

const complete = /^\s*[+\-−]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i;
const parseNumber = (text) => (complete.test(text) ? Number(text.replace("−", "-")) : NaN);

// Turns an input element into a field for numbers from `low` to `high`.
//   name      the name of the number in error messages
//   text      formats a number for the field
//   message   the element that shows error messages
//   onChange  called with each new number while it is typed. If the text becomes invalid, it is
//             called with the number from before the edit.
// Returns {show}, which replaces the number.
function numberField(input, {name, low, high, text = String, message, onChange}) {
  let current, before; // the number in use, and the number when the edit began
  const [least, most] = [low ?? -Number.MAX_VALUE, high ?? Number.MAX_VALUE];
  const isValid = (number) => number >= least && number <= most;
  const expected =
    high === undefined
      ? "a number such as −2.5 or 1e3, below 1.8e308"
      : `a number from ${low} to ${high}`;

  function fitWidth() {
    input.style.width = `calc(${Math.min(Math.max(input.value.length, 4), 24)}ch + 1.5rem)`;
    input.title = input.value.length > 6 ? input.value : "";
  }
  function validate() {
    const valid = isValid(parseNumber(input.value)) || input.value === text(current);
    input.setAttribute("aria-invalid", String(!valid));
    message.textContent = valid
      ? ""
      : `${name}: expected ${expected}, got “${input.value}”; the page uses ${text(current)}.`;
  }
  function restore() {
    input.value = text(current);
    fitWidth();
    validate();
  }

  Object.assign(input, {type: "text", autocomplete: "off", spellcheck: false});
  input.setAttribute("aria-describedby", message.id);
  input.addEventListener("focus", () => {
    before = current;
    validate();
  });
  input.addEventListener("input", () => {
    const typed = parseNumber(input.value);
    const number = isValid(typed) ? typed : before;
    if (!Object.is(number, current)) onChange((current = number));
    fitWidth();
    validate();
  });
  input.addEventListener("change", () => {
    before = current;
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") restore();
  });
  return {
    // Keeps the typed text if the number is the current one, unless `force` is set.
    show(number, force = false) {
      if (Object.is(number, current) && !force) return;
      current = before = number;
      input.value = text(number);
      fitWidth();
      if (input.getAttribute("aria-invalid") === "true") validate();
    },
  };
}

// Appends a table of fields for a matrix of `rows` by `columns` numbers.
//   onChange  called with the row, the column and the new number
// Returns the rows of the table, and {show}, which replaces the matrix.
function makeFields(parent, {name, rows, columns, message, onChange}) {
  const {table} = addFigure(parent, name);
  const fields = Array.from({length: rows}, (_, i) => {
    const row = add(table, "tr");
    return Array.from({length: columns}, (_, j) => {
      const label = `${name}, row ${i}, column ${j}`;
      const input = add(add(row, "td"), "input", {ariaLabel: label});
      return numberField(input, {
        name: label,
        message,
        onChange: (number) => onChange(i, j, number),
      });
    });
  });
  return {
    rows: [...table.rows],
    show: (matrix, force) =>
      fields.forEach((row, i) => row.forEach((field, j) => field.show(matrix[i][j], force))),
  };
}
