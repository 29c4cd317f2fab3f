// Colours and shapes: by rank of the cause, so that the same cause looks the same everywhere; drawing of shapes.
import type { Page } from "./types";

export const SHAPES = ["circle", "square", "triangle", "diamond", "down", "plus", "cross", "star"] as const;
export const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";

const inks = new Map<string, string>();
export function ink(name: string): string {
  if (!inks.has(name))
    inks.set(
      name,
      long(
        getComputedStyle(document.documentElement)
          .getPropertyValue("--" + name)
          .trim(),
      ),
    );
  return inks.get(name)!;
}
/** #rgb as #rrggbb: the build shortens colours. */
function long(color: string): string {
  return /^#[0-9a-f]{3,4}$/i.test(color) ? color.replace(/[0-9a-f]/gi, "$&$&") : color;
}
/** Red, green, blue from 0 to 255 and alpha from 0 to 1 of #rrggbb, #rrggbbaa or rgba(). */
export function channels(color: string): [number, number, number, number] {
  if (color.startsWith("#")) {
    const at = (i: number) => parseInt(color.slice(i, i + 2), 16);
    return [at(1), at(3), at(5), color.length > 7 ? at(7) / 255 : 1];
  }
  const numbers = color.match(/[\d.]+/g)?.map(Number) ?? [];
  return [numbers[0] ?? 0, numbers[1] ?? 0, numbers[2] ?? 0, numbers[3] ?? 1];
}
const listeners = new Set<() => void>();
/** Calls back when light becomes dark; gives what ends that. */
export function onScheme(redraw: () => void): () => void {
  listeners.add(redraw);
  return () => listeners.delete(redraw);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  inks.clear();
  for (const listener of listeners) listener();
});

/** Black or white, whichever reads better on a colour given as #rrggbb. */
export function inkOn(color: string): string {
  const rgb = parseInt(color.slice(1), 16);
  const channel = (level: number) => {
    level /= 255;
    return level <= 0.04 ? level / 12.92 : ((level + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * channel(rgb >> 16) + 0.7152 * channel((rgb >> 8) & 255) + 0.0722 * channel(rgb & 255) > 0.19
    ? "#0c0f12"
    : "#ffffff";
}

/** What the causes of a page look like and are called. */
export class Looks {
  /** The first eight that add 1 % or more have a colour of their own; the rest share one grey. */
  readonly coloured = new Map<number, number>();
  constructor(readonly page: Page) {
    page.diagnosis.causes.forEach((cause, i) => {
      if (this.named(i) && cause.share >= 0.01 && this.coloured.size < SHAPES.length)
        this.coloured.set(i, this.coloured.size);
    });
  }
  named(i: number | null | undefined): boolean {
    const cause = i === null || i === undefined ? undefined : this.page.diagnosis.causes[i];
    return cause !== undefined && cause.category !== "unexplained" && cause.category !== "not-significant";
  }
  /** A cause's name in words; of a row that is no cause, what it is. */
  name(i: number): string {
    const cause = this.page.diagnosis.causes[i];
    return this.named(i)
      ? this.page.titles[i] || this.page.categories[cause!.category]!
      : cause
        ? cause.category.replace("-", " ")
        : "none of the causes";
  }
  title(i: number): string {
    if (!this.named(i)) return this.name(i);
    const cause = this.page.diagnosis.causes[i]!;
    return (
      (cause.name && cause.name !== cause.category ? this.name(i) + ", " : "") +
      this.page.categories[cause.category] +
      " (" +
      cause.role +
      ")"
    );
  }
  color(i: number | null): string {
    return i !== null && this.coloured.has(i) ? ink("c" + this.coloured.get(i)) : ink("other");
  }
  css(i: number | null): string {
    return i !== null && this.coloured.has(i) ? `var(--c${this.coloured.get(i)})` : "var(--other)";
  }
  shape(i: number | null): string {
    return i !== null && this.coloured.has(i) ? SHAPES[this.coloured.get(i)!]! : "ring";
  }
}

export function drawShape(
  ctx: CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D,
  shape: string,
  x: number,
  y: number,
  radius: number,
): void {
  ctx.beginPath();
  const poly = (points: number[][]) => {
    for (const [a, b] of points) ctx.lineTo(x + a! * radius, y + b! * radius);
    ctx.closePath();
  };
  if (shape === "circle" || shape === "ring") ctx.arc(x, y, radius, 0, 7);
  else if (shape === "square") ctx.rect(x - radius * 0.88, y - radius * 0.88, radius * 1.76, radius * 1.76);
  else if (shape === "triangle")
    poly([
      [0, -1.15],
      [1.08, 0.8],
      [-1.08, 0.8],
    ]);
  else if (shape === "down")
    poly([
      [0, 1.15],
      [1.08, -0.8],
      [-1.08, -0.8],
    ]);
  else if (shape === "diamond")
    poly([
      [0, -1.25],
      [1.1, 0],
      [0, 1.25],
      [-1.1, 0],
    ]);
  else if (shape === "plus")
    poly([
      [-0.36, -1.1],
      [0.36, -1.1],
      [0.36, -0.36],
      [1.1, -0.36],
      [1.1, 0.36],
      [0.36, 0.36],
      [0.36, 1.1],
      [-0.36, 1.1],
      [-0.36, 0.36],
      [-1.1, 0.36],
      [-1.1, -0.36],
      [-0.36, -0.36],
    ]);
  else if (shape === "cross")
    poly([
      [0, -0.5],
      [0.7, -1.2],
      [1.2, -0.7],
      [0.5, 0],
      [1.2, 0.7],
      [0.7, 1.2],
      [0, 0.5],
      [-0.7, 1.2],
      [-1.2, 0.7],
      [-0.5, 0],
      [-1.2, -0.7],
      [-0.7, -1.2],
    ]);
  else
    poly(
      Array.from({ length: 10 }, (_, k) => {
        const angle = (k * Math.PI) / 5 - Math.PI / 2,
          reach = k % 2 ? 0.55 : 1.25;
        return [Math.cos(angle) * reach, Math.sin(angle) * reach];
      }),
    );
}
