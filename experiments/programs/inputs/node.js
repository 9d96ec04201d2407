const fs = require('fs'), zlib = require('zlib'), crypto = require('crypto'), http = require('http');
const { Worker } = require('worker_threads');

console.log(crypto.createHash('sha256').update(fs.readFileSync('words.txt')).digest('hex'));
console.log(zlib.gunzipSync(zlib.gzipSync(Buffer.from('x'.repeat(1000)))).length);
let hash = 0;
for (let i = 0; i < 300000; i++) hash = (hash * 31 + i) | 0;
console.log(hash);
const server = http.createServer((request, response) => response.end('asked for ' + request.url));
server.listen(0, '127.0.0.1', () =>
  http.get({ host: '127.0.0.1', port: server.address().port, path: '/page' }, (response) => {
    response.on('data', (data) => console.log(String(data)));
    response.on('end', () => {
      server.close();
      new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true })
        .on('message', (message) => console.log('worker', message));
    });
  }));
