/*
 * HTTP/1 response heads: h1_scan_head, h1_parse_response, h1_write_response. The input is what an
 * origin sends; it is read as the answer to GET and to HEAD.
 * - Any cut of the bytes gives the same verdict and the same length.
 * - What is parsed was also scanned, with the same end; a careless reader finds no second framing.
 * - What is written for a client of HTTP/1.1 and 1.0 has clean lines, at most one framing field and
 *   no field of the origin's hop; it parses again to the same response, which is written as the
 *   same bytes.
 * - A refusal is upstream_malformed.
 */
#include "tests/fuzz/h1_heads.h"

#define OUT_MAX (4 * LIMIT_HEAD_BYTES)

struct seen {
	size_t length, encoding, connection, upgrade;
};

static void on_field(struct str name, struct str value, void *arg)
{
	struct seen *s = arg;

	switch (field_kind(name)) {
	case FIELD_CONTENT_LENGTH: s->length++; break;
	case FIELD_TRANSFER_ENCODING:
		s->encoding++;
		CHECK(str_eq(value, STR("chunked")));
		break;
	case FIELD_CONNECTION:
		s->connection++;
		CHECK(str_eq(value, STR("close")) || str_eq(value, STR("Upgrade")));
		break;
	case FIELD_UPGRADE: s->upgrade++; break;
	case FIELD_HOST:
	case FIELD_TE:
	case FIELD_HTTP2_SETTINGS:
	case FIELD_EXPECT:
	case FIELD_PROXY_AUTHORIZATION:
	case FIELD_ALT_SVC:
	case FIELD_KEEP_ALIVE:
	case FIELD_HOP: CHECK(!"a field of one hop is forwarded"); break;
	case FIELD_PLAIN:
	case FIELD_ACCEPT:
	case FIELD_TRAILER:
	case FIELD_CONTROL: break;
	}
}

static void check_head(const struct response *r, enum http_version v, struct str out)
{
	struct seen s = {0};

	check_written(out, on_field, &s);
	CHECK(s.length + s.encoding <= 1);
	CHECK(s.connection <= 1);
	CHECK(s.upgrade == (r->status == 101 && r->upgrade.n > 0));
	if (r->body == BODY_CHUNKED)
		CHECK(s.encoding == (v != HTTP_10));
	if (r->status < 200 || r->status == 204)
		CHECK(s.length + s.encoding == 0);
}

static void check_parsed(const struct response *r, struct str head)
{
	size_t framing =
		careless_count(head, "content-length") + careless_count(head, "transfer-encoding");

	CHECK(r->status >= 100 && r->status <= 599);
	CHECK(framing <= 1);
	CHECK(r->body != BODY_CLOSE || (framing == 0 && !r->keep_alive));
	if (r->status < 200 || r->status == 204 || r->status == 304)
		CHECK(r->body == BODY_NONE);
}

static void check_same(const struct response *a, const struct response *b, bool keep)
{
	CHECK(a->status == b->status);
	CHECK(a->reason.n == 0 || str_eq(a->reason, b->reason));
	CHECK(a->body == b->body && a->length == b->length);
	CHECK(a->has_content_length == b->has_content_length);
	CHECK(a->content_length == b->content_length);
	CHECK(a->status != 101 || str_eq(a->upgrade, b->upgrade));
	if (a->status >= 200)
		CHECK(b->keep_alive == (keep && a->body != BODY_CLOSE));
	check_same_fields(&a->fields, &b->fields);
}

static void check_round_trip(const struct response *r, struct str method, bool keep)
{
	struct response again;
	struct strbuf out, out_again;
	struct err e = ERR_INIT;
	struct h1_scan scan = {.response = true};
	size_t len;

	strbuf_init(&out, OUT_MAX);
	strbuf_init(&out_again, OUT_MAX);
	CHECK(h1_write_response(r, HTTP_10, keep, &out) == 0);
	check_head(r, HTTP_10, strbuf_str(&out));
	strbuf_reset(&out);
	CHECK(h1_write_response(r, HTTP_11, keep, &out) == 0);
	check_head(r, HTTP_11, strbuf_str(&out));
	if (r->fields.n + 6 <= LIMIT_HEAD_FIELDS && out.len <= LIMIT_HEAD_BYTES) {
		CHECK(h1_scan_head(&scan, strbuf_str(&out), LIMIT_HEAD_BYTES, &len, &e) == 1);
		CHECK(len == out.len);
		CHECK(h1_parse_response(strbuf_str(&out), method, &again, &e) == 0);
		check_same(r, &again, keep);
		CHECK(h1_write_response(&again, HTTP_11, keep, &out_again) == 0);
		fuzz_check_same(&out, &out_again);
		response_clear(&again);
	}
	strbuf_clear(&out);
	strbuf_clear(&out_again);
}

static void one_method(struct str head, struct str method, bool scanned)
{
	struct response r;
	struct err e = ERR_INIT;

	if (h1_parse_response(head, method, &r, &e) < 0) {
		fuzz_check_err(&e);
		CHECK(e.reason == REASON_UPSTREAM_MALFORMED);
	} else {
		CHECK(scanned);
		check_parsed(&r, head);
		check_round_trip(&r, method, true);
		check_round_trip(&r, method, false);
	}
	response_clear(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_random r = fuzz_random(data, size);
	struct str in = str_from(data, size), head = in;
	struct fuzz_verdict v = scan_all_ways(in, true, &r);
	char *copy;

	if (v.rc > 0)
		head = str_head(in, v.len);
	copy = fuzz_copy(head);
	one_method(str_from(copy, head.n), STR("GET"), v.rc > 0);
	one_method(str_from(copy, head.n), STR("HEAD"), v.rc > 0);
	free(copy);
	return 0;
}
