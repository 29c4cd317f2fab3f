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
    diagnosis = page.diagnosis;
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
              diagnosis.leg +
              " leg " +
              duration(diagnosis.latency_ns.p50 ?? 0) +
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
              diagnosis.leg +
              " leg " +
              duration(diagnosis.latency_ns.max ?? 0) +
              "."
            }
          />
        </figure>
      </div>
    </Section>
  );
}

function selection(store: Store): number {
  const data = store.data;
  if (!store.state.range) return data.complete;
  if (data.sight !== null) return data.sight;
  let chosen = 0;
  for (let i = 0; i < data.n; i++) if (store.matches(i)) chosen++;
  return chosen;
}

function linesOf(store: Store, kind: "leg" | "stage"): Line[] {
  const { page } = store.data,
    leg = page.diagnosis.leg;
  const ofKind = (curves: Curve[], dash?: number[], prefix = "") =>
    curves
      .filter((c) => c.kind === kind)
      .map(
        (curve, i): Line => ({
          name: prefix + curve.name,
          color: curve.name === leg ? "ink" : "k" + [0, 3, 5, 1, 4, 7][i % 6],
          dash,
          width: curve.name === leg ? 2 : 1.3,
          points: curve.points,
          show: prefix === "" || curve.name === leg,
        }),
      );
  const lines = ofKind(page.curves);
  if (page.against) lines.push(...ofKind(page.against.curves, [5, 3], "before: "));
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
function slices(plot: uPlot, store: Store): void {
  const data = store.data,
    diagnosis = data.page.diagnosis,
    ctx = plot.ctx,
    ratio = devicePixelRatio;
  for (const [slice, color, name] of [
    [diagnosis.reference, ink("own"), "reference"],
    [diagnosis.focus, ink("c0"), "focus"],
  ] as const) {
    // The reference of a comparison is in the other run.
    if (!data.sorted.length || !slice.messages || (diagnosis.against && name === "reference")) continue;
    const left = plot.valToPos(Math.max(1, data.quantile(slice.from)), "x", true),
      right = Math.max(plot.valToPos(Math.max(1, data.quantile(slice.to)), "x", true), left + 2);
    ctx.save();
    ctx.globalAlpha = 0.16;
    ctx.fillStyle = color;
    ctx.fillRect(left, plot.bbox.top, right - left, plot.bbox.height);
    ctx.globalAlpha = 1;
    ctx.fillStyle = ink("soft");
    ctx.font = SMALL.replace("12", String(12 * ratio));
    ctx.textBaseline = "top";
    ctx.textAlign = "left";
    const text = ctx.measureText(name).width,
      wide = text + 8 < right - left,
      room = right + text + 8 < plot.bbox.left + plot.bbox.width;
    if (wide || name === "reference")
      ctx.fillText(
        name,
        wide ? left + 4 : room ? right + 4 : left - text - 4,
        plot.bbox.top + plot.bbox.height - 17 * ratio,
      );
    ctx.restore();
  }
}
