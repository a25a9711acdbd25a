// One HTTP library of Node behind a proxy: what is allowed, both ways and as a stream, and what a refusal looks like.
// client.js LIBRARY BASE EVIL GATES: the origin, a host of no rule, the folder whose files let events go.
const crypto = require('crypto'), fs = require('fs'), https = require('https'), path = require('path');
const [library, base, evil, gates] = process.argv.slice(2);
const proxy = process.env.HTTPS_PROXY, gate = 'node-' + crypto.randomUUID();
const data = crypto.randomBytes(5 << 20), sum = crypto.createHash('sha256').update(data).digest('hex');

function must(ok, what) { if (!ok) throw new Error(what); }

// Each is (method, url, body) -> {status, body: async iterable of bytes}, and throws if there was no answer.
const libraries = {
  fetch: () => fetchWith(globalThis.fetch, {}),
  'undici-env': () => {
    const u = require('undici');
    return fetchWith(u.fetch, {dispatcher: new u.EnvHttpProxyAgent()});
  },
  'undici-proxy': () => {
    const u = require('undici'), dispatcher = new u.ProxyAgent(proxy);
    return async (method, url, body) => {
      const r = await u.request(url, {method, body, dispatcher});
      return {status: r.statusCode, body: r.body};
    };
  },
  'https-proxy-agent': () => {
    const {HttpsProxyAgent} = require('https-proxy-agent'), agent = new HttpsProxyAgent(proxy, {keepAlive: true});
    return (method, url, body) => new Promise((resolve, reject) => {
      https.request(url, {method, agent}, r => resolve({status: r.statusCode, body: r})).on('error', reject).end(body);
    });
  },
  axios: () => {
    const axios = require('axios'), {HttpsProxyAgent} = require('https-proxy-agent');
    const httpsAgent = new HttpsProxyAgent(proxy);
    return async (method, url, body) => {
      const r = await axios.request({method, url, data: body, httpsAgent, proxy: false, responseType: 'stream',
                                     maxBodyLength: Infinity, validateStatus: () => true});
      return {status: r.status, body: r.data};
    };
  },
};

function fetchWith(fetch, options) {
  return async (method, url, body) => {
    const r = await fetch(url, {method, body, ...options});
    return {status: r.status, body: r.body};
  };
}

async function whole(body) {
  const parts = [];
  for await (const part of body) parts.push(part);
  return Buffer.concat(parts).toString();
}

async function events(body) {
  let seen = '', n = 0;
  fs.writeFileSync(path.join(gates, `${gate}.0`), '');
  for await (const part of body) {
    seen += Buffer.from(part).toString();
    // The next event is sent only when this one was read.
    while (seen.includes(`data: ${n}\n\n`)) fs.writeFileSync(path.join(gates, `${gate}.${++n}`), '');
  }
  return n;
}

(async () => {
  const ask = libraries[library]();
  for (let i = 0; i < 3; i++) {
    const r = await ask('GET', `${base}/ok/${i}`);
    must(r.status === 200 && await whole(r.body) === `ok /ok/${i}\n`, 'GET');
  }
  const up = await whole((await ask('POST', `${base}/upload`, data)).body);
  must(JSON.parse(up).sha256 === sum, up);
  const n = await events((await ask('GET', `${base}/sse?n=3&gate=${gate}`)).body);
  must(n === 3, `${n} events`);
  const no = await ask('GET', `${base}/no/a`), why = await whole(no.body);
  must(no.status === 403 && JSON.parse(why).reason === 'denied_by_rule', why);
  console.log(why);
  try {
    const r = await ask('GET', `${evil}/x`);
    console.log('answered', r.status, await whole(r.body));
  } catch (e) {
    for (let c = e; c; c = c.cause) process.stdout.write(`${c === e ? 'failed' : ':'} ${c.message}`);
    console.log();
  }
  process.exit(0);
})().catch(e => { console.error(e); process.exit(1); });
