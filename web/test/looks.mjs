// How a page looks and reads, in Chromium: `node looks.mjs PAGE.html [MESSAGES]`. At three widths, light and dark:
// nothing is wider than the window, no text on a canvas covers another or is cut off, and axe-core finds nothing
// against WCAG 2.2 A and AA in any view, with all details unfolded, a cause chosen and a search under way. Timelines of
// so many of the messages in focus (5) have their labels apart, whole and zoomed in. Prints what was looked at; fails
// with the first that is wrong.
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { accessible, check, fits, labelsApart, open, same, visit, watchLabels } from "./browser.mjs";

const [file, most = "5"] = process.argv.slice(2),
  url = pathToFileURL(resolve(file)).href;
let labels = 0,
  rules = 0,
  timelines = 0;
for (const scheme of ["light", "dark"]) {
  const { browser, page, wrong, requests } = await open({ scheme });
  try {
    await watchLabels(page);
    await visit(page, url);
    for (const width of [400, 1000, 2560]) {
      const what = `${scheme}, ${width} wide`;
      await fits(page, width, "the page, " + what);
      await page.waitForTimeout(150);
      labels += await labelsApart(page, what);
      rules = Math.max(rules, await accessible(page, what));
    }
    check(labels > 0, "no label was met");
    await fits(page, 1000, "the page");
    await page.$$eval("details", (all) =>
      all.forEach((e) => {
        e.open = true;
      }),
    );
    for (const fold of await page.$$("button[aria-expanded=false]")) await fold.click();
    if (await page.locator("#search").count()) await page.fill("#search", "a");
    await page.waitForTimeout(150);
    await accessible(page, scheme + ", all unfolded");
    const cause = page.locator("#causes button.name").first();
    if (await cause.count()) {
      await page.fill("#search", "");
      await cause.click();
      await page.waitForSelector(".chips button");
      await accessible(page, scheme + ", with a cause chosen");
      await labelsApart(page, scheme + ", with a cause chosen");
      await page.click(".chips button");
    }
    // From the slowest to faster ones. Labels do not depend on the scheme.
    for (let i = scheme === "dark" ? +most - 1 : 0; i < +most && (await page.locator("#message-sum").count()); i++) {
      for (const width of [400, 1000, 2560]) {
        await page.setViewportSize({ width, height: 900 });
        await page.waitForTimeout(100);
        const id = (await page.textContent("#message-meta")).split(":")[0];
        labels += await labelsApart(page, `${id}, ${width} wide`);
        const canvas = page.locator("#message .plot canvas");
        await canvas.focus();
        for (const key of ["+", "+", "ArrowRight", "+"]) {
          await canvas.press(key);
          labels += await labelsApart(page, `${id}, ${width} wide, zoomed in`);
        }
        await canvas.press("0");
        timelines++;
      }
      const before = await page.evaluate(() => location.hash),
        next = page.locator("#message .around button:nth-child(2)");
      if (await next.isDisabled()) break;
      await next.click();
      await page.waitForFunction((b) => location.hash !== b && document.querySelector("#message-sum"), before);
    }
    same(
      requests.filter((r) => !r.startsWith("file:") && !r.startsWith("data:")),
      [],
      "requests",
    );
    same(wrong, [], "errors");
  } finally {
    await browser.close();
  }
}
console.log(`${labels} labels apart, ${timelines} timelines, ${rules} rules of axe-core held`);
