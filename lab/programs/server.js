// A server in Node: 128 bytes in, the same 128 bytes out. In: PORT LOG MODE. MODE: `json`, 3 % of requests parse a large document;
// `sort`, they sort an array. Out: `ready`; in LOG the begin and end of each such stretch, CLOCK_MONOTONIC ns.
const fs = require('fs');
const net = require('net');

const [port, log, mode] = process.argv.slice(2);
const truth = fs.openSync(log, 'a', 0o600);
const document = JSON.stringify(Array.from({ length: 1500 }, (_, i) => ({ id: i, name: `item ${i}`, tags: ['a', 'b', i] })));

function parseDocument() {
  return JSON.parse(document).length;
}

// A server that runs for a while has compiled what it calls often.
function warmUp() {
  for (let i = 0; i < 200; i += 1) work();
}

function sortTable() {
  const table = Array.from({ length: 4500 }, (_, i) => (i * 7919) % 6007);
  return table.sort((a, b) => a - b)[0];
}

const work = mode === 'json' ? parseDocument : sortTable;
let requests = 0;
warmUp();
const server = net.createServer((connection) => {
  connection.setNoDelay(true);
  connection.on('error', () => connection.destroy());
  connection.on('data', (bytes) => {
    for (let at = 0; at + 128 <= bytes.length; at += 128) {
      requests += 1;
      if (requests % 33 === 7) {
        const begin = process.hrtime.bigint();
        work();
        fs.writeSync(truth, `${begin} ${process.hrtime.bigint()}\n`);
      }
      connection.write(bytes.subarray(at, at + 128));
    }
  });
});
server.listen(Number(port), '0.0.0.0', () => console.log('ready'));
