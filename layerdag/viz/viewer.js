"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (name) => document.getElementById(name);
const canvas = $("canvas"), pen = canvas.getContext("2d"), map = $("map"), mapPen = map.getContext("2d");
const panel = $("node"), search = $("search");
const DX = 168, DY = 64, BOX = 156, TALL = 28;
const { id, label, kind, timing } = data;
const onPath = new Set(timing ? timing.path : []);
const spent = timing ? timing.end.map((end, n) => end - timing.start[n]) : [];

let scale = 1, left = 0, top_ = 0, chosen = -1, found = [], at = 0, waiting = false;
let graph, touching, byLayer, overview, colors = {};

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const sx = (v) => v * DX * scale + left, sy = (v) => v * DY * scale + top_;
const short = (text) => text.length > 21 ? text.slice(0, 9) + "…" + text.slice(-11) : text;
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

function readColors() {
  for (const name of ["paper", "card", "ink", "soft", "rule", "edge", "accent", "critical", "frame"])
    colors[name] = css("--" + name);
  colors.slot = Array.from({ length: 8 }, (_, k) => css("--k" + k));
}

function timeText(us) {
  const [value, unit] = us < 1000 ? [us, "us"] : us < 1e6 ? [us / 1e3, "ms"] : [us / 1e6, "s"];
  return `${Number(value.toPrecision(3)).toLocaleString("en")} ${unit}`;
}

// ---- which drawing: every node, or each repeated block once

function show(drawing) {
  graph = drawing;
  const count = graph.x.length;
  touching = Array.from({ length: count }, () => []);
  graph.source.forEach((from, e) => { touching[from].push(e); touching[graph.target[e]].push(e); });
  byLayer = [];
  for (let n = 0; n < count; n++) (byLayer[graph.y[n]] ||= []).push(n);
  measure();
  chosen = -1; found = []; at = 0; search.value = "";
  $("found").textContent = "";
  describe(-1);
  fit();
}

// Times of what is drawn: those of all copies together.
function measure() {
  const count = graph.x.length;
  graph.critical = new Float64Array(count);
  graph.spent = new Float64Array(count);
  if (!timing) return;
  const of = graph.of;
  for (let n = 0; n < id.length; n++) {
    const m = of ? of[n] : n;
    graph.spent[m] += spent[n];
    if (onPath.has(n)) graph.critical[m]++;
  }
  graph.most = Math.max(...graph.spent, 1e-9);
}

const nameOf = (n) => (graph.names ? graph.names[n] : label[graph.row[n]]) || id[graph.row[n]];
const copies = (n) => graph.copies ? graph.copies[n] : 1;

function colorOf(n) {
  if ($("color").value === "kind") return colors.slot[data.slots[kind[graph.row[n]]]];
  const share = Math.sqrt(graph.spent[n] / graph.most);
  return `color-mix(in srgb, ${colors.critical} ${Math.round(100 * share)}%, ${colors.rule})`;
}

// ---- drawing

function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

function trace(e) {
  const { x, y, source, target, ptr, routeX, routeY } = graph;
  let px = sx(x[source[e]]), py = sy(y[source[e]]);
  pen.moveTo(px, py);
  for (let p = ptr[e]; p <= ptr[e + 1]; p++) {
    const last = p === ptr[e + 1];
    const qx = sx(last ? x[target[e]] : routeX[p]), qy = sy(last ? y[target[e]] : routeY[p]);
    pen.bezierCurveTo(px, (py + qy) / 2, qx, (py + qy) / 2, qx, qy);
    px = qx; py = qy;
  }
}

function visible(e) {
  return sy(graph.y[graph.target[e]]) > -40 && sy(graph.y[graph.source[e]]) < canvas.clientHeight + 40;
}

function drawEdges(list, color, width) {
  for (const wanted of [false, true]) {
    pen.beginPath();
    for (const e of list) if (!!graph.dashed[e] === wanted && visible(e)) trace(e);
    pen.setLineDash(wanted ? [5, 4] : []);
    pen.strokeStyle = color; pen.lineWidth = width; pen.stroke();
  }
  pen.setLineDash([]);
}

// From one copy of a block to the next: back up on the side of the block.
function drawBack() {
  if (!graph.back) return;
  pen.beginPath();
  graph.back[0].forEach((from, e) => {
    const to = graph.back[1][e];
    const ax = sx(graph.x[from]), ay = sy(graph.y[from]), bx = sx(graph.x[to]), by = sy(graph.y[to]);
    const side = Math.max(ax, bx) + BOX * scale * 0.62;
    pen.moveTo(ax, ay);
    pen.bezierCurveTo(side, ay + 30 * scale, side, by - 30 * scale, bx, by);
  });
  pen.setLineDash([2, 4]);
  pen.strokeStyle = colors.accent; pen.lineWidth = 1.2; pen.stroke();
  pen.setLineDash([]);
}

function drawFrames() {
  if (!graph.blocks) return;
  pen.textAlign = "left"; pen.textBaseline = "bottom";
  pen.font = `600 ${Math.max(11, Math.min(15, 26 * scale))}px system-ui, sans-serif`;
  const taken = [];
  for (const block of graph.blocks) {
    const xs = block.nodes.map((n) => graph.x[n]), ys = block.nodes.map((n) => graph.y[n]);
    const grow = block.outer ? 0.1 : 0;
    const x0 = sx(Math.min(...xs) - 0.55 - grow), x1 = sx(Math.max(...xs) + 0.55 + grow);
    const y0 = sy(Math.min(...ys) - 0.42 - grow), y1 = sy(Math.max(...ys) + 0.42 + grow);
    pen.beginPath();
    pen.roundRect(x0, y0, x1 - x0, y1 - y0, 10 * scale);
    pen.fillStyle = colors.frame; pen.fill();
    pen.strokeStyle = colors.accent; pen.lineWidth = 1; pen.stroke();
    pen.fillStyle = colors.accent;
    const words = `${block.count.toLocaleString("en")} × ${plural(block.period, "node")}`;
    const aside = x1 - x0 < 220, at = [aside ? x1 + 4 : x0, aside ? y0 + 18 : y0 - 2];
    while (taken.some(([x, y]) => Math.abs(x - at[0]) < 110 && Math.abs(y - at[1]) < 15)) at[1] += 15;
    taken.push(at);
    pen.fillText(words, at[0], at[1]);
  }
}

function draw() {
  const ratio = window.devicePixelRatio || 1;
  const wide = canvas.clientWidth, high = canvas.clientHeight;
  canvas.width = wide * ratio; canvas.height = high * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, wide, high);
  drawFrames();
  pen.globalAlpha = scale < 0.15 ? 0.6 : 1;
  drawEdges(graph.source.keys(), colors.edge, Math.min(1.2, Math.max(0.5, scale * 1.5)));
  drawBack();
  pen.globalAlpha = 1;
  if ($("path").checked) drawEdges(criticalEdges(), colors.critical, 2);
  if (chosen >= 0) drawEdges(touching[chosen], colors.accent, 2);
  drawNodes(wide, high);
  drawMap(wide, high);
}

// Edges between nodes that follow each other on the path.
function criticalEdges() {
  if (graph.pathEdges) return graph.pathEdges;
  const count = graph.x.length, place = (n) => graph.of ? graph.of[n] : n, steps = new Set();
  const path = timing ? timing.path : [];
  for (let i = 1; i < path.length; i++) steps.add(place(path[i - 1]) * count + place(path[i]));
  graph.pathEdges = [...graph.source.keys()].filter(
    (e) => steps.has(graph.source[e] * count + graph.target[e]));
  return graph.pathEdges;
}

function drawNodes(wide, high) {
  const named = scale > 0.42, path = $("path").checked;
  const near = chosen < 0 ? null
    : new Set(touching[chosen].flatMap((e) => [graph.source[e], graph.target[e]]));
  const hits = new Set(found);
  pen.font = `${Math.round(11 * Math.min(scale, 1.6))}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  const first = Math.max(0, Math.floor((-40 - top_) / (DY * scale)));
  const last = Math.min(byLayer.length - 1, Math.ceil((high + 40 - top_) / (DY * scale)));
  for (let layer = first; layer <= last; layer++) for (const n of byLayer[layer] || []) {
    const cx = sx(graph.x[n]), cy = sy(graph.y[n]);
    if (cx < -BOX * scale || cx > wide + BOX * scale) continue;
    const faint = (near && !near.has(n) && n !== chosen) || (found.length && !hits.has(n));
    const strong = n === chosen || n === found[at];
    const critical = path && graph.critical[n];
    pen.globalAlpha = faint ? 0.4 : 1;
    if (named) drawBox(n, cx, cy, strong, critical);
    else {
      pen.beginPath();
      pen.arc(cx, cy, Math.max(critical ? 2.5 : 2, 12 * scale), 0, 2 * Math.PI);
      pen.fillStyle = colorOf(n); pen.fill();
      if (strong || critical) {
        pen.strokeStyle = strong ? colors.accent : colors.critical;
        pen.lineWidth = strong ? 3 : 1.5; pen.stroke();
      }
    }
    pen.globalAlpha = 1;
  }
}

function drawBox(n, cx, cy, strong, critical) {
  const wide = BOX * scale, tall = TALL * scale, x0 = cx - wide / 2, y0 = cy - tall / 2;
  pen.beginPath();
  pen.roundRect(x0, y0, wide, tall, 5 * scale);
  const alpha = pen.globalAlpha;
  pen.globalAlpha = 1;  // edges do not shine through
  pen.fillStyle = colors.card; pen.fill();
  pen.globalAlpha = alpha;
  pen.save(); pen.clip();
  pen.fillStyle = colorOf(n); pen.fillRect(x0, y0, 9 * scale, tall);
  pen.restore();
  pen.strokeStyle = strong ? colors.accent : critical ? colors.critical : colors.rule;
  pen.lineWidth = strong ? 3 : critical ? 2 : 1; pen.stroke();
  pen.fillStyle = colors.ink; pen.textAlign = "left";
  const text = nameOf(n);
  if (timing && scale > 0.7) {
    pen.fillText(short(text), x0 + 14 * scale, cy - 5 * scale);
    pen.fillStyle = colors.soft;
    const start = timeText(timing.start[graph.row[n]]);
    pen.fillText(timeText(graph.spent[n]) + (copies(n) > 1 ? "" : ` at ${start}`), x0 + 14 * scale, cy + 7 * scale);
  } else pen.fillText(short(text), x0 + 14 * scale, cy);
}

// ---- overview

function drawMap(wide, high) {
  const ratio = window.devicePixelRatio || 1;
  const w = map.clientWidth, h = map.clientHeight;
  if (!overview || overview.graph !== graph || overview.w !== w) {
    overview = { graph, w, image: document.createElement("canvas") };
    overview.image.width = w * ratio; overview.image.height = h * ratio;
    const ink = overview.image.getContext("2d");
    ink.scale(ratio, ratio);
    for (let n = 0; n < graph.x.length; n++) {
      ink.fillStyle = colorOf(n);
      ink.fillRect(mapX(graph.x[n]) - 0.75, mapY(graph.y[n]) - 0.75, 1.5, 1.5);
    }
  }
  map.width = w * ratio; map.height = h * ratio;
  mapPen.drawImage(overview.image, 0, 0);
  mapPen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const box = [-left / (DX * scale), -top_ / (DY * scale), wide / (DX * scale), high / (DY * scale)];
  const x0 = Math.max(1, mapX(box[0])), x1 = Math.min(w - 1, mapX(box[0] + box[2]));
  const y0 = Math.max(1, mapY(box[1])), y1 = Math.min(h - 1, mapY(box[1] + box[3]));
  mapPen.strokeStyle = colors.accent; mapPen.lineWidth = 1.5;
  mapPen.strokeRect(x0, y0, Math.max(x1 - x0, 3), Math.max(y1 - y0, 3));
}

const mapX = (v) => 8 + v / Math.max(graph.width, 1e-9) * (map.clientWidth - 16);
const mapY = (v) => 8 + v / Math.max(graph.height - 1, 1) * (map.clientHeight - 16);

function moveByMap(event) {
  const box = map.getBoundingClientRect();
  const x = (event.clientX - box.left - 8) / (map.clientWidth - 16) * graph.width;
  const y = (event.clientY - box.top - 8) / (map.clientHeight - 16) * (graph.height - 1);
  left = canvas.clientWidth / 2 - x * DX * scale;
  top_ = canvas.clientHeight / 2 - y * DY * scale;
  redraw();
}

// ---- moving about

function fit() {
  const wide = canvas.clientWidth, high = canvas.clientHeight;
  const head = $("head").getBoundingClientRect();
  // Beside the heading on a wide screen, below it on a narrow one.
  const beside = wide > 900;
  const x0 = beside ? head.right + 20 : 20, y0 = beside ? 24 : head.bottom + 20;
  const x1 = wide - (beside ? 180 : 20), y1 = high - (beside ? 24 : 150);
  scale = Math.min((x1 - x0) / ((graph.width + 1.6) * DX), (y1 - y0) / ((graph.height + 0.6) * DY));
  scale = Math.min(Math.max(scale, 0.002), 1.2);
  // A long thin graph starts at its first layers, large enough to be seen.
  const long = graph.height > 60 && scale < 0.06;
  if (long) scale = Math.min(0.5, (x1 - x0) / ((graph.width + 1.6) * DX));
  left = (x0 + x1) / 2 - graph.width / 2 * DX * scale;
  top_ = long ? y0 + 30 : (y0 + y1) / 2 - (graph.height - 1) / 2 * DY * scale;
  redraw();
}

function goTo(n) {
  scale = Math.max(scale, 0.8);
  left = canvas.clientWidth / 2 - graph.x[n] * DX * scale;
  top_ = canvas.clientHeight / 2 - graph.y[n] * DY * scale;
  choose(n);
}

function choose(n) {
  chosen = n;
  describe(n);
  redraw();
}

function describe(n) {
  panel.style.display = n < 0 ? "none" : "block";
  panel.replaceChildren();
  if (n < 0) return;
  const row_ = graph.row[n], parents = touching[n].filter((e) => graph.target[e] === n).length;
  const title = document.createElement("h2"), table = document.createElement("table");
  title.textContent = nameOf(n);
  const rows = [["id", id[row_]], ["kind", data.kinds[kind[row_]]], ["layer", graph.y[n]],
    ["parents", parents], ["children", touching[n].length - parents]];
  if (copies(n) > 1) rows.push(["stands for", plural(copies(n), "node")]);
  if (timing) {
    rows.push(["starts at", timeText(timing.start[row_])], ["ends at", timeText(timing.end[row_])]);
    rows.push([copies(n) > 1 ? "time, all of them" : "time", timeText(graph.spent[n])]);
    rows.push(["critical path", graph.critical[n] === 0 ? "no" : copies(n) === 1 ? "yes"
      : `${graph.critical[n]} of ${plural(copies(n), "node")}`]);
  }
  for (const [key, value] of [...rows, ...Object.entries(data.details[row_])]) {
    const row = table.insertRow(), head = document.createElement("th");
    head.textContent = key; head.scope = "row";
    row.append(head);
    row.insertCell().textContent = String(value);
  }
  panel.append(title, table);
}

function nodeAt(px, py) {
  const layer = Math.round((py - top_) / (DY * scale));
  const reachX = scale > 0.42 ? BOX * scale / 2 : Math.max(6, 9 * scale);
  const reachY = scale > 0.42 ? TALL * scale / 2 : Math.max(6, 9 * scale);
  for (const l of [layer, layer - 1, layer + 1]) for (const n of byLayer[l] || [])
    if (Math.abs(sx(graph.x[n]) - px) <= reachX && Math.abs(sy(graph.y[n]) - py) <= reachY) return n;
  return -1;
}

function zoom(factor, px, py) {
  const next = Math.min(Math.max(scale * factor, 0.002), 4);
  left = px - (px - left) * next / scale;
  top_ = py - (py - top_) * next / scale;
  scale = next; redraw();
}

const fingers = new Map();
let grip = null, moved = false;
canvas.addEventListener("pointerdown", (event) => {
  fingers.set(event.pointerId, [event.clientX, event.clientY]);
  grip = [event.clientX - left, event.clientY - top_]; moved = fingers.size > 1;
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!grip) { canvas.style.cursor = nodeAt(event.clientX, event.clientY) >= 0 ? "pointer" : ""; return; }
  if (fingers.size === 2) { pinch(event); return; }
  const dx = event.clientX - grip[0], dy = event.clientY - grip[1];
  moved ||= Math.abs(dx - left) + Math.abs(dy - top_) > 3;
  left = dx; top_ = dy; redraw();
});
function pinch(event) {
  const [other] = [...fingers].filter(([key]) => key !== event.pointerId).map(([, place]) => place);
  const before = fingers.get(event.pointerId), now = [event.clientX, event.clientY];
  const apart = (place) => Math.hypot(place[0] - other[0], place[1] - other[1]);
  fingers.set(event.pointerId, now);
  zoom(apart(now) / Math.max(apart(before), 1), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
}
for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => {
  fingers.delete(event.pointerId);
  if (grip && !moved && name === "pointerup") choose(nodeAt(event.clientX, event.clientY));
  grip = null;
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY * 0.0016), event.clientX, event.clientY);
}, { passive: false });
let dragging = false;
map.addEventListener("pointerdown", (event) => { dragging = true; map.setPointerCapture(event.pointerId); moveByMap(event); });
map.addEventListener("pointermove", (event) => { if (dragging) moveByMap(event); });
map.addEventListener("pointerup", () => { dragging = false; });

const STEPS = { ArrowLeft: [80, 0], ArrowRight: [-80, 0], ArrowUp: [0, 80], ArrowDown: [0, -80] };
function press(event) {
  const step = STEPS[event.key], count = graph.x.length;
  if (step) { left += step[0]; top_ += step[1]; redraw(); }
  else if (event.key === "+" || event.key === "-")
    zoom(event.key === "+" ? 1.25 : 0.8, canvas.clientWidth / 2, canvas.clientHeight / 2);
  else if (event.key === "n") goTo((chosen + 1) % count);
  else if (event.key === "p") goTo((Math.max(chosen, 0) + count - 1) % count);
  else if (event.key === "f") fit();
  else if (event.key === "Escape") choose(-1);
  else return;
  event.preventDefault();
}
canvas.addEventListener("keydown", press);
map.addEventListener("keydown", press);

search.addEventListener("input", () => {
  const text = search.value.toLowerCase();
  found = text ? [...graph.row.keys()].filter((n) => id[graph.row[n]] === text ||
    nameOf(n).toLowerCase().includes(text)) : [];
  at = 0;
  $("found").textContent = text ? `${plural(found.length, "match").replace("matchs", "matches")}` : "";
  redraw();
});
search.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !found.length) return;
  goTo(found[at]); at = (at + 1) % found.length;
});
$("fit").addEventListener("click", fit);
$("level").addEventListener("change", () => show(data[$("level").value]));
$("path").addEventListener("change", redraw);
$("color").addEventListener("change", () => { overview = null; legend(); redraw(); });
window.addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColors(); overview = null; redraw();
});

function legend() {
  const items = $("color").value === "kind"
    ? data.kinds.map((name, k) => [name, `var(--k${data.slots[k]})`])
    : [["no time", "var(--rule)"], ["most time", "var(--critical)"]];
  $("legend").replaceChildren(...items.map(([name, color]) => {
    const item = document.createElement("li");
    item.style.setProperty("--kind", color);
    item.textContent = name;
    return item;
  }));
}

function start() {
  readColors();
  document.title = data.title;
  document.querySelector("#head h1").textContent = data.title;
  const facts = `${plural(id.length, "node")}, ${plural(data.edges, "edge")}, ${plural(data.layers, "layer")}`;
  $("facts").textContent = data.rolled
    ? `${facts}; ${data.rolled.x.length.toLocaleString("en")} with each repeated block once` : facts;
  canvas.setAttribute("aria-label", `Graph of ${facts}`);
  for (const option of [...$("level").options]) if (!data[option.value]) option.remove();
  $("leveling").hidden = $("level").options.length < 2;
  $("pathing").hidden = $("coloring").hidden = !timing;
  if (timing) {
    const end = timing.end.reduce((most, time) => Math.max(most, time), 0);
    $("source").textContent = `Times: ${timing.source}; ${timeText(end)} in all.`;
    $("path").checked = true;
  }
  $("level").value = data.starts;
  $("more").open = canvas.clientWidth > 640;
  legend();
  show(data[data.starts]);
  $("more").addEventListener("toggle", () => { if (chosen < 0) fit(); });
  // page.html#ID opens the page at a node.
  const wanted = id.indexOf(decodeURIComponent(location.hash.slice(1)));
  if (wanted >= 0) goTo(graph.of ? graph.of[wanted] : wanted);
}
start();
