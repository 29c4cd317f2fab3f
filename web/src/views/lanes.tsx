// The drawing of a message's timeline: lanes with nested boxes, marks whose labels never overlap, samples, zoom.
import { useRef } from "preact/hooks";
import { Chart, crisp, fit, halo, hideTip, line, linearTicks, say, showTip, type Plot } from "../chart";
import type { Store } from "../store";
import { FONT, ink, inkOn } from "../theme";
import type { Box, Built } from "../timeline";
import type { Timeline } from "../types";
import { duration, short, tick } from "../units";
import { stageName } from "./message";

const ROW = 21,
  LANE_TITLE = 21,
  LANE_GAP = 14,
  PAD = 12,
  MARK_ROW = 17;
/** The shortest box drawn keeps a width of this many pixels, so that nothing vanishes. */
const LEAST = 0.8;

export function Lanes({
  store,
  of,
  built,
  zoom,
  setZoom,
}: {
  store: Store;
  of: Timeline;
  built: Built;
  zoom: [number, number];
  setZoom: (z: [number, number]) => void;
}) {
  const live = useRef({ zoom, selected: -1, drag: null as { start: number; now: number } | null });
  live.current.zoom = zoom;
  const looks = store.looks,
    width0 = useRef(0);
  // Marks have as many rows as keep their labels apart.
  const markRows = useRef(3),
    top0 = () => 10 + markRows.current * MARK_ROW;
  const tops: number[] = [];
  const layout = () => {
    tops.length = 0;
    let y = top0();
    for (const lane of built.lanes) {
      tops.push(y + LANE_TITLE);
      y += LANE_TITLE + Math.max(1, lane.depth) * ROW + LANE_GAP;
    }
    return y + 28;
  };
  const x = (ns: number, width: number) =>
    PAD + ((ns - live.current.zoom[0]) / (live.current.zoom[1] - live.current.zoom[0])) * (width - 2 * PAD);
  const ns = (px: number, width: number) =>
    live.current.zoom[0] + ((px - PAD) / (width - 2 * PAD)) * (live.current.zoom[1] - live.current.zoom[0]);
  const color = (b: Box) =>
    b.cause !== null && looks.coloured.has(b.cause) ? looks.color(b.cause) : b.gap ? ink("gap") : ink("own");
  const probe = useRef<CanvasRenderingContext2D | null>(null);

  /** Where the labels of the marks go: a row and a place each. */
  const labels = (g: CanvasRenderingContext2D, width: number) => {
    const [from, to] = live.current.zoom,
      right = width - PAD,
      ends: number[] = [],
      out: { at: number; text: string; tx: number; row: number }[] = [];
    g.font = FONT;
    for (const [stage, at] of of.marks) {
      if (at < from - (to - from) * 0.001 || at > to * 1.001) continue;
      const px = x(at, width),
        text = stageName(stage) + " " + duration(at),
        w = g.measureText(text).width;
      const tx = Math.max(PAD, px + 4 + w <= right ? px + 4 : px - 4 - w >= PAD ? px - 4 - w : right - w);
      let row = ends.findIndex((e) => tx > e + 8);
      if (row < 0) {
        row = ends.length;
        ends.push(0);
      }
      ends[row] = tx + w;
      out.push({ at, text, tx, row });
    }
    return { out, rows: Math.max(1, ends.length) };
  };
  const height = (width: number) => {
    width0.current = width;
    probe.current ??= document.createElement("canvas").getContext("2d")!;
    markRows.current = labels(probe.current, width).rows;
    return layout();
  };

  const draw = (g: CanvasRenderingContext2D, p: Plot) => {
    const [from, to] = live.current.zoom,
      left = PAD,
      right = p.width - PAD,
      bottom = p.height - 30,
      head = top0() - 4;
    g.textBaseline = "middle";
    g.strokeStyle = ink("line");
    g.lineWidth = 1;
    g.textAlign = "center";
    for (const v of linearTicks(from, to, (right - left) / 95)) {
      line(g, crisp(x(v, p.width)), head, crisp(x(v, p.width)), bottom);
      g.fillStyle = ink("soft");
      g.fillText(v ? tick(v) : "0", Math.max(left + 18, Math.min(right - 22, x(v, p.width))), bottom + 14);
    }
    built.lanes.forEach((lane, i) => {
      g.textAlign = "left";
      g.fillStyle = ink("soft");
      g.font = "600 " + FONT;
      g.fillText(lane.name, left + 5, tops[i]! - 11);
      g.font = FONT;
      g.strokeStyle = ink("line");
      line(g, left, crisp(tops[i]! - 2), right, crisp(tops[i]! - 2));
    });
    g.save();
    g.beginPath();
    g.rect(left - 1, 0, right - left + 2, p.height);
    g.clip();
    const hatch = hatching(g);
    built.boxes.forEach((b, i) => {
      if (b.to < from || b.from > to) return;
      const x0 = Math.max(x(b.from, p.width), left - 2),
        x1 = Math.min(x(b.to, p.width), right + 2),
        w = Math.max(LEAST, x1 - x0),
        top = tops[b.lane]! + b.level * ROW,
        fill = color(b);
      const faint = store.state.cause !== null && b.cause !== store.state.cause;
      g.fillStyle = fill;
      g.globalAlpha = b.gap && fill !== ink("gap") ? 0.3 : faint && !b.gap ? 0.45 : 1;
      g.fillRect(x0, top, w, ROW - 1);
      g.globalAlpha = 1;
      if (b.gap) {
        g.fillStyle = hatch;
        g.fillRect(x0, top, w, ROW - 1);
      }
      if (w > 3) {
        g.fillStyle = ink("bg");
        g.fillRect(x0 + w - 0.7, top, 0.7, ROW - 1);
      }
      if (i === live.current.selected) {
        g.strokeStyle = ink("ink");
        g.lineWidth = 2;
        g.strokeRect(x0 + 1, top + 1, Math.max(1, w - 2), ROW - 3);
      }
      if (w > 26) label(g, b, fill, faint, x0, top, w);
    });
    // Samples: a tick below the lane's boxes.
    g.strokeStyle = ink("ink");
    g.lineWidth = 1.5;
    for (const s of built.samples) {
      const y = tops[s.lane]! + built.lanes[s.lane]!.depth * ROW;
      line(g, crisp(x(s.at, p.width)), y + 1, crisp(x(s.at, p.width)), y + 8);
    }
    // Where the message went from one core to another.
    g.strokeStyle = ink("faint");
    g.lineWidth = 1;
    for (const [at, a, b] of built.moves) {
      const px = crisp(x(at, p.width)),
        [u, v] = a < b ? [a, b] : [b, a];
      line(g, px, tops[u]!, px, tops[v]!);
    }
    for (const { at, text, tx, row } of labels(g, p.width).out) {
      g.strokeStyle = ink("ink");
      g.lineWidth = 1;
      g.setLineDash([4, 3]);
      line(g, crisp(x(at, p.width)), 4 + row * MARK_ROW, crisp(x(at, p.width)), bottom);
      g.setLineDash([]);
      g.textAlign = "left";
      halo(g, text, tx, 11 + row * MARK_ROW);
    }
    const t = live.current.drag;
    if (t && Math.abs(t.now - t.start) > 2) {
      g.globalAlpha = 0.18;
      g.fillStyle = ink("focus");
      g.fillRect(Math.min(t.start, t.now), 0, Math.abs(t.now - t.start), bottom);
      g.globalAlpha = 1;
    }
    g.restore();
  };
  const label = (
    g: CanvasRenderingContext2D,
    b: Box,
    fill: string,
    faint: boolean,
    x0: number,
    top: number,
    w: number,
  ) => {
    const text = fit(g, b.name, w - 9);
    if (!text) return;
    g.textAlign = "left";
    if (b.gap) {
      g.fillStyle = ink("gap");
      g.fillRect(x0 + 2, top + 3, g.measureText(text).width + 6, ROW - 7);
    }
    g.fillStyle = b.gap || faint ? ink("ink") : inkOn(fill);
    g.fillText(text, x0 + 5, top + ROW / 2);
  };

  const setup = (p: Plot) => {
    const c = p.canvas,
      at = live.current;
    const zoomTo = (a: number, b: number) => {
      const span = Math.min(of.length, Math.max(20, b - a)),
        start = Math.max(0, Math.min(of.length - span, a));
      setZoom([start, start + Math.max(1, span)]);
    };
    const local = (e: MouseEvent) => {
      const box = c.getBoundingClientRect();
      return [e.clientX - box.left, e.clientY - box.top] as const;
    };
    const boxTip = (b: Box): [string, string[]] => [
      short(b.name, 200) + ": " + duration(b.to - b.from),
      [
        b.own < b.to - b.from ? "of this its own " + duration(b.own) : "",
        short(b.path, 400),
        b.cause !== null ? "counts to " + looks.title(b.cause) : "",
        "from " + duration(b.from) + " to " + duration(b.to),
      ].filter(Boolean),
    ];
    const under = (px: number, py: number) => {
      let best = -1,
        least = 4;
      built.boxes.forEach((b, i) => {
        const top = tops[b.lane]! + b.level * ROW;
        if (py < top || py >= top + ROW) return;
        const x0 = x(b.from, p.width),
          x1 = Math.max(x(b.to, p.width), x0 + LEAST),
          q = px < x0 ? x0 - px : px > x1 ? px - x1 : 0;
        if (q < least) {
          least = q;
          best = i;
        }
      });
      return best;
    };
    const sampleAt = (px: number, py: number) =>
      built.samples.find((s) => {
        const y = tops[s.lane]! + built.lanes[s.lane]!.depth * ROW;
        return py >= y - 1 && py <= y + 11 && Math.abs(x(s.at, p.width) - px) < 5;
      });
    c.style.cursor = "crosshair";
    c.addEventListener("pointerdown", (e) => {
      if (e.button === 0) {
        const [px] = local(e);
        at.drag = { start: px, now: px };
        c.setPointerCapture(e.pointerId);
      }
    });
    c.addEventListener("pointermove", (e) => {
      const [px, py] = local(e);
      if (at.drag) {
        at.drag.now = px;
        hideTip();
        p.redraw();
        return;
      }
      const sample = sampleAt(px, py);
      if (sample) {
        showTip(
          e.clientX,
          e.clientY,
          "Sample at " + duration(sample.at),
          sample.stack.slice(-14).map((f) => short(f, 90)),
        );
        return;
      }
      const i = under(px, py);
      if (i !== at.selected) {
        at.selected = i;
        p.redraw();
      }
      if (i < 0) hideTip();
      else showTip(e.clientX, e.clientY, ...boxTip(built.boxes[i]!));
    });
    c.addEventListener("pointerup", () => {
      const t = at.drag;
      at.drag = null;
      if (t && Math.abs(t.now - t.start) > 5)
        zoomTo(ns(Math.min(t.start, t.now), p.width), ns(Math.max(t.start, t.now), p.width));
      else p.redraw();
    });
    c.addEventListener("pointercancel", () => {
      at.drag = null;
      p.redraw();
    });
    const leave = () => {
      if (at.drag) return;
      at.selected = -1;
      hideTip();
      p.redraw();
    };
    c.addEventListener("pointerleave", leave);
    c.addEventListener("blur", leave);
    c.addEventListener("dblclick", () => zoomTo(0, of.length));
    // The wheel belongs to the page until the timeline was clicked (or Ctrl is held).
    c.addEventListener(
      "wheel",
      (e) => {
        if (document.activeElement !== c && !e.ctrlKey) return;
        e.preventDefault();
        const [from, to] = at.zoom,
          here = ns(local(e)[0], p.width),
          f = Math.exp(e.deltaY * 0.0016);
        if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
          const by = (e.deltaX || e.deltaY) * 0.001 * (to - from);
          zoomTo(from + by, to + by);
        } else zoomTo(here - (here - from) * f, here + (to - here) * f);
      },
      { passive: false },
    );
    c.addEventListener("keydown", (e) => {
      const [from, to] = at.zoom,
        span = to - from,
        centre = from + span / 2;
      if (e.key === "+" || e.key === "=") zoomTo(centre - span / 3.2, centre + span / 3.2);
      else if (e.key === "-" || e.key === "−") zoomTo(centre - span * 0.8, centre + span * 0.8);
      else if (e.key === "ArrowRight") zoomTo(from + span / 6, to + span / 6);
      else if (e.key === "ArrowLeft") zoomTo(from - span / 6, to - span / 6);
      else if (e.key === "0" || e.key === "Escape") {
        at.selected = -1;
        hideTip();
        zoomTo(0, of.length);
      } else if (e.key === "n" || e.key === "p") {
        at.selected = Math.max(0, Math.min(built.boxes.length - 1, at.selected + (e.key === "n" ? 1 : -1)));
        const b = built.boxes[at.selected]!,
          box = c.getBoundingClientRect(),
          [title, rows] = boxTip(b);
        if (b.to < from || b.from > to) zoomTo(b.from - span / 4, b.from + span * 0.75);
        else p.redraw();
        showTip(
          box.left + Math.max(PAD, x(b.from, p.width)),
          box.top + tops[b.lane]! + (b.level + 1) * ROW,
          title,
          rows,
        );
        say(title + ", " + rows.join(", "));
      } else return;
      e.preventDefault();
    });
    return hideTip;
  };
  const marks = of.marks
    .map(([s, at], i) => (i ? stageName(s) + " +" + duration(at - of.marks[i - 1]![1]) : stageName(s)))
    .join(", ");
  return (
    <Chart
      height={height}
      label={
        "Timeline of message " +
        of.id +
        ", " +
        duration(of.length) +
        ": " +
        marks +
        ". Keys: plus and minus zoom, arrows move, n and p step through the boxes. The same as tables follows."
      }
      draw={draw}
      setup={setup}
    />
  );
}

function hatching(g: CanvasRenderingContext2D): CanvasPattern {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const h = tile.getContext("2d")!;
  h.strokeStyle = ink("faint");
  h.globalAlpha = 0.55;
  h.lineWidth = 1;
  for (const o of [-8, 0, 8]) {
    h.beginPath();
    h.moveTo(o - 1, 9);
    h.lineTo(o + 9, -1);
    h.stroke();
  }
  return g.createPattern(tile, "repeat")!;
}
