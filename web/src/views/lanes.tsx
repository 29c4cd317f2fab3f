// The drawing of a message's timeline: lanes with nested boxes, marks whose labels never overlap, samples, zoom.
import { useEffect, useRef } from "preact/hooks";
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
  timeline,
  built,
  zoom,
  setZoom,
}: {
  store: Store;
  timeline: Timeline;
  built: Built;
  zoom: [number, number];
  setZoom: (z: [number, number]) => void;
}) {
  const live = useRef({ zoom, selected: -1, drag: null as { start: number; now: number } | null });
  live.current.zoom = zoom;
  useEffect(() => hideTip, []);
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
  const labels = (ctx: CanvasRenderingContext2D, width: number) => {
    const [from, to] = live.current.zoom,
      right = width - PAD,
      ends: number[] = [],
      out: { at: number; text: string; tx: number; row: number }[] = [];
    ctx.font = FONT;
    for (const [stage, at] of timeline.marks) {
      if (at < from - (to - from) * 0.001 || at > to * 1.001) continue;
      const px = x(at, width),
        text = stageName(stage) + " " + duration(at),
        labelWidth = ctx.measureText(text).width;
      const tx = Math.max(
        PAD,
        px + 4 + labelWidth <= right ? px + 4 : px - 4 - labelWidth >= PAD ? px - 4 - labelWidth : right - labelWidth,
      );
      let row = ends.findIndex((e) => tx > e + 8);
      if (row < 0) {
        row = ends.length;
        ends.push(0);
      }
      ends[row] = tx + labelWidth;
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

  const draw = (ctx: CanvasRenderingContext2D, plot: Plot) => {
    const [from, to] = live.current.zoom,
      left = PAD,
      right = plot.width - PAD,
      bottom = plot.height - 30,
      head = top0() - 4;
    ctx.textBaseline = "middle";
    ctx.strokeStyle = ink("line");
    ctx.lineWidth = 1;
    ctx.textAlign = "center";
    for (const value of linearTicks(from, to, (right - left) / 95)) {
      line(ctx, crisp(x(value, plot.width)), head, crisp(x(value, plot.width)), bottom);
      ctx.fillStyle = ink("soft");
      ctx.fillText(
        value ? tick(value) : "0",
        Math.max(left + 18, Math.min(right - 22, x(value, plot.width))),
        bottom + 14,
      );
    }
    built.lanes.forEach((lane, i) => {
      ctx.textAlign = "left";
      ctx.fillStyle = ink("soft");
      ctx.font = "600 " + FONT;
      ctx.fillText(lane.name, left + 5, tops[i]! - 11);
      ctx.font = FONT;
      ctx.strokeStyle = ink("line");
      line(ctx, left, crisp(tops[i]! - 2), right, crisp(tops[i]! - 2));
    });
    ctx.save();
    ctx.beginPath();
    ctx.rect(left - 1, 0, right - left + 2, plot.height);
    ctx.clip();
    const hatch = hatching(ctx);
    built.boxes.forEach((box, i) => {
      if (box.to < from || box.from > to) return;
      const x0 = Math.max(x(box.from, plot.width), left - 2),
        x1 = Math.min(x(box.to, plot.width), right + 2),
        width = Math.max(LEAST, x1 - x0),
        top = tops[box.lane]! + box.level * ROW,
        fill = color(box);
      const faint = store.state.cause !== null && box.cause !== store.state.cause;
      ctx.fillStyle = fill;
      ctx.globalAlpha = box.gap && fill !== ink("gap") ? 0.3 : faint && !box.gap ? 0.45 : 1;
      ctx.fillRect(x0, top, width, ROW - 1);
      ctx.globalAlpha = 1;
      if (box.gap) {
        ctx.fillStyle = hatch;
        ctx.fillRect(x0, top, width, ROW - 1);
      }
      if (width > 3) {
        ctx.fillStyle = ink("bg");
        ctx.fillRect(x0 + width - 0.7, top, 0.7, ROW - 1);
      }
      if (i === live.current.selected) {
        ctx.strokeStyle = ink("ink");
        ctx.lineWidth = 2;
        ctx.strokeRect(x0 + 1, top + 1, Math.max(1, width - 2), ROW - 3);
      }
      if (width > 26) label(ctx, box, fill, faint, x0, top, width);
    });
    // Samples: a tick below the lane's boxes.
    ctx.strokeStyle = ink("ink");
    ctx.lineWidth = 1.5;
    for (const sample of built.samples) {
      const y = tops[sample.lane]! + built.lanes[sample.lane]!.depth * ROW;
      line(ctx, crisp(x(sample.at, plot.width)), y + 1, crisp(x(sample.at, plot.width)), y + 8);
    }
    // Where the message went from one core to another.
    ctx.strokeStyle = ink("faint");
    ctx.lineWidth = 1;
    for (const [at, left, joined] of built.moves) {
      const px = crisp(x(at, plot.width)),
        [upper, lower] = left < joined ? [left, joined] : [joined, left];
      line(ctx, px, tops[upper]!, px, tops[lower]!);
    }
    for (const { at, text, tx, row } of labels(ctx, plot.width).out) {
      ctx.strokeStyle = ink("ink");
      ctx.lineWidth = 1;
      ctx.setLineDash([4, 3]);
      line(ctx, crisp(x(at, plot.width)), 4 + row * MARK_ROW, crisp(x(at, plot.width)), bottom);
      ctx.setLineDash([]);
      ctx.textAlign = "left";
      halo(ctx, text, tx, 11 + row * MARK_ROW);
    }
    const dragged = live.current.drag;
    if (dragged && Math.abs(dragged.now - dragged.start) > 2) {
      ctx.globalAlpha = 0.18;
      ctx.fillStyle = ink("focus");
      ctx.fillRect(Math.min(dragged.start, dragged.now), 0, Math.abs(dragged.now - dragged.start), bottom);
      ctx.globalAlpha = 1;
    }
    ctx.restore();
  };
  const label = (
    ctx: CanvasRenderingContext2D,
    box: Box,
    fill: string,
    faint: boolean,
    x0: number,
    top: number,
    width: number,
  ) => {
    const text = fit(ctx, box.name, width - 9);
    if (!text) return;
    ctx.textAlign = "left";
    if (box.gap) {
      ctx.fillStyle = ink("gap");
      ctx.fillRect(x0 + 2, top + 3, ctx.measureText(text).width + 6, ROW - 7);
    }
    ctx.fillStyle = box.gap || faint ? ink("ink") : inkOn(fill);
    ctx.fillText(text, x0 + 5, top + ROW / 2);
  };

  const setup = (plot: Plot) => {
    const canvas = plot.canvas,
      at = live.current;
    const zoomTo = (from: number, to: number) => {
      const span = Math.min(timeline.length, Math.max(20, to - from)),
        start = Math.max(0, Math.min(timeline.length - span, from));
      setZoom([start, start + Math.max(1, span)]);
    };
    const local = (event: MouseEvent) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top] as const;
    };
    const boxTip = (box: Box): [string, string[]] => [
      short(box.name, 200) + ": " + duration(box.to - box.from),
      [
        box.own < box.to - box.from ? "of this its own " + duration(box.own) : "",
        short(box.path, 400),
        box.cause !== null ? "counts to " + looks.title(box.cause) : "",
        "from " + duration(box.from) + " to " + duration(box.to),
      ].filter(Boolean),
    ];
    const under = (px: number, py: number) => {
      let best = -1,
        least = 4;
      built.boxes.forEach((box, i) => {
        const top = tops[box.lane]! + box.level * ROW;
        if (py < top || py >= top + ROW) return;
        const x0 = x(box.from, plot.width),
          x1 = Math.max(x(box.to, plot.width), x0 + LEAST),
          distance = px < x0 ? x0 - px : px > x1 ? px - x1 : 0;
        if (distance < least) {
          least = distance;
          best = i;
        }
      });
      return best;
    };
    const sampleAt = (px: number, py: number) =>
      built.samples.find((sample) => {
        const y = tops[sample.lane]! + built.lanes[sample.lane]!.depth * ROW;
        return py >= y - 1 && py <= y + 11 && Math.abs(x(sample.at, plot.width) - px) < 5;
      });
    canvas.style.cursor = "crosshair";
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button === 0) {
        const [px] = local(event);
        at.drag = { start: px, now: px };
        canvas.setPointerCapture(event.pointerId);
      }
    });
    canvas.addEventListener("pointermove", (event) => {
      const [px, py] = local(event);
      if (at.drag) {
        at.drag.now = px;
        hideTip();
        plot.redraw();
        return;
      }
      const sample = sampleAt(px, py);
      if (sample) {
        showTip(
          event.clientX,
          event.clientY,
          "Sample at " + duration(sample.at),
          sample.stack.slice(-14).map((f) => short(f, 90)),
        );
        return;
      }
      const i = under(px, py);
      if (i !== at.selected) {
        at.selected = i;
        plot.redraw();
      }
      if (i < 0) hideTip();
      else showTip(event.clientX, event.clientY, ...boxTip(built.boxes[i]!));
    });
    canvas.addEventListener("pointerup", () => {
      const dragged = at.drag;
      at.drag = null;
      if (dragged && Math.abs(dragged.now - dragged.start) > 5)
        zoomTo(
          ns(Math.min(dragged.start, dragged.now), plot.width),
          ns(Math.max(dragged.start, dragged.now), plot.width),
        );
      else plot.redraw();
    });
    canvas.addEventListener("pointercancel", () => {
      at.drag = null;
      plot.redraw();
    });
    const leave = () => {
      if (at.drag) return;
      at.selected = -1;
      hideTip();
      plot.redraw();
    };
    canvas.addEventListener("pointerleave", leave);
    canvas.addEventListener("blur", leave);
    canvas.addEventListener("dblclick", () => zoomTo(0, timeline.length));
    // The wheel belongs to the page until the timeline was clicked (or Ctrl is held).
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (document.activeElement !== canvas && !event.ctrlKey) return;
        event.preventDefault();
        const [from, to] = at.zoom,
          here = ns(local(event)[0], plot.width),
          factor = Math.exp(event.deltaY * 0.0016);
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          const by = (event.deltaX || event.deltaY) * 0.001 * (to - from);
          zoomTo(from + by, to + by);
        } else zoomTo(here - (here - from) * factor, here + (to - here) * factor);
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (event) => {
      const [from, to] = at.zoom,
        span = to - from,
        centre = from + span / 2;
      if (event.key === "+" || event.key === "=") zoomTo(centre - span / 3.2, centre + span / 3.2);
      else if (event.key === "-" || event.key === "−") zoomTo(centre - span * 0.8, centre + span * 0.8);
      else if (event.key === "ArrowRight") zoomTo(from + span / 6, to + span / 6);
      else if (event.key === "ArrowLeft") zoomTo(from - span / 6, to - span / 6);
      else if (event.key === "0" || event.key === "Escape") {
        at.selected = -1;
        hideTip();
        zoomTo(0, timeline.length);
      } else if (event.key === "n" || event.key === "p") {
        at.selected = Math.max(0, Math.min(built.boxes.length - 1, at.selected + (event.key === "n" ? 1 : -1)));
        const chosen = built.boxes[at.selected]!,
          box = canvas.getBoundingClientRect(),
          [title, rows] = boxTip(chosen);
        if (chosen.to < from || chosen.from > to) zoomTo(chosen.from - span / 4, chosen.from + span * 0.75);
        else plot.redraw();
        showTip(
          box.left + Math.max(PAD, x(chosen.from, plot.width)),
          box.top + tops[chosen.lane]! + (chosen.level + 1) * ROW,
          title,
          rows,
        );
        say(title + ", " + rows.join(", "));
      } else return;
      event.preventDefault();
    });
  };
  const marks = timeline.marks
    .map(([s, at], i) => (i ? stageName(s) + " +" + duration(at - timeline.marks[i - 1]![1]) : stageName(s)))
    .join(", ");
  return (
    <Chart
      height={height}
      label={
        "Timeline of message " +
        timeline.id +
        ", " +
        duration(timeline.length) +
        ": " +
        marks +
        ". Keys: plus and minus zoom, arrows move, n and p step through the boxes. The same as tables follows."
      }
      draw={draw}
      setup={setup}
    />
  );
}

function hatching(ctx: CanvasRenderingContext2D): CanvasPattern {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const stripes = tile.getContext("2d")!;
  stripes.strokeStyle = ink("faint");
  stripes.globalAlpha = 0.55;
  stripes.lineWidth = 1;
  for (const offset of [-8, 0, 8]) {
    stripes.beginPath();
    stripes.moveTo(offset - 1, 9);
    stripes.lineTo(offset + 9, -1);
    stripes.stroke();
  }
  return ctx.createPattern(tile, "repeat")!;
}
