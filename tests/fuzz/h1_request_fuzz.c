/*
 * HTTP/1 request heads: h1_scan_head, h1_parse_request, h1_write_request. The input is the bytes of
 * a connection; it is read at the proxy port and in tunnels to example.com.
 * - Any cut of the bytes gives the same verdict and the same length.
 * - What is parsed was also scanned, with the same end.
 * - A careless reader of the same bytes finds no second Host, no second framing field.
 * - What is written has clean lines, one Host, at most one framing field, no field of our hop but
 *   our own TE and close, and none of the client's Proxy-*; it parses again, in a tunnel to the
 * same origin, to the same canonical request, which is written as the same bytes.
 * - A credential and a query key of ours come out whole and last.
 * - A refusal has a reason; a connection is only kept after one that leaves the framing certain.
 */
#include "tests/fuzz/h1_heads.h"

#define OUT_MAX (4 * LIMIT_HEAD_BYTES)

struct seen {
	size_t host, length, encoding, connection, close, te, expect, upgrade, switches;
};

static void on_field(struct str name, struct str value, void *arg)
{
	struct seen *s = arg;

	switch (field_kind(name)) {
	case FIELD_HOST: s->host++; break;
	case FIELD_CONTENT_LENGTH: s->length++; break;
	case FIELD_TRANSFER_ENCODING:
		s->encoding++;
		CHECK(str_eq(value, STR("chunked")));
		break;
	case FIELD_CONNECTION:
		s->connection++;
		s->close += str_starts(value, STR("close"));
		s->switches += str_eq(value, STR("Upgrade"));
		CHECK(str_eq(value, STR("TE")) || str_eq(value, STR("close")) ||
		      str_eq(value, STR("close, TE")) || str_eq(value, STR("Upgrade")));
		break;
	case FIELD_UPGRADE:
		s->upgrade++;
		CHECK(str_eq(value, STR("websocket")));
		break;
	case FIELD_TE:
		s->te++;
		CHECK(str_eq(value, STR("trailers")));
		break;
	case FIELD_EXPECT:
		s->expect++;
		CHECK(str_eq(value, STR("100-continue")));
		break;
	case FIELD_HTTP2_SETTINGS:
	case FIELD_PROXY_AUTHORIZATION:
	case FIELD_KEEP_ALIVE:
	case FIELD_HOP: CHECK(!"a field of one hop is forwarded"); break;
	case FIELD_PLAIN:
	case FIELD_ALT_SVC:
	case FIELD_ACCEPT:
	case FIELD_TRAILER:
	case FIELD_CONTROL: break;
	}
}

static void check_head(const struct request *r, struct str out)
{
	struct seen s = {0};

	check_written(out, on_field, &s);
	CHECK(s.host == 1);
	CHECK(s.length == (r->body == BODY_LENGTH));
	CHECK(s.encoding == (r->body == BODY_CHUNKED));
	CHECK(s.upgrade == r->websocket && s.switches == r->websocket);
	if (r->websocket) { /* says nothing else of the connection */
		CHECK(s.connection == 1 && s.te + s.close + s.expect == 0);
		return;
	}
	CHECK(s.te == r->te_trailers && s.connection == (s.te || s.close));
	CHECK(s.close == request_has_odd_body(r));
	CHECK(s.expect == r->expect_continue);
}

static void check_parsed(const struct request *r, struct str head)
{
	CHECK(r->method.n > 0 && r->method.n <= LIMIT_METHOD_BYTES);
	CHECK(r->version == HTTP_10 || r->version == HTTP_11);
	CHECK(r->url.host.kind != HOST_NONE && r->url.port != 0);
	CHECK(r->form == TARGET_AUTHORITY || (r->url.path.n > 0 && r->url.path.p[0] == '/'));
	CHECK(!str_eq(r->method, STR("TRACE")));
	CHECK(r->body != BODY_CLOSE);
	/* Beside a full target HTTP/1.0 needs none. */
	CHECK(careless_count(head, "host") == 1 ||
	      (r->version == HTTP_10 && r->form != TARGET_ORIGIN &&
	       careless_count(head, "host") == 0));
	CHECK(careless_count(head, "content-length") + careless_count(head, "transfer-encoding") <=
	      1);
	if (r->form != TARGET_AUTHORITY) {
		CHECK(careless_count(head, "content-length") == (r->body == BODY_LENGTH));
		CHECK(careless_count(head, "transfer-encoding") == (r->body == BODY_CHUNKED));
	} else {
		CHECK(r->body == BODY_NONE);
	}
}

static void check_same(const struct request *a, const struct request *b)
{
	struct strbuf x, y;

	strbuf_init(&x, LIMIT_URL_BYTES);
	strbuf_init(&y, LIMIT_URL_BYTES);
	url_add(&a->url, &x);
	url_add(&b->url, &y);
	CHECK(!x.overflowed);
	fuzz_check_same(&x, &y);
	strbuf_clear(&x);
	strbuf_clear(&y);
	CHECK(str_eq(a->method, b->method));
	CHECK(host_eq(&a->url.host, &b->url.host) && a->url.port == b->url.port);
	CHECK(a->body == b->body && a->length == b->length);
	CHECK(b->version == HTTP_11 && b->form == TARGET_ORIGIN);
	CHECK(a->websocket == b->websocket);
	if (a->websocket) {
		CHECK(str_eq(b->upgrade, STR("websocket")));
	} else {
		CHECK(a->te_trailers == b->te_trailers && a->expect_continue == b->expect_continue);
		CHECK(b->keep_alive == !request_has_odd_body(a));
		CHECK(b->upgrade.n == 0);
	}
	CHECK(b->proxy_authorization.n == 0);
	check_same_fields(&a->fields, &b->fields);
}

static struct h1_context tunnel_of(const struct request *r)
{
	return (struct h1_context){true, r->url.scheme, r->url.host, r->url.port};
}

/* A field more than came in (our TE) or a byte more than came in may be one too many. */
static bool is_near_limit(const struct request *r, const struct strbuf *out)
{
	return r->fields.n + 6 > LIMIT_HEAD_FIELDS || out->len > LIMIT_HEAD_BYTES;
}

static void check_round_trip(const struct request *r)
{
	struct h1_context ctx = tunnel_of(r);
	struct request again;
	struct strbuf out, out_again;
	struct err e = ERR_INIT;
	struct h1_scan scan = {0};
	size_t len;

	strbuf_init(&out, OUT_MAX);
	strbuf_init(&out_again, OUT_MAX);
	CHECK(h1_write_request(r, NULL, STR_NONE, &out) == 0);
	check_head(r, strbuf_str(&out));
	if (!is_near_limit(r, &out)) {
		CHECK(h1_scan_head(&scan, strbuf_str(&out), LIMIT_HEAD_BYTES, &len, &e) == 1);
		CHECK(len == out.len);
		CHECK(h1_parse_request(strbuf_str(&out), &ctx, &again, &e) == 0);
		check_same(r, &again);
		CHECK(h1_write_request(&again, NULL, STR_NONE, &out_again) == 0);
		fuzz_check_same(&out, &out_again);
		request_clear(&again);
	}
	strbuf_clear(&out);
	strbuf_clear(&out_again);
}

static void check_credential(const struct request *r)
{
	static struct field field = {{"Authorization", 13}, {"Bearer s", 8}};
	struct fields extra = {.v = &field, .n = 1, .cap = 1};
	struct h1_context ctx = tunnel_of(r);
	struct request again;
	struct strbuf out;
	struct err e = ERR_INIT;

	/* The target may be as long as it can be before the key is added. */
	if (r->url.path.n + r->url.query.n + 16 > LIMIT_TARGET_BYTES)
		return;
	strbuf_init(&out, OUT_MAX);
	CHECK(h1_write_request(r, &extra, STR("key=s"), &out) == 0);
	check_head(r, strbuf_str(&out));
	CHECK(str_ends(strbuf_str(&out), STR("\r\nAuthorization: Bearer s\r\n\r\n")));
	if (!is_near_limit(r, &out)) {
		CHECK(h1_parse_request(strbuf_str(&out), &ctx, &again, &e) == 0);
		CHECK(str_ends(again.url.query, STR("key=s")));
		CHECK(str_starts(again.url.query, r->url.query));
		CHECK(str_eq(again.url.path, r->url.path));
		CHECK(again.fields.n == r->fields.n + 1);
		request_clear(&again);
	}
	strbuf_clear(&out);
}

static void one_context(struct str head, const struct h1_context *ctx, bool scanned)
{
	struct request r;
	struct err e = ERR_INIT;
	struct strbuf out;

	if (h1_parse_request(head, ctx, &r, &e) < 0) {
		fuzz_check_err(&e);
		CHECK(e.reason != REASON_NONE);
		if (r.keep_alive)
			CHECK(scanned && r.form != TARGET_AUTHORITY &&
			      e.reason != REASON_MALFORMED_REQUEST);
		request_clear(&r);
		return;
	}
	CHECK(scanned);
	check_parsed(&r, head);
	if (r.form == TARGET_AUTHORITY) {
		CHECK(!ctx->in_tunnel);
		strbuf_init(&out, OUT_MAX);
		CHECK(h1_write_request(&r, NULL, STR_NONE, &out) < 0);
		strbuf_clear(&out);
	} else {
		CHECK(!ctx->in_tunnel ||
		      (host_eq(&ctx->host, &r.url.host) && ctx->port == r.url.port));
		check_round_trip(&r);
		check_credential(&r);
	}
	request_clear(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct h1_context ctx[3];
	struct fuzz_random r = fuzz_random(data, size);
	struct str in = str_from(data, size), head = in;
	struct fuzz_verdict v = scan_all_ways(in, false, &r);
	char *copy;

	if (!ctx[1].in_tunnel) {
		CHECK(host_parse(STR("example.com"), &ctx[1].host, NULL) == 0);
		ctx[1] = (struct h1_context){true, SCHEME_HTTPS, ctx[1].host, 443};
		ctx[2] = (struct h1_context){true, SCHEME_HTTP, ctx[1].host, 8080};
	}
	if (v.rc > 0)
		head = str_head(in, v.len);
	copy = fuzz_copy(head);
	for (size_t i = 0; i < ARRAY_LEN(ctx); i++)
		one_context(str_from(copy, head.n), &ctx[i], v.rc > 0);
	free(copy);
	return 0;
}
