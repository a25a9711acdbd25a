/*
 * The opening of a WebSocket, from a client of either version to an origin of either version. The
 * input's first byte says which; up to a byte 0x1e follows what the client sends (HTTP/1.1, or
 * "name: value" lines of HTTP/2), behind it what the origin does. An '@' there stands for the right
 * answer to the key, so that a true 101 is within reach.
 * - Any cut of either side's HTTP/1 bytes gives the same verdict and the same length.
 * - What is admitted as a handshake is a GET without a body, with one key of 16 bytes and version
 *   13 alone, as a careless reader counts them. One out of HTTP/2 brings no key.
 * - What is judged is what is sent: written for either version and read again it is the same URL,
 *   the same fields and nothing but a WebSocket.
 * - Only a 101 (in HTTP/2: 200) becomes a pipe, and where either side is HTTP/1.1 only one that
 *   answers the key, as OpenSSL computes it; with no protocol and no extension but offered ones.
 * - What a client of HTTP/2 is told is 200 only then, and never has HTTP/1's proofs.
 */
#include "tests/fuzz/h1_heads.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include "proxy/http/h2.h"
#include "proxy/http/websocket.h"

#define OUT_MAX (4 * LIMIT_HEAD_BYTES)
#define KEY	"dGhlIHNhbXBsZSBub25jZQ==" /* ours: a fresh one would make no run come again */
#define GUID	"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

static struct h1_context ctx;

static struct h2_head head_of(struct str text, bool end)
{
	struct h2_head h = {.end_stream = end};

	while (text.n > 0) {
		struct str line = str_split(&text, '\n');
		size_t at = line.n > 0 && line.p[0] == ':' ? 1 : 0;

		while (at < line.n && line.p[at] != ':')
			at++;
		h2_head_add(&h, str_head(line, at), str_skip(line, at + 2));
	}
	return h;
}

static size_t count(const struct fields *f, const char *name, struct str *ret_last)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		if (str_eq_nocase(f->v[i].name, str_from_c(name))) {
			*ret_last = f->v[i].value;
			n++;
		}
	return n;
}

/* What answers a key, by another way than the code under test. */
static void answer_of(struct str key, char out[64])
{
	unsigned char digest[SHA_DIGEST_LENGTH], both[128];

	CHECK(key.n + sizeof(GUID) <= sizeof(both));
	memcpy(both, key.p, key.n);
	memcpy(both + key.n, GUID, sizeof(GUID) - 1);
	SHA1(both, key.n + sizeof(GUID) - 1, digest);
	EVP_EncodeBlock((unsigned char *)out, digest, sizeof(digest));
}

/* ---- the request ---- */

static int read_request(struct str in, bool h2, struct fuzz_random *rnd, struct request *ret)
{
	struct err e = ERR_INIT;
	struct fuzz_verdict v;
	int rc;

	if (h2) {
		struct h2_head h = head_of(in, fuzz_pick(rnd, 4) == 0);

		rc = h2_read_request(&h, &ctx, ret, &e);
	} else {
		v = scan_all_ways(in, false, rnd);
		rc = h1_parse_request(v.rc > 0 ? str_head(in, v.len) : in, &ctx, ret, &e);
		CHECK(rc < 0 || v.rc > 0);
	}
	if (rc < 0)
		fuzz_check_err(&e);
	return rc;
}

static void check_handshake(const struct request *r)
{
	unsigned char bytes[32];
	struct str key = STR_NONE, version = STR_NONE;

	CHECK(r->websocket && str_eq(r->method, STR("GET")));
	CHECK(r->body == BODY_NONE || (r->body == BODY_LENGTH && r->length == 0));
	CHECK(r->version == HTTP_11 || r->version == HTTP_2);
	CHECK(count(&r->fields, "sec-websocket-key", &key) == 1 && key.n == 24);
	CHECK(EVP_DecodeBlock(bytes, (const unsigned char *)key.p, 24) == 18);
	CHECK(key.p[22] == '=' && key.p[23] == '=' && key.p[21] != '=');
	CHECK(count(&r->fields, "sec-websocket-version", &version) == 1);
	CHECK(str_eq(version, STR("13")));
}

static void check_same_request(const struct request *a, const struct request *b, bool key)
{
	struct strbuf x, y;
	size_t j = 0;

	CHECK(b->websocket && str_eq(b->method, STR("GET")));
	strbuf_init(&x, LIMIT_URL_BYTES);
	strbuf_init(&y, LIMIT_URL_BYTES);
	url_add(&a->url, &x);
	url_add(&b->url, &y);
	fuzz_check_same(&x, &y);
	strbuf_clear(&x);
	strbuf_clear(&y);
	for (size_t i = 0; i < a->fields.n; i++) {
		const struct field *f = &a->fields.v[i];

		if (!key && (str_eq_nocase(f->name, STR("sec-websocket-key")) ||
			     str_eq_nocase(f->name, STR("sec-websocket-accept"))))
			continue;
		CHECK(j < b->fields.n && str_eq_nocase(f->name, b->fields.v[j].name));
		/* Cookie crumbs of HTTP/1 are joined on their way through HTTP/2. */
		CHECK(str_eq(f->value, b->fields.v[j].value) ||
		      str_eq_nocase(f->name, STR("cookie")));
		j++;
		while (str_eq_nocase(f->name, STR("cookie")) && !key && i + 1 < a->fields.n &&
		       str_eq_nocase(a->fields.v[i + 1].name, STR("cookie")))
			i++;
	}
}

static void on_field(struct str name, struct str value, void *arg)
{
	size_t *n = arg;

	n[0] += str_eq_nocase(name, STR("upgrade"));
	n[1] += str_eq_nocase(name, STR("connection"));
	n[2] += str_eq_nocase(name, STR("sec-websocket-key"));
	n[3] += str_eq_nocase(name, STR("content-length")) ||
		str_eq_nocase(name, STR("transfer-encoding"));
	if (str_eq_nocase(name, STR("upgrade")))
		CHECK(str_eq(value, STR("websocket")));
	if (str_eq_nocase(name, STR("connection")))
		CHECK(str_eq(value, STR("Upgrade")));
}

static void check_sent_h1(const struct request *r)
{
	struct request again;
	struct strbuf out;
	size_t n[4] = {0};
	struct err e = ERR_INIT;

	strbuf_init(&out, OUT_MAX);
	CHECK(h1_write_request(r, NULL, STR_NONE, &out) == 0);
	CHECK(str_starts(strbuf_str(&out), STR("GET /")));
	check_written(strbuf_str(&out), on_field, n);
	CHECK(n[0] == 1 && n[1] == 1 && n[2] == 1 && n[3] <= (r->body == BODY_LENGTH));
	if (out.len <= LIMIT_HEAD_BYTES && r->fields.n + 4 <= LIMIT_HEAD_FIELDS) {
		CHECK(h1_parse_request(strbuf_str(&out), &ctx, &again, &e) == 0);
		check_same_request(r, &again, true);
		check_handshake(&again);
		CHECK(websocket_check_request(&again, &e) == 0);
		request_clear(&again);
	}
	strbuf_clear(&out);
}

static struct h2_head to_head(const struct h2_fields *f, bool end)
{
	struct h2_head h = {.end_stream = end};

	for (size_t i = 0; i < f->n; i++)
		h2_head_add(&h, f->v[i].name, f->v[i].value);
	return h;
}

static size_t count_h2(const struct h2_fields *f, const char *name, const char *value)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		if (str_eq(f->v[i].name, str_from_c(name))) {
			CHECK(!value || str_eq(f->v[i].value, str_from_c(value)));
			n++;
		}
	return n;
}

static void check_sent_h2(const struct request *r)
{
	struct h2_fields f;
	struct h2_head h;
	struct request again;
	struct err e = ERR_INIT;
	struct str none;

	/* Its names are refused there: nothing is sent that would not be read. */
	if (h2_write_request(r, NULL, STR_NONE, &f) < 0)
		return;
	CHECK(count_h2(&f, ":method", "CONNECT") == 1);
	CHECK(count_h2(&f, ":protocol", "websocket") == 1);
	CHECK(count_h2(&f, ":scheme", "https") == 1 && count_h2(&f, ":path", NULL) == 1);
	CHECK(count_h2(&f, "sec-websocket-key", NULL) == 0);
	CHECK(count_h2(&f, "content-length", NULL) == 0);
	h = to_head(&f, false);
	h2_fields_clear(&f);
	if (h.over) {
		h2_head_clear(&h);
		return;
	}
	CHECK(h2_read_request(&h, &ctx, &again, &e) == 0);
	if (r->version == HTTP_2)
		check_same_request(r, &again, false);
	else
		CHECK(again.websocket && str_eq(again.url.path, r->url.path));
	CHECK(count(&again.fields, "sec-websocket-key", &none) == 0);
	request_clear(&again);
}

/* ---- the answer ---- */

/* Each element of the answer's fields of that name stands in the request's. */
static void check_offered(const struct request *q, const struct response *r, const char *name)
{
	struct str asked = STR_NONE, got = STR_NONE;
	size_t n = count(&r->fields, name, &got);

	CHECK(n == 0 || got.n == 0 || count(&q->fields, name, &asked) > 0);
}

static void check_told(const struct response *r)
{
	struct h2_fields f;

	if (h2_write_response(r, &f) < 0)
		return;
	CHECK(count_h2(&f, ":status", "200") == 1);
	CHECK(count_h2(&f, "sec-websocket-accept", NULL) + count_h2(&f, "upgrade", NULL) +
		      count_h2(&f, "connection", NULL) + count_h2(&f, "content-length", NULL) ==
	      0);
	h2_fields_clear(&f);
}

static void judge(const struct request *q, const struct response *r, bool h2, struct str raw)
{
	struct err e = ERR_INIT;
	struct str key = STR_NONE, said = STR_NONE;
	char want[64];

	if (r->status >= 200) {
		CHECK(websocket_check_refusal(q, r, &e) ==
		      (q->websocket && q->version == HTTP_2 && r->status < 300 ? -1 : 0));
		return;
	}
	if (r->status != 101)
		return;
	if (websocket_check_response(q, r, &e) < 0) {
		fuzz_check_err(&e);
		CHECK(e.reason == REASON_UPSTREAM_MALFORMED);
		return;
	}
	CHECK(h2 || (raw.n > 12 && str_eq(str_head(str_skip(raw, 9), 3), STR("101"))));
	if (!h2 || q->version != HTTP_2) {
		CHECK(count(&q->fields, "sec-websocket-key", &key) == 1);
		answer_of(key, want);
		CHECK(count(&r->fields, "sec-websocket-accept", &said) == 1);
		CHECK(str_eq(said, str_from_c(want)));
		CHECK(h2 || careless_count(raw, "sec-websocket-accept") == 1);
	}
	check_offered(q, r, "sec-websocket-protocol");
	check_offered(q, r, "sec-websocket-extensions");
	if (q->version == HTTP_2)
		check_told(r);
}

static void read_answer(const struct request *q, struct str in, bool h2, struct fuzz_random *rnd)
{
	struct response r;
	struct err e = ERR_INIT;
	struct str head = in;
	int rc;

	if (h2) {
		struct h2_head h = head_of(in, fuzz_pick(rnd, 4) == 0);

		rc = h2_read_response(&h, STR("CONNECT"), &r, &e);
		CHECK(rc < 0 || r.status < 200 || r.status >= 300);
	} else {
		struct fuzz_verdict v = scan_all_ways(in, true, rnd);

		/* What stands behind it is the other protocol's. */
		if (v.rc > 0)
			head = str_head(in, v.len);
		rc = h1_parse_response(head, STR("GET"), &r, &e);
		CHECK(rc < 0 || v.rc > 0);
	}
	if (rc == 0)
		judge(q, &r, h2, head);
	else
		CHECK(e.reason == REASON_UPSTREAM_MALFORMED);
	response_clear(&r);
}

/* With each '@' the right answer. */
static void fill_in(const struct request *q, struct str in, struct strbuf *out)
{
	struct str key = STR_NONE;
	char want[64] = "";

	if (count(&q->fields, "sec-websocket-key", &key) == 1 && key.n <= 64)
		answer_of(key, want);
	for (size_t i = 0; i < in.n; i++)
		if (in.p[i] == '@')
			strbuf_adds(out, want);
		else
			strbuf_addc(out, in.p[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_random rnd = fuzz_random(data, size);
	struct str in = str_from(data, size), asked;
	unsigned how = fuzz_u8(&in);
	bool from_h2 = how & 1, to_h2 = how & 2;
	struct request q;
	struct strbuf answer;
	struct err e = ERR_INIT;
	struct str key = STR_NONE;

	if (!ctx.in_tunnel) {
		CHECK(host_parse(STR("a.test"), &ctx.host, NULL) == 0);
		ctx = (struct h1_context){true, SCHEME_HTTPS, ctx.host, 443};
	}
	asked = str_split(&in, '\x1e');
	if (read_request(asked, from_h2, &rnd, &q) == 0) {
		if (from_h2 && q.websocket) {
			CHECK(count(&q.fields, "sec-websocket-key", &key) == 0);
			CHECK(q.body == BODY_NONE);
			if (fields_add(&q.fields, STR("Sec-WebSocket-Key"), STR(KEY)) < 0)
				goto out;
		}
		if (q.websocket && websocket_check_request(&q, &e) == 0) {
			check_handshake(&q);
			check_sent_h1(&q);
			check_sent_h2(&q);
		}
		strbuf_init(&answer, OUT_MAX);
		fill_in(&q, in, &answer);
		/* Only a client of HTTP/2 is carried over HTTP/2. */
		read_answer(&q, strbuf_str(&answer), to_h2, &rnd);
		strbuf_clear(&answer);
	}
out:
	request_clear(&q);
	return 0;
}
