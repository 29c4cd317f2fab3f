// The tables and texts: header, percentiles, causes, recording.
"use strict";
function drawHeader() {
  const d = data.diagnosis, m = data.meta;
  document.title = d.app + ": Tailsight report";
  const leg = d.leg === "total" ? "all legs" : legName(d, d.leg) + " leg";
  byId("eyebrow").textContent = d.app + " · " + leg + " · " + count(d.messages.complete) + " of " + plural(d.messages.total, "message") + " in " + duration(m.end_ns - m.start_ns);
  byId("verdict").textContent = prose(data.verdict);
  const h = m.host, t = m.target;
  const started = m.started_unix_ns ? new Date(m.started_unix_ns / 1e6).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "";
  const shortList = (v) => (v.length > 6 ? v.slice(0, 6).join(", ") + " and " + (v.length - 6) + " more" : v.join(", "));
  const facts = [
    ["Recorded", started],
    ["Target", [t.selector, t.pids.length ? (t.pids.length > 1 ? "pids " : "pid ") + shortList(t.pids) : "", t.ports.length ? (t.ports.length > 1 ? "ports " : "port ") + shortList(t.ports) : ""].filter(Boolean).join(" · ")],
    ["Kernel", [h.kernel, h.arch].filter(Boolean).join(" ")],
    ["Processor", [h.cpu_model, h.cpus ? plural(h.cpus, "core") : ""].filter(Boolean).join(", ")],
    ["Source", m.source],
    ["Compared with", d.against ? "the run " + d.against : ""],
  ];
  for (const [name, value] of facts) if (value) byId("facts").append(el("div", {}, el("dt", {}, name), el("dd", {}, value)));
  const alerts = [...(m.state === "complete" ? [] : ["This run is partial: " + (m.partial || "the recorder did not finish") + "."]), ...d.notes];
  byId("alerts").append(...alerts.map((text) => el("p", { class: "note" }, rich(text))));
}

function drawPercentiles() {
  const values = data.diagnosis.latency_ns;
  for (const key of data.percentiles) {
    const tile = el("div", {}, el("dt", {}, key));
    if (values[key] === undefined) {
      const needed = Math.round(1 / (1 - parseFloat(key.slice(1)) / 100));
      tile.append(el("dd", {}, "N/A", el("span", { class: "why" }, needed > 1 && isFinite(needed) ? "needs " + plural(needed, "message") : "no messages")));
    } else {
      const [value, unit] = durationParts(values[key]);
      tile.append(el("dd", {}, value, el("span", { class: "unit" }, unit)));
    }
    byId("percentiles").append(tile);
  }
}

function bar(share, top, color) {
  const fill = el("i");
  fill.style.width = Math.min(100, Math.abs(share) / top * 100) + "%";
  fill.style.background = color;
  return el("div", { class: "sharebar" }, el("b", {}, percent(share)), el("div", { class: "track" + (share < 0 ? " negative" : ""), "aria-hidden": "true" }, fill));
}

function drawCauses() {
  const d = data.diagnosis, table = byId("causes");
  if (!causes.length) {
    byId("causes-lede").textContent = d.not_available ? "No causes can be said: " + d.not_available.replace(/^N\/A: /, "") + "." : "No cause was found: the messages in focus deviate from the reference by nothing that was recorded.";
    return;
  }
  byId("causes-lede").textContent = "Compared: " + plural(d.focus.messages, "message") + " in focus (mean " + duration(d.focus.mean_ns) + ") with " + plural(d.reference.messages, "reference message") + (d.against ? " of the run " + d.against : "") + " (mean " + duration(d.reference.mean_ns) +
    "). The rows add up to the difference. The causes, rows that are not chance, explain " + partsOf(d.coverage) + ". Of " + partsOf(d.owned) + " the owner is known.";
  table.append(el("thead", {}, el("tr", {}, el("th", {}), el("th", {}, "Cause"), el("th", {}, "Share of the delay"), el("th", { class: "num" }, "Per message"), el("th", { class: "num" }, "95 % interval"), el("th", { class: "num" }, "Messages hit"))));
  const body = el("tbody");
  const top = Math.max(...causes.map((c) => Math.abs(c.share)), 1e-9);
  const isSmall = (c, i) => isNamed(i) && (Math.abs(c.share) < .01 || i >= 12);
  const small = causes.map((c, i) => [c, i]).filter(([c, i]) => isSmall(c, i));
  const hidden = [];
  causes.forEach((c, i) => {
    const rows = causeRows(c, i, top, i === 0);
    if (isSmall(c, i) && small.length > 1) { rows.forEach((r) => { r.hidden = true; hidden.push(r); }); }
    if (small.length > 1 && small[0][1] === i) body.append(foldRow(small, hidden));
    body.append(...rows);
  });
  table.append(body);
}

// A part of the deviation over all, in the median message and in the worst.
function partsOf(c) { return percent(c.overall) + " of it (in half of the messages " + percent(c.p50) + " or more, in the worst " + percent(c.min) + ")"; }

function times(mean) { return (mean < 10 ? +mean.toFixed(mean < 1 ? 2 : 1) : count(mean)) + (mean === 1 ? " time" : " times"); }

// One row for all the small causes, with their sum; pressing it shows them.
function foldRow(small, hidden) {
  const sum = (f) => small.reduce((a, [c]) => a + f(c), 0);
  const label = (open) => (open ? "Hide " : "Show ") + small.length + " smaller causes";
  const button = el("button", { class: "link", type: "button", "aria-expanded": "false", on: { click() {
    const open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(open));
    button.textContent = label(open);
    hidden.forEach((r) => { r.hidden = !open; });
  } } }, label(false));
  return el("tr", { class: "less" }, el("td", {}, "…"), el("td", {}, button), el("td", { class: "share" }, el("div", { class: "sharebar" }, el("b", {}, percent(sum((c) => c.share))), el("span", {}, "together"))), el("td", { class: "num" }, duration(sum((c) => c.deviation_ns))), el("td"), el("td"));
}

function causeRows(c, i, top, open) {
  const named = isNamed(i);
  const main = el("tr", { class: named && c.share >= 0 ? "" : "less" },
    el("td", { class: "num" }, named ? String(c.rank) : ""),
    el("td", { class: "what" }, swatch(i), " ", el("b", {}, causeName(i)),
      el("small", {}, named ? [c.name && c.name !== c.category ? c.category + " on the " : "on the ", roleName(c.role), c.inferred ? ", inferred" : ""].join("") : c.category === "unexplained" ? "what the recording cannot tell" : "may be chance")),
    el("td", { class: "share" }, bar(c.share, top, causeColor(i))),
    el("td", { class: "num" }, (c.deviation_ns > 0 ? "+" : "") + duration(c.deviation_ns)),
    el("td", { class: "num" }, c.ci95_ns[0] === c.ci95_ns[1] ? "–" : duration(c.ci95_ns[0]) + " … " + duration(c.ci95_ns[1])),
    el("td", { class: "num" }, c.category === "not-significant" ? "" : count(c.messages) + " of " + count(data.diagnosis.focus.messages)));
  const inner = el("div", { class: "inner" });
  if (c.explanation) inner.append(el("p", {}, rich(c.explanation)));
  const facts = [];
  if (c.times && c.times[0] > 0) facts.push("It began " + times(c.times[0]) + " in a message in focus, " + times(c.times[1]) + " in a reference message.");
  if (c.how && c.mean_ns) facts.push("Found as " + c.how.replace("-", " ") + " (" + c.phase + "): " + duration(c.mean_ns[0]) + " in a message in focus, " + duration(c.mean_ns[1]) + " in a reference message.");
  if (c.before) facts.push("Before it ran " + c.before + ".");
  if (c.ahead && c.ahead.focus > 0) facts.push(c.ahead.focus.toFixed(1) + " messages were ahead on average, usually " + c.ahead.reference.toFixed(1) + ".");
  if (c.who) facts.push(...whoFacts(c.who));
  const columns = el("div", { class: "columns" });
  if (c.fix.length) columns.append(el("div", {}, el("h4", {}, "What removes it"), el("ul", {}, removers(c))));
  if (c.paths.length || c.evidence.length || facts.length) {
    const rows = c.paths.map(([path, ns]) => el("tr", {}, el("td", { class: "num" }, duration(ns)), el("td", {}, el("code", {}, path))));
    const ids = c.evidence.slice(0, 8).map((id) => el("button", { type: "button", on: { click: () => balloonSelect(id, true) } }, "message " + count(id)));
    columns.append(el("div", {}, el("h4", {}, "Evidence"), facts.map((f) => el("p", {}, f)), rows.length ? el("table", { class: "paths" }, el("tbody", {}, rows)) : "", ids.length ? el("p", { class: "ids" }, "Hit most: ", ids, " In full: ", el("code", {}, "tailsight show " + data.diagnosis.run + " " + c.evidence[0])) : ""));
  }
  if (c.category === "not-significant") inner.append(chance());
  if (columns.children.length) {
    const details = el("details", { open }, el("summary", {}, c.fix.length ? "Fix and evidence" : "Evidence"), columns);
    if (open) details.setAttribute("open", "");
    inner.append(details);
  }
  if (!inner.children.length) return [main];
  return [main, el("tr", { class: "detail" + (named && c.share >= 0 ? "" : " less") }, el("td"), el("td", { colspan: 5 }, inner))];
}

// The process that a cause is: how many, where they belong, and their threads by name.
function whoFacts(w) {
  const others = w.processes > w.pids.length ? " and " + (w.processes - w.pids.length) + " more" : "";
  const facts = [(w.processes > 1 ? w.processes + " processes (" : "Process ") + w.pids.join(", ") + others + (w.processes > 1 ? ")" : "") + " " + w.comm + ", " + plural(w.threads, "thread") + (w.container ? ", in container " + w.container.slice(0, 12) : "") + (w.unit ? ", unit " + w.unit : w.cgroup ? ", control group " + w.cgroup : "") + "."];
  if (w.by_thread.length > 1 || w.by_thread.some((t) => t.name !== w.comm)) facts.push("By thread: " + w.by_thread.map((t) => t.name + (t.threads > 1 ? " (" + t.threads + ")" : "") + " " + duration(t.deviation_ns)).join(", ") + ".");
  return facts;
}

// What tailsight fix makes and takes back, by its command; then what is left to be done by hand.
function removers(c) {
  const actions = c.actions || [];
  const byHand = c.fix.filter((f, i) => !actions.some((a) => a.shell.includes(i)));
  return [
    ...actions.map((a) => el("li", {}, el("code", { class: "command" }, a.command), el("span", { class: "why" }, prose(a.title)), a.says.map((s) => el("span", { class: "why" }, s)))),
    ...byHand.map((f) => el("li", {}, fixNodes(f))),
  ];
}

// The rows that cannot be told from chance, one by one.
function chance() {
  const rows = data.diagnosis.not_significant || [];
  if (!rows.length) return "";
  return el("details", {}, el("summary", {}, "The " + plural(rows.length, "row")), el("table", { class: "paths" }, el("tbody", {}, rows.map((c, i) =>
    el("tr", {}, el("td", {}, data.chance_titles[i]), el("td", {}, c.category + " on the " + roleName(c.role)), el("td", { class: "num" }, (c.deviation_ns > 0 ? "+" : "") + duration(c.deviation_ns)), el("td", { class: "num" }, duration(c.ci95_ns[0]) + " … " + duration(c.ci95_ns[1])))))));
}

function drawRecord() {
  const m = data.meta, record = byId("record");
  const add = (name, ...value) => record.append(el("dt", {}, name), el("dd", {}, ...value));
  add("Lost", prose(data.lost));
  const cores = m.cpus.filter((c) => c.lost > 0);
  if (cores.length) add("Lost by core", cores.map((c) => "core " + c.cpu + ": " + count(c.lost)).join(", "));
  add("Cost", prose(data.cost));
  if (m.overhead.recorder_cpu_ns) add("Recorder", duration(m.overhead.recorder_cpu_ns) + " of CPU in its own threads");
  if (m.devices.length) add("Devices", el("ul", {}, m.devices.map((v) => el("li", {}, el("b", {}, v.name), " " + [v.driver, v.rx_queues || v.tx_queues ? plural(v.rx_queues, "receive queue") + ", " + plural(v.tx_queues, "transmit queue") : "", v.irqs.length ? "interrupts " + v.irqs.join(", ") : "no interrupts of its own", v.here ? "" : "in the target's network namespace", plural(v.packets, "packet") + " for the target"].filter(Boolean).join(" · ")))));
  const off = m.hooks.filter((h) => !h.on && !h.optional);
  if (off.length) add("Hooks off", el("ul", {}, off.map((h) => el("li", {}, el("code", {}, h.name), " " + (h.reason || "no reason recorded")))));
  if (m.warnings.length) add("To mind", el("ul", {}, m.warnings.map((w) => el("li", {}, rich(w)))));
  if (data.diagnosis.next.length) add("Next steps", el("ul", {}, data.diagnosis.next.map((n) => el("li", {}, stepNodes(n)))));
  const on = m.hooks.filter((h) => h.on);
  const details = byId("hooks");
  details.hidden = !on.length;
  details.querySelector("summary").textContent = plural(on.length, "hook") + " on, with what each cost";
  details.querySelector("table").append(el("thead", {}, el("tr", {}, el("th", {}, "Hook"), el("th", {}, "Probe"), el("th", { class: "num" }, "ns a run"), el("th", { class: "num" }, "runs measured"))),
    el("tbody", {}, on.map((h) => el("tr", {}, el("td", {}, el("code", {}, h.name)), el("td", {}, h.probe), el("td", { class: "num" }, h.ns_per_run === null ? "not measured" : h.ns_per_run.toFixed(0)), el("td", { class: "num" }, count(h.measured_runs))))));
  byId("footer").textContent = "Tailsight " + m.tailsight + " · run " + data.diagnosis.run + " · one file, nothing is loaded from anywhere. Times are CLOCK_MONOTONIC; every nanosecond of a message has one owner.";
}
