/*
 * Slices: empty ones, embedded NUL bytes, cuts past the end, numbers at the edge of 64 bits.
 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

static void test_from(void **state)
{
	(void)state;
	assert_str(str_from_c("abc"), "abc");
	assert_int_equal(str_from_c(NULL).n, 0);
	assert_null(str_from_c(NULL).p);
	assert_int_equal(str_from("a\0b", 3).n, 3);
}

static void test_compare(void **state)
{
	(void)state;
	assert_true(str_eq(STR_NONE, STR("")));
	assert_true(str_eq(str_from("a\0b", 3), str_from("a\0b", 3)));
	assert_false(str_eq(str_from("a\0b", 3), str_from("a\0c", 3)));
	assert_false(str_eq(STR("ab"), STR("abc")));
	assert_true(str_eq_nocase(STR("HoSt-9"), STR("hOsT-9")));
	assert_false(str_eq_nocase(STR("ab"), STR("abc")));
	/* '@' and '`', '[' and '{' differ in the bit of ASCII case too. */
	assert_false(str_eq_nocase(STR("@["), STR("`{")));
	assert_false(str_eq_nocase(STR("\xc3\x84"), STR("\xc3\xa4")));
	assert_true(str_cmp(STR("a"), STR("ab")) < 0);
	assert_true(str_cmp(STR("b"), STR("ab")) > 0);
	assert_true(str_cmp(STR("\xff"), STR("a")) > 0);
	assert_int_equal(str_cmp(STR("ab"), STR("ab")), 0);
	assert_int_equal(str_cmp(STR_NONE, STR("")), 0);
	assert_true(str_cmp(STR_NONE, STR("a")) < 0);
}

static void test_ends(void **state)
{
	(void)state;
	assert_true(str_starts(STR("abc"), STR("ab")));
	assert_true(str_starts(STR("abc"), STR_NONE));
	assert_false(str_starts(STR("ab"), STR("abc")));
	assert_false(str_starts(STR("abc"), STR("b")));
	assert_true(str_ends(STR("abc"), STR("bc")));
	assert_true(str_ends(STR("abc"), STR("")));
	assert_false(str_ends(STR("bc"), STR("abc")));
	assert_false(str_ends(STR("abc"), STR("b")));
}

static void test_cut(void **state)
{
	(void)state;
	assert_int_equal(str_find(STR("abcb"), 'b'), 1);
	assert_int_equal(str_find(STR("abc"), 'x'), -1);
	assert_int_equal(str_find(STR_NONE, 'x'), -1);
	assert_str(str_skip(STR("abc"), 1), "bc");
	assert_str(str_skip(STR("abc"), 9), "");
	assert_int_equal(str_skip(STR_NONE, 9).n, 0);
	assert_str(str_head(STR("abc"), 2), "ab");
	assert_str(str_head(STR("abc"), 9), "abc");
	assert_str(str_trim_ows(STR(" \t a b\t ")), "a b");
	assert_str(str_trim_ows(STR(" \t ")), "");
	assert_str(str_trim_ows(STR("\va\n")), "\va\n");
}

static void test_split(void **state)
{
	struct str rest = STR("a,,b,");

	(void)state;
	assert_str(str_split(&rest, ','), "a");
	assert_str(str_split(&rest, ','), "");
	assert_str(str_split(&rest, ','), "b");
	assert_non_null(rest.p); /* an empty piece is still to come */
	assert_str(str_split(&rest, ','), "");
	assert_null(rest.p);
	assert_int_equal(str_split(&rest, ',').n, 0);
}

static void test_to_u64(void **state)
{
	static const char *const bad[] = {
		"",
		"-1",
		"+1",
		" 1",
		"1 ",
		"0x1",
		"1e3",
		"18446744073709551616",
		"99999999999999999999",
		"1_0",
		"1,0",
	};
	uint64_t n = 7;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(str_to_u64(str_from_c(bad[i]), &n), -1);
		assert_int_equal(n, 7);
	}
	assert_int_equal(str_to_u64(str_from("1\0", 2), &n), -1);
	assert_int_equal(str_to_u64(STR("0"), &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(str_to_u64(STR("18446744073709551615"), &n), 0);
	assert_true(n == UINT64_MAX);
	assert_int_equal(str_to_u64(STR("00012"), &n), 0);
	assert_int_equal(n, 12);
}

static void test_dup(void **state)
{
	char *copy = str_dup(str_from("a\0b", 3));

	(void)state;
	assert_memory_equal(copy, "a\0b\0", 4);
	free(copy);
	copy = str_dup(STR_NONE);
	assert_string_equal(copy, "");
	free(copy);
}

/* Each bit of a key counts, wherever it stands, and so does its length. */
static void test_hash(void **state)
{
	char key[41] = {0};
	uint64_t plain = str_hash(7, str_from(key, sizeof(key)));

	(void)state;
	assert_true(plain == str_hash(7, str_from(key, sizeof(key))));
	assert_true(plain != str_hash(8, str_from(key, sizeof(key))));
	for (size_t bit = 0; bit < sizeof(key) * 8; bit++) {
		key[bit / 8] = (char)(1 << bit % 8);
		assert_true(plain != str_hash(7, str_from(key, sizeof(key))));
		key[bit / 8] = 0;
	}
	for (size_t n = 0; n < sizeof(key); n++)
		assert_true(plain != str_hash(7, str_from(key, n)));
	assert_true(str_hash(7, STR_NONE) == str_hash(7, STR("")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_from),  cmocka_unit_test(test_compare),
		cmocka_unit_test(test_ends),  cmocka_unit_test(test_cut),
		cmocka_unit_test(test_split), cmocka_unit_test(test_to_u64),
		cmocka_unit_test(test_dup),   cmocka_unit_test(test_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
