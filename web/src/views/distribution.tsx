// View 1, the distributions: of each leg and stage, cumulative and its complement on log axes, against the ideal; drag to choose latencies.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { Section, Switch } from "../parts";
import { useStore, type Store } from "../store";
import { ink, onScheme } from "../theme";
import type { Curve } from "../types";
import { count, duration, percent, tick } from "../units";
import { logTicks } from "../chart";

interface Line { name: string; color: string; dash?: number[]; width: number; points: [number, number][]; dots?: boolean; show: boolean }

export function Distribution({ store }: { store: Store }) {
  const state = useStore(store), { page } = store.data, d = page.diagnosis;
  const [kind, setKind] = useState<"leg" | "stage">("leg");
  if (!page.curves.length) return null;
  const lines = linesOf(store, kind);
  const chosen = selection(store);
  return <Section id="distribution" title="Distribution" lede={"Of all messages that have a leg or a stage complete; the slowest hundred one by one. Press a name to leave its curve out; drag across the tail to choose the messages of these latencies in every view." + (state.range ? " Chosen: " + duration(state.range[0]) + " to " + duration(state.range[1]) + ", " + count(chosen) + " messages." : "")}
    aside={<Switch label="Curves" value={kind} options={[["leg", "Legs"], ["stage", "Stages"]]} choose={setKind} />}>
    <div class="pair">
      <figure><figcaption>Share of messages faster than…</figcaption><Curves key={"cdf" + kind} store={store} lines={lines} tail={false} label={"Cumulative distribution of the latency of each " + kind + "; median of the " + d.leg + " leg " + duration(d.latency_ns["p50"] ?? 0)} /></figure>
      <figure><figcaption>Share of messages as slow or slower (the tail, log scale)</figcaption><Curves key={"ccdf" + kind} store={store} lines={lines} tail label={"Complementary distribution of the latency of each " + kind + " on two log axes; slowest of the " + d.leg + " leg " + duration(d.latency_ns["max"] ?? 0)} /></figure>
    </div>
  </Section>;
}

function selection(store: Store): number {
  const d = store.data;
  if (!store.state.range) return d.sorted.length;
  let n = 0;
  for (let i = 0; i < d.n; i++) if (store.matches(i)) n++;
  return n;
}

function linesOf(store: Store, kind: "leg" | "stage"): Line[] {
  const { page } = store.data, leg = page.diagnosis.leg;
  const of = (curves: Curve[], dash?: number[], prefix = "") => curves.filter((c) => c.kind === kind).map((c, i): Line => ({
    name: prefix + c.name, color: c.name === leg ? "ink" : "k" + [0, 3, 5, 1, 4, 7][i % 6], dash, width: c.name === leg ? 2 : 1.3, points: c.points, show: prefix === "" || c.name === leg,
  }));
  const lines = of(page.curves);
  if (page.against) lines.push(...of(page.against.curves, [5, 3], "before: "));
  const ideal = page.diagnosis.ideal_ns;
  if (kind === "leg" && ideal) {
    const points = Object.entries(ideal).filter(([k]) => k.startsWith("p")).map(([k, ns]): [number, number] => [ns, 1 - parseFloat(k.slice(1)) / 100]).sort((a, b) => a[0] - b[0]);
    if (points.length) lines.push({ name: "ideal server", color: "c2", dash: [2, 3], width: 1.5, points, dots: true, show: true });
  }
  return lines;
}

/** One plot of uPlot's; made again when the scheme changes, since its colours are read once. */
function Curves({ store, lines, tail, label }: { store: Store; lines: Line[]; tail: boolean; label: string }) {
  const holder = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const box = holder.current!;
    let plot: uPlot | null = null;
    const make = () => { plot?.destroy(); plot = new uPlot(options(store, lines, tail, box.clientWidth), data(lines, tail), box); };
    make();
    const sized = new ResizeObserver(() => { if (plot && plot.width !== box.clientWidth) plot.setSize({ width: box.clientWidth, height: 310 }); });
    sized.observe(box);
    const scheme = onScheme(make);
    return () => { sized.disconnect(); scheme(); plot?.destroy(); };
  }, [store]);
  return <div class="curves" ref={holder} role="img" aria-label={label} />;
}

function data(lines: Line[], tail: boolean): uPlot.AlignedData {
  const tables = lines.map((l): uPlot.AlignedData => {
    // Of equal latencies the largest share counts.
    const xs: number[] = [], ys: number[] = [];
    for (const [ns, share] of l.points) { const x = Math.max(1, ns); if (xs[xs.length - 1] === x) continue; xs.push(x); ys.push(tail ? share : 1 - share); }
    return [xs, ys];
  });
  return uPlot.join(tables);
}

function options(store: Store, lines: Line[], tail: boolean, width: number): uPlot.Options {
  const d = store.data, diagnosis = d.page.diagnosis;
  const xs = lines.flatMap((l) => l.points.map((p) => Math.max(1, p[0]))), from = Math.min(...xs) * 0.9, to = Math.max(...xs) * 1.12;
  const least = Math.min(...lines.map((l) => l.points[l.points.length - 1]?.[1] ?? 1)) / 1.6;
  const soft = ink("soft"), grid = { stroke: ink("line"), width: 1 };
  return {
    width, height: 310, legend: { live: true }, cursor: { drag: { x: tail, y: false, setScale: false }, focus: { prox: 24 } }, focus: { alpha: 0.35 },
    scales: { x: { time: false, distr: 3, log: 10, range: [from, to] }, y: tail ? { distr: 3, log: 10, range: [Math.max(least, 1e-9), 1] } : { range: [0, 1] } },
    axes: [
      { stroke: soft, grid, ticks: grid, font: "12px system-ui, sans-serif", splits: (u) => logTicks(from, to, u.width / 75), values: (_, v) => v.map((x) => tick(x)), filter: (_, v) => v },
      { stroke: soft, grid, ticks: grid, size: 58, font: "12px system-ui, sans-serif", values: (_, v) => v.map((s) => +(s * 100).toPrecision(2) + " %"), ...(tail ? { splits: () => decades(least), filter: (_: uPlot, v: (number | null)[]) => v } : {}) },
    ],
    series: [
      { label: "latency", value: (_, v) => (v === null || v === undefined ? "–" : duration(v)) },
      ...lines.map((l): uPlot.Series => ({ label: l.name, show: l.show, stroke: ink(l.color), width: l.width, dash: l.dash, spanGaps: true, points: { show: Boolean(l.dots), size: 7 }, paths: l.dots ? () => null : uPlot.paths.stepped!({ align: -1 }), value: (_, v) => (v === null || v === undefined ? "–" : percent(v)) })),
    ],
    hooks: {
      drawClear: [(u) => {
        const g = u.ctx, at = (q: number) => d.sorted[Math.min(d.sorted.length - 1, Math.max(0, Math.ceil(q * d.sorted.length) - 1))]!;
        for (const [slice, color, name] of [[diagnosis.reference, ink("own"), "reference"], [diagnosis.focus, ink("c0"), "focus"]] as const) {
          // The reference of a comparison is in the other run.
          if (!d.sorted.length || !slice.messages || (diagnosis.against && name === "reference")) continue;
          const a = u.valToPos(Math.max(1, at(slice.from)), "x", true), b = Math.max(u.valToPos(Math.max(1, at(slice.to)), "x", true), a + 2);
          g.save(); g.globalAlpha = 0.16; g.fillStyle = color; g.fillRect(a, u.bbox.top, b - a, u.bbox.height); g.globalAlpha = 1;
          g.fillStyle = soft; g.font = 12 * devicePixelRatio + "px system-ui, sans-serif"; g.textBaseline = "top"; g.textAlign = "left";
          const text = g.measureText(name).width, wide = text + 8 < b - a, room = b + text + 8 < u.bbox.left + u.bbox.width;
          if (wide || name === "reference") g.fillText(name, wide ? a + 4 : room ? b + 4 : a - text - 4, u.bbox.top + u.bbox.height - 17 * devicePixelRatio);
          g.restore();
        }
      }],
      setSelect: [(u) => { if (tail && u.select.width > 4) { store.set({ range: [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")] }); u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false); } }],
    },
  };
}

/** uPlot's own splits of a log axis want its ends to be decades. */
function decades(least: number): number[] {
  const out: number[] = [];
  for (let share = 1; share >= Math.max(least, 1e-9); share /= 10) out.unshift(+share.toPrecision(3));
  return out;
}
