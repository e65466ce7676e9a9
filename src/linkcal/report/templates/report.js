"use strict";
const table = document.getElementById("results"), body = table.tBodies[0];
const number = (cell) => { const found = parseFloat(cell.textContent.replace(/,/g, "")); return isNaN(found) ? -Infinity : found; };
table.querySelectorAll("thead th").forEach((head, place) => {
  head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending", sign = down ? 1 : -1;
    table.querySelectorAll("thead th").forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].sort((a, b) => sign * (place === 0
      ? b.cells[0].textContent.localeCompare(a.cells[0].textContent) : number(b.cells[place]) - number(a.cells[place])));
    body.append(...rows);
  });
});
const choose = document.getElementById("choose");
if (choose) {
  const curve = JSON.parse(choose.dataset.curve), get = (id) => document.getElementById(id);
  const logit = (p) => Math.log(p) - Math.log1p(-p), percent = (p) => (100 * p).toPrecision(4) + " %";
  const show = () => {
    const at = Number(get("threshold").value), rate = Number(get("rate").value) / 100;
    if (!(rate > 0 && rate < 1)) { return; }
    const links = rate * curve.tpr[at], others = (1 - rate) * curve.fpr[at];
    get("shown").textContent = percent(1 / (1 + Math.exp(logit(curve.rate) - logit(rate) - curve.logit[at])));
    get("precision").textContent = links + others > 0 ? percent(links / (links + others)) : "no pair";
    get("recall").textContent = percent(curve.tpr[at]);
  };
  get("threshold").addEventListener("input", show);
  get("rate").addEventListener("input", show);
  show();
}
