/*
 * One request in HTTP/1 and in HTTP/2: h1_parse_request and h2_read_request, in a tunnel to
 * https://example.com. The input is lines: method, path, authority, a body ("n" none, "c" of no
 * known length, else by Content-Length), then `name: value` each; \x1a stands for LF, \x1b for CR.
 * - What would end a line, a name or a target early where it is written as HTTP/1 is refused in
 *   HTTP/2, whatever HTTP/1 makes of those bytes.
 * - Otherwise both give the same verdict, and the same canonical request: written as HTTP/1 and as
 *   HTTP/2 it is the same bytes and the same fields.
 * - But for what is_explained() lists.
 */
#include "logging/limits.h"
#include "proxy/http/field_kind.h"
#include "proxy/http/h2.h"
#include "tests/fuzz/fuzz.h"

#define FIELDS_MAX 32

struct asked {
	struct str method, path, authority;
	struct field fields[FIELDS_MAX];
	size_t n;
	bool open; /* a body of no known length */
	bool has_length;
};

static struct str take_line(struct str *in)
{
	ptrdiff_t lf = str_find(*in, '\n');
	struct str line = lf < 0 ? *in : str_head(*in, (size_t)lf);

	*in = lf < 0 ? STR_NONE : str_skip(*in, (size_t)lf + 1);
	return line;
}

static bool is_name(struct str a, const char *b)
{
	return str_eq(a, str_from_c(b));
}

/* In memory that may be written. */
static void read_asked(char *mem, size_t n, struct asked *a)
{
	struct str in = str_from(mem, n), kind;

	a->method = take_line(&in);
	a->path = take_line(&in);
	a->authority = str_trim_ows(take_line(&in));
	kind = take_line(&in);
	while (in.n > 0 && a->n < FIELDS_MAX) {
		struct str line = take_line(&in);
		ptrdiff_t at = 0;
		struct field *f = &a->fields[a->n++];

		while (at + 1 < (ptrdiff_t)line.n && (line.p[at] != ':' || line.p[at + 1] != ' '))
			at++;
		f->name = str_head(line, (size_t)at);
		f->value = str_trim_ows(str_skip(line, (size_t)at + 2));
		/* HTTP/2 has lower case alone. */
		for (size_t i = 0; i < f->name.n; i++)
			if (f->name.p[i] >= 'A' && f->name.p[i] <= 'Z')
				mem[f->name.p - mem + (ptrdiff_t)i] |= 0x20;
		a->has_length |= is_name(f->name, "content-length");
	}
	for (size_t i = 0; i < n; i++)
		if (mem[i] == 0x1a || mem[i] == 0x1b)
			mem[i] = mem[i] == 0x1a ? '\n' : '\r';
	a->open = is_name(kind, "c") && !a->has_length;
}

/* ---- the two ways ---- */

static int by_h1(const struct asked *a, const struct h1_context *ctx, struct request *r)
{
	struct h1_scan scan = {0};
	struct strbuf b;
	struct err e = ERR_INIT;
	size_t len = 0;
	int rc;

	strbuf_init(&b, 4 * LIMIT_HEAD_BYTES);
	strbuf_add(&b, a->method);
	strbuf_add(&b, STR(" "));
	strbuf_add(&b, a->path);
	strbuf_add(&b, STR(" HTTP/1.1\r\nhost: "));
	strbuf_add(&b, a->authority);
	strbuf_add(&b, STR("\r\n"));
	if (a->open)
		strbuf_add(&b, STR("transfer-encoding: chunked\r\n"));
	for (size_t i = 0; i < a->n; i++) {
		strbuf_add(&b, a->fields[i].name);
		strbuf_add(&b, STR(": "));
		strbuf_add(&b, a->fields[i].value);
		strbuf_add(&b, STR("\r\n"));
	}
	strbuf_add(&b, STR("\r\n"));
	CHECK(!b.overflowed);
	request_init(r);
	rc = h1_scan_head(&scan, strbuf_str(&b), LIMIT_HEAD_BYTES, &len, &e);
	if (rc > 0)
		rc = h1_parse_request(str_head(strbuf_str(&b), len), ctx, r, &e);
	else
		rc = -1;
	strbuf_clear(&b);
	return rc;
}

static int by_h2(const struct asked *a, const struct h1_context *ctx, struct request *r)
{
	struct h2_head h = {0};
	struct err e = ERR_INIT;
	int rc;

	h2_head_add(&h, STR(":method"), a->method);
	h2_head_add(&h, STR(":scheme"), STR("https"));
	h2_head_add(&h, STR(":authority"), a->authority);
	h2_head_add(&h, STR(":path"), a->path);
	for (size_t i = 0; i < a->n; i++)
		h2_head_add(&h, a->fields[i].name, a->fields[i].value);
	h.end_stream = !a->open && !a->has_length;
	rc = h2_read_request(&h, ctx, r, &e);
	h2_head_clear(&h);
	if (rc < 0) {
		fuzz_check_err(&e);
		CHECK(e.reason != REASON_NONE);
	}
	return rc;
}

/* ---- what may differ ---- */

static bool has_any(struct str s, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (str_find(s, bytes[i]) >= 0)
			return true;
	return false;
}

/* Written as HTTP/1 it would be something else. */
static bool would_split(const struct asked *a)
{
	bool yes = has_any(a->method, "\r\n\0 \t:", 6) || has_any(a->path, "\r\n\0 \t", 5) ||
		   has_any(a->authority, "\r\n\0 \t", 5);

	for (size_t i = 0; i < a->n; i++)
		yes = yes || has_any(a->fields[i].name, "\r\n\0 \t:", 6) ||
		      has_any(a->fields[i].value, "\r\n\0", 3);
	return yes;
}

/* What the two protocols see differently, on purpose. */
static bool is_explained(const struct asked *a, bool h1_takes, bool h2_takes)
{
	bool hop = false, host = false;

	for (size_t i = 0; i < a->n; i++) {
		enum field_kind k = field_kind(a->fields[i].name);

		host |= k == FIELD_HOST;
		/* A matter of one connection: dropped in HTTP/1, refused in HTTP/2 (RFC 9113
		 * section 8.2.2). TE but for "trailers" is one, too. */
		hop |= k == FIELD_CONNECTION || k == FIELD_TRANSFER_ENCODING ||
		       k == FIELD_UPGRADE || k == FIELD_HTTP2_SETTINGS || k == FIELD_HOP ||
		       k == FIELD_KEEP_ALIVE ||
		       (k == FIELD_TE && !str_eq_nocase(a->fields[i].value, STR("trailers")));
	}
	/* Two Hosts are one too many; beside :authority one may stand (section 8.3.1). */
	if (host && !h1_takes)
		return true;
	/* A full URL as the target: :path has no such form. */
	if (!str_starts(a->path, STR("/")) && h1_takes && !h2_takes)
		return true;
	return hop && h1_takes && !h2_takes;
}

/* Crumbs are joined (section 8.2.3); a client of HTTP/1 that sends two fields is left alone. */
static bool has_crumbs(const struct asked *a)
{
	size_t n = 0;

	for (size_t i = 0; i < a->n; i++)
		n += is_name(a->fields[i].name, "cookie");
	return n > 1;
}

static void check_same_request(const struct request *a, const struct request *b)
{
	struct strbuf x, y;
	struct h2_fields p, q;

	strbuf_init(&x, 4 * LIMIT_HEAD_BYTES);
	strbuf_init(&y, 4 * LIMIT_HEAD_BYTES);
	CHECK(h1_write_request(a, NULL, STR_NONE, &x) == 0);
	CHECK(h1_write_request(b, NULL, STR_NONE, &y) == 0);
	fuzz_check_same(&x, &y);
	CHECK(h2_write_request(a, NULL, STR_NONE, &p) == 0);
	CHECK(h2_write_request(b, NULL, STR_NONE, &q) == 0);
	CHECK(p.n == q.n);
	for (size_t i = 0; i < p.n; i++) {
		CHECK(str_eq(p.v[i].name, q.v[i].name));
		CHECK(str_eq(p.v[i].value, q.v[i].value));
		CHECK(p.v[i].secret == q.v[i].secret);
	}
	CHECK(str_eq(a->method, b->method));
	CHECK(str_eq(a->proxy_authorization, b->proxy_authorization));
	CHECK(str_eq(a->accept, b->accept));
	CHECK(a->body == b->body && a->length == b->length);
	CHECK(a->expect_continue == b->expect_continue && a->te_trailers == b->te_trailers);
	CHECK(!b->websocket || a->websocket);
	strbuf_clear(&x);
	strbuf_clear(&y);
	h2_fields_clear(&p);
	h2_fields_clear(&q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct h1_context ctx;
	struct asked a = {0};
	struct request one, two;
	char *mem;
	int h1, h2;

	if (!ctx.in_tunnel) {
		CHECK(host_parse(STR("example.com"), &ctx.host, NULL) == 0);
		ctx = (struct h1_context){true, SCHEME_HTTPS, ctx.host, 443};
	}
	if (size > LIMIT_TARGET_BYTES) /* bounds are counted by each in its own way */
		return 0;
	mem = fuzz_copy(str_from(data, size));
	read_asked(mem, size, &a);
	h1 = by_h1(&a, &ctx, &one);
	h2 = by_h2(&a, &ctx, &two);
	if (would_split(&a)) {
		CHECK(h2 < 0);
	} else if (h1 == 0 && h2 == 0) {
		if (!has_crumbs(&a))
			check_same_request(&one, &two);
	} else if (!is_explained(&a, h1 == 0, h2 == 0)) {
		CHECK(h1 == h2);
	}
	request_clear(&one);
	request_clear(&two);
	free(mem);
	return 0;
}
