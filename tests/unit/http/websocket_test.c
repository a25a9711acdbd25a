/*
 * The opening of a WebSocket: which handshakes are whole, what answers one, that HTTP/1 and HTTP/2
 * (RFC 8441) give the same request and are written from it, and what a stream is once it is a
 * tunnel.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "h2_fixture.h"
#include "proxy/http/h2_conn.h"
#include "proxy/http/websocket.h"

#define KEY "dGhlIHNhbXBsZSBub25jZQ=="
#define GET                                                                                        \
	"GET /x HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"         \
	"Sec-WebSocket-Version: 13\r\n"
#define KEYED	GET "Sec-WebSocket-Key: " KEY "\r\n"
#define YES	"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
#define ACCEPT	"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" /* RFC 6455 section 1.3 */
#define CONNECT ":method: CONNECT\n:scheme: https\n:authority: a.test\n:path: /x\n"
#define SOCKET	CONNECT ":protocol: websocket\nsec-websocket-version: 13\n"

static int read_h1(const char *text, struct request *r, struct err *e)
{
	struct h1_context ctx = inside();

	return h1_parse_request(str_from_c(text), &ctx, r, e);
}

static int read_h2(const char *text, struct request *r, struct err *e)
{
	struct h1_context ctx = inside();
	struct h2_head h = head_of(text, false);

	return h2_read_request(&h, &ctx, r, e);
}

static void test_requests(void **state)
{
	static const struct {
		const char *text;
		bool ok;
	} rows[] = {
		{KEYED "\r\n", true},
		{KEYED "Content-Length: 0\r\n\r\n", true},
		{GET "\r\n", false},
		{KEYED "Sec-WebSocket-Key: " KEY "\r\n\r\n", false},
		{KEYED "Sec-WebSocket-Version: 13\r\n\r\n", false},
		{KEYED "Content-Length: 1\r\n\r\n", false},
		{KEYED "Transfer-Encoding: chunked\r\n\r\n", false},
		{GET "Sec-WebSocket-Key: AAAA\r\n\r\n", false},
		{GET "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n", false},
		{GET "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAA!A==\r\n\r\n", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct request r;
		struct err e = ERR_INIT;

		assert_int_equal(read_h1(rows[i].text, &r, &e), 0);
		assert_true(r.websocket);
		if ((websocket_check_request(&r, &e) == 0) != rows[i].ok)
			fail_msg("%s", rows[i].text);
		assert_int_equal(e.reason, rows[i].ok ? REASON_NONE : REASON_UPGRADE_REFUSED);
		request_clear(&r);
	}
}

static void test_responses(void **state)
{
	static const struct {
		const char *asked, *text;
		bool ok;
	} rows[] = {
		{KEYED "\r\n", YES ACCEPT "\r\n", true},
		{KEYED "Sec-WebSocket-Protocol: a, b\r\n\r\n",
		 YES ACCEPT "Sec-WebSocket-Protocol: b\r\n\r\n", true},
		{KEYED "Sec-WebSocket-Extensions: x; y=1\r\n\r\n",
		 YES ACCEPT "Sec-WebSocket-Extensions: x; z\r\n\r\n", true},
		{KEYED "\r\n", YES "\r\n", false},
		{KEYED "\r\n", YES ACCEPT ACCEPT "\r\n", false},
		{KEYED "\r\n", YES "Sec-WebSocket-Accept: " KEY "\r\n\r\n", false},
		{KEYED "\r\n", YES ACCEPT "Sec-WebSocket-Protocol: b\r\n\r\n", false},
		{KEYED "\r\n", YES ACCEPT "Sec-WebSocket-Extensions: x\r\n\r\n", false},
		{KEYED "\r\n",
		 "HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n" ACCEPT "\r\n", false},
		{"GET /x HTTP/1.1\r\nHost: a.test\r\nSec-WebSocket-Key: " KEY "\r\n\r\n",
		 YES ACCEPT "\r\n", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct request q;
		struct response r;
		struct err e = ERR_INIT;

		assert_int_equal(read_h1(rows[i].asked, &q, &e), 0);
		assert_int_equal(h1_parse_response(str_from_c(rows[i].text), STR("GET"), &r, &e),
				 0);
		if ((websocket_check_response(&q, &r, &e) == 0) != rows[i].ok)
			fail_msg("%s", rows[i].text);
		assert_int_equal(e.reason, rows[i].ok ? REASON_NONE : REASON_UPSTREAM_MALFORMED);
		request_clear(&q);
		response_clear(&r);
	}
}

/* ---- HTTP/2 ---- */

static void test_same_as_h1(void **state)
{
	struct request a, b;
	struct strbuf x, y;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(read_h2(SOCKET "origin: o\nte: trailers\nsec-websocket-key: "
					"AAAAAAAAAAAAAAAAAAAAAA==\ncookie: a\ncookie: b\n",
				 &a, &e),
			 0);
	assert_int_equal(read_h1("GET /x HTTP/1.1\r\nHost: a.test\r\nsec-websocket-version: 13\r\n"
				 "origin: o\r\ncookie: a; b\r\nSec-WebSocket-Key: " KEY
				 "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
				 &b, &e),
			 0);
	/* The client's key is gone: that is the caller's to make. */
	assert_int_equal(websocket_check_request(&a, &e), -1);
	assert_int_equal(fields_add(&a.fields, STR("Sec-WebSocket-Key"), STR(KEY)), 0);
	assert_int_equal(websocket_check_request(&a, &e), 0);
	strbuf_init(&x, 65536);
	strbuf_init(&y, 65536);
	assert_int_equal(h1_write_request(&a, NULL, STR_NONE, &x), 0);
	assert_int_equal(h1_write_request(&b, NULL, STR_NONE, &y), 0);
	assert_string_equal(strbuf_cstr(&x), strbuf_cstr(&y));
	assert_true(str_eq(a.method, STR("GET")) && a.version == HTTP_2);
	strbuf_clear(&x);
	strbuf_clear(&y);
	request_clear(&a);
	request_clear(&b);
}

static void test_refused(void **state)
{
	static const struct {
		const char *text;
		enum reason reason;
	} rows[] = {
		{CONNECT, REASON_MALFORMED_REQUEST},
		{CONNECT ":protocol: connect-udp\n", REASON_UPGRADE_REFUSED},
		{CONNECT ":protocol: Websocket\n", REASON_UPGRADE_REFUSED},
		{CONNECT ":protocol: \n", REASON_UPGRADE_REFUSED},
		{SOCKET ":protocol: websocket\n", REASON_MALFORMED_REQUEST},
		{SOCKET "content-length: 0\n", REASON_MALFORMED_REQUEST},
		{SOCKET "upgrade: websocket\n", REASON_MALFORMED_REQUEST},
		{SOCKET "host: b.test\n", REASON_NAME_MISMATCH},
		{":method: GET\n:scheme: https\n:authority: a.test\n:path: /x\n"
		 ":protocol: websocket\n",
		 REASON_MALFORMED_REQUEST},
		{":method: CONNECT\n:scheme: wss\n:authority: a.test\n:path: /x\n"
		 ":protocol: websocket\n",
		 REASON_MALFORMED_REQUEST},
		{":method: CONNECT\n:authority: a.test\n:protocol: websocket\n",
		 REASON_MALFORMED_REQUEST},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct request r;
		struct err e = ERR_INIT;

		assert_int_equal(read_h2(rows[i].text, &r, &e), -1);
		if (e.reason != rows[i].reason)
			fail_msg("%s: %s", rows[i].text, e.text);
		request_clear(&r);
	}
}

static struct str value_of(const struct h2_fields *f, const char *name)
{
	struct str found = STR_NONE;

	for (size_t i = 0; i < f->n; i++)
		if (str_eq(f->v[i].name, str_from_c(name))) {
			assert_null(found.p);
			found = f->v[i].value;
		}
	return found;
}

static void test_written(void **state)
{
	struct h2_fields f;
	struct request q;
	struct response r;

	(void)state;
	assert_int_equal(read_h1(KEYED "Origin: o\r\n\r\n", &q, NULL), 0);
	assert_int_equal(h2_write_request(&q, NULL, STR_NONE, &f), 0);
	assert_true(str_eq(value_of(&f, ":method"), STR("CONNECT")));
	assert_true(str_eq(value_of(&f, ":protocol"), STR("websocket")));
	assert_true(str_eq(value_of(&f, ":scheme"), STR("https")));
	assert_true(str_eq(value_of(&f, ":authority"), STR("a.test")));
	assert_true(str_eq(value_of(&f, ":path"), STR("/x")));
	assert_true(str_eq(value_of(&f, "origin"), STR("o")));
	assert_null(value_of(&f, "sec-websocket-key").p);
	h2_fields_clear(&f);
	request_clear(&q);

	assert_int_equal(h1_parse_response(STR(YES ACCEPT "Sec-WebSocket-Protocol: b\r\n\r\n"),
					   STR("GET"), &r, NULL),
			 0);
	assert_int_equal(h2_write_response(&r, &f), 0);
	assert_int_equal(f.n, 2);
	assert_true(str_eq(value_of(&f, ":status"), STR("200")));
	assert_true(str_eq(value_of(&f, "sec-websocket-protocol"), STR("b")));
	h2_fields_clear(&f);
	r.upgrade = STR("h2c");
	assert_int_equal(h2_write_response(&r, &f), -1);
	response_clear(&r);
}

static void test_answers(void **state)
{
	static const struct {
		const char *text;
		unsigned status; /* 0: malformed */
	} rows[] = {
		{":status: 200\n", 101}, {":status: 200\ncontent-length: 5\n", 101},
		{":status: 403\n", 403}, {":status: 103\n", 103},
		{":status: 201\n", 0},	 {":status: 204\n", 0},
		{":status: 101\n", 0},
	};
	struct request one, two;

	(void)state;
	assert_int_equal(read_h1(KEYED "\r\n", &one, NULL), 0);
	assert_int_equal(read_h2(SOCKET, &two, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct h2_head h = head_of(rows[i].text, false);
		struct response r;
		struct err e = ERR_INIT;
		int rc = h2_read_response(&h, STR("CONNECT"), &r, &e);

		assert_int_equal(rc, rows[i].status ? 0 : -1);
		if (rc == 0)
			assert_int_equal(r.status, rows[i].status);
		if (r.status == 101 && rc == 0) {
			/* No proof is there: enough in HTTP/2 alone. */
			assert_int_equal(websocket_check_response(&two, &r, &e), 0);
			assert_int_equal(websocket_check_response(&one, &r, &e), -1);
		}
		response_clear(&r);
	}
	for (unsigned status = 200; status < 600; status += 50) {
		struct response r = {.version = HTTP_11, .status = status};
		struct err e = ERR_INIT;

		assert_int_equal(websocket_check_refusal(&one, &r, &e), 0);
		assert_int_equal(websocket_check_refusal(&two, &r, &e), status < 300 ? -1 : 0);
	}
	request_clear(&one);
	request_clear(&two);
}

static void test_keys(void **state)
{
	char a[WEBSOCKET_KEY_MAX], b[WEBSOCKET_KEY_MAX];
	char accept[WEBSOCKET_ACCEPT_MAX];

	(void)state;
	assert_int_equal(websocket_new_key(a), 0);
	assert_int_equal(websocket_new_key(b), 0);
	assert_int_equal(strlen(a), 24);
	assert_string_not_equal(a, b);
	assert_int_equal(websocket_accept(STR(KEY), accept), 0);
	assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

/* ---- a stream that is a tunnel ---- */

static struct pair connected(void)
{
	struct pair p = {0};
	struct response r = {.status = 101, .upgrade = STR("websocket")};
	struct h2_fields f;
	struct request q;

	assert_int_equal(h2_conn_new(false, &p.client, NULL), 0);
	assert_int_equal(h2_conn_new(true, &p.server, NULL), 0);
	assert_int_equal(h2_conn_takes_connect(p.client), -1);
	run(&p);
	assert_int_equal(h2_conn_takes_connect(p.client), 1);
	assert_int_equal(h2_conn_takes_connect(p.server), 0);
	assert_int_equal(read_h2(SOCKET, &q, NULL), 0);
	assert_int_equal(h2_write_request(&q, NULL, STR_NONE, &f), 0);
	p.c = h2_stream_open(p.client, &f, true);
	h2_fields_clear(&f);
	request_clear(&q);
	run(&p);
	p.s = h2_conn_ready(p.server);
	assert_non_null(p.s);
	drop_head(p.s);
	h2_stream_connect(p.s);
	assert_int_equal(h2_write_response(&r, &f), 0);
	assert_int_equal(h2_stream_respond(p.s, &f, true), 0);
	h2_fields_clear(&f);
	run(&p);
	drop_head(p.c);
	h2_stream_connect(p.c);
	return p;
}

/* A server that has ended its way is still told all that comes. */
static void test_each_way_ends_by_itself(void **state)
{
	struct pair p = connected();

	(void)state;
	assert_int_equal(h2_stream_write(p.s, STR("bye")), 0);
	h2_stream_end(p.s, NULL);
	run(&p);
	assert_true(str_eq(h2_stream_data(p.c), STR("bye")) && p.c->got_end && !p.c->closed);
	assert_int_equal(h2_stream_write(p.c, STR("later")), 0);
	run(&p);
	assert_true(str_eq(h2_stream_data(p.s), STR("later")) && !p.s->closed);
	h2_stream_end(p.c, NULL);
	run(&p);
	assert_true(p.s->closed && !p.s->reset && p.c->closed && !p.c->reset);
	h2_stream_free(p.c);
	h2_stream_free(p.s);
	close_pair(&p);
}

static void test_a_cut_is_a_cancel(void **state)
{
	struct pair p = connected();

	(void)state;
	assert_int_equal(h2_stream_write(p.s, STR("part")), 0);
	h2_stream_cut(p.s);
	run(&p);
	assert_true(str_eq(h2_stream_data(p.c), STR("part")));
	assert_true(p.c->closed && p.c->reset && p.c->by_peer);
	assert_int_equal(p.c->reset_code, 8);
	close_pair(&p);

	p = connected();
	h2_stream_cut(p.c);
	run(&p);
	assert_true(p.s->closed && p.s->reset && p.s->by_peer);
	assert_int_equal(p.s->reset_code, 8);
	close_pair(&p);
}

static void test_only_data_may_come(void **state)
{
	struct field one = {STR("x"), STR("y")};
	struct fields trailers = {.v = &one, .n = 1, .cap = 1};
	struct h2_fields t;
	struct pair p = connected();

	(void)state;
	assert_int_equal(h2_write_trailers(&trailers, &t), 0);
	h2_stream_end(p.c, &t);
	run(&p);
	assert_true(p.s->bad_sequence);
	close_pair(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_responses),
		cmocka_unit_test(test_same_as_h1),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_written),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_each_way_ends_by_itself),
		cmocka_unit_test(test_a_cut_is_a_cancel),
		cmocka_unit_test(test_only_data_may_come),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
