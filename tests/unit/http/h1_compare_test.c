/*
 * The readers and writers of HTTP/1 heads beside the plain ones of h1_plain.h, over heads that are
 * put together from common pieces and then broken in places: the same verdict, the same slices, the
 * same words. Each text lies in memory that ends where it ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "h1_plain.h"
#include "tests/unit/pieces.h"

#define HEADS 60000

static void add_run(struct strbuf *b, size_t max)
{
	for (size_t n = below(max); n > 0; n--)
		strbuf_addc(b, (char)(below(20) == 0 ? below(256) : 'a' + below(26)));
}

static void add_name(struct strbuf *b)
{
	strbuf_adds(b, PICK("Host", "User-Agent", "Accept", "Content-Length", "content-length",
			    "Transfer-Encoding", "X-Forwarded-For", "A", "", "x.y!z",
			    "Content_Length", "Connection", "Sec-WebSocket-Key", "Cookie",
			    "X-Http-Method-Override", "Proxy-Thing", "TE", "Expect"));
	if (below(12) == 0)
		add_run(b, 40);
}

/* Around the bound of a name. */
static void add_long_name(struct strbuf *b)
{
	for (size_t n = LIMIT_FIELD_NAME_BYTES - 2 + below(5); n > 0; n--)
		strbuf_addc(b, 'n');
}

static void make_line(struct strbuf *b)
{
	if (below(40) == 0)
		add_long_name(b);
	else
		add_name(b);
	strbuf_adds(b, PICK(":", ":", ":", ": ", ": ", ":\t ", " :", ""));
	strbuf_adds(b, PICK("h.test", "bench", "*/*", "", "1", "chunked", "a\tb", " \t", "close",
			    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
			    "\xc3\xa9", "keep-alive, x-a"));
	if (below(3) == 0)
		add_run(b, 90);
	strbuf_adds(b, PICK("", "", "", "", " ", "\t", " \t "));
	strbuf_adds(b, below(60) == 0 ? PICK("\n", "\r", "\r\r\n", "\n\r\n") : "\r\n");
}

static void add_first_line(struct strbuf *b, bool response)
{
	if (below(30) == 0)
		strbuf_adds(b, PICK("\r\n", "\r\n\r\n", "\n", " ", "\x16\x03\x01",
				    "PRI * HTTP/2.0\r\n"));
	if (response) {
		strbuf_adds(b, PICK("HTTP/1.1 200 OK", "HTTP/1.0 404 Not Found", "HTTP/1.1 200",
				    "HTTP/2 200 OK", "ICY 200 OK", "HTTP/1.1 99 x",
				    "HTTP/1.1  200 OK"));
	} else {
		strbuf_adds(b,
			    PICK("GET", "GET", "POST", "PRI", "get", "M-SEARCH", "", "OPTIONS",
				 "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMN", "ABCDEFGHIJKLMNOPQ"));
		strbuf_adds(b, below(40) ? " " : PICK("", "  ", "\t"));
		strbuf_adds(b, PICK("/", "http://h.test/a/b?c=d", "http://h.test:80/", "*", "",
				    "h.test:443", "/\xc3\xa9", "/a\x7f"));
		if (below(3) == 0)
			add_run(b, 70);
		strbuf_adds(b, below(40) ? " " : PICK("", "  ", "\t"));
		strbuf_adds(b, below(10) ? "HTTP/1.1"
					 : PICK("HTTP/1.0", "HTTP/2.0", "HTTP/1.1 ", "", "HTTP/1.2",
						"http/1.1", "HTTP/1.10"));
	}
	strbuf_adds(b, below(60) == 0 ? PICK("\n", "\r", "\r\r\n") : "\r\n");
}

/* A head in memory of its own length. */
static char *make_head(bool response, size_t *ret_n)
{
	struct strbuf b;
	char *copy;

	strbuf_init(&b, 65536);
	add_first_line(&b, response);
	/* Around the bound of lines, all of them clean. */
	if (below(100) == 0)
		for (size_t lines = LIMIT_HEAD_FIELDS - 3 + below(6); lines > 0; lines--)
			strbuf_adds(&b, "a: b\r\n");
	for (size_t lines = below(8); lines > 0; lines--)
		make_line(&b);
	if (below(10) > 0)
		strbuf_adds(&b, "\r\n");
	if (below(10) == 0)
		add_run(&b, 40);
	for (size_t breaks = below(3) == 0 ? 1 + below(3) : 0; breaks > 0 && b.len > 0; breaks--)
		b.data[below(b.len)] =
			(char)(below(2) ? below(256) : (size_t) " \t\r\n:_\0"[below(7)]);
	*ret_n = b.len > 0 && below(6) == 0 ? below(b.len + 1) : b.len;
	copy = malloc(*ret_n ? *ret_n : 1);
	assert_non_null(copy);
	if (*ret_n > 0)
		memcpy(copy, b.data, *ret_n);
	strbuf_clear(&b);
	return copy;
}

static void same_err(const struct err *a, const struct err *b)
{
	assert_int_equal(a->reason, b->reason);
	assert_string_equal(a->text, b->text);
}

static void same_slice(struct str a, struct str b)
{
	assert_int_equal(a.n, b.n);
	if (a.n > 0)
		assert_ptr_equal(a.p, b.p);
}

static void compare_scan(struct str in, bool response)
{
	struct h1_scan a = {.response = response}, b = a;
	size_t max = below(10) == 0 ? 1 + below(200) : LIMIT_HEAD_BYTES, len_a, len_b, have = 0;

	for (int piece = 0; piece < 3; piece++) {
		struct err e = ERR_INIT, f = ERR_INIT;
		int rc;

		have = piece == 2 ? in.n : have + below(in.n - have + 1);
		len_a = len_b = 0;
		rc = h1_scan_head(&a, str_head(in, have), max, &len_a, &e);
		assert_int_equal(rc, plain_scan_head(&b, str_head(in, have), max, &len_b, &f));
		same_err(&e, &f);
		if (rc < 0)
			return;
		assert_true(rc == 0 || len_a == len_b);
		/* How far each has looked, in which only the next look is of interest, is their
		 * own. */
		assert_int_equal(a.lines, b.lines);
		assert_int_equal(a.line_start, b.line_start);
		if (rc > 0)
			return;
	}
}

static void compare_spans(struct str in)
{
	static const unsigned classes[] = {H1_TOKEN, H1_VALUE, H1_TARGET};
	size_t from = below(in.n + 1);
	struct str s = str_head(str_skip(in, from), below(in.n - from + 1));

	for (size_t i = 0; i < ARRAY_LEN(classes); i++)
		assert_int_equal(h1_span(s, classes[i]), plain_span(s, classes[i]));
}

/* Line by line; the rest of the head, or where it is at fault, is left in *rest. */
static int walk_plainly(struct str *rest, struct field *v, size_t *n, struct err *e)
{
	int rc;

	*n = 0;
	while ((rc = plain_next_field(rest, &v[*n], e)) > 0)
		if (++*n > LIMIT_HEAD_FIELDS)
			return 1;
	return rc;
}

/* Whose fields are kept is the other tests' business: those that are must be those lines. */
static void compare_fields(struct str section, bool response)
{
	static struct field v[LIMIT_HEAD_FIELDS + 2];
	struct str rest = section, one = section;
	struct fields kept = {0};
	struct h1_facts facts = {0};
	struct err e = ERR_INIT, f = ERR_INIT, g = ERR_INIT;
	size_t n, at = 0;
	int want = walk_plainly(&rest, v, &n, &f), rc;
	struct field found;

	for (size_t i = 0; i < n; i++) {
		assert_int_equal(h1_next_field(&one, &found, &e), 1);
		same_slice(found.name, v[i].name);
		same_slice(found.value, v[i].value);
	}
	if (want <= 0) {
		assert_int_equal(h1_next_field(&one, &found, &e), want);
		same_err(&e, &f);
		if (want == 0)
			same_slice(one, rest);
	}
	e = ERR_INIT;
	rc = h1_read_fields(section, response, &kept, &facts, &g);
	for (size_t i = 0; i < kept.n; i++) {
		while (at < n && v[at].name.p != kept.v[i].name.p)
			at++;
		assert_true(at < n);
		same_slice(kept.v[i].name, v[at].name);
		same_slice(kept.v[i].value, v[at++].value);
	}
	if (rc == 0)
		assert_true(want == 0 && rest.n == 0);
	/* A fault of a name in another line may come first. */
	else if (want < 0 && !strstr(g.text, "differs"))
		same_err(&g, &f);
	fields_clear(&kept);
}

static void compare_first_line(struct str in)
{
	struct str a = in, b = in, line_a = STR_NONE, line_b = STR_NONE;
	struct h1_request_line x, y;
	struct err e = ERR_INIT, f = ERR_INIT;
	int rc = h1_next_line(&a, &line_a, &e);

	assert_int_equal(rc, plain_next_line(&b, &line_b, &f));
	same_err(&e, &f);
	same_slice(a, b);
	same_slice(line_a, line_b);
	if (rc == 0) {
		rc = h1_split_request_line(line_a, &x, &e);
		assert_int_equal(rc, plain_split_request_line(line_b, &y, &f));
		same_err(&e, &f);
		same_slice(x.method, y.method);
		same_slice(x.target, y.target);
		same_slice(x.version, y.version);
		assert_int_equal(x.http, y.http);
	}
	for (int i = 0; i < 2; i++)
		compare_fields(a, i);
}

static void test_reading(void **state)
{
	(void)state;
	seed = 1;
	for (size_t i = 0; i < HEADS; i++) {
		bool response = below(3) == 0;
		size_t n;
		char *p = make_head(response, &n);

		compare_scan(str_from(p, n), response);
		compare_spans(str_from(p, n));
		compare_first_line(str_from(p, n));
		free(p);
	}
}

/* ---- writing ---- */

/* A slice of its own memory, which *mem keeps. */
static struct str some(struct strbuf *mem, bool name)
{
	strbuf_init(mem, 1000);
	if (name)
		add_name(mem);
	else
		add_run(mem, below(4) ? 20 : 80);
	return strbuf_str(mem);
}

struct message {
	struct strbuf mem[24];
	size_t mems;
	struct request q;
	struct response r;
	struct fields extra;
	struct str query;
};

static struct str keep(struct message *m, bool name)
{
	return some(&m->mem[m->mems++], name);
}

static void make_message(struct message *m)
{
	static const struct url urls[] = {
		{.scheme = SCHEME_HTTP, .port = 80, .path = {"/", 1}},
		{.scheme = SCHEME_HTTP, .port = 8080, .path = {"/a/b", 4}, .has_query = true},
		{.scheme = SCHEME_HTTPS,
		 .port = 443,
		 .path = {"/a", 2},
		 .query = {"k=v&long=query-of-more-than-sixteen", 36},
		 .has_query = true},
		{.scheme = SCHEME_HTTPS, .port = 65535, .path = {"", 0}},
	};

	*m = (struct message){0};
	m->q.url = urls[below(ARRAY_LEN(urls))];
	assert_int_equal(host_parse(below(3) ? STR("h.test") : STR("[2001:db8::1]"), &m->q.url.host,
				    NULL),
			 0);
	m->q.method = str_from_c(PICK("GET", "POST", "M-SEARCH", "a.b", "", "DELETE", "G T"));
	m->q.form = below(20) ? TARGET_ORIGIN : TARGET_AUTHORITY;
	m->q.body = m->r.body = (enum body_kind[]){BODY_NONE, BODY_LENGTH, BODY_CHUNKED}[below(3)];
	if (below(4) == 0)
		m->r.body = BODY_CLOSE;
	m->q.length = m->r.length = m->r.content_length = below(3) ? below(100000) : UINT64_MAX;
	m->r.has_content_length = below(2);
	m->q.te_trailers = below(4) == 0;
	m->q.expect_continue = below(4) == 0;
	m->q.websocket = below(8) == 0;
	m->r.status = (unsigned[]){200, 404, 101, 204, 103, 99, 599, 600, 304}[below(9)];
	m->r.reason = str_from_c(PICK("OK", "", "Not Found", "Refused by stile", "a\nb", "a\tb"));
	m->r.upgrade = str_from_c(PICK("", "websocket", "a\rb"));
	for (size_t n = below(6); n > 0; n--) {
		struct str name = keep(m, true), value = keep(m, false);

		/* Clean ones mostly, so that whole heads are compared. */
		if (below(4)) {
			name = str_from_c(
				PICK("Accept", "User-Agent", "X", "x.y", "X-Long-Name-Of-More"));
			value = str_from_c(
				PICK("", "1", "a\tb", "*/*", "bench", "a value of more than 16"));
		}
		assert_int_equal(fields_add(&m->q.fields, name, value), 0);
		assert_int_equal(fields_add(below(3) ? &m->r.fields : &m->extra, name, value), 0);
	}
	m->query = str_from_c(PICK("", "", "key=s", "k#", "k v", "longkey=0123456789abcdef"));
}

static void clear_message(struct message *m)
{
	for (size_t i = 0; i < m->mems; i++)
		strbuf_clear(&m->mem[i]);
	fields_clear(&m->q.fields);
	fields_clear(&m->r.fields);
	fields_clear(&m->extra);
}

/* What was refused for another reason than its length may leave anything behind. */
static void same_text(int rc, const struct strbuf *a, const struct strbuf *b)
{
	if (rc < 0 && !(a->overflowed && b->overflowed))
		return;
	assert_true(str_eq(strbuf_str(a), strbuf_str(b)));
	assert_string_equal(strbuf_cstr(a), strbuf_cstr(b));
	assert_int_equal(a->overflowed, b->overflowed);
}

static void test_writing(void **state)
{
	(void)state;
	seed = 2;
	for (size_t i = 0; i < HEADS; i++) {
		enum http_version v = below(2) ? HTTP_11 : HTTP_10;
		size_t max = below(3) ? LIMIT_HEAD_BYTES : below(400);
		struct strbuf a, b;
		struct message m;
		bool keep_it = below(2);
		int rc;

		make_message(&m);
		strbuf_init(&a, max);
		strbuf_init(&b, max);
		rc = h1_write_request(&m.q, &m.extra, m.query, &a);
		assert_int_equal(rc, plain_write_request(&m.q, &m.extra, m.query, &b));
		same_text(rc, &a, &b);
		/* Behind what is there already, or nothing. */
		if (rc < 0 || below(2)) {
			strbuf_clear(&a);
			strbuf_clear(&b);
		}
		rc = h1_write_response(&m.r, v, keep_it, &a);
		assert_int_equal(rc, plain_write_response(&m.r, v, keep_it, &b));
		same_text(rc, &a, &b);
		strbuf_clear(&a);
		strbuf_clear(&b);
		clear_message(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reading),
		cmocka_unit_test(test_writing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
