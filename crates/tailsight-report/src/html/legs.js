// Beside the causes: the percentiles of every leg, where a median message spends its time, the slowest messages one by one.
"use strict";
// The transmit leg's name says where it begins when that is not the send call.
function legName(d, leg) {
  const from = Object.values(d.send_entry || {}), all = (source) => from.length > 0 && from.every((s) => s === source);
  return leg !== "transmit" ? leg : all("driver") ? "transmit (from the driver)" : all("net_dev_queue") ? "transmit (from the qdisc)" : leg;
}

function drawLegs() {
  const d = data.diagnosis, names = ["receive", "service", "transmit", "total"].filter((n) => d.legs && d.legs[n]);
  byId("legs-section").hidden = !names.length;
  if (!names.length) return;
  const keys = data.percentiles;
  byId("legs").append(el("thead", {}, el("tr", {}, el("th", {}, "Leg"), keys.map((k) => el("th", { class: "num" }, k)), el("th", { class: "num" }, "Messages"))),
    el("tbody", {}, names.map((n) => el("tr", { class: n === d.leg ? "chosen" : "" }, el("td", {}, n === d.leg ? el("b", {}, legName(d, n)) : legName(d, n), n === d.leg ? el("small", {}, "explained on this page") : ""),
      keys.map((k) => el("td", { class: "num" }, d.legs[n][k] === undefined ? "N/A" : duration(d.legs[n][k]))), el("td", { class: "num" }, count(d.legs[n].messages))))));
}

function drawTypical() {
  const t = data.diagnosis.typical;
  byId("typical-section").hidden = !t || !t.rows.length;
  if (!t || !t.rows.length) return;
  byId("typical-lede").textContent = "The mean of the " + plural(t.messages, "message") + " around the median, " + duration(t.mean_ns) + ". It is compared with nothing: what every message waits for is in no difference, and so in no cause above.";
  const rows = t.rows.map((r, i) => [r, i]), big = rows.filter(([r], i) => i < 12 && r.share >= .005);
  const top = Math.max(...big.map(([r]) => r.share), 1e-9), small = rows.slice(big.length);
  byId("typical").append(el("thead", {}, el("tr", {}, el("th", {}, "What"), el("th", {}, "Share"), el("th", { class: "num" }, "Per message"))));
  const body = el("tbody");
  for (const [r, i] of big) {
    body.append(el("tr", {}, el("td", { class: "what" }, el("b", {}, data.typical_titles[i]), el("small", {}, (r.name && r.name !== r.category ? r.category + " on the " : "on the ") + roleName(r.role) + ", " + r.leg + " leg")),
      el("td", { class: "share" }, bar(r.share, top, "var(--soft)")), el("td", { class: "num" }, duration(r.mean_ns))));
    for (const text of r.advice || []) body.append(el("tr", { class: "detail" }, el("td", { colspan: 3 }, el("div", { class: "inner" }, el("p", { class: "note" }, rich(text))))));
  }
  const sum = (f) => small.reduce((a, [r]) => a + f(r), 0);
  if (small.length) body.append(el("tr", { class: "less" }, el("td", {}, plural(small.length, "smaller row")), el("td", { class: "share" }, el("div", { class: "sharebar" }, el("b", {}, percent(sum((r) => r.share))))), el("td", { class: "num" }, duration(sum((r) => r.mean_ns)))));
  byId("typical").append(body);
}

// Only where no causes can be said: else the causes have their evidence.
function drawSlowest() {
  const d = data.diagnosis, slowest = d.slowest || [];
  const shown = Boolean(d.not_available) && slowest.length > 0;
  byId("slowest-section").hidden = !shown;
  if (!shown) return;
  byId("slowest").append(el("thead", {}, el("tr", {}, el("th", {}, "Message"), el("th", { class: "num" }, "Latency"), el("th", {}, "Where it went"))),
    el("tbody", {}, slowest.map((m, i) => el("tr", {}, el("td", {}, count(m.id), el("small", {}, m.flow)), el("td", { class: "num" }, duration(m.latency_ns)),
      el("td", {}, m.parts.slice(0, 4).map((p, j) => duration(p.mean_ns) + " " + data.slowest_titles[i][j]).join(", "))))));
}
