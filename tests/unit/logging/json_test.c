/*
 * The JSON writer, read back by jansson: every byte, every kind of invalid UTF-8, random bytes; and
 * that no raw byte of a line could move a terminal's cursor or split the line.
 */
#include "out_fixture.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "logging/json.h"
#include "logging/utf8.h"

static const char *written(struct str s)
{
	struct json j;

	strbuf_reset(&out);
	json_init(&j, &out);
	json_str(&j, s);
	return strbuf_cstr(&out);
}

/* What a reader must get for s: the text itself, an invalid byte as \xNN. */
static void expect_text(struct str s, struct strbuf *want)
{
	while (s.n) {
		uint32_t cp;
		size_t n = utf8_decode(s, &cp);

		if (cp == UTF8_INVALID)
			strbuf_addf(want, "\\x%02x", (unsigned char)s.p[0]);
		else
			strbuf_add(want, str_head(s, n));
		s = str_skip(s, n);
	}
}

static void check_round_trip(struct str s)
{
	const char *text = written(s);
	json_error_t error;
	json_t *back = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
	struct strbuf want;

	if (!back)
		fail_msg("%s: %s", error.text, text);
	/* The line itself holds no hazard. */
	assert_int_equal(utf8_clean(str_from_c(text)), strlen(text));
	strbuf_init(&want, 1 << 20);
	expect_text(s, &want);
	assert_int_equal(json_string_length(back), want.len);
	if (want.len)
		assert_memory_equal(json_string_value(back), want.data, want.len);
	strbuf_clear(&want);
	json_decref(back);
}

static void test_known(void **state)
{
	(void)state;
	assert_string_equal(written(STR("a\"b\\c/")), "\"a\\\"b\\\\c/\"");
	assert_string_equal(written(str_from("\0\n\x7f", 3)), "\"\\u0000\\u000a\\u007f\"");
	assert_string_equal(written(STR("\xc2\x9b\xe2\x80\xa8\xe2\x80\xae")),
			    "\"\\u009b\\u2028\\u202e\"");
	assert_string_equal(written(STR("\xc3\xa9\xf0\x9f\x90\x91")),
			    "\"\xc3\xa9\xf0\x9f\x90\x91\"");
	assert_string_equal(written(STR("\xff")), "\"\\\\xff\"");
	assert_string_equal(written(STR_NONE), "\"\"");
	assert_string_equal(written(STR("x\":\"y")), "\"x\\\":\\\"y\"");
}

static void test_every_byte(void **state)
{
	char all[256];

	(void)state;
	for (int i = 0; i < 256; i++) {
		char one = (char)i;

		all[i] = one;
		check_round_trip(str_from(&one, 1));
	}
	check_round_trip(str_from(all, sizeof(all)));
}

/* Eight bytes are looked at in one step: each byte at each place of strings around that size. */
static void test_every_place(void **state)
{
	char text[36];

	(void)state;
	for (size_t n = 1; n <= sizeof(text); n++) {
		for (size_t at = 0; at < n; at++) {
			for (int c = 0; c < 256; c++) {
				memset(text, 'a', n);
				text[at] = (char)c;
				check_round_trip(str_from(text, n));
			}
		}
	}
}

static void test_invalid_utf8(void **state)
{
	static const char *const invalid[] = {
		"\xc0\xaf",
		"\xc1\xbf",
		"\xe0\x80\xaf",
		"\xe0\x9f\xbf",
		"\xf0\x80\x80\xaf",
		"\xf0\x8f\xbf\xbf",
		"\xed\xa0\x80",
		"\xed\xbf\xbf",
		"\xf4\x90\x80\x80",
		"\xf5\x80\x80\x80",
		"\xf8\x88\x80\x80\x80",
		"\x80",
		"\xbf\xbf",
		"\xc3",
		"\xe2\x82",
		"\xf0\x9f\x90",
		"\xc3\x28",
		"\xe2\x28\xa1",
		"\xe2\x82\x28",
		"\xfe\xfe\xff\xff",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++) {
		const char *text;

		check_round_trip(str_from_c(invalid[i]));
		text = written(str_from_c(invalid[i]));
		assert_int_equal(strncmp(text, "\"\\\\x", 4), 0);
	}
	check_round_trip(STR("ok\xc3\xa9\xe2\x82good\xff"));
}

static void test_random(void **state)
{
	uint32_t seed = 12345;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		char bytes[64];
		size_t n = (size_t)round % sizeof(bytes);

		for (size_t i = 0; i < n; i++) {
			seed = seed * 1664525 + 1013904223;
			/* Many tail and lead bytes, so that valid sequences occur too. */
			bytes[i] = (char)(seed >> 24 | (round & 1 ? 0x80 : 0));
		}
		check_round_trip(str_from(bytes, n));
	}
}

static const char *cut(struct str s, size_t max)
{
	struct json j;

	strbuf_reset(&out);
	json_init(&j, &out);
	json_str_max(&j, s, max);
	return strbuf_cstr(&out);
}

static void test_cut(void **state)
{
	(void)state;
	assert_string_equal(cut(STR("abcd"), 4), "\"abcd\"");
	assert_string_equal(cut(STR("abcde"), 4), "\"abcd[cut]\"");
	assert_string_equal(cut(STR("abcde"), 0), "\"[cut]\"");
	/* Not in the middle of a character. */
	assert_string_equal(cut(STR("ab\xc3\xa9z"), 3), "\"ab[cut]\"");
	assert_string_equal(cut(STR("ab\xc3\xa9z"), 4), "\"ab\xc3\xa9[cut]\"");
	assert_string_equal(cut(STR("\xf0\x9f\x90\x91!"), 3), "\"[cut]\"");
	/* Stray tail bytes have no boundary. */
	assert_string_equal(cut(STR("\x80\x80\x80\x80\x80\x80"), 5),
			    "\"\\\\x80\\\\x80\\\\x80\\\\x80\\\\x80[cut]\"");
}

static void test_structure(void **state)
{
	struct json j;

	(void)state;
	strbuf_reset(&out);
	json_init(&j, &out);
	json_open(&j, '{');
	json_kv_str(&j, "a", STR("1"));
	json_kv_opt(&j, "none", STR_NONE);
	json_kv_opt(&j, "b", STR("2"));
	json_kv_u64(&j, "c", UINT64_MAX);
	json_key(&j, "d");
	json_open(&j, '[');
	json_bool(&j, true);
	json_bool(&j, false);
	json_u64(&j, 0);
	json_open(&j, '{');
	json_close(&j, '}');
	json_str(&j, STR("x"));
	json_close(&j, ']');
	json_kv_str(&j, "e\n", STR_NONE);
	json_close(&j, '}');
	assert_string_equal(strbuf_cstr(&out),
			    "{\"a\":\"1\",\"b\":\"2\",\"c\":18446744073709551615,"
			    "\"d\":[true,false,0,{},\"x\"],\"e\\u000a\":\"\"}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known),	    cmocka_unit_test(test_every_byte),
		cmocka_unit_test(test_every_place), cmocka_unit_test(test_invalid_utf8),
		cmocka_unit_test(test_random),	    cmocka_unit_test(test_cut),
		cmocka_unit_test(test_structure),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
