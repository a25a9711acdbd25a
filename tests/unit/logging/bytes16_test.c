/*
 * Sixteen bytes at a time says what one byte after the other says: every length, place and byte
 * value around the sixteens, in memory that ends where the text does.
 */
#include "unit.h"

#include <stdlib.h>

#include "logging/bytes16.h"

#define MAX_N 150

static ATTR_INLINE bytes16 is_stop(bytes16 v)
{
	return (bytes16)(v < 0x20) | (bytes16)(v == 0x7f);
}

static bool is_stop_plainly(char c)
{
	return (unsigned char)c < 0x20 || c == 0x7f;
}

static size_t find_plainly(const char *p, size_t i, size_t n)
{
	while (i < n && !is_stop_plainly(p[i]))
		i++;
	return i;
}

/* Of exactly n bytes, so that a sanitizer sees one byte too many. */
static char *text(size_t n)
{
	char *p = malloc(n ? n : 1);

	assert_non_null(p);
	memset(p, 'x', n);
	return p;
}

static void check(const char *p, size_t n)
{
	struct bytes16_walk walk;
	size_t at;

	for (size_t i = 0; i <= n; i++)
		assert_int_equal(bytes16_find(p, i, n, is_stop), find_plainly(p, i, n));
	assert_int_equal(bytes16_any(p, n, is_stop), find_plainly(p, 0, n) < n);
	for (size_t from = 0; from <= n; from += 1 + n / 7) {
		walk = bytes16_walk(p, from, n, is_stop);
		at = from;
		while ((at = find_plainly(p, at, n)) < n)
			assert_int_equal(bytes16_next(&walk, is_stop), at++);
		assert_int_equal(bytes16_next(&walk, is_stop), n);
		assert_int_equal(bytes16_next(&walk, is_stop), n);
	}
}

/* One, two or all stops in a text of each length. */
static void test_places(void **state)
{
	(void)state;
	for (size_t n = 0; n < MAX_N; n++) {
		char *p = text(n);

		check(p, n);
		for (size_t i = 0; i < n; i++) {
			p[i] = '\n';
			p[n - 1 - i / 2] = '\x7f';
			check(p, n);
			p[i] = p[n - 1 - i / 2] = 'x';
		}
		if (n > 0)
			memset(p, 0, n);
		check(p, n);
		free(p);
	}
}

/* Each value of a byte, at each place of one to forty. */
static void test_values(void **state)
{
	(void)state;
	for (size_t n = 1; n < 40; n++) {
		char *p = text(n);

		for (size_t i = 0; i < n; i++)
			for (unsigned c = 0; c < 256; c++) {
				bool yes;

				p[i] = (char)c;
				yes = is_stop_plainly(p[i]);
				assert_int_equal(bytes16_find(p, 0, n, is_stop), yes ? i : n);
				assert_int_equal(bytes16_any(p, n, is_stop), yes);
				p[i] = 'x';
			}
		free(p);
	}
}

static void test_classes(void **state)
{
	(void)state;
	for (unsigned c = 0; c < 256; c++) {
		bytes16 v = (bytes16){0} + (unsigned char)c;
		bool upper = c >= 'A' && c <= 'Z', letter = upper || (c >= 'a' && c <= 'z');

		assert_int_equal(bytes16_bits(bytes16_letter(v)), letter ? 0xffff : 0);
		assert_int_equal(bytes16_bits(bytes16_range(v, '-', ';')),
				 c >= '-' && c <= ';' ? 0xffff : 0);
		assert_int_equal(bytes16_lower(v)[3], upper ? c + 32 : c);
	}
}

/* Fewer than sixteen: in order with zeros behind, and in any order with nothing else. */
static void test_few(void **state)
{
	(void)state;
	for (size_t n = 1; n < 16; n++) {
		char *p = text(n);
		bool seen[16] = {0};
		bytes16 few, any;

		for (size_t i = 0; i < n; i++)
			p[i] = (char)(i + 1);
		few = bytes16_load_few(p, n);
		any = bytes16_load_any(p, n);
		for (size_t i = 0; i < 16; i++) {
			assert_int_equal(few[i], i < n ? i + 1 : 0);
			assert_in_range(any[i], 1, n);
			seen[any[i] - 1] = true;
		}
		for (size_t i = 0; i < n; i++)
			assert_true(seen[i]);
		free(p);
	}
}

static char lower_plainly(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* Any two bytes at any place of texts up to twice sixteen. */
static void test_nocase(void **state)
{
	(void)state;
	for (size_t n = 1; n < 34; n += n < 18 ? 1 : 5) {
		char *a = text(n), *b = text(n);

		memset(a, 'X', n);
		for (size_t i = 0; i < n; i += 1 + n / 5)
			for (unsigned c = 0; c < 256; c++)
				for (unsigned d = 0; d < 256; d++) {
					a[i] = (char)c;
					b[i] = (char)d;
					assert_int_equal(str_eq_nocase(str_from(a, n),
								       str_from(b, n)),
							 lower_plainly(a[i]) ==
								 lower_plainly(b[i]));
					a[i] = b[i] = 'x';
				}
		free(a);
		free(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),	cmocka_unit_test(test_values),
		cmocka_unit_test(test_classes), cmocka_unit_test(test_few),
		cmocka_unit_test(test_nocase),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
