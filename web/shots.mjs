// Pictures of the views for the book: `node shots.mjs PAGE.html FOLDER`, from web/, at 1280 and light, and what the whole page looks like
// at 400 and 2560 and dark, which is for looking at.
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { open, visit } from "./test/browser.mjs";

const [file, folder] = process.argv.slice(2), url = pathToFileURL(resolve(file)).href;
const { browser, page } = await open();
await visit(page, url);
await page.addStyleTag({ content: ".topbar { position: static !important; }" });
for (const view of ["causes", "balloon", "boxes", "message", "distribution", "functions", "queue", "cores"]) {
  const part = page.locator("#" + view);
  if (await part.count()) await part.screenshot({ path: join(folder, `report-${view}.png`) });
}
await browser.close();
