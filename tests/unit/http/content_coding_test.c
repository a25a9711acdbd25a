/*
 * Content codings: each comes out as it went in, however the coded bytes are cut, alone and on top
 * of each other; what is broken, cut or not known is refused; no step gives more than it may.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "logging/limits.h"
#include "logging/strbuf.h"
#include "proxy/http/content_coding.h"

#define TEXT_BYTES 300000

static char text[TEXT_BYTES];

/* bits: as deflateInit2 has them. */
static void deflate_to(struct strbuf *out, struct str in, int bits)
{
	z_stream z = {0};
	char *room;

	strbuf_init(out, (size_t)1 << 24);
	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
	room = strbuf_reserve(out, deflateBound(&z, in.n));
	assert_non_null(room);
	z.next_in = (unsigned char *)(uintptr_t)in.p;
	z.avail_in = (unsigned)in.n;
	z.next_out = (unsigned char *)room;
	z.avail_out = (unsigned)deflateBound(&z, in.n);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	out->len += z.total_out;
	deflateEnd(&z);
}

static int decoder_of(const char *coding, struct content_decoder **ret, struct err *e)
{
	struct fields f = {0};
	int rc;

	assert_int_equal(fields_add(&f, STR("Content-Encoding"), str_from_c(coding)), 0);
	rc = content_decoder_new(&f, ret, e);
	fields_clear(&f);
	return rc;
}

/* All of in, fed in pieces. -1: refused. */
static int decode(const char *coding, struct str in, size_t piece, size_t max, struct strbuf *out)
{
	struct content_decoder *d;
	struct err e = ERR_INIT;
	struct str data;
	int rc = 0;

	strbuf_init(out, (size_t)1 << 27);
	assert_int_equal(decoder_of(coding, &d, &e), 0);
	assert_non_null(d);
	for (size_t at = 0; rc == 0;) {
		rc = content_decode(d, max, &data, &e);
		if (rc < 0)
			break;
		assert_true(data.n <= max && data.n <= LIMIT_DECODE_STEP);
		strbuf_add(out, data);
		if (data.n > 0)
			continue;
		assert_true(content_decoder_hungry(d));
		if (at == in.n)
			break;
		data = str_head(str_skip(in, at), piece);
		at += data.n;
		rc = content_decoder_feed(d, data, &e);
	}
	if (rc == 0)
		rc = content_decoder_end(d, &e);
	if (rc < 0)
		assert_int_equal(e.reason, REASON_CONTENT_CODING);
	content_decoder_free(d);
	return rc;
}

static void assert_decodes(const char *coding, struct str coded, struct str want)
{
	static const size_t pieces[] = {1, 7, 1000, LIMIT_DECODE_IN};

	for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
		struct strbuf out;

		assert_int_equal(decode(coding, coded, pieces[i], i % 2 ? 100 : 1 << 20, &out), 0);
		assert_true(str_eq(strbuf_str(&out), want));
		strbuf_clear(&out);
	}
}

static void test_alone(void **state)
{
	struct str whole = str_from(text, sizeof(text));
	struct strbuf b;

	(void)state;
	deflate_to(&b, whole, 31);
	assert_decodes("gzip", strbuf_str(&b), whole);
	assert_decodes("X-GZIP", strbuf_str(&b), whole);
	assert_decodes(" , identity,gzip , ", strbuf_str(&b), whole);
	strbuf_clear(&b);
	deflate_to(&b, whole, 15);
	assert_decodes("deflate", strbuf_str(&b), whole);
	strbuf_clear(&b);
	deflate_to(&b, whole, -15);
	assert_decodes("deflate", strbuf_str(&b), whole);
	strbuf_clear(&b);
	/* "hello" as one uncompressed block. */
	assert_decodes("br", STR("\x0b\x02\x80hello\x03"), STR("hello"));
}

static void test_together(void **state)
{
	struct str whole = str_from(text, sizeof(text));
	struct strbuf a, b, c;

	(void)state;
	deflate_to(&a, whole, 31);
	deflate_to(&b, strbuf_str(&a), 15);
	deflate_to(&c, strbuf_str(&b), 31);
	assert_decodes("gzip, deflate", strbuf_str(&b), whole);
	assert_decodes("gzip, deflate, gzip", strbuf_str(&c), whole);
	strbuf_clear(&a);
	strbuf_clear(&b);
	strbuf_clear(&c);
}

/* Members follow each other; what else does is dropped. */
static void test_members(void **state)
{
	struct strbuf a, b;

	(void)state;
	deflate_to(&a, STR("one "), 31);
	deflate_to(&b, STR("two"), 31);
	strbuf_add(&a, strbuf_str(&b));
	strbuf_add(&a, STR("\0\0\0junk"));
	assert_decodes("gzip", strbuf_str(&a), STR("one two"));
	strbuf_clear(&a);
	strbuf_clear(&b);
}

static void test_empty(void **state)
{
	struct strbuf b;

	(void)state;
	assert_decodes("gzip", STR_NONE, STR_NONE);
	assert_decodes("br, deflate", STR_NONE, STR_NONE);
	deflate_to(&b, STR_NONE, 31);
	assert_decodes("gzip", strbuf_str(&b), STR_NONE);
	assert_decodes("br, gzip", strbuf_str(&b), STR_NONE);
	strbuf_clear(&b);
}

static void test_broken(void **state)
{
	struct str whole = str_from(text, sizeof(text));
	struct strbuf b, out;

	(void)state;
	deflate_to(&b, whole, 31);
	for (size_t n = 1; n < b.len; n += n < 30 ? 1 : 997) {
		assert_int_equal(decode("gzip", str_head(strbuf_str(&b), n), 100, 1000, &out), -1);
		assert_true(out.len <= whole.n &&
			    memcmp(out.data ? out.data : "", text, out.len) == 0);
		strbuf_clear(&out);
	}
	b.data[b.len - 5] ^= 1; /* of its CRC */
	assert_int_equal(decode("gzip", strbuf_str(&b), 100, 1000, &out), -1);
	strbuf_clear(&out);
	strbuf_clear(&b);
	assert_int_equal(decode("gzip", STR("no such thing"), 3, 1000, &out), -1);
	assert_int_equal(decode("deflate", STR("\xff\xff\xff\xff"), 3, 1000, &out), -1);
	assert_int_equal(decode("br", STR("\xff\xff\xff\xff"), 3, 1000, &out), -1);
}

static void test_unknown(void **state)
{
	static const char *const codings[] = {
		"zstd",	   "gzip, zstd",	  "compress", "gzip;q=1", "\"gzip\"",
		"gzip br", "gzip,gzip,gzip,gzip", "*",	      "dcb"};
	struct content_decoder *d = NULL;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(codings); i++) {
		e = ERR_INIT;
		assert_int_equal(decoder_of(codings[i], &d, &e), -1);
		assert_int_equal(e.reason, REASON_CONTENT_CODING);
	}
	assert_int_equal(decoder_of("identity, IDENTITY", &d, &e), 0);
	assert_null(d);
}

static void test_head(void **state)
{
	struct response r;
	char mem[64];
	struct strbuf b;

	(void)state;
	response_init(&r);
	r.status = 200;
	r.body = BODY_LENGTH;
	r.length = r.content_length = 9;
	r.has_content_length = true;
	assert_int_equal(fields_add(&r.fields, STR("content-encoding"), STR("br")), 0);
	assert_int_equal(fields_add(&r.fields, STR("ETag"), STR("\"a\"")), 0);
	assert_int_equal(fields_add(&r.fields, STR("Digest"), STR("x")), 0);
	assert_int_equal(fields_add(&r.fields, STR("Date"), STR("d")), 0);
	strbuf_init_fixed(&b, mem, sizeof(mem));
	assert_int_equal(content_forget_coding(&r, &b), 0);
	assert_int_equal(r.fields.n, 2);
	assert_true(str_eq(r.fields.v[0].value, STR("W/\"a\"")));
	assert_int_equal(r.body, BODY_CHUNKED);
	assert_false(r.has_content_length);
	strbuf_init_fixed(&b, mem, 4);
	r.fields.v[0].value = STR("\"long\"");
	assert_int_equal(content_forget_coding(&r, &b), -1);
	response_clear(&r);
}

static int set_up(void **state)
{
	unsigned seed = 3;

	(void)state;
	for (size_t i = 0; i < sizeof(text); i++) {
		seed = seed * 1103515245 + 12345;
		text[i] = (char)(i / 5000 % 2 ? 'a' : seed >> 16);
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alone),	cmocka_unit_test(test_together),
		cmocka_unit_test(test_members), cmocka_unit_test(test_empty),
		cmocka_unit_test(test_broken),	cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_head),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
