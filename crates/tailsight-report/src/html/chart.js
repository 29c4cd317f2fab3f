// Shared by all parts of the page: the data, units, elements, colours, canvases, axes and the tip.
// Text from the data reaches the document only through textContent or fillText.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

/* ---- units ---- */
function digits3(v) { return v < 9.995 ? v.toFixed(2) : v < 99.95 ? v.toFixed(1) : v.toFixed(0); }
function durationParts(ns) {
  const a = Math.abs(ns), sign = ns < 0 ? "−" : "";
  if (a < 1000) return [sign + Math.round(a), "ns"];
  for (const [unit, scale] of [["µs", 1e3], ["ms", 1e6]]) if (a / scale < 999.5) return [sign + digits3(a / scale), unit];
  return [sign + (a / 1e9 < 999.5 ? digits3(a / 1e9) : count(a / 1e9)), "s"];
}
function duration(ns) { return durationParts(ns).join(" "); }
function count(n) { return Math.round(n).toLocaleString("en-US"); }
function plural(n, noun) { return count(n) + " " + noun + (n === 1 ? "" : "s"); }
function percent(f) { return (f * 100).toFixed(1).replace(/^-0\.0$/, "0.0").replace(/^(-?\d+)\.0$/, (t, n) => (Math.abs(n) >= 100 ? n : t)).replace("-", "−") + " %"; }
// Prose that was made for a terminal: µs, and no line break between a number and its unit.
function prose(text) { return String(text).replace(/(\d) (ns|us|ms|s|%)(?![\w/])/g, (_, d, unit) => d + "\u00a0" + (unit === "us" ? "µs" : unit)); }
// A tick label: as few digits as the value needs.
function tickLabel(ns) {
  const [unit, scale] = ns >= 1e9 ? ["s", 1e9] : ns >= 1e6 ? ["ms", 1e6] : ns >= 1e3 ? ["µs", 1e3] : ["ns", 1];
  return +(ns / scale).toPrecision(6) + " " + unit;
}
function roleName(role) { return role === "A" ? "application core" : "receive core"; }

/* ---- elements ---- */
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "on") for (const [type, f] of Object.entries(value)) node.addEventListener(type, f);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null && child !== "") node.append(child); // append makes text nodes of strings
  }
  return node;
}
// Text with `commands` between back quotes set as code.
function rich(text) {
  return String(text).split("`").map((part, i, all) => (i % 2 === 1 && i < all.length - 1 ? el("code", {}, part) : prose(part)));
}

// A fix as the diagnosis writes it, "command  # why; undo: command", or a step in prose. `before` is text that leads to it.
function fixNodes(text, before) {
  const at = text.indexOf("  # ");
  if (at < 0) return [before ? prose(before) + " " : "", ...rich(text)];
  const [why, undo] = text.slice(at + 4).split("; undo: ");
  return [before ? prose(before) + " " : "", el("code", { class: "command" }, text.slice(0, at)), el("span", { class: "why" }, prose(why)), undo ? el("span", { class: "why" }, "undo: ", el("code", {}, undo)) : ""];
}
// A step: prose, with a cause's fix or a command of ours at its end.
function stepNodes(text) {
  const fix = causes.flatMap((c) => c.fix).find((f) => f.includes("  # ") && text.endsWith(f) && text !== f);
  if (fix) return fixNodes(fix, text.slice(0, -fix.length).trim());
  const at = text.indexOf(": tailsight ");
  return at < 0 ? fixNodes(text) : [prose(text.slice(0, at + 2)), el("code", {}, text.slice(at + 2))];
}

/* ---- causes: colour and shape by rank, so that the same cause looks the same everywhere ---- */
const causes = data.diagnosis.causes;
const SHAPES = ["circle", "square", "triangle", "diamond", "down", "plus", "cross", "star"];
function isNamed(i) { return i !== null && i !== undefined && i >= 0 && i < causes.length && causes[i].category !== "unexplained" && causes[i].category !== "not-significant"; }
// A cause's name in words; of a row that is no cause, what it is.
function causeName(i) { return isNamed(i) ? data.titles[i] || causes[i].category : causes[i] ? causes[i].category.replace("-", " ") : "no named cause"; }
function causeTitle(i) {
  if (!isNamed(i)) return causeName(i);
  const c = causes[i];
  return (c.name && c.name !== c.category ? causeName(i) + ", " : "") + c.category + " (" + c.role + ")";
}
// Which causes have a colour of their own: the first eight that add 1 % or more; the rest share one grey.
const coloured = new Map();
causes.forEach((c, i) => { if (isNamed(i) && c.share >= .01 && coloured.size < SHAPES.length) coloured.set(i, coloured.size); });
function causeColor(i) { return coloured.has(i) ? ink("c" + coloured.get(i)) : ink("other"); }
function causeShape(i) { return coloured.has(i) ? SHAPES[coloured.get(i)] : "ring"; }

const inks = new Map();
function ink(name) {
  if (!inks.has(name)) inks.set(name, getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim());
  return inks.get(name);
}
// Black or white, whichever reads better on a colour given as #rrggbb.
function inkOn(color) {
  const n = parseInt(color.slice(1), 16);
  const channel = (v) => { v /= 255; return v <= 0.04 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = 0.2126 * channel(n >> 16) + 0.7152 * channel((n >> 8) & 255) + 0.0722 * channel(n & 255);
  return light > 0.19 ? "#0c0f12" : "#ffffff";
}

function drawShape(g, shape, x, y, r) {
  g.beginPath();
  const poly = (points) => { points.forEach(([a, b], i) => (i ? g.lineTo(x + a * r, y + b * r) : g.moveTo(x + a * r, y + b * r))); g.closePath(); };
  if (shape === "circle" || shape === "ring") g.arc(x, y, r, 0, 7);
  else if (shape === "square") g.rect(x - r * .88, y - r * .88, r * 1.76, r * 1.76);
  else if (shape === "triangle") poly([[0, -1.15], [1.08, .8], [-1.08, .8]]);
  else if (shape === "down") poly([[0, 1.15], [1.08, -.8], [-1.08, -.8]]);
  else if (shape === "diamond") poly([[0, -1.25], [1.1, 0], [0, 1.25], [-1.1, 0]]);
  else if (shape === "plus") poly([[-.36, -1.1], [.36, -1.1], [.36, -.36], [1.1, -.36], [1.1, .36], [.36, .36], [.36, 1.1], [-.36, 1.1], [-.36, .36], [-1.1, .36], [-1.1, -.36], [-.36, -.36]]);
  else if (shape === "cross") poly([[0, -.5], [.7, -1.2], [1.2, -.7], [.5, 0], [1.2, .7], [.7, 1.2], [0, .5], [-.7, 1.2], [-1.2, .7], [-.5, 0], [-1.2, -.7], [-.7, -1.2]]);
  else poly(Array.from({ length: 10 }, (_, k) => { const a = k * Math.PI / 5 - Math.PI / 2, q = k % 2 ? .55 : 1.25; return [Math.cos(a) * q, Math.sin(a) * q]; }));
}
const swatches = [];
function swatch(i) {
  const canvas = el("canvas", { class: "swatch", width: 32, height: 32, "aria-hidden": "true" });
  const draw = () => {
    const g = canvas.getContext("2d");
    g.clearRect(0, 0, 32, 32);
    drawShape(g, causeShape(i), 16, 16, 10);
    if (causeShape(i) === "ring") { g.strokeStyle = ink("other"); g.lineWidth = 4; g.stroke(); } else { g.fillStyle = causeColor(i); g.fill(); }
  };
  swatches.push(draw);
  draw();
  return canvas;
}

/* ---- canvases ---- */
// A canvas that fills its holder's width and draws itself again on resize and on a change of light and dark.
const charts = [];
function chart(holder, height, label, draw) {
  const canvas = el("canvas", { role: "img", tabindex: "0", "aria-label": label });
  holder.append(canvas);
  const self = { canvas, width: 0, height, redraw() {
    const ratio = window.devicePixelRatio || 1;
    self.width = holder.clientWidth;
    self.height = typeof height === "function" ? height() : height;
    canvas.width = Math.round(self.width * ratio);
    canvas.height = Math.round(self.height * ratio);
    canvas.style.height = self.height + "px";
    const g = canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, self.width, self.height);
    g.font = FONT;
    draw(g, self);
  } };
  charts.push(self);
  let pending = 0;
  new ResizeObserver(() => { if (holder.clientWidth !== self.width) { cancelAnimationFrame(pending); pending = requestAnimationFrame(() => self.redraw()); } }).observe(holder);
  return self;
}
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { inks.clear(); swatches.forEach((f) => f()); charts.forEach((c) => c.redraw()); });

/* ---- axes ---- */
function linearTicks(from, to, about) {
  const raw = (to - from) / Math.max(1, about), magnitude = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 5, 10].map((m) => m * magnitude).find((s) => s >= raw) || magnitude;
  const out = [];
  for (let v = Math.ceil(from / step - 1e-9) * step; v <= to + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}
// Ticks of a log axis: decades, with 2 and 5 (or 1 to 9) between them where there is room.
function logTicks(from, to, about) {
  for (const steps of [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const out = [];
    for (let e = Math.floor(Math.log10(from)); e <= Math.ceil(Math.log10(to)); e++) for (const s of steps) {
      const v = +(s * 10 ** e).toPrecision(3);
      if (v >= from * .999 && v <= to * 1.001) out.push(v);
    }
    if (out.length <= about || steps.length === 1) return out;
  }
}
function line(g, x0, y0, x1, y1) { g.beginPath(); g.moveTo(x0, y0); g.lineTo(x1, y1); g.stroke(); }
const crisp = (v) => Math.round(v) + .5;

/* ---- the tip ---- */
const tip = byId("tip");
function showTip(x, y, title, rows) {
  tip.replaceChildren(el("b", {}, title), ...rows.filter(Boolean).map((r) => el("span", {}, r)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, x + 14 + box.width > innerWidth - 6 ? x - 14 - box.width : x + 14) + "px";
  tip.style.top = Math.max(6, Math.min(innerHeight - box.height - 6, y + 14)) + "px";
}
function hideTip() { tip.hidden = true; }
function say(text) { byId("live").textContent = text; }
addEventListener("scroll", hideTip, { passive: true });

/* ---- messages ---- */
function column(text, Type) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Type(bytes.buffer);
}
const messages = (() => {
  const m = data.messages;
  const stored = column(m.latency, m.latency_type === "f64" ? Float64Array : Uint32Array);
  const latency = Float64Array.from(stored, (v) => (m.latency_type === "u32" && v === 0xffffffff ? NaN : v));
  const flow = column(m.flow, m.flow_type === "u32" ? Uint32Array : Uint16Array);
  const cause = column(m.cause, Uint8Array); // 255: not in focus; 254: in focus, none of the causes
  const focus = [];
  let slowest = -1;
  for (let i = 0; i < latency.length; i++) {
    if (cause[i] !== 255) focus.push(i);
    if (latency[i] === latency[i] && (slowest < 0 || latency[i] > latency[slowest])) slowest = i;
  }
  const sorted = latency.filter((v) => v === v).sort();
  return { latency, flow, cause, focus, slowest, sorted, flowName: (i) => m.flow_names[flow[i]] || "flow " + flow[i] };
})();
// The share of messages that are no slower than v.
function rankOf(v) {
  let lo = 0, hi = messages.sorted.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (messages.sorted[mid] <= v) lo = mid + 1; else hi = mid; }
  return lo / messages.sorted.length;
}
function messageTip(i) {
  const c = messages.cause[i];
  return ["Message " + count(i) + ": " + duration(messages.latency[i]), [
    c === 255 ? "not in focus" : "mostly " + (c === 254 ? "none of the causes" : causeTitle(c)),
    i === messages.slowest ? "the slowest of all" : "at p" + +(rankOf(messages.latency[i]) * 100).toFixed(Math.max(1, Math.ceil(Math.log10(messages.sorted.length)) - 2)),
    messages.flowName(i),
  ]];
}
