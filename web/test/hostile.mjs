// A report with hostile names in Chromium: `node hostile.mjs PAGE.html NAME`. The name is shown as text, and nothing of
// it is markup.
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";
import { check, fits, open, same, shows, visit } from "./browser.mjs";

const [file, name] = process.argv.slice(2),
  { browser, page, wrong, requests } = await open();
try {
  await page.addInitScript(() => {
    window.alert = () => {
      document.documentElement.dataset.alerted = "yes";
    };
  });
  await visit(page, pathToFileURL(resolve(file)).href);
  const fold = page.locator("#causes button", { hasText: "smaller causes" });
  if (await fold.count()) await fold.click();
  check((await page.textContent("body")).includes(name), "the name is not shown");
  same(
    await page.$$eval("img, iframe, object, embed, script[src], link[rel=stylesheet]", (all) => all.length),
    0,
    "elements of the name",
  );
  same(await page.evaluate(() => document.documentElement.dataset.alerted ?? "no"), "no", "scripts of the name");
  const found = name.slice(0, 12);
  await page.fill("#search", found);
  await shows(page, "#found", found, "the search does not show the name as text");
  await fits(page, 400, "the page with a long name");
  same(
    requests.filter((r) => !r.startsWith("file:") && !r.startsWith("data:")),
    [],
    "requests",
  );
  same(wrong, [], "errors");
} finally {
  await browser.close();
}
