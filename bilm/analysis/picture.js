// The page of a picture: draws the panels, and selects and lists occurrences.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const SHAPES = [  // of radius 1: circle, triangle, square, diamond, cross
  "M-1 0A1 1 0 1 1 1 0A1 1 0 1 1 -1 0Z", "M0-1.2L1.1 .8H-1.1Z", "M-.9-.9H.9V.9H-.9Z",
  "M0-1.3L1.1 0 0 1.3-1.1 0Z", "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
];
const COLOURS = 7, LISTED = 20, REACH = 22;
const RADIUS = Math.min(11, Math.max(5, 250 / Math.sqrt(data.rows.length)));
const chosen = {kind: null, brush: null, text: ""};
const panels = [...document.querySelectorAll(".panel")];
const tip = document.getElementById("tip");

function shape(kind, radius, x = 0, y = 0) {
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const own = kind < data.coloured;
  path.setAttribute("d", SHAPES[own ? Math.floor(kind / COLOURS) : 0]);
  path.setAttribute("transform", `translate(${x} ${y}) scale(${radius})`);
  path.setAttribute("fill", own ? `var(--c${kind % COLOURS})` : "var(--grey)");
  return path;
}

function swatches(root) {
  for (const svg of root.querySelectorAll(".swatch:empty"))
    svg.append(shape(+svg.dataset.kind, 5, 6, 6));
}

function element(name, className, text) {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

function line([kind, left, word, right]) {
  const item = document.createElement("li");
  item.innerHTML = `<span class="mark"><svg class="swatch" data-kind="${kind}"></svg></span>
    <span class="left"><bdi></bdi></span>`;
  item.querySelector("bdi").textContent = left;
  item.append(" ", element("b", "", word), " ", element("span", "right", right));
  return item;
}

// Selecting

function matches(row, number) {
  return (chosen.kind === null || row[0] === chosen.kind)
    && (chosen.brush === null || chosen.brush.has(number))
    && `${row[1]} ${row[2]} ${row[3]}`.toLowerCase().includes(chosen.text);
}

function update() {
  const found = data.rows.filter(matches), isAll = found.length === data.rows.length;
  for (const panel of panels)
    panel.dots.forEach((dot, k) => dot.classList.toggle("off", !matches(data.rows[k], k)));
  for (const button of document.querySelectorAll(".legend button"))
    button.setAttribute("aria-pressed", +button.dataset.kind === chosen.kind);
  const section = document.getElementById("found"), list = section.querySelector("ul");
  section.hidden = isAll && !chosen.text;
  document.getElementById("typical").hidden = !section.hidden;
  const n = found.length, first = n > LISTED ? `, the first ${LISTED}` : "";
  section.querySelector("h2").textContent = n
    ? `${n.toLocaleString("en")} ${n === 1 ? "sentence" : "sentences"}${first}`
    : chosen.text ? `No selected sentence contains “${chosen.text}”.` : "Nothing is selected.";
  list.replaceChildren(...found.slice(0, LISTED).map(line));
  swatches(list);
}

for (const button of document.querySelectorAll(".legend button"))
  button.addEventListener("click", () => {
    chosen.kind = chosen.kind === +button.dataset.kind ? null : +button.dataset.kind;
    update();
  });
const form = document.querySelector("form");
form.addEventListener("submit", event => event.preventDefault());
form.search.addEventListener("input", () => {
  chosen.text = form.search.value.trim().toLowerCase();
  update();
});
form.layer?.addEventListener("change", () => {
  const only = form.layer.selectedIndex - 1;
  panels.forEach((panel, k) => { panel.parentElement.hidden = only >= 0 && k !== only; });
  document.querySelector(".panels").classList.toggle("one", only >= 0);
});

// Pointing and drawing rectangles

function place(panel, event) {
  const box = panel.getBoundingClientRect(), scale = 1060 / box.width;
  return [(event.clientX - box.left) * scale - 30, (event.clientY - box.top) * scale - 30];
}

function nearest(points, [x, y]) {
  let best = -1, least = REACH * REACH;
  for (let k = 0; k < points.length / 2; k++) {
    const distance = (points[2 * k] - x) ** 2 + (points[2 * k + 1] - y) ** 2;
    if (distance < least && matches(data.rows[k], k)) [best, least] = [k, distance];
  }
  return best;
}

function sentence([, left, word, right], width = 1000) {
  const item = document.createElement("p");
  const before = left.length > width ? `…${left.slice(-width)}` : left;
  const after = right.length > width ? `${right.slice(0, width)}…` : right;
  item.append(before, " ", element("b", "", word), " ", after);
  return item;
}

function point(panel, values, event) {
  const number = nearest(values.points, place(panel, event));
  panel.querySelector(".near")?.classList.remove("near");
  tip.hidden = number < 0;
  if (number < 0) return;
  panel.dots[number].classList.add("near");
  const row = data.rows[number], near = values.near[number];
  tip.replaceChildren(sentence(row));
  if (data.kinds.length > 1) tip.append(element("p", "hint", data.kinds[row[0]]));
  for (let k = 0; k < near.length; k += 2) {
    const other = sentence(data.rows[near[k]], 45);
    other.prepend(`${(near[k + 1] / 100).toFixed(2)}  `);
    tip.append(other);
  }
  const {width, height} = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - width - 8);
  const below = event.clientY + 18;
  tip.style.left = `${Math.max(8, x)}px`;
  tip.style.top = `${below + height < innerHeight ? below : event.clientY - height - 12}px`;
}

function brush(panel, values, start) {
  const rectangle = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  rectangle.setAttribute("class", "brush");
  panel.append(rectangle);
  let low = start, high = start;
  function move(event) {
    const end = place(panel, event);
    low = [Math.min(start[0], end[0]), Math.min(start[1], end[1])];
    high = [Math.max(start[0], end[0]), Math.max(start[1], end[1])];
    for (const [name, value] of Object.entries(
      {x: low[0], y: low[1], width: high[0] - low[0], height: high[1] - low[1]}))
      rectangle.setAttribute(name, value);
  }
  function end() {
    removeEventListener("pointermove", move);
    removeEventListener("pointerup", end);
    const drawn = high[0] - low[0] > 8 && high[1] - low[1] > 8;
    if (!drawn) rectangle.remove();
    const inside = data.rows.map((_, k) => k).filter(k => {
      const [x, y] = values.points.slice(2 * k, 2 * k + 2);
      return low[0] <= x && x <= high[0] && low[1] <= y && y <= high[1];
    });
    chosen.brush = drawn ? new Set(inside) : null;
    update();
  }
  addEventListener("pointermove", move);
  addEventListener("pointerup", end);
}

panels.forEach((panel, number) => {
  const values = data.panels[number];
  panel.dots = data.rows.map(([kind], k) =>
    shape(kind, RADIUS, values.points[2 * k], values.points[2 * k + 1]));
  panel.append(...panel.dots);
  panel.addEventListener("pointermove", event => point(panel, values, event));
  panel.addEventListener("pointerleave", () => {
    tip.hidden = true;
    panel.querySelector(".near")?.classList.remove("near");
  });
  panel.addEventListener("pointerdown", event => {
    document.querySelectorAll(".brush").forEach(old => old.remove());
    point(panel, values, event);
    // A finger scrolls the page.
    if (event.pointerType !== "touch") brush(panel, values, place(panel, event));
  });
});
swatches(document);
