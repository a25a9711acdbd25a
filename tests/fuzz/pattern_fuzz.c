/*
 * Path patterns: a deny that holds for one spelling holds for all. The input is a pattern, a line
 * end, a path, a line end, and a list of changes, two bytes each: what and where.
 * - Where pattern_match says yes, so does pattern_match_broad.
 * - A pattern compiles from its own canonical text to the same one.
 * - A path that the deny matches is spelt anew, as some upstream would take for the same: slashes
 *   doubled, encoded or backslashes; case; fullwidth letters; escapes once and twice; parameters,
 * dots and blanks behind a segment; dot segments; something behind an encoded '?', '#' or NUL.
 * Either the URL is refused, or the deny matches still.
 */
#include "policy/pattern.h"
#include "policy/url.h"
#include "tests/fuzz/fuzz.h"

#define CHANGES_MAX 8

struct path {
	char p[1024];
	size_t n;
	bool has_dots; /* a dot segment: a dot more would make it a name */
};

static void put(struct path *a, size_t at, size_t cut, const char *s)
{
	size_t n = strlen(s);

	if (a->n + n >= sizeof(a->p))
		return;
	memmove(a->p + at + n, a->p + at + cut, a->n - at - cut);
	memcpy(a->p + at, s, n);
	a->n += n - cut;
}

/* The place of the which-th byte that is one of `set`, from the second byte on; 0: none. */
static size_t find(const struct path *a, unsigned which, const char *set)
{
	size_t count = 0, at = 0;

	for (size_t i = 1; i < a->n; i++)
		count += strchr(set, a->p[i]) && a->p[i];
	if (count == 0)
		return 0;
	for (size_t i = 1, left = which % count;; i++)
		if (strchr(set, a->p[i]) && a->p[i] && left-- == 0) {
			at = i;
			break;
		}
	return at;
}

static bool is_within_escape(const struct path *a, size_t at)
{
	return (at >= 1 && a->p[at - 1] == '%') || (at >= 2 && a->p[at - 2] == '%');
}

#define LETTERS	 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define ORDINARY LETTERS "0123456789-_~.!$&'()+,=:@"

/* Encodes the byte at `at` in one to three layers. */
static void encode(struct path *a, size_t at, unsigned layers)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%%%s%02X",
		       layers == 0   ? ""
		       : layers == 1 ? "25"
				     : "2525",
		       (unsigned)(uint8_t)a->p[at]);
	put(a, at, 1, text);
}

/* The fullwidth form of the letter at `at`, its bytes encoded in one layer or two. */
static void widen(struct path *a, size_t at, const char *layer)
{
	unsigned c = (unsigned)(uint8_t)a->p[at] - 0x20;
	char text[32];

	(void)snprintf(text, sizeof(text), "%%%sEF%%%sB%c%%%s%02X", layer, layer,
		       c < 0x40 ? 'C' : 'D', layer, 0x80 | (c & 0x3f));
	put(a, at, 1, text);
}

/* The end of a segment: before a slash, or the end of all. */
static size_t segment_end(const struct path *a, unsigned which)
{
	size_t at = which % 4 == 0 ? 0 : find(a, which, "/");

	return at ? at : a->n;
}

static void change(struct path *a, unsigned what, unsigned where)
{
	static const char *const tails[] = {"%3Fx", "%23x", "%2500", "%253Fx", "%2523x"};
	static const char *const dots[] = {"/.",      "/%2e",	    "/%252e", "/x/%252e%252e",
					   "/x/..;a", "/x%2F%252E."};
	size_t at;

	switch (what % 13) {
	case 0:
		at = find(a, where, "/");
		put(a, at, 0, "/");
		break;
	case 1:
		at = find(a, where, "/");
		if (at)
			put(a, at, 1, where & 0x80 ? "%2f" : "%2F");
		break;
	case 2:
		at = find(a, where, LETTERS);
		if (at)
			a->p[at] ^= 0x20;
		break;
	case 3:
	case 4:
	case 5:
		at = find(a, where, ORDINARY);
		if (at && !is_within_escape(a, at))
			encode(a, at, what % 13 - 3);
		break;
	case 6: put(a, segment_end(a, where), 0, where & 0x80 ? ";" : ";p=1"); break;
	case 7: /* a second dot could make a dot segment */
		put(a, segment_end(a, where), 0, where & 0x80 || a->has_dots ? "%20" : ".");
		a->has_dots = a->has_dots || !(where & 0x80);
		break;
	case 8: put(a, a->n, 0, "/"); break;
	case 9:
		at = find(a, where, "/");
		put(a, at, 0, dots[where % ARRAY_LEN(dots)]);
		a->has_dots = true;
		break;
	case 10: put(a, a->n, 0, tails[where % ARRAY_LEN(tails)]); break;
	case 11:
		at = find(a, where, "/");
		if (at)
			put(a, at, 1, where & 0x80 ? "%255C" : "%255c");
		break;
	case 12:
		at = find(a, where, LETTERS);
		if (at && !is_within_escape(a, at))
			widen(a, at, where & 0x80 ? "25" : "");
		break;
	default: break;
	}
}

static int canonical(struct str path, struct url *u)
{
	static const struct host nowhere;
	int rc = url_parse_origin_form(SCHEME_HTTPS, &nowhere, 443, path, u, NULL);

	return rc == 0 && !u->has_query ? 0 : -1;
}

static void check_spelling(const struct pattern *p, const struct path *a, struct str before)
{
	struct url u;

	if (canonical(str_from(a->p, a->n), &u) == 0 && !pattern_match_broad(p, u.path)) {
		(void)fprintf(stderr, "not denied: deny %.*s\nmatches %.*s\nbut not %.*s\n",
			      STR_FMT(pattern_str(p)), STR_FMT(before), STR_FMT(u.path));
		abort();
	}
	url_clear(&u);
}

/* Do all readers agree on the path? If not, the deny may hold for it in the eyes of one of them
 * alone, who does not take the new spelling for the same. An encoded slash may stand where the
 * pattern says so itself. */
static bool is_plain(struct str path, struct str pattern)
{
	bool is_literal = str_find(pattern, '*') < 0;

	for (size_t i = 0; i < path.n; i++) {
		struct str rest = str_skip(path, i);

		if (path.p[i] == ';' || str_starts(rest, STR("//")) ||
		    str_starts(rest, STR("./")) || str_starts(rest, STR(":$")) ||
		    (path.p[i] == '.' && rest.n == 1))
			return false;
		if (path.p[i] == '%' && !(is_literal && str_starts(rest, STR("%2F"))) &&
		    !str_starts(rest, STR("%C3")) && !str_starts(rest, STR("%A4")))
			return false;
	}
	return true;
}

static void check_pattern(const struct pattern *p)
{
	struct pattern *again;
	struct err e = ERR_INIT;

	CHECK(pattern_compile(pattern_str(p), &again, &e) == 0);
	CHECK(str_eq(pattern_str(p), pattern_str(again)));
	CHECK(pattern_covers(p, again));
	pattern_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str rest = str_from(data, size);
	struct str text = str_split(&rest, '\n'), path = str_split(&rest, '\n');
	struct err e = ERR_INIT;
	struct pattern *p;
	struct path a;
	struct url u;

	if (path.n > 256)
		return 0;
	if (pattern_compile(text, &p, &e) < 0) {
		fuzz_check_err(&e);
		return 0;
	}
	check_pattern(p);
	if (canonical(path, &u) == 0 && u.path.n < 512) {
		bool broad = pattern_match_broad(p, u.path);
		struct pattern_forms *f = pattern_forms_new(u.path);

		CHECK(broad || !pattern_match(p, u.path));
		CHECK(pattern_match_forms(p, f) == broad);
		pattern_forms_free(f);
		memcpy(a.p, u.path.p, u.path.n);
		a.n = u.path.n;
		a.has_dots = false;
		if (!pattern_match(p, u.path) || !is_plain(u.path, pattern_str(p)))
			rest = STR_NONE;
		for (int i = 0; i < CHANGES_MAX && rest.n > 0; i++) {
			unsigned what = fuzz_u8(&rest);

			change(&a, what, fuzz_u8(&rest));
			check_spelling(p, &a, u.path);
		}
	}
	url_clear(&u);
	pattern_free(p);
	return 0;
}
