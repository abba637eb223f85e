// SPDX-License-Identifier: MIT
// Text fields for numbers. What is no complete number, or out of range, is not taken.
"use strict";

const complete = /^\s*[+\-−]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i;
const parse = (text) => (complete.test(text) ? Number(text.replace("−", "-")) : NaN);

// Calls take(number) while a number is typed; where it stops being one, with the number from before
// the edit. A line below the divisor says then what was expected.
function numberField(input, {name, low, high, text = String, take}) {
  let inForce, before;
  const [least, most] = [low ?? -Number.MAX_VALUE, high ?? Number.MAX_VALUE];
  const valid = (number) => number >= least && number <= most;
  const expected =
    high === undefined
      ? "a number such as −2.5 or 1e3, below 1.8e308"
      : `a number from ${low} to ${high}`;

  function fit() {
    input.style.width = `calc(${Math.min(Math.max(input.value.length, 4), 24)}ch + 1.5rem)`;
    input.title = input.value.length > 6 ? input.value : "";
  }
  function judge() {
    const right = valid(parse(input.value)) || input.value === text(inForce);
    input.setAttribute("aria-invalid", String(!right));
    element("expected").textContent = right
      ? ""
      : `${name}: expected ${expected}, got “${input.value}”; it stays ${text(inForce)}.`;
  }
  function restore() {
    input.value = text(inForce);
    fit();
    judge();
  }

  Object.assign(input, {type: "text", autocomplete: "off", spellcheck: false});
  input.setAttribute("aria-describedby", "expected");
  input.addEventListener("focus", () => {
    before = inForce;
    judge();
  });
  input.addEventListener("input", () => {
    const typed = parse(input.value);
    const number = valid(typed) ? typed : before;
    if (!Object.is(number, inForce)) take((inForce = number));
    fit();
    judge();
  });
  input.addEventListener("change", () => {
    before = inForce;
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") restore();
  });
  return {
    // A number that came from elsewhere replaces what is typed.
    show(number, anew = false) {
      if (Object.is(number, inForce) && !anew) return;
      inForce = before = number;
      input.value = text(number);
      fit();
      if (input.getAttribute("aria-invalid") === "true") judge();
    },
  };
}
