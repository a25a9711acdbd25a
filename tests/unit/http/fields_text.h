/*
 * Fields as one text, to be compared: `name=value|` for each, in their order.
 */
#ifndef STILE_TESTS_UNIT_HTTP_FIELDS_TEXT_H
#define STILE_TESTS_UNIT_HTTP_FIELDS_TEXT_H

#include <stdio.h>

#include "proxy/http/message.h"

static inline void expect_fields(const struct fields *f, const char *want)
{
	char got[2048] = "";
	size_t len = 0;

	for (size_t i = 0; i < f->n; i++)
		len += (size_t)snprintf(got + len, sizeof(got) - len, "%.*s=%.*s|",
					STR_FMT(f->v[i].name), STR_FMT(f->v[i].value));
	assert_string_equal(got, want);
}

#endif
