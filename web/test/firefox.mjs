// A report in Firefox: `node firefox.mjs PAGE.html FACTS.json`, by Marionette, Firefox's own remote protocol. Every
// view is drawn, in light and dark and at three widths, its numbers are the JSON's, a cause can be chosen and taken
// back, a search finds, and a message opens.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { check, same } from "./browser.mjs";

const [file, factsFile] = process.argv.slice(2),
  { diagnosis, shown } = JSON.parse(readFileSync(factsFile, "utf8"));
const profile = mkdtempSync(join(tmpdir(), "tailsight-firefox-"));
const port = await new Promise((done) => {
  const s = net.createServer().listen(0, "127.0.0.1", () => {
    const { port } = s.address();
    s.close(() => done(port));
  });
});
const prefs = {
  "marionette.port": port,
  "app.update.enabled": false,
  "browser.shell.checkDefaultBrowser": false,
  "datareporting.policy.dataSubmissionEnabled": false,
  "toolkit.telemetry.enabled": false,
  "network.captive-portal-service.enabled": false,
  "network.connectivity-service.enabled": false,
  "extensions.update.enabled": false,
  "browser.safebrowsing.malware.enabled": false,
  "browser.safebrowsing.phishing.enabled": false,
  "app.normandy.enabled": false,
  "services.settings.server": "data:,",
  "browser.region.network.url": "",
  "layout.css.prefers-color-scheme.content-override": 1,
  "extensions.getAddons.cache.enabled": false,
};
writeFileSync(
  join(profile, "user.js"),
  Object.entries(prefs)
    .map(([k, v]) => `user_pref(${JSON.stringify(k)}, ${JSON.stringify(v)});`)
    .join("\n"),
);
const firefox = spawn(
  process.env.FIREFOX ?? "firefox-esr",
  ["--headless", "--no-remote", "--marionette", "--remote-allow-system-access", "--profile", profile],
  { stdio: "ignore", env: { ...process.env, HOME: profile, MOZ_DISABLE_CONTENT_SANDBOX: "1" } },
);

/** Messages are a length, a colon and JSON. */
async function connect() {
  for (let left = 120; ; left--) {
    try {
      return await new Promise((done, no) => {
        const s = net.connect(port, "127.0.0.1", () => done(s));
        s.once("error", no);
      });
    } catch (error) {
      if (left === 0) throw error;
      await new Promise((r) => setTimeout(r, 500));
    }
  }
}
try {
  const socket = await connect(),
    waiting = new Map();
  let buffer = Buffer.alloc(0),
    n = 0;
  socket.on("data", (part) => {
    buffer = Buffer.concat([buffer, part]);
    for (;;) {
      const colon = buffer.indexOf(58);
      if (colon < 0) return;
      const length = Number(buffer.subarray(0, colon)),
        end = colon + 1 + length;
      if (buffer.length < end) return;
      const message = JSON.parse(buffer.subarray(colon + 1, end));
      buffer = buffer.subarray(end);
      if (Array.isArray(message)) {
        const [, id, error, result] = message,
          [done, no] = waiting.get(id);
        waiting.delete(id);
        error ? no(new Error(error.message)) : done(result);
      }
    }
  });
  const send = (command, parameters) =>
    new Promise((done, no) => {
      const text = JSON.stringify([0, ++n, command, parameters]);
      waiting.set(n, [done, no]);
      socket.write(Buffer.byteLength(text) + ":" + text);
    });
  const run = async (script, ...args) =>
    (await send("WebDriver:ExecuteScript", { script: "return (" + script + ")(...arguments)", args })).value;
  await send("WebDriver:NewSession", {});
  await send("WebDriver:Navigate", { url: pathToFileURL(resolve(file)).href });
  const until = async (what, script, ...args) => {
    for (let left = 240; !(await run(script, ...args)); left--) {
      check(left > 0, what);
      await new Promise((r) => setTimeout(r, 250));
    }
  };
  await until("the page was not drawn", () => Boolean(document.documentElement.dataset.drawn));
  same(await run(() => document.documentElement.dataset.drawn === "failed"), false, "whether drawing failed");
  same(
    await run(() =>
      [...document.querySelectorAll("#percentiles dd")]
        .map((e) => e.dataset.ns)
        .filter((v) => v !== undefined)
        .map(Number),
    ),
    (await run(() => [...document.querySelectorAll("#percentiles dt")].map((e) => e.textContent)))
      .map((k) => diagnosis.latency_ns[k])
      .filter((v) => v !== undefined),
    "the percentiles",
  );
  same(
    await run(
      () =>
        [...document.querySelectorAll("main .note")].filter((e) => e.textContent.includes("could not be drawn")).length,
    ),
    0,
    "views that could not be drawn",
  );
  const views = [
    "overview",
    "legs-section",
    "causes",
    "balloon",
    "boxes",
    "message",
    "distribution",
    "typical",
    "functions",
    "queue",
    "cores",
    "pervasive",
    "record",
  ];
  same(await run((ids) => ids.filter((id) => !document.getElementById(id)), views), [], "views that are not there");
  const numbers = (selector) =>
    run(
      (selector) =>
        [...document.querySelectorAll(selector)]
          .map((e) => e.dataset.ns)
          .filter((v) => v !== undefined)
          .map(Number),
      selector,
    );
  await run(() => {
    for (const button of document.querySelectorAll("#causes button[aria-expanded=false]")) button.click();
  });
  await until(
    "the smaller causes were not unfolded",
    (n) => document.querySelectorAll("#causes-table tr[data-rank]").length === n,
    diagnosis.causes.length,
  );
  same(
    await numbers("#causes-table tr[data-rank] td"),
    diagnosis.causes.map((c) => c.deviation_ns),
    "the causes",
  );
  same(
    await run(() => document.querySelectorAll("#queue tbody tr").length),
    diagnosis.more.queue.length,
    "the rows of the queueing breakdown",
  );
  same(
    await run(() => document.querySelectorAll("#cores .core").length),
    diagnosis.more.cores.flat().length,
    "the cores",
  );
  // A cause alone, and back.
  await run(() => {
    document.querySelector("#causes button.name").click();
  });
  await until(
    "the cause was not chosen",
    () =>
      location.hash.includes("cause=1") &&
      document.querySelector("#boxes .lede").textContent.includes("the choice leaves"),
  );
  await run(() => {
    document.querySelector(".chips button").click();
  });
  await until("the cause is still chosen", () => !document.querySelector(".chips"));
  // The search finds the message by its id.
  await run((id) => {
    const box = document.getElementById("search");
    box.focus();
    box.value = String(id);
    box.dispatchEvent(new Event("input", { bubbles: true }));
  }, shown.id);
  await until(
    "the search found nothing",
    () => document.querySelectorAll("#found li").length > 0 && document.querySelector("#found .none") === null,
  );
  await run(() => {
    const box = document.getElementById("search");
    box.value = "";
    box.dispatchEvent(new Event("input", { bubbles: true }));
  });
  await run((id) => {
    location.hash = "message=" + id;
  }, shown.id);
  await until(
    "the message did not open",
    (id) => location.hash.includes("message=" + id) && Boolean(document.querySelector("#message-sum")),
    shown.id,
  );
  await until(
    "its sum is not its latency",
    (ns) => Number(document.querySelector("#message-sum")?.dataset.ns) === ns,
    shown.latency_ns,
  );
  // Something was painted on every plot.
  const painted = await run(() =>
    [
      ...document.querySelectorAll("#balloon .plot canvas, #boxes .plot canvas, #message .plot canvas, .uplot canvas"),
    ].map(
      (c) =>
        c.width > 0 &&
        c
          .getContext("2d")
          .getImageData(0, 0, c.width, c.height)
          .data.some((v) => v !== 0),
    ),
  );
  check(painted.length >= 5 && painted.every(Boolean), "a plot is empty: " + painted);
  for (const width of [400, 1000, 2560]) {
    await send("WebDriver:SetWindowRect", { width, height: 900 });
    await until(
      `the page is wider than a window of ${width}`,
      () => document.documentElement.scrollWidth <= innerWidth,
    );
    check(
      await run(() =>
        [...document.querySelectorAll(".plot canvas:not(.over), .uplot canvas")].every((c) => c.width > 0),
      ),
      `a plot is gone at ${width}`,
    );
  }
  // Dark: the plots are drawn with its colours.
  const background = () => run(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await send("Marionette:SetContext", { value: "chrome" });
  await run(() => {
    Services.prefs.setIntPref("layout.css.prefers-color-scheme.content-override", 0);
  });
  await send("Marionette:SetContext", { value: "content" });
  await until(
    "the page did not become dark",
    (light) => getComputedStyle(document.body).backgroundColor !== light,
    light,
  );
  const inDark = await run(() =>
    [...document.querySelectorAll(".plot canvas:not(.over), .uplot canvas")].every((c) =>
      c
        .getContext("2d")
        .getImageData(0, 0, c.width, c.height)
        .data.some((v) => v !== 0),
    ),
  );
  check(inDark, "a plot is empty in the dark");
  await send("Marionette:Quit", { flags: ["eForceQuit"] }).catch(() => {});
  console.log("every view is drawn");
} finally {
  firefox.kill();
  await new Promise((r) => (firefox.exitCode === null && firefox.signalCode === null ? firefox.once("exit", r) : r()));
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
