// A report in Chromium: `node page.mjs PAGE.html FACTS.json`. FACTS holds `diagnosis` (diagnose --json --more), `shown`
// (show --json of one message) and, of a report that compares two runs, `other` (diagnose --json of the other run).
// Every view is there, its numbers are the JSON's, choosing in one view narrows the others, the address restores the
// view, nothing is asked of anybody, and nothing is wider than the window. Prints what it found; fails with the first
// that is wrong.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";
import { check, fits, open, same, shows, visit } from "./browser.mjs";

const [file, factsFile] = process.argv.slice(2);
const url = pathToFileURL(resolve(file)).href,
  { diagnosis, shown, other } = JSON.parse(readFileSync(factsFile, "utf8"));
const { browser, page, wrong, requests } = await open();
try {
  await visit(page, url);
  const ids = [
    "overview",
    "legs-section",
    "causes",
    "balloon",
    "boxes",
    "message",
    "distribution",
    "typical",
    "functions",
    "queue",
    "cores",
    "pervasive",
    "record",
    ...(other ? ["compare"] : []),
  ];
  for (const id of ids) check((await page.locator("#" + id).count()) === 1, "there is no view #" + id);
  check(
    (await page.locator("main .note", { hasText: "could not be drawn" }).count()) === 0,
    "a view could not be drawn",
  );

  // The answer first: the sentence and the first causes are on the first screen of a laptop, percentiles and notes
  // behind them.
  await page.setViewportSize({ width: 1280, height: 800 });
  const top = (selector) => page.$eval(selector, (e) => e.getBoundingClientRect().top + scrollY);
  const bottom = (selector) => page.$eval(selector, (e) => e.getBoundingClientRect().bottom + scrollY);
  check((await bottom("#verdict")) < 400, "the headline ends at " + (await bottom("#verdict")));
  check(
    (await bottom("#causes-table tbody tr[data-rank='1']")) <= 800,
    "the first cause ends at " + (await bottom("#causes-table tbody tr[data-rank='1']")) + ", below the first screen",
  );
  check(
    (await top("#causes")) < (await top("#overview")) && (await top("#overview")) < (await top("#record")),
    "the causes are not first",
  );
  // A legend says nothing while nothing is pointed at.
  const legend = await page.$$eval(".u-legend td", (all) =>
    all.map((e) => e.textContent).filter((text) => /^[–-]+$/.test(text)),
  );
  same(legend, [], "values of a legend without a pointer");

  const numbers = (selector) =>
    page.$$eval(selector, (all) =>
      all
        .map((e) => e.dataset.ns)
        .filter((v) => v !== undefined)
        .map(Number),
    );
  const keys = await page.$$eval("#percentiles dt", (all) => all.map((e) => e.textContent));
  same(
    await numbers("#percentiles dd"),
    keys.filter((k) => diagnosis.latency_ns[k] !== undefined).map((k) => diagnosis.latency_ns[k]),
    "the percentiles",
  );
  const legs = ["receive", "service", "transmit", "total"].filter((l) => diagnosis.legs[l]);
  same(
    await numbers("#legs td"),
    legs.flatMap((l) => keys.map((k) => diagnosis.legs[l][k]).filter((v) => v !== undefined)),
    "the legs",
  );
  const fold = page.locator("#causes button", { hasText: "smaller causes" });
  if (await fold.count()) await fold.click();
  same(
    await numbers("#causes-table tr[data-rank] td"),
    diagnosis.causes.map((c) => c.deviation_ns),
    "the causes",
  );
  same(
    await page.$$eval("#queue tbody tr", (all) => all.length),
    diagnosis.more.queue.length,
    "the rows of the queueing breakdown",
  );
  same(await page.$$eval("#cores .core", (all) => all.length), diagnosis.more.cores.flat().length, "the cores");

  // What-ifs beside the boxes, of the causes that have one; where the run has none, none.
  const what = Object.fromEntries((diagnosis.ideal?.what_if ?? []).map((w) => [w.rank, w.latency_ns]));
  const percentile = ["p99", "p90", "p50"].find((k) => Object.values(what).some((w) => w[k] !== undefined));
  const boxed = await page.$$eval("#boxes-table tbody tr[data-rank]", (all) =>
    all.map((e) => [Number(e.dataset.rank), e.dataset.without === undefined ? null : Number(e.dataset.without)]),
  );
  check(boxed.length > 0, "there are no boxes");
  same(
    boxed.map(([, ns]) => ns),
    boxed.map(([rank]) => what[rank]?.[percentile] ?? null),
    "the what-ifs",
  );

  // Two runs beside each other: each percentile's difference.
  if (other) {
    const both = legs.filter((l) => other.legs[l]?.messages),
      has = (d, l, k) => d.legs[l][k] !== undefined;
    const moved = keys.filter((k) => both.some((l) => has(diagnosis, l, k) && has(other, l, k)));
    same(
      await numbers("#compare td"),
      both.flatMap((l) =>
        moved
          .filter((k) => has(diagnosis, l, k) && has(other, l, k))
          .map((k) => diagnosis.legs[l][k] - other.legs[l][k]),
      ),
      "the differences of the two runs",
    );
    check(
      (await page.textContent("#queue thead")).includes("The run"),
      "the queueing breakdown does not have the other run",
    );
  }

  // A cause alone, in every view and in the address; back again.
  const before = await page.textContent("#boxes .lede");
  const took = await page.evaluate(
    () =>
      new Promise((done) => {
        const from = performance.now();
        document.querySelector("#causes button.name").click();
        requestAnimationFrame(() => setTimeout(() => done(performance.now() - from)));
      }),
  );
  await page.waitForSelector(".chips button");
  check((await page.evaluate(() => location.hash)).includes("cause=1"), "the address does not have the cause");
  check(
    (await page.textContent("#boxes .lede")) !== before &&
      (await page.textContent("#boxes .lede")).includes("the choice leaves"),
    "the box plots are not narrowed",
  );
  check((await page.locator("#balloon .legend button[aria-pressed=true]").count()) <= 1, "the legend has two causes");
  await page.reload();
  await page.waitForSelector(".chips button");
  check((await page.textContent(".chips")).includes("cause:"), "the address did not restore the cause");
  await page.click(".chips button");
  await page.waitForSelector(".chips", { state: "detached", timeout: 10_000 }).catch(() => {});
  check((await page.locator(".chips").count()) === 0, "the cause is still chosen");

  // A message by its id: its table sums to its latency and is show's, row by row.
  await page.fill("#search", String(shown.id));
  await page.press("#search", "Enter");
  await page.waitForFunction(
    (id) =>
      document.querySelector("#message-meta")?.textContent.startsWith("Message " + id.toLocaleString("en-US") + ":") &&
      document.querySelector("#message-sum"),
    shown.id,
  );
  same(await numbers("#message-sum"), [shown.latency_ns], "the sum of a message");
  const more = page.locator("#message-rows button", { hasText: "Show" });
  if (await more.count()) await more.click();
  const rows = await page.$$eval("#message-rows tr[data-usual]", (all) =>
    all.map((e) => [Number(e.dataset.ns), Number(e.dataset.usual)]),
  );
  // With two runs the reference is the other one's, which show does not know: then only what this message has.
  const compared = (all) => (other ? all.map(([ns]) => ns).filter((ns) => ns > 0) : all).sort();
  same(compared(rows), compared(shown.rows.map((r) => [r.ns, r.reference_ns])), "the rows of message " + shown.id);
  await page.click("#message .around button:nth-child(2)");
  await page
    .waitForFunction((id) => !location.hash.includes("message=" + id + "&"), shown.id, { timeout: 10_000 })
    .catch(() => {});
  check(
    !(await page.evaluate(() => location.hash)).includes("message=" + shown.id + "&"),
    "no faster message was opened",
  );

  // By keyboard: the slowest message of the plot.
  await page.focus("#balloon .plot canvas");
  await page.keyboard.press("Home");
  await page.keyboard.press("Enter");
  await page.waitForFunction(
    () =>
      location.hash.includes("message=") &&
      document.querySelector("#message-meta")?.textContent.includes("the slowest of all"),
  );
  await page.keyboard.press("+");
  await page.focus("#balloon .plot canvas");
  await page.keyboard.press("+");
  await page.waitForFunction(() => location.hash.includes("ids="));

  // What is not there is said.
  await page.fill("#search", "no such thing in this run");
  await shows(page, "#found", "nothing of that name", "a search without a result says nothing");
  await page.fill("#search", "");

  for (const width of [400, 1280, 2560]) {
    await fits(page, width, "the page");
  }
  await page.emulateMedia({ colorScheme: "dark" });
  same(
    requests.filter((r) => !r.startsWith("file:") && !r.startsWith("data:")),
    [],
    "requests",
  );
  same(wrong, [], "errors");
  console.log(`every view is there; a press on a cause redrew in ${took.toFixed(0)} ms`);
} finally {
  await browser.close();
}
