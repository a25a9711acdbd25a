/*
 * What the unit tests of this folder share: cmocka's headers in the order it wants them.
 */
#ifndef STILE_TESTS_UNIT_LOGGING_UNIT_H
#define STILE_TESTS_UNIT_LOGGING_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "logging/str.h"

/* Compares a slice with text and shows both when they differ. */
#define assert_str(s, text)                                                                        \
	do {                                                                                       \
		struct str got_ = (s);                                                             \
		char *copy_ = str_dup(got_);                                                       \
		assert_non_null(copy_);                                                            \
		if (got_.n != strlen(text) || strcmp(copy_, (text)) != 0)                          \
			print_error("got  [%s]\nwant [%s]\n", copy_, (text));                      \
		assert_int_equal(got_.n, strlen(text));                                            \
		assert_memory_equal(copy_, (text), got_.n);                                        \
		free(copy_);                                                                       \
	} while (0)

#endif
