/*
 * What an origin was given does not come back: each spelling of a value is blanked, whatever stands
 * around it and wherever the bytes are cut; what only looks like it stays; the length stays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "logging/limits.h"
#include "logging/strbuf.h"
#include "proxy/credentials/encode.h"
#include "proxy/credentials/redact.h"

#define SECRET "s3cr+t/K y~\xc3\xa9\"&\\%z-_."

static struct redactor *redactor_of(enum credential_as as, const char *user, struct str value)
{
	static char name[] = "tok", mem[64];
	struct config_credential c = {.name = name, .as = as};
	struct redactor *r;
	struct err e = ERR_INIT;

	if (user) {
		assert_true(strlen(user) < sizeof(mem));
		memcpy(mem, user, strlen(user) + 1);
		c.username = mem;
	}
	assert_int_equal(redactor_new(&c, value, &r, &e), 0);
	return r;
}

static struct redactor *bearer(const char *value)
{
	return redactor_of(CREDENTIAL_AS_BEARER, NULL, str_from_c(value));
}

static void on_out(void *arg, struct str data)
{
	strbuf_add(arg, data);
}

/* What comes out of text in pieces of `piece` bytes; 0: at once. */
static size_t run(const struct redactor *r, struct str text, size_t piece, struct strbuf *out)
{
	struct redaction x;
	struct err e = ERR_INIT;
	size_t found;

	strbuf_init(out, text.n + 1);
	redaction_init(&x, r);
	for (size_t at = 0; at < text.n;) {
		struct str in = str_head(str_skip(text, at), piece ? piece : text.n);

		assert_int_equal(redaction_push(&x, in, on_out, out, &e), 0);
		at += in.n;
	}
	redaction_end(&x, on_out, out);
	assert_int_equal(x.n, 0);
	found = (size_t)x.found;
	redaction_clear(&x);
	assert_int_equal(out->len, text.n);
	return found;
}

/* text comes out as want, however it is cut. */
static void assert_out(const struct redactor *r, const char *text, const char *want)
{
	size_t n = strlen(text);

	for (size_t piece = 0; piece <= n; piece++) {
		struct strbuf out;

		(void)run(r, str_from_c(text), piece, &out);
		assert_string_equal(strbuf_cstr(&out), want);
		strbuf_clear(&out);
	}
	/* Each one cut. */
	for (size_t cut = 1; cut < n; cut++) {
		struct strbuf out;
		struct redaction x;

		strbuf_init(&out, n + 1);
		redaction_init(&x, r);
		assert_int_equal(redaction_push(&x, str_from(text, cut), on_out, &out, NULL), 0);
		assert_int_equal(redaction_push(&x, str_from(text + cut, n - cut), on_out, &out,
						NULL),
				 0);
		redaction_end(&x, on_out, &out);
		redaction_clear(&x);
		assert_string_equal(strbuf_cstr(&out), want);
		strbuf_clear(&out);
	}
}

/* Between these two, each spelling is blanked whole. */
static void assert_blanked(const struct redactor *r, const char *before, struct str spelling,
			   const char *after)
{
	struct strbuf text, want;

	strbuf_init(&text, 100000);
	strbuf_init(&want, 100000);
	strbuf_adds(&text, before);
	strbuf_add(&text, spelling);
	strbuf_adds(&text, after);
	strbuf_adds(&want, before);
	strbuf_adds(&want, "[redacted]");
	for (size_t i = 10; i < spelling.n; i++)
		strbuf_addc(&want, '*');
	strbuf_adds(&want, after);
	assert_out(r, strbuf_cstr(&text), strbuf_cstr(&want));
	strbuf_clear(&text);
	strbuf_clear(&want);
}

static void test_plain(void **state)
{
	struct redactor *r = bearer("CANARY-7f3a");

	(void)state;
	assert_blanked(r, "", STR("CANARY-7f3a"), "");
	assert_blanked(r, "{\"token\":\"", STR("CANARY-7f3a"), "\"}");
	assert_blanked(r, "CANARY-7CANARY-7f3", STR("CANARY-7f3a"), "CANARY");
	assert_blanked(r, "C", STR("CANARY-7f3a"), "a");
	assert_out(r, "CANARY-7f3aCANARY-7f3a", "[redacted]*[redacted]*");
	assert_out(r, "CANARY-7f3b canary-7f3a CANARY_7f3a", "CANARY-7f3b canary-7f3a CANARY_7f3a");
	assert_out(r, "", "");
	redactor_free(r);
}

/* Too short for the word. */
static void test_short(void **state)
{
	struct redactor *r = bearer("12345678");

	(void)state;
	assert_out(r, "a12345678b123456789", "a********b********9");
	redactor_free(r);
	assert_null(bearer("1234567"));
	/* The pair is long enough, the password is not. */
	r = redactor_of(CREDENTIAL_AS_BASIC, "user", STR("1234"));
	assert_out(r, "user:1234 1234", "********* 1234");
	redactor_free(r);
	assert_null(redactor_of(CREDENTIAL_AS_BASIC, "me", STR("1234")));
}

static void test_percent(void **state)
{
	struct redactor *r = bearer("ab+c/d e=f%g");

	(void)state;
	assert_blanked(r, "?q=", STR("ab%2Bc%2Fd%20e%3Df%25g"), "&r=1");
	assert_blanked(r, "?q=", STR("ab%2bc%2fd+e%3df%25g"), "&r=1");
	assert_blanked(r, "?q=", STR("ab%2bc/d+e=f%25g"), "&r=1");
	assert_blanked(r, "%", STR("%61%62%2b%63%2f%64%20%65%3d%66%25%67"), "%6");
	assert_blanked(r, "", STR("%61b+c/d e=f%g"), "");
	assert_out(r, "%61%62%2b%63%2f%64%20%65%3d%66%25%6", "%61%62%2b%63%2f%64%20%65%3d%66%25%6");
	redactor_free(r);
}

static void test_json(void **state)
{
	struct redactor *r = bearer("q\"w\\e/r'ty<u>&i");

	(void)state;
	assert_blanked(r, "\"", STR("q\\\"w\\\\e\\/r'ty<u>&i"), "\"");
	assert_blanked(r, "\"", STR("q\\\"w\\\\e/r\\u0027ty\\u003cu\\u003E\\u0026i"), "\"");
	assert_blanked(r, "\"",
		       STR("\\u0071\\u0022\\u0077\\u005c\\u0065\\u002f\\u0072\\u0027\\u0074\\u0079"
			   "\\u003c\\u0075\\u003e\\u0026\\u0069"),
		       "\"");
	assert_blanked(r, "<p>", STR("q&quot;w\\e/r&#39;ty&lt;u&gt;&amp;i"), "</p>");
	assert_blanked(r, "<p>", STR("q&#34;w\\e&#x2F;r&#x27;ty&#60;u&#x3e;&#038;i"), "</p>");
	assert_blanked(r, "'", STR("q\\x22w\\\\e/r\\'ty\\x3cu\\x3E&i"), "'");
	redactor_free(r);
	r = redactor_of(CREDENTIAL_AS_QUERY, NULL,
			STR("p\xc3\xa4ss-\xf0\x9f\x94\x91-w\xe2\x82\xac"));
	assert_blanked(r, "\"", STR("p\xc3\xa4ss-\xf0\x9f\x94\x91-w\xe2\x82\xac"), "\"");
	assert_blanked(r, "\"", STR("p\\u00e4ss-\\ud83d\\udd11-w\\u20AC"), "\"");
	assert_blanked(r, "\"", STR("p%C3%A4ss-%F0%9f%94%91-w%E2%82%AC"), "\"");
	assert_blanked(r, "\"", STR("p&#228;ss-&#x1f511;-w&#8364;"), "\"");
	assert_out(r, "p\\u00e4ss-\\ud83d\\u0041", "p\\u00e4ss-\\ud83d\\u0041");
	redactor_free(r);
}

/* A value that is full of what could be read in two ways. */
static void test_ambiguous(void **state)
{
	struct redactor *r = bearer("%25%2525%5c%");

	(void)state;
	assert_blanked(r, "", STR("%25%2525%5c%"), "");
	assert_blanked(r, "", STR("%2525%252525%255c%25"), "");
	assert_blanked(r, "", STR("%25%252525%255c%"), "");
	redactor_free(r);
	r = bearer("\\\\\\\\\\\\\\\\");
	assert_out(r, "a\\\\\\\\\\\\\\\\b", "a********b");
	redactor_free(r);
	/* All of it escaped; and as a signed URL's query has them. */
	r = bearer("\\\\\\=\\\\T   \\\\\\\\@K");
	assert_blanked(
		r, "",
		STR("\\x5C\\x5C\\x5C\\x3D\\x5C\\x5C\\x54\\x20\\x20\\x20\\x5C\\x5C\\x5C\\x5C\\x40"
		    "\\x4B"),
		"");
	redactor_free(r);
	r = bearer("a&b=%2B&c=%2F&d=%3D&e=%2B&f=%2F&g=%3D&h=%2B&i=%2F");
	assert_blanked(
		r, "",
		STR("a&amp;b=%252B&amp;c=%252F&amp;d=%253D&amp;e=%252B&amp;f=%252F&amp;g=%253D"
		    "&amp;h=%252B&amp;i=%252F"),
		"");
	redactor_free(r);
	/* More of them than are tried. */
	r = bearer("%&\\%&\\%&\\%&\\%&\\%&\\%&\\%&\\%&\\%&\\x");
	assert_blanked(r, "%", STR("%&\\%&\\%&\\%&\\%&\\%&\\%&\\%&\\%&\\%&\\x"), "\\");
	assert_blanked(r, "",
		       STR("%25&amp;\\\\%25&amp;\\\\%25&amp;\\\\%&\\%&\\%&\\%&\\%&\\%&\\%&\\x"),
		       "");
	redactor_free(r);
}

/* A text within a text within a text: a redirect to a login that leads back, JSON in JSON. */
static void test_nested(void **state)
{
	struct redactor *r = bearer("ab+c/d e\"f&g");

	(void)state;
	assert_blanked(r, "?next=%2Fx%3Fk%3D", STR("ab%252Bc%252Fd%2520e%2522f%2526g"), "%26");
	assert_blanked(r, "?next=", STR("ab%25252Bc/d%25252520e%2522f%26g"), "%252");
	assert_blanked(r, "%25", STR("%2561b+c/d e%2522f&g"), "%2561b");
	assert_blanked(r, "\"{\\\"t\\\":\\\"", STR("ab\\\\u002bc\\\\/d e\\\\\\\"f\\\\u0026g"),
		       "\\\"}\"");
	assert_blanked(r, "<a title='", STR("ab&amp;#43;c&amp;#x2f;d e&amp;quot;f&amp;amp;g"),
		       "'>");
	assert_blanked(r, "\"", STR("ab\\u0026#43;c\\u00252fd e%5c%22f\\u0026amp;g"), "\"");
	assert_out(r, "ab%252Bc%252", "ab%252Bc%252");
	redactor_free(r);
	/* and of base64, in lines */
	r = bearer("/+/+/+/+/+/+/+/+/+/+/+/+");
	assert_blanked(r, "", STR("%252f%252b/+/+/+/+/+/+/+/+/+/%2525252b%252f%252b"), "");
	redactor_free(r);
}

static void test_hex(void **state)
{
	struct redactor *r = bearer("Jk\x7e-lmno");

	(void)state;
	assert_blanked(r, "4", STR("4a6b7e2d6c6d6e6f"), "0");
	assert_blanked(r, "4", STR("4A6B7E2D6C6D6E6F"), "0");
	assert_out(r, "4a6b7e2d6c6d6e6", "4a6b7e2d6c6d6e6");
	redactor_free(r);
}

/* The letters that a value shares with its neighbours stay; all others are gone. */
static void assert_base64(const struct redactor *r, const char *before, struct str value,
			  const char *after, bool url)
{
	struct strbuf b, whole, out;
	size_t at = strlen(before), first = (8 * at + 5) / 6, end = 8 * (at + value.n) / 6;

	strbuf_init(&b, 100000);
	strbuf_init(&whole, 100000);
	strbuf_adds(&whole, before);
	strbuf_add(&whole, value);
	strbuf_adds(&whole, after);
	encode_base64(&b, strbuf_str(&whole), STR_NONE);
	for (size_t i = 0; url && i < b.len; i++)
		b.data[i] = b.data[i] == '+' ? '-' : b.data[i] == '/' ? '_' : b.data[i];
	for (size_t piece = 0; piece < 9; piece++) {
		assert_int_equal(run(r, strbuf_str(&b), piece, &out), 1);
		assert_memory_equal(out.data, b.data, first);
		assert_memory_equal(out.data + first, "[redacted]", 10);
		for (size_t i = first + 10; i < end; i++)
			assert_int_equal(out.data[i], '*');
		assert_string_equal(out.data + end, b.data + end);
		strbuf_clear(&out);
	}
	strbuf_clear(&b);
	strbuf_clear(&whole);
}

static void test_base64(void **state)
{
	static const char *const before[] = {"", "u", "us", "use", "user:"};
	static const char *const after[] = {"", "x", "xy", "xyz"};
	struct str value = STR("\x7f~?>\x7f\x7f~~?>k>>??");
	struct redactor *r = redactor_of(CREDENTIAL_AS_QUERY, NULL, value);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(before); i++)
		for (size_t k = 0; k < ARRAY_LEN(after); k++)
			for (int url = 0; url < 2; url++)
				assert_base64(r, before[i], value, after[k], url);
	redactor_free(r);
	/* With its / escaped, as PHP does, and in a URL. */
	r = bearer("?\?\?>>>?\?\?>>>");
	assert_blanked(r, "\"", STR("Pz8\\/Pj4+Pz8\\/Pj4+"), "\"");
	assert_blanked(r, "=", STR("Pz8%2fPj4%2BPz8%2FPj4%2b"), "&");
	assert_blanked(r, "=", STR("Pz8_Pj4-Pz8_Pj4-"), "&");
	redactor_free(r);
}

/* Base64 in lines, as of a mail or a PEM: of any length, and what ends a line in any spelling. */
static void test_base64_in_lines(void **state)
{
	static const char *const ends[] = {"\n",  "\r\n",   "\\n",   "\\r\\n",
					   "%0A", "%0d%0a", "&#10;", "\\u000d\\u000a"};
	struct str value = STR("\x7f~?>\x7f\x7f~~?>k>>?\?-and-more-of-it");
	struct redactor *r = redactor_of(CREDENTIAL_AS_QUERY, NULL, value);
	struct strbuf b64;

	(void)state;
	strbuf_init(&b64, 1000);
	encode_base64(&b64, value, STR_NONE);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		for (size_t width = 8; width < 40; width += width < 16 ? 1 : 10) {
			struct strbuf text;

			strbuf_init(&text, 10000);
			for (size_t at = 0; at < b64.len; at++) {
				if (at > 0 && at % width == 0)
					strbuf_adds(&text, ends[i]);
				strbuf_addc(&text, b64.data[at]);
			}
			assert_blanked(r, "x\r\n\r\n", strbuf_str(&text), "\r\n");
			/* In the midst of much, where the search looks at four bytes at a time. */
			for (size_t before = 200; before < 204; before++) {
				struct strbuf long_one, out;

				strbuf_init(&long_one, 10000);
				for (size_t n = 0; n < before; n++)
					strbuf_addc(&long_one, '.');
				strbuf_add(&long_one, strbuf_str(&text));
				for (size_t n = 0; n < 200; n++)
					strbuf_addc(&long_one, '.');
				assert_int_equal(run(r, strbuf_str(&long_one), 0, &out), 1);
				assert_int_equal(out.data[before], '[');
				strbuf_clear(&long_one);
				strbuf_clear(&out);
			}
			strbuf_clear(&text);
		}
	}
	strbuf_clear(&b64);
	redactor_free(r);
	/* A first line of any length; one end at a time, not too near, and in base64 alone. */
	r = bearer("?\?\?>>>?\?\?>>>");
	assert_out(r, "Pz8/\n\nPj4+Pz8/Pj4+", "Pz8/\n\nPj4+Pz8/Pj4+");
	assert_out(r, "Pz8/\n\r\nPj4+Pz8/Pj4+", "Pz8/\n\r\nPj4+Pz8/Pj4+");
	assert_out(r, "P\nz8/Pj4+P\nz8/Pj4+", "[redacted]********");
	assert_out(r, "P\nz8/Pj4+\nPz8/Pj4+", "P\nz8/Pj4+\nPz8/Pj4+");
	assert_out(r, "Pz8/\rPj4+Pz8/Pj4+", "Pz8/\rPj4+Pz8/Pj4+");
	assert_out(r, "?\?\?\n>>>?\?\?>>>", "?\?\?\n>>>?\?\?>>>");
	assert_out(r, "3f3f3f\n3e3e3e3f3f3f3e3e3e", "3f3f3f\n3e3e3e3f3f3f3e3e3e");
	assert_out(r, "Pz8\nPz8/Pj4+Pz8/Pj4+\n", "Pz8\n[redacted]******\n");
	redactor_free(r);
}

static void test_basic(void **state)
{
	struct redactor *r = redactor_of(CREDENTIAL_AS_BASIC, NULL, STR("aladdin:opensesame"));

	(void)state;
	assert_blanked(r, "Basic ", STR("YWxhZGRpbjpvcGVuc2VzYW1l"), "");
	assert_blanked(r, "", STR("aladdin:opensesame"), "");
	assert_blanked(r, "", STR("opensesame"), "");
	assert_blanked(r, "", STR("b3BlbnNlc2FtZ"), "Q=="); /* of the password alone */
	redactor_free(r);
	r = redactor_of(CREDENTIAL_AS_BASIC, "aladdin", STR("opensesame"));
	assert_blanked(r, "Basic ", STR("YWxhZGRpbjpvcGVuc2VzYW1l"), "");
	assert_blanked(r, "aladdin ", STR("opensesame"), "");
	redactor_free(r);
}

/* One of many pieces: each is found, and the text around stays. */
static void test_long(void **state)
{
	size_t n = LIMIT_SECRET_BYTES - 100;
	char *value = malloc(n);
	struct redactor *r;
	struct strbuf out, text;
	unsigned seed = 7;

	(void)state;
	assert_non_null(value);
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1103515245 + 12345;
		value[i] = (char)('A' + (seed >> 16) % 26);
	}
	r = redactor_of(CREDENTIAL_AS_BEARER, NULL, str_from(value, n));
	strbuf_init(&text, 20 * n);
	strbuf_adds(&text, "before");
	strbuf_add(&text, str_from(value, n));
	strbuf_adds(&text, "after");
	assert_int_equal(run(r, strbuf_str(&text), 1000, &out), n / LIMIT_REDACT_PIECE);
	assert_memory_equal(out.data, "before[redacted]***", 19);
	/* The last piece overlaps the one before, and what is left of it is no whole one. */
	for (size_t i = 0; i < n / LIMIT_REDACT_PIECE * LIMIT_REDACT_PIECE; i++)
		assert_true(strchr("[redacted]*", out.data[6 + i]));
	strbuf_clear(&out);
	strbuf_clear(&text);
	redactor_free(r);
	free(value);
}

/* Only what may be the beginning is held, and only as long as it may. */
static void test_hold(void **state)
{
	struct redactor *r = bearer("CANARY-7f3a");
	struct redaction x;
	struct strbuf out;

	(void)state;
	strbuf_init(&out, 1000);
	redaction_init(&x, r);
	assert_int_equal(redaction_push(&x, STR("data: hi\n\n"), on_out, &out, NULL), 0);
	assert_string_equal(strbuf_cstr(&out), "data: hi\n\n");
	assert_null(x.held);
	assert_int_equal(redaction_push(&x, STR("xCAN"), on_out, &out, NULL), 0);
	assert_string_equal(strbuf_cstr(&out), "data: hi\n\nx");
	assert_int_equal(redaction_push(&x, STR("X"), on_out, &out, NULL), 0);
	assert_string_equal(strbuf_cstr(&out), "data: hi\n\nxCANX");
	assert_null(x.held);
	redaction_clear(&x);
	strbuf_clear(&out);
	redactor_free(r);
}

/* Less than half is given up after a while, and stays known; more is not. */
static void test_release(void **state)
{
	struct redactor *r = bearer("CANARY-7f3a");
	struct redaction x;
	struct strbuf out;

	(void)state;
	strbuf_init(&out, 1000);
	redaction_init(&x, r);
	assert_int_equal(redaction_patience_ms(&x), 0);
	assert_int_equal(redaction_push(&x, STR("aCAN"), on_out, &out, NULL), 0);
	assert_int_equal(redaction_patience_ms(&x), LIMIT_MS_REDACT_HALF);
	redaction_release(&x, on_out, &out);
	assert_string_equal(strbuf_cstr(&out), "aCAN");
	assert_int_equal(redaction_patience_ms(&x), 0);
	assert_int_equal(redaction_push(&x, STR("ARY-"), on_out, &out, NULL), 0);
	assert_int_equal(redaction_patience_ms(&x), 0);
	redaction_release(&x, on_out, &out);
	assert_string_equal(strbuf_cstr(&out), "aCAN");
	assert_int_equal(redaction_push(&x, STR("7f3a.CANb"), on_out, &out, NULL), 0);
	assert_string_equal(strbuf_cstr(&out), "aCAN********.CANb");
	assert_int_equal(x.found, 1);
	assert_int_equal(redaction_push(&x, STR("CANARY-"), on_out, &out, NULL), 0);
	redaction_end(&x, on_out, &out);
	assert_string_equal(strbuf_cstr(&out), "aCAN********.CANbCANARY-");
	redaction_clear(&x);
	strbuf_clear(&out);
	redactor_free(r);
}

static void test_in_place(void **state)
{
	struct redactor *r = bearer(SECRET);
	char text[] = "x " SECRET " y " SECRET;
	char cut[] = "an error with s3cr+t/K";

	(void)state;
	assert_true(redact_finds(r, str_from_c(text)));
	assert_int_equal(redact_in_place(r, text, strlen(text), false), 2);
	assert_false(redact_finds(r, str_from_c(text)));
	assert_int_equal(redact_in_place(r, cut, strlen(cut), false), 0);
	assert_int_equal(redact_in_place(r, cut, strlen(cut), true), 1);
	assert_string_equal(cut, "an error with ********");
	redactor_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),	  cmocka_unit_test(test_short),
		cmocka_unit_test(test_percent),	  cmocka_unit_test(test_json),
		cmocka_unit_test(test_ambiguous), cmocka_unit_test(test_nested),
		cmocka_unit_test(test_hex),	  cmocka_unit_test(test_base64),
		cmocka_unit_test(test_basic),	  cmocka_unit_test(test_base64_in_lines),
		cmocka_unit_test(test_long),	  cmocka_unit_test(test_hold),
		cmocka_unit_test(test_release),	  cmocka_unit_test(test_in_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
