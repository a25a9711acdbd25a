/* Patterns, followed name by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proxy/export/glob.h"

/* 'y' matches, '.' does not but something below may, 'n' nothing may. */
static char ask(const char *pattern, const char *path)
{
	char name[64];
	struct glob *g;
	struct err e = ERR_INIT;
	glob_state at;
	char got;

	assert_int_equal(glob_new(pattern, &g, &e), 0);
	at = glob_start(g);
	for (const char *s = path; *s;) {
		size_t n = strcspn(s, "/");

		memcpy(name, s, n);
		name[n] = '\0';
		at = glob_next(g, at, name, NULL);
		s += n + (s[n] == '/');
	}
	got = glob_matches(g, at) ? 'y' : glob_goes_on(g, at) ? '.' : 'n';
	glob_free(g);
	return got;
}

static void test_matches(void **state)
{
	static const struct {
		const char *pattern, *path;
		char want;
	} cases[] = {
		{"a", "a", 'y'},
		{"a", "b", 'n'},
		{"a", "a/b", 'n'},
		{"a/b", "a", '.'},
		{"a/b", "a/b", 'y'},
		{"*", "abc", 'y'},
		{"*", ".abc", 'n'},
		{".*", ".abc", 'y'},
		{"a*", "a.b", 'y'},
		{"**", "x", 'y'},
		{"**", "x/y/z", 'y'},
		{"**", "x/.y", 'n'},
		{"**", ".x/y", 'n'},
		{"**/.x/y", "a/.x/y", 'y'},
		{"a/**/b", "a/b", 'y'},
		{"a/**/b", "a/x/y/b", 'y'},
		{"a/**/b", "a/x/y", '.'},
		{"**/a/**", "x/a", 'y'},
		{"**/a/**", "x/b", '.'},
		{"**/*.c", "x/y.c", 'y'},
		{"**/*.c", "x/y.h", '.'},
		{"**/**/a", "a", 'y'},
		{"[ab]/x", "b/x", 'y'},
		{"\\a", "a", 'n'},
		{"**/a/b/a", "a/b/a/b/a", 'y'},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (ask(cases[i].pattern, cases[i].path) != cases[i].want)
			fail_msg("%s on %s: not %c", cases[i].pattern, cases[i].path,
				 cases[i].want);
}

static void test_refused_patterns(void **state)
{
	static const char *const bad[] = {"",	    "/a",  "a/",  "a//b", "..",
					  "a/../b", "./a", "a**", "**a/b"};
	char long_one[2 * (GLOB_SEGMENTS_MAX + 1)];
	struct glob *g = NULL;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(glob_new(bad[i], &g, &e), -1);
	for (size_t i = 0; i < sizeof(long_one); i++)
		long_one[i] = i % 2 ? '/' : 'a';
	long_one[sizeof(long_one) - 1] = '\0'; /* one segment more than there may be */
	assert_int_equal(glob_new(long_one, &g, &e), -1);
	long_one[sizeof(long_one) - 3] = '\0';
	assert_int_equal(glob_new(long_one, &g, &e), 0);
	glob_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matches),
		cmocka_unit_test(test_refused_patterns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
