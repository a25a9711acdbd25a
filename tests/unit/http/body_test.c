/*
 * Bodies: every sample is read whole, byte by byte and at every split, and gives the same data or
 * the same refusal each time; bounds; trailers; what is written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "logging/limits.h"
#include "proxy/http/body.h"

#define BYTES(s) s, sizeof(s) - 1

enum end { DONE, MORE, BROKEN };

struct result {
	enum end end;
	struct strbuf data;
	size_t used; /* of the input, when DONE */
};

/* Feeds `in` up to each of the cuts in turn, as a connection would: what is not consumed comes
 * again. Each piece is given in memory of its own that ends where the piece ends. */
static void read_cut(struct body_reader *b, struct str in, const size_t *cuts, size_t n,
		     struct result *ret)
{
	size_t at = 0;

	strbuf_init(&ret->data, 1024 * 1024);
	ret->end = MORE;
	for (size_t i = 0; i < n && ret->end == MORE; i++) {
		char *piece = malloc(cuts[i] - at + 1);
		size_t len = cuts[i] - at, off = 0, used;
		struct str data;

		assert_non_null(piece);
		memcpy(piece, in.p + at, len);
		do {
			struct err e = ERR_INIT;

			if (body_read(b, str_from(piece + off, len - off), &used, &data, &e) < 0) {
				assert_int_equal(e.reason, REASON_MALFORMED_REQUEST);
				assert_true(e.text[0] != '\0');
				/* and stays broken */
				assert_int_equal(body_read(b, STR("0\r\n\r\n"), &used, &data, NULL),
						 -1);
				ret->end = BROKEN;
				break;
			}
			assert_true(used <= len - off && data.n <= used);
			assert_true(data.n == 0 ||
				    (data.p >= piece + off && data.p + data.n <= piece + len));
			strbuf_add(&ret->data, data);
			off += used;
		} while (used > 0 && !b->done);
		free(piece);
		at += off;
		if (b->done)
			ret->end = DONE;
	}
	ret->used = at;
}

static void check(struct str in, const struct result *got, enum end end, const char *data,
		  size_t used)
{
	if (got->end != end || strcmp(strbuf_cstr(&got->data), data) != 0 ||
	    (end == DONE && got->used != used))
		fail_msg("end %d, %zu used, data \"%s\" for:\n%.*s", got->end, got->used,
			 strbuf_cstr(&got->data), STR_FMT(in));
}

/* All two-piece splits, and one byte at a time. */
static void run_of(struct str in, bool answer, enum end end, const char *data, size_t used)
{
	size_t *cuts = malloc((in.n + 2) * sizeof(*cuts));

	assert_non_null(cuts);
	for (size_t split = 0; split <= in.n; split++) {
		struct body_reader b;
		struct result got;

		cuts[0] = split;
		cuts[1] = in.n;
		body_reader_init(&b, BODY_CHUNKED, 0);
		b.padded_sizes = answer;
		read_cut(&b, in, cuts, 2, &got);
		check(in, &got, end, data, used);
		strbuf_clear(&got.data);
		body_reader_clear(&b);
	}
	for (size_t i = 0; i < in.n; i++)
		cuts[i] = i + 1;
	{
		struct body_reader b;
		struct result got;

		body_reader_init(&b, BODY_CHUNKED, 0);
		b.padded_sizes = answer;
		read_cut(&b, in, cuts, in.n, &got);
		check(in, &got, end, data, used);
		strbuf_clear(&got.data);
		body_reader_clear(&b);
	}
	free(cuts);
}

static void run_chunked(struct str in, enum end end, const char *data, size_t used)
{
	run_of(in, false, end, data, used);
}

/* Behind a size and before its CRLF alone, and in answers alone. */
static void test_padded_sizes(void **state)
{
	static const char *const good[] = {
		"5 \r\nhello\r\n0\r\n\r\n",
		"5\t\r\nhello\r\n0 \r\n\r\n",
		"005    \r\nhello\r\n0   \r\n\r\n",
		"0000000000000005 \t \r\nhello\r\n0\r\n\r\n",
	};
	static const char *const bad[] = {
		" 5\r\nhello\r\n0\r\n\r\n",
		"5 ;x\r\nhello\r\n0\r\n\r\n",
		"5 0\r\nhello\r\n",
		"5 \nhello\r\n0\r\n\r\n",
		"5 \rhello\r\n",
		"5\x0b\r\nhello\r\n",
		" \r\nhello\r\n",
		"5;x \r\nhello\r\n",
		"5\xa0\r\nhello\r\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct str in = str_from_c(good[i]);

		run_of(in, true, DONE, "hello", in.n);
		run_of(in, false, BROKEN, "", 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		run_of(str_from_c(bad[i]), true, BROKEN, "", 0);
}

static void test_chunked_good(void **state)
{
	static const struct {
		const char *in;
		const char *data;
		size_t behind; /* bytes of the next message */
	} rows[] = {
		{"0\r\n\r\n", "", 0},
		{"0000000000000000\r\n\r\n", "", 0},
		{"5\r\nhello\r\n0\r\n\r\n", "hello", 0},
		{"5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n", "hello", 16},
		{"1\r\na\r\n2\r\nbc\r\n3\r\ndef\r\n0\r\n\r\n", "abcdef", 0},
		{"a\r\n0123456789\r\n0\r\n\r\n", "0123456789", 0},
		{"A\r\n0123456789\r\n00\r\n\r\n", "0123456789", 0},
		{"000A\r\n0123456789\r\n0\r\n\r\n", "0123456789", 0},
		{"000000000000000a\r\n0123456789\r\n0\r\n\r\n", "0123456789", 0},
		{"6\r\n\r\n0\r\n\r\r\n0\r\n\r\n", "\r\n0\r\n\r", 0},
		{"5;x\r\nhello\r\n0;y=z\r\n\r\n", "hello", 0},
		{"5;a=b;c=\"d e\";\tf\r\nhello\r\n0\r\n\r\n", "hello", 0},
		{"5; a = b ;c\t=\t\"d\" ; e ;f\r\nhello\r\n0\r\n\r\n", "hello", 0},
		{"5;a=\"\";b=\";c=\\\"\\\\\"\r\nhello\r\n0\r\n\r\n", "hello", 0},
		{"5;a=\"\xc3\xa9\t\\\xc3\"\r\nhello\r\n0\r\n\r\n", "hello", 0},
		{"1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n", "a", 0},
		{"1\r\na\r\n0\r\nX: 1\r\ny:\t2 \r\nZ:\r\n\r\nmore", "a", 4},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct str in = str_from_c(rows[i].in);

		run_chunked(in, DONE, rows[i].data, in.n - rows[i].behind);
	}
}

static void test_chunked_bad(void **state)
{
	static const struct {
		const char *in;
		size_t n;
		const char *data; /* what came before the fault */
	} rows[] = {
		/* line ends */
		{BYTES("2;\nxx\r\n47\r\n0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\n\r\n"), ""},
		{BYTES("5\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5\r\nhello\n0\r\n\r\n"), "hello"},
		{BYTES("5\r\nhello0\r\n\r\n"), "hello"},
		{BYTES("5\rhello\r\n0\r\n\r\n"), ""},
		{BYTES("5\r\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5\r\nhello\r\r\n0\r\n\r\n"), "hello"},
		{BYTES("5\r\nhello\r0\r\n\r\n"), "hello"},
		{BYTES("5\r\nhello!\r\n0\r\n\r\n"), "hello"},
		{BYTES("5\r\nhell\r\n0\r\n\r\n"), "hell\r"},
		{BYTES("0\n\r\n"), ""},
		{BYTES("0\r\n\n"), ""},
		{BYTES("0\r\n\r\r\n"), ""},
		/* sizes */
		{BYTES("\r\nhello\r\n"), ""},
		{BYTES("g\r\n"), ""},
		{BYTES("x5\r\nhello\r\n"), ""},
		{BYTES("0x5\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("+5\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("-5\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES(" 5\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5 \r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5\t\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5 ;x\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5_0\r\nhello\r\n"), ""},
		{BYTES("5,5\r\nhello\r\n"), ""},
		{BYTES("5.0\r\nhello\r\n"), ""},
		{BYTES("\"5\"\r\nhello\r\n"), ""},
		{BYTES("5\x00\r\nhello\r\n"), ""},
		{BYTES("\xef\xbc\x95\r\nhello\r\n"), ""},
		{BYTES("8000000000000000\r\n"), ""},
		{BYTES("ffffffffffffffff\r\n"), ""},
		{BYTES("fffffffffffffffe\r\n"), ""},
		{BYTES("10000000000000005\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("00000000000000005\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("00000000000000000\r\n\r\n"), ""},
		{BYTES(";x\r\nhello\r\n"), ""},
		/* extensions */
		{BYTES("5;a\x00\r\nhello\r\n"), ""},
		{BYTES("5;a\x0b\r\nhello\r\n"), ""},
		{BYTES("5;a\rb\r\nhello\r\n"), ""},
		{BYTES("5;a=\"b\nc\"\r\nhello\r\n"), ""},
		{BYTES("0;a\n\r\n"), ""},
		{BYTES("5;a=\"\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;a=\"b\r\nhello\r\n0;c=\"\r\n\r\n"), ""},
		{BYTES("5;a=\"b\\\"\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;a=\"b\\\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;a=\"b\"c\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;a=b\"c\"\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;a=\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;a= \r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;a=;b\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;=a\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;\"a\"\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;a b\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;a=b c\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;a \r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;a=b\t\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;a=\"b\" \r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5; \r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;;a\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("5;\xc3\xa9\r\nhello\r\n0\r\n\r\n"), ""},
		{BYTES("0;a=\"\r\n\r\n"), ""},
		/* trailers */
		{BYTES("0\r\nX : 1\r\n\r\n"), ""},
		{BYTES("0\r\n X: 1\r\n\r\n"), ""},
		{BYTES("0\r\nX: 1\r\n y\r\n\r\n"), ""},
		{BYTES("0\r\nX: 1\n\r\n"), ""},
		{BYTES("0\r\nX: 1\r\n\n"), ""},
		{BYTES("0\r\nX: a\x00\r\n\r\n"), ""},
		{BYTES("0\r\nX: a\rb\r\n\r\n"), ""},
		{BYTES("0\r\nX\r\n\r\n"), ""},
		{BYTES("0\r\n: x\r\n\r\n"), ""},
		{BYTES("0\r\nGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"), ""},
		{BYTES("0\r\nHost: evil.test\r\n\r\n"), ""},
		{BYTES("0\r\ncontent-length: 5\r\n\r\n"), ""},
		{BYTES("0\r\nX: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		run_chunked(str_from(rows[i].in, rows[i].n), BROKEN, rows[i].data, 0);
}

static void test_chunked_unfinished(void **state)
{
	static const struct {
		const char *in, *data;
	} rows[] = {
		{"", ""},
		{"5", ""},
		{"5\r", ""},
		{"5;x", ""},
		{"5\r\n", ""},
		{"5\r\nhel", "hel"},
		{"5\r\nhello", "hello"},
		{"5\r\nhello\r", "hello"},
		{"5\r\nhello\r\n", "hello"},
		{"5\r\nhello\r\n0", "hello"},
		{"0\r\n", ""},
		{"0\r\n\r", ""},
		{"0\r\nX: 1", ""},
		{"0\r\nX: 1\r\n", ""},
		{"0\r\nX: 1\r\n\r", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct body_reader b;
		struct str data;
		size_t used;
		struct err e = ERR_INIT;

		run_chunked(str_from_c(rows[i].in), MORE, rows[i].data, 0);
		body_reader_init(&b, BODY_CHUNKED, 0);
		assert_int_equal(body_read(&b, str_from_c(rows[i].in), &used, &data, NULL), 0);
		assert_int_equal(body_eof(&b, &e), -1);
		assert_int_equal(e.reason, REASON_CLIENT_CLOSED);
		body_reader_clear(&b);
	}
}

static void test_trailers(void **state)
{
	static const struct {
		const char *in, *want;
	} rows[] = {
		{"0\r\n\r\n", ""},
		{"0\r\nX-Sum: abc \r\ngrpc-status:0\r\nX-Sum: d\r\n\r\n",
		 "X-Sum=abc|grpc-status=0|X-Sum=d|"},
		{"0\r\nContent-Digest: x\r\nETag: y\r\n\r\n", "Content-Digest=x|ETag=y|"},
		{"0\r\nConnection: close\r\nX: 1\r\nAuthorization: a\r\nSet-Cookie: "
		 "b\r\nCookie: c\r\nContent-Type: d\r\nContent-Encoding: gzip\r\nTrailer: "
		 "e\r\nTE: f\r\nExpect: 100-continue\r\nProxy-Status: x\r\nAlt-Svc: "
		 "y\r\nUpgrade: h2c\r\nAccept: z\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
		 "X=1|"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct body_reader b;
		char *copy = strdup(rows[i].in);
		size_t used, len = 0;
		struct str data;
		char got[512] = "";

		assert_non_null(copy);
		body_reader_init(&b, BODY_CHUNKED, 0);
		assert_int_equal(body_read(&b, str_from_c(copy), &used, &data, NULL), 0);
		assert_true(b.done);
		assert_int_equal(body_eof(&b, NULL), 0);
		/* they outlive the input */
		memset(copy, '!', strlen(copy));
		free(copy);
		for (size_t f = 0; f < b.trailers.n; f++)
			len += (size_t)snprintf(got + len, sizeof(got) - len, "%.*s=%.*s|",
						STR_FMT(b.trailers.v[f].name),
						STR_FMT(b.trailers.v[f].value));
		assert_string_equal(got, rows[i].want);
		body_reader_clear(&b);
		body_reader_clear(&b);
	}
	body_reader_clear(NULL);
}

/* Reads as far as it goes; how many bytes of data came before the end or the fault. */
static uint64_t read_all(struct strbuf *in, bool *ret_done, bool *ret_broken)
{
	struct body_reader b;
	struct str rest = strbuf_str(in), data;
	uint64_t total = 0;
	size_t used = 1;

	body_reader_init(&b, BODY_CHUNKED, 0);
	*ret_broken = false;
	while (!b.done && used > 0 && !*ret_broken) {
		*ret_broken = body_read(&b, rest, &used, &data, NULL) < 0;
		rest = str_skip(rest, used);
		total += data.n;
	}
	*ret_done = b.done;
	body_reader_clear(&b);
	return total;
}

/* n chunks of one form, then the end. */
static void run_flood(const char *chunk, size_t n, bool want_done)
{
	struct strbuf in;
	bool done, broken;

	strbuf_init(&in, 64 * 1024 * 1024);
	for (size_t i = 0; i < n; i++)
		strbuf_adds(&in, chunk);
	strbuf_adds(&in, "0\r\n\r\n");
	assert_false(in.overflowed);
	read_all(&in, &done, &broken);
	if (done != want_done || broken == want_done)
		fail_msg("%zu times %s: done %d, broken %d", n, chunk, done, broken);
	strbuf_clear(&in);
}

static void test_floods(void **state)
{
	(void)state;
	/* what an honest event stream sends, for ever */
	run_flood("1\r\na\r\n", 1000000, true);
	run_flood("3\r\nabc\r\n", 300000, true);
	run_flood("0003\r\nabc\r\n", 300000, true);
	/* padding and extensions have a budget */
	run_flood("000000000000001\r\na\r\n", 1000, true);
	run_flood("000000000000001\r\na\r\n", 50000, false);
	run_flood("1;a\r\na\r\n", 8000, true);
	run_flood("1;a\r\na\r\n", 8193, false);
	run_flood("1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\na\r\n", 600, false);
}

static void add_n(struct strbuf *b, char c, size_t n)
{
	while (n-- > 0)
		strbuf_addc(b, c);
}

static void test_bounds(void **state)
{
	struct strbuf in;
	bool done, broken;

	(void)state;
	strbuf_init(&in, 1024 * 1024);
	/* the longest chunk line, then one byte more, then one without end */
	for (int over = 0; over < 3; over++) {
		strbuf_reset(&in);
		strbuf_adds(&in, "1;");
		add_n(&in, 'a', LIMIT_CHUNK_LINE_BYTES - 4 + (size_t)(over > 0));
		strbuf_adds(&in, over < 2 ? "\r\na\r\n0\r\n\r\n" : "aaaaaa");
		assert_int_equal(read_all(&in, &done, &broken), over ? 0 : 1);
		assert_int_equal(done, over == 0);
		assert_int_equal(broken, over > 0);
	}
	/* the longest trailer section */
	for (int over = 0; over < 3; over++) {
		strbuf_reset(&in);
		strbuf_adds(&in, "0\r\nX: ");
		add_n(&in, 'a', LIMIT_TRAILER_BYTES - 7 + (size_t)(over > 0));
		strbuf_adds(&in, over < 2 ? "\r\n\r\n" : "aaaaaa");
		read_all(&in, &done, &broken);
		assert_int_equal(done, over == 0);
		assert_int_equal(broken, over > 0);
	}
	/* the number of trailers, those counted too that are dropped */
	for (int over = 0; over < 2; over++) {
		strbuf_reset(&in);
		strbuf_adds(&in, "0\r\n");
		for (int i = 0; i < LIMIT_HEAD_FIELDS + over; i++)
			strbuf_adds(&in, i % 2 ? "a: b\r\n" : "cookie: b\r\n");
		strbuf_adds(&in, "\r\n");
		read_all(&in, &done, &broken);
		assert_int_equal(done, over == 0);
		assert_int_equal(broken, over > 0);
	}
	strbuf_clear(&in);
}

static void test_length(void **state)
{
	struct body_reader b;
	struct str data;
	size_t used;
	struct err e = ERR_INIT;

	(void)state;
	body_reader_init(&b, BODY_LENGTH, 0);
	assert_true(b.done);
	assert_int_equal(body_read(&b, STR("next"), &used, &data, NULL), 0);
	assert_int_equal(used + data.n, 0);
	assert_int_equal(body_eof(&b, NULL), 0);

	body_reader_init(&b, BODY_LENGTH, 5);
	assert_int_equal(body_read(&b, STR_NONE, &used, &data, NULL), 0);
	assert_int_equal(used, 0);
	assert_int_equal(body_read(&b, STR("hel"), &used, &data, NULL), 0);
	assert_true(used == 3 && str_eq(data, STR("hel")) && !b.done);
	assert_int_equal(body_eof(&b, &e), -1);
	assert_non_null(strstr(e.text, "2 bytes before"));
	assert_int_equal(body_read(&b, STR("loGET"), &used, &data, NULL), 0);
	assert_true(used == 2 && str_eq(data, STR("lo")) && b.done);
	assert_int_equal(b.data_bytes, 5);
	assert_int_equal(body_read(&b, STR("GET"), &used, &data, NULL), 0);
	assert_int_equal(used + data.n, 0);
	assert_int_equal(body_eof(&b, NULL), 0);

	body_reader_init(&b, BODY_LENGTH, INT64_MAX);
	assert_int_equal(body_read(&b, STR("abc"), &used, &data, NULL), 0);
	assert_true(used == 3 && !b.done);
}

static void test_none_and_close(void **state)
{
	struct body_reader b;
	struct str data;
	size_t used;

	(void)state;
	body_reader_init(&b, BODY_NONE, 7);
	assert_true(b.done);
	assert_int_equal(body_read(&b, STR("x"), &used, &data, NULL), 0);
	assert_int_equal(used + data.n, 0);
	assert_int_equal(body_eof(&b, NULL), 0);

	body_reader_init(&b, BODY_CLOSE, 0);
	assert_false(b.done);
	assert_int_equal(body_read(&b, STR("abc"), &used, &data, NULL), 0);
	assert_true(used == 3 && str_eq(data, STR("abc")) && !b.done);
	assert_int_equal(b.data_bytes, 3);
	assert_int_equal(body_eof(&b, NULL), 0);
	assert_true(b.done);
}

static void test_chunk_head(void **state)
{
	static const struct {
		uint64_t n;
		const char *want;
	} rows[] = {
		{0, ""},
		{1, "1\r\n"},
		{15, "f\r\n"},
		{16, "10\r\n"},
		{0xabcdef, "abcdef\r\n"},
		{0x100000000, "100000000\r\n"},
		{INT64_MAX, "7fffffffffffffff\r\n"},
		{UINT64_MAX, "ffffffffffffffff\r\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char out[BODY_CHUNK_HEAD_MAX];
		size_t n = body_chunk_head(rows[i].n, out);

		assert_true(str_eq(str_from(out, n), str_from_c(rows[i].want)));
	}
}

static void test_chunk_end(void **state)
{
	struct fields f = {0};
	struct strbuf out;

	(void)state;
	strbuf_init(&out, 1024);
	body_chunk_end(NULL, &out);
	assert_string_equal(strbuf_cstr(&out), "0\r\n\r\n");
	assert_int_equal(fields_add(&f, STR("grpc-status"), STR("0")), 0);
	assert_int_equal(fields_add(&f, STR("Content-Length"), STR("5")), 0);
	assert_int_equal(fields_add(&f, STR("Set-Cookie"), STR("5")), 0);
	assert_int_equal(fields_add(&f, STR("X"), STR("a\r\nb: c")), 0);
	assert_int_equal(fields_add(&f, STR("Y"), STR("")), 0);
	strbuf_reset(&out);
	body_chunk_end(&f, &out);
	assert_string_equal(strbuf_cstr(&out), "0\r\ngrpc-status: 0\r\nY: \r\n\r\n");
	strbuf_clear(&out);
	fields_clear(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chunked_good),   cmocka_unit_test(test_padded_sizes),
		cmocka_unit_test(test_chunked_bad),    cmocka_unit_test(test_chunked_unfinished),
		cmocka_unit_test(test_trailers),       cmocka_unit_test(test_floods),
		cmocka_unit_test(test_bounds),	       cmocka_unit_test(test_length),
		cmocka_unit_test(test_none_and_close), cmocka_unit_test(test_chunk_head),
		cmocka_unit_test(test_chunk_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
