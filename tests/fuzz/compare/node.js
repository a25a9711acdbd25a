// What Node's server (llhttp, strict as it is by default) makes of each of many connections' bytes:
// the same lines as verdicts.c, from the same input. Each connection is a real one, on loopback.
'use strict';
const http = require('http');
const net = require('net');
const fs = require('fs');

const input = fs.readFileSync(0);
const connections = [];
for (let at = 0; at < input.length;) {
  const n = input.readUInt32BE(at);
  connections.push(input.subarray(at + 4, at + 4 + n));
  at += 4 + n;
}

const seen = new Map(); // port of the client -> what the server saw
const of = (socket) => seen.get(socket.remotePort);

function onRequest(req, res) {
  const s = of(req.socket);
  const body = [];
  req.on('error', () => {});
  req.on('data', (d) => body.push(d));
  req.on('end', () => {
    if (!req.complete) return;
    s.requests.push({
      method: req.method, target: req.url, body: Buffer.concat(body).toString('latin1'),
      fields: req.rawHeaders,
    });
    res.end();
  });
}

const server = http.createServer(onRequest);
server.on('checkContinue', onRequest);
server.on('checkExpectation', onRequest);
server.on('connect', (req, socket) => {
  of(req.socket).requests.push({ method: 'CONNECT', target: req.url, body: '', fields: req.rawHeaders });
  socket.end();
});
server.on('connection', (socket) => { socket.stile = of(socket); });
server.on('clientError', (e, socket) => {
  const s = socket.stile || of(socket);
  if (s && !s.why) s.why = e.code || e.message;
  socket.destroy();
});
server.keepAliveTimeout = 0;

function run(bytes) {
  return new Promise((resolve) => {
    const s = { requests: [], why: '', answer: '' };
    const c = net.connect(server.address().port, '127.0.0.1');
    c.on('connect', () => {
      seen.set(c.localPort, s);
      c.end(bytes);
    });
    c.on('data', (d) => { s.answer += d.toString('latin1'); });
    c.on('error', () => {});
    const port = () => { for (const [k, v] of seen) if (v === s) seen.delete(k); };
    c.on('close', () => { setImmediate(() => { port(); resolve(s); }); });
    c.setTimeout(2000, () => c.destroy());
  });
}

function ending(s) {
  if (s.why === 'HPE_INVALID_EOF_STATE') return 'more';
  if (s.why) return 'refused';
  // The server answers by itself what it does not show: no Host, for one.
  const bad = /HTTP\/1\.1 (4\d\d|5\d\d)[^\r]*/.exec(s.answer);
  if (bad) { s.why = bad[0]; return 'refused'; }
  return 'whole';
}

server.listen(0, '127.0.0.1', async () => {
  const out = [];
  for (const bytes of connections) {
    const s = await run(bytes);
    out.push(JSON.stringify({ requests: s.requests, end: ending(s), why: s.why }));
  }
  fs.writeSync(1, out.join('\n') + '\n');
  process.exit(0);
});
