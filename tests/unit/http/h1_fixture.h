/*
 * What the tests of requests' and of responses' heads share.
 */
#ifndef STILE_TESTS_UNIT_HTTP_H1_FIXTURE_H
#define STILE_TESTS_UNIT_HTTP_H1_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>

#include "proxy/http/h1.h"

/* A scan in pieces of `step` bytes, each piece in memory of its own that ends where it ends. */
static inline int scan_in_steps(struct h1_scan scan, struct str raw, size_t step, size_t max,
				size_t *ret_len, struct err *e)
{
	size_t have = 0;
	int rc = 0;

	while (rc == 0 && have < raw.n) {
		char *copy;

		have = raw.n - have < step ? raw.n : have + step;
		copy = malloc(have);
		assert_non_null(copy);
		memcpy(copy, raw.p, have);
		rc = h1_scan_head(&scan, str_from(copy, have), max, ret_len, e);
		free(copy);
	}
	return rc;
}

/* `name=value|` for each, in their order. */
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
