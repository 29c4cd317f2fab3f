// A page of measurements in Chromium: `node load.mjs PAGE.html FACTS.json`. FACTS.results has each measurement's `name`
// and `percentiles_ns` (its response times, by name), FACTS.sweep whether it is a sweep, FACTS.says a sentence that the
// page has. Every part is there with the numbers of the JSON, a measurement can be chosen and left out, the address
// restores it, names are text, nothing is asked of anybody, and nothing is wider than the window.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { accessible, check, fits, labelsApart, open, same, shows, visit, watchLabels } from "./browser.mjs";

const [file, factsFile] = process.argv.slice(2),
  { results, sweep, says } = JSON.parse(readFileSync(factsFile, "utf8"));
const { browser, page, wrong, requests } = await open();
try {
  await watchLabels(page);
  await visit(page, pathToFileURL(resolve(file)).href);
  const several = results.length > 1;
  const ids = [
    "latency",
    "ccdf",
    "time",
    "checks",
    "client",
    ...(several ? ["results"] : []),
    ...(sweep ? ["rates"] : []),
  ];
  for (const id of ids) check((await page.locator("#" + id).count()) === 1, "there is no part #" + id);
  check((await page.locator(".uplot").count()) >= 3, "plots are missing");
  check((await page.locator(".note", { hasText: "could not be drawn" }).count()) === 0, "a part could not be drawn");

  if (says)
    check(
      (await page.locator("body").textContent()).replace(/\s+/g, " ").includes(says),
      "the page does not say: " + says,
    );

  const numbers = () =>
    page.$$eval("#latency-table tbody tr:first-child td", (all) =>
      all
        .map((e) => e.dataset.ns)
        .filter((v) => v !== undefined)
        .map(Number),
    );
  const expected = (r) =>
    Object.entries(r.percentiles_ns)
      .sort((a, b) => parseFloat(a[0].slice(1)) - parseFloat(b[0].slice(1)))
      .map(([, ns]) => ns)
      .filter((ns) => ns !== null);
  if (several) {
    same(
      await page.$$eval("#results tbody b", (all) => all.map((e) => e.textContent)),
      results.map((r) => r.name),
      "the names of the measurements",
    );
    const last = results.length - 1;
    for (const i of [last, 0]) {
      await page.click(`#results tbody tr:nth-child(${i + 1}) button.name`);
      await shows(page, "#latency-title", results[i].name, "the chosen measurement's details are not shown");
      same(await numbers(), expected(results[i]), "the percentiles of " + results[i].name);
    }
    const legend = () => page.$$eval("#ccdf .u-legend .u-label", (all) => all.map((e) => e.textContent));
    check(
      (await legend()).some((name) => name.includes(results[last].name)),
      "a measurement has no curve",
    );
    await page.click(`#results tbody tr:nth-child(${last + 1}) input`);
    await page
      .waitForFunction(
        (name) => ![...document.querySelectorAll("#ccdf .u-legend .u-label")].some((e) => e.textContent.includes(name)),
        results[last].name,
        { timeout: 10_000 },
      )
      .catch(() => {});
    check(
      !(await legend()).some((name) => name.includes(results[last].name)),
      "a measurement that is left out is drawn",
    );
    check(
      (await page.evaluate(() => location.hash)).includes("without=" + (last + 1)),
      "the address does not say what is left out",
    );
    await page.reload();
    await page.waitForFunction(() => document.documentElement.dataset.drawn);
    check(
      !(await legend()).some((name) => name.includes(results[last].name)),
      "the address did not restore what is left out",
    );
  } else same(await numbers(), expected(results[0]), "the percentiles");

  // By keyboard: the cursor of a plot moves, and what is there is told.
  await page.focus("#ccdf .curves");
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => document.getElementById("live").textContent.includes("latency: "), null, {
    timeout: 10_000,
  });
  same(
    await page.$$eval("#page img, iframe, object, embed, script[src], link[rel=stylesheet]", (all) => all.length),
    0,
    "elements of a name",
  );
  for (const width of [400, 1000, 2560]) {
    await fits(page, width, "the page");
    await page.waitForTimeout(150);
    check((await labelsApart(page, `${width} wide`)) > 0, "no label was met");
    await accessible(page, `${width} wide`);
  }
  await page.emulateMedia({ colorScheme: "dark" });
  check((await page.locator(".uplot").count()) >= 3, "plots are missing in the dark");
  await accessible(page, "in the dark");
  same(
    requests.filter((r) => !r.startsWith("file:") && !r.startsWith("data:")),
    [],
    "requests",
  );
  same(wrong, [], "errors");
} finally {
  await browser.close();
}
