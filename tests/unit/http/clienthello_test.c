/*
 * ClientHellos: those of OpenSSL and built ones, in records of any size and cut anywhere; every
 * prefix, every changed byte; what is refused. Each is read from memory that ends where it ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/ssl.h>

#include "logging/limits.h"
#include "logging/strbuf.h"
#include "proxy/http/clienthello.h"

/* ---- building ---- */

static void add_u16(struct strbuf *b, size_t n)
{
	strbuf_addc(b, (char)(n >> 8));
	strbuf_addc(b, (char)n);
}

static void add_ext(struct strbuf *b, unsigned type, struct str body)
{
	add_u16(b, type);
	add_u16(b, body.n);
	strbuf_add(b, body);
}

/* server_name with one entry. */
static void add_sni_entry(struct strbuf *b, char type, struct str name)
{
	struct strbuf body;

	strbuf_init(&body, 70000);
	add_u16(&body, name.n + 3);
	strbuf_addc(&body, type);
	add_u16(&body, name.n);
	strbuf_add(&body, name);
	add_ext(b, 0, strbuf_str(&body));
	strbuf_clear(&body);
}

static void add_sni(struct strbuf *b, struct str name)
{
	add_sni_entry(b, 0, name);
}

/* The message around extensions; has_ext false leaves their length out too. */
static void add_hello(struct strbuf *out, struct str ext, bool has_ext)
{
	struct strbuf body;

	strbuf_init(&body, 200000);
	strbuf_add(&body, STR("\x03\x03"));
	for (int i = 0; i < 32; i++)
		strbuf_addc(&body, (char)(i * 7));
	strbuf_addc(&body, 4);
	strbuf_add(&body, STR("sess"));
	add_u16(&body, 4);
	strbuf_add(&body, STR("\x13\x01\x0a\x0a"));
	strbuf_add(&body, (struct str){"\x01\x00", 2});
	if (has_ext) {
		add_u16(&body, ext.n);
		strbuf_add(&body, ext);
	}
	strbuf_addc(out, 1);
	strbuf_addc(out, (char)(body.len >> 16));
	add_u16(out, body.len);
	strbuf_add(out, strbuf_str(&body));
	strbuf_clear(&body);
}

/* msg in records of at most `size` bytes. */
static void add_records(struct strbuf *out, struct str msg, size_t size)
{
	while (msg.n > 0) {
		struct str part = str_head(msg, size);

		strbuf_add(out, STR("\x16\x03\x01"));
		add_u16(out, part.n);
		strbuf_add(out, part);
		msg = str_skip(msg, part.n);
	}
}

static enum clienthello_result parse(struct str in, struct clienthello *ret, struct err *e)
{
	char *exact = malloc(in.n ? in.n : 1);
	struct clienthello_scan scan = {0};
	struct err why = ERR_INIT;
	enum clienthello_result rc, scanned;

	assert_non_null(exact);
	if (in.n)
		memcpy(exact, in.p, in.n);
	rc = clienthello_parse(str_from(exact, in.n), ret, e);
	scanned = clienthello_scan(&scan, str_from(exact, in.n), &why);
	if (scanned != CLIENTHELLO_OK)
		assert_int_equal(scanned, rc);
	else
		assert_int_not_equal(rc, CLIENTHELLO_MORE);
	free(exact);
	return rc;
}

/* A hello with these extensions, in records of `size` bytes. */
static enum clienthello_result judge(struct str ext, size_t size, struct clienthello *ret,
				     struct err *e)
{
	struct strbuf msg, raw;
	enum clienthello_result rc;

	strbuf_init(&msg, 200000);
	strbuf_init(&raw, 1000000);
	add_hello(&msg, ext, true);
	add_records(&raw, strbuf_str(&msg), size);
	*e = ERR_INIT;
	rc = parse(strbuf_str(&raw), ret, e);
	strbuf_clear(&msg);
	strbuf_clear(&raw);
	return rc;
}

/* Each prefix asks for more, and bytes behind the record do no harm. */
static void check_prefixes(struct str raw)
{
	struct clienthello_scan scan = {0};
	struct clienthello h;
	struct strbuf more;
	struct err e = ERR_INIT;

	for (size_t n = 0; n < raw.n; n++) {
		enum clienthello_result rc = parse(str_head(raw, n), &h, &e);

		if (rc != CLIENTHELLO_MORE)
			fail_msg("%d (%s) for %zu of %zu bytes", rc, e.text, n, raw.n);
		assert_int_equal(clienthello_scan(&scan, str_head(raw, n), &e), CLIENTHELLO_MORE);
	}
	assert_int_equal(clienthello_scan(&scan, raw, &e), CLIENTHELLO_OK);
	assert_int_equal(scan.at, raw.n);
	strbuf_init(&more, 1000000);
	strbuf_add(&more, raw);
	strbuf_add(&more, STR("\x17\x03\x03\x00\x05hello"));
	assert_int_equal(parse(strbuf_str(&more), &h, &e), CLIENTHELLO_OK);
	strbuf_clear(&more);
}

/* ---- tests ---- */

/* What OpenSSL sends, as it is and in other records. */
static void test_openssl(void **state)
{
	static const size_t sizes[] = {1, 2, 3, 4, 5, 40, 512, 16384};
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL *ssl = SSL_new(ctx);
	BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
	char *wire;
	long n;
	struct str msg;

	(void)state;
	assert_non_null(ssl);
	SSL_set_bio(ssl, in, out);
	SSL_set_connect_state(ssl);
	SSL_set_tlsext_host_name(ssl, "Allowed.Test");
	assert_int_equal(SSL_set_alpn_protos(ssl, (const unsigned char *)"\x02h2\x08http/1.1", 12),
			 0);
	SSL_do_handshake(ssl);
	n = BIO_get_mem_data(out, &wire);
	assert_true(n > 100);
	check_prefixes(str_from(wire, (size_t)n));
	msg = str_from(wire + 5, (size_t)n - 5);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct clienthello h;
		struct strbuf raw;
		struct err e = ERR_INIT;

		strbuf_init(&raw, 100000);
		add_records(&raw, msg, sizes[i]);
		assert_int_equal(parse(strbuf_str(&raw), &h, &e), CLIENTHELLO_OK);
		assert_true(h.has_sni);
		assert_string_equal(h.sni, "allowed.test");
		assert_int_equal(h.sni_len, 12);
		assert_false(h.ech);
		assert_int_equal(h.version_max, 0x0304);
		assert_true(str_eq(str_from(h.alpn, h.alpn_len), STR("\x02h2\x08http/1.1")));
		check_prefixes(strbuf_str(&raw));
		strbuf_clear(&raw);
	}
	SSL_free(ssl);
	SSL_CTX_free(ctx);
}

static void test_names(void **state)
{
	static const struct {
		const char *name;
		size_t n;
		const char *want; /* NULL: refused */
	} rows[] = {
#define NAME(in, want) {in, sizeof(in) - 1, want}
		NAME("allowed.test", "allowed.test"),
		NAME("ALLOWED.Test", "allowed.test"),
		NAME("allowed.test.", "allowed.test"),
		NAME("_dmarc.allowed.test", "_dmarc.allowed.test"),
		NAME("xn--bcher-kva.test", "xn--bcher-kva.test"),
		NAME("localhost", "localhost"),
		NAME("10.evil.test", "10.evil.test"),
		NAME("", NULL),
		NAME(".", NULL),
		NAME("..", NULL),
		NAME("allowed.test..", NULL),
		NAME(".allowed.test", NULL),
		NAME("a..test", NULL),
		NAME("evil.test\0.allowed.test", NULL),
		NAME("allowed.test\0", NULL),
		NAME("\0allowed.test", NULL),
		NAME("allowed.test\n", NULL),
		NAME("allowed.test ", NULL),
		NAME("allowed test", NULL),
		NAME("allowed.test:443", NULL),
		NAME("*.allowed.test", NULL),
		NAME("allowed.test/", NULL),
		NAME("user@allowed.test", NULL),
		NAME("b\xc3\xbc"
		     "cher.test",
		     NULL),
		NAME("\x1b[2K", NULL),
		NAME("127.0.0.1", NULL),
		NAME("127.0.0.1.", NULL),
		NAME("127.1", NULL),
		NAME("2130706433", NULL),
		NAME("0x7f.1", NULL),
		NAME("0x7f000001", NULL),
		NAME("a.0x1", NULL),
		NAME("[::1]", NULL),
		NAME("::1", NULL),
		NAME("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.test", NULL),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct clienthello h;
		struct strbuf ext;
		struct err e;
		enum clienthello_result rc;

		strbuf_init(&ext, 1000);
		add_sni(&ext, str_from(rows[i].name, rows[i].n));
		rc = judge(strbuf_str(&ext), 16384, &h, &e);
		if (rc != (rows[i].want ? CLIENTHELLO_OK : CLIENTHELLO_BAD))
			fail_msg("%d (%s) for %s", rc, e.text, rows[i].name);
		assert_int_equal(h.has_sni, rows[i].want != NULL);
		if (rows[i].want) {
			assert_string_equal(h.sni, rows[i].want);
			assert_int_equal(h.sni_len, strlen(rows[i].want));
		} else {
			assert_true(e.text[0] != '\0');
			assert_int_equal(e.reason, REASON_MALFORMED_REQUEST);
		}
		strbuf_clear(&ext);
	}
}

static void test_long_names(void **state)
{
	static const size_t sizes[] = {253, 254, 255, 256, 300, 16000};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct clienthello h;
		struct strbuf name, ext;
		struct err e;

		strbuf_init(&name, 20000);
		strbuf_init(&ext, 20000);
		for (size_t k = 0; k < sizes[i]; k++)
			strbuf_addc(&name, k % 50 == 49 ? '.' : 'a');
		add_sni(&ext, strbuf_str(&name));
		assert_int_equal(judge(strbuf_str(&ext), 16384, &h, &e),
				 sizes[i] <= 253 ? CLIENTHELLO_OK : CLIENTHELLO_BAD);
		strbuf_clear(&name);
		strbuf_clear(&ext);
	}
}

static void test_extensions(void **state)
{
	static const struct {
		const char *ext;
		size_t n;
		enum clienthello_result want;
	} rows[] = {
#define EXT(bytes, want) {bytes, sizeof(bytes) - 1, want}
		EXT("", CLIENTHELLO_OK),
		EXT("\x0a\x0a\x00\x00", CLIENTHELLO_OK),
		EXT("\xff\x01\x00\x01\x00", CLIENTHELLO_OK),
		EXT("\x12\x34\x00\x00\x12\x34\x00\x00", CLIENTHELLO_OK),
		/* cut or overlong */
		EXT("\x00", CLIENTHELLO_BAD),
		EXT("\x0a\x0a\x00", CLIENTHELLO_BAD),
		EXT("\x0a\x0a\x00\x01", CLIENTHELLO_BAD),
		EXT("\x0a\x0a\x00\x00\x00", CLIENTHELLO_BAD),
		EXT("\x0a\x0a\xff\xff\x00", CLIENTHELLO_BAD),
		/* server_name */
		EXT("\x00\x00\x00\x00", CLIENTHELLO_BAD),
		EXT("\x00\x00\x00\x02\x00\x00", CLIENTHELLO_BAD),
		EXT("\x00\x00\x00\x03\x00\x01\x00", CLIENTHELLO_BAD),
		EXT("\x00\x00\x00\x05\x00\x03\x00\x00\x00", CLIENTHELLO_BAD),
		EXT("\x00\x00\x00\x06\x00\x04\x00\x00\x01"
		    "a",
		    CLIENTHELLO_OK),
		EXT("\x00\x00\x00\x06\x00\x04\x00\x00\x02"
		    "a",
		    CLIENTHELLO_BAD),
		EXT("\x00\x00\x00\x07\x00\x04\x00\x00\x01"
		    "ab",
		    CLIENTHELLO_BAD),
		EXT("\x00\x00\x00\x07\x00\x05\x00\x00\x01"
		    "ab",
		    CLIENTHELLO_BAD),
		EXT("\x00\x00\x00\x06\x00\x05\x00\x00\x01"
		    "a",
		    CLIENTHELLO_BAD),
		EXT("\x00\x00\x00\x06\x00\x04\x01\x00\x01"
		    "a",
		    CLIENTHELLO_BAD),
		EXT("\x00\x00\x00\x0a\x00\x08\x00\x00\x01"
		    "a\x00\x00\x01"
		    "b",
		    CLIENTHELLO_BAD),
		EXT("\x00\x00\x00\x0a\x00\x08\x00\x00\x01"
		    "a\x01\x00\x01"
		    "b",
		    CLIENTHELLO_BAD),
		EXT("\x00\x00\x00\x06\x00\x04\x00\x00\x01"
		    "a\x00\x00\x00\x06\x00\x04\x00\x00\x01"
		    "a",
		    CLIENTHELLO_BAD),
		/* ALPN */
		EXT("\x00\x10\x00\x05\x00\x03\x02h2", CLIENTHELLO_OK),
		EXT("\x00\x10\x00\x00", CLIENTHELLO_BAD),
		EXT("\x00\x10\x00\x02\x00\x00", CLIENTHELLO_BAD),
		EXT("\x00\x10\x00\x03\x00\x01\x00", CLIENTHELLO_BAD),
		EXT("\x00\x10\x00\x05\x00\x03\x03h2", CLIENTHELLO_BAD),
		EXT("\x00\x10\x00\x05\x00\x04\x02h2", CLIENTHELLO_BAD),
		EXT("\x00\x10\x00\x05\x00\x02\x02h2", CLIENTHELLO_BAD),
		EXT("\x00\x10\x00\x05\x00\x03\x02h2\x00\x10\x00\x05\x00\x03\x02h2",
		    CLIENTHELLO_BAD),
		/* supported_versions */
		EXT("\x00\x2b\x00\x03\x02\x03\x04", CLIENTHELLO_OK),
		EXT("\x00\x2b\x00\x01\x00", CLIENTHELLO_BAD),
		EXT("\x00\x2b\x00\x00", CLIENTHELLO_BAD),
		EXT("\x00\x2b\x00\x04\x03\x03\x04\x03", CLIENTHELLO_BAD),
		EXT("\x00\x2b\x00\x03\x04\x03\x04", CLIENTHELLO_BAD),
		EXT("\x00\x2b\x00\x04\x02\x03\x04\x03", CLIENTHELLO_BAD),
		EXT("\x00\x2b\x00\x03\x02\x03\x04\x00\x2b\x00\x03\x02\x03\x03", CLIENTHELLO_BAD),
		/* ECH */
		EXT("\xfe\x0d\x00\x00", CLIENTHELLO_OK),
		EXT("\xfe\x0d\x00\x00\xfe\x0d\x00\x00", CLIENTHELLO_BAD),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		for (size_t size = 1; size <= 4096; size *= 64) {
			struct clienthello h;
			struct err e;
			enum clienthello_result rc =
				judge(str_from(rows[i].ext, rows[i].n), size, &h, &e);

			if (rc != rows[i].want)
				fail_msg("%d (%s) for row %zu", rc, e.text, i);
		}
	}
}

static void test_what_is_read(void **state)
{
	struct clienthello h;
	struct strbuf msg, raw, ext;
	struct err e;

	(void)state;
	strbuf_init(&msg, 1000);
	strbuf_init(&raw, 1000);
	strbuf_init(&ext, 1000);
	/* no extensions at all: a TLS 1.2 hello of old */
	add_hello(&msg, STR_NONE, false);
	add_records(&raw, strbuf_str(&msg), 16384);
	assert_int_equal(parse(strbuf_str(&raw), &h, &e), CLIENTHELLO_OK);
	assert_false(h.has_sni);
	assert_int_equal(h.sni_len, 0);
	assert_int_equal(h.alpn_len, 0);
	assert_int_equal(h.version_max, 0x0303);
	/* GREASE among everything, ECH, the highest version wherever it stands */
	strbuf_add(&ext, STR("\x1a\x1a\x00\x01"));
	strbuf_addc(&ext, 0);
	add_ext(&ext, 43, STR("\x08\xda\xda\x03\x03\x03\x04\x03\x02"));
	add_ext(&ext, 16, (struct str){"\x00\x08\x02\xaa\xaa\x02h2\x01z", 10});
	add_ext(&ext, 0xfe0d, (struct str){"\x00\x00\x01", 3});
	add_sni(&ext, STR("a.test"));
	assert_int_equal(judge(strbuf_str(&ext), 16384, &h, &e), CLIENTHELLO_OK);
	assert_int_equal(h.version_max, 0x0304);
	assert_true(h.ech);
	assert_string_equal(h.sni, "a.test");
	assert_true(str_eq(str_from(h.alpn, h.alpn_len), STR("\x02\xaa\xaa\x02h2\x01z")));
	/* what ECH was before */
	strbuf_reset(&ext);
	add_ext(&ext, 0xffce, STR("x"));
	assert_int_equal(judge(strbuf_str(&ext), 16384, &h, &e), CLIENTHELLO_OK);
	assert_true(h.ech);
	strbuf_clear(&msg);
	strbuf_clear(&raw);
	strbuf_clear(&ext);
}

/* An ALPN list that is longer than there is room: whole entries, no more. */
static void test_long_alpn(void **state)
{
	struct strbuf list, ext;
	struct clienthello h;
	struct err e;

	(void)state;
	strbuf_init(&list, 2000);
	strbuf_init(&ext, 2000);
	add_u16(&list, 30 * 20);
	for (int i = 0; i < 30; i++) {
		strbuf_addc(&list, 19);
		strbuf_add(&list, STR("abcdefghijklmnopqrs"));
	}
	add_ext(&ext, 16, strbuf_str(&list));
	assert_int_equal(judge(strbuf_str(&ext), 16384, &h, &e), CLIENTHELLO_OK);
	assert_int_equal(h.alpn_len, 240);
	strbuf_clear(&list);
	strbuf_clear(&ext);
}

static void test_sizes(void **state)
{
	static const struct {
		size_t padding, record;
		enum clienthello_result want;
	} rows[] = {
		{1200, 16384, CLIENTHELLO_OK}, /* a post-quantum key share */
		{1200, 512, CLIENTHELLO_OK},	 {8192, 16384, CLIENTHELLO_OK},
		{8192, 40, CLIENTHELLO_OK},	 {8192, 5, CLIENTHELLO_OK},
		{8192, 1, CLIENTHELLO_OK},	 {16000, 5, CLIENTHELLO_OK},
		{16000, 1, CLIENTHELLO_BAD}, /* more records than are waited for */
		{16384, 16384, CLIENTHELLO_BAD}, {65000, 16384, CLIENTHELLO_BAD},
		{65000, 100, CLIENTHELLO_BAD},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char *zero = calloc(1, rows[i].padding);
		struct strbuf ext;
		struct clienthello h;
		struct err e;
		enum clienthello_result rc;

		assert_non_null(zero);
		strbuf_init(&ext, 100000);
		add_ext(&ext, 21, str_from(zero, rows[i].padding));
		add_sni(&ext, STR("a.test"));
		rc = judge(strbuf_str(&ext), rows[i].record, &h, &e);
		if (rc != rows[i].want)
			fail_msg("%d (%s) with %zu bytes in records of %zu", rc, e.text,
				 rows[i].padding, rows[i].record);
		strbuf_clear(&ext);
		free(zero);
	}
}

static void test_first_bytes(void **state)
{
	static const struct {
		const char *in;
		size_t n;
		enum clienthello_result want;
	} rows[] = {
		EXT("", CLIENTHELLO_MORE),
		EXT("\x16", CLIENTHELLO_MORE),
		EXT("\x16\x03", CLIENTHELLO_MORE),
		EXT("\x16\x03\x01\x00", CLIENTHELLO_MORE),
		EXT("\x16\x03\x01\x00\x05", CLIENTHELLO_MORE),
		EXT("\x16\x03\x01\x00\x05\x01\x00\x00\x50", CLIENTHELLO_MORE),
		EXT("\x16\x03\xff\x00\x05\x01\x00\x00\x50", CLIENTHELLO_MORE),
		EXT("\x16\x02", CLIENTHELLO_BAD),
		EXT("\x16\x04", CLIENTHELLO_BAD),
		EXT("\x16\xfe\xff", CLIENTHELLO_BAD),
		EXT("\x16\x03\x01\x00\x00", CLIENTHELLO_BAD),
		EXT("\x16\x03\x01\x40\x01", CLIENTHELLO_BAD),
		EXT("\x16\x03\x01\xff\xff", CLIENTHELLO_BAD),
		EXT("\x16\x03\x01\x00\x05\x02", CLIENTHELLO_BAD),
		EXT("\x16\x03\x01\x00\x05\x00", CLIENTHELLO_BAD),
		/* too large, known from the first four bytes */
		EXT("\x16\x03\x01\x00\x05\x01\x00\x40\x00", CLIENTHELLO_BAD),
		EXT("\x16\x03\x01\x00\x05\x01\xff\xff\xff", CLIENTHELLO_BAD),
		/* an empty hello, and one shorter than its record */
		EXT("\x16\x03\x01\x00\x04\x01\x00\x00\x00", CLIENTHELLO_BAD),
		EXT("\x16\x03\x01\x00\x06\x01\x00\x00\x01\x03", CLIENTHELLO_BAD),
		/* something else in the middle */
		EXT("\x16\x03\x01\x00\x01\x01\x15", CLIENTHELLO_BAD),
		EXT("\x16\x03\x01\x00\x01\x01\x14\x03\x01\x00\x01\x01", CLIENTHELLO_BAD),
		EXT("\x16\x03\x01\x00\x01\x01\x16\x02", CLIENTHELLO_BAD),
		EXT("\x16\x03\x01\x00\x01\x01\x16\x03\x01\x00\x00", CLIENTHELLO_BAD),
		/* SSLv2 */
		EXT("\x80", CLIENTHELLO_MORE),
		EXT("\x80\x2e", CLIENTHELLO_MORE),
		EXT("\x80\x2e\x01", CLIENTHELLO_BAD),
		EXT("\x80\x2e\x02", CLIENTHELLO_NOT_TLS),
		/* not TLS */
		EXT("\x15\x03\x01\x00\x02\x02\x46", CLIENTHELLO_NOT_TLS),
		EXT("\x17\x03\x03", CLIENTHELLO_NOT_TLS),
		EXT("\x00", CLIENTHELLO_NOT_TLS),
		EXT("GET / HTTP/1.1\r\n", CLIENTHELLO_NOT_TLS),
		EXT("SSH-2.0-x\r\n", CLIENTHELLO_NOT_TLS),
		EXT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", CLIENTHELLO_NOT_TLS),
		EXT("\xff\xff\xff", CLIENTHELLO_NOT_TLS),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct clienthello h;
		struct err e = ERR_INIT;
		enum clienthello_result rc = parse(str_from(rows[i].in, rows[i].n), &h, &e);

		if (rc != rows[i].want)
			fail_msg("%d (%s) for row %zu", rc, e.text, i);
		assert_int_equal(clienthello_parse(str_from(rows[i].in, rows[i].n), &h, NULL), rc);
	}
}

/* The lengths before the extensions, each made wrong. */
static void test_every_byte(void **state)
{
	struct strbuf msg, raw, ext;
	size_t ok = 0, bad = 0;

	(void)state;
	strbuf_init(&msg, 1000);
	strbuf_init(&raw, 1000);
	strbuf_init(&ext, 1000);
	add_sni(&ext, STR("allowed.test"));
	add_ext(&ext, 16, (struct str){"\x00\x03\x02h2", 5});
	add_ext(&ext, 43, STR("\x02\x03\x04"));
	add_hello(&msg, strbuf_str(&ext), true);
	add_records(&raw, strbuf_str(&msg), 50);
	for (size_t at = 0; at < raw.len; at++) {
		char was = raw.data[at];

		for (int c = 0; c < 256; c++) {
			struct clienthello h;
			enum clienthello_result rc;

			raw.data[at] = (char)c;
			rc = parse(strbuf_str(&raw), &h, NULL);
			ok += rc == CLIENTHELLO_OK;
			bad += rc == CLIENTHELLO_BAD;
			assert_true(h.sni_len == strlen(h.sni) && h.alpn_len <= sizeof(h.alpn));
		}
		raw.data[at] = was;
	}
	assert_true(ok > 1000 && bad > 1000);
	strbuf_clear(&msg);
	strbuf_clear(&raw);
	strbuf_clear(&ext);
}

static void test_random(void **state)
{
	unsigned seed = 11;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		char mem[128] = "\x16\x03\x01\x00\x60\x01\x00\x00\x5c\x03\x03";
		struct clienthello h;
		size_t n;

		for (size_t i = 11 + 32; i < sizeof(mem); i++) {
			seed = seed * 1103515245u + 12345u;
			mem[i] = (char)(seed >> 16 & (round % 2 ? 0xff : 0x07));
		}
		n = 1 + (seed >> 20) % sizeof(mem);
		(void)parse(str_from(mem, n), &h, NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_openssl),	     cmocka_unit_test(test_names),
		cmocka_unit_test(test_long_names),   cmocka_unit_test(test_extensions),
		cmocka_unit_test(test_what_is_read), cmocka_unit_test(test_long_alpn),
		cmocka_unit_test(test_sizes),	     cmocka_unit_test(test_first_bytes),
		cmocka_unit_test(test_every_byte),   cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
