// The page of a measurement: verdict, percentiles, CCDF, latency and load over time, checks, steps, client.
"use strict";
const r = data.report, number = r.verdict.verdict === "number";
const latencyName = r.latency === "service" ? "service time" : "response time";

function drawHead() {
  byId("eyebrow").textContent = r.protocol + " at " + r.target + ", " + new Date(r.began_s * 1000).toISOString().replace("T", " ").slice(0, 16) + " UTC";
  byId("verdict").textContent = prose(data.headline);
  document.title = r.target + ": " + data.headline;
  const rate = r.rate.asked === null ? count(r.rate.sent) + "/s, closed loop" : count(r.rate.sent) + "/s of " + count(r.rate.asked) + "/s asked";
  for (const [k, v] of [["load", rate], ["arrivals", r.plan.arrivals], ["connections", r.plan.connections], ["samples", count(data.samples)], ["requests", count(r.counts.sent)], ["client", r.client.cpu_ns_per_request === null ? "N/A" : duration(r.client.cpu_ns_per_request) + " of CPU a request"]])
    byId("facts").append(el("div", {}, el("dt", {}, k), el("dd", {}, String(v))));
  const note = (text) => byId("alerts").append(el("p", { class: "note" }, prose(text)));
  const bounds = r.verdict.bounds || [];
  for (const p of r.verdict.passed || []) note("What passed: the " + p.percentile + " " + latencyName + " is " + duration(p.value_ns) + ", between " + duration(p.lower_ns) + " and " + duration(p.upper_ns) + " at " + +(100 * p.level).toFixed(2) + " %.");
  for (const p of bounds) note("What is known: the " + p.percentile + " " + latencyName + " is between " + duration(p.lower_ns) + " and " + duration(p.upper_ns) + " at " + +(100 * p.level).toFixed(2) + " %, which is wider than asked.");
  if (r.verdict.no_bounds_because) note("No bounds of " + r.verdict.missing.map((m) => m.percentile).join(", ") + ": " + r.verdict.no_bounds_because + ".");
  if (!number) note("What would help: " + r.verdict.hint + "." + (bounds.length ? "" : " The curves below are of the samples kept; they are no result."));
  for (const p of number ? r.verdict.percentiles : []) if (p.how.method === "effective-sample-size") note("Neighbouring samples depend on each other at every affordable sampling rate: the interval of " + p.percentile + " is that of " + count(p.how.effective_n) + " independent samples (effective sample size).");
  if (r.restarts.length) note("The measurement began anew " + plural(r.restarts.length, "time") + ": " + [...new Set(r.restarts)].join("; ") + ".");
  r.complaints.forEach((c) => note(c.text[0].toUpperCase() + c.text.slice(1) + "."));
  if (r.against) note((r.against.worse ? "Worse than " : "Not worse than ") + r.against.file + ": " + r.against.percentile + " " + duration(r.against.value_ns) + " against " + duration(r.against.other_ns) + ", difference " + duration(r.against.lower_ns) + " to " + duration(r.against.upper_ns) + ".");
  if (r.objective) note(r.objective.objective + (r.objective.met ? " is met" : r.objective.confidence === null ? " is not shown to be met" : " is not met") + (r.objective.confidence === null ? "." : ", confidence " + percent(r.objective.confidence) + "."));
}

function drawLatency() {
  byId("latency-lede").textContent = number || data.has_samples ? "With 95 % intervals. N/A: the sample cannot support it." : "The run supports no percentiles.";
  const names = Object.keys(r.response_ns.percentiles).sort((a, b) => parseFloat(a.slice(1)) - parseFloat(b.slice(1)));
  const cell = (e) => (e ? el("td", { class: "num" }, duration(e.value), el("br"), el("small", {}, duration(e.lower) + " to " + duration(e.upper))) : el("td", { class: "num" }, "N/A"));
  const row = (name, what, s) => el("tr", {}, el("td", {}, name, el("br"), el("small", {}, what)), names.map((n) => cell(s.percentiles[n])), el("td", { class: "num" }, s.max === null ? "N/A" : duration(s.max)));
  const late = r.lateness_ns, lateCell = (n) => el("td", { class: "num" }, late[n] === undefined || late[n] === null ? "" : duration(late[n]));
  byId("latency").append(
    el("tr", {}, el("th", {}), names.map((n) => el("th", { class: "num" }, n)), el("th", { class: "num" }, "slowest")),
    row("response time", "from due to answered", r.response_ns), row("service time", "from sent to answered", r.service_ns),
    el("tr", {}, el("td", {}, "client lateness", el("br"), el("small", {}, "from due to sent, all " + count(late.n) + " requests")), names.map(lateCell), lateCell("max")));
}

function legend(id, entries) {
  for (const [name, color] of entries) {
    const line = el("span", {});
    line.style.cssText = "width:16px;height:3px;border-radius:2px;background:var(--" + color + ")";
    byId(id).append(el("li", {}, el("span", { class: "item" }, line, el("span", {}, name))));
  }
}

// Axes of a plot over x; gives back the scales.
function frame(g, c, pad, xs, ys, xLabel) {
  const right = c.width - pad.right, bottom = c.height - pad.bottom;
  g.lineWidth = 1; g.strokeStyle = ink("line"); g.fillStyle = ink("soft");
  g.textAlign = "center"; g.textBaseline = "top";
  for (const [v, text] of xs.ticks((right - pad.left) / 70)) { line(g, crisp(xs.at(v, c)), pad.top, crisp(xs.at(v, c)), bottom); g.fillText(text, xs.at(v, c), bottom + 7); }
  g.fillText(xLabel, (pad.left + right) / 2, bottom + 24);
  g.textAlign = "right"; g.textBaseline = "middle";
  for (const [v, text] of ys.ticks((bottom - pad.top) / 34)) { line(g, pad.left, crisp(ys.at(v, c)), right, crisp(ys.at(v, c))); g.fillText(text, pad.left - 8, ys.at(v, c)); }
}
const PAD = { left: 66, right: 18, top: 14, bottom: 40 };
const wide = (c) => c.width - PAD.left - PAD.right, high = (c) => c.height - PAD.top - PAD.bottom;
function linearX(from, to) {
  return { at: (v, c) => PAD.left + ((v - from) / (to - from)) * wide(c), back: (px, c) => from + ((px - PAD.left) / wide(c)) * (to - from), ticks: (n) => linearTicks(from, to, n).map((v) => [v, +v.toPrecision(6) + " s"]) };
}
function linearY(to, text) { return { at: (v, c) => PAD.top + (1 - v / to) * high(c), ticks: (n) => linearTicks(0, to, n).map((v) => [v, text(v)]) }; }
function logX(from, to) { return { at: (v, c) => PAD.left + (Math.log(Math.max(v, from) / from) / Math.log(to / from)) * wide(c), back: (px, c) => from * (to / from) ** ((px - PAD.left) / wide(c)), ticks: (n) => logTicks(from, to, n).map((v) => [v, tickLabel(v)]) }; }
function logY(from, to, text) { return { at: (v, c) => PAD.top + (1 - Math.log(Math.max(v, from) / from) / Math.log(to / from)) * high(c), ticks: (n) => logTicks(from, to, n).map((v) => [v, text(v)]) }; }
function share(v) { return +(v * 100).toPrecision(2) + " %"; }

function stroke(g, points, color, width, dash) {
  g.strokeStyle = color; g.lineWidth = width; g.lineJoin = "round"; g.setLineDash(dash || []);
  g.beginPath();
  let pen = false;
  for (const p of points) { if (p === null) { pen = false; continue; } if (pen) g.lineTo(p[0], p[1]); else g.moveTo(p[0], p[1]); pen = true; }
  g.stroke(); g.setLineDash([]);
}
// A vertical line under the pointer and under the arrow keys, with a tip.
function hoverable(self, x, first, describe) {
  let at = null;
  const show = (v, cx, cy, aloud) => {
    at = v;
    const [title, rows] = describe(v);
    self.redraw();
    const g = self.canvas.getContext("2d");
    g.strokeStyle = ink("soft"); g.lineWidth = 1; g.setLineDash([3, 3]); line(g, crisp(x.at(v, self)), PAD.top, crisp(x.at(v, self)), self.height - PAD.bottom); g.setLineDash([]);
    showTip(cx, cy, title, rows);
    if (aloud) say(title + ": " + rows.join(", "));
  };
  self.canvas.addEventListener("mousemove", (e) => { const box = self.canvas.getBoundingClientRect(), px = e.clientX - box.left; if (px >= PAD.left && px <= self.width - PAD.right) show(x.back(px, self), e.clientX, e.clientY); });
  for (const type of ["mouseleave", "blur"]) self.canvas.addEventListener(type, () => { at = null; hideTip(); self.redraw(); });
  self.canvas.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 12, ArrowLeft: -12 }[e.key];
    if (!step) return;
    e.preventDefault();
    const px = Math.min(self.width - PAD.right, Math.max(PAD.left, (at === null ? x.at(first, self) : x.at(at, self)) + step)), box = self.canvas.getBoundingClientRect();
    show(x.back(px, self), box.left + px, box.top + 60, true);
  });
}

function drawCcdf() {
  const sets = [["response time", data.response, "c1"], ["service time", data.service, "c2"]].filter((s) => s[1].length);
  if (!sets.length) { byId("ccdf").textContent = "No request was answered."; return; }
  byId("ccdf-lede").textContent = "Both axes are logarithmic. " + (data.has_samples ? "The samples that the verdict is about, " : "All samples kept, no result, ") + count(data.samples) + " of them; the slowest is at the right end.";
  legend("ccdf-legend", sets.map((s) => [s[0], s[2]]));
  const all = sets.flatMap((s) => s[1]), from = Math.max(1, all.reduce((a, p) => Math.min(a, p[0]), Infinity)) * .9, to = all.reduce((a, p) => Math.max(a, p[0]), 2) * 1.15;
  const floor = all.reduce((a, p) => Math.min(a, p[1]), 1) / 1.6;
  const x = logX(from, to), y = { at: logY(floor, 1).at, ticks: () => { const out = []; for (let e = 0; 10 ** -e > floor; e++) out.push([10 ** -e, share(10 ** -e)]); return out; } };
  const self = chart(byId("ccdf"), 360, "Share of requests slower than a latency, on log axes: " + data.headline, (g, c) => {
    frame(g, c, PAD, x, y, "latency, log scale");
    for (const [, points, color] of sets) {
      const steps = [];
      let before = 1;
      for (const [v, s] of points) { const px = x.at(v, c); steps.push([px, y.at(before, c)], [px, y.at(s, c)]); before = s; }
      stroke(g, steps, ink(color), 1.8);
    }
    for (const p of number ? r.verdict.percentiles : []) {
      // The interval as a bar at the percentile's share.
      const py = y.at(1 - p.quantile, c), a = x.at(p.lower_ns, c), b = x.at(p.upper_ns, c), px = x.at(p.value_ns, c);
      g.strokeStyle = ink("ink"); g.lineWidth = 2;
      line(g, a, py, b, py); line(g, a, py - 4, a, py + 4); line(g, b, py - 4, b, py + 4);
      g.fillStyle = ink("bg"); g.beginPath(); g.arc(px, py, 3.5, 0, 7); g.fill(); g.lineWidth = 1.5; g.stroke();
      const text = p.percentile + " " + duration(p.value_ns), flip = b + 12 + g.measureText(text).width > c.width - PAD.right;
      g.textAlign = flip ? "right" : "left"; g.textBaseline = "middle";
      g.lineWidth = 4; g.strokeStyle = ink("bg"); g.strokeText(text, flip ? a - 9 : b + 9, py - 10); g.fillStyle = ink("ink"); g.fillText(text, flip ? a - 9 : b + 9, py - 10);
    }
  });
  const slower = (points, v) => { let s = 0; for (let i = points.length - 1; i >= 0 && points[i][0] > v; i--) s = points[i][1]; return s; };
  hoverable(self, x, sets[0][1][0][0], (v) => [duration(v), sets.map(([name, points]) => name + ": " + share(slower(points, v)) + " are slower")]);
}

function drawTime() {
  const t = data.over_time;
  if (!t.length) { byId("time").textContent = "Nothing was recorded."; return; }
  legend("time-legend", [["median", "c1"], ["p99", "c4"], ["slowest", "c0"]]);
  const x = linearX(0, Math.max(...t.map((p) => p.at), ...data.load.map((p) => p.at)) * 1.01);
  const y = logY(Math.max(1, t.reduce((a, p) => Math.min(a, p.p50), Infinity)) * .8, t.reduce((a, p) => Math.max(a, p.max), 2) * 1.25, tickLabel);
  const gap = t.length > 1 ? t.slice(1).map((p, i) => p.at - t[i].at).sort((a, b) => a - b)[t.length >> 1] * 3 : 1;
  const self = chart(byId("time"), 300, "Latency over time; slowest " + duration(t.reduce((a, p) => Math.max(a, p.max), 0)), (g, c) => {
    frame(g, c, PAD, x, y, "time since the start of the load");
    // No line across a pause in the recording.
    const path = (key, dropped) => t.flatMap((p, i) => { const v = p[key] === null || p.dropped !== dropped ? [null] : [[x.at(p.at, c), y.at(p[key], c)]]; return i && p.at - t[i - 1].at > gap ? [null, ...v] : v; });
    for (const [key, color] of [["p99", "c4"], ["p50", "c1"]]) { stroke(g, path(key, true), ink("faint"), 1.2); stroke(g, path(key, false), ink(color), 1.8); }
    for (const p of t) { g.fillStyle = p.dropped ? ink("faint") : ink("c0"); g.beginPath(); g.arc(x.at(p.at, c), y.at(p.max, c), 1.9, 0, 7); g.fill(); }
  });
  hoverable(self, x, t[0].at, (v) => { const p = t.reduce((a, b) => (Math.abs(b.at - v) < Math.abs(a.at - v) ? b : a)); return [p.at.toFixed(2) + " s", ["median " + duration(p.p50), p.p99 === null ? "p99 N/A" : "p99 " + duration(p.p99), "slowest " + duration(p.max)].concat(p.dropped ? ["not in the result"] : [])]; });
}

function drawLoad() {
  const l = data.load;
  if (!l.length) { byId("load").textContent = "No load was made."; return; }
  const open = l.some((p) => p.target > 0);
  legend("load-legend", [["sent", "c1"], ["answered", "c2"]].concat(open ? [["asked", "soft"]] : []));
  const x = linearX(0, Math.max(...data.over_time.map((p) => p.at), ...l.map((p) => p.at)) * 1.01), y = linearY(Math.max(1, ...l.map((p) => Math.max(p.target, p.sent, p.answered))) * 1.1, (v) => count(v) + "/s");
  const self = chart(byId("load"), 240, "Load over time, requests a second", (g, c) => {
    frame(g, c, PAD, x, y, "time since the start of the load");
    const path = (key) => l.map((p) => [x.at(p.at, c), y.at(p[key], c)]);
    stroke(g, path("answered"), ink("c2"), 1.6); stroke(g, path("sent"), ink("c1"), 1.6);
    if (open) stroke(g, path("target"), ink("soft"), 1.2, [5, 4]);
  });
  hoverable(self, x, l[0].at, (v) => { const p = l.reduce((a, b) => (Math.abs(b.at - v) < Math.abs(a.at - v) ? b : a)); return [p.at.toFixed(2) + " s", ["sent " + count(p.sent) + "/s", "answered " + count(p.answered) + "/s", open ? "asked " + count(p.target) + "/s" : "", "client late by up to " + duration(p.late)]]; });
}

function drawRest() {
  const rows = r.checks.map((c, i) => [c, data.evidence[i]]);
  const own = r.verdict.failed;
  if (own && !r.checks.some((c) => c.id === own.id && !c.passed)) rows.push([own, own.test]);
  byId("checks").append(...rows.map(([c, text]) => el("tr", {}, el("td", { class: c.passed ? "ok" : "bad" }, c.passed ? "held" : "not held"), el("td", {}, c.id.replace(/-/g, " ")), el("td", {}, el("small", {}, prose(text))))));
  if (!rows.length) byId("checks").append(el("tr", {}, el("td", {}, "The run ended before anything could be checked.")));
  for (const s of r.steps) byId("steps").append(el("dt", {}, s.at_s.toFixed(1) + " s"), el("dd", {}, prose(s.what)));
  const c = r.client, n = r.counts;
  const facts = [
    ["price", c.cpu_ns_per_request === null ? "N/A" : duration(c.cpu_ns_per_request) + " of CPU a request, user and system, of the loading threads"],
    ["threads", c.threads + "; the busiest used " + percent(c.busiest_thread) + " of its core, the most starved waited " + percent(c.starved_thread) + " of the time for one"],
    ["stamps", percent(c.stamped) + " of the receive times are the kernel's" + (c.hardware > 0 ? " or the NIC's; of " + percent(c.hardware) + " of the samples both times are the NIC's" : "") + "; clocks compared to " + duration(c.clock_error_ns) + (c.stamps ? "; " + c.stamps : "") + (c.stamps_why ? ": " + c.stamps_why : "") + (c.stamps_hint ? ": " + c.stamps_hint : "")],
    ["requests", Object.entries(n).filter(([, v]) => v > 0).map(([k, v]) => count(v) + " " + k).join(", ")],
    ["plan", el("code", {}, JSON.stringify(r.plan))],
  ];
  for (const [k, v] of facts) byId("client").append(el("dt", {}, k), el("dd", {}, v));
  byId("footer").textContent = "Tailsight " + r.version + ". The method: docs/load.md. Nothing on this page was loaded from anywhere.";
}

for (const [id, part] of [["eyebrow", drawHead], ["latency", drawLatency], ["ccdf", drawCcdf], ["time", drawTime], ["load", drawLoad], ["checks", drawRest]]) {
  try { part(); } catch (error) { byId(id).append(el("p", { class: "note" }, "This part could not be drawn: " + error.message)); console.error(error); }
}
charts.forEach((c) => c.redraw());
document.documentElement.dataset.drawn = "yes";
