// A browser for the tests: Debian's chromium, driven by playwright-core, in a new profile and without any request of
// its own.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export async function open(options = {}) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: FLAGS,
  });
  const page = await browser.newPage({
    viewport: { width: options.width ?? 1280, height: 900 },
    colorScheme: options.scheme ?? "light",
  });
  const wrong = [],
    requests = [];
  page.on("console", (m) => {
    if (m.type() === "error") wrong.push("console: " + m.text());
  });
  page.on("pageerror", (e) => wrong.push("error: " + e.message));
  page.on("request", (r) => requests.push(r.url()));
  return { browser, page, wrong, requests };
}

/** Opens an address and waits until the page is drawn. Gives the ms of the page's own clock. */
export async function visit(page, url) {
  await page.goto(url);
  await page.waitForFunction(() => document.documentElement.dataset.drawn, null, { timeout: 120_000 });
  const drawn = await page.evaluate(() => document.documentElement.dataset.drawn);
  if (drawn === "failed") throw new Error("the page could not be drawn: " + (await page.textContent("#page")));
  return +drawn;
}

/** Gives the window a width and waits until nothing is wider: charts are drawn anew a moment after it. */
export async function fits(page, width, what) {
  await page.setViewportSize({ width, height: 900 });
  await page
    .waitForFunction((width) => document.documentElement.scrollWidth <= width, width, { timeout: 10_000 })
    .catch(() => {});
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check(wide <= width, `${what} is ${wide} wide in a window of ${width}`);
}

/** Waits until an element has a text. */
export async function shows(page, selector, text, what) {
  const has = ([selector, text]) => document.querySelector(selector)?.textContent.includes(text);
  await page.waitForFunction(has, [selector, text], { timeout: 10_000 }).catch(() => {});
  check((await page.textContent(selector)).includes(text), what);
}

export function check(truth, what) {
  if (!truth) throw new Error(what);
}
export function same(found, expected, what) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what}: the page has ${a}, the JSON ${b}`);
}

/** Keeps, of each canvas, the texts that are on it and where: to be called before the page is opened. */
export async function watchLabels(page) {
  await page.addInitScript(() => {
    const labels = new Map(),
      context = CanvasRenderingContext2D.prototype,
      canvas = HTMLCanvasElement.prototype;
    window.__labels = labels;
    const { fillText, clearRect } = context;
    context.fillText = function (text, x, y, ...rest) {
      const m = this.measureText(text),
        t = this.getTransform();
      const corners = [
        [-m.actualBoundingBoxLeft, -m.actualBoundingBoxAscent],
        [m.actualBoundingBoxRight, m.actualBoundingBoxDescent],
      ].map(([dx, dy]) => new DOMPoint(x + dx, y + dy).matrixTransform(t));
      if (String(text).trim()) {
        if (!labels.has(this.canvas)) labels.set(this.canvas, []);
        labels.get(this.canvas).push({
          text: String(text),
          left: Math.min(corners[0].x, corners[1].x),
          right: Math.max(corners[0].x, corners[1].x),
          top: Math.min(corners[0].y, corners[1].y),
          bottom: Math.max(corners[0].y, corners[1].y),
        });
      }
      return fillText.call(this, text, x, y, ...rest);
    };
    context.clearRect = function (x, y, w, h) {
      const t = this.getTransform();
      if (w * t.a >= this.canvas.width - 2 && h * t.d >= this.canvas.height - 2) labels.delete(this.canvas);
      return clearRect.call(this, x, y, w, h);
    };
    const width = Object.getOwnPropertyDescriptor(canvas, "width");
    Object.defineProperty(canvas, "width", {
      ...width,
      set(v) {
        labels.delete(this);
        width.set.call(this, v);
      },
    });
  });
}

/** No text on a canvas covers another, and none is cut off by the canvas's edge. Gives how many there are. */
export async function labelsApart(page, what) {
  const { wrong, n } = await page.evaluate(() => {
    const wrong = [];
    let n = 0;
    for (const [canvas, all] of window.__labels) {
      if (!canvas.isConnected) continue;
      const of =
        canvas.closest("section")?.id || canvas.closest("[aria-label]")?.getAttribute("aria-label") || "a canvas";
      n += all.length;
      all.forEach((a, i) => {
        if (a.left < -1 || a.right > canvas.width + 1 || a.top < -1 || a.bottom > canvas.height + 1)
          wrong.push(
            `${of}: "${a.text}" is cut off (${[a.left, a.right, a.top, a.bottom].map(Math.round)} of ${canvas.width} × ${canvas.height})`,
          );
        for (const b of all.slice(i + 1))
          if (a.left + 1 < b.right && b.left + 1 < a.right && a.top + 1 < b.bottom && b.top + 1 < a.bottom)
            wrong.push(`${of}: "${a.text}" is over "${b.text}"`);
      });
    }
    return { wrong: [...new Set(wrong)].slice(0, 8), n };
  });
  check(wrong.length === 0, `${what}: ${wrong.join("; ")}`);
  return n;
}

/**
 * axe-core's rules of WCAG 2.2 A and AA and its best practices: no violation on the page as it is. Gives how many rules
 * had elements.
 */
export async function accessible(page, what) {
  if (!(await page.evaluate(() => Boolean(window.axe)))) await page.evaluate(AXE);
  const { violations, passes } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const text = violations.map(
    (v) =>
      `${v.id} (${v.help}): ` +
      v.nodes
        .slice(0, 3)
        .map((n) => n.target.join(" ") + " " + (n.any[0]?.message ?? n.all[0]?.message ?? ""))
        .join(" | ") +
      (v.nodes.length > 3 ? ` and ${v.nodes.length - 3} more` : ""),
  );
  check(violations.length === 0, `${what}: ${text.join("; ")}`);
  return passes.length;
}
