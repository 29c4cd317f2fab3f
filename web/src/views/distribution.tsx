// View 1, the distributions: of each leg and stage, cumulative and its complement on log axes, against the ideal; drag
// to choose latencies.
import { useState } from "preact/hooks";
import type uPlot from "uplot";
import { Curves, SMALL, type Curve as Line } from "../lines";
import { Section, Switch } from "../parts";
import { useStore, type Store } from "../store";
import { ink } from "../theme";
import type { Curve } from "../types";
import { count, duration } from "../units";

export function Distribution({ store }: { store: Store }) {
  const state = useStore(store),
    { page } = store.data,
    d = page.diagnosis;
  const [kind, setKind] = useState<"leg" | "stage">("leg");
  if (!page.curves.length) return null;
  const lines = linesOf(store, kind),
    below = (u: uPlot) => slices(u, store);
  const choose = (from: number, to: number) => store.set({ range: [from, to] });
  return (
    <Section
      id="distribution"
      title="Distribution"
      lede={
        "Of all messages that have a leg or a stage complete; the slowest hundred one by one. Press a name to leave its curve out; drag across the tail to choose the messages of these latencies in every view." +
        (state.range
          ? " Chosen: " +
            duration(state.range[0]) +
            " to " +
            duration(state.range[1]) +
            ", " +
            count(selection(store)) +
            " messages."
          : "")
      }
      aside={
        <Switch
          label="Curves"
          value={kind}
          options={[
            ["leg", "Legs"],
            ["stage", "Stages"],
          ]}
          choose={setKind}
        />
      }
    >
      <div class="pair">
        <figure>
          <figcaption>Share of messages faster than…</figcaption>
          <Curves
            of={kind}
            lines={lines}
            tail={false}
            extras={{ below }}
            label={
              "Cumulative distribution of the latency of each " +
              kind +
              "; median of the " +
              d.leg +
              " leg " +
              duration(d.latency_ns.p50 ?? 0) +
              "."
            }
          />
        </figure>
        <figure>
          <figcaption>Share of messages as slow or slower (the tail, log scale)</figcaption>
          <Curves
            of={kind}
            lines={lines}
            tail
            extras={{ below, choose }}
            label={
              "Complementary distribution of the latency of each " +
              kind +
              " on two log axes; slowest of the " +
              d.leg +
              " leg " +
              duration(d.latency_ns.max ?? 0) +
              "."
            }
          />
        </figure>
      </div>
    </Section>
  );
}

function selection(store: Store): number {
  const d = store.data;
  if (!store.state.range) return d.complete;
  if (d.sight !== null) return d.sight;
  let n = 0;
  for (let i = 0; i < d.n; i++) if (store.matches(i)) n++;
  return n;
}

function linesOf(store: Store, kind: "leg" | "stage"): Line[] {
  const { page } = store.data,
    leg = page.diagnosis.leg;
  const of = (curves: Curve[], dash?: number[], prefix = "") =>
    curves
      .filter((c) => c.kind === kind)
      .map(
        (c, i): Line => ({
          name: prefix + c.name,
          color: c.name === leg ? "ink" : "k" + [0, 3, 5, 1, 4, 7][i % 6],
          dash,
          width: c.name === leg ? 2 : 1.3,
          points: c.points,
          show: prefix === "" || c.name === leg,
        }),
      );
  const lines = of(page.curves);
  if (page.against) lines.push(...of(page.against.curves, [5, 3], "before: "));
  const ideal = page.diagnosis.ideal_ns;
  if (kind === "leg" && ideal) {
    const points = Object.entries(ideal)
      .filter(([k]) => k.startsWith("p"))
      .map(([k, ns]): [number, number] => [ns, 1 - parseFloat(k.slice(1)) / 100])
      .sort((a, b) => a[0] - b[0]);
    if (points.length)
      lines.push({ name: "ideal server", color: "c2", dash: [2, 3], width: 1.5, points, dots: true, show: true });
  }
  return lines;
}

/** The latencies of the focus and of the reference, behind the curves. */
function slices(u: uPlot, store: Store): void {
  const d = store.data,
    diagnosis = d.page.diagnosis,
    g = u.ctx,
    ratio = devicePixelRatio;
  for (const [slice, color, name] of [
    [diagnosis.reference, ink("own"), "reference"],
    [diagnosis.focus, ink("c0"), "focus"],
  ] as const) {
    // The reference of a comparison is in the other run.
    if (!d.sorted.length || !slice.messages || (diagnosis.against && name === "reference")) continue;
    const a = u.valToPos(Math.max(1, d.quantile(slice.from)), "x", true),
      b = Math.max(u.valToPos(Math.max(1, d.quantile(slice.to)), "x", true), a + 2);
    g.save();
    g.globalAlpha = 0.16;
    g.fillStyle = color;
    g.fillRect(a, u.bbox.top, b - a, u.bbox.height);
    g.globalAlpha = 1;
    g.fillStyle = ink("soft");
    g.font = SMALL.replace("12", String(12 * ratio));
    g.textBaseline = "top";
    g.textAlign = "left";
    const text = g.measureText(name).width,
      wide = text + 8 < b - a,
      room = b + text + 8 < u.bbox.left + u.bbox.width;
    if (wide || name === "reference")
      g.fillText(name, wide ? a + 4 : room ? b + 4 : a - text - 4, u.bbox.top + u.bbox.height - 17 * ratio);
    g.restore();
  }
}
