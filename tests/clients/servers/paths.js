// Serves the way that Node's own documentation shows: the path is that of new URL(). Ends with its stdin.
const http = require("http");

const secret = process.argv[2];
const server = http.createServer((q, r) => {
	let path;
	try {
		path = decodeURIComponent(new URL(q.url, "http://localhost").pathname);
	} catch {
		r.statusCode = 400;
		return r.end();
	}
	const id = q.headers["x-id"];
	if (id)
		r.setHeader("X-Id", id);
	if (path === "/early") {
		r.writeHead(413);
		return r.end("too much");
	}
	if (path === "/304") {
		r.writeHead(304, { "Content-Length": 100 });
		return r.end();
	}
	if (path === "/hints") {
		r.writeEarlyHints({ link: "</a>; rel=preload" });
		return r.end("hinted");
	}
	if (path === "/trailers") {
		r.writeHead(200, { Trailer: "X-T" });
		r.write("abc");
		r.addTrailers({ "X-T": "v" });
		return r.end();
	}
	if (path === "/cut") {
		r.writeHead(200, { "Content-Length": 100 });
		return r.write("abc", () => q.socket.destroy());
	}
	if (path === "/cut-chunks")
		return r.write("abc", () => q.socket.destroy());
	if (path === "/nothing")
		return q.socket.destroy();
	if (path === "/close") {
		r.writeHead(200, { Connection: "close" });
		return r.end("bye");
	}
	if (path === "/echo") {
		const parts = [];
		q.on("data", (d) => parts.push(d));
		return q.on("end", () => r.end(JSON.stringify([q.method, q.url, q.headers.host, Buffer.concat(parts).toString("latin1")])));
	}
	r.end(/^\/(open\/)?secret(\/|$)/.test(path) || path === "/open/page.html" ? secret : "open");
});
server.on("checkContinue", (q, r) => {
	if (q.url.startsWith("/refused")) {
		r.writeHead(417);
		return r.end("no");
	}
	r.writeContinue();
	server.emit("request", q, r);
});
server.keepAliveTimeout = 60000;
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
