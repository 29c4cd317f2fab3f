// The balloon plot (NSight Figure 3): every message by id and latency; those in focus as balloons of their cause.
"use strict";
let balloonSelect = () => {};
function drawBalloon() {
  const { latency, cause, focus, slowest, sorted } = messages, n = latency.length;
  const holder = byId("balloon");
  if (slowest < 0) { holder.textContent = "No message is complete."; return; }
  let log = true, alone = null, selected = -1;
  const d = data.diagnosis;
  byId("balloon-lede").textContent = "One point a message, " + count(sorted.length) + " in order of arrival; none is left out. " +
    plural(focus.length, "message") + " in focus" + (focus.length === 1 ? " is a balloon" : " are balloons") + " of the cause that " + (data.messages.against_reference ? "added the most time to it over the reference mean." : "took the most time in it.");

  const pad = { left: 62, right: 94, top: 22, bottom: 40 };
  const low = Math.max(1, sorted[0]), high = Math.max(sorted[sorted.length - 1], low * 2);
  const x = (id, c) => pad.left + 6 + (id / Math.max(1, n - 1)) * (c.width - pad.left - pad.right - 12);
  const y = (v, c) => {
    const h = c.height - pad.top - pad.bottom;
    const at = log ? Math.log(Math.max(v, low) / (low * .8)) / Math.log(high * 1.25 / (low * .8)) : v / (high * 1.08);
    return pad.top + (1 - at) * h;
  };
  const muted = (i) => alone !== null && cause[i] !== alone;
  const radius = focus.length > 1500 ? 3.6 : focus.length > 400 ? 4.4 : 5.4;
  // Rare causes over frequent ones, and among equals the slower over the faster.
  const many = new Map();
  focus.forEach((i) => many.set(cause[i], (many.get(cause[i]) || 0) + 1));
  const order = focus.slice().sort((a, b) => many.get(cause[b]) - many.get(cause[a]) || latency[a] - latency[b]);

  const still = document.createElement("canvas");
  const label = "Balloon plot of " + count(sorted.length) + " messages; slowest is message " + count(slowest) + " with " + duration(latency[slowest]) + ". Use the arrow keys to step through the messages in focus.";
  const self = chart(holder, () => Math.max(320, Math.min(470, holder.clientWidth * .38)), label, (g, c) => {
    const right = c.width - pad.right, bottom = c.height - pad.bottom;
    g.strokeStyle = ink("line"); g.fillStyle = ink("soft"); g.lineWidth = 1;
    g.textAlign = "right"; g.textBaseline = "middle";
    const ticks = log ? logTicks(low * .8, high * 1.25, (bottom - pad.top) / 34) : linearTicks(0, high * 1.08, (bottom - pad.top) / 60);
    for (const v of ticks) { line(g, pad.left, crisp(y(v, c)), right, crisp(y(v, c))); g.fillText(v ? tickLabel(v) : "0", pad.left - 8, y(v, c)); }
    g.textAlign = "center"; g.textBaseline = "top";
    for (const id of linearTicks(0, n - 1, (right - pad.left) / 110)) g.fillText(count(id), x(id, c), bottom + 7);
    g.fillText("message, in order of arrival", (pad.left + right) / 2, bottom + 24);

    g.fillStyle = ink("dot");
    const size = n > 60000 ? 1.5 : n > 8000 ? 2 : 2.6;
    for (let i = 0; i < n; i++) if (cause[i] === 255 && latency[i] === latency[i]) g.fillRect(x(i, c) - size / 2, y(latency[i], c) - size / 2, size, size);

    // Percentile lines, so that the eye sees where the focus begins; labels that would collide are left out.
    g.textAlign = "left"; g.textBaseline = "middle";
    let lastY = Infinity;
    for (const key of ["p50", "p99", "p99.9"]) {
      const v = d.latency_ns[key];
      if (v === undefined) continue;
      g.setLineDash([5, 4]); g.strokeStyle = ink("soft"); g.lineWidth = 1; line(g, pad.left, crisp(y(v, c)), right, crisp(y(v, c))); g.setLineDash([]);
      if (lastY - y(v, c) > 14) { g.fillStyle = ink("soft"); g.fillText(key + " " + duration(v), right + 6, y(v, c)); lastY = y(v, c); }
    }
    for (const pass of [true, false]) for (const i of order) {
      if (muted(i) !== pass) continue;
      const shape = causeShape(cause[i]);
      drawShape(g, shape, x(i, c), y(latency[i], c), radius);
      g.globalAlpha = pass ? .16 : 1;
      if (shape === "ring") { g.strokeStyle = ink("other"); g.lineWidth = 1.8; g.stroke(); }
      else { g.fillStyle = causeColor(cause[i]); g.fill(); g.strokeStyle = ink("bg"); g.lineWidth = .9; g.stroke(); }
      g.globalAlpha = 1;
    }
    const sx = x(slowest, c), sy = y(latency[slowest], c), text = "slowest: message " + count(slowest) + ", " + duration(latency[slowest]);
    const flip = sx + 14 + g.measureText(text).width > right;
    g.textAlign = flip ? "right" : "left"; g.textBaseline = "middle";
    halo(g, text, sx + (flip ? -11 : 11), sy - 9);
    // The picture without the selection is kept: the pointer moves over 200,000 points without drawing them again.
    still.width = c.canvas.width; still.height = c.canvas.height;
    still.getContext("2d").drawImage(c.canvas, 0, 0);
    ring(g, c);
  });
  function ring(g, c) {
    if (selected < 0) return;
    g.strokeStyle = ink("ink"); g.lineWidth = 2; g.beginPath(); g.arc(x(selected, c), y(latency[selected], c), radius + 5, 0, 7); g.stroke();
  }
  function mark(id) {
    if (id === selected) return;
    selected = id;
    if (!still.width) return;
    const g = self.canvas.getContext("2d");
    g.save(); g.setTransform(1, 0, 0, 1, 0, 0); g.clearRect(0, 0, still.width, still.height); g.drawImage(still, 0, 0); g.restore();
    ring(g, self);
  }

  const select = (id, tell) => {
    if (!(latency[id] === latency[id])) return;
    mark(id);
    const box = self.canvas.getBoundingClientRect(), [title, rows] = messageTip(id);
    showTip(box.left + x(id, self), box.top + y(latency[id], self), title, rows);
    if (tell) say(title + ", " + rows.join(", "));
  };
  balloonSelect = (id, jump) => {
    if (jump) { self.canvas.scrollIntoView({ block: "center" }); self.canvas.focus({ preventScroll: true }); }
    requestAnimationFrame(() => setTimeout(() => select(id, true), 60));
  };
  // What is under the pointer: a balloon within reach, else the nearest point.
  const under = (px, py) => {
    let best = -1, least = 14 ** 2;
    for (const i of focus) { if (muted(i)) continue; const q = (x(i, self) - px) ** 2 + (y(latency[i], self) - py) ** 2; if (q < least) { least = q; best = i; } }
    if (best >= 0) return best;
    least = 9 ** 2;
    const width = self.width - pad.left - pad.right - 12, centre = ((px - pad.left - 6) / width) * (n - 1), reach = (10 / width) * n + 1;
    for (let i = Math.max(0, Math.floor(centre - reach)); i <= Math.min(n - 1, centre + reach); i++) {
      const q = (x(i, self) - px) ** 2 + (y(latency[i], self) - py) ** 2;
      if (q < least) { least = q; best = i; }
    }
    return best;
  };
  self.canvas.addEventListener("mousemove", (e) => {
    const box = self.canvas.getBoundingClientRect(), id = under(e.clientX - box.left, e.clientY - box.top);
    mark(id);
    if (id < 0) { hideTip(); return; }
    showTip(e.clientX, e.clientY, ...messageTip(id));
  });
  const leave = () => { hideTip(); mark(-1); };
  self.canvas.addEventListener("mouseleave", leave);
  self.canvas.addEventListener("blur", leave);
  const byLatency = focus.slice().sort((a, b) => latency[a] - latency[b] || a - b);
  self.canvas.addEventListener("keydown", (e) => {
    const shown = (list) => list.filter((i) => !muted(i));
    const step = (list, by) => {
      const visible = shown(list), at = visible.indexOf(selected);
      if (visible.length) select(at < 0 ? slowestOf(visible) : visible[Math.max(0, Math.min(visible.length - 1, at + by))], true);
    };
    const slowestOf = (list) => list.reduce((a, b) => (latency[b] > latency[a] ? b : a));
    if (e.key === "ArrowRight") step(focus, 1);
    else if (e.key === "ArrowLeft") step(focus, -1);
    else if (e.key === "ArrowUp") step(byLatency, 1);
    else if (e.key === "ArrowDown") step(byLatency, -1);
    else if (e.key === "Home") select(slowest, true);
    else if (e.key === "Escape") leave();
    else return;
    e.preventDefault();
  });

  const scales = [["Log", true], ["Linear", false]].map(([name, value]) => el("button", { type: "button", "aria-pressed": String(value === log), on: { click() {
    log = value;
    scales.forEach((b, k) => b.setAttribute("aria-pressed", String((k === 0) === log)));
    self.redraw();
  } } }, name));
  byId("balloon-scale").append(...scales);

  const legend = byId("balloon-legend"), buttons = [];
  const keys = [...many.keys()].sort((a, b) => many.get(b) - many.get(a) || a - b);
  for (const key of keys) {
    const title = key === 254 ? "none of the causes" : causeTitle(key);
    const button = el("button", { type: "button", "aria-pressed": "false", on: { click() {
      alone = alone === key ? null : key;
      buttons.forEach(([k, b]) => b.setAttribute("aria-pressed", String(alone === k)));
      self.redraw();
    } } }, swatch(key), el("span", {}, title, " ", el("span", { class: "n" }, count(many.get(key)))));
    buttons.push([key, button]);
    legend.append(el("li", {}, button));
  }
  const dot = el("span", {});
  dot.style.cssText = "width:5px;height:5px;margin:0 5px;background:var(--faint)";
  legend.append(el("li", {}, el("span", { class: "item" }, dot, el("span", {}, "not in focus ", el("span", { class: "n" }, count(sorted.length - focus.length))))));
}
