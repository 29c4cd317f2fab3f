// `tailsight view` in Chromium: `node served.mjs ADDRESS FACTS.json`. Any message opens, and another slice can be asked
// for.
import { readFileSync } from "node:fs";
import { accessible, check, open, same, visit } from "./browser.mjs";

const [address, factsFile] = process.argv.slice(2),
  { shown } = JSON.parse(readFileSync(factsFile, "utf8"));
const { browser, page, wrong, requests } = await open();
try {
  await visit(page, address + "#message=" + shown.id);
  await page.waitForSelector("#message-sum");
  same(await page.$eval("#message-sum", (e) => Number(e.dataset.ns)), shown.latency_ns, "the sum of a message");
  await accessible(page, "the served page");
  await page.selectOption(".question select", "receive");
  await page.click(".question button");
  await page.waitForFunction(() => location.search.includes("leg=receive") && document.documentElement.dataset.drawn);
  check((await page.textContent("#eyebrow")).includes("receive only"), "the question was not asked");
  same(
    requests.filter((r) => !r.startsWith(address) && !r.startsWith("data:")),
    [],
    "requests to others",
  );
  same(wrong, [], "errors");
} finally {
  await browser.close();
}
