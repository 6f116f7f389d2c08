// Sorts and filters the tables of a report. Without it the page shows the same rows, as they were reported.
"use strict";

const tables = [...document.querySelectorAll("main table[data-name]")].map(readTable);
const form = document.querySelector("form.filter");

for (const table of tables) {
  table.heads.forEach((head, column) => makeSortable(table, head, column));
}
if (tables.length) {
  form.hidden = false;
  form.addEventListener("input", filterRows);
  form.addEventListener("submit", (event) => event.preventDefault());
  // A form is reset after its event.
  form.addEventListener("reset", () => setTimeout(filterRows));
  filterRows();
}
window.addEventListener("hashchange", openTarget);
openTarget();

function readTable(element) {
  const rows = [...element.tBodies[0].rows].map((row) => ({
    row,
    words: row.textContent.toLowerCase(),
    cells: [...row.cells],
  }));
  return {
    element,
    rows,
    heads: [...element.tHead.rows[0].cells],
    shown: element.querySelector(".shown"),
  };
}

// ---- sorting ----

function makeSortable(table, head, column) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const next = { ascending: "descending", descending: null }[head.ariaSort];
    sortRows(table, column, next === undefined ? "ascending" : next);
  });
}

// Orders the rows by a column; a direction of null brings back the order of the report.
function sortRows(table, column, direction) {
  for (const head of table.heads) head.removeAttribute("aria-sort");
  let rows = table.rows;
  if (direction) {
    table.heads[column].ariaSort = direction;
    const sign = direction === "ascending" ? 1 : -1;
    const compare = comparison(table, column);
    const known = rows.filter((row) => compare.knows(row));
    known.sort((a, b) => sign * compare.order(a, b));
    rows = [...known, ...rows.filter((row) => !compare.knows(row))];
  }
  table.element.tBodies[0].append(...rows.map((row) => row.row));
}

// What is not known has no place in an order: it stays below it in both directions. So does a word among numbers.
function comparison(table, column) {
  const value = (row) => row.cells[column].dataset.value;
  const isNumber = (row) => value(row) !== undefined && value(row).trim() !== "" && !Number.isNaN(Number(value(row)));
  const given = table.rows.filter((row) => value(row) !== undefined);
  const numeric = given.some(isNumber) && (!table.heads[column].matches(".words") || given.every(isNumber));
  if (numeric) {
    return { knows: isNumber, order: (a, b) => Number(value(a)) - Number(value(b)) || 0 };
  }
  const collator = new Intl.Collator("en", { numeric: true });
  return { knows: (row) => Boolean(value(row)), order: (a, b) => collator.compare(value(a), value(b)) };
}

// ---- filtering ----

function filterRows() {
  const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const choices = [...form.querySelectorAll("select")].filter((select) => select.value);
  let shown = 0;
  let total = 0;
  for (const table of tables) {
    const columns = choices
      .map((select) => [table.heads.findIndex((head) => head.dataset.name === select.name), select.value])
      .filter(([column]) => column >= 0);
    let count = 0;
    for (const { row, cells, words: text } of table.rows) {
      const fits =
        words.every((word) => text.includes(word)) &&
        columns.every(([column, chosen]) => cells[column].textContent === chosen);
      row.hidden = !fits;
      count += fits;
    }
    table.shown.textContent = count < table.rows.length ? `${count} of ${table.rows.length} rows` : "";
    shown += count;
    total += table.rows.length;
  }
  form.querySelector("output").value = `${shown} of ${total} rows shown`;
}

// ---- links ----

// A browser opens what a link leads into only if it is new enough.
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const details = target?.closest("details");
  if (details) details.open = true;
}
