/*
 * What the tests of YAML and of loading share: a text, and the faults that it must give, no more
 * and no fewer. An expectation is "LINE:COL: part of the text"; without a place, any will do.
 */
#ifndef STILE_TESTS_UNIT_POLICY_FAULTS_CHECK_H
#define STILE_TESTS_UNIT_POLICY_FAULTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy/config.h"

#define EXPECTED_MAX 16

struct fault_row {
	const char *text;
	const char *want[EXPECTED_MAX]; /* in the order of the file */
};

/* One printed line against one expectation. */
static inline bool line_fits(struct str line, const char *want)
{
	const char *space = want[0] >= '0' && want[0] <= '9' ? strchr(want, ' ') : NULL;
	struct str place = space ? str_from(want, (size_t)(space - want) + 1) : STR("");
	struct str part = str_from_c(space ? space + 1 : want);

	if (!str_starts(line, STR("f.yaml:")))
		return false;
	if (!str_starts(str_skip(line, strlen("f.yaml:")), place))
		return false;
	return part.n == 0 || memmem(line.p, line.n, part.p, part.n);
}

static inline void check_faults(struct faults *f, const char *text, const char *const *want)
{
	struct strbuf out;
	struct str rest;
	size_t i = 0;

	strbuf_init(&out, 1 << 20);
	faults_print(f, &out);
	rest = strbuf_str(&out);
	while (rest.n > 0) {
		struct str line = str_split(&rest, '\n');

		if (i == EXPECTED_MAX || !want[i] || !line_fits(line, want[i]))
			fail_msg("of\n%s\nwanted as number %zu: %s\ngot:\n%s", text, i,
				 i < EXPECTED_MAX && want[i] ? want[i] : "(nothing)",
				 strbuf_cstr(&out));
		i++;
	}
	if (i < EXPECTED_MAX && want[i])
		fail_msg("of\n%s\nwanted as number %zu: %s\ngot:\n%s", text, i, want[i],
			 strbuf_cstr(&out));
	strbuf_clear(&out);
}

#endif
