/*
 * Many patterns and one path: the same answers as a plain reference gives (pattern_plain.h), and
 * what a hostile path costs, counted in steps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/policy/pattern_plain.h"

#define RULES 1000

static unsigned random_state = 7;

static unsigned any_of(unsigned n)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % n;
}

/* ---- the same answers ---- */

static const char *const pattern_pieces[] = {
	"/a",	   "/b",       "/c",	 "/**",	 "/*",		"/a*",	   "/*b",    "/a.",
	"/",	   "/b%2Fc",   "/B",	 "/a;x", "/*a*b",	"/%3F",	   "/a%20",  "/*.",
	"/c*%2F*", "/a+b",     "/a.git", "/a",	 "/index.html", "/b.json", "/c.php", "/*.php",
	"/a*.git", "/*b.html", "/*.git", "/a+",	 "/caf%C3%A9",	"/a..",	   "/*+b*",  "/a%20b",
};
static const char *const path_pieces[] = {
	"/a",
	"/b",
	"/c",
	"/A",
	"/",
	"/a;x",
	"/b;",
	"/a.",
	"/b%20",
	"%2F",
	"%252F",
	"%5C",
	"/%61",
	"/%2562",
	"/%252561",
	"%3F",
	"%23x",
	"%2500",
	"/;p",
	"/.a",
	"/a:$b",
	"/b::$D;",
	"/a%253Fb",
	"/%EF%BD%81",
	"%2525",
	"/abab%20.",
	"/ab",
	"/%252e",
	"/x/%252e%252e",
	"/.;a%252F",
	"/c%2Fb",
	"/a+b",
	"/a%20b",
	"/a.git",
	"/a.html",
	"/index.html",
	"/default.aspx;x",
	"/b.json",
	"/b.json.",
	"/c.php",
	"/x.php/b",
	"/(S(x))",
	"/(S(x)F(y))/a",
	"//h/a",
	"//h%2Fb",
	"/a..",
	"/b..;x/c",
	"%80",
	"/caf%C3%A9",
	"/CAFE%CC%81",
	"/caf%E9",
	"/a+.git",
	"+",
	".json",
	".html",
	"/a+.json;p",
	"/a%20",
	"/a;%2Fx",
	"%2Fa;%255C",
	"%255Cb",
	"%E2%81%84",
	"%E2%84%80",
	";p%EF%BC%8Fx",
	"/a%20.json",
	"/a.json",
	".git",
};

static void build(char *out, size_t size, const char *const *pieces, size_t n, unsigned most)
{
	out[0] = '\0';
	for (unsigned i = any_of(most) + 1; i > 0; i--)
		strncat(out, pieces[any_of((unsigned)n)], size - strlen(out) - 2);
	if (out[0] != '/') {
		memmove(out + 1, out, strlen(out) + 1);
		out[0] = '/';
	}
}

static void compare_all(struct str path, const char *const *texts, struct pattern *const *ps,
			struct plain_pattern *const *plain, size_t n, unsigned *matched)
{
	struct pattern_forms *f = pattern_forms_new(path);
	struct plain_forms *pf = plain_forms_new(path);
	struct pattern_forms *narrow = pattern_forms_new(path);

	for (size_t i = 0; i < n; i++) {
		bool want = plain_match_forms(plain[i], pf);

		if (pattern_match_forms(ps[i], f) != want)
			fail_msg("deny %s, %.*s: the reference says %d", texts[i], STR_FMT(path),
				 want);
		*matched += want;
		want = plain_match(plain[i], path);
		if (pattern_match_path(ps[i], i % 2 ? f : narrow) != want)
			fail_msg("allow %s, %.*s: the reference says %d", texts[i], STR_FMT(path),
				 want);
		if (pattern_match(ps[i], path) != want)
			fail_msg("%s, %.*s: the reference says %d", texts[i], STR_FMT(path), want);
		*matched += want;
	}
	/* No bound had a say in it. */
	assert_true(pattern_forms_steps(f) < LIMIT_PATH_STEPS);
	pattern_forms_free(narrow);
	pattern_forms_free(f);
	plain_forms_free(pf);
}

/* Every path against every pattern of a set, one after the other on one reading of the path. */
static void test_like_the_reference(void **state)
{
#ifdef STILE_TESTS_TORTURE_STEADY_H /* what allocates is the same in each set */
	enum { SETS = 2, PATTERNS = 40, PATHS = 150 };
#else
	enum { SETS = 80, PATTERNS = 40, PATHS = 150 };
#endif
	unsigned compared = 0, matched = 0, refused = 0;

	(void)state;
	for (int set = 0; set < SETS; set++) {
		char text[PATTERNS][96], path[256];
		const char *texts[PATTERNS];
		struct pattern *ps[PATTERNS];
		struct plain_pattern *plain[PATTERNS];
		size_t n = 0;

		while (n < PATTERNS) {
			build(text[n], sizeof(text[n]), pattern_pieces, ARRAY_LEN(pattern_pieces),
			      6);
			if (pattern_compile(str_from_c(text[n]), &ps[n], NULL) < 0) {
				assert_true(++refused < 100 * SETS * PATTERNS);
				continue;
			}
			assert_int_equal(plain_compile(str_from_c(text[n]), &plain[n], NULL), 0);
			texts[n] = text[n];
			n++;
		}
		for (int i = 0; i < PATHS; i++) {
			/* What url.h would refuse is compared too. */
			build(path, sizeof(path), path_pieces, ARRAY_LEN(path_pieces),
			      i % 8 ? 9 : 40);
			compare_all(str_from_c(path), texts, ps, plain, n, &matched);
			compared += (unsigned)n;
		}
		for (size_t i = 0; i < n; i++) {
			pattern_free(ps[i]);
			plain_free(plain[i]);
		}
	}
	print_message("%u compared, %u matches\n", compared, matched);
	assert_true(matched > compared / 50 && matched < compared);
}

/* A segment that stands in front of another as what is left of a third: what is left of itself is
 * looked for all the same. */
static void test_rest_of_a_rest(void **state)
{
	static const struct {
		const char *deny, *path;
	} rows[] = {
		{"/*/secret", "/secret%20.json/secret%20"},
		{"/**/secret", "/secret%20.json/secret%20"},
		{"/repos/*/secret", "/repos/secret%20.json/secret%20"},
		{"/*/a", "/a.json.git/a.json"},
		{"/*/a", "/a.git.json/a.git"},
		{"/*/a*b", "/axb..json/axb."},
		{"/*/a/**", "/a%20.html/a%20/b"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct pattern *p;

		assert_int_equal(pattern_compile(str_from_c(rows[i].deny), &p, NULL), 0);
		if (!pattern_match_broad(p, str_from_c(rows[i].path)))
			fail_msg("%s holds not for %s", rows[i].deny, rows[i].path);
		pattern_free(p);
	}
}

/* Slashes of several kinds in one path, of which a server holds with one and not with another. */
static void test_kinds_of_slashes(void **state)
{
	static const struct {
		const char *pattern, *path;
		bool is_denied;
	} rows[] = {
		/* parameters are cut off up to the next slash, before what is encoded is one */
		{"/files/secret", "/files%2Fsecret;%2Fx", true},
		{"/files/secret/**", "/files%2Fsecret;a%2Fb/x", true},
		{"/files/secret", "/files%2Fsecret;%255Cx", true},
		{"/files/secret", "/files/secret;a%2Fb", true},
		{"/files/secret", "/(S(x))/files%2Fsecret;%2Fx", true},
		{"/files/secret", "/files%2Fopen;%2Fx", false},
		{"/files/secret", "/files%2Fsecrets;%2Fx", false},
		/* a backslash is one, or a letter of a name */
		{"/files/*", "/files%2Fx%255Cy", true},
		{"/files/*", "/files%255Cx%2Fy", true},
		{"/files/*/a", "/files%2Fx%255Cy%2Fa", true},
		{"/files/*", "/files%2Fx%255Cy%2Fz", false},
		/* and so is what looks like one */
		{"/files/*", "/files%2Fx%EF%BC%8Fy", true},
		{"/files/*", "/files%2Fx%E2%81%84y", true},
		{"/files/*", "/files%2F%E2%84%80", true},
		{"/files/x/y", "/files%2Fx%E2%81%84y", true},
		{"/files/*", "/files%2Fx%E2%81%84y%2Fz", false},
		{"/@s%2F*", "/@s%E2%81%84x", true},
		{"/*/a*", "/%E2%84%80%E2%81%84a", true},
		{"/*/a*/b", "/%E2%84%80%E2%81%84a%2Fb", true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct pattern *p;

		assert_int_equal(pattern_compile(str_from_c(rows[i].pattern), &p, NULL), 0);
		if (pattern_match_broad(p, str_from_c(rows[i].path)) != rows[i].is_denied)
			fail_msg("%s, %s: not %d", rows[i].pattern, rows[i].path,
				 rows[i].is_denied);
		pattern_free(p);
	}
}

static void repeat(struct str *out, char *buf, size_t size, const char *piece, size_t times)
{
	size_t n = strlen(piece);

	out->p = buf;
	out->n = 0;
	while (times-- > 0 && out->n + n <= size) {
		memcpy(buf + out->n, piece, n);
		out->n += n;
	}
}

/* The bounds of the forms, a segment and a byte to either side. */
static void test_bounds_of_forms(void **state)
{
	static const struct {
		const char *piece;
		size_t from, to;
	} rows[] = {
		{"/a", LIMIT_PATH_SEGMENTS - 1, LIMIT_PATH_SEGMENTS + 1},
		{"/%2561", LIMIT_PATH_SEGMENTS - 1, LIMIT_PATH_SEGMENTS + 1},
		{"%2Fa", LIMIT_PATH_SEGMENTS - 2, LIMIT_PATH_SEGMENTS + 1},
		/* Four forms of two rounds: where all of them together are as many as may be. */
		{"/xxxxxxxxxxxxxxxxxxxxxxxxx%2Fyy%252F;", 1, 480},
	};
	struct pattern *p;
	struct plain_pattern *plain;
	char *buf = malloc(LIMIT_TARGET_BYTES);
	unsigned matched = 0, compared = 0;

	(void)state;
	assert_int_equal(pattern_compile(STR("/none/**"), &p, NULL), 0);
	assert_int_equal(plain_compile(STR("/none/**"), &plain, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		for (size_t times = rows[i].from; times <= rows[i].to; times++) {
			const char *text = "/none/**";
			struct str path;
			unsigned before = matched;

			repeat(&path, buf, LIMIT_TARGET_BYTES, rows[i].piece, times);
			if (path.p[0] != '/')
				path = str_skip(path, 3);
			if (path.p[0] != '/')
				buf[2] = '/', path = str_from(buf + 2, path.n + 1);
			compare_all(path, &text, &p, &plain, 1, &matched);
			compared++;
			if (times == rows[i].to)
				assert_true(matched > before);
		}
	assert_true(matched > 0 && matched < compared);
	pattern_free(p);
	plain_free(plain);
	free(buf);
}

/* ---- what a hostile path costs ---- */

static char *hostile_paths(size_t which)
{
	char *path = malloc(LIMIT_TARGET_BYTES), *at = path;
	const char *tail = "//x%2fy%252fz%25252fa%2525252fb/;a/%3f/%253f/%25253f/%2525253f";

	switch (which) {
	case 0: /* many segments */
		for (int i = 0; i < 510; i++)
			at += sprintf(at, "/q");
		break;
	case 1: /* and all forms */
		for (int i = 0; i < 440; i++)
			at += sprintf(at, "/q");
		(void)sprintf(at, "%s", tail);
		break;
	case 2: /* all of them different, each with all that a reader may leave of it */
		for (int i = 0; i < 440; i++)
			at += sprintf(at, "/b%d:$d.;p.", i);
		(void)sprintf(at, "//x%%2fy%%252fz");
		break;
	case 3: /* what the patterns name, in another order */
		for (int i = 220; i > 0; i--)
			at += sprintf(at, "/b%d/a%d", i, i);
		(void)sprintf(at, "%s", tail);
		break;
	case 4: /* one long segment */
		*at++ = '/';
		memset(at, 'x', LIMIT_TARGET_BYTES - 2);
		at[LIMIT_TARGET_BYTES - 2] = '\0';
		break;
	case 5: /* a host in front, sessions, letters to fold, bytes that are none, formats */
		at += sprintf(at, "//h%%2Fi//k/(S(x))");
		for (int i = 0; i < 60; i++)
			at += sprintf(at, "/q%d+r.git;p/%%80%%C3%%84%d.json..", i, i);
		(void)sprintf(at, "//;a");
		break;
	default: free(path); return NULL;
	}
	return path;
}

static void compile_rules(struct pattern **ps, const char *format)
{
	char text[64];

	for (int i = 0; i < RULES; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		(void)snprintf(text, sizeof(text), format, i, i);
#pragma GCC diagnostic pop
		assert_int_equal(pattern_compile(str_from_c(text), &ps[i], NULL), 0);
	}
}

/* Whatever the path, a decision about a thousand rules has one bound; and where the rules name
 * segments that the path has not, a rule costs the look-up of one. */
static void test_steps(void **state)
{
	static const struct {
		const char *format;
		size_t per_rule; /* 0: what the bound allows */
	} rows[] = {
		{"/**/x%d/**", 8},   {"/a%d/**", 16},	    {"/**/a%d/**/b%d/**", 0},
		{"/**/a%d*/**", 0},  {"/**/*a%d*/**", 0},   {"/**/x/y%d/**", 24},
		{"/**/x*a%d/**", 0}, {"/**/*x/*y%d/**", 0}, {"/**/*x*x*x*a%d*y", 0},
	};
	struct pattern *ps[RULES];
	char *path;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		compile_rules(ps, rows[i].format);
		for (size_t which = 0; (path = hostile_paths(which)); which++) {
			struct pattern_forms *f = pattern_forms_new(str_from_c(path));
			size_t first = 0, all, asked = 0;
			bool match = false;

			for (size_t k = 0; k < RULES && !match; k++, asked++) {
				match = pattern_match_forms(ps[k], f);
				first = first ? first : pattern_forms_steps(f);
			}
			all = pattern_forms_steps(f);
			/* The last one asked may go over it by as much as one comparison takes. */
			assert_true(all <= LIMIT_PATH_STEPS + RULES * LIMIT_PATH_STEPS_PER_RULE +
						   4 * LIMIT_TARGET_BYTES);
			assert_true(match || asked == RULES);
			if (rows[i].per_rule && (match || all - first > rows[i].per_rule * RULES))
				fail_msg("%s, path %zu: %zu steps", rows[i].format, which,
					 all - first);
			pattern_forms_free(f);
			free(path);
		}
		for (size_t k = 0; k < RULES; k++)
			pattern_free(ps[k]);
	}
}

/* Beyond the bound a deny holds and an allow does not, and that stays so. */
static void test_beyond(void **state)
{
	struct pattern *ps[RULES], *all;
	char *path = hostile_paths(3);
	struct pattern_forms *f = pattern_forms_new(str_from_c(path));
	size_t k = 0;

	(void)state;
	assert_int_equal(pattern_compile(STR("/**"), &all, NULL), 0);
	compile_rules(ps, "/**/b%d*/**/a%d*b*");
	assert_true(pattern_match_path(all, f));
	while (k < RULES && !pattern_match_forms(ps[k], f))
		k++;
	assert_true(k < RULES);
	assert_true(pattern_forms_steps(f) > LIMIT_PATH_STEPS);
	assert_false(pattern_match_path(all, f));
	assert_true(pattern_match_forms(ps[0], f));
	pattern_forms_free(f);
	for (k = 0; k < RULES; k++)
		pattern_free(ps[k]);
	pattern_free(all);
	free(path);
}

/* Segments whose numbers would be kept in the same place: a search for one walks over the others,
 * and that counts. The hash has no seed, so that a path can be made for it; here by trying. */
static void test_collisions(void **state)
{
	enum { SAME = 4096, WANTED = 1200 };
	char *path = malloc(LIMIT_TARGET_BYTES);
	struct pattern_forms *f;
	struct pattern *p;
	size_t n = 0, found = 0;

	(void)state;
	for (uint64_t i = 0; found < WANTED && n + 16 < LIMIT_TARGET_BYTES; i++) {
		char seg[16];
		int len = snprintf(seg, sizeof(seg), "%llx", (unsigned long long)i);

		if ((uint32_t)str_hash(0, str_from(seg, (size_t)len)) % SAME)
			continue;
		n += (size_t)sprintf(path + n, "/%s", seg);
		found++;
	}
	assert_int_equal(found, WANTED);
	assert_int_equal(pattern_compile(STR("/none/**"), &p, NULL), 0);
	f = pattern_forms_new(str_from(path, n));
	assert_true(pattern_match_forms(p, f));
	/* A table that grows is filled anew, which costs no more than what was spent on it. */
	assert_true(pattern_forms_steps(f) <= 2 * LIMIT_PATH_STEPS);
	pattern_forms_free(f);
	pattern_free(p);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_like_the_reference),
		cmocka_unit_test(test_rest_of_a_rest),
		cmocka_unit_test(test_kinds_of_slashes),
		cmocka_unit_test(test_bounds_of_forms),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_beyond),
		cmocka_unit_test(test_collisions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
