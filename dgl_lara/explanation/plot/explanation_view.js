const $ = id => document.getElementById(id);

// All texts of the data go through textContent and setAttribute: nothing in them can become markup.
function add(parent, tag, attributes = {}, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}
const html = (tag, text) => Object.assign(document.createElement(tag), {textContent: text});
const signed = x => (x < 0 ? "−" : "+") + Math.abs(x).toPrecision(3);
const plain = x => (x < 0 ? "−" : "") + Math.abs(x).toPrecision(3);

// --- what is shown now; `nodes` are the elements of its players: discs, lines or bars
let pick = place => {};  // what happens when a player is clicked, or chosen with Enter
const graph = $("graph"), view = $("view"), tip = $("tip"), slider = $("taken"), curve = $("curve");
let data, nodes, edges, last, important, values, dot, across, up;
const defs = add(graph, "defs");
add(add(defs, "marker", {id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 4, markerHeight: 4,
  orient: "auto"}), "path", {d: "M0 0 8 4 0 8z", fill: "context-stroke"});

const strength = score => Math.min(Math.abs(score) / data.largest, 1);
const radius = player => .3 * (.75 + .25 * Math.sqrt(strength(player.score)));
const coloured = (score, nothing) => `color-mix(in srgb, var(${score < 0 ? "--against" : "--for"}) ` +
  `${(100 * strength(score)).toFixed(1)}%, var(${nothing}))`;

// --- the graph
function lineOf([from, to, oneWay], points) {
  const a = points[from], b = points[to], both = oneWay && data.edges.some(e => e[0] === to && e[1] === from);
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1, short = oneWay ? radius(b) + .03 + (b.target ? .09 : 0) : 0;
  const x = b.x - (b.x - a.x) / length * short, y = b.y - (b.y - a.y) / length * short;
  const bend = both ? .12 : 0;  // an arrow whose opposite is drawn too
  return `M${a.x} ${a.y}Q${(a.x + x) / 2 + (y - a.y) * bend} ${(a.y + y) / 2 - (x - a.x) * bend} ${x} ${y}`;
}
const corners = [[4, .7854, 1.2], [3, 0, 1.35], [4, 0, 1.25], [5, 0, 1.1], [6, .5236, 1.05], [3, 3.1416, 1.35]];
const signs = ["●", "■", "▲", "◆", "⬟", "⬢", "▼"];  // the same shapes in the legend
function outline(parent, shape, r, attributes) {  // a type of node has a shape of its own; the target's is round
  if (!shape) return add(parent, "circle", {r, ...attributes});
  const [sides, turn, scale] = corners[(shape - 1) % corners.length];
  const points = Array.from({length: sides}, (_, corner) => turn + 2 * Math.PI * corner / sides)
    .map(way => `${(-Math.sin(way) * r * scale).toFixed(3)},${(-Math.cos(way) * r * scale).toFixed(3)}`);
  return add(parent, "polygon", {points: points.join(" "), ...attributes});
}
function disc(parent, player, filled) {
  if (player.truth) parent.classList.add("truth");
  if (player.other) parent.classList.add("other");
  if (player.target) outline(parent, player.shape, radius(player) + .09, {class: "halo"});
  outline(parent, player.shape, radius(player), {class: "disc", style: `fill: ${filled}`});
  const mark = player.mark.length > 12 ? player.mark.slice(0, 11) + "…" : player.mark;
  const size = Math.min(.24, 2 * radius(player) * .8 / (.6 * Math.max(mark.length, 1)));
  add(parent, "text", {"font-size": Math.max(size, .1)}, mark);
}
const BAR = 3.6;  // length of the strongest
const shapes = {
  nodes(element, player) {
    element.setAttribute("transform", `translate(${player.x} ${player.y})`);
    if (strength(player.score) > .7) element.classList.add("strong");
    disc(element, player, coloured(player.score, "--nothing"));
  },
  edges(element, player) {
    const d = lineOf(data.edges[player.edge], data.points);
    const line = add(element, "path", {class: "edge", d, style: `stroke: ${coloured(player.score, "--line")}; ` +
      `stroke-width: ${(.03 + (data.players.length > 60 ? .07 : .15) * strength(player.score)).toFixed(3)}`});
    if (data.edges[player.edge][2]) line.setAttribute("marker-end", "url(#arrow)");
    add(element, "path", {class: "hit", d});
  },
  bars(element, player) {
    element.setAttribute("transform", `translate(0 ${player.y})`);
    const long = BAR * strength(player.score), side = player.score < 0 ? 1 : -1;
    add(element, "rect", {x: player.score < 0 ? -long : 0, y: -.2, width: long, height: .4,
      style: `fill: ${coloured(Math.sign(player.score) * data.largest, "--nothing")}`});
    const name = player.mark.length > 34 ? player.mark.slice(0, 33) + "…" : player.mark;
    add(element, "text", {x: side * .1, "font-size": .26, style: `text-anchor: ${side < 0 ? "end" : "start"}`}, name);
    add(element, "text", {x: -side * (long + .1), "font-size": .22, style: `text-anchor: ${side < 0 ? "start" : "end"}`},
      signed(player.score));
  },
};
function drawGraph() {
  view.replaceChildren();
  view.setAttribute("class", data.shape);
  view.classList.toggle("molecule", data.molecule);
  view.classList.toggle("crowded", data.shape === "nodes" && data.edges.length > 100);
  for (const line of data.rings) add(view, "path", {class: "ring", d: "M" + line.map(at => at.join(" ")).join("L")});
  for (const [x, y, words] of data.hops) add(view, "text", {class: "hop", x, y}, words);
  if (data.shape === "bars") add(view, "path", {class: "axis", d: `M0 -.5V${data.bounds[3]}`});
  const playing = new Set(data.shape === "edges" ? data.players.map(player => player.edge) : []);
  const back = new Set(data.faint), points = data.points ?? data.players;
  edges = data.edges.map((edge, row) => {
    if (playing.has(row)) return null;
    const line = add(view, "path", {class: "edge" + (back.has(row) || playing.size ? " back" : ""),
      d: lineOf(edge, points)});
    if (edge[2]) line.setAttribute("marker-end", "url(#arrow)");
    return {line, from: edge[0], to: edge[1]};
  }).filter(Boolean);
  const order = data.players.map((_, place) => place);
  if (data.shape === "edges")  // the strongest lie on top
    order.sort((a, b) => Math.abs(data.players[a].score) - Math.abs(data.players[b].score));
  nodes = [];
  for (const place of order) nodes[place] = element(data.players[place], place);
  for (const point of data.points ?? []) {
    const node = add(view, "g", {class: "point node", transform: `translate(${point.x} ${point.y})`,
      style: "pointer-events: none"});
    disc(node, point, "var(--nothing)");
  }
}
function element(player, place) {
  const node = add(view, "g", {class: "node", role: "img", tabindex: place === 0 ? 0 : -1,
    "aria-label": describe(player).join(", ")});
  shapes[data.shape](node, player);
  node.addEventListener("pointerenter", () => show(place));
  node.addEventListener("pointerleave", hide);
  node.addEventListener("focus", () => show(place));
  node.addEventListener("blur", hide);
  return node;
}

function describe(player) {
  const lines = [player.name, `score ${signed(player.score)}, rank ${player.rank} of ${data.count}`];
  if (player.target) lines.push("the target itself");
  else if (player.hop !== null) lines.push(`${player.hop} hop${player.hop === 1 ? "" : "s"} from the target`);
  if (player.class !== null) lines.push(`predicted class ${player.class}`);
  if (player.truth) lines.push("in the true motif");
  if (player.details.length) lines.push(player.details.join(", "));
  return lines;
}

// --- hover and keyboard: arrows walk to the next player in that direction
function show(place) {
  const [head, ...lines] = describe(data.players[place]);
  tip.replaceChildren(html("b", head), ...lines.map(line => html("span", line)));
  tip.hidden = false;
  const box = nodes[place].getBoundingClientRect(), stage = graph.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(box.right - stage.left + 8, stage.width - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(4, Math.min(box.top - stage.top, stage.height - tip.offsetHeight - 8)) + "px";
}
function hide() { tip.hidden = true; }
const directions = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
graph.addEventListener("keydown", event => {
  const here = nodes.indexOf(document.activeElement), way = directions[event.key];
  if (event.key === "Escape") hide();
  if (event.key === "Enter" && here >= 0) pick(here);
  if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.25 : .8);
  if (event.key === "0") fit();
  if (here < 0 || !way) return;
  event.preventDefault();
  let best = -1, least = Infinity;
  data.players.forEach((player, place) => {
    const dx = player.x - data.players[here].x, dy = player.y - data.players[here].y;
    const along = dx * way[0] + dy * way[1], aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
    if (along > .01 && along + 2 * aside < least) [best, least] = [place, along + 2 * aside];
  });
  if (best < 0) return;
  nodes.forEach((node, place) => { node.tabIndex = place === best ? 0 : -1; });
  nodes[best].focus();
  show(best);
});

// --- pan and zoom: the view box moves
const LARGEST = 64;  // pixels a unit: a graph of three nodes does not fill the window with three discs
let box;
function fit() {
  const [left, top, right, bottom] = data.bounds, stage = graph.getBoundingClientRect();
  const w = Math.max(right - left, stage.width / LARGEST), h = Math.max(bottom - top, stage.height / LARGEST);
  box = {x: (left + right - w) / 2, y: (top + bottom - h) / 2, w, h};
  look();
}
function look() { graph.setAttribute("viewBox", `${box.x} ${box.y} ${box.w} ${box.h}`); }
function zoom(factor, x = box.x + box.w / 2, y = box.y + box.h / 2) {
  box = {x: x - (x - box.x) / factor, y: y - (y - box.y) / factor, w: box.w / factor, h: box.h / factor};
  look();
}
function point(event) { return new DOMPoint(event.clientX, event.clientY).matrixTransform(graph.getScreenCTM().inverse()); }
graph.addEventListener("wheel", event => {
  event.preventDefault();
  const at = point(event);
  zoom(Math.exp(-event.deltaY / 500), at.x, at.y);
}, {passive: false});
let grip = null, pressed = null;  // a press that does not move is a click
graph.addEventListener("pointerdown", event => { grip = point(event); graph.setPointerCapture(event.pointerId);
  const place = nodes.findIndex(node => node.contains(event.target));
  pressed = place < 0 ? null : {place, x: event.clientX, y: event.clientY};
  graph.classList.add("dragging"); });
graph.addEventListener("pointermove", event => {
  if (pressed && Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) > 4) pressed = null;
  if (!grip || pressed) return;
  const now = point(event);
  box.x -= now.x - grip.x; box.y -= now.y - grip.y;
  look();
});
for (const end of ["pointerup", "pointercancel"]) graph.addEventListener(end, () => {
  grip = null; graph.classList.remove("dragging");
  if (pressed && end === "pointerup") pick(pressed.place);
  pressed = null; });
for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", () =>
  +button.dataset.zoom ? zoom(+button.dataset.zoom) : fit());

// --- the slider: to the left the untouched graph; each step takes away more, the least important players first
// ("keep") or the most important ones ("remove")
function drawCurve() {
  last = data.counts.length - 1;
  slider.max = last;
  slider.value = 0;
  important = {keep: data.counts, remove: [...data.counts].reverse()};  // players, at each step of the slider
  values = {keep: data.keep, remove: [...data.remove].reverse()};
  const spread = [...data.keep, ...data.remove, data.output];
  const bottom = Math.min(...spread), top_ = Math.max(...spread), height = top_ - bottom || 1;
  across = i => 40 + 190 * i / Math.max(last, 1);
  up = value => 74 - 64 * (value - bottom) / height;
  curve.replaceChildren();
  add(curve, "path", {class: "axis", d: "M40 4V80H234"});
  for (const mode of ["keep", "remove"])
    add(curve, "path", {class: mode, d: "M" + values[mode].map((v, i) => `${across(i)} ${up(v)}`).join("L")});
  add(curve, "text", {x: 36, y: 13, "text-anchor": "end"}, plain(top_));
  add(curve, "text", {x: 36, y: 78, "text-anchor": "end"}, plain(bottom));
  add(curve, "text", {x: 40, y: 91}, "untouched");
  add(curve, "text", {x: 230, y: 91, "text-anchor": "end"}, "all gone");
  ["keep", "remove"].forEach((mode, row) => {
    add(curve, "path", {class: mode, d: `M240 ${14 + 16 * row}h16`});
    add(curve, "text", {x: 260, y: 17 + 16 * row}, mode);
  });
  dot = add(curve, "circle", {r: 4});
}
function update() {
  const i = +slider.value, mode = document.querySelector("[name=mode]:checked").value, count = important[mode][i];
  const gone = data.players.map(player => !player.target &&
    (mode === "keep" ? player.order >= count : player.order < count));
  nodes.forEach((node, place) => node.classList.toggle("gone", gone[place]));
  if (data.shape === "nodes")
    edges.forEach(({line, from, to}) => line.classList.toggle("gone", gone[from] || gone[to]));
  const value = values[mode][i];
  dot.setAttribute("cx", across(i)); dot.setAttribute("cy", up(value));
  const what = mode === "keep" ? `only the ${count} most important of ${data.removable} ${data.noun}s kept`
    : `the ${count} most important of ${data.removable} ${data.noun}s removed`;
  $("state").textContent = `${what}; ${data.value}${data.class && ` of class ${data.class}`} ${plain(value)} ` +
    `(untouched ${plain(data.output)})`;
  slider.setAttribute("aria-valuetext", $("state").textContent);
}
slider.addEventListener("input", update);
for (const radio of document.querySelectorAll("[name=mode]")) radio.addEventListener("change", update);

// --- legend, and the strongest players as a table
function drawTable() {
  const own = data.players.find(player => player.target), everyone = [...data.players, ...data.points ?? []];
  $("rest").textContent = data.rest;
  $("ends").replaceChildren(html("span", `against ${signed(-data.largest)}`), html("span", `for ${signed(data.largest)}`));
  $("key").replaceChildren(...[own && `ring: the target, its own score ${signed(own.score)}`,
    !own && data.points?.some(p => p.target) && "ring: the target",
    ...(data.types ?? []).map((type, shape) => `${signs[shape % signs.length]} ${type}`),
    everyone.some(p => p.truth) && "green rim: ground truth",
    everyone.some(p => p.other) && `dashed rim: another class than ${data.class_name}`]
    .filter(Boolean).map(text => html("span", text)));
  const byClass = data.players.some(player => player.class !== null);
  document.querySelector("aside thead tr").replaceChildren(...[own ? "node" : data.noun, byClass && "class", "score"].filter(Boolean)
    .map(text => html("th", text)));
  const order = data.players.map((player, place) => place).filter(place => !data.players[place].target)
    .sort((a, b) => Math.abs(data.players[b].score) - Math.abs(data.players[a].score))
    .filter((place, rank) => rank < 12 || data.players[place].named)
    .sort((a, b) => data.players[b].score - data.players[a].score);
  if (own) order.unshift(data.players.indexOf(own));
  $("best").replaceChildren(...order.map(place => {
    const player = data.players[place], row = document.createElement("tr");
    row.append(...[player.name, byClass && player.class, signed(player.score)].filter(text => text !== false)
      .map(text => html("td", text)));
    row.dataset.place = place;
    row.classList.toggle("own", player.target);
    row.addEventListener("pointerenter", () => { nodes[place].classList.add("picked"); show(place); });
    row.addEventListener("pointerleave", () => { nodes[place].classList.remove("picked"); hide(); });
    return row;
  }));
  const more = data.count - order.length, row = document.createElement("tr");
  if (!more) return;
  row.append(html("td", `(${more.toLocaleString("en")} more)`));  // between those for and those against
  row.firstChild.colSpan = 2 + byClass;
  $("best").insertBefore(row, $("best").children[order.findIndex((place, at) =>
    data.players[place].score < 0 && !data.players[place].target)] ?? null);
}

// --- all of it
function showExplanation(shown) {
  data = shown;
  hide();
  drawGraph();
  drawCurve();
  drawTable();
  fit();
  update();
}
addEventListener("resize", () => { if (data) fit(); });
