// Beyond the causes of the slice: groups of messages, classes of requests, and what NSight section 7.4 looks at.
// A section without data stays hidden.
"use strict";
function show(id) { byId(id).hidden = false; }
function head(...cells) { return el("thead", {}, el("tr", {}, cells.map(([text, num]) => el("th", { class: num ? "num" : "" }, text)))); }
function messageButton(id) { return el("button", { type: "button", class: "link", on: { click: () => balloonSelect(id, true) } }, "message " + count(id)); }
function percentile(q) { return "p" + +(q * 100).toFixed(4); }
function part(share, color) {
  const fill = el("i");
  fill.style.width = Math.min(100, share * 100) + "%";
  fill.style.background = color;
  return el("div", { class: "sharebar" }, el("b", {}, percent(share)), el("div", { class: "track", "aria-hidden": "true" }, fill));
}

// The messages in focus by the cause that most of their own delay is.
function drawGroups() {
  const groups = data.diagnosis.clusters || [];
  if (groups.length < 2) return;
  show("groups-section");
  const all = groups.reduce((a, g) => a + g.messages, 0);
  byId("groups").append(head(["Mostly"], ["Messages in focus"], ["", true], ["Mean", true], ["The slowest of them"]), el("tbody", {}, groups.map((g) => {
    const i = g.rank - 1;
    return el("tr", { class: isNamed(i) ? "" : "less" }, el("td", { class: "what" }, swatch(i), " ", el("b", {}, causeName(i)), isNamed(i) ? el("small", {}, g.category + " on the " + roleName(g.role)) : ""),
      el("td", { class: "share" }, part(g.messages / all, causeColor(i))), el("td", { class: "num" }, count(g.messages)), el("td", { class: "num" }, duration(g.mean_ns)), el("td", {}, messageButton(g.example)));
  })));
}

function drawRequests() {
  const r = data.requests;
  if (!r) return;
  show("requests-section");
  byId("requests-lede").textContent = "Each message is one " + r.protocol + " request. " + r.pairing;
  const complete = r.classes.reduce((a, c) => a + c.messages, 0), focus = r.classes.reduce((a, c) => a + c.focus, 0);
  byId("requests").append(head(["Class"], ["Messages", true], ["p50", true], ["p99", true], ["In focus", true], ["Of the focus, of all", true]), el("tbody", {}, r.classes.map((c) =>
    el("tr", {}, el("td", { class: "what" }, c.name), el("td", { class: "num" }, count(c.messages)), el("td", { class: "num" }, duration(c.p50_ns)), el("td", { class: "num" }, c.p99_ns === null ? "N/A" : duration(c.p99_ns)),
      el("td", { class: "num" }, count(c.focus)), el("td", { class: "num" }, percent(focus ? c.focus / focus : 0) + ", " + percent(c.messages / complete))))));
}

// Figure 18 at every percentile: the part of the messages that each cause hits, by slice of the latencies.
function drawPervasive() {
  const slices = (data.diagnosis.more || {}).pervasive || [];
  if (!slices.length) return;
  show("pervasive-section");
  const ranks = [...new Set(slices.flatMap((s) => s.causes.map((c) => c[0])))].filter((r) => isNamed(r - 1)).sort((a, b) => a - b);
  const name = (s) => percentile(s.from) + "–" + percentile(s.to).slice(1);
  byId("pervasive").append(
    el("thead", {}, el("tr", {}, el("th", {}, "Cause"), slices.map((s) => el("th", { class: "num" }, name(s)))), el("tr", { class: "sub" }, el("th", {}, "mean latency"), slices.map((s) => el("th", { class: "num" }, duration(s.mean_ns))))),
    el("tbody", {}, ranks.map((rank) => el("tr", {}, el("td", { class: "what" }, swatch(rank - 1), " ", causeName(rank - 1), el("small", {}, causes[rank - 1].category + " on the " + roleName(causes[rank - 1].role))), slices.map((s) => {
      const cell = s.causes.find((c) => c[0] === rank);
      if (!cell) return el("td", { class: "num heat none" }, "·");
      const td = el("td", { class: "num heat", title: percent(cell[1]) + " of the messages have more of it than usual, " + (cell[2] > 0 ? "+" : "") + duration(cell[2]) + " in the mean" }, Math.round(cell[1] * 100) + " %");
      td.style.setProperty("--heat", (cell[1] * 55).toFixed(0) + "%");
      return td;
    })))));
}

// Figure 19: what was queued ahead of a message, by function.
function drawQueue() {
  const queue = (data.diagnosis.more || {}).queue || [];
  if (!queue.length) return;
  show("queue-section");
  const relative = (q) => q.relative.map((v) => (v > 0 ? "+" : v < 0 ? "−" : "") + Math.abs(v).toFixed(1)).join("  ");
  byId("queue").append(head(["Queued ahead"], ["Usually", true], ["In focus", true], ["More than usual: p10 p50 p90", true], ["Its time, more than usual", true], ["Messages with more", true]), el("tbody", {}, queue.map((q) =>
    el("tr", {}, el("td", { class: "what" }, q.function === "messages" ? "whole messages" : q.function, el("small", {}, roleName(q.role))), el("td", { class: "num" }, q.depth[1].toFixed(1)), el("td", { class: "num" }, el("b", {}, q.depth[0].toFixed(1))), el("td", { class: "num" }, relative(q)),
      el("td", { class: "num" }, (q.mean_ns[0] > q.mean_ns[1] ? "+" : "") + duration(q.mean_ns[0] - q.mean_ns[1])), el("td", { class: "num" }, count(q.messages) + " of " + count(data.diagnosis.focus.messages))))));
}

// Figure 20: what ran on each core while messages were in it, as one bar a core.
function drawCores() {
  const [focus, reference] = (data.diagnosis.more || {}).cores || [[], []];
  if (!focus.length) return;
  show("cores-section");
  // The same context has the same tint in every bar: by its part of all the time in focus, the largest first.
  const sum = new Map();
  for (const core of [...focus, ...reference]) for (const [name, share] of core.contexts) sum.set(name, (sum.get(name) || 0) + share * core.share);
  const order = [...sum.keys()].sort((a, b) => sum.get(b) - sum.get(a));
  const words = (name) => data.contexts[name] || name;
  const tint = (name) => "tint t" + Math.min(order.indexOf(name), 8);
  const bars = (title, cores) => el("div", { class: "cores" }, el("h3", {}, title), cores.map((core) => el("div", { class: "core" },
    el("p", {}, el("b", {}, core.cpu === null ? "On no core" : "Core " + core.cpu), " " + percent(core.share) + " of the time"),
    el("div", { class: "stack", "aria-hidden": "true" }, core.contexts.map(([name, share]) => {
      const box = el("span", { class: tint(name), title: words(name) + " " + percent(share) });
      box.style.width = share * 100 + "%";
      return box;
    })),
    el("ul", { class: "legend plain" }, core.contexts.filter((c) => c[1] >= .005).map(([name, share]) => el("li", {}, el("span", { class: "item" }, el("span", { class: "key " + tint(name) }), el("span", {}, words(name) + " ", el("span", { class: "n" }, percent(share))))))))));
  byId("cores").append(bars("During the messages in focus", focus));
  if (reference.length) byId("cores").append(bars("During the reference messages", reference));
}
