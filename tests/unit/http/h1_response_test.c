/*
 * Response heads: what is accepted and how it is framed, what is refused, however the bytes are
 * cut.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "h1_fixture.h"
#include "logging/limits.h"
#include "proxy/http/h1.h"

#define BYTES(s) s, sizeof(s) - 1
#define R200	 "HTTP/1.1 200 OK\r\n"
#define CL5	 "Content-Length: 5\r\n"
#define TE	 "Transfer-Encoding: chunked\r\n"

/* 0 when it is a response; the same however it is cut, and refused for one reason only. */
static int parse(struct str raw, struct str method, struct response *ret)
{
	static const size_t steps[] = {1, 2, 3, 7, 64};
	struct err e = ERR_INIT, other = ERR_INIT;
	size_t len = 0, cut_len = 0;
	char *exact = malloc(raw.n + 1);
	int rc = scan_in_steps((struct h1_scan){.response = true}, raw, raw.n, LIMIT_HEAD_BYTES,
			       &len, &e);

	assert_non_null(exact);
	memcpy(exact, raw.p, raw.n);
	for (size_t i = 0; i < ARRAY_LEN(steps) && raw.n < 4096; i++) {
		int cut = scan_in_steps((struct h1_scan){.response = true}, raw, steps[i],
					LIMIT_HEAD_BYTES, &cut_len, &other);

		if (cut != rc || (rc == 1 && cut_len != len))
			fail_msg("steps of %zu: %d instead of %d for: %.*s", steps[i], cut, rc,
				 STR_FMT(raw));
	}
	if (rc == 0)
		fail_msg("unfinished: %.*s", STR_FMT(raw));
	response_init(ret);
	if (rc == 1)
		rc = h1_parse_response(str_from(exact, len), method, ret, &e);
	memset(exact, 'X', raw.n);
	free(exact);
	if (rc < 0) {
		assert_int_equal(e.reason, REASON_UPSTREAM_MALFORMED);
		assert_true(e.text[0] != '\0');
	}
	return rc;
}

static void test_refused(void **state)
{
	static const struct {
		const char *raw;
		size_t n;
	} rows[] = {
		/* the status line */
		{BYTES("HTTP/1.1 200 OK\n\r\n")},
		{BYTES("\r\n" R200 "\r\n")},
		{BYTES(" " R200 "\r\n")},
		{BYTES("HTTP/1.1  200 OK\r\n\r\n")},
		{BYTES("HTTP/1.1\t200 OK\r\n\r\n")},
		{BYTES("HTTP/1.1 20 OK\r\n\r\n")},
		{BYTES("HTTP/1.1 2000 OK\r\n\r\n")},
		{BYTES("HTTP/1.1 20x OK\r\n\r\n")},
		{BYTES("HTTP/1.1 +20 OK\r\n\r\n")},
		{BYTES("HTTP/1.1 200\tOK\r\n\r\n")},
		{BYTES("HTTP/1.1 200OK\r\n\r\n")},
		{BYTES("HTTP/1.1 200-OK\r\n\r\n")},
		{BYTES("HTTP/1.1 099 X\r\n\r\n")},
		{BYTES("HTTP/1.1 000 X\r\n\r\n")},
		{BYTES("HTTP/1.1 600 X\r\n\r\n")},
		{BYTES("HTTP/1.1 999 X\r\n\r\n")},
		{BYTES("HTTP/1.1\r\n\r\n")},
		{BYTES("HTTP/1.1 \r\n\r\n")},
		{BYTES("HTTP/1.2 200 OK\r\n\r\n")},
		{BYTES("HTTP/2.0 200 OK\r\n\r\n")},
		{BYTES("HTTP/2 200 OK\r\n\r\n")},
		{BYTES("HTTP/0.9 200 OK\r\n\r\n")},
		{BYTES("http/1.1 200 OK\r\n\r\n")},
		{BYTES("ICY 200 OK\r\n\r\n")},
		{BYTES("<html>hello</html>")},
		{BYTES("SSH-2.0-x\r\n")},
		{BYTES("\x00\x00\x12\x04\x00\x00\x00\x00\x00")},
		{BYTES("\x15\x03\x01\x00\x02\x02\x46")},
		{BYTES("HTTP/1.1 200 O\x00K\r\n\r\n")},
		{BYTES("HTTP/1.1 200 O\x1bK\r\n\r\n")},
		{BYTES("HTTP/1.1 200 O\rK\r\n\r\n")},
		/* fields */
		{BYTES(R200 "X: 1\n\r\n")},
		{BYTES(R200 "X: 1\r\n y\r\n\r\n")},
		{BYTES(R200 "X : 1\r\n\r\n")},
		{BYTES(R200 " X: 1\r\n\r\n")},
		{BYTES(R200 ": 1\r\n\r\n")},
		{BYTES(R200 "X\r\n\r\n")},
		{BYTES(R200 "X Y: 1\r\n\r\n")},
		{BYTES(R200 "X: a\x00"
			    "b\r\n\r\n")},
		{BYTES(R200 "X: a\x07\r\n\r\n")},
		{BYTES(R200 "X: a\rSet-Cookie: b\r\n\r\n")},
		{BYTES(R200 "X: 1\r\n\n")},
		/* framing */
		{BYTES(R200 CL5 CL5 "\r\n")},
		{BYTES(R200 CL5 "content-length: 6\r\n\r\n")},
		{BYTES(R200 "Content-Length: 5, 5\r\n\r\n")},
		{BYTES(R200 "Content-Length:\r\n\r\n")},
		{BYTES(R200 "Content-Length: -1\r\n\r\n")},
		{BYTES(R200 "Content-Length: +5\r\n\r\n")},
		{BYTES(R200 "Content-Length: 0x5\r\n\r\n")},
		{BYTES(R200 "Content-Length: 9223372036854775808\r\n\r\n")},
		{BYTES(R200 CL5 TE "\r\n")},
		{BYTES(R200 TE CL5 "\r\n")},
		{BYTES(R200 TE TE "\r\n")},
		{BYTES(R200 "Transfer-Encoding: gzip, chunked\r\n\r\n")},
		{BYTES(R200 "Transfer-Encoding: chunked, gzip\r\n\r\n")},
		{BYTES(R200 "Transfer-Encoding: identity\r\n\r\n")},
		{BYTES(R200 "Transfer-Encoding: xchunked\r\n\r\n")},
		{BYTES(R200 "Transfer-Encoding:\r\n\r\n")},
		{BYTES("HTTP/1.0 200 OK\r\n" TE "\r\n")},
		{BYTES("HTTP/1.1 304 X\r\n" CL5 CL5 "\r\n")},
		/* Connection */
		{BYTES(R200 "Connection: content-length\r\n" CL5 "\r\n")},
		{BYTES(R200 "Connection: Set-Cookie\r\n\r\n")},
		{BYTES(R200 "Connection: a b\r\n\r\n")},
	};
	struct response r;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct str raw = str_from(rows[i].raw, rows[i].n);

		if (parse(raw, STR("GET"), &r) != -1)
			fail_msg("accepted: %.*s", STR_FMT(raw));
		response_clear(&r);
	}
}

static void test_framing(void **state)
{
	static const struct {
		const char *method, *raw;
		unsigned status;
		enum body_kind body;
		uint64_t length;
		bool has_length; /* told on */
		bool keep;
	} rows[] = {
		{"GET", R200 CL5 "\r\n", 200, BODY_LENGTH, 5, true, true},
		{"GET", R200 "Content-Length: 0\r\n\r\n", 200, BODY_LENGTH, 0, true, true},
		{"GET", R200 "content-length:0005 \r\n\r\n", 200, BODY_LENGTH, 5, true, true},
		{"GET", R200 TE "\r\n", 200, BODY_CHUNKED, 0, false, true},
		{"GET", R200 "transfer-ENCODING:\tChunked \r\n\r\n", 200, BODY_CHUNKED, 0, false,
		 true},
		{"GET", R200 "\r\n", 200, BODY_CLOSE, 0, false, false},
		{"GET", R200 "Connection: keep-alive\r\n\r\n", 200, BODY_CLOSE, 0, false, false},
		{"GET", R200 CL5 "Connection: close\r\n\r\n", 200, BODY_LENGTH, 5, true, false},
		{"GET", R200 TE "Connection: x, CLOSE\r\n\r\n", 200, BODY_CHUNKED, 0, false, false},
		{"GET", R200 TE "Connection: Transfer-Encoding\r\n\r\n", 200, BODY_CHUNKED, 0,
		 false, true},
		{"GET", "HTTP/1.0 200 OK\r\n" CL5 "\r\n", 200, BODY_LENGTH, 5, true, false},
		{"GET", "HTTP/1.0 200 OK\r\n" CL5 "Connection: keep-alive\r\n\r\n", 200,
		 BODY_LENGTH, 5, true, false},
		{"GET", "HTTP/1.1 200\r\n" CL5 "\r\n", 200, BODY_LENGTH, 5, true, true},
		{"GET", "HTTP/1.1 200 \r\n" CL5 "\r\n", 200, BODY_LENGTH, 5, true, true},
		{"GET", "HTTP/1.1 404 Nicht gefunden: \xc3\xbc\r\n" CL5 "\r\n", 404, BODY_LENGTH, 5,
		 true, true},
		{"GET", "HTTP/1.1 599 X\r\n" CL5 "\r\n", 599, BODY_LENGTH, 5, true, true},
		/* no body, whatever is said */
		{"HEAD", R200 "Content-Length: 1234\r\n\r\n", 200, BODY_NONE, 1234, true, true},
		{"HEAD", R200 TE "\r\n", 200, BODY_NONE, 0, false, true},
		{"HEAD", R200 "\r\n", 200, BODY_NONE, 0, false, true},
		{"head", R200 CL5 "\r\n", 200, BODY_LENGTH, 5, true, true},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n", 304, BODY_NONE,
		 500, true, true},
		{"GET", "HTTP/1.1 304 Not Modified\r\n" TE "\r\n", 304, BODY_NONE, 0, false, true},
		{"GET", "HTTP/1.1 304 Not Modified\r\n\r\n", 304, BODY_NONE, 0, false, true},
		{"GET", "HTTP/1.1 204 No Content\r\n" CL5 "\r\n", 204, BODY_NONE, 0, false, true},
		{"HEAD", "HTTP/1.1 204 No Content\r\n" CL5 "\r\n", 204, BODY_NONE, 0, false, true},
		{"GET", "HTTP/1.1 204 No Content\r\n" TE "\r\n", 204, BODY_NONE, 0, false, true},
		{"GET", "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", 204, BODY_NONE, 0,
		 false, false},
		{"GET", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", 205, BODY_LENGTH,
		 0, true, true},
		{"POST", "HTTP/1.1 100 Continue\r\n\r\n", 100, BODY_NONE, 0, false, true},
		{"POST", "HTTP/1.1 103 Early Hints\r\n" CL5 "\r\n", 103, BODY_NONE, 0, false, true},
		{"GET", "HTTP/1.1 101 X\r\n\r\n", 101, BODY_NONE, 0, false, true},
		{"HEAD", "HTTP/1.1 100 Continue\r\n" CL5 "\r\n", 100, BODY_NONE, 0, false, true},
	};
	struct response r;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		uint64_t length = rows[i].length;

		if (parse(str_from_c(rows[i].raw), str_from_c(rows[i].method), &r) != 0)
			fail_msg("refused: %s", rows[i].raw);
		if (r.status != rows[i].status || r.body != rows[i].body ||
		    r.has_content_length != rows[i].has_length || r.content_length != length ||
		    (r.body == BODY_LENGTH && r.length != length) || r.keep_alive != rows[i].keep)
			fail_msg("%s of\n%sstatus %u body %d length %llu has %d keep %d",
				 rows[i].method, rows[i].raw, r.status, r.body,
				 (unsigned long long)r.content_length, r.has_content_length,
				 r.keep_alive);
		response_clear(&r);
	}
}

static void test_fields(void **state)
{
	struct response r;

	(void)state;
	assert_int_equal(parse(STR("HTTP/1.1 200 Fine, thanks\r\n"
				   "Server: x\r\n"
				   "Set-Cookie: a=1\r\n"
				   "Proxy-Status: stile; error=x\r\n"
				   "set-cookie: b=2\r\n"
				   "Keep-Alive: timeout=5\r\n"
				   "Proxy-Authenticate: Basic\r\n"
				   "Alt-Svc: h3=\":443\"\r\n"
				   "X-Hop: 1\r\n"
				   "Upgrade: h2c\r\n"
				   "Connection: keep-alive, X-Hop\r\n"
				   "Trailer: X-Sum\r\n"
				   "Date: now\r\n"
				   "Content-Type: text/plain\r\n"
				   "Transfer-Encoding: chunked\r\n\r\n"),
			       STR("GET"), &r),
			 0);
	expect_fields(&r.fields, "Server=x|Set-Cookie=a=1|set-cookie=b=2|Trailer=X-Sum|Date=now|"
				 "Content-Type=text/plain|");
	assert_true(str_eq(r.reason, STR("Fine, thanks")));
	assert_int_equal(r.upgrade.n, 0);
	assert_int_equal(r.version, HTTP_11);
	response_clear(&r);
}

/* How long the origin keeps the connection: only what is plainly said counts. */
static void test_idle(void **state)
{
	static const struct {
		const char *field;
		uint32_t idle_s;
		bool keep;
	} rows[] = {
		{"", 0, true},
		{"Keep-Alive: timeout=5\r\n", 5, true},
		{"Keep-Alive: timeout=5, max=100\r\n", 5, true},
		{"keep-alive: max=100 , TimeOut = 15\r\n", 15, true},
		{"Keep-Alive: timeout=0\r\n", 0, false},
		{"Keep-Alive: timeout=999999\r\n", 999999, true},
		{"Keep-Alive: timeout=1000000\r\n", 0, true},
		{"Keep-Alive: timeout=5s\r\n", 0, true},
		{"Keep-Alive: timeout=-1\r\n", 0, true},
		{"Keep-Alive: timeout=\r\n", 0, true},
		{"Keep-Alive: timeout\r\n", 0, true},
		{"Keep-Alive: 300\r\n", 0, true},
		{"Keep-Alive:\r\n", 0, true},
		{"Keep-Alive: timeout=5\r\nKeep-Alive: timeout=7\r\n", 5, true},
		{"Keep-Alive: timeout=5\r\nConnection: close\r\n", 5, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct response r;
		char raw[256];

		snprintf(raw, sizeof(raw), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n%s\r\n",
			 rows[i].field);
		assert_int_equal(parse(str_from_c(raw), STR("GET"), &r), 0);
		if (r.idle_s != rows[i].idle_s || r.keep_alive != rows[i].keep)
			fail_msg("%s: idle %u keep %d", rows[i].field, r.idle_s, r.keep_alive);
		response_clear(&r);
	}
}

static void test_upgrade(void **state)
{
	struct response r;

	(void)state;
	assert_int_equal(parse(STR("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
				   "Connection: upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"),
			       STR("GET"), &r),
			 0);
	assert_true(str_eq(r.upgrade, STR("websocket")));
	expect_fields(&r.fields, "Sec-WebSocket-Accept=x|");
	response_clear(&r);
	assert_int_equal(parse(STR("HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n"), STR("GET"), &r),
			 0);
	assert_int_equal(r.upgrade.n, 0);
	response_clear(&r);
}

static void test_limits(void **state)
{
	static char mem[LIMIT_HEAD_BYTES + 64];
	struct response r;
	size_t n = strlen(R200);

	(void)state;
	memcpy(mem, R200 "X: ", n + 3);
	memset(mem + n + 3, 'v', sizeof(mem) - n - 3);
	assert_int_equal(parse(str_from(mem, sizeof(mem)), STR("GET"), &r), -1);
	response_clear(&r);
	memcpy(mem + LIMIT_HEAD_BYTES - 4, "\r\n\r\n", 4);
	assert_int_equal(parse(str_from(mem, LIMIT_HEAD_BYTES), STR("GET"), &r), 0);
	assert_int_equal(r.fields.n, 1);
	response_clear(&r);
	/* a name without end */
	memset(mem + n, 'n', 300);
	assert_int_equal(parse(str_from(mem, n + 300), STR("GET"), &r), -1);
	response_clear(&r);
}

static void test_unfinished(void **state)
{
	static const char head[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
	struct response r;

	(void)state;
	for (size_t n = 0; n < sizeof(head) - 1; n++) {
		struct h1_scan scan = {.response = true};
		size_t len;

		assert_int_equal(h1_scan_head(&scan, str_from(head, n), LIMIT_HEAD_BYTES, &len,
					      NULL),
				 0);
		assert_int_equal(h1_parse_response(str_from(head, n), STR("GET"), &r, NULL), -1);
		response_clear(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),	   cmocka_unit_test(test_framing),
		cmocka_unit_test(test_fields),	   cmocka_unit_test(test_idle),
		cmocka_unit_test(test_upgrade),	   cmocka_unit_test(test_limits),
		cmocka_unit_test(test_unfinished),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
