// Pictures of the views for the book: `node shots.mjs PAGE.html FOLDER [VIEW…]`, from web/: each view (or those that
// are named) at 1280 and light as PNG, then at 400, 1280 and 2560, light and dark, as WebP in FOLDER/views; and what a
// screen of 400 and dark and one of 2560 and light show first. A page made with --against has the comparison.
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { open, visit } from "./test/browser.mjs";

const [file, folder, ...only] = process.argv.slice(2),
  url = pathToFileURL(resolve(file)).href;
const VIEWS = [
  "legs-section",
  "inherent",
  "causes",
  "balloon",
  "boxes",
  "message",
  "compare",
  "distribution",
  "functions",
  "pervasive",
  "queue",
  "cores",
];
mkdirSync(join(folder, "views"), { recursive: true });
for (const scheme of ["light", "dark"])
  for (const width of [400, 1280, 2560]) {
    const { browser, page } = await open({ width, scheme }),
      packer = await browser.newPage();
    await visit(page, url);
    await page.addStyleTag({ content: ".topbar { position: static !important; }" });
    for (const view of VIEWS) {
      const part = page.locator("#" + view),
        name = "report-" + view.replace("-section", "");
      if ((only.length && !only.includes(view)) || !(await part.count())) continue;
      const png = await part.screenshot();
      if (width === 1280 && scheme === "light") writeFileSync(join(folder, name + ".png"), png);
      // In half the bytes of PNG.
      const webp = await packer.evaluate(async (png) => {
        const image = await createImageBitmap(await (await fetch("data:image/png;base64," + png)).blob()),
          canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [image.width, image.height];
        canvas.getContext("2d").drawImage(image, 0, 0);
        return canvas.toDataURL("image/webp", 0.75).split(",")[1];
      }, png.toString("base64"));
      writeFileSync(join(folder, "views", `${name}-${width}-${scheme}.webp`), Buffer.from(webp, "base64"));
    }
    await browser.close();
  }
for (const [width, height, scheme] of only.length
  ? []
  : [
      [400, 800, "dark"],
      [2560, 1200, "light"],
    ]) {
  const { browser, page } = await open({ width, scheme });
  await page.setViewportSize({ width, height });
  await visit(page, url);
  await page.screenshot({ path: join(folder, `report-${width}-${scheme}.png`) });
  await browser.close();
}
