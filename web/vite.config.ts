// Builds the page into one file, which the binary embeds: crates/tailsight-report/assets/page.html.
import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

export default defineConfig({
  plugins: [viteSingleFile()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    outDir: process.env.TAILSIGHT_PAGE_DIR ?? "../crates/tailsight-report/assets",
    emptyOutDir: false,
    // Nothing is fetched: no file to preload, no folder for assets.
    modulePreload: false,
    rollupOptions: { input: "page.html" },
  },
});
