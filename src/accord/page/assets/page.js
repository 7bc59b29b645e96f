"use strict";
// Sorts the rows of a table by a column. References, in a body of their own, stay at the end.
function key(cell) {
  return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
}
function compare(one, two) {
  const number = typeof one === "number", other = typeof two === "number";
  if (number !== other) return number ? -1 : 1;
  return number ? one - two : one.localeCompare(two, undefined, { numeric: true });
}
function sort(table, index, head) {
  const down = head.getAttribute("aria-sort") === "descending";
  for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "ascending" : "descending");
  for (const body of table.tBodies) {
    const rows = [...body.rows].sort((a, b) => compare(key(a.cells[index]), key(b.cells[index])));
    body.append(...(down ? rows : rows.reverse()));
  }
}
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows].at(-1).cells;
  [...heads].forEach((head, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(table, index, head));
  });
}
// A link to something inside closed details opens them.
function reveal() {
  let place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (; place; place = place.parentElement) if (place.tagName === "DETAILS") place.open = true;
}
addEventListener("hashchange", reveal);
reveal();
// On a narrow screen the list of contents is closed at first.
if (matchMedia("(max-width: 64rem)").matches) {
  for (const list of document.querySelectorAll(".contents")) list.open = false;
}
// Marks the section that is being read in the list of contents.
const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    for (const link of links.values()) link.removeAttribute("aria-current");
    links.get(entry.target.id)?.setAttribute("aria-current", "true");
  }
}, { rootMargin: "-10% 0px -80% 0px" });
for (const section of document.querySelectorAll("main > section")) seen.observe(section);
