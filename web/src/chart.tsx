// What all plots share: a canvas that fills its holder's width and is drawn again when that or the scheme changes;
// ticks; the tip.
import { useEffect, useRef } from "preact/hooks";
import { scaleLinear } from "d3-scale";
import { FONT, ink, onScheme } from "./theme";

/** A plot under construction: its canvas, size in CSS pixels, and how to draw it again. */
export interface Plot {
  canvas: HTMLCanvasElement;
  width: number;
  height: number;
  redraw(): void;
}
export type Draw = (g: CanvasRenderingContext2D, plot: Plot) => void;

/** `setup` is called once, when the canvas is there; `draw` each time. */
export function Chart(props: {
  height: number | ((width: number) => number);
  label: string;
  draw: Draw;
  setup?: (plot: Plot) => void;
  plain?: boolean;
}) {
  const holder = useRef<HTMLDivElement>(null),
    plot = useRef<Plot | null>(null),
    latest = useRef(props);
  latest.current = props;
  // biome-ignore lint/correctness/useExhaustiveDependencies: what it sets up lives as long as the canvas.
  useEffect(() => {
    const box = holder.current!,
      canvas = box.querySelector("canvas")!;
    const self: Plot = {
      canvas,
      width: 0,
      height: 0,
      redraw() {
        const ratio = window.devicePixelRatio || 1,
          { height, draw } = latest.current;
        self.width = box.clientWidth;
        self.height = typeof height === "function" ? height(self.width) : height;
        const widthPx = Math.round(self.width * ratio),
          heightPx = Math.round(self.height * ratio);
        if (canvas.width !== widthPx) canvas.width = widthPx;
        if (canvas.height !== heightPx) canvas.height = heightPx;
        canvas.style.height = self.height + "px";
        const ctx = canvas.getContext("2d")!;
        ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
        ctx.clearRect(0, 0, self.width, self.height);
        ctx.font = FONT;
        draw(ctx, self);
      },
    };
    plot.current = self;
    self.redraw();
    props.setup?.(self);
    let pending = 0;
    const sized = new ResizeObserver(() => {
      if (box.clientWidth !== self.width) {
        cancelAnimationFrame(pending);
        pending = requestAnimationFrame(() => self.redraw());
      }
    });
    sized.observe(box);
    const scheme = onScheme(() => self.redraw());
    return () => {
      sized.disconnect();
      scheme();
    };
  }, []);
  useEffect(() => plot.current?.redraw());
  return (
    <div class="plot" ref={holder}>
      <canvas role="img" tabIndex={props.plain ? -1 : 0} aria-label={props.label} />
    </div>
  );
}

export const crisp = (v: number) => Math.round(v) + 0.5;
export function line(ctx: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}
/** Text with the background's colour around it, to be read over lines and points. */
export function halo(ctx: CanvasRenderingContext2D, text: string, x: number, y: number): void {
  ctx.lineWidth = 4;
  ctx.lineJoin = "round";
  ctx.strokeStyle = ink("bg");
  ctx.strokeText(text, x, y);
  ctx.fillStyle = ink("ink");
  ctx.fillText(text, x, y);
}
/** As much of a text as fits. */
export function fit(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  if (text.length < 400 && ctx.measureText(text).width <= width) return text;
  let letters = Math.min(text.length, 400);
  letters = Math.floor((letters * width) / Math.max(1, ctx.measureText(text.slice(0, letters)).width));
  while (letters > 1 && ctx.measureText(text.slice(0, letters) + "…").width > width) letters--;
  return letters > 1 ? text.slice(0, letters) + "…" : "";
}
export function linearTicks(from: number, to: number, about: number): number[] {
  return scaleLinear([from, to], [0, 1]).ticks(Math.max(2, about));
}
/** Ticks of a log axis: decades, with more between them where there is room. */
export function logTicks(from: number, to: number, about: number): number[] {
  for (const steps of [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const out: number[] = [];
    for (let exponent = Math.floor(Math.log10(from)); exponent <= Math.ceil(Math.log10(to)); exponent++)
      for (const step of steps) {
        const value = +(step * 10 ** exponent).toPrecision(3);
        if (value >= from * 0.999 && value <= to * 1.001) out.push(value);
      }
    if (out.length <= about || steps.length === 1) return out;
  }
  return [];
}

/* The tip: one for the page, text only. */
let tip: HTMLDivElement | null = null;
export function showTip(x: number, y: number, title: string, rows: (string | false | undefined | null)[]): void {
  if (!tip) {
    tip = document.createElement("div");
    tip.className = "tip";
    document.body.append(tip);
    addEventListener("scroll", hideTip, { passive: true });
  }
  const part = (tag: string, text: string) => {
    const element = document.createElement(tag);
    element.textContent = text;
    return element;
  };
  tip.replaceChildren(part("b", title), ...rows.filter((r): r is string => Boolean(r)).map((r) => part("span", r)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, x + 14 + box.width > innerWidth - 6 ? x - 14 - box.width : x + 14) + "px";
  tip.style.top = Math.max(6, Math.min(innerHeight - box.height - 6, y + 14)) + "px";
}
export function hideTip(): void {
  if (tip) tip.hidden = true;
}

/** Tells a screen reader. */
export function say(text: string): void {
  const live = document.getElementById("live");
  if (live) live.textContent = text;
}
