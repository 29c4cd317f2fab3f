// How fast `tailsight view` answers: `node view-bench.mjs TAILSIGHT RUN [MESSAGES]`, from web/. Starts the server of a
// run, asks for its page and then for so many messages (200), evenly spread, one after the other, as a browser does: a
// connection that is kept. Prints medians with the slowest in brackets, ms.
import { spawn } from "node:child_process";
import http from "node:http";
import { createInterface } from "node:readline";

const [program, run, most = "200"] = process.argv.slice(2);
const server = spawn(program, ["view", run], { stdio: ["ignore", "pipe", "ignore"] });
try {
  const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator](),
    { value: address, done } = await lines.next();
  if (done) throw new Error(`${program} view ${run} did not say its address`);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const ask = (path) =>
    new Promise((resolve, no) => {
      const from = performance.now();
      http
        .get(address + path, { agent }, (answer) => {
          let text = "";
          answer
            .setEncoding("utf8")
            .on("data", (part) => (text += part))
            .on("end", () => resolve({ status: answer.statusCode, ms: performance.now() - from, text }));
        })
        .on("error", no);
    });
  const median = (all) => {
    const s = all.slice().sort((a, b) => a - b);
    return `${s[s.length >> 1].toFixed(1)} ms (${s[s.length - 1].toFixed(1)})`;
  };
  const pages = [];
  for (let i = 0; i < 5; i++) pages.push((await ask("")).ms);
  // The last id: the first that is not there.
  let low = 0,
    high = 1;
  while ((await ask("message/" + high)).status === 200) high *= 2;
  for (low = high >> 1; high - low > 1; ) {
    const middle = (low + high) >> 1;
    if ((await ask("message/" + middle)).status === 200) low = middle;
    else high = middle;
  }
  const times = [];
  for (let i = 0; i < +most; i++) {
    const { status, ms, text } = await ask("message/" + Math.floor((i * high) / +most));
    if (status === 200 && JSON.parse(text).messages.length) times.push(ms);
  }
  if (!times.length) throw new Error("no message was answered");
  console.log(`view: its page      ${median(pages)}`);
  console.log(`view: a message     ${median(times)}, ${times.length} of ${high} messages of ${run}`);
  agent.destroy();
} finally {
  server.kill("SIGINT");
  await new Promise((r) => (server.exitCode === null && server.signalCode === null ? server.once("exit", r) : r()));
}
