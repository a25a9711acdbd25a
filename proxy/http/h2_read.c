/*
 * Reads HTTP/2 field sections into canonical messages (RFC 9113 sections 8.2 and 8.3), with the
 * table of field names, the framing rules and the URL code that HTTP/1 goes by. Every stage of a
 * request is walked even after a fault, so that its record says as much as could be read. Called by
 * the session for what h2_conn.h collected.
 */
#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "logging/strbuf.h"
#include "proxy/http/field_kind.h"
#include "proxy/http/h1_text.h"
#include "proxy/http/h2.h"

#define SHOWN 64

void h2_head_clear(struct h2_head *h)
{
	free(h->mem);
	free(h->lines);
	*h = (struct h2_head){0};
}

static int grow(void **mem, size_t *cap, size_t want, size_t first, size_t size)
{
	size_t n = *cap ? *cap : first;
	void *grown;

	while (n < want)
		n *= 2;
	if (n == *cap)
		return 0;
	grown = realloc(*mem, n * size);
	if (!grown)
		return -1;
	*mem = grown;
	*cap = n;
	return 0;
}

static void append(struct h2_head *h, struct str s)
{
	if (s.n > 0)
		memcpy(h->mem + h->mem_n, s.p, s.n);
	h->mem_n += s.n;
}

void h2_head_add(struct h2_head *h, struct str name, struct str value)
{
	h->bytes += (uint64_t)name.n + value.n + 32;
	/* Pseudo-fields are no fields: of those there can be five. */
	if (h->bytes > LIMIT_HEAD_BYTES || h->n >= LIMIT_HEAD_FIELDS + 5)
		h->over = true;
	if (h->over || h->no_memory)
		return;
	if (grow((void **)&h->mem, &h->mem_cap, h->mem_n + name.n + value.n, 1024, 1) < 0 ||
	    grow((void **)&h->lines, &h->cap, h->n + 1, 16, sizeof(*h->lines)) < 0) {
		h->no_memory = true;
		return;
	}
	h->lines[h->n++] = (struct h2_line){
		.name_at = (uint32_t)h->mem_n,
		.name_n = (uint32_t)name.n,
		.value_at = (uint32_t)(h->mem_n + name.n),
		.value_n = (uint32_t)value.n,
	};
	append(h, name);
	append(h, value);
}

static struct field line_of(const struct h2_head *h, size_t i)
{
	const struct h2_line *l = &h->lines[i];

	return (struct field){str_from(h->mem + l->name_at, l->name_n),
			      str_from(h->mem + l->value_at, l->value_n)};
}

static int malformed(struct err *e, const char *what)
{
	return err_reason(e, REASON_MALFORMED_REQUEST, "%s", what);
}

/* ---- one field ---- */

/* Section 8.2.1, and all that HTTP/1 asks of a line. */
static int check_line(const struct field *f, struct err *e)
{
	size_t bad;

	if (f->name.n == 0 || !h1_all(f->name, H1_TOKEN))
		return malformed(e, "a field name that is no token");
	if (f->name.n > LIMIT_FIELD_NAME_BYTES)
		return err_reason(e, REASON_HEAD_TOO_LARGE, "a field name of more than %d bytes",
				  LIMIT_FIELD_NAME_BYTES);
	for (size_t i = 0; i < f->name.n; i++)
		if (f->name.p[i] >= 'A' && f->name.p[i] <= 'Z')
			return err_reason(e, REASON_MALFORMED_REQUEST,
					  "an upper-case letter in the field name %.*s",
					  (int)(f->name.n < SHOWN ? f->name.n : SHOWN), f->name.p);
	bad = h1_span(f->value, H1_VALUE);
	if (bad < f->value.n)
		return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x in the value of %.*s",
				  (unsigned char)f->value.p[bad],
				  (int)(f->name.n < SHOWN ? f->name.n : SHOWN), f->name.p);
	if (str_trim_ows(f->value).n != f->value.n)
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "white space around the value of %.*s",
				  (int)(f->name.n < SHOWN ? f->name.n : SHOWN), f->name.p);
	return 0;
}

/* Section 8.2.2: what speaks of a connection makes the message malformed. */
static int check_hop(enum field_kind k, const struct field *f, struct err *e)
{
	bool bad = k == FIELD_CONNECTION || k == FIELD_TRANSFER_ENCODING || k == FIELD_UPGRADE ||
		   k == FIELD_HTTP2_SETTINGS || k == FIELD_KEEP_ALIVE ||
		   (k == FIELD_HOP && str_eq(f->name, STR("proxy-connection"))) ||
		   (k == FIELD_TE && !str_eq_nocase(f->value, STR("trailers")));

	return bad ? err_reason(e, REASON_MALFORMED_REQUEST, "%.*s, which HTTP/2 does not have",
				STR_FMT(f->name))
		   : 0;
}

/* ---- a section ---- */

struct pseudo {
	struct str method, scheme, authority, path, protocol, status;
	bool has_authority, has_protocol;
};

struct section {
	/* borrowed */
	struct h2_head *h;
	/* plain */
	bool response;
	struct pseudo pseudo;
	struct h1_facts facts;
	bool has_cookie;
};

static int take_pseudo(struct section *s, const struct field *f, struct err *e)
{
	struct {
		const char *name;
		struct str *to;
		bool response;
	} rows[] = {
		{":method", &s->pseudo.method, false},	     {":scheme", &s->pseudo.scheme, false},
		{":authority", &s->pseudo.authority, false}, {":path", &s->pseudo.path, false},
		{":protocol", &s->pseudo.protocol, false},   {":status", &s->pseudo.status, true},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (rows[i].response != s->response || !str_eq(f->name, str_from_c(rows[i].name)))
			continue;
		if (rows[i].to->p)
			return err_reason(e, REASON_MALFORMED_REQUEST, "%s stands there twice",
					  rows[i].name);
		*rows[i].to = f->value;
		return 0;
	}
	return err_reason(e, REASON_MALFORMED_REQUEST, "an unknown pseudo-field");
}

static int take_field(struct section *s, const struct field *f, struct fields *out, struct err *e)
{
	enum field_kind kind = field_kind(f->name);

	if (check_line(f, e) < 0 || check_hop(kind, f, e) < 0)
		return -1;
	if (kind == FIELD_PLAIN && !s->response && h1_check_lookalike(f->name, e) < 0)
		return -1;
	if (!s->response && str_eq(f->name, STR("cookie"))) {
		/* The first holds the place of all (section 8.2.3). */
		if (s->has_cookie)
			return 0;
		s->has_cookie = true;
	}
	if (h1_note_field(kind, f->value, s->response, &s->facts) &&
	    fields_add(out, f->name, f->value) < 0)
		return out->n >= LIMIT_HEAD_FIELDS
			       ? err_reason(e, REASON_HEAD_TOO_LARGE, "more than %d fields",
					    LIMIT_HEAD_FIELDS)
			       : err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	return 0;
}

static int read_section(struct section *s, struct fields *out, struct err *e)
{
	bool regular = false;
	int rc = 0;

	for (size_t i = 0; i < s->h->n; i++) {
		struct field f = line_of(s->h, i);
		struct err mine = ERR_INIT;
		int one;

		if (f.name.n > 0 && f.name.p[0] == ':') {
			one = regular ? malformed(&mine, "a pseudo-field behind other fields")
				      : take_pseudo(s, &f, &mine);
		} else {
			regular = true;
			one = take_field(s, &f, out, &mine);
		}
		/* The first fault is told; the rest is read for the record. */
		if (one < 0 && rc == 0) {
			rc = -1;
			if (e)
				*e = mine;
		}
	}
	if (rc == 0 && s->h->no_memory)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	if (rc == 0 && s->h->over)
		return err_reason(e, REASON_HEAD_TOO_LARGE,
				  "a head of more than %d bytes or %d fields", LIMIT_HEAD_BYTES,
				  LIMIT_HEAD_FIELDS);
	return rc;
}

/* ---- a request ---- */

/* Section 8.2.3: the crumbs become the one field that HTTP/1 would have brought. */
static int join_cookies(const struct h2_head *h, struct request *r)
{
	struct field *cookie = (struct field *)(uintptr_t)fields_get(&r->fields, STR("cookie"));
	struct strbuf all;
	size_t n = 0, bytes = 0;
	bool first = true;

	for (size_t i = 0; i < h->n; i++) {
		struct field f = line_of(h, i);

		if (str_eq(f.name, STR("cookie"))) {
			n++;
			bytes += f.value.n + 2;
		}
	}
	if (n < 2 || !cookie)
		return 0;
	/* The other slices of the head stay where they are: this one gets memory of its own. */
	strbuf_init(&all, bytes + 1);
	for (size_t i = 0; i < h->n; i++) {
		struct field f = line_of(h, i);

		if (!str_eq(f.name, STR("cookie")))
			continue;
		if (!first)
			strbuf_add(&all, STR("; "));
		first = false;
		strbuf_add(&all, f.value);
	}
	bytes = all.len;
	r->joined = strbuf_take(&all);
	if (!r->joined) {
		strbuf_clear(&all);
		return bytes == 0 ? 0 : -1;
	}
	/* A last one of nothing leaves a space, which HTTP/1 would not have read either. */
	cookie->value = str_trim_ows(str_from(r->joined, bytes));
	return 0;
}

static int read_method(const struct pseudo *p, struct request *r, struct err *e)
{
	if (p->method.n == 0 || !h1_all(p->method, H1_TOKEN))
		return malformed(e, "no :method that is a token");
	if (p->method.n > LIMIT_METHOD_BYTES)
		return err_reason(e, REASON_MALFORMED_REQUEST, "a method of more than %d bytes",
				  LIMIT_METHOD_BYTES);
	r->method = p->method;
	if (str_eq(p->method, STR("PRI")))
		return malformed(e, "PRI is a method of the HTTP/2 preface alone");
	return 0;
}

static int refuse_connect(const struct pseudo *p, struct request *r, struct err *e)
{
	r->form = TARGET_AUTHORITY;
	r->upgrade = p->protocol;
	if (p->protocol.p)
		return err_reason(e, REASON_UPGRADE_REFUSED,
				  "an extended CONNECT to something other than a WebSocket");
	return malformed(e, "CONNECT where no proxy is asked, but an origin");
}

/* RFC 8441 section 5: the same handshake as HTTP/1's, so the same request. A key has no meaning
 * here: beside the one that the origin is to answer it would be a second. */
static void read_websocket(const struct pseudo *p, struct request *r)
{
	r->method = STR("GET");
	r->upgrade = p->protocol;
	r->websocket = true;
	(void)fields_remove(&r->fields, STR("sec-websocket-key"));
}

static int read_target(const struct pseudo *p, const struct h1_context *ctx, struct request *r,
		       struct err *e)
{
	size_t bad = h1_span(p->path, H1_TARGET);

	r->form = TARGET_ORIGIN;
	if (p->protocol.p && !r->websocket)
		return malformed(e, ":protocol without CONNECT");
	if (!str_eq(p->scheme, str_from_c(scheme_word(ctx->scheme))))
		return err_reason(e, REASON_MALFORMED_REQUEST, ":scheme is not %s",
				  scheme_word(ctx->scheme));
	if (p->path.n > LIMIT_TARGET_BYTES)
		return err_reason(e, REASON_TARGET_TOO_LONG, "the target is longer than %d bytes",
				  LIMIT_TARGET_BYTES);
	if (bad < p->path.n)
		return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x at %zu of the target",
				  (unsigned char)p->path.p[bad], bad + 1);
	/* `*` too: no rule speaks of a whole server. */
	if (!str_starts(p->path, STR("/")))
		return malformed(e, "no :path that begins with a slash");
	return url_parse_origin_form(ctx->scheme, &ctx->host, ctx->port, p->path, &r->url, e);
}

static int check_authority(struct str value, const char *what, const struct h1_context *ctx,
			   struct err *e)
{
	char named[HOST_PORT_ROOM], meant[HOST_PORT_ROOM];
	struct host host;
	uint16_t port;

	if (url_parse_host_field(value, scheme_default_port(ctx->scheme), &host, &port, e) < 0) {
		if (e)
			e->reason = REASON_MALFORMED_REQUEST;
		return err_wrap(e, "%s", what);
	}
	if (!host_eq(&host, &ctx->host) || port != ctx->port)
		return err_reason(e, REASON_NAME_MISMATCH, "%s is %s, this connection leads to %s",
				  what, host_port(&host, port, named),
				  host_port(&ctx->host, ctx->port, meant));
	return 0;
}

/* Section 8.3.1: :authority is the Host of HTTP/1; where both are, they are one. */
static int check_names(const struct section *s, const struct h1_context *ctx, struct err *e)
{
	if (s->facts.n_host > 1)
		return malformed(e, "more than one Host field");
	if (!s->pseudo.authority.p && s->facts.n_host == 0)
		return malformed(e, "no :authority");
	if (s->pseudo.authority.p && check_authority(s->pseudo.authority, ":authority", ctx, e) < 0)
		return -1;
	return s->facts.n_host ? check_authority(s->facts.host, "Host", ctx, e) : 0;
}

static int frame(const struct section *s, struct request *r, struct err *e)
{
	struct h1_framing framing;

	if (h1_read_framing(&s->facts, HTTP_2, &framing, e) < 0)
		return -1;
	/* What follows a CONNECT is no body (RFC 9113 section 8.5). */
	if (r->websocket)
		return framing.has_length ? malformed(e, "Content-Length in a CONNECT") : 0;
	if (s->h->end_stream && framing.length > 0)
		return malformed(e, "Content-Length announces a body, and none follows");
	if (framing.has_length)
		r->body = BODY_LENGTH;
	else if (!s->h->end_stream)
		r->body = BODY_CHUNKED;
	r->length = framing.length;
	return 0;
}

static int read_wishes(const struct section *s, struct request *r, struct err *e)
{
	r->te_trailers = s->facts.te_trailers;
	if (s->facts.expect_other)
		return err_reason(e, REASON_EXPECTATION_FAILED,
				  "Expect asks for something other than 100-continue");
	r->expect_continue = s->facts.expect_continue &&
			     (r->body == BODY_CHUNKED || (r->body == BODY_LENGTH && r->length > 0));
	return 0;
}

struct faults {
	struct err first, later;
	bool any;
};

static struct err *told(struct faults *f)
{
	return f->any ? &f->later : &f->first;
}

static void note(struct faults *f, int rc)
{
	f->any |= rc < 0;
}

int h2_read_request(struct h2_head *h, const struct h1_context *ctx, struct request *ret,
		    struct err *e)
{
	struct section s = {.h = h};
	struct faults f = {.first = ERR_INIT};

	request_init(ret);
	ret->version = HTTP_2;
	ret->keep_alive = true; /* a stream's fault is no fault of the connection */
	note(&f, read_section(&s, &ret->fields, told(&f)));
	ret->raw_target = str_head(s.pseudo.path, LIMIT_TARGET_BYTES);
	ret->raw_host = str_head(s.pseudo.authority.p ? s.pseudo.authority : s.facts.host,
				 LIMIT_TARGET_BYTES);
	ret->accept = s.facts.accept;
	ret->n_proxy_authorization = s.facts.n_proxy_authorization;
	if (s.facts.n_proxy_authorization == 1)
		ret->proxy_authorization = s.facts.proxy_authorization;
	note(&f, read_method(&s.pseudo, ret, told(&f)));
	if (str_eq(ret->method, STR("CONNECT")) && !str_eq(s.pseudo.protocol, STR("websocket"))) {
		note(&f, refuse_connect(&s.pseudo, ret, told(&f)));
	} else {
		if (str_eq(ret->method, STR("CONNECT")))
			read_websocket(&s.pseudo, ret);
		note(&f, read_target(&s.pseudo, ctx, ret, told(&f)));
		note(&f, frame(&s, ret, told(&f)));
		if (str_eq(ret->method, STR("TRACE")))
			note(&f, err_reason(told(&f), REASON_METHOD_REFUSED,
					    "TRACE would hand back what the proxy adds"));
		note(&f, check_names(&s, ctx, told(&f)));
		note(&f, read_wishes(&s, ret, told(&f)));
	}
	if (!f.any && join_cookies(h, ret) < 0)
		note(&f, err_reason(told(&f), REASON_INTERNAL_ERROR, "out of memory"));
	/* The slices point there. */
	ret->mem = h->mem;
	h->mem = NULL;
	h2_head_clear(h);
	if (!f.any)
		return 0;
	if (e)
		*e = f.first;
	return -1;
}

/* ---- a response ---- */

static int read_status(struct str s, unsigned *ret, struct err *e)
{
	if (s.n != 3 || s.p[0] < '1' || s.p[0] > '5' || s.p[1] < '0' || s.p[1] > '9' ||
	    s.p[2] < '0' || s.p[2] > '9')
		return err_set(e, ":status is not three digits from 100 to 599");
	*ret = (unsigned)((s.p[0] - '0') * 100 + (s.p[1] - '0') * 10 + (s.p[2] - '0'));
	if (*ret == 101)
		return err_set(e, "101, which HTTP/2 does not have");
	return 0;
}

/* RFC 8441 section 5: 200 opens a WebSocket, which is a 101 to the rest of the program. Another 2xx
 * would open a tunnel (RFC 9110 section 9.3.6) that nobody asked for. */
static int read_connected(struct response *r, struct err *e)
{
	if (r->status != 200)
		return err_set(e, "%u to an extended CONNECT", r->status);
	r->status = 101;
	r->upgrade = STR("websocket");
	return 0;
}

static int frame_response(const struct section *s, struct str method, struct response *r,
			  struct err *e)
{
	bool interim = r->status < 200, head = str_eq(method, STR("HEAD"));
	struct h1_framing f;

	if (h1_read_framing(&s->facts, HTTP_2, &f, e) < 0)
		return -1;
	if (interim && s->h->end_stream)
		return err_set(e, "an interim answer that ends the stream");
	/* A length means nothing then, and is to be passed over. */
	if (str_eq(method, STR("CONNECT")) && r->status / 100 == 2)
		return read_connected(r, e);
	if (interim || r->status == 204 || r->status == 304 || head) {
		r->has_content_length = f.has_length && !interim && r->status != 204;
		r->content_length = r->has_content_length ? f.length : 0;
		return 0;
	}
	if (s->h->end_stream && f.length > 0)
		return err_set(e, "Content-Length announces a body, and none follows");
	if (s->h->end_stream || f.has_length) {
		r->body = BODY_LENGTH;
		r->length = r->content_length = f.length;
		r->has_content_length = true;
	} else {
		r->body = BODY_CHUNKED;
	}
	return 0;
}

int h2_read_response(struct h2_head *h, struct str method, struct response *ret, struct err *e)
{
	struct section s = {.h = h, .response = true};
	int rc;

	response_init(ret);
	ret->version = HTTP_2;
	ret->keep_alive = true;
	rc = read_section(&s, &ret->fields, e);
	if (rc == 0)
		rc = read_status(s.pseudo.status, &ret->status, e);
	if (rc == 0 && s.facts.n_host > 0)
		rc = err_set(e, "Host in an answer");
	if (rc == 0)
		rc = frame_response(&s, method, ret, e);
	ret->mem = h->mem;
	h->mem = NULL;
	h2_head_clear(h);
	if (rc < 0 && e && e->reason != REASON_INTERNAL_ERROR)
		e->reason = REASON_UPSTREAM_MALFORMED;
	return rc;
}

/* ---- trailers ---- */

int h2_read_trailers(const struct h2_head *h, struct fields *ret, struct err *e)
{
	if (h->no_memory)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	if (h->over || h->bytes > LIMIT_TRAILER_BYTES)
		return err_reason(e, REASON_HEAD_TOO_LARGE, "trailers of more than %d bytes",
				  LIMIT_TRAILER_BYTES);
	for (size_t i = 0; i < h->n; i++) {
		struct field f = line_of(h, i);
		enum field_kind k = field_kind(f.name);

		if (f.name.n > 0 && f.name.p[0] == ':')
			return malformed(e, "a pseudo-field among the trailers");
		if (check_line(&f, e) < 0 || check_hop(k, &f, e) < 0)
			return -1;
		if (k == FIELD_HOST || k == FIELD_CONTENT_LENGTH)
			return err_reason(e, REASON_MALFORMED_REQUEST, "%.*s as a trailer",
					  STR_FMT(f.name));
		if (field_may_trail(f.name) && fields_add(ret, f.name, f.value) < 0)
			return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	}
	return 0;
}
