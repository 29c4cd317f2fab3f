// The page's durations are those of the terminal: `node units.mjs ROWS.txt`, rows of ns and text of
// crates/tailsight-units.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { transformWithOxc } from "vite";

const path = fileURLToPath(new URL("../src/units.ts", import.meta.url));
const { code } = await transformWithOxc(readFileSync(path, "utf8"), path);
const { duration } = await import("data:text/javascript," + encodeURIComponent(code));

const rows = readFileSync(process.argv[2], "utf8")
  .split("\n")
  .filter((row) => row && !row.startsWith("#"))
  .map((row) => row.split("\t"));
// The page writes µs, and a minus sign.
const wrong = rows
  .map(([ns, text]) => [ns, duration(Number(ns)), text.replace("us", "µs").replace("-", "−")])
  .filter(([, is, wanted]) => is !== wanted);
if (rows.length < 30 || wrong.length) {
  console.error(`${rows.length} rows; wrong (ns, page, terminal):`, wrong);
  process.exit(1);
}
