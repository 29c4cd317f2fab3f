// Pictures of the views for the book: `node shots.mjs PAGE.html FOLDER`, from web/: each view at 1280 and light, and what a screen of 400
// and dark and one of 2560 and light show first. A page made with --against has the comparison.
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { open, visit } from "./test/browser.mjs";

const [file, folder] = process.argv.slice(2), url = pathToFileURL(resolve(file)).href;
{
  const { browser, page } = await open();
  await visit(page, url);
  await page.addStyleTag({ content: ".topbar { position: static !important; }" });
  for (const view of ["legs-section", "inherent", "causes", "balloon", "boxes", "message", "compare", "distribution", "functions", "pervasive", "queue", "cores"]) {
    const part = page.locator("#" + view);
    if (await part.count()) await part.screenshot({ path: join(folder, `report-${view.replace("-section", "")}.png`) });
  }
  await browser.close();
}
for (const [width, height, scheme] of [[400, 800, "dark"], [2560, 1200, "light"]]) {
  const { browser, page } = await open({ width, scheme });
  await page.setViewportSize({ width, height });
  await visit(page, url);
  await page.screenshot({ path: join(folder, `report-${width}-${scheme}.png`) });
  await browser.close();
}
