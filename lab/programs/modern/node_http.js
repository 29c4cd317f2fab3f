// A server on Node's http. In: PORT LOG MODE; in LOG what took long, CLOCK_MONOTONIC ns. What is wrong, by MODE: `sync`, one request in 50
// derives a key synchronously, 8 ms in which the event loop does nothing else. `pool`, every request has a key of 1.2 ms derived by libuv's
// worker threads, of which there are two; requests wait for one. In LOG: such calls that took three times as long. `plain`, nothing.
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');

process.env.UV_THREADPOOL_SIZE = '2';
const [port, log, mode] = process.argv.slice(2);
const truth = fs.openSync(log, 'a', 0o600);
const write = (begin, end) => fs.writeSync(truth, `${begin} ${end}\n`);

function deriveKey(rounds) {
  return crypto.pbkdf2Sync('password', 'salt', rounds, 64, 'sha512');
}

// How many rounds take a millisecond here.
function calibrate() {
  let best = Infinity;
  for (let i = 0; i < 20; i += 1) {
    const begin = process.hrtime.bigint();
    deriveKey(1000);
    best = Math.min(best, Number(process.hrtime.bigint() - begin));
  }
  return Math.round(1e9 / best);
}

const perMillisecond = calibrate();
let requests = 0;
const answer = (response) => response.end('ok\n');
const handlers = {
  sync(response) {
    requests += 1;
    if (requests % 50 === 7) {
      const begin = process.hrtime.bigint();
      deriveKey(8 * perMillisecond);
      write(begin, process.hrtime.bigint());
    }
    answer(response);
  },
  pool(response) {
    const begin = process.hrtime.bigint();
    crypto.pbkdf2('password', 'salt', Math.round(1.2 * perMillisecond), 64, 'sha512', () => {
      const end = process.hrtime.bigint();
      if (end - begin > 3600000n) write(begin, end);
      answer(response);
    });
  },
  plain: answer,
};
const server = http.createServer((request, response) => handlers[mode](response));
server.keepAliveTimeout = 60000;
server.listen(Number(port), '0.0.0.0', () => console.log('ready'));
