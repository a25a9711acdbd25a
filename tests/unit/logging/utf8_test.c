/*
 * Strict UTF-8, against a second and slower reading of its definition, over every code point and
 * every sequence of three bytes.
 */
#include "unit.h"

#include <string.h>

#include "logging/utf8.h"

static size_t encode(uint32_t cp, char out[4])
{
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xc0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (char)(0xe0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		out[2] = (char)(0x80 | (cp & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
	out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
	out[3] = (char)(0x80 | (cp & 0x3f));
	return 4;
}

static void test_every_code_point(void **state)
{
	(void)state;
	for (uint32_t cp = 0; cp < 0x120000; cp++) {
		char bytes[4];
		size_t n = encode(cp, bytes);
		uint32_t got;
		size_t took = utf8_decode(str_from(bytes, n), &got);

		if ((cp >= 0xd800 && cp <= 0xdfff) || cp > 0x10ffff) {
			assert_int_equal(took, 1);
			assert_int_equal(got, UTF8_INVALID);
			continue;
		}
		assert_int_equal(took, n);
		assert_int_equal(got, cp);
		for (size_t cut = 1; cut < n; cut++) {
			assert_int_equal(utf8_decode(str_from(bytes, cut), &got), 1);
			assert_int_equal(got, UTF8_INVALID);
		}
	}
}

/* Whatever is read must be what encoding gives back: no overlong form passes. */
static void test_every_three_bytes(void **state)
{
	(void)state;
	for (uint32_t v = 0; v < 0x1000000; v++) {
		char in[3] = {(char)(v >> 16), (char)(v >> 8), (char)v};
		char back[4];
		uint32_t cp;
		size_t took = utf8_decode(str_from(in, 3), &cp);

		if (cp == UTF8_INVALID) {
			if (took != 1)
				fail();
			continue;
		}
		if (encode(cp, back) != took || memcmp(back, in, took) != 0)
			fail_msg("%06x read as U+%04X", (unsigned)v, (unsigned)cp);
	}
}

static void test_hazards(void **state)
{
	size_t count = 0;

	(void)state;
	for (uint32_t cp = 0; cp < 0x110000; cp++)
		count += utf8_is_hazard(cp);
	/* C0, DEL, C1, U+061C, U+200E/F, U+2028/9, U+202A-E, U+2066-9 */
	assert_int_equal(count, 32 + 1 + 32 + 1 + 2 + 2 + 5 + 4);
	for (uint32_t cp = 0x202a; cp <= 0x202e; cp++)
		assert_true(utf8_is_hazard(cp));
	for (uint32_t cp = 0x2066; cp <= 0x2069; cp++)
		assert_true(utf8_is_hazard(cp));
	assert_true(utf8_is_hazard(0x61c) && utf8_is_hazard(0x200e) && utf8_is_hazard(0x200f));
	assert_true(utf8_is_hazard(0x2028) && utf8_is_hazard(0x2029));
	assert_true(utf8_is_hazard(UTF8_INVALID));
	assert_int_equal(utf8_clean(STR("ab\xc3\xa9\x1b")), 4);
	assert_int_equal(utf8_clean(STR("ab")), 2);
	assert_int_equal(utf8_clean(STR_NONE), 0);
}

static void test_escape_fits(void **state)
{
	char out[8];

	(void)state;
	assert_int_equal(utf8_escape(STR("abcdefg"), out, sizeof(out)), 7);
	assert_string_equal(out, "abcdefg");
	assert_int_equal(utf8_escape(STR("abcd\n"), out, sizeof(out)), 4);
	assert_string_equal(out, "abcd");
	assert_int_equal(utf8_escape(STR("abcdef\xc3\xa9"), out, sizeof(out)), 6);
	assert_int_equal(utf8_escape(STR("abc"), out, 1), 0);
	assert_string_equal(out, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_code_point),
		cmocka_unit_test(test_every_three_bytes),
		cmocka_unit_test(test_hazards),
		cmocka_unit_test(test_escape_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
