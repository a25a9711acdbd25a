/*
 * Bounded text: growth, the bound to the byte, what happens past it, handing the memory over, and
 * the escapes for human eyes.
 */
#include "unit.h"

#include <stdio.h>

#include <stdlib.h>
#include <string.h>

#include "logging/strbuf.h"

static void test_grow(void **state)
{
	struct strbuf b;

	(void)state;
	strbuf_init(&b, 100000);
	assert_string_equal(strbuf_cstr(&b), "");
	assert_null(b.data);
	for (int i = 0; i < 50000; i++)
		strbuf_addc(&b, (char)('a' + i % 26));
	assert_int_equal(b.len, 50000);
	assert_false(b.overflowed);
	for (int i = 0; i < 50000; i++)
		assert_int_equal(b.data[i], 'a' + i % 26);
	assert_int_equal(b.data[b.len], '\0');
	strbuf_reset(&b);
	assert_string_equal(strbuf_cstr(&b), "");
	assert_non_null(b.data);
	strbuf_clear(&b);
	assert_null(b.data);
	strbuf_adds(&b, "again");
	assert_string_equal(strbuf_cstr(&b), "again");
	strbuf_wipe(&b);
	assert_null(b.data);
	strbuf_wipe(&b);
}

static void test_bound(void **state)
{
	struct strbuf b;

	(void)state;
	strbuf_init(&b, 4);
	strbuf_adds(&b, "abcd");
	assert_false(b.overflowed);
	strbuf_add(&b, STR_NONE);
	assert_false(b.overflowed);
	strbuf_addc(&b, 'e');
	assert_true(b.overflowed);
	assert_string_equal(strbuf_cstr(&b), "abcd");
	strbuf_reset(&b);
	assert_false(b.overflowed);
	strbuf_adds(&b, "ab");
	strbuf_adds(&b, "cdef");
	assert_string_equal(strbuf_cstr(&b), "abcd");
	assert_true(b.overflowed);
	assert_true(b.cap <= 5);
	assert_null(strbuf_take(&b));
	assert_int_equal(b.len, 0);
	assert_false(b.overflowed);
	/* After a dropped byte nothing more is taken: a text has no holes. */
	strbuf_adds(&b, "abc");
	strbuf_adds(&b, "de");
	strbuf_reset(&b);
	strbuf_adds(&b, "abcde");
	b.len = 2;
	strbuf_adds(&b, "x");
	assert_int_equal(b.len, 2);
	strbuf_clear(&b);
	strbuf_init(&b, 0);
	strbuf_addc(&b, 'a');
	assert_true(b.overflowed);
	assert_string_equal(strbuf_cstr(&b), "");
	strbuf_clear(&b);
	strbuf_init(&b, SIZE_MAX);
	strbuf_adds(&b, "ok");
	assert_string_equal(strbuf_cstr(&b), "ok");
	strbuf_clear(&b);
}

static void test_formats(void **state)
{
	struct strbuf b;
	char big[1000];

	(void)state;
	memset(big, 'y', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	strbuf_init(&b, 5000);
	strbuf_addu(&b, 0);
	strbuf_addc(&b, ' ');
	strbuf_addu(&b, UINT64_MAX);
	strbuf_addf(&b, " %s=%d", "a", -3);
	assert_string_equal(strbuf_cstr(&b), "0 18446744073709551615 a=-3");
	strbuf_reset(&b);
	strbuf_addf(&b, "<%s>", big);
	assert_int_equal(b.len, 1001);
	assert_int_equal(b.data[0], '<');
	assert_int_equal(b.data[1000], '>');
	strbuf_clear(&b);
	strbuf_init(&b, 500);
	strbuf_addf(&b, "<%s>", big);
	assert_int_equal(b.len, 500);
	assert_int_equal(b.data[500], '\0');
	assert_true(b.overflowed);
	strbuf_clear(&b);
}

static void test_take(void **state)
{
	struct strbuf b;
	char *text;

	(void)state;
	strbuf_init(&b, 10);
	assert_null(strbuf_take(&b));
	strbuf_adds(&b, "abc");
	text = strbuf_take(&b);
	assert_string_equal(text, "abc");
	free(text);
	assert_int_equal(b.len, 0);
	assert_int_equal(b.max, 10);
	strbuf_adds(&b, "d");
	assert_str(strbuf_str(&b), "d");
	strbuf_clear(&b);
}

static void test_fixed(void **state)
{
	char mem[8];
	struct strbuf b;

	(void)state;
	strbuf_init_fixed(&b, mem, sizeof(mem));
	assert_string_equal(strbuf_cstr(&b), "");
	strbuf_adds(&b, "abcdefg");
	assert_false(b.overflowed);
	strbuf_addc(&b, 'h');
	assert_true(b.overflowed);
	assert_string_equal(mem, "abcdefg");
	assert_ptr_equal(b.data, mem);
}

static void test_reserve(void **state)
{
	struct strbuf b;
	char *p;

	(void)state;
	strbuf_init(&b, 300);
	strbuf_adds(&b, "ab");
	assert_null(strbuf_reserve(&b, 299));
	assert_false(b.overflowed);
	p = strbuf_reserve(&b, 298);
	assert_ptr_equal(p, b.data + 2);
	memset(p, 'x', 298);
	p[298] = '\0';
	b.len += 298;
	assert_int_equal(strlen(strbuf_cstr(&b)), 300);
	strbuf_addc(&b, 'y');
	assert_true(b.overflowed);
	assert_null(strbuf_reserve(&b, 0));
	strbuf_clear(&b);
}

static void test_printable(void **state)
{
	struct strbuf b;

	(void)state;
	strbuf_init(&b, 1000);
	strbuf_add_printable(&b, STR("caf\xc3\xa9 \"\\ \xf0\x9f\x90\x91"));
	assert_string_equal(strbuf_cstr(&b), "caf\xc3\xa9 \"\\ \xf0\x9f\x90\x91");
	strbuf_reset(&b);
	strbuf_add_printable(&b, str_from("\0\t\n\r\x1b\x7f", 6));
	assert_string_equal(strbuf_cstr(&b), "\\x00\\x09\\x0a\\x0d\\x1b\\x7f");
	strbuf_reset(&b);
	strbuf_add_printable(&b, STR("\xc2\x9b\xe2\x80\xae\xe2\x80\xa8\xe2\x81\xa6\xd8\x9c"));
	assert_string_equal(strbuf_cstr(&b), "\\u009b\\u202e\\u2028\\u2066\\u061c");
	strbuf_reset(&b);
	strbuf_add_printable(&b, STR("\xff\xc0\xafz\xe2\x82"));
	assert_string_equal(strbuf_cstr(&b), "\\xff\\xc0\\xafz\\xe2\\x82");
	strbuf_clear(&b);
}

/* Every length of a number, at both ends of each. */
static void test_addu_digits(void **state)
{
	unsigned long long n = 1;

	(void)state;
	for (int digits = 1; digits <= 19; digits++, n *= 10) {
		unsigned long long all[] = {n - 1, n, n + 1, n * 9 + 9};

		for (size_t i = 0; i < ARRAY_LEN(all); i++) {
			char want[24];
			struct strbuf b;

			snprintf(want, sizeof(want), "%llu", all[i]);
			strbuf_init(&b, 64);
			strbuf_addu(&b, all[i]);
			assert_string_equal(strbuf_cstr(&b), want);
			strbuf_clear(&b);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addu_digits), cmocka_unit_test(test_grow),
		cmocka_unit_test(test_bound),	    cmocka_unit_test(test_formats),
		cmocka_unit_test(test_take),	    cmocka_unit_test(test_fixed),
		cmocka_unit_test(test_printable),   cmocka_unit_test(test_reserve),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
