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
    const d = store.data;
    const range = state.range;
    this.low = Math.max(1, range ? range[0] : (d.sorted[0] ?? 1));
    this.high = Math.max(range ? range[1] : (d.sorted[d.sorted.length - 1] ?? 2), this.low * 2);
    const [a, b] = state.zoom ?? [0, Math.max(1, d.total - 1)],
      time = state.x === "time";
    this.from = time ? d.arrival[Math.min(d.from(a), d.n - 1)]! : Math.min(a, d.total - 1);
    this.to = Math.max(
      time ? d.arrival[Math.max(0, Math.min(d.from(b + 1), d.n) - 1)]! : Math.min(b, d.total - 1),
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
    const v = this.value(px),
      d = this.store.data;
    if (this.state.x !== "time") return Math.min(d.n - 1, d.from(Math.round(v)));
    let lo = 0,
      hi = d.n - 1;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (d.arrival[mid]! < v) lo = mid + 1;
      else hi = mid;
    }
    return lo;
  }
  /** The id at a place, of a message that may have no row. */
  id(px: number): number {
    const d = this.store.data;
    return this.state.x === "time"
      ? d.id(this.row(px))
      : Math.max(0, Math.min(d.total - 1, Math.round(this.value(px))));
  }
  ratio(v: number): number {
    return this.state.y === "log"
      ? Math.log(Math.max(v, 1) / (this.low * 0.8)) / Math.log((this.high * 1.25) / (this.low * 0.8))
      : v / (this.high * 1.08);
  }
  y(v: number): number {
    return PAD.top + (1 - this.ratio(v)) * this.plotHeight;
  }
}

export function Balloon({ store }: { store: Store }) {
  const state = useStore(store),
    d = store.data,
    page = d.page,
    looks = store.looks;
  const over = useRef(-1),
    plot = useRef<Plot | null>(null),
    top = useRef<HTMLCanvasElement | null>(null);
  const logs = useRef<{ version: number; of: Float32Array } | null>(null),
    drag = useRef<{ from: number; now: number; zoom: [number, number]; pan: boolean } | null>(null);
  useEffect(() => hideTip, []);
  if (d.slowest < 0)
    return (
      <Section id="balloon" title="Every message" lede="No message is complete.">
        {null}
      </Section>
    );
  if (logs.current?.version !== d.version) {
    logs.current = { version: d.version, of: new Float32Array(d.n) };
    for (let i = 0; i < d.n; i++) logs.current.of[i] = Math.log(Math.max(1, d.latency[i]!));
  }
  const many = new Map<number, number>();
  for (const i of d.focus) if (store.matches(i)) many.set(d.cause[i]!, (many.get(d.cause[i]!) ?? 0) + 1);
  const total = [...many.values()].reduce((a, b) => a + b, 0);
  const radius = d.focus.length > 1500 ? 3.6 : d.focus.length > 400 ? 4.4 : 5.4;
  const view = (p: Plot) => new View(store, store.state, p.width, p.height);

  const draw = (g: CanvasRenderingContext2D, p: Plot) => {
    const v = view(p),
      right = p.width - PAD.right,
      bottom = p.height - PAD.bottom;
    // First, for the pixels of the points are put there as they are; the lines of the axes go below them.
    points(g, v, logs.current!.of, store);
    g.strokeStyle = ink("line");
    g.fillStyle = ink("soft");
    g.lineWidth = 1;
    g.textAlign = "right";
    g.textBaseline = "middle";
    g.globalCompositeOperation = "destination-over";
    const ticks =
      state.y === "log"
        ? logTicks(v.low * 0.8, v.high * 1.25, (bottom - PAD.top) / 34)
        : linearTicks(0, v.high * 1.08, (bottom - PAD.top) / 60);
    for (const t of ticks) {
      line(g, PAD.left, crisp(v.y(t)), right, crisp(v.y(t)));
      g.fillText(t ? tick(t) : "0", PAD.left - 8, v.y(t));
    }
    g.textAlign = "center";
    g.textBaseline = "top";
    g.globalCompositeOperation = "source-over";
    const about = (right - PAD.left) / 110;
    for (const t of linearTicks(v.from, v.to, about)) {
      const x = PAD.left + 6 + ((t - v.from) / (v.to - v.from)) * v.plotWidth;
      if (state.x === "time" || t === Math.round(t))
        g.fillText(state.x === "time" ? (t ? tick(t) : "0") : count(t), x, bottom + 7);
    }
    g.fillText(
      state.x === "time" ? "since the recording began" : "message, in order of arrival",
      (PAD.left + right) / 2,
      bottom + 24,
    );
    // Percentile lines, so that the eye sees where the focus begins; labels that would collide are left out.
    g.textAlign = "left";
    g.textBaseline = "middle";
    let lastY = Infinity;
    for (const key of ["p50", "p99", "p99.9"]) {
      const ns = page.diagnosis.latency_ns[key];
      if (ns === undefined || ns < v.low * 0.8 || ns > v.high * 1.25) continue;
      g.setLineDash([5, 4]);
      g.strokeStyle = ink("soft");
      g.lineWidth = 1;
      line(g, PAD.left, crisp(v.y(ns)), right, crisp(v.y(ns)));
      g.setLineDash([]);
      if (lastY - v.y(ns) > 14) {
        g.fillStyle = ink("soft");
        g.fillText(key + " " + duration(ns), right + 6, v.y(ns));
        lastY = v.y(ns);
      }
    }
    balloons(g, v, store, many, radius);
    slowestLabel(g, v, right);
    overlay(p);
  };
  const slowestLabel = (g: CanvasRenderingContext2D, v: View, right: number) => {
    // The slowest of all is named and drawn in any case, also where it is not in focus.
    let slowest = store.matches(d.slowest) ? d.slowest : -1;
    if (slowest >= 0 && !store.inFocus(slowest)) {
      g.fillStyle = ink("ink");
      g.beginPath();
      g.arc(v.x(slowest), v.y(d.latency[slowest]!), 3, 0, 7);
      g.fill();
    }
    if (slowest < 0)
      for (const i of d.focus)
        if (store.matches(i) && (slowest < 0 || d.latency[i]! > d.latency[slowest]!)) slowest = i;
    if (slowest < 0) return;
    const x = v.x(slowest),
      y = v.y(d.latency[slowest]!),
      text = "slowest: message " + count(d.id(slowest)) + ", " + duration(d.latency[slowest]!);
    // Beside the balloon, and never out of the picture.
    const width = g.measureText(text).width,
      at = x + 14 + width > right ? x - 11 - width : x + 11;
    g.textAlign = "left";
    g.textBaseline = "middle";
    // The ticks of the axis are to its left, where it is drawn only when it is wider than the plot.
    const left = width <= right - PAD.left - 2 ? PAD.left + 2 : 4;
    halo(g, text, Math.max(left, Math.min(left === 4 ? v.width - width - 4 : right - width, at)), Math.max(9, y - 9));
  };
  const ring = (g: CanvasRenderingContext2D, v: View) => {
    for (const [id, width] of [
      [store.state.message ?? -1, 2.5],
      [over.current, 1.5],
    ] as const) {
      const row = d.row(id);
      if (row < 0 || Number.isNaN(d.latency[row])) continue;
      const x = v.x(row);
      if (x < PAD.left - 1 || x > v.width - PAD.right + 1) continue;
      g.strokeStyle = ink("ink");
      g.lineWidth = width;
      g.beginPath();
      g.arc(x, v.y(d.latency[row]!), radius + 5, 0, 7);
      g.stroke();
    }
    const t = drag.current;
    if (t && !t.pan && Math.abs(t.now - t.from) > 3) {
      g.globalAlpha = 0.18;
      g.fillStyle = ink("focus");
      g.fillRect(Math.min(t.from, t.now), PAD.top, Math.abs(t.now - t.from), v.plotHeight);
      g.globalAlpha = 1;
    }
  };
  /**
   * Rings and what is being dragged over: on a canvas of their own, so that the pointer moves over all points without
   * drawing them again.
   */
  const overlay = (p: Plot | null = plot.current) => {
    if (!p) return;
    let over = top.current;
    if (!over) {
      over = top.current = document.createElement("canvas");
      over.className = "over";
      over.setAttribute("aria-hidden", "true");
      p.canvas.after(over);
    }
    if (over.width !== p.canvas.width) over.width = p.canvas.width;
    if (over.height !== p.canvas.height) over.height = p.canvas.height;
    over.style.height = p.height + "px";
    const g = over.getContext("2d")!,
      ratio = window.devicePixelRatio || 1;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, p.width, p.height);
    ring(g, view(p));
  };
  const tipOf = (id: number, cx: number, cy: number, tell = false) => {
    const [title, rows] = about(store, d.row(id));
    showTip(cx, cy, title, rows);
    if (tell) say(title + ", " + rows.join(", "));
  };
  /** The id of what is under the pointer: a balloon within reach, else the nearest point. */
  const under = (px: number, py: number): number => {
    const v = view(plot.current!);
    let best = -1,
      least = 14 ** 2;
    const near = (i: number) => {
      const q = (v.x(i) - px) ** 2 + (v.y(d.latency[i]!) - py) ** 2;
      if (q < least) {
        least = q;
        best = i;
      }
    };
    for (const i of d.focus) if (store.chosen(i)) near(i);
    if (best >= 0) return d.id(best);
    least = 9 ** 2;
    for (let i = v.row(px - 10); i <= v.row(px + 10); i++) if (store.matches(i)) near(i);
    return d.id(best);
  };
  const zoomTo = (a: number, b: number) => {
    const span = Math.max(20, Math.min(d.total - 1, b - a)),
      from = Math.round(Math.max(0, Math.min(d.total - 1 - span, a)));
    store.set({ zoom: span >= d.total - 1 ? null : [from, Math.round(from + span)] });
  };
  const setup = (p: Plot) => {
    plot.current = p;
    const c = p.canvas,
      local = (e: MouseEvent) => {
        const box = c.getBoundingClientRect();
        return [e.clientX - box.left, e.clientY - box.top] as const;
      };
    c.addEventListener("pointerdown", (e) => {
      if (e.button !== 0) return;
      const [x] = local(e),
        v = view(p);
      drag.current = { from: x, now: x, zoom: [v.id(PAD.left + 6), v.id(p.width - PAD.right - 6)], pan: e.shiftKey };
      c.setPointerCapture(e.pointerId);
    });
    c.addEventListener("pointermove", (e) => {
      const [x, y] = local(e),
        t = drag.current;
      if (t) {
        t.now = x;
        hideTip();
        if (t.pan) {
          const by = ((t.from - x) / view(p).plotWidth) * (t.zoom[1] - t.zoom[0]);
          zoomTo(t.zoom[0] + by, t.zoom[1] + by);
        } else overlay();
        return;
      }
      const id = under(x, y);
      if (id !== over.current) {
        over.current = id;
        overlay();
      }
      c.style.cursor = id >= 0 ? "pointer" : "crosshair";
      if (id < 0) hideTip();
      else tipOf(id, e.clientX, e.clientY);
    });
    c.addEventListener("pointerup", (e) => {
      const t = drag.current,
        [x, y] = local(e),
        v = view(p);
      drag.current = null;
      if (!t || (t.pan && Math.abs(x - t.from) > 3)) return;
      if (Math.abs(x - t.from) > 5) {
        zoomTo(v.id(Math.min(t.from, x)), v.id(Math.max(t.from, x)));
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
    c.addEventListener("pointerleave", leave);
    c.addEventListener("pointercancel", () => {
      drag.current = null;
      overlay();
    });
    c.addEventListener("blur", leave);
    c.addEventListener("dblclick", () => store.set({ zoom: null, range: null }));
    // The wheel belongs to the page until the plot was clicked (or Ctrl is held).
    c.addEventListener(
      "wheel",
      (e) => {
        if (document.activeElement !== c && !e.ctrlKey) return;
        e.preventDefault();
        const v = view(p),
          [a, b] = store.state.zoom ?? [0, d.total - 1];
        if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
          const by = (e.deltaX || e.deltaY) * 0.001 * (b - a);
          zoomTo(a + by, b + by);
          return;
        }
        const at = v.id(local(e)[0]),
          f = Math.exp(e.deltaY * 0.0016);
        zoomTo(at - (at - a) * f, at + (b - at) * f);
      },
      { passive: false },
    );
    c.addEventListener("keydown", (e) => key(e, p));
  };
  const key = (e: KeyboardEvent, p: Plot) => {
    const [a, b] = store.state.zoom ?? [0, d.total - 1],
      span = b - a,
      middle = a + span / 2;
    const visible = Array.from(d.focus as Uint32Array).filter((i) => store.chosen(i)),
      byLatency = () => visible.slice().sort((i, j) => d.latency[i]! - d.latency[j]! || i - j);
    const step = (list: number[], by: number) => {
      if (!list.length) return;
      const at = list.indexOf(d.row(over.current)),
        slowest = list.reduce((i, j) => (d.latency[j]! > d.latency[i]! ? j : i));
      const row = at < 0 ? slowest : list[Math.max(0, Math.min(list.length - 1, at + by))]!;
      over.current = d.id(row);
      overlay();
      const v = view(p),
        box = p.canvas.getBoundingClientRect();
      tipOf(over.current, box.left + v.x(row), box.top + v.y(d.latency[row]!), true);
    };
    if (e.key === "ArrowRight") e.shiftKey ? zoomTo(a + span / 6, b + span / 6) : step(visible, 1);
    else if (e.key === "ArrowLeft") e.shiftKey ? zoomTo(a - span / 6, b - span / 6) : step(visible, -1);
    else if (e.key === "ArrowUp") step(byLatency(), 1);
    else if (e.key === "ArrowDown") step(byLatency(), -1);
    else if (e.key === "Home") {
      over.current = -1;
      step(visible, 0);
    } else if (e.key === "Enter" && over.current >= 0) open(store, over.current);
    else if (e.key === "+" || e.key === "=") zoomTo(middle - span / 3.2, middle + span / 3.2);
    else if (e.key === "-") zoomTo(middle - span * 0.8, middle + span * 0.8);
    else if (e.key === "0" || e.key === "Escape") {
      over.current = -1;
      hideTip();
      store.set({ zoom: null });
    } else return;
    e.preventDefault();
  };
  const keys = [...many.keys()].sort((a, b) => many.get(b)! - many.get(a)! || a - b);
  const lede =
    (d.sampled
      ? sampled(store)
      : "One point a message, " +
        count(d.complete) +
        " in " +
        (state.x === "time" ? "time" : "order of arrival") +
        "; none is left out. ") +
    plural(d.focus.length, "message") +
    " in focus" +
    (d.focus.length === 1 ? " is a balloon" : " are balloons") +
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
              <span class="n">{count(d.complete)}</span>
            </span>
          </span>
        </li>
      </ul>
      <Chart
        height={(w) => Math.max(320, Math.min(470, w * 0.38))}
        label={
          "Balloon plot of " +
          count(d.complete) +
          " messages; slowest is message " +
          count(d.id(d.slowest)) +
          " with " +
          duration(d.latency[d.slowest]!) +
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
  const d = store.data;
  if (store.failed) return "The messages of this part could not be fetched: " + store.failed + ". ";
  const sight = d.sight ?? d.complete;
  let drawn = 0;
  for (let i = 0; i < d.n; i++) if (!Number.isNaN(d.latency[i]) && store.matches(i)) drawn++;
  return drawn >= sight
    ? "All " + plural(sight, "message") + " of this part, one point a message. "
    : count(drawn) +
        " of the " +
        plural(sight, "message") +
        " in sight as points: all in focus, the slowest of each moment, and a regular sample; zoom in for the others. ";
}

/** What a tip says of a message, by its row. */
export function about(store: Store, i: number): [string, string[]] {
  const d = store.data,
    c = d.cause[i]!,
    m = d.page.messages;
  return [
    "Message " + count(d.id(i)) + ": " + duration(d.latency[i]!),
    [
      c === NOT_IN_FOCUS ? "not in focus" : "mostly " + (c === NO_CAUSE ? "none of the causes" : store.looks.title(c)),
      i === d.slowest
        ? "the slowest of all"
        : (d.sampled ? "at about p" : "at p") +
          +(d.rank(d.latency[i]!) * 100).toFixed(Math.max(1, Math.ceil(Math.log10(d.complete)) - 2)),
      m.flow_names[d.flow[i]!] ?? "flow " + d.flow[i],
      m.classes.length ? (m.classes[d.class[i]!] ?? "") : "",
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
    c = new OffscreenCanvas(half * 2, half * 2).getContext("2d", { willReadFrequently: true })!;
  c.scale(ratio, ratio);
  c.globalAlpha = alpha;
  drawShape(c, shape, half / ratio, half / ratio, radius);
  if (shape === "ring") {
    c.strokeStyle = color;
    c.lineWidth = 1.8;
    c.stroke();
  } else {
    c.fillStyle = color;
    c.fill();
    c.strokeStyle = ink("bg");
    c.lineWidth = 0.9;
    c.stroke();
  }
  const all = new Uint32Array(c.getImageData(0, 0, half * 2, half * 2).data.buffer),
    dx: number[] = [],
    dy: number[] = [],
    rgba: number[] = [];
  all.forEach((v, at) => {
    if (v >>> 24) {
      dx.push((at % (half * 2)) - half);
      dy.push(Math.floor(at / (half * 2)) - half);
      rgba.push(v);
    }
  });
  made = { dx: Int8Array.from(dx), dy: Int8Array.from(dy), rgba: Uint32Array.from(rgba) };
  pictures.set(key, made);
  return made;
}

/** A pixel over another: alpha in the highest byte, not multiplied in. */
function over(above: number, below: number): number {
  const a = above >>> 24,
    b = ((below >>> 24) * (255 - a)) / 255,
    sum = a + b,
    mix = (shift: number) => Math.round((((above >>> shift) & 255) * a + ((below >>> shift) & 255) * b) / sum);
  return ((Math.round(sum) << 24) | (mix(16) << 16) | (mix(8) << 8) | mix(0)) >>> 0;
}

/**
 * The messages in focus. Rare causes over frequent ones, and among equals the slower over the faster; those not chosen
 * below all. They are put as pixels on a layer that is kept: ten thousand calls of the canvas take longer. One that one
 * of its kind covers at the same pixel is left out, which no eye can tell.
 */
let layer: { canvas: HTMLCanvasElement; image: ImageData } | null = null;
function balloons(g: CanvasRenderingContext2D, v: View, store: Store, many: Map<number, number>, radius: number): void {
  const d = store.data,
    looks = store.looks,
    ratio = window.devicePixelRatio || 1,
    { width, height } = g.canvas;
  if (layer?.canvas.width !== width || layer.canvas.height !== height) {
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    layer = { canvas, image: g.createImageData(width, height) };
  }
  const pixels = new Uint32Array(layer.image.data.buffer);
  pixels.fill(0);
  const by = new Map<number, number[]>(
    [...many.keys()].sort((a, b) => many.get(b)! - many.get(a)! || a - b).map((cause) => [cause, []]),
  );
  for (const i of byLatency(store)) if (store.matches(i)) by.get(d.cause[i]!)!.push(i);
  const { cause: only } = store.state;
  for (const faint of [true, false])
    for (const [cause, ids] of by) {
      if ((only === null || only === cause) === faint) continue;
      const seen = new Set<number>(),
        top: number[] = [];
      for (let k = ids.length - 1; k >= 0; k--) {
        const x = Math.round(v.x(ids[k]!) * ratio),
          y = Math.round(v.y(d.latency[ids[k]!]!) * ratio),
          at = y * width + x;
        if (x >= 0 && x < width && y >= 0 && y < height && !seen.has(at)) {
          seen.add(at);
          top.push(at);
        }
      }
      const { dx, dy, rgba } = picture(looks.shape(cause), looks.color(cause), radius, ratio, faint ? 0.16 : 1);
      for (let k = top.length - 1; k >= 0; k--) {
        const px = top[k]! % width,
          py = (top[k]! - px) / width;
        for (let n = 0; n < rgba.length; n++) {
          const x = px + dx[n]!,
            y = py + dy[n]!;
          if (x < 0 || x >= width || y < 0 || y >= height) continue;
          const at = y * width + x,
            color = rgba[n]!,
            below = pixels[at]!;
          pixels[at] = color >= 0xff000000 || below === 0 ? color : over(color, below);
        }
      }
    }
  layer.canvas.getContext("2d")!.putImageData(layer.image, 0, 0);
  g.save();
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.drawImage(layer.canvas, 0, 0);
  g.restore();
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
let kept: { of: string; rows: Int16Array } | null = null;
function rowsOf(v: View, logs: Float32Array, store: Store, h: number): Int16Array {
  const d = store.data,
    { state } = v,
    of = [d.version, h, v.low, v.high, state.y, state.range, state.filter?.by, state.filter?.value].join(" ");
  if (kept?.of === of && kept.rows.length === d.n) return kept.rows;
  const log = state.y === "log",
    lowest = Math.log(v.low * 0.8),
    scale = log ? h / (Math.log(v.high * 1.25) - lowest) : h / (v.high * 1.08);
  const { latency, cause } = d,
    rows = new Int16Array(d.n),
    r = state.range,
    f = state.filter,
    column = f ? (f.by === "flow" ? d.flow : f.by === "thread" ? d.thread : d.class) : null;
  for (let i = 0; i < d.n; i++) {
    const ns = latency[i]!,
      out =
        cause[i] !== NOT_IN_FOCUS ||
        Number.isNaN(ns) ||
        (r !== null && !(ns >= r[0] && ns <= r[1])) ||
        (column !== null && column[i] !== f!.value);
    const y = out ? -1 : h - (log ? logs[i]! - lowest : ns) * scale;
    rows[i] = y < 0 || y > 32000 ? -1 : y;
  }
  kept = { of, rows };
  return rows;
}

/**
 * The messages that are no balloons, counted into pixels of a sheet that is kept: column by column, for neighbours in x
 * follow each other.
 */
let sheet: { image: ImageData; counts: Uint8Array } | null = null;
function points(g: CanvasRenderingContext2D, v: View, logs: Float32Array, store: Store): void {
  const d = store.data,
    ratio = window.devicePixelRatio || 1,
    { state } = v;
  const w = Math.max(1, Math.round((v.plotWidth + 12) * ratio)),
    h = Math.max(1, Math.round(v.plotHeight * ratio));
  const first = state.zoom ? d.from(state.zoom[0]) : 0,
    last = (state.zoom ? d.from(state.zoom[1] + 1) : d.n) - 1,
    shown = last - first;
  const size = Math.max(1, Math.round((shown > 60000 ? 1.3 : shown > 8000 ? 2 : 2.6) * ratio));
  if (sheet?.image.width !== w || sheet.image.height !== h)
    sheet = { image: g.createImageData(w, h), counts: new Uint8Array(w * h) };
  const { image, counts } = sheet,
    pixels = new Uint32Array(image.data.buffer);
  counts.fill(0);
  const scaleX = (v.plotWidth * ratio) / (v.to - v.from),
    offset = 6 * ratio,
    time = state.x === "time",
    { arrival, ids } = d,
    rows = rowsOf(v, logs, store, h),
    half = (size - 1) >> 1;
  for (let i = first; i <= last; i++) {
    const row = rows[i]!;
    if (row < 0) continue;
    const column = (((time ? arrival[i]! : ids ? ids[i]! : i) - v.from) * scaleX + offset) | 0;
    if (size === 1) {
      // Most of a million points: a pixel each.
      if (row >= h || column < 0 || column >= w) continue;
      const at = column * h + row,
        c = counts[at]!;
      if (c < 255) counts[at] = c + 1;
      continue;
    }
    for (let dx = 0; dx < size; dx++)
      for (let dy = 0; dy < size; dy++) {
        const px = column - half + dx,
          py = row - half + dy;
        if (px < 0 || px >= w || py < 0 || py >= h) continue;
        const at = px * h + py;
        if (counts[at]! < 255) counts[at]!++;
      }
  }
  const [red, green, blue, alpha] = channels(ink("dot"));
  const shades = Uint32Array.from({ length: 256 }, (_, k) =>
    k === 0 ? 0 : ((Math.round(255 * (1 - (1 - alpha) ** k)) << 24) | (blue << 16) | (green << 8) | red) >>> 0,
  );
  for (let y = 0, k = 0; y < h; y++) for (let x = 0, at = y; x < w; x++, at += h, k++) pixels[k] = shades[counts[at]!]!;
  g.putImageData(image, Math.round(PAD.left * ratio), Math.round(PAD.top * ratio));
}
