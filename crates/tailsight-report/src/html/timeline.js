// Timelines (NSight Figures 5 and 8): one lane per core and role, nested boxes by level, stages as dashed lines.
"use strict";
const ROW = 21, LANE_TITLE = 21, LANE_GAP = 10;
function drawTimelines() {
  const holder = byId("timelines");
  if (!data.timelines.length) { holder.textContent = "No path was rebuilt."; return; }
  byId("timelines-lede").textContent = "From the first sight in the stack to the end of the " + data.diagnosis.leg + " leg, on every core that the message waited for. Boxes nest: a box below runs inside the box above it. Hatched: nothing ran there. Colours are those of the causes.";
  const used = new Set();
  data.timelines.forEach((t) => t.boxes.forEach((b) => { if (b.kind === "run" && coloured.has(b.cause)) used.add(b.cause); }));
  const key = (style, text) => { const s = el("span"); s.style.cssText = "width:15px;height:12px;border-radius:2px;" + style; return el("li", {}, el("span", { class: "item" }, s, text)); };
  holder.append(el("ul", { class: "legend plain", "aria-label": "Colours" }, [...used].sort((a, b) => a - b).map((i) => key("background:var(--c" + coloured.get(i) + ")", causeTitle(i))),
    key("background:var(--own)", "as usual"), key("background:repeating-linear-gradient(135deg,var(--faint) 0 1px,var(--gap) 1px 5px)", "idle or waiting")));
  data.timelines.forEach((t, i) => {
    const isSlowest = t.id === messages.slowest;
    drawTimeline(holder, t, isSlowest ? "The slowest message" : i === 0 ? "The message" : "For comparison: a message near p" + (rankOf(t.length) * 100).toFixed(0) + ", at its own scale");
  });
}

function drawTimeline(holder, t, title) {
  const stages = t.stages.map(([name, ns], i) => (i ? name + " +" + duration(ns - t.stages[i - 1][1]) : name));
  const meta = ["message " + count(t.id), duration(t.length), plural(t.bytes, "byte"), t.flow, "thread " + t.tid, t.ahead ? plural(t.ahead, "message") + " served ahead of it" : ""].filter(Boolean).join(" · ");
  // Between two stages: a button that zooms to it.
  const legs = t.stages.flatMap(([name, at], i) => (i === 0 ? [name] : [" → ", el("button", { type: "button", title: "Zoom to " + t.stages[i - 1][0] + " → " + name, on: { click: () => zoom(t.stages[i - 1][1], at) } }, "+" + duration(at - t.stages[i - 1][1])), " " + name]));
  const plot = el("div", { class: "plot" });
  const reset = el("button", { class: "link", type: "button", hidden: true, on: { click: () => zoom(0, t.length) } }, "Show all");
  const table = el("details", {}, el("summary", {}, "The same as a table"));
  holder.append(el("div", { class: "timeline" }, el("div", { class: "titlebar" }, el("h3", {}, title), reset), el("p", { class: "meta" }, meta, el("br"), legs), plot, table));

  const tops = [];
  let y = 62;
  for (const lane of t.lanes) { tops.push(y + LANE_TITLE); y += LANE_TITLE + Math.max(1, lane.depth) * ROW + LANE_GAP; }
  const height = y + 28, pad = 12;
  let from = 0, to = Math.max(1, t.length), drag = null, selected = -1;
  const x = (ns, c) => pad + ((ns - from) / (to - from)) * (c.width - 2 * pad);
  const ns = (px, c) => from + ((px - pad) / (c.width - 2 * pad)) * (to - from);
  const name = (b) => { const p = t.paths[b.path]; return t.names[b.path] || p; };
  const color = (b) => (coloured.has(b.cause) ? causeColor(b.cause) : b.kind === "gap" ? ink("gap") : ink("own"));
  // The shortest box drawn keeps a width of this many pixels, so that nothing vanishes.
  const LEAST = .8;

  const label = title + ": " + meta + ". " + stages.join(", ") + ". Keys: plus and minus zoom, arrows move, n and p step through the boxes.";
  const self = chart(plot, height, label, (g, c) => {
    const left = pad, right = c.width - pad, bottom = height - 30;
    g.textBaseline = "middle";
    // Time axis, in µs.
    g.strokeStyle = ink("line"); g.lineWidth = 1; g.textAlign = "center";
    for (const v of linearTicks(from, to, (right - left) / 95)) {
      line(g, crisp(x(v, c)), 58, crisp(x(v, c)), bottom);
      g.fillStyle = ink("soft"); g.fillText(micros(v, 3), Math.max(left + 18, Math.min(right - 22, x(v, c))), bottom + 14);
    }
    t.lanes.forEach((lane, i) => {
      g.textAlign = "left"; g.fillStyle = ink("soft"); g.font = "600 " + FONT;
      g.fillText(lane.name, left + 5, tops[i] - 11);
      g.font = FONT;
      g.strokeStyle = ink("line"); line(g, left, crisp(tops[i] - 2), right, crisp(tops[i] - 2));
    });
    g.save();
    g.beginPath(); g.rect(left - 1, 0, right - left + 2, height); g.clip();
    const hatch = hatching(g);
    t.boxes.forEach((b, i) => {
      if (b.to < from || b.from > to) return;
      const x0 = Math.max(x(b.from, c), left - 2), x1 = Math.min(x(b.to, c), right + 2), w = Math.max(LEAST, x1 - x0), top = tops[b.lane] + b.level * ROW, fill = color(b);
      g.fillStyle = fill;
      g.globalAlpha = b.kind === "gap" && fill !== ink("gap") ? .3 : 1;
      g.fillRect(x0, top, w, ROW - 1);
      g.globalAlpha = 1;
      if (b.kind === "gap") { g.fillStyle = hatch; g.fillRect(x0, top, w, ROW - 1); }
      if (w > 3) { g.fillStyle = ink("bg"); g.fillRect(x0 + w - .7, top, .7, ROW - 1); }
      if (i === selected) { g.strokeStyle = ink("ink"); g.lineWidth = 2; g.strokeRect(x0 + 1, top + 1, Math.max(1, w - 2), ROW - 3); }
      if (w > 26) {
        g.textAlign = "left";
        g.fillStyle = b.kind === "gap" ? ink("ink") : inkOn(fill);
        const text = fit(g, name(b), w - 9);
        if (text) { if (b.kind === "gap") { const tw = g.measureText(text).width; g.fillStyle = ink("gap"); g.fillRect(x0 + 2, top + 3, tw + 6, ROW - 7); g.fillStyle = ink("ink"); } g.fillText(text, x0 + 5, top + ROW / 2); }
      }
    });
    // Where the message went from one core to another.
    g.strokeStyle = ink("faint"); g.lineWidth = 1;
    for (const [at, a, b] of t.moves) {
      const px = crisp(x(at, c)), [p, q] = a < b ? [a, b] : [b, a];
      line(g, px, tops[p], px, tops[q]);
    }
    // Stages: dashed lines with names in up to three rows.
    const ends = [-Infinity, -Infinity, -Infinity];
    for (const [stage, at] of t.stages) {
      if (at < from - (to - from) * .001 || at > to * 1.001) continue;
      const px = x(at, c), text = stage + " " + micros(at, at < 1e5 ? 2 : 1), w = g.measureText(text).width;
      g.strokeStyle = ink("ink"); g.lineWidth = 1; g.setLineDash([4, 3]);
      let tx = Math.min(px + 4, right - w), row = ends.findIndex((e) => tx > e + 8);
      if (tx < px + 4) tx = Math.min(px - 4 - w, tx), row = ends.findIndex((e) => tx > e + 8);
      if (row < 0) row = 2;
      ends[row] = tx + w;
      line(g, crisp(px), 4 + row * 17, crisp(px), bottom);
      g.setLineDash([]);
      g.textAlign = "left";
      halo(g, text, tx, 11 + row * 17);
    }
    if (drag && Math.abs(drag.now - drag.start) > 2) { g.globalAlpha = .18; g.fillStyle = ink("focus"); g.fillRect(Math.min(drag.start, drag.now), 0, Math.abs(drag.now - drag.start), bottom); g.globalAlpha = 1; }
    g.restore();
  });

  function zoom(a, b) {
    const span = Math.min(t.length, Math.max(20, b - a)), start = Math.max(0, Math.min(t.length - span, a));
    from = start; to = start + Math.max(1, span);
    reset.hidden = span >= t.length;
    self.redraw();
  }
  const boxTip = (b) => [name(b) + ": " + duration(b.to - b.from), [
    b.own < b.to - b.from ? "of this its own " + duration(b.own) : "",
    t.paths[b.path],
    causes[b.cause] ? "counts to " + causeTitle(b.cause) : "",
    "from " + (b.from / 1000).toFixed(2) + " to " + (b.to / 1000).toFixed(2) + " µs",
  ]];
  const under = (px, py) => {
    let best = -1, least = 4;
    t.boxes.forEach((b, i) => {
      const top = tops[b.lane] + b.level * ROW;
      if (py < top || py >= top + ROW) return;
      const x0 = x(b.from, self), x1 = Math.max(x(b.to, self), x0 + LEAST), q = px < x0 ? x0 - px : px > x1 ? px - x1 : 0;
      if (q < least) { least = q; best = i; }
    });
    return best;
  };
  const local = (e) => { const box = self.canvas.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; };
  self.canvas.addEventListener("pointerdown", (e) => { if (e.button === 0) { const [px] = local(e); drag = { start: px, now: px }; self.canvas.setPointerCapture(e.pointerId); } });
  self.canvas.addEventListener("pointermove", (e) => {
    const [px, py] = local(e);
    if (drag) { drag.now = px; hideTip(); self.redraw(); return; }
    const i = under(px, py);
    if (i !== selected) { selected = i; self.redraw(); }
    if (i < 0) hideTip(); else showTip(e.clientX, e.clientY, ...boxTip(t.boxes[i]));
  });
  self.canvas.addEventListener("pointerup", () => {
    const d = drag;
    drag = null;
    if (d && Math.abs(d.now - d.start) > 5) zoom(ns(Math.min(d.start, d.now), self), ns(Math.max(d.start, d.now), self)); else self.redraw();
  });
  self.canvas.addEventListener("pointercancel", () => { drag = null; self.redraw(); });
  self.canvas.addEventListener("pointerleave", () => { if (!drag) { selected = -1; hideTip(); self.redraw(); } });
  self.canvas.addEventListener("blur", () => { selected = -1; hideTip(); self.redraw(); });
  self.canvas.addEventListener("dblclick", () => zoom(0, t.length));
  // The wheel belongs to the page until the timeline was clicked (or Ctrl is held).
  self.canvas.addEventListener("wheel", (e) => {
    if (document.activeElement !== self.canvas && !e.ctrlKey) return;
    e.preventDefault();
    const [px] = local(e), at = ns(px, self), f = Math.exp(e.deltaY * .0016);
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) { const by = (e.deltaX || e.deltaY) * .001 * (to - from); zoom(from + by, to + by); } else zoom(at - (at - from) * f, at + (to - at) * f);
  }, { passive: false });
  self.canvas.addEventListener("keydown", (e) => {
    const span = to - from, centre = from + span / 2;
    if (e.key === "+" || e.key === "=") zoom(centre - span / 3.2, centre + span / 3.2);
    else if (e.key === "-" || e.key === "−") zoom(centre - span * .8, centre + span * .8);
    else if (e.key === "ArrowRight") zoom(from + span / 6, to + span / 6);
    else if (e.key === "ArrowLeft") zoom(from - span / 6, to - span / 6);
    else if (e.key === "0" || e.key === "Escape") { selected = -1; hideTip(); zoom(0, t.length); }
    else if (e.key === "n" || e.key === "p") {
      selected = Math.max(0, Math.min(t.boxes.length - 1, selected + (e.key === "n" ? 1 : -1)));
      const b = t.boxes[selected], box = self.canvas.getBoundingClientRect(), [head, rows] = boxTip(b);
      if (b.to < from || b.from > to) zoom(b.from - span / 4, b.from + span * .75); else self.redraw();
      showTip(box.left + Math.max(pad, x(b.from, self)), box.top + tops[b.lane] + (b.level + 1) * ROW, head, rows);
      say(head + ", " + rows.filter(Boolean).join(", "));
    } else return;
    e.preventDefault();
  });

  table.addEventListener("toggle", () => {
    if (!table.open || table.querySelector("table")) return;
    const rows = t.boxes.map((b) => el("tr", {}, el("td", { class: "num" }, (b.from / 1000).toFixed(2)), el("td", { class: "num" }, duration(b.to - b.from)), el("td", { class: "num" }, b.own ? duration(b.own) : "–"), el("td", {}, t.lanes[b.lane].name), el("td", {}, el("code", {}, t.paths[b.path])), el("td", {}, causes[b.cause] ? causeTitle(b.cause) : "")));
    table.append(el("div", { class: "scroll", tabindex: "0" }, el("table", {}, el("thead", {}, el("tr", {}, ...["from, µs", "duration", "its own", "where", "what", "counts to"].map((h, i) => el("th", { class: i < 3 ? "num" : "" }, h)))), el("tbody", {}, rows))));
  });
}

function micros(ns, decimals) { return (ns / 1000).toLocaleString("en-US", { maximumFractionDigits: decimals }) + " µs"; }
function fit(g, text, width) {
  if (g.measureText(text).width <= width) return text;
  let n = Math.floor(text.length * width / g.measureText(text).width);
  while (n > 1 && g.measureText(text.slice(0, n) + "…").width > width) n--;
  return n > 1 ? text.slice(0, n) + "…" : "";
}
function hatching(g) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const h = tile.getContext("2d");
  h.strokeStyle = ink("faint"); h.globalAlpha = .55; h.lineWidth = 1;
  for (const o of [-8, 0, 8]) { h.beginPath(); h.moveTo(o - 1, 9); h.lineTo(o + 9, -1); h.stroke(); }
  return g.createPattern(tile, "repeat");
}
