// A browser for the tests: Debian's chromium, driven by playwright-core, in a new profile and without any request of its own.
import { chromium } from "playwright-core";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export async function open(options = {}) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: FLAGS });
  const page = await browser.newPage({ viewport: { width: options.width ?? 1280, height: 900 }, colorScheme: options.scheme ?? "light" });
  const wrong = [], requests = [];
  page.on("console", (m) => { if (m.type() === "error") wrong.push("console: " + m.text()); });
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
  await page.waitForFunction((width) => document.documentElement.scrollWidth <= width, width, { timeout: 10_000 }).catch(() => {});
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check(wide <= width, `${what} is ${wide} wide in a window of ${width}`);
}

/** Waits until an element has a text. */
export async function shows(page, selector, text, what) {
  const has = ([selector, text]) => document.querySelector(selector)?.textContent.includes(text);
  await page.waitForFunction(has, [selector, text], { timeout: 10_000 }).catch(() => {});
  check((await page.textContent(selector)).includes(text), what);
}

export function check(truth, what) { if (!truth) throw new Error(what); }
export function same(found, expected, what) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what}: the page has ${a}, the JSON ${b}`);
}
