// What the page costs in Chromium: `node bench.mjs PAGE.html [TURNS]`, from web/. Prints the size, how long the page
// takes from the start of its navigation to its first whole drawing, how long a press on a cause, a change of the zoom
// and another message take until they are on the screen; medians of TURNS (7), each in a browser of its own, with the
// slowest in brackets. Then what a step of the zoom and a press take of the page's main thread, which other work on the
// machine does not change.
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { open, visit } from "./test/browser.mjs";

const [file, turns = "7"] = process.argv.slice(2),
  url = pathToFileURL(resolve(file)).href;
const opened = [],
  causes = [],
  zooms = [],
  messages = [];
// From an event to the frame after the one in which everything was drawn.
const shown = (page, act) =>
  page.evaluate(
    (act) =>
      new Promise((done) => {
        const from = performance.now();
        new Function(act)();
        requestAnimationFrame(() => setTimeout(() => done(performance.now() - from)));
      }),
    act,
  );
for (let turn = 0; turn < +turns; turn++) {
  const { browser, page } = await open();
  opened.push(await visit(page, url));
  await page.waitForTimeout(1000);
  for (let i = 0; i < 4; i++)
    causes.push(await shown(page, `document.querySelectorAll("#causes button.name")[${i % 2}].click()`));
  await page.focus("#balloon .plot canvas");
  for (let i = 0; i < 6; i++)
    zooms.push(
      await shown(
        page,
        `document.querySelector("#balloon .plot canvas").dispatchEvent(new KeyboardEvent("keydown", { key: "${i < 3 ? "+" : "-"}" }))`,
      ),
    );
  for (let i = 0; i < 4; i++) {
    const before = await page.evaluate(() => location.hash);
    const from = Date.now();
    await page.click("#message .around button:nth-child(2)");
    await page.waitForFunction((b) => location.hash !== b && document.querySelector("#message-sum"), before, {
      polling: "raf",
    });
    messages.push(Date.now() - from);
  }
  await browser.close();
}
{
  const { browser, page } = await open();
  await visit(page, url);
  await page.waitForTimeout(1000);
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  const used = async () =>
    (await cdp.send("Performance.getMetrics")).metrics.find((m) => m.name === "TaskDuration").value * 1000;
  const mean = async (n, act) => {
    const from = await used();
    for (let i = 0; i < n; i++) await shown(page, act(i));
    return ((await used()) - from) / n;
  };
  const zoom = (i) =>
    `document.querySelector("#balloon .plot canvas").dispatchEvent(new KeyboardEvent("keydown", { key: "${i % 8 < 4 ? "+" : "-"}" }))`;
  const press = (i) => `document.querySelectorAll("#causes button.name")[${i % 2}].click()`;
  await mean(8, zoom);
  console.log(
    `main thread         ${(await mean(32, zoom)).toFixed(1)} ms a step of the zoom, ${(await mean(16, press)).toFixed(1)} ms a press on a cause`,
  );
  await browser.close();
}
const median = (all) => {
  const s = all.slice().sort((a, b) => a - b);
  return `${s[s.length >> 1].toFixed(0)} ms (${s[s.length - 1].toFixed(0)})`;
};
console.log(`size                ${(statSync(file).size / 1e6).toFixed(1)} MB`);
console.log(`open                ${median(opened)}`);
console.log(`press on a cause    ${median(causes)}`);
console.log(`zoom of the balloon ${median(zooms)}`);
console.log(`another message     ${median(messages)}`);
