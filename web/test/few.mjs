// A report without causes in Chromium: `node few.mjs PAGE.html`. It says why, lists the slowest messages, and opens
// one.
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";
import { check, open, same, visit } from "./browser.mjs";

const { browser, page, wrong } = await open();
try {
  await visit(page, pathToFileURL(resolve(process.argv[2])).href);
  check(
    (await page.textContent("#causes")).includes("No causes can be said"),
    "it does not say that there are no causes",
  );
  check((await page.locator("#slowest tbody tr").count()) > 0, "the slowest messages are not listed");
  await page.click("#slowest button.link");
  await page.waitForFunction(() => location.hash.includes("message=") && document.querySelector("#message-sum"));
  same(
    await page.$$eval("main .note", (all) => all.filter((e) => e.textContent.includes("could not be drawn")).length),
    0,
    "views that could not be drawn",
  );
  same(wrong, [], "errors");
} finally {
  await browser.close();
}
