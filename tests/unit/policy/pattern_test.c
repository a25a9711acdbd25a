/*
 * Path patterns: what is compiled and what is a fault, the narrow match of allow rules, the broad
 * match of deny rules, and that neither can be made to work for long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "logging/limits.h"
#include "policy/pattern.h"
#include "policy/url.h"

static struct pattern *compiled(const char *text)
{
	struct pattern *p = NULL;
	struct err e = ERR_INIT;

	if (pattern_compile(str_from_c(text), &p, &e) < 0)
		fail_msg("not compiled: %s: %s", text, e.text);
	return p;
}

static void test_compile(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{"/", NULL},
		{"/**", NULL},
		{"/*", NULL},
		{"/a/**/b/*", NULL},
		{"/a//b/", NULL},
		{"/a*b*c", NULL},
		{"/%7Euser/%2a", "/~user/%2A"},
		{"/@scope%2fname", "/@scope%2Fname"},
		{"/a|b", "/a%7Cb"},
		{"/caf\xc3\xa9", "/caf%C3%A9"},
		{"/\xef\xbc\xa1\xef\xbc\x8e\xef\xbc\xa2/\xef\xbc\x8e\xef\xbc\x8e\xef\xbc\x8e",
		 "/%EF%BC%A1%EF%BC%8E%EF%BC%A2/%EF%BC%8E%EF%BC%8E%EF%BC%8E"},
		{"/..%EF%BD%8E", NULL},
		{"/.*", NULL},
		{"/..*", NULL},
		{"/*..", NULL},
		{"/a;v=*", NULL},
		{"/100%25", NULL},
		{"/caf%C3%A9*", NULL},
		{"/*%C3%A9*%E2%82%AC*x", NULL},
		{"/%C3/*", NULL},
		{"/**/%E9", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct pattern *p = compiled(rows[i].in);

		assert_true(
			str_eq(pattern_str(p), str_from_c(rows[i].out ? rows[i].out : rows[i].in)));
		pattern_free(p);
	}
	pattern_free(NULL);
}

static void test_faults(void **state)
{
	static const char *const rows[] = {
		"",	      "a",	  "**",	      "*",	  "a/b",
		"?",	      "/a?b",	  "/a?",      "/a#b",	  "/a**",
		"/**a",	      "/a**b",	  "/***",     "/a/***/b", "/****",
		"/a/b**/c",   "/x%2F**",  "/../a",    "/a/..",	  "/a/./b",
		"/%2e%2e/a",  "/..;x/**", "/a/**/..", "/**/../a", "/a\\b",
		"/a%5Cb",     "/%zz",	  "/%",	      "/a%4",	  "/a b",
		"/a\tb",      "/%00",	  "/%0a",     "/%c0%ae",  "/%25252525252541",
		"http://h/a", " /a",	  "/%C3*%A4", "/%C3*",	  "/*%A4",
		"/caf%E9*x",  "/%E2%82*",
	};
	struct str nul = STR("/a\0b");
	char *huge = malloc(LIMIT_TARGET_BYTES + 2);
	struct pattern *p = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err e = ERR_INIT;

		if (pattern_compile(str_from_c(rows[i]), &p, &e) == 0)
			fail_msg("compiled: %s", rows[i]);
		assert_true(e.text[0] != '\0');
		assert_null(p);
	}
	assert_int_equal(pattern_compile(nul, &p, NULL), -1);
	assert_int_equal(pattern_compile(STR_NONE, &p, NULL), -1);
	memset(huge, '/', LIMIT_TARGET_BYTES + 2);
	assert_int_equal(pattern_compile(str_from(huge, LIMIT_TARGET_BYTES + 1), &p, NULL), -1);
	free(huge);
}

static void test_narrow(void **state)
{
	static const struct {
		const char *pattern, *path;
		bool match;
	} rows[] = {
		{"/", "/", true},
		{"/", "/a", false},
		{"/", "//", false},
		{"/", "*", false},
		{"/", "", false},
		{"/a", "/a", true},
		{"/a", "/a/", false},
		{"/a", "/A", false},
		{"/a", "/ab", false},
		{"/a", "/", false},
		{"/a", "/a/b", false},
		{"/a/", "/a/", true},
		{"/a/", "/a", false},
		{"/a/", "/a//", false},
		{"/a//b", "/a//b", true},
		{"/a//b", "/a/b", false},
		{"/a/b", "/a//b", false},
		/* one segment */
		{"/*", "/", true},
		{"/*", "/a", true},
		{"/*", "/a/", false},
		{"/*", "/a/b", false},
		{"/*", "//", false},
		{"/*", "/@scope%2Fname", true},
		{"/ok/*", "/ok/@scope%2Fname", true},
		{"/ok/*", "/ok/@scope/name", false},
		{"/ok/*", "/ok/", true},
		{"/ok/*", "/ok", false},
		{"/a*", "/a", true},
		{"/a*", "/abc", true},
		{"/a*", "/ba", false},
		{"/a*", "/a/b", false},
		{"/*a", "/a", true},
		{"/*a", "/cba", true},
		{"/*a", "/ab", false},
		{"/a*c", "/ac", true},
		{"/a*c", "/abcbc", true},
		{"/a*c", "/abcb", false},
		{"/a*b*c", "/a1b2c", true},
		{"/a*b*c", "/abc", true},
		{"/a*b*c", "/acb", false},
		{"/a*a", "/a", false},
		{"/a*a", "/aa", true},
		{"/*.git", "/x.git", true},
		{"/*.git", "/x.gitx", false},
		{"/*/x", "/a/x", true},
		{"/*/x", "//x", true},
		{"/*/x", "/x", false},
		{"/*/x", "/a/b/x", false},
		/* an escape is one character */
		{"/*2F", "/a%2F", false},
		{"/*F", "/a%2F", false},
		{"/a*20", "/a%20", false},
		{"/a*0b", "/a%20b", false},
		{"/a*b", "/a%20b", true},
		{"/a*%20*b", "/ax%20yb", true},
		{"/*5", "/100%25", false},
		{"/*%25", "/100%25", true},
		{"/*%25", "/100%2525", false},
		/* whole segments */
		{"/**", "/", true},
		{"/**", "/a", true},
		{"/**", "/a/b/c/", true},
		{"/**", "//", true},
		{"/**", "*", false},
		{"/**", "", false},
		{"/repos/acme/**", "/repos/acme", true},
		{"/repos/acme/**", "/repos/acme/", true},
		{"/repos/acme/**", "/repos/acme/x", true},
		{"/repos/acme/**", "/repos/acme/x/y/z", true},
		{"/repos/acme/**", "/repos/acme//x", true},
		{"/repos/acme/**", "/repos/acmex", false},
		{"/repos/acme/**", "/repos/acm", false},
		{"/repos/acme/**", "/repos//acme/x", false},
		{"/repos/acme/**", "//repos/acme/x", false},
		{"/repos/acme/**", "/x/repos/acme/x", false},
		{"/repos/acme/**", "/repos/acme%2Fx", false},
		{"/repos/acme/**", "/Repos/acme/x", false},
		{"/repos/acme/**", "/repos/acme;x/y", false},
		{"/**/x", "/x", true},
		{"/**/x", "/a/x", true},
		{"/**/x", "/a/b/c/x", true},
		{"/**/x", "/a/x/b", false},
		{"/**/x", "/a/x/b/x", true},
		{"/**/x", "/ax", false},
		{"/a/**/b", "/a/b", true},
		{"/a/**/b", "/a/x/b", true},
		{"/a/**/b", "/a/x/y/b", true},
		{"/a/**/b", "/ab", false},
		{"/a/**/b", "/a/b/c", false},
		{"/a/**/b/**", "/a/b", true},
		{"/a/**/b/**", "/a/x/b/y", true},
		{"/a/**/b/**", "/a/x/y", false},
		{"/a/**/**/b", "/a/b", true},
		{"/a/**/**/b", "/a/x/b", true},
		{"/a/**/*", "/a", false},
		{"/a/**/*", "/a/", true},
		{"/a/**/*", "/a/b/c", true},
		{"/**/a/**/a/b", "/a/a/a/b", true},
		{"/**/a/*/b", "/a/a/x/b", true},
		{"/**/a/*/b/**/c*", "/z/a/a/x/b/c/d/cc", true},
		{"/a/**/", "/a/", true},
		{"/a/**/", "/a/b/", true},
		{"/a/**/", "/a/b", false},
		/* spelling of the pattern */
		{"/%73ecret", "/secret", true},
		{"/a%2fb", "/a%2Fb", true},
		{"/a%2fb", "/a/b", false},
		{"/a|b", "/a%7Cb", true},
		{"/%2A", "/x", false},
		{"/%2A", "/%2A", true},
		{"/a*", "/a*", true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct pattern *p = compiled(rows[i].pattern);

		if (pattern_match(p, str_from_c(rows[i].path)) != rows[i].match)
			fail_msg("%s on %s", rows[i].pattern, rows[i].path);
		/* a deny never covers less than an allow with the same pattern */
		if (rows[i].match)
			assert_true(pattern_match_broad(p, str_from_c(rows[i].path)));
		pattern_free(p);
	}
}

static void test_broad(void **state)
{
	static const struct {
		const char *pattern, *path;
		bool match;
	} rows[] = {
		{"/ok/secret/**", "/ok/secret", true},
		{"/ok/secret/**", "/ok/secret/", true},
		{"/ok/secret/**", "/ok/secret/x", true},
		{"/ok/secret/**", "/ok//secret/x", true},
		{"/ok/secret/**", "//ok/secret/x", true},
		{"/ok/secret/**", "///ok///secret", true},
		{"/ok/secret/**", "/ok/secret%2Fx", true},
		{"/ok/secret/**", "/ok%2Fsecret%2Fx", true},
		{"/ok/secret/**", "/%2Fok%2F%2Fsecret/x", true},
		{"/ok/secret/**", "/ok/%2Fsecret", true},
		{"/ok/secret/**", "/ok/secret;v=1/x", true},
		{"/ok/secret/**", "/ok/secret::$DATA", true},
		{"/ok/secret/**", "/ok/secret:$i30:$index_allocation/x", true},
		{"/ok/secret/**", "/ok/secret%3A%3A%24DATA/x", true},
		{"/ok/secret/**", "/ok/secret.::$DATA;v=1/x", true},
		{"/ok/secret/**", "/ok/secret:watch/x", false},
		{"/ok/secret/**", "/ok/other::$DATA/secret:$", false},
		{"/ok/secret/**", "/ok;a/secret;b;c/x", true},
		{"/ok/secret/**", "/ok/secret%3Bv=1/x", true},
		{"/ok/secret/**", "/ok/;a/secret/x", true},
		{"/ok/secret/**", "/;/ok/secret", true},
		{"/ok/secret/**", "/ok/secret;a%2Fb/x", true},
		{"/ok/secret/**", "/OK/Secret/x", true},
		{"/ok/secret/**", "/ok/SECRET", true},
		{"/OK/Secret/**", "/ok/secret/x", true},
		{"/ok/secret/**", "/ok/x/%252e%252e/secret/x", true},
		{"/ok/secret/**", "/ok/x/..%252Fsecret/x", true},
		{"/ok/secret/**", "/ok/x/%252e%252e%252fsecret", true},
		{"/ok/secret/**", "/ok/%252e/secret", true},
		{"/ok/secret/**", "/ok/x/y/%252e%252e/%252e%252e/secret", true},
		{"/ok/secret/**", "/ok/x//%252e%252e/secret/x", true},
		{"/ok/secret/**", "/ok/x/%252e%252e;a/secret/x", true},
		{"/ok/secret/**", "/ok/x/%252e%252e%253ba/secret/x", true},
		{"/ok/secret/**", "/ok/x%255C..%255Csecret", true},
		{"/ok/secret/**", "/ok%255Csecret%255Cx", true},
		{"/ok/secret/**", "/ok/secret%255Cx", true},
		{"/ok/secret/**", "/%252e%252e/ok/secret", true},
		{"/ok/secret/**", "/ok/secret%252Fx", true},
		{"/ok/secret/**", "/ok/secret%25252Fx", true},
		{"/ok/secret/**", "/ok/%2573ecret", true},
		{"/ok/secret/**", "/ok/%252573ecret/x", true},
		{"/ok/secret/**", "/ok/secret.", true},
		{"/ok/secret/**", "/ok/secret...", true},
		{"/ok/secret/**", "/ok/secret%20", true},
		{"/ok/secret/**", "/ok/secret%20.%20/x", true},
		{"/ok/secret/**", "/ok./secret/x", true},
		{"/ok/secret/**", "/ok/secret.;x/y", true},
		{"/ok/secret", "/ok/secret//%20", true}, /* nothing but what Windows drops */
		{"/ok/secret", "/ok/%20/secret/...", true},
		{"/ok/secret", "/ok/secret/.%20;x", true},
		{"/ok/*", "/ok/", true},
		{"/ok/*", "/ok//", true}, /* read as /ok/ or /ok */
		{"/ok/*", "/ok/;x/", true},
		{"/ok/*", "//ok//%252e", true},
		{"/ok/secret/**", "/ok/secret%3Fx", true},
		{"/ok/secret/**", "/ok/secret%23x", true},
		{"/ok/secret/**", "/ok/secret%2500x", true},
		{"/ok/secret/**", "/OK//Secret.;v=1%2FX", true},
		{"/ok/secret/**", "/a/%25252525252e", true},	    /* deeper than anyone looks */
		{"/ok/secret/**", "/a/%25c0%25ae%25c0%25ae", true}, /* no reader agrees on that */
		/* letters that a reader folds to ASCII */
		{"/ok/secret/**", "/ok/%EF%BD%93ecret", true},
		{"/ok/secret/**", "/ok/%EF%BC%B3%EF%BC%A5%EF%BC%A3%EF%BC%B2%EF%BC%A5%EF%BC%B4/x",
		 true},
		{"/ok/secret/**", "/ok%EF%BC%8Fsecret/x", true},
		{"/ok/secret/**", "/ok/secret%EF%BC%9Bv=1/x", true},
		{"/ok/secret/**", "/ok/secret%EF%BC%BCx", true},
		{"/ok/secret/**", "/ok/secret%EF%BC%8E", true},
		{"/ok/secret/**", "/ok/secret%EF%BC%9Fx", true},
		{"/ok/secret/**", "/ok/x/%EF%BC%8E%EF%BC%8E/secret", true},
		{"/ok/secret/**", "/ok/%EF%BC%8573ecret", true},
		{"/ok/secret/**", "/ok/%25EF%25BD%2593ecret", true},
		{"/ok/secret/**", "/ok/%25EF%25BD%93ecret", true}, /* in layers */
		{"/ok/secret/**", "/ok/%EF%25BD%2593ecret", true},
		{"/ok/%EF%BD%93ecret/**", "/ok/secret/x", true},
		{"/ok/secret/**", "/ok/%C5%BFecret", true},
		{"/ok/key/**", "/ok/%E2%84%AAey", true},
		{"/ok/ids/**", "/ok/%C4%B1ds", true},
		{"/ok/ids/**", "/ok/%C4%B0ds", true},
		{"/ok/secret/**", "/ok/%EF%BD%94ecret", false},
		{"/ok/secret/**", "/ok/%EF%BC%80secret", false}, /* U+FF00, and none of those */
		{"/ok/secret/**", "/ok/secret%EF%BD%9F", false},
		{"/ok/secret/**", "/ok/secret%EF%BD", true}, /* the end of it dropped */
		{"/ok/~/**", "/ok/%EF%BD%9E", true},
		/* what a deny must leave alone */
		{"/ok/secret/**", "/", false},
		{"/ok/secret/**", "/ok", false},
		{"/ok/secret/**", "/ok/", false},
		{"/ok/secret/**", "/ok/secrets", false},
		{"/ok/secret/**", "/ok/secre", false},
		{"/ok/secret/**", "/ok/xsecret/x", false},
		{"/ok/secret/**", "/ok/x/secret", false},
		{"/ok/secret/**", "/secret/x", false},
		{"/ok/secret/**", "/ok/@scope%2Fname", false},
		{"/ok/secret/**", "/ok/a%252Fb", false},
		{"/ok/*", "/ok", false},
		{"/ok/*", "//ok", false},
		{"/ok/secret", "/ok/secret/.x", false},
		{"/ok/secret/**", "/ok/100%25", false},
		{"/ok/secret/**", "/ok/100%2525", false},
		{"/ok/secret/**", "/ok/a;secret", false},
		{"/ok/secret/**", "/ok/a;/secret", false},
		{"/ok/secret/**", "/ok/..a/secret", false},
		{"/ok/secret/**", "/ok/.secret", false},
		{"/ok/secret/**", "/ok/%2520secret", false},
		{"/ok/secret/**", "/ok/x/%252e%252e/y", false},
		{"/ok/secret/**", "/ok/secret_/x", false},
		{"/ok/secret/**", "/ok/secret-x", false},
		{"/ok/secret/**", "/ok%3Fsecret", false},
		{"/ok/secret/**", "*", false},
		/* other patterns */
		{"/", "/", true},
		{"/", "//", true},
		{"/", "/a", false},
		{"/", "*", true},
		{"/**", "*", true},
		{"/**", "/anything/at%2Fall", true},
		{"/a", "/a/", true},
		{"/a", "/a/b", false},
		{"/a/", "/a", true},
		{"/a/", "/A", true},
		{"/a/", "/a/b", false},
		{"/a//b", "/a/b", true},
		{"/a/*", "/a", false},
		{"/a/*", "/A/", true},
		{"/a/*/b", "/a/x/b", true},
		{"/a/*/b", "/a/x/y/b", false},
		{"/a/*/b", "/A//B", true},
		{"/a/*/b", "/A/x%2Fy/B", true},
		{"/a/*/b", "/a/x/B;v", true},
		{"/**/secret", "/x/y/SECRET", true},
		{"/**/secret", "/x%2Fsecret", true},
		{"/**/secret", "/x/secret/y", false},
		{"/**/.git/**", "/x/.GIT/config", true},
		{"/**/.git/**", "/x/.git", true},
		{"/**/.git/**", "/x/a.git/config", false},
		{"/**/*.env", "/a/b/x.ENV", true},
		{"/**/*.env", "/a/b/.env%20", true},
		{"/**/*.env", "/a/b/.env;x", true},
		{"/**/*.env", "/a/b/.env.", true},
		{"/**/*.env", "/a/b/.envx", false},
		{"/@scope%2Fname", "/@scope%2Fname", true},
		{"/@scope%2Fname", "/@scope%2Fother", false},
		{"/@scope%2Fname", "/@scope/name", true},
		{"/@scope%2Fname", "/%40SCOPE%2FNAME", true},
		{"/@scope/name", "/@scope%2Fname", true},
		{"/a%2F*", "/A%2Fb%2Fc", true},
		{"/a%2F*", "/a/b", true},
		{"/a%20b", "/A%20B", true},
		/* a plus is a blank to stores and to decoders of forms */
		{"/a%20b", "/a+b", true},
		{"/a+b", "/a%20b", true},
		{"/a+b", "/a%2Bb", true},
		{"/a%20b/*+d", "/a+b/c%20d", true},
		{"/c", "/c++", false},
		{"/c++", "/c", false},
		/* a host in front of the path, for URL parsers */
		{"/ok/secret/**", "//x/ok/secret/y", true},
		{"/ok/secret/**", "//x:80/ok/secret", true},
		{"/ok/secret/**", "//u@x/ok//secret/y", true},
		{"/ok/secret/**", "////x/ok/secret/y", true},
		{"/ok/secret/**", "/%2Fx/ok/secret/y", true},
		{"/ok/secret/**", "//x/%6Fk%2Fsecret", true},
		{"/ok/secret/**", "//x%2Fok/secret", true},
		{"/ok/secret/**", "//x//y/ok/secret", true}, /* whoever takes two off */
		{"/ok/secret/**", "/x/ok/secret/y", false},
		{"/ok/secret/**", "/x//ok/secret/y", false},
		{"/ok/secret/**", "//x/ok", false},
		{"/", "//x", true},
		{"/secret/**", "//x%2Fy/secret", true},
		{"/y/secret/**", "//x%2Fy/secret", true},
		{"/secret/**", "//x%3F/secret", true},
		{"/", "//x%3F/secret", true},
		{"/secret/**", "//x%23/secret", true},
		/* a folder's place is taken by another, and its parent is asked for */
		{"/secret/**", "/static../secret/x", true},
		{"/ok/secret/**", "/ok/static../secret/x", true},
		{"/ok/secret/**", "/ok/static..;v/secret", true},
		{"/ok/secret/**", "/ok/a/%252e%252e/static../secret/x", true},
		{"/ok/secret/**", "/ok/secret../x", true}, /* Windows */
		{"/ok/secret/**", "/ok/static.../secret/x", false},
		{"/ok/secret/**", "/ok/..static/secret/x", false},
		{"/wiki", "/wiki/And_so_on...", false},
		/* ASP.NET's sessions without cookies */
		{"/ok/secret/**", "/ok/(S(abc))/secret/x", true},
		{"/ok/secret/**", "/(A(b)F(c))/ok/secret/x", true},
		{"/ok/secret/**", "/ok/%28S%28abc%29%29/SECRET", true},
		{"/ok/secret/**", "/ok/se/(S(x))cret/y", true},
		{"/ok/secret/**", "/(S(x))//x/ok/secret", true},
		{"/ok/secret/**", "//x/(S(x))/ok/secret", true},
		{"/", "/(S(x))", true},
		{"/ok/secret/**", "/ok/(S)/secret", false},
		{"/ok/secret/**", "/ok/(S(x)/secret", false},
		{"/ok/secret/**", "/ok/(1(x))/secret", false},
		/* letters beyond ASCII: case, composition, accents, Latin-1 */
		{"/ok/caf%C3%A9/**", "/ok/CAF%C3%89/x", true},
		{"/ok/caf%C3%A9/**", "/ok/cafe%CC%81", true},
		{"/ok/caf%C3%A9/**", "/ok/caf%E9", true},
		{"/ok/caf%C3%A9/**", "/ok/caf%25C3%2589", true},
		{"/ok/caf%C3%A9/**", "/ok/cafe", true},
		{"/ok/secret/**", "/ok/sec%80ret/x", true}, /* dropped by who ignores errors */
		{"/ok/secret/**", "/o%FFk/%E2%82secret", true},
		{"/ok/secret/**", "/ok/%ED%A0%80secret", true},
		{"/ok/secret/**", "/ok/s%C3%A9cret%C3", true},
		{"/ok/secret/**", "/ok/x/.%FF./secret", true},
		{"/ok/secret/**", "/ok/%25FFsecret", true},
		{"/ok/cafe/**", "/ok/caf%C3%A9", true},
		{"/ok/caf%C3%A9*", "/ok/CAFE%CC%81x", true},
		{"/%D0%B4%D0%BE%D0%BC", "/%D0%94%D0%9E%D0%9C", true},
		{"/stra%C3%9Fe", "/STRASSE", true},
		{"/ok/bar/**", "/ok/%E3%8D%B4", true}, /* a sign for the unit */
		{"/ok/caf%C3%A9/**", "/ok/caf%C3%A9s", false},
		{"/ok/caf%C3%A9/**", "/ok/caf", false},
		{"/%D0%B4%D0%BE%D0%BC", "/%D0%B4%D0%BE", false},
		/* the formats of a thing, the page of a folder */
		{"/acme/secret/**", "/acme/secret.git/info/refs", true},
		{"/acme/secret/**", "/acme/secret.git", true},
		{"/acme/secret.git/**", "/acme/secret/info/refs", true},
		{"/acme/secret.git", "/acme/secret", true},
		{"/acme/secret.git/**", "/acme/secrets", false},
		{"/acme/secret*.git/**", "/acme/secret-a.git/info/refs", true},
		{"/acme/secret*.git/**", "/acme/secret-a/info/refs", true},
		{"/acme/secret*.git/**", "/acme/SECRET/info/refs", true},
		{"/acme/secret*.git/**", "/acme/secret-a%20;p/info/refs", true},
		{"/acme/*-secret.git", "/acme/a-secret", true},
		{"/docs/secret*.html", "/docs/secret1", true},
		{"/docs/secret*.html", "/docs/secret1/", true},
		{"/docs/secret*.html", "/docs/open", false},
		{"/docs/secret*.html/**", "/docs/secret1/x", false},
		/* all that have a format, not all that there is */
		{"/docs/*.html", "/docs/secret1", false},
		{"/**/*.git/**", "/acme/secret/x", false},
		{"/acme/secret/**", "/acme/secret.JSON", true},
		{"/acme/secret", "/acme/secret.html;v=1", true},
		{"/acme/secret", "/acme/secret.xml/", true},
		{"/docs/secret/**", "/docs/secret.md", true},
		{"/docs/secret", "/docs/secret.markdown", true},
		{"/docs/secret", "/docs/secret.ics", true},
		{"/docs/secret", "/docs/secret.action", true},
		{"/files/*.key", "/files/a.key.json", true},
		{"/ok/page.html", "/ok/page", true},
		{"/ok/page.html", "/ok/PAGE/", true},
		{"/ok/page.html/", "/ok/page", true},
		{"/ok/index.html//", "/ok", true},
		{"/ok/index.html", "/ok/", true},
		{"/ok/index.html", "/ok", true},
		{"/ok/index.html", "/ok/index", true},
		{"/ok/Default.aspx", "/OK//", true},
		{"/index.php", "/", true},
		{"/ok", "/ok/index.html", true},
		{"/", "/index.html", true},
		{"/ok/a.php", "/ok/a.php/x/y", true}, /* which a.php may read */
		{"/**/*.php", "/x/a.php/b.js", true},
		{"/ok/secret.key", "/ok//secret.key;v/", true},
		{"/.env", "/.env/x", true},
		{"/ok/v1.2", "/ok/v1.2/x", false},
		{"/ok/a.php/b", "/ok/a.php/c", false},
		{"/**/index.html", "/a/b/", true},
		{"/**/index.html", "/a/b", false},
		{"/ok", "/ok/other.html", false},
		{"/ok/index.html", "/ok/x", false},
		{"/acme/secret/**", "/acme/secret.js", false}, /* a name */
		{"/acme/secret/**", "/acme/secret.json/x", false},
		{"/v1/**", "/v1.1/x", false},
		{"/lodash/**", "/lodash.merge", false},
		{"/ok/page.html", "/ok/page.htmlx", false},
		{"/a/.git/**", "/a/x", false},
		{"/a/b", "/a/.json", false},
		{"/100%25/*", "/100%25/X", true},
		{"/100%25/*", "/100%2525/x", true},
		{"/%2A", "/%2A", true},
		{"/%2A", "/*", true},
		{"/%2A", "/x", false},
		{"/a;admin", "/a;admin", true},
		{"/a;admin", "/A;ADMIN", true},
		{"/a;admin", "/a", false},
		{"/files/*;raw", "/files/x", false},
		{"/files/*;raw", "/files/x;RAW", true},
		{"/secret.", "/secret", true},
		{"/files/*.", "/files/x", false},
		{"/...", "/...", true},
		{"/...", "/", false},
		{"/%3F", "/%3F", true},
		{"/caf%C3%A9", "/CAF%C3%A9", true},
		{"/caf%C3%A9", "/caf%25C3%25A9", true},
		{"/a*%2541", "/A1%2541", true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct pattern *p = compiled(rows[i].pattern);
		struct str path = str_from_c(rows[i].path);
		struct pattern_forms *f = pattern_forms_new(path);

		if (pattern_match_broad(p, path) != rows[i].match)
			fail_msg("%s on %s", rows[i].pattern, rows[i].path);
		assert_true(pattern_match_forms(p, f) == rows[i].match);
		/* memory that ran out counts as a match */
		assert_true(pattern_match_forms(p, NULL));
		pattern_forms_free(f);
		pattern_free(p);
	}
	pattern_forms_free(NULL);
}

/* Any chain of the tricks that servers forgive, applied to a denied path: it stays denied. */
static void test_broad_random(void **state)
{
	struct pattern *p = compiled("/ok/secret/**");
	unsigned seed = 99, tried = 0;

	(void)state;
	for (int round = 0; round < 200000; round++) {
		static const char plain[] = "/ok/secret/x";
		char path[512];
		size_t n = 0;
		int depth = rand_r(&seed) % 3;
		struct url u;
		struct host h = {0};

		for (size_t i = 0; i < sizeof(plain) - 1; i++) {
			int trick = rand_r(&seed) % 12;
			char c = plain[i];

			if (c == '/' && i > 0 && trick == 0)
				n += (size_t)snprintf(path + n, 64, ";p=%d", rand_r(&seed) % 10);
			if (c == '/' && i > 0 && trick == 1)
				n += (size_t)snprintf(path + n, 64, "%s",
						      rand_r(&seed) % 2 ? "." : "%20");
			if (c == '/' && trick == 2)
				path[n++] = '/';
			if (c == '/' && trick == 3 && depth == 2)
				n += (size_t)snprintf(path + n, 64, "/y/%%252e%%252e");
			if (c == '/' && trick == 4 && depth == 2)
				n += (size_t)snprintf(path + n, 64, "/%%252e");
			if (trick == 5 && c != '/')
				c = (char)(c - 32);
			if (trick == 6 && i > 0)
				n += (size_t)snprintf(path + n, 64,
						      depth == 2 ? "%%25%02x" : "%%%02x", c);
			else
				path[n++] = c;
		}
		if (url_parse_origin_form(SCHEME_HTTP, &h, 80, str_from(path, n), &u, NULL) == 0) {
			tried++;
			if (!pattern_match_broad(p, u.path))
				fail_msg("gets by: %.*s", STR_FMT(u.path));
		}
		url_clear(&u);
	}
	assert_true(tried > 100000);
	pattern_free(p);
}

/* The plain meaning of a pattern, written as plainly as possible. */
static bool model(const char *p, const char *s)
{
	if (strncmp(p, "/**", 3) == 0) {
		if (model(p + 3, s))
			return true;
		return *s == '/' && model(p, s + 1 + strcspn(s + 1, "/"));
	}
	if (*p == '*')
		return model(p + 1, s) || (*s && *s != '/' && model(p, s + 1));
	if (*p != *s)
		return false;
	return *p == '\0' || model(p + 1, s + 1);
}

static void test_like_the_model(void **state)
{
	static const char *const pieces[] = {"/", "/**", "/*", "a", "b", "*", "/a", "/b"};
	unsigned seed = 5, compiled_n = 0, matched = 0;

	(void)state;
	for (int round = 0; round < 200000; round++) {
		char pattern[64] = "/", path[64] = "/";
		struct pattern *p;
		bool want;

		pattern[0] = path[0] = '\0';
		for (int i = rand_r(&seed) % 6; i >= 0; i--)
			strncat(pattern, pieces[(size_t)rand_r(&seed) % ARRAY_LEN(pieces)], 8);
		for (int i = rand_r(&seed) % 7; i >= 0; i--)
			strncat(path,
				(const char *[]){"/", "a", "b", "/a", "/b"}[rand_r(&seed) % 5], 8);
		if (path[0] != '/' || pattern_compile(str_from_c(pattern), &p, NULL) < 0)
			continue;
		compiled_n++;
		want = model(pattern, path);
		if (pattern_match(p, str_from_c(path)) != want)
			fail_msg("%s on %s: model says %d", pattern, path, want);
		if (want && !pattern_match_broad(p, str_from_c(path)))
			fail_msg("%s on %s: not broadly", pattern, path);
		matched += want;
		pattern_free(p);
	}
	assert_true(compiled_n > 20000 && matched > 2000);
}

static void test_covers(void **state)
{
	static const struct {
		const char *p, *q;
		bool meet;
	} rows[] = {
		{"/a", "/a", true},	      {"/a", "/b", false},
		{"/a", "/a/b", false},	      {"/a/**", "/a/b", true},
		{"/a/**", "/b/**", false},    {"/a/**", "/b", false},
		{"/**", "/x/y", true},	      {"/**/x", "/a/b/x", true},
		{"/**/x", "/a/b/y", false},   {"/**/x", "/**/y", false},
		{"/**/x", "/a/**", true},     {"/a/*", "/a/b", true},
		{"/a/*", "/a/b/c", false},    {"/a*", "/*b", true},
		{"/a*", "/b*", false},	      {"/*a", "/*b", false},
		{"/a*", "/ba", false},	      {"/a/b/c/**", "/a", false},
		{"/a/b/c/**", "/a/**", true}, {"/a/*/c", "/a/b/*", true},
		{"/a/*/c", "/a/b/d", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct pattern *p = compiled(rows[i].p), *q = compiled(rows[i].q);

		if (pattern_covers(p, q) != rows[i].meet || pattern_covers(q, p) != rows[i].meet)
			fail_msg("%s and %s", rows[i].p, rows[i].q);
		pattern_free(p);
		pattern_free(q);
	}
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The longest paths that a sandbox can send, against patterns that take the most steps. The times
 * are printed; what is asserted is that the bound ends in a match. */
static void test_hostile_paths(void **state)
{
	static const char *const fills[] = {
		"/",
		"a",
		"/a",
		"/;",
		"%25",
		"%2F",
		";",
		".",
		"/.",
		"%2525252525",
		"/%252e%252e",
		"/a%2F;.%20",
		"/a/%252e%252e;%252Fx%253F/",
		"%C3%89a",
		"/%EF%B7%BA", /* eighteen letters in one */
		"%FF",
		"/(S(x))",
		"/(a(",
		"//x../",
		"//x%2F",
		"/index.html",
	};
	static const char *const patterns[] = {"/**/a/**/b", "/*a*a*a*b", "/**/*a*/**/*b*/c",
					       "/ok/**"};
	char *buf = malloc(LIMIT_TARGET_BYTES + 64);
	double worst = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(fills); i++)
		for (size_t j = 0; j < ARRAY_LEN(patterns); j++) {
			struct pattern *p = compiled(patterns[j]);
			size_t n = 1;
			double t;

			buf[0] = '/';
			while (n < LIMIT_TARGET_BYTES - 32) {
				memcpy(buf + n, fills[i], strlen(fills[i]));
				n += strlen(fills[i]);
			}
			t = now_ns();
			(void)!pattern_match(p, str_from(buf, n));
			(void)!pattern_match_broad(p, str_from(buf, n));
			t = now_ns() - t;
			worst = t > worst ? t : worst;
			if (strcmp(fills[i], "%2525252525") == 0)
				assert_true(pattern_match_broad(p, str_from(buf, n)));
			pattern_free(p);
		}
	print_message("worst path of %d bytes: %.0f us\n", LIMIT_TARGET_BYTES, worst / 1000);
	free(buf);
}

static void test_cost(void **state)
{
	struct pattern *p = compiled("/repos/acme/secret/**");
	struct str plain = STR("/repos/acme/widgets/contents/src/main.c");
	struct str odd = STR("/repos/acme/@scope%2Fname/contents//src;v=1/main.c");
	const int rounds = 300000;
	struct pattern_forms *f = pattern_forms_new(plain);
	int hits = 0;
	double t = now_ns();

	(void)state;
	for (int i = 0; i < rounds; i++)
		hits += pattern_match(p, plain);
	print_message("narrow: %.0f ns\n", (now_ns() - t) / rounds);
	t = now_ns();
	for (int i = 0; i < rounds; i++)
		hits += pattern_match_broad(p, plain);
	print_message("broad, plain path: %.0f ns\n", (now_ns() - t) / rounds);
	t = now_ns();
	for (int i = 0; i < rounds; i++)
		hits += pattern_match_broad(p, odd);
	print_message("broad, odd path: %.0f ns\n", (now_ns() - t) / rounds);
	t = now_ns();
	for (int i = 0; i < rounds; i++)
		hits += pattern_match_forms(p, f);
	print_message("broad, forms made once: %.0f ns\n", (now_ns() - t) / rounds);
	assert_int_equal(hits, 0);
	pattern_forms_free(f);
	pattern_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compile),	     cmocka_unit_test(test_faults),
		cmocka_unit_test(test_narrow),	     cmocka_unit_test(test_broad),
		cmocka_unit_test(test_broad_random), cmocka_unit_test(test_like_the_model),
		cmocka_unit_test(test_covers),	     cmocka_unit_test(test_hostile_paths),
		cmocka_unit_test(test_cost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
