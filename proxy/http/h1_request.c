/*
 * Reads a request head into the canonical request (RFC 9112 sections 3 and 6). Every stage is
 * walked even after one has failed, so that the record of a refused request says as much as could
 * be read; the first fault is the one told. The session calls it on what h1_scan_head found, or
 * refused.
 */
#include <string.h>

#include "logging/limits.h"
#include "proxy/http/h1.h"
#include "proxy/http/h1_text.h"

/* Longer than those that are in use, and within LIMIT_METHOD_BYTES. */
#define COMMON_METHOD_MAX 16
/* Of most paths with their queries, so that they need no memory of their own. */
#define TARGET_ROOM 256

static int malformed(struct err *e, const char *what)
{
	return err_reason(e, REASON_MALFORMED_REQUEST, "%s", what);
}

/* ---- the request line ---- */

static int read_version(struct str v, enum http_version *ret, struct err *e)
{
	if (str_eq(v, STR("HTTP/1.1"))) {
		*ret = HTTP_11;
		return 0;
	}
	if (str_eq(v, STR("HTTP/1.0"))) {
		*ret = HTTP_10;
		return 0;
	}
	if (v.n == 8 && str_starts(v, STR("HTTP/")) && v.p[5] >= '2' && v.p[5] <= '9' &&
	    v.p[6] == '.' && v.p[7] >= '0' && v.p[7] <= '9')
		return err_reason(e, REASON_VERSION_UNSUPPORTED,
				  "%.*s in the request line (HTTP/1.1 and 1.0 are spoken here)",
				  STR_FMT(v));
	return malformed(e, "the request line does not end in \" HTTP/1.1\" or \" HTTP/1.0\"");
}

/* What the line begins with if it is another protocol. */
static int refuse_other_protocol(struct str line, struct err *e)
{
	if (str_starts(line, STR("PRI * HTTP/2")))
		return err_reason(e, REASON_VERSION_UNSUPPORTED,
				  "HTTP/2 with prior knowledge (in clear only HTTP/1.1 is spoken "
				  "here)");
	if (line.n > 0 && line.p[0] == 0x16)
		return malformed(e, "TLS on the plain port (this port speaks HTTP: the proxy's own "
				    "URL begins with http://)");
	return 0;
}

/* The line as it nearly always is, in one walk over its bytes: at the start of `in`, which may go
 * on behind it. Returns its length; 0: it is another, and what is right with it or wrong
 * h1_split_request_line says. */
static size_t split_common_line(struct str in, struct h1_request_line *ret)
{
	const char *p = in.p;
	size_t n = in.n, method = 0, end;

	while (method < n && method < COMMON_METHOD_MAX && p[method] >= 'A' && p[method] <= 'Z')
		method++;
	if (method == 0 || method == n || p[method] != ' ' ||
	    (method == 3 && memcmp(p, "PRI", 3) == 0))
		return 0;
	end = h1_target_end(p, method + 1, n);
	if (end == method + 1 || end - method - 1 > LIMIT_TARGET_BYTES || n - end < 9 ||
	    memcmp(p + end, " HTTP/1.1", 9) != 0)
		return 0;
	*ret = (struct h1_request_line){
		.method = {p, method},
		.target = {p + method + 1, end - method - 1},
		.version = {p + end + 1, 8},
		.http = HTTP_11,
	};
	return end + 9;
}

size_t h1_common_request_line(struct str head, struct h1_request_line *ret)
{
	size_t n = split_common_line(head, ret);

	return n > 0 && head.n - n >= 2 && memcmp(head.p + n, "\r\n", 2) == 0 ? n : 0;
}

int h1_split_request_line(struct str line, struct h1_request_line *ret, struct err *e)
{
	struct str rest = line, word;
	size_t bad;

	if (line.n > 0 && split_common_line(line, ret) == line.n)
		return 0;
	*ret = (struct h1_request_line){0};
	ret->target = str_head(line, LIMIT_TARGET_BYTES);
	if (refuse_other_protocol(line, e) < 0)
		return -1;
	word = str_split(&rest, ' ');
	if (word.n == 0 || !h1_all(word, H1_TOKEN))
		return malformed(e, "the first line does not begin with a method (is this HTTP?)");
	if (word.n > LIMIT_METHOD_BYTES)
		return err_reason(e, REASON_MALFORMED_REQUEST, "a method of more than %d bytes",
				  LIMIT_METHOD_BYTES);
	/* RFC 9113 section 11.6: never used, so that no preface is taken for a request. */
	if (str_eq(word, STR("PRI")))
		return malformed(e, "PRI is a method of the HTTP/2 preface alone");
	if (!rest.p)
		return malformed(e, "a request line without a target");
	ret->method = word;
	word = str_split(&rest, ' ');
	ret->target = str_head(word, LIMIT_TARGET_BYTES);
	ret->version = rest;
	if (word.n > LIMIT_TARGET_BYTES)
		return err_reason(e, REASON_TARGET_TOO_LONG, "the target is longer than %d bytes",
				  LIMIT_TARGET_BYTES);
	if (word.n == 0)
		return malformed(e, "more than one space in the request line");
	bad = h1_span(word, H1_TARGET);
	if (bad < word.n)
		return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x at %zu of the target",
				  (unsigned char)word.p[bad], bad + 1);
	if (!rest.p)
		return malformed(e, "a request line without a version (HTTP/0.9 is not spoken)");
	return read_version(rest, &ret->http, e);
}

/* ---- the target and Host ---- */

static int read_connect(const struct h1_context *ctx, struct request *r, struct err *e)
{
	struct host host;
	uint16_t port;

	r->form = TARGET_AUTHORITY;
	if (url_parse_authority(r->raw_target, &host, &port, e) == 0) {
		r->url.host = host;
		r->url.port = port;
	} else if (!ctx->in_tunnel) {
		return err_wrap(e, "CONNECT takes host:port");
	}
	if (ctx->in_tunnel)
		return malformed(e, "CONNECT where no proxy is asked, but an origin");
	return 0;
}

/* At the proxy port itself (RFC 9112 section 3.2.2). */
static int read_proxy_target(struct url_room room, struct request *r, struct err *e)
{
	r->form = TARGET_ABSOLUTE;
	if (str_starts(r->raw_target, STR("/")))
		return malformed(e, "a target without a host (a proxy takes http://host/path, or "
				    "CONNECT host:port)");
	if (url_parse_asked_into(room, r->raw_target, &r->url, e) < 0)
		return -1;
	/* Some clients write the URL of a WebSocket as people do: check_websocket holds them to it.
	 */
	if (r->url.scheme == SCHEME_WS) {
		r->url.scheme = SCHEME_HTTP;
		r->websocket = true;
		return 0;
	}
	if (r->url.scheme != SCHEME_HTTP)
		return malformed(e, "an https:// URL in clear (use CONNECT host:port, so that TLS "
				    "reaches from end to end)");
	return 0;
}

static int read_tunnel_target(const struct h1_context *ctx, struct url_room room, struct request *r,
			      struct err *e)
{
	char named[HOST_PORT_ROOM], meant[HOST_PORT_ROOM];

	if (str_starts(r->raw_target, STR("/"))) {
		r->form = TARGET_ORIGIN;
		return url_parse_origin_form_into(room, ctx->scheme, &ctx->host, ctx->port,
						  r->raw_target, &r->url, e);
	}
	r->form = TARGET_ABSOLUTE;
	if (url_parse_absolute(r->raw_target, &r->url, e) < 0)
		return -1;
	if (r->url.scheme != ctx->scheme || !host_eq(&r->url.host, &ctx->host) ||
	    r->url.port != ctx->port)
		return err_reason(e, REASON_NAME_MISMATCH,
				  "the target names %s://%s, this connection leads to %s://%s",
				  scheme_word(r->url.scheme),
				  host_port(&r->url.host, r->url.port, named),
				  scheme_word(ctx->scheme),
				  host_port(&ctx->host, ctx->port, meant));
	return 0;
}

static int read_target(const struct h1_context *ctx, struct url_room room, struct request *r,
		       struct err *e)
{
	if (str_eq(r->method, STR("CONNECT")))
		return read_connect(ctx, r, e);
	/* asterisk-form asks about a whole server: no rule speaks of that. */
	if (str_eq(r->raw_target, STR("*")))
		return malformed(e, "the target * (a request names what it is for)");
	return ctx->in_tunnel ? read_tunnel_target(ctx, room, r, e) : read_proxy_target(room, r, e);
}

/* Whether Host says u's name or IPv4 address byte for byte in its canonical spelling, as nearly
 * every client does. That is a fixed point of the parser, so it need not be read again. */
static bool is_canonical_host(struct str in, const struct url *u, uint16_t default_port)
{
	struct str name = host_str(&u->host);
	uint64_t port;

	if ((u->host.kind != HOST_NAME && u->host.kind != HOST_IPV4) || !str_starts(in, name))
		return false;
	in = str_skip(in, name.n);
	if (in.n == 0)
		return u->port == default_port;
	return in.n >= 2 && in.p[0] == ':' && in.p[1] != '0' &&
	       str_to_u64(str_skip(in, 1), &port) == 0 && port == u->port;
}

/* RFC 9112 section 3.2, and the rule that there is one name. The port left out of CONNECT's Host is
 * the target's, since CONNECT has no default one. */
static int check_host(const struct h1_facts *f, const struct request *r, bool has_url,
		      struct err *e)
{
	uint16_t default_port = scheme_default_port(r->url.scheme);
	char named[HOST_PORT_ROOM], meant[HOST_PORT_ROOM];
	struct host host;
	uint16_t port;

	/* HTTP/1.0 asks for no Host, and widely used clients (Python's http.client before 3.12)
	 * send a CONNECT without one; the target has said the name. */
	if (f->n_host == 0 && r->version == HTTP_10 && r->form != TARGET_ORIGIN)
		return 0;
	if (f->n_host != 1)
		return malformed(e, f->n_host == 0 ? "no Host field" : "more than one Host field");
	if (!has_url)
		return 0;
	if (r->form == TARGET_AUTHORITY)
		default_port = r->url.port;
	if (is_canonical_host(f->host, &r->url, default_port))
		return 0;
	if (url_parse_host_field(f->host, default_port, &host, &port, e) < 0) {
		if (e)
			e->reason = REASON_MALFORMED_REQUEST;
		return err_wrap(e, "Host");
	}
	if (!host_eq(&host, &r->url.host) || port != r->url.port)
		return err_reason(e, REASON_NAME_MISMATCH, "Host is %s, the target %s",
				  host_port(&host, port, named),
				  host_port(&r->url.host, r->url.port, meant));
	return 0;
}

/* ---- the rest ---- */

static int frame(const struct h1_facts *f, struct request *r, struct err *e)
{
	struct h1_framing framing;

	if (h1_read_framing(f, r->version, &framing, e) < 0)
		return -1;
	/* RFC 9110 section 9.3.6: what follows a CONNECT is the tunnel's. */
	if (str_eq(r->method, STR("CONNECT"))) {
		if (framing.chunked || framing.length > 0)
			return malformed(e, "CONNECT with a body");
		framing.has_length = false;
	}
	if (framing.chunked)
		r->body = BODY_CHUNKED;
	else if (framing.has_length)
		r->body = BODY_LENGTH;
	r->length = framing.length;
	r->keep_alive = r->version == HTTP_11 && !f->close;
	return 0;
}

/* What HTTP/1.1 lets a client ask for beside the request itself. HTTP/1.0 has none of it: there it
 * is ignored (RFC 9110 sections 7.8 and 10.1.1). */
static int read_wishes(const struct h1_facts *f, struct request *r, struct err *e)
{
	if (r->version != HTTP_11)
		return 0;
	r->te_trailers = f->te_trailers;
	/* All others are ignored, as an upgrade always may be: many clients ask for one in passing
	 * (h2c: Java, curl --http2; TLS: Apache HttpClient) and go on without. None is passed on.
	 * Two fields, or a list, have no one meaning. */
	if (f->names_upgrade && f->n_upgrade == 1 && str_eq_nocase(f->upgrade, STR("websocket")))
		r->upgrade = f->upgrade;
	if (f->expect_other)
		return err_reason(e, REASON_EXPECTATION_FAILED,
				  "Expect asks for something other than 100-continue");
	r->expect_continue = f->expect_continue &&
			     (r->body == BODY_CHUNKED || (r->body == BODY_LENGTH && r->length > 0));
	return 0;
}

/* A ws:// target asks for a WebSocket, or for nothing that could be judged. */
static int check_websocket(struct request *r, struct err *e)
{
	bool wanted = r->websocket;

	r->websocket = str_eq_nocase(r->upgrade, STR("websocket"));
	if (wanted && !r->websocket)
		return malformed(e, "a ws:// URL without an upgrade to a WebSocket");
	return 0;
}

/* The first fault is told. Of those after it only matters whether one is hard: after a soft one the
 * connection's framing is still beyond doubt. */
struct faults {
	struct err first, later;
	bool any, hard;
};

/* Not the whole texts: they are a kilobyte. */
static void init_faults(struct faults *f)
{
	f->first.reason = f->later.reason = REASON_NONE;
	f->first.sys_errno = f->later.sys_errno = 0;
	f->first.text[0] = f->later.text[0] = '\0';
	f->any = f->hard = false;
}

static struct err *told(struct faults *f)
{
	return f->any ? &f->later : &f->first;
}

static bool is_soft(enum reason r)
{
	return r == REASON_AMBIGUOUS_URL || r == REASON_NAME_MISMATCH ||
	       r == REASON_METHOD_REFUSED || r == REASON_EXPECTATION_FAILED;
}

/* Takes the outcome of a call that was given told(f). */
static void note(struct faults *f, int rc)
{
	if (rc == 0)
		return;
	if (!is_soft(told(f)->reason))
		f->hard = true;
	f->any = true;
}

/* At most LIMIT_HEAD_BYTES of it, whoever calls with how much. */
static int copy_head(struct str head, struct request *r, struct url_room *ret_room, struct str *ret)
{
	char *bytes;
	size_t room;

	head = str_head(head, LIMIT_HEAD_BYTES);
	/* A CONNECT is kept until its tunnel says what it is, and some never do. */
	r->spare = !str_starts(head, STR("CONNECT "));
	room = r->spare ? TARGET_ROOM : 0;
	r->mem = message_new_mem(room + head.n, &r->fields, &bytes, &r->spare);
	if (!r->mem)
		return -1;
	*ret_room = (struct url_room){bytes, room};
	bytes += room;
	if (head.n > 0)
		memcpy(bytes, head.p, head.n);
	*ret = str_from(bytes, head.n);
	for (int i = 0; i < LIMIT_EMPTY_LINES && str_starts(*ret, STR("\r\n")); i++)
		*ret = str_skip(*ret, 2);
	return 0;
}

static void take_line(const struct h1_request_line *parts, struct request *r)
{
	r->method = parts->method;
	r->raw_target = parts->target;
	r->version = parts->http;
}

/* Up to the CRLF, or as much as there is of a head that was never finished. */
static void read_line(struct str *rest, struct request *r, struct faults *f)
{
	struct h1_request_line parts;
	struct str line;
	size_t common = h1_common_request_line(*rest, &parts);

	if (common > 0) {
		*rest = str_skip(*rest, common + 2);
		take_line(&parts, r);
		return;
	}
	if (h1_next_line(rest, &line, told(f)) < 0) {
		ptrdiff_t lf = str_find(*rest, '\n');

		note(f, -1);
		line = lf < 0 ? *rest : str_head(*rest, (size_t)lf);
		*rest = lf < 0 ? STR_NONE : str_skip(*rest, (size_t)lf + 1);
	}
	note(f, h1_split_request_line(line, &parts, told(f)));
	take_line(&parts, r);
}

static void read_all(struct str rest, const struct h1_context *ctx, struct url_room room,
		     struct request *r, struct faults *f)
{
	struct h1_facts facts = {0};
	bool has_line, has_url;
	int rc;

	read_line(&rest, r, f);
	has_line = !f->any;
	if (has_line)
		note(f, read_target(ctx, room, r, told(f)));
	has_url = !f->any;
	rc = h1_read_fields(rest, false, &r->fields, &facts, told(f));
	note(f, rc);
	r->raw_host = str_head(facts.host, LIMIT_TARGET_BYTES);
	r->accept = facts.accept;
	r->n_proxy_authorization = facts.n_proxy_authorization;
	if (facts.n_proxy_authorization == 1)
		r->proxy_authorization = facts.proxy_authorization;
	/* From half a field section nothing may be concluded. */
	if (!has_line || rc < 0)
		return;
	note(f, frame(&facts, r, told(f)));
	if (str_eq(r->method, STR("TRACE")))
		note(f, err_reason(told(f), REASON_METHOD_REFUSED,
				   "TRACE would hand back what the proxy adds"));
	note(f, check_host(&facts, r, has_url, told(f)));
	note(f, read_wishes(&facts, r, told(f)));
	note(f, check_websocket(r, told(f)));
}

int h1_parse_request(struct str head, const struct h1_context *ctx, struct request *ret,
		     struct err *e)
{
	struct faults f;
	struct url_room room;
	struct str rest;

	init_faults(&f);
	request_init(ret);
	if (copy_head(head, ret, &room, &rest) < 0)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	if (head.n > LIMIT_HEAD_BYTES)
		note(&f, err_reason(told(&f), REASON_HEAD_TOO_LARGE, "a head of more than %d bytes",
				    LIMIT_HEAD_BYTES));
	read_all(rest, ctx, room, ret, &f);
	if (!f.any)
		return 0;
	/* What follows a CONNECT may be meant for the tunnel that there is not. */
	if (f.hard || ret->form == TARGET_AUTHORITY)
		ret->keep_alive = false;
	if (e)
		*e = f.first;
	return -1;
}
