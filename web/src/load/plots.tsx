// The plots of measurements: distributions, latency and load over time, latency against rate.
import uPlot from "uplot";
import { linearTicks } from "../chart";
import { axis, Curves, latencyAxis, Lines, SMALL, type Curve } from "../lines";
import { Section } from "../parts";
import { ink } from "../theme";
import { count, duration, plural } from "../units";
import { useChoice, type LoadStore } from "./store";
import type { Known, Report, Result } from "./types";

/** The colour of a measurement: by its place, so that it is the same everywhere. */
export const colorOf = (i: number) => (i < 8 ? "c" + i : "k" + (i % 8));
const latencyOf = (r: Report) => (r.latency === "service" ? "service time" : "response time");
const numbers = (r: Report): Known[] => (r.verdict.verdict === "number" ? r.verdict.percentiles : []);
const time = (_: uPlot, v: number | null) => (v === null || v === undefined ? "–" : duration(v));
const AT: uPlot.Series = { label: "at", value: (_, v) => (v === null || v === undefined ? "–" : v.toFixed(2) + " s") };

export function Distributions({ store }: { store: LoadStore }) {
  const choice = useChoice(store),
    { results } = store.data,
    drawn = store.drawn(),
    single = results.length === 1,
    only = results[0]!;
  const lines: Curve[] = single
    ? [
        { name: "response time", color: "c1", width: 1.8, points: only.response, show: true },
        { name: "service time", color: "c2", width: 1.8, points: only.service, show: true },
      ]
    : drawn.map((i) => ({
        name: results[i]!.name,
        color: colorOf(i),
        width: i === choice.chosen ? 2.2 : 1.5,
        points: results[i]!.report.latency === "service" ? results[i]!.service : results[i]!.response,
        show: true,
      }));
  const there = lines.filter((l) => l.points.length);
  if (!there.length)
    return (
      <Section id="ccdf" title="Distribution" lede="No request was answered.">
        {null}
      </Section>
    );
  const marked = single
    ? [{ known: numbers(only.report), color: "ink" }]
    : drawn.map((i) => ({ known: numbers(results[i]!.report), color: colorOf(i) }));
  const above = (plot: uPlot) => {
    for (const m of marked) intervals(plot, m.known, ink(m.color), single);
  };
  const kept = drawn.filter((i) => !results[i]!.has_samples).map((i) => results[i]!.name);
  const lede =
    (single
      ? plural(only.samples, "sample") +
        (only.has_samples ? ", those that the verdict is about; " : ", all that were kept, no result; ") +
        "the slowest hundred one by one. "
      : "The " +
        latencyOf(only.report) +
        " of each measurement, the slowest hundred one by one. " +
        (kept.length ? "Of " + kept.join(", ") + " all samples that were kept, no result. " : "")) +
    "Bars are the intervals of the percentiles that were asked for. Press a name to leave its curve out.";
  const shown = drawn.join() + choice.chosen;
  return (
    <Section id="ccdf" title="Distribution" lede={lede}>
      <div class="pair">
        <figure>
          <figcaption>Share of requests faster than…</figcaption>
          <Curves of={shown} lines={there} tail={false} label={"Cumulative distribution. " + only.headline} />
        </figure>
        <figure>
          <figcaption>Share of requests as slow or slower (the tail, log scale)</figcaption>
          <Curves
            of={shown}
            lines={there}
            tail
            extras={{ above }}
            label={"Complementary distribution on two log axes. " + only.headline}
          />
        </figure>
      </div>
    </Section>
  );
}

/**
 * The interval of each percentile as a bar at its share; with names where there is one measurement, those that would
 * collide left out.
 */
function intervals(plot: uPlot, percentiles: Known[], color: string, named: boolean): void {
  const ctx = plot.ctx,
    ratio = devicePixelRatio;
  let last = Infinity;
  ctx.save();
  for (const percentile of percentiles.slice().sort((a, b) => a.quantile - b.quantile)) {
    const y = plot.valToPos(1 - percentile.quantile, "y", true),
      [lower, upper, x] = [percentile.lower_ns, percentile.upper_ns, percentile.value_ns].map((v) =>
        plot.valToPos(Math.max(1, v), "x", true),
      ) as [number, number, number];
    if (y < plot.bbox.top || y > plot.bbox.top + plot.bbox.height) continue;
    ctx.strokeStyle = color;
    ctx.lineWidth = 2 * ratio;
    ctx.beginPath();
    ctx.moveTo(lower, y);
    ctx.lineTo(upper, y);
    for (const end of [lower, upper]) {
      ctx.moveTo(end, y - 4 * ratio);
      ctx.lineTo(end, y + 4 * ratio);
    }
    ctx.stroke();
    ctx.fillStyle = ink("bg");
    ctx.lineWidth = 1.5 * ratio;
    ctx.beginPath();
    ctx.arc(x, y, 3.5 * ratio, 0, 7);
    ctx.fill();
    ctx.stroke();
    if (!named || Math.abs(y - last) < 15 * ratio) continue;
    last = y;
    ctx.font = SMALL.replace("12", String(12 * ratio));
    ctx.textBaseline = "middle";
    const text = percentile.percentile + " " + duration(percentile.value_ns),
      flip = upper + 12 * ratio + ctx.measureText(text).width > plot.bbox.left + plot.bbox.width;
    ctx.textAlign = flip ? "right" : "left";
    ctx.lineWidth = 4 * ratio;
    ctx.lineJoin = "round";
    ctx.strokeStyle = ink("bg");
    ctx.strokeText(text, flip ? lower - 9 * ratio : upper + 9 * ratio, y - 10 * ratio);
    ctx.fillStyle = ink("ink");
    ctx.fillText(text, flip ? lower - 9 * ratio : upper + 9 * ratio, y - 10 * ratio);
  }
  ctx.restore();
}

/** Instants with a gap wherever nothing was recorded for three of them, so that no line crosses it. */
function gaps<T extends { at: number }>(instants: T[]): (T | null)[] {
  const steps = instants
      .slice(1)
      .map((p, i) => p.at - instants[i]!.at)
      .sort((a, b) => a - b),
    most = (steps[steps.length >> 1] ?? 1) * 3;
  return instants.flatMap((p, i) => (i && p.at - instants[i - 1]!.at > most ? [null, p] : [p]));
}

const together = (key: string): uPlot.Cursor => ({ sync: { key, scales: ["x", null] }, drag: { x: true, y: false } });
const seconds = (): uPlot.Axis => ({ ...axis(), space: 72, values: (_, v) => v.map((x) => +x.toPrecision(6) + " s") });

export function OverTime({ store }: { store: LoadStore }) {
  useChoice(store);
  const { results } = store.data,
    drawn = store.drawn().filter((i) => results[i]!.over_time.length),
    single = results.length === 1;
  if (!drawn.length)
    return (
      <Section id="time" title="Latency over time" lede="Nothing was recorded.">
        {null}
      </Section>
    );
  const tables: uPlot.AlignedData[] = [],
    series: uPlot.Series[] = [AT];
  const line = (
    label: string,
    color: string,
    points: ({ at: number } | null)[],
    ns: (i: number) => number | null,
    dots = false,
  ) => {
    const xs: number[] = [],
      ys: (number | null)[] = [];
    points.forEach((instant, i) => {
      xs.push(instant ? instant.at : ((points[i - 1]?.at ?? 0) + (points[i + 1]?.at ?? 0)) / 2);
      ys.push(instant ? ns(i) : null);
    });
    tables.push([xs, ys]);
    series.push({
      label,
      stroke: ink(color),
      width: 1.6,
      spanGaps: false,
      value: time,
      points: { show: dots, size: 4, fill: ink(color) },
      ...(dots ? { paths: () => null } : {}),
    });
  };
  if (single) {
    const instants = gaps(results[0]!.over_time),
      kept = (ns: (p: Result["over_time"][0]) => number | null, dropped: boolean) => (i: number) => {
        const instant = instants[i]!;
        return instant.dropped === dropped ? ns(instant) : null;
      };
    line(
      "median",
      "c1",
      instants,
      kept((p) => p.p50, false),
    );
    line(
      "p99",
      "c4",
      instants,
      kept((p) => p.p99, false),
    );
    line(
      "slowest",
      "c0",
      instants,
      kept((p) => p.max, false),
      true,
    );
    if (results[0]!.over_time.some((p) => p.dropped)) {
      line(
        "median, not in the result",
        "faint",
        instants,
        kept((p) => p.p50, true),
      );
      line(
        "slowest, not in the result",
        "faint",
        instants,
        kept((p) => p.max, true),
        true,
      );
    }
  } else
    for (const i of drawn) {
      const instants = gaps(results[i]!.over_time);
      line(results[i]!.name + ": p99", colorOf(i), instants, (k) => instants[k]!.p99);
    }
  const values = tables.flatMap((t) =>
    (t[1] as (number | null)[]).filter((v): v is number => v !== null && v !== undefined),
  );
  const from =
      Math.max(
        1,
        values.reduce((a, v) => Math.min(a, v), Infinity),
      ) * 0.8,
    to = values.reduce((a, v) => Math.max(a, v), 2) * 1.25;
  const lede = single
    ? "The median, the 99th percentile and the slowest of each slice of time; grey: warm-up, or dropped because the load was not as asked. Drag across to zoom, double-click shows it all."
    : "The 99th percentile of each slice of time, since each load began. Drag across to zoom, double-click shows it all.";
  const make = (width: number): [uPlot.Options, uPlot.AlignedData] => [
    {
      width,
      height: 300,
      series,
      cursor: together("time"),
      scales: { x: { time: false }, y: { distr: 3, log: 10, range: [from, to] } },
      axes: [seconds(), latencyAxis(from, to, false)],
    },
    uPlot.join(
      tables,
      tables.map(() => [1, 2]),
    ),
  ];
  return (
    <Section id="time" title="Latency over time" lede={lede}>
      {values.length ? (
        <Lines
          of={drawn.join()}
          height={300}
          make={make}
          label={"Latency over time; slowest " + duration(values.reduce((a, v) => Math.max(a, v), 0)) + "."}
        />
      ) : (
        <p class="lede">No slice of time has enough requests for a 99th percentile.</p>
      )}
    </Section>
  );
}

export function LoadOverTime({ store }: { store: LoadStore }) {
  const choice = useChoice(store),
    result = store.shown,
    loads = result.load;
  if (!loads.length) return null;
  const open = loads.some((p) => p.target > 0),
    rate = (_: uPlot, v: number | null) => (v === null || v === undefined ? "–" : count(v) + "/s");
  const lines: [string, string, (p: (typeof loads)[0]) => number, number[]?][] = [
    ["sent", "c1", (p) => p.sent],
    ["answered", "c2", (p) => p.answered],
    ...(open
      ? [
          ["asked", "soft", (p: (typeof loads)[0]) => p.target, [5, 4]] as [
            string,
            string,
            (p: (typeof loads)[0]) => number,
            number[],
          ],
        ]
      : []),
  ];
  const top = loads.reduce((a, p) => Math.max(a, p.target, p.sent, p.answered), 1) * 1.1;
  const make = (width: number): [uPlot.Options, uPlot.AlignedData] => [
    {
      width,
      height: 240,
      cursor: together("time"),
      scales: { x: { time: false }, y: { range: [0, top] } },
      axes: [
        seconds(),
        {
          ...axis(),
          size: 74,
          splits: (u) => linearTicks(0, top, u.height / 40),
          values: (_, v) => v.map((x) => count(x) + "/s"),
        },
      ],
      series: [
        AT,
        ...lines.map(
          ([label, color, , dash]): uPlot.Series => ({
            label,
            stroke: ink(color),
            width: 1.5,
            dash,
            value: rate,
            points: { show: false },
          }),
        ),
      ],
    },
    [loads.map((p) => p.at), ...lines.map(([, , ns]) => loads.map(ns))],
  ];
  return (
    <Section
      id="load"
      title="Load over time"
      lede={
        "Requests a second of all agents, each 100 ms" +
        (store.data.results.length > 1 ? ", of " + result.name : "") +
        "."
      }
    >
      <Lines of={choice.chosen} height={240} make={make} label="Load over time, requests a second." />
    </Section>
  );
}

/**
 * Latency against rate: each percentile that was asked for, with its interval; rates without a number as crosses on the
 * axis.
 */
export function AgainstRate({ store }: { store: LoadStore }) {
  const { sweep } = store.data;
  if (!sweep) return null;
  const highest = sweep.objective,
    limit = highest && parts(highest.objective),
    lines = new Map<string, { rate: number; value: number; lower: number; upper: number }[]>(),
    missed: number[] = [];
  for (const point of sweep.points) {
    for (const percentile of numbers(point.report)) {
      const at = lines.get(percentile.percentile) ?? [];
      at.push({ rate: point.rate, value: percentile.value_ns, lower: percentile.lower_ns, upper: percentile.upper_ns });
      lines.set(percentile.percentile, at);
    }
    if (point.report.verdict.verdict !== "number") missed.push(point.rate);
  }
  for (const attempt of highest?.tries ?? []) {
    if (attempt.value_ns === null) {
      missed.push(attempt.rate);
      continue;
    }
    const name = limit!.percentile,
      at = lines.get(name) ?? [];
    at.push({ rate: attempt.rate, value: attempt.value_ns, lower: attempt.value_ns, upper: attempt.value_ns });
    lines.set(name, at);
  }
  const curves = [...lines].map(([name, points]) => [name, points.sort((a, b) => a.rate - b.rate)] as const),
    values = curves.flatMap(([, points]) => points.flatMap((p) => [p.lower, p.upper]));
  if (limit) values.push(limit.limit_ns);
  const rates = [...curves.flatMap(([, points]) => points.map((p) => p.rate)), ...missed];
  if (!rates.length) return null;
  const from =
      Math.max(
        1,
        values.reduce((a, v) => Math.min(a, v), Infinity),
      ) * 0.7,
    low = Number.isFinite(from) ? from : 1,
    to = values.reduce((a, v) => Math.max(a, v), low * 2) * 1.4;
  const right = Math.max(...rates) * 1.06,
    left = Math.min(...rates) * 0.9;
  const rate = (_: uPlot, v: number | null) => (v === null || v === undefined ? "–" : count(v) + "/s");
  const above = (plot: uPlot) => {
    const ctx = plot.ctx,
      ratio = devicePixelRatio,
      bottom = plot.bbox.top + plot.bbox.height;
    ctx.save();
    ctx.lineWidth = 1.6 * ratio;
    curves.forEach(([, points], k) => {
      ctx.strokeStyle = ink(colorOf(k));
      for (const point of points) {
        const x = plot.valToPos(point.rate, "x", true),
          lower = plot.valToPos(point.lower, "y", true),
          upper = plot.valToPos(point.upper, "y", true);
        ctx.beginPath();
        ctx.moveTo(x, lower);
        ctx.lineTo(x, upper);
        for (const end of [lower, upper]) {
          ctx.moveTo(x - 4 * ratio, end);
          ctx.lineTo(x + 4 * ratio, end);
        }
        ctx.stroke();
      }
    });
    ctx.strokeStyle = ink("c0");
    for (const rate of missed) {
      const x = plot.valToPos(rate, "x", true),
        y = bottom - 8 * ratio,
        arm = 4 * ratio;
      ctx.beginPath();
      ctx.moveTo(x - arm, y - arm);
      ctx.lineTo(x + arm, y + arm);
      ctx.moveTo(x - arm, y + arm);
      ctx.lineTo(x + arm, y - arm);
      ctx.stroke();
    }
    if (highest && limit) {
      const y = plot.valToPos(limit.limit_ns, "y", true);
      ctx.strokeStyle = ink("soft");
      ctx.setLineDash([5 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(plot.bbox.left, y);
      ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.font = SMALL.replace("12", String(12 * ratio));
      ctx.fillStyle = ink("soft");
      ctx.textAlign = "left";
      ctx.textBaseline = "bottom";
      ctx.fillText("objective: " + objective(highest.objective), plot.bbox.left + 6 * ratio, y - 3 * ratio);
    }
    ctx.restore();
  };
  const below = (plot: uPlot) => {
    if (!highest?.threshold) return;
    const ctx = plot.ctx,
      [from, to] = highest.threshold.map((v) => plot.valToPos(v, "x", true)) as [number, number];
    ctx.save();
    ctx.globalAlpha = 0.14;
    ctx.fillStyle = ink("c2");
    ctx.fillRect(from, plot.bbox.top, Math.max(2, to - from), plot.bbox.height);
    ctx.restore();
  };
  const tables = curves.map(([, points]): uPlot.AlignedData => {
    const at = new Map(points.map((p) => [p.rate, p.value]));
    return [[...at.keys()], [...at.values()]];
  });
  const make = (width: number): [uPlot.Options, uPlot.AlignedData] => [
    {
      width,
      height: 330,
      scales: { x: { time: false, range: [left, right] }, y: { distr: 3, log: 10, range: [low, to] } },
      axes: [
        {
          ...axis(),
          splits: (u) => linearTicks(left, right, u.width / 110),
          values: (_, v) => v.map((x) => count(x) + "/s"),
        },
        latencyAxis(low, to, false),
      ],
      series: [
        { label: "rate", value: rate },
        ...curves.map(
          ([name], k): uPlot.Series => ({
            label: name,
            stroke: ink(colorOf(k)),
            width: 1.8,
            spanGaps: true,
            value: time,
            points: { show: true, size: 7, fill: ink("bg") },
          }),
        ),
      ],
      hooks: { drawClear: [below], draw: [above] },
    },
    tables.length ? uPlot.join(tables) : [missed],
  ];
  const lede = highest
    ? "Each try of the search, with the objective as a dashed line; green: where the highest rate that meets it probably is. "
    : "The percentiles that were asked for at each rate, with their intervals. ";
  return (
    <Section
      id="rates"
      title="Latency against rate"
      lede={lede + "A cross on the axis is a rate without a number; the table says why."}
    >
      <Lines
        of={sweep}
        height={330}
        make={make}
        label={"Latency against rate, " + plural(rates.length, "rate") + "."}
      />
    </Section>
  );
}

/** An objective as the data has it: `p99<500us`. */
const parts = (text: string) => {
  const [percentile = "", us = ""] = text.split("<");
  return { percentile, limit_ns: parseFloat(us) * 1000 };
};
export const objective = (text: string) => {
  const limit = parts(text);
  return limit.percentile + " < " + duration(limit.limit_ns);
};
