// A plot of uPlot's that fills its holder's width. It is made again when the scheme changes, since its colours are read
// once, and when `of` does. The arrow keys move the cursor and tell a screen reader what is there.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { logTicks, say } from "./chart";
import { ink, onScheme } from "./theme";
import { duration, percent, tick } from "./units";

export const SMALL = "12px system-ui, sans-serif";

export function Lines(props: {
  label: string;
  of: unknown;
  height: number;
  make: (width: number) => [uPlot.Options, uPlot.AlignedData];
}) {
  const holder = useRef<HTMLDivElement>(null),
    plot = useRef<uPlot | null>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `make` is new each time; `of` says when it draws others.
  useEffect(() => {
    const box = holder.current!;
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(...props.make(box.clientWidth), box);
    };
    make();
    const sized = new ResizeObserver(() => {
      const chart = plot.current;
      if (chart && chart.width !== box.clientWidth) chart.setSize({ width: box.clientWidth, height: props.height });
    });
    sized.observe(box);
    const scheme = onScheme(make);
    return () => {
      sized.disconnect();
      scheme();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [props.of]);
  const key = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 12 : event.key === "ArrowLeft" ? -12 : 0,
      chart = plot.current;
    if (!step || !chart) return;
    event.preventDefault();
    const width = chart.over.clientWidth,
      at = chart.cursor.left ?? -1;
    chart.setCursor({
      left: Math.max(0, Math.min(width - 1, at < 0 ? width / 2 : at + step)),
      top: chart.over.clientHeight / 2,
    });
    const i = chart.cursor.idx;
    if (i === null || i === undefined) return;
    const text = (series: uPlot.Series, k: number) => {
      const value = chart.data[k]![i] as number;
      return `${series.label}: ${typeof series.value === "function" ? series.value(chart, value, k, i) : value}`;
    };
    say(chart.series.flatMap((s, k) => (k === 0 || s.show ? [text(s, k)] : [])).join(", "));
  };
  return (
    <div
      class="curves"
      ref={holder}
      role="group"
      aria-roledescription="plot"
      tabIndex={0}
      aria-label={props.label + " Arrow keys move along it."}
      onKeyDown={key}
    />
  );
}

/** Lines and texts of an axis. */
export function axis(): uPlot.Axis {
  const grid = { stroke: ink("line"), width: 1 };
  return { stroke: ink("soft"), grid, ticks: grid, font: SMALL };
}
/** A log axis of latencies, ns. */
export function latencyAxis(from: number, to: number, horizontal: boolean): uPlot.Axis {
  const room = (u: uPlot) => (horizontal ? u.width / 75 : u.height / 34);
  return {
    ...axis(),
    ...(horizontal ? {} : { size: 62 }),
    splits: (u) => logTicks(from, to, room(u)),
    values: (_, v) => v.map((x) => tick(x)),
    filter: (_, v) => v,
  };
}

/** One curve of a distribution: (ns, share of the samples as slow or slower). */
export interface Curve {
  name: string;
  color: string;
  dash?: number[];
  width: number;
  points: [number, number][];
  dots?: boolean;
  show: boolean;
}
/** What is drawn below and above the curves, and what a drag across the tail chooses. */
export interface Extras {
  below?: (u: uPlot) => void;
  above?: (u: uPlot) => void;
  choose?: (from: number, to: number) => void;
}

/** Distributions on a log axis of latencies: cumulative, or the tail on a log axis too. */
export function Curves({
  lines,
  tail,
  label,
  of: source,
  extras,
}: {
  lines: Curve[];
  tail: boolean;
  label: string;
  of: unknown;
  extras?: Extras;
}) {
  return (
    <Lines
      label={label}
      of={source}
      height={310}
      make={(width) => [curveOptions(lines, tail, width, extras ?? {}), curveData(lines, tail)]}
    />
  );
}

function curveData(lines: Curve[], tail: boolean): uPlot.AlignedData {
  const tables = lines.map((curve): uPlot.AlignedData => {
    // Of equal latencies the largest share counts.
    const xs: number[] = [],
      ys: number[] = [];
    for (const [ns, share] of curve.points) {
      const x = Math.max(1, ns);
      if (xs[xs.length - 1] === x) continue;
      xs.push(x);
      ys.push(tail ? share : 1 - share);
    }
    return [xs, ys];
  });
  return uPlot.join(tables);
}

/** The share of the samples as slow as this or slower: a curve is steps, so it has a value between its points too. */
function slower(points: [number, number][], ns: number): number {
  let lo = 0,
    hi = points.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (Math.max(1, points[mid]![0]) < ns) lo = mid + 1;
    else hi = mid;
  }
  return lo < points.length ? points[lo]![1] : 0;
}

function curveOptions(lines: Curve[], tail: boolean, width: number, extras: Extras): uPlot.Options {
  let low = Infinity,
    high = 2,
    floor = 1;
  for (const curve of lines)
    for (const [ns, share] of curve.points) {
      low = Math.min(low, Math.max(1, ns));
      high = Math.max(high, ns);
      floor = Math.min(floor, share);
    }
  const from = Math.min(low, high) * 0.9,
    to = high * 1.12,
    least = Math.max(floor / 1.6, 1e-9);
  const value = (curve: Curve) => (plot: uPlot, ns: number | null, _: number, i: number | null) =>
    i === null
      ? ""
      : curve.dots
        ? ns === null || ns === undefined
          ? "–"
          : percent(ns)
        : percent(tail ? slower(curve.points, plot.data[0][i]!) : 1 - slower(curve.points, plot.data[0][i]!));
  return {
    width,
    height: 310,
    legend: { live: true },
    cursor: { drag: { x: Boolean(extras.choose), y: false, setScale: false }, focus: { prox: 24 } },
    focus: { alpha: 0.35 },
    scales: {
      x: { time: false, distr: 3, log: 10, range: [from, to] },
      y: tail ? { distr: 3, log: 10, range: [least, 1] } : { range: [0, 1] },
    },
    axes: [
      latencyAxis(from, to, true),
      {
        ...axis(),
        size: 58,
        values: (_, v) => v.map((s) => +(s * 100).toPrecision(2) + " %"),
        ...(tail ? { splits: () => decades(least), filter: (_: uPlot, v: (number | null)[]) => v } : {}),
      },
    ],
    series: [
      { label: "latency", value: (_, v) => (v === null || v === undefined ? "" : duration(v)) },
      ...lines.map(
        (curve): uPlot.Series => ({
          label: curve.name,
          show: curve.show,
          stroke: ink(curve.color),
          width: curve.width,
          dash: curve.dash,
          spanGaps: true,
          points: { show: Boolean(curve.dots), size: 7 },
          paths: curve.dots ? () => null : uPlot.paths.stepped!({ align: -1 }),
          value: value(curve),
        }),
      ),
    ],
    hooks: {
      drawClear: extras.below ? [extras.below] : [],
      draw: extras.above ? [extras.above] : [],
      setSelect: [
        (plot) => {
          if (extras.choose && plot.select.width > 4) {
            extras.choose(
              plot.posToVal(plot.select.left, "x"),
              plot.posToVal(plot.select.left + plot.select.width, "x"),
            );
            plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          }
        },
      ],
    },
  };
}

/** uPlot's own splits of a log axis want its ends to be decades. */
function decades(least: number): number[] {
  const out: number[] = [];
  for (let share = 1; share >= least; share /= 10) out.unshift(+share.toPrecision(3));
  return out;
}
