// The distribution of the leg's latency: CDF on a log axis, and CCDF on two log axes. Every message is in both.
"use strict";
function drawDistribution() {
  const sorted = messages.sorted, n = sorted.length;
  if (!n) { byId("cdf").textContent = byId("ccdf").textContent = "No message is complete."; return; }
  const d = data.diagnosis;
  const from = Math.max(1, sorted[0]) * .9, to = Math.max(sorted[n - 1], 2) * 1.12;
  const floor = 1 / n / 1.6;
  const panel = (holder, tail) => {
    const pad = { left: tail ? 58 : 50, right: 14, top: 14, bottom: 40 };
    const label = (tail ? "Complementary distribution" : "Cumulative distribution") + " of the " + d.leg + " latency of " + count(n) + " messages: median " + duration(sorted[n >> 1]) + ", slowest " + duration(sorted[n - 1]);
    let hover = null;
    const x = (v, c) => pad.left + (Math.log(v / from) / Math.log(to / from)) * (c.width - pad.left - pad.right);
    const y = (share, c) => {
      const h = c.height - pad.top - pad.bottom;
      return tail ? pad.top + Math.log(Math.max(share, floor)) / Math.log(floor) * h : pad.top + (1 - share) * h;
    };
    const self = chart(holder, 310, label, (g, c) => {
      const right = c.width - pad.right, bottom = c.height - pad.bottom;
      g.lineWidth = 1; g.strokeStyle = ink("line"); g.fillStyle = ink("soft");
      g.textAlign = "center"; g.textBaseline = "top";
      for (const v of logTicks(from, to, (right - pad.left) / 62)) { line(g, crisp(x(v, c)), pad.top, crisp(x(v, c)), bottom); g.fillText(tickLabel(v), x(v, c), bottom + 7); }
      g.fillText("latency, log scale", (pad.left + right) / 2, bottom + 24);
      g.textAlign = "right"; g.textBaseline = "middle";
      if (tail) for (let e = 0, share = 1; share > floor; share = 10 ** -++e) { line(g, pad.left, crisp(y(share, c)), right, crisp(y(share, c))); g.fillText(+(share * 100).toPrecision(1) + " %", pad.left - 8, y(share, c)); }
      else for (const share of [0, .25, .5, .75, 1]) { line(g, pad.left, crisp(y(share, c)), right, crisp(y(share, c))); g.fillText(share * 100 + " %", pad.left - 8, y(share, c)); }
      // Focus and reference as bands.
      const at = (q) => sorted[Math.min(n - 1, Math.max(0, Math.ceil(q * n) - 1))];
      for (const [slice, color, name] of [[d.reference, ink("own"), "reference"], [d.focus, ink("c0"), "focus"]]) {
        const a = x(at(slice.from), c), b = Math.max(x(at(slice.to), c), a + 2);
        g.globalAlpha = .16; g.fillStyle = color; g.fillRect(a, pad.top, b - a, bottom - pad.top); g.globalAlpha = 1;
        g.fillStyle = ink("soft"); g.textAlign = b > right - 50 ? "right" : "left"; g.textBaseline = "top";
        g.fillText(name, b > right - 50 ? right - 4 : b + 4, tail && slice === d.focus ? pad.top + 3 : bottom - 17);
      }
      // The step curve: per pixel column its first and last value, which is the exact picture.
      g.strokeStyle = ink("ink"); g.lineWidth = 1.7; g.lineJoin = "round";
      g.beginPath();
      g.moveTo(pad.left, y(tail ? 1 : 0, c));
      let column = -1, last = null;
      for (let i = 0; i < n; i++) {
        const px = x(Math.max(1, sorted[i]), c), share = (i + 1) / n, py = y(tail ? 1 - share : share, c), before = y(tail ? 1 - i / n : i / n, c);
        if (Math.floor(px * 2) !== column || i === n - 1) { if (last) g.lineTo(last[0], last[1]); g.lineTo(px, before); column = Math.floor(px * 2); if (i === n - 1 && !tail) g.lineTo(px, py); }
        last = [px, py];
      }
      if (!tail) g.lineTo(right, y(1, c));
      g.stroke();
      // The percentiles that the sample supports.
      g.textBaseline = "middle";
      for (const key of data.percentiles) {
        const v = d.latency_ns[key];
        if (v === undefined || (!tail && (key === "p99.9" || key === "max"))) continue;
        const share = key === "max" ? 1 - 1 / n : parseFloat(key.slice(1)) / 100, px = x(v, c), py = y(tail ? 1 - share : share, c);
        g.fillStyle = ink("bg"); g.strokeStyle = ink("ink"); g.lineWidth = 1.5;
        g.beginPath(); g.arc(px, py, 3.5, 0, 7); g.fill(); g.stroke();
        const text = key + " " + duration(v), leftSide = px + 12 + g.measureText(text).width > right;
        g.textAlign = leftSide ? "right" : "left";
        halo(g, text, px + (leftSide ? -9 : 9), py + (tail ? -9 : 11));
      }
      if (hover !== null) {
        g.strokeStyle = ink("soft"); g.lineWidth = 1; g.setLineDash([3, 3]); line(g, crisp(x(hover, c)), pad.top, crisp(x(hover, c)), bottom); g.setLineDash([]);
      }
    });
    const show = (v, cx, cy) => {
      hover = Math.min(to, Math.max(from, v));
      const share = rankOf(hover), slower = Math.round((1 - share) * n);
      self.redraw();
      showTip(cx, cy, duration(hover), [percent(share) + " of the messages are no slower", plural(slower, "message") + (slower === 1 ? " is" : " are") + " slower"]);
      return duration(hover) + ": " + percent(share) + " no slower, " + plural(slower, "message") + " slower";
    };
    self.canvas.addEventListener("mousemove", (e) => {
      const box = self.canvas.getBoundingClientRect();
      show(from * (to / from) ** ((e.clientX - box.left - pad.left) / (self.width - pad.left - pad.right)), e.clientX, e.clientY);
    });
    const leave = () => { hover = null; hideTip(); self.redraw(); };
    self.canvas.addEventListener("mouseleave", leave);
    self.canvas.addEventListener("blur", leave);
    self.canvas.addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1.03, ArrowLeft: 1 / 1.03, PageUp: 1.3, PageDown: 1 / 1.3 }[e.key];
      if (!step) return;
      e.preventDefault();
      const v = Math.min(to, Math.max(from, (hover || sorted[n >> 1]) * step)), box = self.canvas.getBoundingClientRect();
      say(show(v, box.left + x(v, self), box.top + 60));
    });
  };
  panel(byId("cdf"), false);
  panel(byId("ccdf"), true);
}
// Text with the background's colour around it, to be read over lines and points.
function halo(g, text, x, y) {
  g.lineWidth = 4; g.lineJoin = "round"; g.strokeStyle = ink("bg"); g.strokeText(text, x, y);
  g.fillStyle = ink("ink"); g.fillText(text, x, y);
}
