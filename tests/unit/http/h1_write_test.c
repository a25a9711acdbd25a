/*
 * Written heads: from what was read to what is sent, byte for byte; that nothing in a field ends a
 * line early; and that what is written reads back as the same message.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "logging/limits.h"
#include "proxy/http/h1.h"

#define GET "GET http://h.test/a?b=c HTTP/1.1\r\nHost: h.test\r\n"

static const struct h1_context outside;

static void read_request(const char *raw, struct request *ret)
{
	struct err e = ERR_INIT;

	if (h1_parse_request(str_from_c(raw), &outside, ret, &e) < 0)
		fail_msg("%s: %s", e.text, raw);
}

static void test_requests(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{GET "\r\n", "GET /a?b=c HTTP/1.1\r\nHost: h.test\r\n\r\n"},
		{"GET http://H.Test.:80 HTTP/1.0\r\nhost: h.test\r\nConnection: "
		 "keep-alive\r\n\r\n",
		 "GET / HTTP/1.1\r\nHost: h.test\r\n\r\n"},
		{"GET http://h.test:8080/%7ea%2fb? HTTP/1.1\r\nHost: h.test:8080\r\n\r\n",
		 "GET /~a%2Fb? HTTP/1.1\r\nHost: h.test:8080\r\n\r\n"},
		{"GET http://[::0001]/ HTTP/1.1\r\nHost: [::1]\r\n\r\n",
		 "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n"},
		{"GET http://h.test//evil.test/x HTTP/1.1\r\nHost: h.test\r\n\r\n",
		 "GET //evil.test/x HTTP/1.1\r\nHost: h.test\r\n\r\n"},
		{"GET http://h.test/\xc3\xa9 HTTP/1.1\r\nHost: h.test\r\n\r\n",
		 "GET /%C3%A9 HTTP/1.1\r\nHost: h.test\r\n\r\n"},
		{GET "x-A:1\r\nX-a: \t2 \r\nCookie: \xc3\xa9\r\nEmpty:\r\n\r\n",
		 "GET /a?b=c HTTP/1.1\r\nHost: h.test\r\nx-A: 1\r\nX-a: 2\r\nCookie: "
		 "\xc3\xa9\r\nEmpty: \r\n\r\n"},
		{GET "Content-Length: 007\r\nX: 1\r\n\r\n",
		 "GET /a?b=c HTTP/1.1\r\nHost: h.test\r\nX: 1\r\nContent-Length: 7\r\n"
		 "Connection: close\r\n\r\n"},
		{"POST http://h.test/ HTTP/1.1\r\nHost: h.test\r\nContent-Length: 0\r\n\r\n",
		 "POST / HTTP/1.1\r\nHost: h.test\r\nContent-Length: 0\r\n\r\n"},
		{"POST http://h.test/ HTTP/1.1\r\nHost: h.test\r\n\r\n",
		 "POST / HTTP/1.1\r\nHost: h.test\r\n\r\n"},
		{"PUT http://h.test/ HTTP/1.1\r\nTransfer-Encoding: CHUNKED\r\nHost: "
		 "h.test\r\nExpect: 100-Continue\r\n\r\n",
		 "PUT / HTTP/1.1\r\nHost: h.test\r\nTransfer-Encoding: chunked\r\nExpect: "
		 "100-continue\r\n\r\n"},
		{GET "TE: trailers\r\nConnection: close, TE\r\n\r\n",
		 "GET /a?b=c HTTP/1.1\r\nHost: h.test\r\nTE: trailers\r\nConnection: "
		 "TE\r\n\r\n"},
		{GET "TE: deflate\r\nConnection: TE\r\n\r\n",
		 "GET /a?b=c HTTP/1.1\r\nHost: h.test\r\n\r\n"},
		{GET "Upgrade: websocket\r\nConnection: Upgrade, X-Hop\r\nX-Hop: "
		     "1\r\nProxy-Authorization: Basic x\r\nKeep-Alive: 5\r\nVia: x\r\n\r\n",
		 "GET /a?b=c HTTP/1.1\r\nHost: h.test\r\nVia: x\r\n"
		 "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
		{GET "Upgrade: other\r\nConnection: Upgrade\r\n\r\n",
		 "GET /a?b=c HTTP/1.1\r\nHost: h.test\r\n\r\n"},
		{"lower http://h.test/ HTTP/1.1\r\nHost: h.test\r\n\r\n",
		 "lower / HTTP/1.1\r\nHost: h.test\r\n\r\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct request r;
		struct strbuf out;

		strbuf_init(&out, LIMIT_HEAD_BYTES);
		read_request(rows[i].in, &r);
		assert_int_equal(h1_write_request(&r, NULL, STR_NONE, &out), 0);
		assert_string_equal(strbuf_cstr(&out), rows[i].out);
		strbuf_clear(&out);
		request_clear(&r);
	}
}

static void test_extra(void **state)
{
	static const struct {
		const char *target, *query, *want;
	} rows[] = {
		{"/a", "k=v", "GET /a?k=v HTTP/1.1\r\n"},
		{"/a?", "k=v", "GET /a?k=v HTTP/1.1\r\n"},
		{"/a?b", "k=v", "GET /a?b&k=v HTTP/1.1\r\n"},
		{"/a?b=c&", "k=v", "GET /a?b=c&&k=v HTTP/1.1\r\n"},
		{"/a?b", "", "GET /a?b HTTP/1.1\r\n"},
	};
	struct fields extra = {0};

	(void)state;
	assert_int_equal(fields_add(&extra, STR("Authorization"), STR("Bearer t")), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct request r;
		struct strbuf out;
		char raw[256];

		snprintf(raw, sizeof(raw),
			 "GET http://h.test%s HTTP/1.1\r\nHost: h.test\r\nX: 1\r\n\r\n",
			 rows[i].target);
		strbuf_init(&out, LIMIT_HEAD_BYTES);
		read_request(raw, &r);
		assert_int_equal(h1_write_request(&r, &extra, str_from_c(rows[i].query), &out), 0);
		assert_true(str_starts(strbuf_str(&out), str_from_c(rows[i].want)));
		assert_true(
			str_ends(strbuf_str(&out), STR("X: 1\r\nAuthorization: Bearer t\r\n\r\n")));
		strbuf_clear(&out);
		request_clear(&r);
	}
	fields_clear(&extra);
}

/* Whoever made such a field has a fault, and it must not become somebody else's. */
static void test_unsafe_fields(void **state)
{
	const struct {
		struct str name, value;
	} rows[] = {
		{STR("X"), STR("a\r\nHost: evil.test")},
		{STR("X"), STR("a\nb")},
		{STR("X"), STR("a\rb")},
		{STR("X"), {"a\0b", 3}},
		{STR("X"), STR("\x7f")},
		{STR("X\r\n"), STR("a")},
		{STR("X Y"), STR("a")},
		{STR("X:"), STR("a")},
		{STR(""), STR("a")},
		{STR(":path"), STR("/")},
		{STR("Host"), STR("h.test")},
		{STR("content-length"), STR("5")},
		{STR("TRANSFER-ENCODING"), STR("chunked")},
		{STR("Connection"), STR("close")},
		{STR("expect"), STR("100-continue")},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct fields extra = {0};
		struct response p = {.status = 200, .body = BODY_NONE};
		struct request r;
		struct strbuf out;

		strbuf_init(&out, LIMIT_HEAD_BYTES);
		assert_non_null(strbuf_reserve(&out, 1000));
		memset(out.data, 0, out.cap);
		read_request(GET "\r\n", &r);
		assert_int_equal(fields_add(&extra, STR("X-Key"), STR("s3cr3t")), 0);
		assert_int_equal(fields_add(&extra, rows[i].name, rows[i].value), 0);
		assert_int_equal(h1_write_request(&r, &extra, STR_NONE, &out), -1);
		/* What knows only the text's length could not wipe it. */
		assert_null(memmem(out.data, out.cap, "s3cr3t", 6));
		assert_int_equal(fields_add(&r.fields, rows[i].name, rows[i].value), 0);
		assert_int_equal(h1_write_request(&r, NULL, STR_NONE, &out), -1);
		p.fields = extra;
		assert_int_equal(h1_write_response(&p, HTTP_11, true, &out), -1);
		strbuf_clear(&out);
		fields_clear(&extra);
		request_clear(&r);
	}
}

static void test_unsafe_queries(void **state)
{
	const struct str rows[] = {
		STR("a b"), STR("a\r\nX: y"), STR("a\tb"), STR("a#b"), {"\0", 1}, STR("\x7f"),
	};
	struct request r;
	struct strbuf out;

	(void)state;
	strbuf_init(&out, LIMIT_HEAD_BYTES);
	read_request(GET "\r\n", &r);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(h1_write_request(&r, NULL, rows[i], &out), -1);
	strbuf_clear(&out);
	request_clear(&r);
	/* CONNECT is never sent on */
	read_request("CONNECT h.test:443 HTTP/1.1\r\nHost: h.test\r\n\r\n", &r);
	assert_int_equal(h1_write_request(&r, NULL, STR_NONE, &out), -1);
	strbuf_clear(&out);
	request_clear(&r);
}

static void test_overflow(void **state)
{
	struct request r;
	struct response p = {.status = 200, .body = BODY_CHUNKED};
	struct strbuf out;
	char mem[32];

	(void)state;
	read_request(GET "\r\n", &r);
	strbuf_init_fixed(&out, mem, sizeof(mem));
	assert_int_equal(h1_write_request(&r, NULL, STR_NONE, &out), -1);
	strbuf_init_fixed(&out, mem, sizeof(mem));
	assert_int_equal(h1_write_response(&p, HTTP_11, true, &out), -1);
	request_clear(&r);
}

/* From the origin's head to the client's. to: what the caller makes of an unknown end. */
static void test_responses(void **state)
{
	static const struct {
		const char *method, *in;
		enum body_kind to;
		enum http_version v;
		bool keep;
		const char *out;
	} rows[] = {
		{"GET", "HTTP/1.0 200 Fine\r\nX: 1\r\nContent-Length: 05\r\n\r\n", BODY_LENGTH,
		 HTTP_11, true, "HTTP/1.1 200 Fine\r\nX: 1\r\nContent-Length: 5\r\n\r\n"},
		{"GET", "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", BODY_LENGTH, HTTP_11, false,
		 "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"},
		{"GET", "HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n", BODY_LENGTH, HTTP_11, true,
		 "HTTP/1.1 299 \r\nContent-Length: 0\r\n\r\n"},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", BODY_CHUNKED,
		 HTTP_11, true, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", BODY_CHUNKED,
		 HTTP_10, true, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"},
		{"GET", "HTTP/1.1 200 OK\r\n\r\n", BODY_CHUNKED, HTTP_11, true,
		 "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"GET", "HTTP/1.1 200 OK\r\n\r\n", BODY_CLOSE, HTTP_11, true,
		 "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"},
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", BODY_NONE, HTTP_11,
		 true, "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"},
		{"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", BODY_NONE,
		 HTTP_11, true, "HTTP/1.1 200 OK\r\n\r\n"},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\nETag: x\r\n\r\n",
		 BODY_NONE, HTTP_11, true,
		 "HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 500\r\n\r\n"},
		{"GET", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
		 BODY_NONE, HTTP_11, true, "HTTP/1.1 304 Not Modified\r\n\r\n"},
		{"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", BODY_NONE, HTTP_11,
		 true, "HTTP/1.1 204 No Content\r\n\r\n"},
		{"GET", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", BODY_NONE, HTTP_11, false,
		 "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"},
		{"GET",
		 "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
		 "websocket\r\nSec-WebSocket-Accept: x\r\n\r\n",
		 BODY_NONE, HTTP_11, true,
		 "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\nConnection: "
		 "Upgrade\r\nUpgrade: websocket\r\n\r\n"},
		{"GET",
		 "HTTP/1.1 200 OK\r\nAlt-Svc: x\r\nSet-Cookie: a\r\nSet-Cookie: "
		 "b\r\nContent-Length: 1\r\n\r\n",
		 BODY_LENGTH, HTTP_11, true,
		 "HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: "
		 "1\r\n\r\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct response r;
		struct strbuf out;
		struct err e = ERR_INIT;

		strbuf_init(&out, LIMIT_HEAD_BYTES);
		if (h1_parse_response(str_from_c(rows[i].in), str_from_c(rows[i].method), &r, &e))
			fail_msg("%s: %s", e.text, rows[i].in);
		r.body = rows[i].to;
		assert_int_equal(h1_write_response(&r, rows[i].v, rows[i].keep, &out), 0);
		assert_string_equal(strbuf_cstr(&out), rows[i].out);
		strbuf_clear(&out);
		response_clear(&r);
	}
}

static void test_odd_responses(void **state)
{
	struct response r = {.status = 200, .body = BODY_CLOSE, .reason = STR("a\r\nX: y")};
	struct strbuf out;

	(void)state;
	strbuf_init(&out, 1024);
	/* a phrase that would end the line is replaced */
	assert_int_equal(h1_write_response(&r, HTTP_11, true, &out), 0);
	assert_true(str_starts(strbuf_str(&out), STR("HTTP/1.1 200 OK\r\n")));
	/* and so is one that names us */
	strbuf_reset(&out);
	r.reason = STR("Forbidden by Stile (no_rule)");
	r.status = 403;
	assert_int_equal(h1_write_response(&r, HTTP_11, true, &out), 0);
	assert_true(str_starts(strbuf_str(&out), STR("HTTP/1.1 403 Forbidden\r\n")));
	r.status = 99;
	assert_int_equal(h1_write_response(&r, HTTP_11, true, &out), -1);
	r.status = 600;
	assert_int_equal(h1_write_response(&r, HTTP_11, true, &out), -1);
	r = (struct response){.status = 101, .upgrade = STR("a\r\nb")};
	assert_int_equal(h1_write_response(&r, HTTP_11, true, &out), -1);
	strbuf_clear(&out);
}

static unsigned next_random(unsigned *seed)
{
	*seed = *seed * 1103515245u + 12345u;
	return *seed >> 16;
}

/* What is written is read as the same message: the same bytes come out of it again. */
static void test_fixed_point(void **state)
{
	static const char *const pieces[] = {
		"X-A: 1\r\n",
		"x-b:\t2 \r\n",
		"Content-Length: 05\r\n",
		"Transfer-Encoding: Chunked\r\n",
		"Connection: X-A\r\n",
		"Connection: close\r\n",
		"TE: trailers\r\n",
		"Expect: 100-continue\r\n",
		"Cookie: a=b\r\n",
		"Keep-Alive: 1\r\n",
		"Upgrade: websocket\r\n",
		"Connection: upgrade, te\r\n",
		"Proxy-X: 1\r\n",
		"Accept: */*\r\n",
	};
	struct h1_context tunnel = {.in_tunnel = true, .scheme = SCHEME_HTTP, .port = 80};
	unsigned seed = 7, accepted = 0;

	(void)state;
	assert_int_equal(host_parse(STR("h.test"), &tunnel.host, NULL), 0);
	for (int round = 0; round < 5000; round++) {
		struct strbuf raw, first, second;
		struct request r;

		strbuf_init(&raw, 4096);
		strbuf_init(&first, 4096);
		strbuf_init(&second, 4096);
		strbuf_adds(&raw, GET);
		for (unsigned n = next_random(&seed) % 6; n > 0; n--)
			strbuf_adds(&raw, pieces[next_random(&seed) % ARRAY_LEN(pieces)]);
		strbuf_adds(&raw, "\r\n");
		if (h1_parse_request(strbuf_str(&raw), &outside, &r, NULL) == 0) {
			accepted++;
			assert_int_equal(h1_write_request(&r, NULL, STR_NONE, &first), 0);
			request_clear(&r);
			assert_int_equal(h1_parse_request(strbuf_str(&first), &tunnel, &r, NULL),
					 0);
			assert_int_equal(h1_write_request(&r, NULL, STR_NONE, &second), 0);
			assert_string_equal(strbuf_cstr(&first), strbuf_cstr(&second));
		}
		request_clear(&r);
		strbuf_clear(&raw);
		strbuf_clear(&first);
		strbuf_clear(&second);
	}
	assert_true(accepted > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),      cmocka_unit_test(test_extra),
		cmocka_unit_test(test_unsafe_fields), cmocka_unit_test(test_unsafe_queries),
		cmocka_unit_test(test_overflow),      cmocka_unit_test(test_responses),
		cmocka_unit_test(test_odd_responses), cmocka_unit_test(test_fixed_point),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
