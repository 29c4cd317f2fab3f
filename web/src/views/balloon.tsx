// View 2: every message by order or time and latency (NSight Figures 3 and 12); those in focus as balloons of their
// cause.
//
// Points that are no balloons are counted into the pixels of an image, those in sight only, found by bisection: a
// million take some 10 ms a frame on one core, in any browser, and print as they are; WebGL without a graphics card
// takes longer.
import { useEffect, useRef } from "preact/hooks";
import { NO_CAUSE, NOT_IN_FOCUS } from "../data";
import { Chart, crisp, halo, hideTip, line, linearTicks, logTicks, say, showTip, type Plot } from "../chart";
import { Section, Swatch, Switch } from "../parts";
import { open, useStore, type State, type Store } from "../store";
import { channels, drawShape, ink } from "../theme";
import { count, duration, plural, tick } from "../units";

const PAD = { left: 62, right: 94, top: 22, bottom: 40 };

/** The scales of the plot for a state: x by order or time, y log or linear. */
class View {
  readonly low: number;
  readonly high: number;
  readonly from: number;
  readonly to: number;
  constructor(
    readonly store: Store,
    readonly state: State,
    readonly width: number,
    readonly height: number,
  ) {
    const data = store.data;
    const range = state.range;
    this.low = Math.max(1, range ? range[0] : (data.sorted[0] ?? 1));
    this.high = Math.max(range ? range[1] : (data.sorted[data.sorted.length - 1] ?? 2), this.low * 2);
    const [first, last] = state.zoom ?? [0, Math.max(1, data.total - 1)],
      time = state.x === "time";
    this.from = time ? data.arrival[Math.min(data.from(first), data.n - 1)]! : Math.min(first, data.total - 1);
    this.to = Math.max(
      time ? data.arrival[Math.max(0, Math.min(data.from(last + 1), data.n) - 1)]! : Math.min(last, data.total - 1),
      this.from + 1,
    );
  }
  at(row: number): number {
    return this.state.x === "time" ? this.store.data.arrival[row]! : this.store.data.id(row);
  }
  get plotWidth(): number {
    return this.width - PAD.left - PAD.right - 12;
  }
  get plotHeight(): number {
    return this.height - PAD.top - PAD.bottom;
  }
  x(row: number): number {
    return PAD.left + 6 + ((this.at(row) - this.from) / (this.to - this.from)) * this.plotWidth;
  }
  private value(px: number): number {
    return this.from + ((px - PAD.left - 6) / this.plotWidth) * (this.to - this.from);
  }
  /** The first row at a place or right of it, by bisection. */
  row(px: number): number {
    const value = this.value(px),
      data = this.store.data;
    if (this.state.x !== "time") return Math.min(data.n - 1, data.from(Math.round(value)));
    let lo = 0,
      hi = data.n - 1;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (data.arrival[mid]! < value) lo = mid + 1;
      else hi = mid;
    }
    return lo;
  }
  /** The id at a place, of a message that may have no row. */
  id(px: number): number {
    const data = this.store.data;
    return this.state.x === "time"
      ? data.id(this.row(px))
      : Math.max(0, Math.min(data.total - 1, Math.round(this.value(px))));
  }
  ratio(ns: number): number {
    return this.state.y === "log"
      ? Math.log(Math.max(ns, 1) / (this.low * 0.8)) / Math.log((this.high * 1.25) / (this.low * 0.8))
      : ns / (this.high * 1.08);
  }
  y(ns: number): number {
    return PAD.top + (1 - this.ratio(ns)) * this.plotHeight;
  }
}

export function Balloon({ store }: { store: Store }) {
  const state = useStore(store),
    data = store.data,
    page = data.page,
    looks = store.looks;
  const over = useRef(-1),
    plotRef = useRef<Plot | null>(null),
    top = useRef<HTMLCanvasElement | null>(null);
  const logs = useRef<{ version: number; lnNs: Float32Array } | null>(null),
    drag = useRef<{ from: number; now: number; zoom: [number, number]; pan: boolean } | null>(null);
  useEffect(() => hideTip, []);
  if (data.slowest < 0)
    return (
      <Section id="balloon" title="Every message" lede="No message is complete.">
        {null}
      </Section>
    );
  if (logs.current?.version !== data.version) {
    logs.current = { version: data.version, lnNs: new Float32Array(data.n) };
    for (let i = 0; i < data.n; i++) logs.current.lnNs[i] = Math.log(Math.max(1, data.latency[i]!));
  }
  const many = new Map<number, number>();
  for (const i of data.focus) if (store.matches(i)) many.set(data.cause[i]!, (many.get(data.cause[i]!) ?? 0) + 1);
  const total = [...many.values()].reduce((a, b) => a + b, 0);
  const radius = data.focus.length > 1500 ? 3.6 : data.focus.length > 400 ? 4.4 : 5.4;
  const view = (p: Plot) => new View(store, store.state, p.width, p.height);

  const draw = (ctx: CanvasRenderingContext2D, plot: Plot) => {
    const scales = view(plot),
      right = plot.width - PAD.right,
      bottom = plot.height - PAD.bottom;
    // First, for the pixels of the points are put there as they are; the lines of the axes go below them.
    points(ctx, scales, logs.current!.lnNs, store);
    ctx.strokeStyle = ink("line");
    ctx.fillStyle = ink("soft");
    ctx.lineWidth = 1;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    ctx.globalCompositeOperation = "destination-over";
    const ticks =
      state.y === "log"
        ? logTicks(scales.low * 0.8, scales.high * 1.25, (bottom - PAD.top) / 34)
        : linearTicks(0, scales.high * 1.08, (bottom - PAD.top) / 60);
    for (const value of ticks) {
      line(ctx, PAD.left, crisp(scales.y(value)), right, crisp(scales.y(value)));
      ctx.fillText(value ? tick(value) : "0", PAD.left - 8, scales.y(value));
    }
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    ctx.globalCompositeOperation = "source-over";
    const about = (right - PAD.left) / 110;
    for (const value of linearTicks(scales.from, scales.to, about)) {
      const x = PAD.left + 6 + ((value - scales.from) / (scales.to - scales.from)) * scales.plotWidth;
      if (state.x === "time" || value === Math.round(value))
        ctx.fillText(state.x === "time" ? (value ? tick(value) : "0") : count(value), x, bottom + 7);
    }
    ctx.fillText(
      state.x === "time" ? "since the recording began" : "message, in order of arrival",
      (PAD.left + right) / 2,
      bottom + 24,
    );
    // Percentile lines, so that the eye sees where the focus begins; labels that would collide are left out.
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    let lastY = Infinity;
    for (const key of ["p50", "p99", "p99.9"]) {
      const ns = page.diagnosis.latency_ns[key];
      if (ns === undefined || ns < scales.low * 0.8 || ns > scales.high * 1.25) continue;
      ctx.setLineDash([5, 4]);
      ctx.strokeStyle = ink("soft");
      ctx.lineWidth = 1;
      line(ctx, PAD.left, crisp(scales.y(ns)), right, crisp(scales.y(ns)));
      ctx.setLineDash([]);
      if (lastY - scales.y(ns) > 14) {
        ctx.fillStyle = ink("soft");
        ctx.fillText(key + " " + duration(ns), right + 6, scales.y(ns));
        lastY = scales.y(ns);
      }
    }
    balloons(ctx, scales, store, many, radius);
    slowestLabel(ctx, scales, right);
    overlay(plot);
  };
  const slowestLabel = (ctx: CanvasRenderingContext2D, scales: View, right: number) => {
    // The slowest of all is named and drawn in any case, also where it is not in focus.
    let slowest = store.matches(data.slowest) ? data.slowest : -1;
    if (slowest >= 0 && !store.inFocus(slowest)) {
      ctx.fillStyle = ink("ink");
      ctx.beginPath();
      ctx.arc(scales.x(slowest), scales.y(data.latency[slowest]!), 3, 0, 7);
      ctx.fill();
    }
    if (slowest < 0)
      for (const i of data.focus)
        if (store.matches(i) && (slowest < 0 || data.latency[i]! > data.latency[slowest]!)) slowest = i;
    if (slowest < 0) return;
    const x = scales.x(slowest),
      y = scales.y(data.latency[slowest]!),
      text = "slowest: message " + count(data.id(slowest)) + ", " + duration(data.latency[slowest]!);
    // Beside the balloon, and never out of the picture.
    const width = ctx.measureText(text).width,
      at = x + 14 + width > right ? x - 11 - width : x + 11;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    // The ticks of the axis are to its left, where it is drawn only when it is wider than the plot.
    const left = width <= right - PAD.left - 2 ? PAD.left + 2 : 4;
    halo(
      ctx,
      text,
      Math.max(left, Math.min(left === 4 ? scales.width - width - 4 : right - width, at)),
      Math.max(9, y - 9),
    );
  };
  const ring = (ctx: CanvasRenderingContext2D, scales: View) => {
    for (const [id, width] of [
      [store.state.message ?? -1, 2.5],
      [over.current, 1.5],
    ] as const) {
      const row = data.row(id);
      if (row < 0 || Number.isNaN(data.latency[row])) continue;
      const x = scales.x(row);
      if (x < PAD.left - 1 || x > scales.width - PAD.right + 1) continue;
      ctx.strokeStyle = ink("ink");
      ctx.lineWidth = width;
      ctx.beginPath();
      ctx.arc(x, scales.y(data.latency[row]!), radius + 5, 0, 7);
      ctx.stroke();
    }
    const dragged = drag.current;
    if (dragged && !dragged.pan && Math.abs(dragged.now - dragged.from) > 3) {
      ctx.globalAlpha = 0.18;
      ctx.fillStyle = ink("focus");
      ctx.fillRect(
        Math.min(dragged.from, dragged.now),
        PAD.top,
        Math.abs(dragged.now - dragged.from),
        scales.plotHeight,
      );
      ctx.globalAlpha = 1;
    }
  };
  /**
   * Rings and what is being dragged over: on a canvas of their own, so that the pointer moves over all points without
   * drawing them again.
   */
  const overlay = (plot: Plot | null = plotRef.current) => {
    if (!plot) return;
    let over = top.current;
    if (!over) {
      over = top.current = document.createElement("canvas");
      over.className = "over";
      over.setAttribute("aria-hidden", "true");
      plot.canvas.after(over);
    }
    if (over.width !== plot.canvas.width) over.width = plot.canvas.width;
    if (over.height !== plot.canvas.height) over.height = plot.canvas.height;
    over.style.height = plot.height + "px";
    const ctx = over.getContext("2d")!,
      ratio = window.devicePixelRatio || 1;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, plot.width, plot.height);
    ring(ctx, view(plot));
  };
  const tipOf = (id: number, cx: number, cy: number, tell = false) => {
    const [title, rows] = about(store, data.row(id));
    showTip(cx, cy, title, rows);
    if (tell) say(title + ", " + rows.join(", "));
  };
  /** The id of what is under the pointer: a balloon within reach, else the nearest point. */
  const under = (px: number, py: number): number => {
    const scales = view(plotRef.current!);
    let best = -1,
      least = 14 ** 2;
    const near = (i: number) => {
      const distance = (scales.x(i) - px) ** 2 + (scales.y(data.latency[i]!) - py) ** 2;
      if (distance < least) {
        least = distance;
        best = i;
      }
    };
    for (const i of data.focus) if (store.chosen(i)) near(i);
    if (best >= 0) return data.id(best);
    least = 9 ** 2;
    for (let i = scales.row(px - 10); i <= scales.row(px + 10); i++) if (store.matches(i)) near(i);
    return data.id(best);
  };
  const zoomTo = (first: number, last: number) => {
    const span = Math.max(20, Math.min(data.total - 1, last - first)),
      from = Math.round(Math.max(0, Math.min(data.total - 1 - span, first)));
    store.set({ zoom: span >= data.total - 1 ? null : [from, Math.round(from + span)] });
  };
  const setup = (plot: Plot) => {
    plotRef.current = plot;
    const canvas = plot.canvas,
      local = (event: MouseEvent) => {
        const box = canvas.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top] as const;
      };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const [x] = local(event),
        scales = view(plot);
      drag.current = {
        from: x,
        now: x,
        zoom: [scales.id(PAD.left + 6), scales.id(plot.width - PAD.right - 6)],
        pan: event.shiftKey,
      };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = local(event),
        dragged = drag.current;
      if (dragged) {
        dragged.now = x;
        hideTip();
        if (dragged.pan) {
          const by = ((dragged.from - x) / view(plot).plotWidth) * (dragged.zoom[1] - dragged.zoom[0]);
          zoomTo(dragged.zoom[0] + by, dragged.zoom[1] + by);
        } else overlay();
        return;
      }
      const id = under(x, y);
      if (id !== over.current) {
        over.current = id;
        overlay();
      }
      canvas.style.cursor = id >= 0 ? "pointer" : "crosshair";
      if (id < 0) hideTip();
      else tipOf(id, event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerup", (event) => {
      const dragged = drag.current,
        [x, y] = local(event),
        scales = view(plot);
      drag.current = null;
      if (!dragged || (dragged.pan && Math.abs(x - dragged.from) > 3)) return;
      if (Math.abs(x - dragged.from) > 5) {
        zoomTo(scales.id(Math.min(dragged.from, x)), scales.id(Math.max(dragged.from, x)));
        return;
      }
      const id = under(x, y);
      if (id >= 0) {
        hideTip();
        open(store, id);
      } else overlay();
    });
    const leave = () => {
      if (drag.current) return;
      over.current = -1;
      hideTip();
      overlay();
    };
    canvas.addEventListener("pointerleave", leave);
    canvas.addEventListener("pointercancel", () => {
      drag.current = null;
      overlay();
    });
    canvas.addEventListener("blur", leave);
    canvas.addEventListener("dblclick", () => store.set({ zoom: null, range: null }));
    // The wheel belongs to the page until the plot was clicked (or Ctrl is held).
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (document.activeElement !== canvas && !event.ctrlKey) return;
        event.preventDefault();
        const scales = view(plot),
          [first, last] = store.state.zoom ?? [0, data.total - 1];
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          const by = (event.deltaX || event.deltaY) * 0.001 * (last - first);
          zoomTo(first + by, last + by);
          return;
        }
        const at = scales.id(local(event)[0]),
          factor = Math.exp(event.deltaY * 0.0016);
        zoomTo(at - (at - first) * factor, at + (last - at) * factor);
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (e) => key(e, plot));
  };
  const key = (event: KeyboardEvent, plot: Plot) => {
    const [first, last] = store.state.zoom ?? [0, data.total - 1],
      span = last - first,
      middle = first + span / 2;
    const visible = Array.from(data.focus as Uint32Array).filter((i) => store.chosen(i)),
      byLatency = () => visible.slice().sort((i, j) => data.latency[i]! - data.latency[j]! || i - j);
    const step = (list: number[], by: number) => {
      if (!list.length) return;
      const at = list.indexOf(data.row(over.current)),
        slowest = list.reduce((i, j) => (data.latency[j]! > data.latency[i]! ? j : i));
      const row = at < 0 ? slowest : list[Math.max(0, Math.min(list.length - 1, at + by))]!;
      over.current = data.id(row);
      overlay();
      const scales = view(plot),
        box = plot.canvas.getBoundingClientRect();
      tipOf(over.current, box.left + scales.x(row), box.top + scales.y(data.latency[row]!), true);
    };
    if (event.key === "ArrowRight") event.shiftKey ? zoomTo(first + span / 6, last + span / 6) : step(visible, 1);
    else if (event.key === "ArrowLeft") event.shiftKey ? zoomTo(first - span / 6, last - span / 6) : step(visible, -1);
    else if (event.key === "ArrowUp") step(byLatency(), 1);
    else if (event.key === "ArrowDown") step(byLatency(), -1);
    else if (event.key === "Home") {
      over.current = -1;
      step(visible, 0);
    } else if (event.key === "Enter" && over.current >= 0) open(store, over.current);
    else if (event.key === "+" || event.key === "=") zoomTo(middle - span / 3.2, middle + span / 3.2);
    else if (event.key === "-") zoomTo(middle - span * 0.8, middle + span * 0.8);
    else if (event.key === "0" || event.key === "Escape") {
      over.current = -1;
      hideTip();
      store.set({ zoom: null });
    } else return;
    event.preventDefault();
  };
  const keys = [...many.keys()].sort((a, b) => many.get(b)! - many.get(a)! || a - b);
  const lede =
    (data.sampled
      ? sampled(store)
      : "One point a message, " +
        count(data.complete) +
        " in " +
        (state.x === "time" ? "time" : "order of arrival") +
        "; none is left out. ") +
    plural(data.focus.length, "message") +
    " in focus" +
    (data.focus.length === 1 ? " is a balloon" : " are balloons") +
    " of the cause that " +
    (page.messages.against_reference
      ? "added the most time to it over the reference mean."
      : "took the most time in it.");
  return (
    <Section
      id="balloon"
      title="Every message, and what slowed the slow ones"
      lede={lede}
      aside={
        <div class="switches">
          <Switch
            label="Horizontal axis"
            value={state.x}
            options={[
              ["order", "Order"],
              ["time", "Time"],
            ]}
            choose={(x) => store.set({ x })}
          />
          <Switch
            label="Latency axis"
            value={state.y}
            options={[
              ["log", "Log"],
              ["linear", "Linear"],
            ]}
            choose={(y) => store.set({ y })}
          />
        </div>
      }
    >
      <ul class="legend" aria-label="Dominant cause of the messages in focus; press one to see it alone">
        {keys.map((k) => (
          <li>
            <button
              type="button"
              aria-pressed={state.cause === k ? "true" : "false"}
              disabled={k === NO_CAUSE}
              onClick={() => store.set({ cause: state.cause === k ? null : k })}
            >
              <Swatch looks={looks} cause={k} />
              <span>
                {k === NO_CAUSE ? "none of the causes" : looks.title(k)} <span class="n">{count(many.get(k)!)}</span>
              </span>
            </button>
          </li>
        ))}
        <li>
          <span class="item">
            <span class="dot" />
            <span>
              {store.narrowed() ? "in focus, chosen " : "in focus "}
              <span class="n">{count(total)}</span>
              {", all "}
              <span class="n">{count(data.complete)}</span>
            </span>
          </span>
        </li>
      </ul>
      <Chart
        height={(w) => Math.max(320, Math.min(470, w * 0.38))}
        label={
          "Balloon plot of " +
          count(data.complete) +
          " messages; slowest is message " +
          count(data.id(data.slowest)) +
          " with " +
          duration(data.latency[data.slowest]!) +
          ". Use the arrow keys to step through the messages in focus, Enter to open one, plus and minus to zoom."
        }
        draw={draw}
        setup={setup}
      />
      <p class="hint">
        Press a point to open its timeline. Drag across the plot to zoom; after a click the wheel zooms too, with Shift
        it moves. Double-click shows it all. Keys: ← → step through the messages in focus, ↑ ↓ by latency, Home is the
        slowest, Enter opens, + − zoom.
      </p>
    </Section>
  );
}

/** Where not every message has a row: how many of those in sight have. */
function sampled(store: Store): string {
  const data = store.data;
  if (store.failed) return "The messages of this part could not be fetched: " + store.failed + ". ";
  const sight = data.sight ?? data.complete;
  let drawn = 0;
  for (let i = 0; i < data.n; i++) if (!Number.isNaN(data.latency[i]) && store.matches(i)) drawn++;
  return drawn >= sight
    ? "All " + plural(sight, "message") + " of this part, one point a message. "
    : count(drawn) +
        " of the " +
        plural(sight, "message") +
        " in sight as points: all in focus, the slowest of each moment, and a regular sample; zoom in for the others. ";
}

/** What a tip says of a message, by its row. */
export function about(store: Store, i: number): [string, string[]] {
  const data = store.data,
    cause = data.cause[i]!,
    columns = data.page.messages;
  return [
    "Message " + count(data.id(i)) + ": " + duration(data.latency[i]!),
    [
      cause === NOT_IN_FOCUS
        ? "not in focus"
        : "mostly " + (cause === NO_CAUSE ? "none of the causes" : store.looks.title(cause)),
      i === data.slowest
        ? "the slowest of all"
        : (data.sampled ? "at about p" : "at p") +
          +(data.rank(data.latency[i]!) * 100).toFixed(Math.max(1, Math.ceil(Math.log10(data.complete)) - 2)),
      columns.flow_names[data.flow[i]!] ?? "flow " + data.flow[i],
      columns.classes.length ? (columns.classes[data.class[i]!] ?? "") : "",
    ].filter(Boolean),
  ];
}

/** A balloon as pixels: where, from its middle, and their colours. */
interface Picture {
  dx: Int8Array;
  dy: Int8Array;
  rgba: Uint32Array;
}

/** Pictures by shape, colours and size: made once. */
const pictures = new Map<string, Picture>();
function picture(shape: string, color: string, radius: number, ratio: number, alpha: number): Picture {
  const key = [shape, color, ink("bg"), radius, ratio, alpha].join();
  let made = pictures.get(key);
  if (made) return made;
  const half = Math.ceil((radius * 1.35 + 2) * ratio),
    ctx = new OffscreenCanvas(half * 2, half * 2).getContext("2d", { willReadFrequently: true })!;
  ctx.scale(ratio, ratio);
  ctx.globalAlpha = alpha;
  drawShape(ctx, shape, half / ratio, half / ratio, radius);
  if (shape === "ring") {
    ctx.strokeStyle = color;
    ctx.lineWidth = 1.8;
    ctx.stroke();
  } else {
    ctx.fillStyle = color;
    ctx.fill();
    ctx.strokeStyle = ink("bg");
    ctx.lineWidth = 0.9;
    ctx.stroke();
  }
  const drawn = new Uint32Array(ctx.getImageData(0, 0, half * 2, half * 2).data.buffer),
    dx: number[] = [],
    dy: number[] = [],
    rgba: number[] = [];
  drawn.forEach((pixel, at) => {
    if (pixel >>> 24) {
      dx.push((at % (half * 2)) - half);
      dy.push(Math.floor(at / (half * 2)) - half);
      rgba.push(pixel);
    }
  });
  made = { dx: Int8Array.from(dx), dy: Int8Array.from(dy), rgba: Uint32Array.from(rgba) };
  pictures.set(key, made);
  return made;
}

/** A pixel over another: alpha in the highest byte, not multiplied in. */
function over(above: number, below: number): number {
  const alpha = above >>> 24,
    rest = ((below >>> 24) * (255 - alpha)) / 255,
    sum = alpha + rest,
    mix = (shift: number) => Math.round((((above >>> shift) & 255) * alpha + ((below >>> shift) & 255) * rest) / sum);
  return ((Math.round(sum) << 24) | (mix(16) << 16) | (mix(8) << 8) | mix(0)) >>> 0;
}

/**
 * The messages in focus. Rare causes over frequent ones, and among equals the slower over the faster; those not chosen
 * below all. They are put as pixels on a layer that is kept: ten thousand calls of the canvas take longer. One that one
 * of its kind covers at the same pixel is left out, which no eye can tell.
 */
let layer: { canvas: HTMLCanvasElement; image: ImageData } | null = null;
function balloons(
  ctx: CanvasRenderingContext2D,
  scales: View,
  store: Store,
  many: Map<number, number>,
  radius: number,
): void {
  const data = store.data,
    looks = store.looks,
    ratio = window.devicePixelRatio || 1,
    { width, height } = ctx.canvas;
  if (layer?.canvas.width !== width || layer.canvas.height !== height) {
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    layer = { canvas, image: ctx.createImageData(width, height) };
  }
  const pixels = new Uint32Array(layer.image.data.buffer);
  pixels.fill(0);
  const by = new Map<number, number[]>(
    [...many.keys()].sort((a, b) => many.get(b)! - many.get(a)! || a - b).map((cause) => [cause, []]),
  );
  for (const i of byLatency(store)) if (store.matches(i)) by.get(data.cause[i]!)!.push(i);
  const { cause: only } = store.state;
  for (const faint of [true, false])
    for (const [cause, ids] of by) {
      if ((only === null || only === cause) === faint) continue;
      const covered = new Set<number>(),
        top: number[] = [];
      for (let k = ids.length - 1; k >= 0; k--) {
        const x = Math.round(scales.x(ids[k]!) * ratio),
          y = Math.round(scales.y(data.latency[ids[k]!]!) * ratio),
          at = y * width + x;
        if (x >= 0 && x < width && y >= 0 && y < height && !covered.has(at)) {
          covered.add(at);
          top.push(at);
        }
      }
      const { dx, dy, rgba } = picture(looks.shape(cause), looks.color(cause), radius, ratio, faint ? 0.16 : 1);
      for (let k = top.length - 1; k >= 0; k--) {
        const px = top[k]! % width,
          py = (top[k]! - px) / width;
        for (let part = 0; part < rgba.length; part++) {
          const x = px + dx[part]!,
            y = py + dy[part]!;
          if (x < 0 || x >= width || y < 0 || y >= height) continue;
          const at = y * width + x,
            color = rgba[part]!,
            below = pixels[at]!;
          pixels[at] = color >= 0xff000000 || below === 0 ? color : over(color, below);
        }
      }
    }
  layer.canvas.getContext("2d")!.putImageData(layer.image, 0, 0);
  ctx.save();
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.drawImage(layer.canvas, 0, 0);
  ctx.restore();
}

/** The rows in focus, the fastest first: made when the rows change. */
let ascending: { version: number; rows: Uint32Array } | null = null;
function byLatency(store: Store): Uint32Array {
  const { focus, latency, version } = store.data;
  if (ascending?.version !== version)
    ascending = { version, rows: Uint32Array.from(focus).sort((a, b) => latency[a]! - latency[b]! || a - b) };
  return ascending.rows;
}

/**
 * The row of pixels of each message, -1 for those that are not drawn as points. Kept until the scale or the choice
 * changes: zooming leaves both.
 */
let kept: { key: string; rows: Int16Array } | null = null;
function rowsOf(scales: View, logs: Float32Array, store: Store, height: number): Int16Array {
  const data = store.data,
    { state } = scales,
    key = [
      data.version,
      height,
      scales.low,
      scales.high,
      state.y,
      state.range,
      state.filter?.by,
      state.filter?.value,
    ].join(" ");
  if (kept?.key === key && kept.rows.length === data.n) return kept.rows;
  const log = state.y === "log",
    lowest = Math.log(scales.low * 0.8),
    scale = log ? height / (Math.log(scales.high * 1.25) - lowest) : height / (scales.high * 1.08);
  const { latency, cause } = data,
    rows = new Int16Array(data.n),
    range = state.range,
    filter = state.filter,
    column = filter ? (filter.by === "flow" ? data.flow : filter.by === "thread" ? data.thread : data.class) : null;
  for (let i = 0; i < data.n; i++) {
    const ns = latency[i]!,
      out =
        cause[i] !== NOT_IN_FOCUS ||
        Number.isNaN(ns) ||
        (range !== null && !(ns >= range[0] && ns <= range[1])) ||
        (column !== null && column[i] !== filter!.value);
    const y = out ? -1 : height - (log ? logs[i]! - lowest : ns) * scale;
    rows[i] = y < 0 || y > 32000 ? -1 : y;
  }
  kept = { key, rows };
  return rows;
}

/**
 * The messages that are no balloons, counted into pixels of a sheet that is kept: column by column, for neighbours in x
 * follow each other.
 */
let sheet: { image: ImageData; counts: Uint8Array } | null = null;
function points(ctx: CanvasRenderingContext2D, scales: View, logs: Float32Array, store: Store): void {
  const data = store.data,
    ratio = window.devicePixelRatio || 1,
    { state } = scales;
  const width = Math.max(1, Math.round((scales.plotWidth + 12) * ratio)),
    height = Math.max(1, Math.round(scales.plotHeight * ratio));
  const first = state.zoom ? data.from(state.zoom[0]) : 0,
    last = (state.zoom ? data.from(state.zoom[1] + 1) : data.n) - 1,
    shown = last - first;
  const size = Math.max(1, Math.round((shown > 60000 ? 1.3 : shown > 8000 ? 2 : 2.6) * ratio));
  if (sheet?.image.width !== width || sheet.image.height !== height)
    sheet = { image: ctx.createImageData(width, height), counts: new Uint8Array(width * height) };
  const { image, counts } = sheet,
    pixels = new Uint32Array(image.data.buffer);
  counts.fill(0);
  const scaleX = (scales.plotWidth * ratio) / (scales.to - scales.from),
    offset = 6 * ratio,
    time = state.x === "time",
    { arrival, ids } = data,
    rows = rowsOf(scales, logs, store, height),
    half = (size - 1) >> 1;
  for (let i = first; i <= last; i++) {
    const row = rows[i]!;
    if (row < 0) continue;
    const column = (((time ? arrival[i]! : ids ? ids[i]! : i) - scales.from) * scaleX + offset) | 0;
    if (size === 1) {
      // Most of a million points: a pixel each.
      if (row >= height || column < 0 || column >= width) continue;
      const at = column * height + row,
        points = counts[at]!;
      if (points < 255) counts[at] = points + 1;
      continue;
    }
    for (let dx = 0; dx < size; dx++)
      for (let dy = 0; dy < size; dy++) {
        const px = column - half + dx,
          py = row - half + dy;
        if (px < 0 || px >= width || py < 0 || py >= height) continue;
        const at = px * height + py;
        if (counts[at]! < 255) counts[at]!++;
      }
  }
  const [red, green, blue, alpha] = channels(ink("dot"));
  const shades = Uint32Array.from({ length: 256 }, (_, k) =>
    k === 0 ? 0 : ((Math.round(255 * (1 - (1 - alpha) ** k)) << 24) | (blue << 16) | (green << 8) | red) >>> 0,
  );
  for (let y = 0, k = 0; y < height; y++)
    for (let x = 0, at = y; x < width; x++, at += height, k++) pixels[k] = shades[counts[at]!]!;
  ctx.putImageData(image, Math.round(PAD.left * ratio), Math.round(PAD.top * ratio));
}
