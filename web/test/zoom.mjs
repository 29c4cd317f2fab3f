// `tailsight view` of a run of more messages than the page holds, in Chromium: `node zoom.mjs ADDRESS FACTS.json`.
// FACTS.latencies has [id, ns] of every complete message. Zooming in brings every message of the part, and any message
// opens with its true neighbours.
import { readFileSync } from "node:fs";
import { check, open, same, shows, visit } from "./browser.mjs";

const [address, factsFile] = process.argv.slice(2),
  { latencies } = JSON.parse(readFileSync(factsFile, "utf8"));
const { browser, page, wrong, requests } = await open();
const english = (n) => n.toLocaleString("en-US");
const zoomed = async () =>
  /ids=(\d+)-(\d+)/
    .exec(await page.evaluate(() => location.hash))
    ?.slice(1)
    .map(Number);
try {
  await visit(page, address);
  await shows(
    page,
    "#balloon .lede",
    `of the ${english(latencies.length)} messages in sight as points`,
    "the page does not say that it holds a sample",
  );

  // In, until the part has no more messages than the page holds: all of them are then there.
  await page.focus("#balloon .plot canvas");
  for (let i = 0; i < 14 && !(await page.textContent("#balloon .lede")).startsWith("All "); i++) {
    const before = await page.evaluate(() => location.hash);
    await page.keyboard.press("+");
    await page.waitForFunction((b) => location.hash !== b, before);
    await page.waitForTimeout(400);
  }
  const [from, to] = await zoomed();
  const inside = latencies.filter(([id]) => id >= from && id <= to).length;
  await shows(
    page,
    "#balloon .lede",
    `All ${english(inside)} messages of this part`,
    `not all of the ${inside} messages from ${from} to ${to} are there`,
  );
  check(
    requests.some((r) => r.includes(`/points/${from}/${to}/`)),
    "the part was not asked for",
  );

  // A part that the address names, as one that was sent.
  await page.evaluate(() => {
    location.hash = "#ids=10-60";
  });
  await shows(
    page,
    "#balloon .lede",
    `All ${latencies.filter(([id]) => id >= 10 && id <= 60).length} messages of this part`,
    "a part of the address was not fetched",
  );
  await page.evaluate(() => {
    location.hash = "";
  });
  await shows(page, "#balloon .lede", "in sight as points", "the whole plot did not come back");

  // A message near the median: by its id, then the next slower and back.
  const ranked = latencies.slice().sort((a, b) => a[1] - b[1] || a[0] - b[0]),
    at = ranked.length >> 1;
  await page.fill("#search", String(ranked[at][0]));
  await page.press("#search", "Enter");
  const opened = async (place) => {
    const [id, ns] = ranked[place];
    await page
      .waitForFunction(
        ([id, ns]) =>
          location.hash.includes("message=" + id) &&
          Number(document.querySelector("#message-sum")?.dataset.ns) === ns &&
          document
            .querySelector("#message-meta")
            ?.textContent.startsWith("Message " + id.toLocaleString("en-US") + ":"),
        [id, ns],
        { timeout: 10_000 },
      )
      .catch(async () => {
        throw new Error(
          `message ${id} of ${ns} ns did not open: ${await page.textContent("#message-meta")}, ${await page.evaluate(() => location.hash)}`,
        );
      });
  };
  await opened(at);
  await page.click("#message .around button:nth-child(1)");
  await opened(at + 1);
  await page.click("#message .around button:nth-child(2)");
  await opened(at);
  same(
    requests.filter((r) => !r.startsWith(address) && !r.startsWith("data:")),
    [],
    "requests to others",
  );
  same(wrong, [], "errors");
} finally {
  await browser.close();
}
