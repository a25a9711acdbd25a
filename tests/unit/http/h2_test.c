/*
 * HTTP/2: heads read and written, the same as HTTP/1 gives; two connections that talk to each other
 * in memory, with their windows; trailers; resets; what is too much.
 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "h2_fixture.h"
#include "logging/limits.h"
#include "proxy/http/h2_conn.h"

static void test_same_as_h1(void **state)
{
	static const struct {
		const char *h2, *h1;
		bool end;
	} rows[] = {
		{":method: GET\n:scheme: https\n:authority: a.test\n:path: /x%7ey?q=%2f\naccept: "
		 "a\n",
		 "GET /x%7ey?q=%2f HTTP/1.1\r\nHost: a.test\r\naccept: a\r\n\r\n", true},
		{":method: POST\n:scheme: https\n:authority: A.TEST:443\n:path: /\ncontent-length: "
		 "5\n"
		 "cookie: a=1\nx: y\ncookie: b=2\nte: trailers\nexpect: 100-continue\n",
		 "POST / HTTP/1.1\r\nHost: A.TEST:443\r\ncontent-length: 5\r\ncookie: a=1; "
		 "b=2\r\nx: "
		 "y\r\nTE: trailers\r\nConnection: TE\r\nexpect: 100-continue\r\n\r\n",
		 false},
		{":method: GET\n:scheme: https\n:authority: a.test\n:path: /\ncookie: \n"
		 "cookie: b=2\ncookie: \n",
		 "GET / HTTP/1.1\r\nHost: a.test\r\ncookie: ; b=2;\r\n\r\n", true},
		{":method: PUT\n:scheme: https\n:path: /\nhost: a.test\n",
		 "PUT / HTTP/1.1\r\nhost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n", false},
	};
	struct h1_context ctx = inside();

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct h2_head h = head_of(rows[i].h2, rows[i].end);
		struct request a, b;
		struct strbuf x, y;
		struct err e = ERR_INIT;

		if (h2_read_request(&h, &ctx, &a, &e) < 0)
			fail_msg("%zu: %s", i, e.text);
		assert_int_equal(h1_parse_request(str_from_c(rows[i].h1), &ctx, &b, &e), 0);
		/* Written alike: nothing of how it came is left. */
		strbuf_init(&x, 65536);
		strbuf_init(&y, 65536);
		assert_int_equal(h1_write_request(&a, NULL, STR_NONE, &x), 0);
		assert_int_equal(h1_write_request(&b, NULL, STR_NONE, &y), 0);
		assert_string_equal(strbuf_cstr(&x), strbuf_cstr(&y));
		assert_int_equal(a.version, HTTP_2);
		assert_int_equal(a.length, b.length);
		strbuf_clear(&x);
		strbuf_clear(&y);
		request_clear(&a);
		request_clear(&b);
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *more;
		enum reason reason;
	} rows[] = {
		{"connection: close\n", REASON_MALFORMED_REQUEST},
		{"transfer-encoding: chunked\n", REASON_MALFORMED_REQUEST},
		{"te: gzip\n", REASON_MALFORMED_REQUEST},
		{"Upper: x\n", REASON_MALFORMED_REQUEST},
		{"x: a\rb\n", REASON_MALFORMED_REQUEST},
		{"x:  a\n", REASON_MALFORMED_REQUEST},
		{":path: /y\n", REASON_MALFORMED_REQUEST},
		{"x: y\n:z: 1\n", REASON_MALFORMED_REQUEST},
		{"content-length: 1\n", REASON_MALFORMED_REQUEST},
		{"host: b.test\n", REASON_NAME_MISMATCH},
		{"expect: x\n", REASON_EXPECTATION_FAILED},
		{"cookie: a\ncookie: b\rccccccccccccccccccccc\n", REASON_MALFORMED_REQUEST},
		{"cookie: a\rb\ncookie: ccccccccccccccccccccc\n", REASON_MALFORMED_REQUEST},
	};
	struct h1_context ctx = inside();

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char text[512];
		struct h2_head h;
		struct request r;
		struct err e = ERR_INIT;

		snprintf(text, sizeof(text),
			 ":method: GET\n:scheme: https\n:authority: a.test\n:path: /x\n%s",
			 rows[i].more);
		h = head_of(text, true);
		assert_int_equal(h2_read_request(&h, &ctx, &r, &e), -1);
		if (e.reason != rows[i].reason)
			fail_msg("%s: %s", rows[i].more, e.text);
		assert_true(str_eq(r.method, STR("GET"))); /* for the record */
		request_clear(&r);
	}
}

static void test_bounds(void **state)
{
	struct h1_context ctx = inside();
	struct h2_head h =
		head_of(":method: GET\n:scheme: https\n:authority: a.test\n:path: /x\n", true);
	struct request r;
	struct err e = ERR_INIT;
	char *big = calloc(1, 4000);

	(void)state;
	memset(big, 'x', 4000);
	for (int i = 0; i < 100000; i++)
		h2_head_add(&h, STR("x"), str_from(big, 4000));
	assert_true(h.over && h.mem_n <= LIMIT_HEAD_BYTES);
	assert_int_equal(h2_read_request(&h, &ctx, &r, &e), -1);
	assert_int_equal(e.reason, REASON_HEAD_TOO_LARGE);
	request_clear(&r);
	free(big);
}

/* ---- two connections ---- */

static struct h2_fields fields_of(const char *text, bool response)
{
	struct h2_head h = head_of(text, true);
	struct h2_fields f = {0};
	struct h1_context ctx = inside();
	struct request q;
	struct response r;

	if (response) {
		assert_int_equal(h2_read_response(&h, STR("GET"), &r, NULL), 0);
		r.body = BODY_CHUNKED;
		assert_int_equal(h2_write_response(&r, &f), 0);
		response_clear(&r);
	} else {
		assert_int_equal(h2_read_request(&h, &ctx, &q, NULL), 0);
		assert_int_equal(h2_write_request(&q, NULL, STR_NONE, &f), 0);
		request_clear(&q);
	}
	return f;
}

static struct pair open_pair(struct h2_stream **ret_client, struct h2_stream **ret_server)
{
	struct pair p = {0};
	struct h2_fields f =
		fields_of(":method: POST\n:scheme: https\n:authority: a.test\n:path: /\n", false);
	struct h2_head *h;

	assert_int_equal(h2_conn_new(false, &p.client, NULL), 0);
	assert_int_equal(h2_conn_new(true, &p.server, NULL), 0);
	run(&p);
	*ret_client = h2_stream_open(p.client, &f, true);
	assert_non_null(*ret_client);
	h2_fields_clear(&f);
	run(&p);
	*ret_server = h2_conn_ready(p.server);
	assert_non_null(*ret_server);
	h = h2_stream_take_head(*ret_server);
	assert_non_null(h);
	assert_false(h->end_stream);
	h2_head_clear(h);
	free(h);
	return p;
}

/* Nothing is sent beyond the window that the reader's taking opens. */
static void test_window(void **state)
{
	struct h2_stream *c, *s;
	struct pair p = open_pair(&c, &s);
	char *data = calloc(1, LIMIT_H2_STREAM_OUT_BYTES);
	size_t sent = 0;

	(void)state;
	for (int i = 0; i < 10; i++) {
		size_t n = h2_stream_room(c);

		assert_int_equal(h2_stream_write(c, str_from(data, n)), 0);
		sent += n;
		run(&p);
	}
	assert_int_equal(h2_stream_data(s).n, LIMIT_H2_STREAM_WINDOW);
	assert_int_equal(sent, LIMIT_H2_STREAM_WINDOW + LIMIT_H2_STREAM_OUT_BYTES);
	h2_stream_consume(s, LIMIT_H2_STREAM_WINDOW);
	run(&p);
	assert_int_equal(h2_stream_data(s).n, LIMIT_H2_STREAM_WINDOW);
	assert_true(h2_stream_room(c) > 0);
	free(data);
	close_pair(&p);
}

static void test_answer_and_trailers(void **state)
{
	struct h2_stream *c, *s;
	struct pair p = open_pair(&c, &s);
	struct h2_fields f = fields_of(":status: 200\n", true), t = {0};
	struct field one = {STR("X-Sum"), STR("7")};
	struct fields trailers = {.v = &one, .n = 1, .cap = 1}, got = {0};
	struct h2_head *h;

	(void)state;
	assert_int_equal(h2_write_trailers(&trailers, &t), 0);
	assert_int_equal(h2_stream_respond(s, &f, true), 0);
	assert_int_equal(h2_stream_write(s, STR("hello")), 0);
	h2_stream_end(s, &t);
	run(&p);
	h = h2_stream_take_head(c);
	assert_non_null(h);
	h2_head_clear(h);
	free(h);
	assert_true(str_eq(h2_stream_data(c), STR("hello")));
	assert_true(c->got_end && c->trailers);
	assert_int_equal(h2_read_trailers(c->trailers, &got, NULL), 0);
	assert_true(got.n == 1 && str_eq(got.v[0].name, STR("x-sum")));
	fields_clear(&got);
	h2_fields_clear(&f);
	close_pair(&p);
}

static void test_length_disagrees(void **state)
{
	struct h2_stream *c, *s;
	struct pair p = open_pair(&c, &s);

	(void)state;
	h2_stream_expect(s, 3);
	assert_int_equal(h2_stream_write(c, STR("four")), 0);
	run(&p);
	assert_true(s->bad_length);
	assert_int_equal(h2_stream_data(s).n, 0);
	close_pair(&p);
}

static void test_cut_and_reset(void **state)
{
	struct h2_stream *c, *s;
	struct pair p = open_pair(&c, &s);
	struct h2_fields f = fields_of(":status: 200\n", true);

	(void)state;
	assert_int_equal(h2_stream_respond(s, &f, true), 0);
	assert_int_equal(h2_stream_write(s, STR("part")), 0);
	h2_stream_cut(s);
	run(&p);
	/* What was there arrives; then it is reset, and cannot pass for whole. */
	assert_true(str_eq(h2_stream_data(c), STR("part")));
	assert_true(c->closed && c->reset && c->by_peer && !c->got_end);
	h2_stream_free(c);
	h2_fields_clear(&f);
	close_pair(&p);
}

/* Before the origin said how many streams it takes, one is sent; then the others. */
static void test_first_settings_are_awaited(void **state)
{
	struct h2_fields f =
		fields_of(":method: GET\n:scheme: https\n:authority: a.test\n:path: /\n", false);
	struct pair p;
	size_t begun = 0;

	(void)state;
	assert_int_equal(h2_conn_new(false, &p.client, NULL), 0);
	assert_int_equal(h2_conn_new(true, &p.server, NULL), 0);
	for (size_t i = 0; i < 3; i++) {
		assert_true(h2_conn_has_room(p.client, i));
		assert_non_null(h2_stream_open(p.client, &f, false));
	}
	while (move(p.client, p.server))
		;
	while (h2_conn_ready(p.server))
		begun++;
	assert_int_equal(begun, LIMIT_H2_STREAMS_UNTOLD);
	run(&p);
	while (h2_conn_ready(p.server))
		begun++;
	assert_int_equal(begun, 3);
	h2_fields_clear(&f);
	close_pair(&p);
}

static void test_goaway(void **state)
{
	struct h2_stream *c, *s;
	struct pair p = open_pair(&c, &s);
	struct h2_fields f =
		fields_of(":method: GET\n:scheme: https\n:authority: a.test\n:path: /\n", false);
	struct h2_stream *late;

	(void)state;
	assert_true(h2_conn_has_room(p.client, 1));
	h2_conn_goaway(p.server);
	late = h2_stream_open(p.client, &f, false); /* crosses the GOAWAY */
	assert_non_null(late);
	(void)move(p.client, p.server);
	run(&p);
	assert_true(late->closed && late->reset_code == H2_REFUSED_STREAM);
	assert_false(h2_conn_has_room(p.client, 1));
	assert_false(c->closed);
	h2_fields_clear(&f);
	close_pair(&p);
}

static void test_floods(void **state)
{
	static const char ping[] = "\0\0\10\6\0\0\0\0\0"
				   "12345678";
	struct h2_stream *c, *s;
	struct pair p = open_pair(&c, &s);
	struct err e = ERR_INIT;
	int rc = 0, n = 0;

	(void)state;
	for (; rc == 0 && n < 10000; n++)
		rc = h2_conn_recv(p.server, str_from(ping, 17), 2000000, &e);
	assert_int_equal(rc, -1);
	assert_int_equal(e.reason, REASON_RATE_LIMITED);
	assert_true(n <= LIMIT_H2_CONTROL + 2);
	assert_true(h2_conn_send(p.server).n > 0); /* GOAWAY or what was before it */
	close_pair(&p);
}

/* What nghttp2 gives up on without a GOAWAY of its own: here a CONTINUATION byte by byte. */
static void test_the_end_says_why(void **state)
{
	static const char head[] = "\0\0\3\1\1\0\0\0\1\x82\x87\x84"
				   "\0\0\1\x9\0\0\0\0\1\x84"
				   "\0\0\1\x9\0\0\0\0\1\x84";
	struct str preface = STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0");
	struct h2_conn *c;
	struct str sent;
	struct err e = ERR_INIT;
	bool any = false;
	int rc;

	(void)state;
	assert_int_equal(h2_conn_new(true, &c, &e), 0);
	assert_int_equal(h2_conn_recv(c, preface, 1, &e), 0);
	while (h2_conn_send(c).n > 0)
		;
	rc = 0;
	for (size_t i = 0; rc == 0 && i < sizeof(head) - 1; i++)
		rc = h2_conn_recv(c, str_from(head + i, 1), 1, &e);
	assert_int_equal(rc, -1);
	assert_int_equal(e.reason, REASON_HEAD_TOO_LARGE);
	while ((sent = h2_conn_send(c)).n > 0)
		any |= sent.n > 3 && sent.p[3] == 7;
	assert_true(any);
	h2_conn_free(c);
}

static void test_secrets_are_not_indexed(void **state)
{
	struct field one = {STR("X-Api-Key"), STR("secret")};
	struct fields extra = {.v = &one, .n = 1, .cap = 1};
	struct h2_head h = head_of(":method: GET\n:scheme: https\n:authority: a.test\n:path: /\n"
				   "cookie: a\nx: y\n",
				   true);
	struct h1_context ctx = inside();
	struct h2_fields f;
	struct request q;

	(void)state;
	assert_int_equal(h2_read_request(&h, &ctx, &q, NULL), 0);
	assert_int_equal(h2_write_request(&q, &extra, STR("key=s"), &f), 0);
	for (size_t i = 0; i < f.n; i++)
		assert_int_equal(f.v[i].secret, str_eq(f.v[i].name, STR("x-api-key")) ||
							str_eq(f.v[i].name, STR("cookie")) ||
							str_eq(f.v[i].name, STR(":path")));
	h2_fields_clear(&f);
	request_clear(&q);
}

/* A sanitizer's own free is not to be replaced. */
#if !HAS_ADDRESS_SANITIZER && !defined(__SANITIZE_THREAD__)
#define WATCHES 1
#define SECRET	"s3cr3t-of-a-body"

static bool watching;
static size_t shown; /* so often it stood in what was freed */

extern void __libc_free(void *p);

void free(void *p)
{
	if (watching && p && memmem(p, malloc_usable_size(p), SECRET, sizeof(SECRET) - 1))
		shown++;
	__libc_free(p);
}

/* Into a request's body a credential may have been swapped. */
static void test_what_goes_to_an_origin_is_wiped(void **state)
{
	struct h2_stream *c, *s;
	struct pair p = open_pair(&c, &s);
	char padding[3000];

	(void)state;
	memset(padding, 'x', sizeof(padding));
	watching = true;
	assert_int_equal(h2_stream_write(c, STR(SECRET)), 0);
	for (int i = 0; i < 4; i++) /* it grows */
		assert_int_equal(h2_stream_write(c, str_from(padding, sizeof(padding))), 0);
	run(&p);
	watching = false;
	assert_int_equal(h2_stream_data(s).n, sizeof(SECRET) - 1 + 4 * sizeof(padding));
	assert_int_equal(shown, 0);
	close_pair(&p);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_as_h1),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_answer_and_trailers),
		cmocka_unit_test(test_length_disagrees),
		cmocka_unit_test(test_cut_and_reset),
		cmocka_unit_test(test_first_settings_are_awaited),
		cmocka_unit_test(test_goaway),
		cmocka_unit_test(test_floods),
		cmocka_unit_test(test_the_end_says_why),
		cmocka_unit_test(test_secrets_are_not_indexed),
#ifdef WATCHES
		cmocka_unit_test(test_what_goes_to_an_origin_is_wiped),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
