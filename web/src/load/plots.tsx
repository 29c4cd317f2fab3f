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
    one = results[0]!;
  const lines: Curve[] = single
    ? [
        { name: "response time", color: "c1", width: 1.8, points: one.response, show: true },
        { name: "service time", color: "c2", width: 1.8, points: one.service, show: true },
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
    ? [{ known: numbers(one.report), color: "ink" }]
    : drawn.map((i) => ({ known: numbers(results[i]!.report), color: colorOf(i) }));
  const above = (u: uPlot) => {
    for (const m of marked) intervals(u, m.known, ink(m.color), single);
  };
  const kept = drawn.filter((i) => !results[i]!.has_samples).map((i) => results[i]!.name);
  const lede =
    (single
      ? plural(one.samples, "sample") +
        (one.has_samples ? ", those that the verdict is about; " : ", all that were kept, no result; ") +
        "the slowest hundred one by one. "
      : "The " +
        latencyOf(one.report) +
        " of each measurement, the slowest hundred one by one. " +
        (kept.length ? "Of " + kept.join(", ") + " all samples that were kept, no result. " : "")) +
    "Bars are the intervals of the percentiles that were asked for. Press a name to leave its curve out.";
  const of = drawn.join() + choice.chosen;
  return (
    <Section id="ccdf" title="Distribution" lede={lede}>
      <div class="pair">
        <figure>
          <figcaption>Share of requests faster than…</figcaption>
          <Curves of={of} lines={there} tail={false} label={"Cumulative distribution. " + one.headline} />
        </figure>
        <figure>
          <figcaption>Share of requests as slow or slower (the tail, log scale)</figcaption>
          <Curves
            of={of}
            lines={there}
            tail
            extras={{ above }}
            label={"Complementary distribution on two log axes. " + one.headline}
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
function intervals(u: uPlot, known: Known[], color: string, named: boolean): void {
  const g = u.ctx,
    ratio = devicePixelRatio;
  let last = Infinity;
  g.save();
  for (const p of known.slice().sort((a, b) => a.quantile - b.quantile)) {
    const y = u.valToPos(1 - p.quantile, "y", true),
      [a, b, x] = [p.lower_ns, p.upper_ns, p.value_ns].map((v) => u.valToPos(Math.max(1, v), "x", true)) as [
        number,
        number,
        number,
      ];
    if (y < u.bbox.top || y > u.bbox.top + u.bbox.height) continue;
    g.strokeStyle = color;
    g.lineWidth = 2 * ratio;
    g.beginPath();
    g.moveTo(a, y);
    g.lineTo(b, y);
    for (const end of [a, b]) {
      g.moveTo(end, y - 4 * ratio);
      g.lineTo(end, y + 4 * ratio);
    }
    g.stroke();
    g.fillStyle = ink("bg");
    g.lineWidth = 1.5 * ratio;
    g.beginPath();
    g.arc(x, y, 3.5 * ratio, 0, 7);
    g.fill();
    g.stroke();
    if (!named || Math.abs(y - last) < 15 * ratio) continue;
    last = y;
    g.font = SMALL.replace("12", String(12 * ratio));
    g.textBaseline = "middle";
    const text = p.percentile + " " + duration(p.value_ns),
      flip = b + 12 * ratio + g.measureText(text).width > u.bbox.left + u.bbox.width;
    g.textAlign = flip ? "right" : "left";
    g.lineWidth = 4 * ratio;
    g.lineJoin = "round";
    g.strokeStyle = ink("bg");
    g.strokeText(text, flip ? a - 9 * ratio : b + 9 * ratio, y - 10 * ratio);
    g.fillStyle = ink("ink");
    g.fillText(text, flip ? a - 9 * ratio : b + 9 * ratio, y - 10 * ratio);
  }
  g.restore();
}

/** Instants with a gap wherever nothing was recorded for three of them, so that no line crosses it. */
function gaps<T extends { at: number }>(of: T[]): (T | null)[] {
  const steps = of
      .slice(1)
      .map((p, i) => p.at - of[i]!.at)
      .sort((a, b) => a - b),
    most = (steps[steps.length >> 1] ?? 1) * 3;
  return of.flatMap((p, i) => (i && p.at - of[i - 1]!.at > most ? [null, p] : [p]));
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
    points.forEach((p, i) => {
      xs.push(p ? p.at : ((points[i - 1]?.at ?? 0) + (points[i + 1]?.at ?? 0)) / 2);
      ys.push(p ? ns(i) : null);
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
    const all = gaps(results[0]!.over_time),
      kept = (ns: (p: Result["over_time"][0]) => number | null, dropped: boolean) => (i: number) => {
        const p = all[i]!;
        return p.dropped === dropped ? ns(p) : null;
      };
    line(
      "median",
      "c1",
      all,
      kept((p) => p.p50, false),
    );
    line(
      "p99",
      "c4",
      all,
      kept((p) => p.p99, false),
    );
    line(
      "slowest",
      "c0",
      all,
      kept((p) => p.max, false),
      true,
    );
    if (results[0]!.over_time.some((p) => p.dropped)) {
      line(
        "median, not in the result",
        "faint",
        all,
        kept((p) => p.p50, true),
      );
      line(
        "slowest, not in the result",
        "faint",
        all,
        kept((p) => p.max, true),
        true,
      );
    }
  } else
    for (const i of drawn) {
      const all = gaps(results[i]!.over_time);
      line(results[i]!.name + ": p99", colorOf(i), all, (k) => all[k]!.p99);
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
    r = store.one,
    l = r.load;
  if (!l.length) return null;
  const open = l.some((p) => p.target > 0),
    rate = (_: uPlot, v: number | null) => (v === null || v === undefined ? "–" : count(v) + "/s");
  const lines: [string, string, (p: (typeof l)[0]) => number, number[]?][] = [
    ["sent", "c1", (p) => p.sent],
    ["answered", "c2", (p) => p.answered],
    ...(open
      ? [
          ["asked", "soft", (p: (typeof l)[0]) => p.target, [5, 4]] as [
            string,
            string,
            (p: (typeof l)[0]) => number,
            number[],
          ],
        ]
      : []),
  ];
  const top = l.reduce((a, p) => Math.max(a, p.target, p.sent, p.answered), 1) * 1.1;
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
    [l.map((p) => p.at), ...lines.map(([, , ns]) => l.map(ns))],
  ];
  return (
    <Section
      id="load"
      title="Load over time"
      lede={
        "Requests a second of all agents, each 100 ms" + (store.data.results.length > 1 ? ", of " + r.name : "") + "."
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
  const found = sweep.objective,
    limit = found && parts(found.objective),
    lines = new Map<string, { rate: number; value: number; lower: number; upper: number }[]>(),
    missed: number[] = [];
  for (const p of sweep.points) {
    for (const k of numbers(p.report)) {
      const at = lines.get(k.percentile) ?? [];
      at.push({ rate: p.rate, value: k.value_ns, lower: k.lower_ns, upper: k.upper_ns });
      lines.set(k.percentile, at);
    }
    if (p.report.verdict.verdict !== "number") missed.push(p.rate);
  }
  for (const t of found?.tries ?? []) {
    if (t.value_ns === null) {
      missed.push(t.rate);
      continue;
    }
    const name = limit!.percentile,
      at = lines.get(name) ?? [];
    at.push({ rate: t.rate, value: t.value_ns, lower: t.value_ns, upper: t.value_ns });
    lines.set(name, at);
  }
  const all = [...lines].map(([name, points]) => [name, points.sort((a, b) => a.rate - b.rate)] as const),
    values = all.flatMap(([, points]) => points.flatMap((p) => [p.lower, p.upper]));
  if (limit) values.push(limit.limit_ns);
  const rates = [...all.flatMap(([, points]) => points.map((p) => p.rate)), ...missed];
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
  const above = (u: uPlot) => {
    const g = u.ctx,
      ratio = devicePixelRatio,
      bottom = u.bbox.top + u.bbox.height;
    g.save();
    g.lineWidth = 1.6 * ratio;
    all.forEach(([, points], k) => {
      g.strokeStyle = ink(colorOf(k));
      for (const p of points) {
        const x = u.valToPos(p.rate, "x", true),
          a = u.valToPos(p.lower, "y", true),
          b = u.valToPos(p.upper, "y", true);
        g.beginPath();
        g.moveTo(x, a);
        g.lineTo(x, b);
        for (const end of [a, b]) {
          g.moveTo(x - 4 * ratio, end);
          g.lineTo(x + 4 * ratio, end);
        }
        g.stroke();
      }
    });
    g.strokeStyle = ink("c0");
    for (const r of missed) {
      const x = u.valToPos(r, "x", true),
        y = bottom - 8 * ratio,
        s = 4 * ratio;
      g.beginPath();
      g.moveTo(x - s, y - s);
      g.lineTo(x + s, y + s);
      g.moveTo(x - s, y + s);
      g.lineTo(x + s, y - s);
      g.stroke();
    }
    if (found && limit) {
      const y = u.valToPos(limit.limit_ns, "y", true);
      g.strokeStyle = ink("soft");
      g.setLineDash([5 * ratio, 4 * ratio]);
      g.beginPath();
      g.moveTo(u.bbox.left, y);
      g.lineTo(u.bbox.left + u.bbox.width, y);
      g.stroke();
      g.setLineDash([]);
      g.font = SMALL.replace("12", String(12 * ratio));
      g.fillStyle = ink("soft");
      g.textAlign = "left";
      g.textBaseline = "bottom";
      g.fillText("objective: " + objective(found.objective), u.bbox.left + 6 * ratio, y - 3 * ratio);
    }
    g.restore();
  };
  const below = (u: uPlot) => {
    if (!found?.threshold) return;
    const g = u.ctx,
      [a, b] = found.threshold.map((v) => u.valToPos(v, "x", true)) as [number, number];
    g.save();
    g.globalAlpha = 0.14;
    g.fillStyle = ink("c2");
    g.fillRect(a, u.bbox.top, Math.max(2, b - a), u.bbox.height);
    g.restore();
  };
  const tables = all.map(([, points]): uPlot.AlignedData => {
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
        ...all.map(
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
  const lede = found
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
  const of = parts(text);
  return of.percentile + " < " + duration(of.limit_ns);
};
