/*
 * Percent-encodings undone: each byte in both cases, what is broken left as it stands, the room
 * held, and in place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "logging/attrs.h"
#include "logging/percent.h"

static void digits_are_those_of_the_c_library(void **state)
{
	(void)state;
	for (int c = -128; c < 256; c++) {
		char text[2] = {(char)c, '\0'};
		unsigned want;

		if (strspn(text, "0123456789abcdefABCDEF") != 1) {
			assert_int_equal(hex_value((char)c), -1);
			continue;
		}
		assert_int_equal(sscanf(text, "%x", &want), 1);
		assert_int_equal(hex_value((char)c), want);
	}
}

static void every_byte_both_ways(void **state)
{
	(void)state;
	for (unsigned b = 0; b < 256; b++) {
		char low[4], high[4];

		(void)snprintf(low, sizeof(low), "%%%02x", b);
		(void)snprintf(high, sizeof(high), "%%%02X", b);
		assert_int_equal(percent_byte(str_from(low, 3), 0), b);
		assert_int_equal(percent_byte(str_from(high, 3), 0), b);
	}
}

static void decoded(void **state)
{
	static const struct {
		const char *in;
		size_t room;
		const char *out;
	} rows[] = {
		{"", 8, ""},	     {"plain", 8, "plain"}, {"%61%2F%2f", 8, "a//"},
		{"%2561", 8, "%61"}, /* once */
		{"%", 8, "%"},	     {"%6", 8, "%6"},	    {"%6g%g6%%61", 12, "%6g%g6%a"},
		{"a%61", 1, "a"},    {"%61%62", 1, "a"},    {"abc", 0, ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char out[16];
		size_t n = percent_decode(str_from_c(rows[i].in), out, rows[i].room);

		assert_int_equal(n, strlen(rows[i].out));
		assert_memory_equal(out, rows[i].out, n);
	}
}

static void in_place(void **state)
{
	char text[] = "k%65y%5Bid%5d";

	(void)state;
	assert_int_equal(percent_decode(str_from_c(text), text, strlen(text)), 7);
	assert_memory_equal(text, "key[id]", 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(digits_are_those_of_the_c_library),
		cmocka_unit_test(every_byte_both_ways),
		cmocka_unit_test(decoded),
		cmocka_unit_test(in_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
