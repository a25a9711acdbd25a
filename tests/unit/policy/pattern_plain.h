/*
 * Patterns and the forms of a path, compared one with the other as plainly as it can be said: each
 * form is written out as text, and each pattern walks over each. What policy/path_forms.c must come
 * to the same answer as, in fewer steps.
 */
#ifndef STILE_TESTS_PATTERN_PLAIN_H
#define STILE_TESTS_PATTERN_PLAIN_H

#include <stdlib.h>
#include <string.h>

#include "logging/hex.h"
#include "logging/limits.h"
#include "policy/lookalike.h"
#include "policy/pattern.h"
#include "policy/reading.h"
#include "policy/url.h"

/* The forms of one text differ in six yes-or-no questions (enum form_bit), which are seldom all
 * worth asking. */
#define PLAIN_FORMS_MAX (LIMIT_PATH_DECODES * 64)
#define FORMS_BITS	64

/* Bytes that stand for what no decoded byte must be mistaken for. Decoded control characters become
 * OTHER_CONTROL on both sides, so these five are free. */
#define WILD	      '\x01' /* a `*` of the pattern, not a decoded %2A */
#define OTHER_CONTROL '\x02'
#define KEPT_SLASH    '\x03' /* a decoded %2F that is still one character of its segment */
#define LIKE_SLASH    '\x04' /* a character that some readers take for a slash */
#define WITHIN_SLASH  '\x05' /* of one that some take for several, as a/c: fewer do so */

struct segment {
	struct str text; /* borrowed from the list's text */
	struct str
		stem; /* broad: text without the ending of a page or of a repository; else empty */
	bool any;     /* `**` */
	bool glob;    /* holds a wildcard */
	bool index;   /* broad: the page of its folder */
	bool file;    /* broad: the last, and what stands behind it is for it to read */
};

struct segment_list {
	char *text;	   /* owned */
	struct segment *v; /* owned */
	size_t n;
};

struct plain_pattern {
	/* owned */
	struct segment_list narrow; /* the canonical pattern; its text is what pattern_str gives */
	struct segment_list split;  /* broad: decoded, lower case, %2F as a slash */
	struct segment_list
		kept; /* broad: the same with %2F in its segment; empty if there is none */
	/* plain */
	size_t text_n;
};

enum form_bit {
	FORM_ENCODED = 1,   /* encoded slashes are slashes */
	FORM_BACKSLASH = 2, /* and so are backslashes */
	FORM_COLLAPSE = 4,  /* no empty segments, no slash at the end */
	FORM_RESOLVE = 8,   /* dot segments are followed */
	FORM_CUT = 16,	    /* the path ends at a decoded '?', '#' or NUL */
	FORM_GLUED = 32, /* `a../` is `a/../`, as where a server puts a folder in the place of /a */
};

struct form {
	uint32_t at, n;
	bool slash; /* a '/' stands behind it, for readers who keep one at the end */
};

struct plain_forms {
	/* owned */
	char *mem;
	/* plain */
	size_t len, cap;
	struct form v[PLAIN_FORMS_MAX];
	size_t n;
	bool beyond; /* a bound was met: whatever the pattern, it matches */
	/* borrowed */
	struct str path;
};

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_escape(const char *p, size_t left)
{
	return left >= 3 && p[0] == '%' && hex_value(p[1]) >= 0 && hex_value(p[2]) >= 0;
}

/* ---- one segment ---- */

/* Stores (S3 among them) and the decoders of forms take a plus for a blank. */
static bool is_same_broad(char a, char b)
{
	return a == b || ((a == '+' || a == ' ') && (b == '+' || b == ' '));
}

/* Backtracks to the last wildcard only, which is enough: it can always take what an earlier one
 * would have. Not broad: a wildcard never ends within a %XX. */
static bool glob_match(struct str p, struct str s, char wild, bool broad)
{
	size_t pi = 0, si = 0, after_wild = 0, mark = 0;
	bool have_wild = false;

	while (si < s.n) {
		if (pi < p.n && p.p[pi] == wild) {
			after_wild = ++pi;
			mark = si;
			have_wild = true;
		} else if (pi < p.n &&
			   (broad ? is_same_broad(p.p[pi], s.p[si]) : p.p[pi] == s.p[si])) {
			pi++;
			si++;
		} else if (have_wild) {
			mark += !broad && is_escape(s.p + mark, s.n - mark) ? 3 : 1;
			si = mark;
			pi = after_wild;
		} else {
			return false;
		}
	}
	while (pi < p.n && p.p[pi] == wild)
		pi++;
	return pi == p.n;
}

static bool segment_match(const struct segment *seg, struct str s)
{
	return seg->glob ? glob_match(seg->text, s, '*', false) : str_eq(seg->text, s);
}

static struct str trim_tail(struct str s, bool dots)
{
	while (s.n > 0 && (s.p[s.n - 1] == ' ' || (dots && s.p[s.n - 1] == '.')))
		s.n--;
	return s;
}

static struct str cut_params(struct str s)
{
	ptrdiff_t at = str_find(s, ';');

	return at < 0 ? s : str_head(s, (size_t)at);
}

/* `secret::$DATA` and `secret:$I30:$INDEX_ALLOCATION` are `secret` to NTFS. */
static struct str cut_stream(struct str s)
{
	ptrdiff_t at = str_find(s, ':');

	return at < 0 || !memmem(s.p + at, s.n - (size_t)at, ":$", 2) ? s : str_head(s, (size_t)at);
}

static bool broad_eq(struct str a, struct str b)
{
	if (a.n != b.n)
		return false;
	for (size_t i = 0; i < a.n; i++)
		if (!is_same_broad(a.p[i], b.p[i]))
			return false;
	return true;
}

/* Also without what says in which format it is wanted, or as what is a page with that name. */
static bool broad_one(const struct segment *seg, struct str s, bool last)
{
	struct str plain = reading_without_format(s, last);

	if (seg->glob)
		return glob_match(seg->text, s, WILD, true) ||
		       (plain.n < s.n && glob_match(seg->text, plain, WILD, true)) ||
		       ((last || str_ends(seg->text, STR(".git"))) && seg->stem.n > 0 &&
			glob_match(seg->stem, s, WILD, true));
	return broad_eq(seg->text, s) || (plain.n < s.n && broad_eq(seg->text, plain)) ||
	       ((last || str_ends(seg->text, STR(".git"))) && seg->stem.n > 0 &&
		broad_eq(seg->stem, s));
}

/* The segment as it is, without parameters (Java servers), without dots and blanks at its end or
 * the name of a stream (Windows), without both. Nothing and the page of a folder are one. */
static bool segment_match_broad(const struct segment *seg, struct str s, bool last)
{
	struct str cut = cut_params(s);
	struct str trimmed = trim_tail(s, true), file = cut_stream(cut);

	if (last && s.n == 0 && seg->index)
		return true;
	if (last && seg->text.n == 0 && reading_is_index(trim_tail(cut, true)))
		return true;
	return broad_one(seg, s, last) ||
	       (cut.n < s.n &&
		(broad_one(seg, cut, last) || broad_one(seg, trim_tail(cut, true), last))) ||
	       (trimmed.n < s.n && broad_one(seg, trimmed, last)) ||
	       (file.n < cut.n && broad_one(seg, trim_tail(file, true), last));
}

/* ---- a whole path ---- */

static size_t segment_end(struct str path, size_t start)
{
	const char *slash = start < path.n ? memchr(path.p + start, '/', path.n - start) : NULL;

	return slash ? (size_t)(slash - path.p) : path.n;
}

/*
 * Segment by segment; at a `**` the place is marked, and a mismatch later returns there with one
 * segment more taken by it. As with glob_match the last mark is enough. `start` is where the
 * current segment begins; path.n + 1 means that all are taken. Broad: whoever asks for a folder's
 * page asks for the folder, and the other way round.
 */
static bool list_match(const struct segment_list *l, struct str path, bool broad)
{
	size_t i = 0, start = 1, after_any = 0, mark = 0;
	bool have_any = false;

	if (path.n == 0 || path.p[0] != '/')
		return false;
	while (start <= path.n) {
		size_t end = segment_end(path, start);
		struct str s = str_from(path.p + start, end - start);
		bool last = end == path.n;

		if (i < l->n && l->v[i].any) {
			if (++i == l->n)
				return true;
			after_any = i;
			mark = start;
			have_any = true;
		} else if (i < l->n && (broad ? segment_match_broad(&l->v[i], s, last)
					      : segment_match(&l->v[i], s))) {
			i++;
			start = end + 1;
			if (l->v[i - 1].file)
				return true;
		} else if (broad && last && i == l->n && reading_is_index(cut_params(s))) {
			return true;
		} else if (have_any) {
			mark = segment_end(path, mark) + 1;
			start = mark;
			i = after_any;
		} else {
			return false;
		}
	}
	while (i < l->n && l->v[i].any)
		i++;
	/* Behind a `**` only a slash at the end says that it is a folder. */
	return i == l->n || (i + 1 == l->n && l->v[i].index && i > 0 && !l->v[i - 1].any);
}

static bool plain_match(const struct plain_pattern *p, struct str path)
{
	return list_match(&p->narrow, path, false);
}

/* ---- decoding ---- */

/* Where p[0..n) ends in a character that some readers take for ASCII, what they read takes its
 * place (lookalike.h). The new length. */
static size_t fold_tail(char *p, size_t n)
{
	char out[LOOKALIKE_MAX];
	size_t size = 1;
	int chars;

	while (size < 4 && size < n && ((uint8_t)p[n - size] & 0xc0) == 0x80)
		size++;
	if (size == 1 || lookalike_utf8_size((uint8_t)p[n - size]) != size)
		return n;
	chars = lookalike(lookalike_utf8((const uint8_t *)p + n - size, size), out);
	if (chars < 0)
		return n;
	n -= size;
	for (int i = 0; i < chars; i++)
		p[n++] = out[i] != '/' ? out[i] : chars == 1 ? LIKE_SLASH : WITHIN_SLASH;
	return n;
}

/* Decodes the escapes of p[0..*n) once, in place, lower-casing what comes out and
 * folding it to ASCII. False: a byte that
 * begins UTF-8 of a needless length, which a careless reader takes for a dot or a slash. */
static bool decode_once(char *p, size_t *n)
{
	size_t out = 0;
	bool ok = true;

	for (size_t i = 0; i < *n; i++) {
		int v;

		if (!is_escape(p + i, *n - i)) {
			p[out++] = p[i];
			if ((uint8_t)p[i] & 0x80)
				out = fold_tail(p, out);
			continue;
		}
		v = hex_value(p[i + 1]) * 16 + hex_value(p[i + 2]);
		i += 2;
		if (v == 0xc0 || v == 0xc1)
			ok = false;
		if (v == '/')
			p[out++] = KEPT_SLASH;
		else if (v > 0 && v < 0x20)
			p[out++] = OTHER_CONTROL;
		else
			p[out++] = lower((char)v);
		if (v & 0x80)
			out = fold_tail(p, out);
	}
	*n = out;
	return ok;
}

static bool has_escape(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_escape(p + i, n - i))
			return true;
	return false;
}

/* Lower case, and no byte that has a meaning of its own here. */
static void fold(char *to, struct str from)
{
	for (size_t i = 0; i < from.n; i++) {
		char c = from.p[i];

		to[i] = c > 0 && c < 0x20 ? OTHER_CONTROL : lower(c);
	}
}

/* ---- the forms of a path ---- */

static bool is_separator(char c, unsigned bits)
{
	return c == '/' || (c == KEPT_SLASH && bits & FORM_ENCODED) ||
	       (c == '\\' && bits & FORM_BACKSLASH);
}

static bool may_be_separator(char c)
{
	return is_separator(c, FORM_ENCODED | FORM_BACKSLASH);
}

static void replace(char *p, size_t n, char from, char to)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] == from)
			p[i] = to;
}

/* 1 for a `.` segment, 2 for a `..`, also with parameters or blanks behind; else 0. */
static int dot_segment(struct str s)
{
	s = trim_tail(cut_params(s), false);
	if (s.n > 2 || s.n == 0 || s.p[0] != '.' || s.p[s.n - 1] != '.')
		return 0;
	return (int)s.n;
}

/* `a..`, but not `a...`, with parameters or blanks behind. */
static bool is_glued(struct str s)
{
	s = trim_tail(cut_params(s), false);
	return s.n > 2 && s.p[s.n - 1] == '.' && s.p[s.n - 2] == '.' && s.p[s.n - 3] != '.';
}

/* Nothing, or nothing but parameters, dots and blanks, of which some readers leave nothing. */
static bool is_hollow(struct str s)
{
	return trim_tail(cut_params(s), true).n == 0 && dot_segment(s) != 2;
}

static size_t next_separator(struct str s, size_t at, unsigned bits)
{
	while (at < s.n && !is_separator(s.p[at], bits))
		at++;
	return at;
}

/* Which questions are worth asking of s at all? A bit is set when asking could change something. */
static unsigned form_bits(struct str s)
{
	unsigned bits = 0;

	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];
		struct str seg;

		if (c == KEPT_SLASH)
			bits |= FORM_ENCODED;
		if (c == '\\')
			bits |= FORM_BACKSLASH;
		if (c == '?' || c == '#' || c == '\0')
			bits |= FORM_CUT | FORM_COLLAPSE | FORM_RESOLVE;
		if (!may_be_separator(c))
			continue;
		seg = str_from(s.p + i + 1,
			       next_separator(s, i + 1, FORM_ENCODED | FORM_BACKSLASH) - i - 1);
		if (is_hollow(seg))
			bits |= FORM_COLLAPSE;
		if (dot_segment(seg))
			bits |= FORM_RESOLVE;
		if (is_glued(seg))
			bits |= FORM_GLUED;
	}
	return bits;
}

static bool forms_room(struct plain_forms *f, size_t want)
{
	size_t cap = f->cap ? f->cap : want;
	char *mem;

	if (f->len + want > LIMIT_PATH_FORMS_BYTES || f->n == PLAIN_FORMS_MAX) {
		f->beyond = true;
		return false;
	}
	while (cap < f->len + want)
		cap *= 2;
	if (cap == f->cap)
		return true;
	mem = realloc(f->mem, cap);
	if (!mem) {
		f->beyond = true;
		return false;
	}
	f->mem = mem;
	f->cap = cap;
	return true;
}

static struct str cut_tail(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] == '?' || s.p[i] == '#' || s.p[i] == '\0')
			return str_head(s, i);
	return s;
}

/* Writes one form of s, which starts with '/'. */
static void form_add(struct plain_forms *f, struct str s, unsigned bits)
{
	bool slash = false;
	char *out;
	size_t n = 0, end, segments = 0;

	if (!forms_room(f, s.n + 2))
		return;
	out = f->mem + f->len;
	if (bits & FORM_CUT)
		s = cut_tail(s);
	for (size_t start = 1; start <= s.n; start = end + 1) {
		struct str seg;
		bool hollow;
		int dots;

		/* Every deny of the host is compared with each of them. */
		if (++segments > LIMIT_PATH_SEGMENTS) {
			f->beyond = true;
			return;
		}
		end = next_separator(s, start, bits);
		seg = str_from(s.p + start, end - start);
		dots = bits & FORM_RESOLVE ? dot_segment(seg) : 0;
		hollow = bits & FORM_COLLAPSE && is_hollow(seg);
		slash = dots > 0 || hollow || (bits & FORM_GLUED && is_glued(seg));
		if (dots == 2)
			while (n > 0 && out[--n] != '/')
				;
		if (slash)
			continue;
		out[n++] = '/';
		memcpy(out + n, seg.p, seg.n);
		n += seg.n;
	}
	/* "/a/b/.." is "/a/" (RFC 3986 section 5.2.4), but for who drops the slash. */
	slash = slash && n > 0;
	out[n] = '/';
	if (n == 0 || (slash && !(bits & FORM_COLLAPSE)))
		n++;
	slash = slash && bits & FORM_COLLAPSE;
	f->v[f->n++] = (struct form){(uint32_t)f->len, (uint32_t)n, slash};
	f->len += n + slash;
}

static void forms_of_text(struct plain_forms *f, struct str s)
{
	static const char separators[] = {'\\', KEPT_SLASH, '\0'};
	static const char ends[] = {'\\', KEPT_SLASH, '?', '#', '\0'};
	unsigned possible = form_bits(s);
	struct str behind, later;

	for (unsigned bits = 0; bits < FORMS_BITS && !f->beyond; bits++)
		if ((bits & ~possible) == 0)
			form_add(f, s, bits);
	if (f->beyond || !reading_behind_authority(s, separators, ends, &behind))
		return;
	forms_of_text(f, behind);
	/* What is encoded ends the authority for who decodes first alone. */
	if (!f->beyond && reading_behind_authority(s, separators, "", &later) &&
	    later.p != behind.p)
		forms_of_text(f, later);
}

static void forms_of_params(struct plain_forms *f, struct str s)
{
	char *without = malloc(s.n);
	bool is_param = false, has_slash = false;
	size_t n = 0;

	forms_of_text(f, s);
	f->beyond |= !without;
	for (size_t i = 0; i < s.n && without; i++) {
		is_param = s.p[i] != '/' && (is_param || s.p[i] == ';');
		has_slash |= is_param && may_be_separator(s.p[i]);
		if (!is_param)
			without[n++] = s.p[i];
	}
	if (has_slash && !f->beyond)
		forms_of_text(f, str_from(without, n));
	free(without);
}

static void forms_of_session(struct plain_forms *f, struct str s)
{
	char *without;
	size_t n;

	forms_of_params(f, s);
	if (f->beyond || !memmem(s.p, s.n, "/(", 2))
		return;
	without = malloc(s.n + 1);
	n = without ? reading_without_sessions(s, without) : 0;
	f->beyond |= !without;
	if (without && n < s.n)
		forms_of_params(f, str_from(without, n));
	free(without);
}

static void forms_of_letters(struct plain_forms *f, struct str s)
{
	bool broken = false;

	if (!reading_needs_fold(s)) {
		forms_of_session(f, s);
		return;
	}
	for (int drop = 0; drop < 2 && (!drop || broken) && !f->beyond; drop++) {
		char *folded;
		size_t n;

		if (reading_fold(s, drop, &folded, &n, &broken) < 0) {
			f->beyond = true;
			return;
		}
		forms_of_session(f, str_from(folded, n));
		free(folded);
	}
}

static void forms_of_like(struct plain_forms *f, struct str s, char like, char within)
{
	char *text = f->beyond ? NULL : malloc(s.n);

	f->beyond |= !text;
	if (!text)
		return;
	memcpy(text, s.p, s.n);
	replace(text, s.n, LIKE_SLASH, like);
	replace(text, s.n, WITHIN_SLASH, within);
	forms_of_letters(f, str_from(text, s.n));
	free(text);
}

/* What readers make of the whole text comes before the questions. */
static void forms_of_round(struct plain_forms *f, struct str s)
{
	bool like = memchr(s.p, LIKE_SLASH, s.n), within = memchr(s.p, WITHIN_SLASH, s.n);
	bool other = memchr(s.p, KEPT_SLASH, s.n) || memchr(s.p, '\\', s.n);

	if (!like && !within) {
		forms_of_letters(f, s);
		return;
	}
	forms_of_like(f, s, KEPT_SLASH, KEPT_SLASH);
	if (within && (like || other))
		forms_of_like(f, s, KEPT_SLASH, OTHER_CONTROL);
	if (like && other)
		forms_of_like(f, s, OTHER_CONTROL, OTHER_CONTROL);
}

/* Every round of decoding gives forms of its own. The path before the first one does so only when
 * there is nothing to decode: pattern_match has seen it as it is. */
static void forms_make(struct plain_forms *f, char *text, size_t n)
{
	for (int round = 0;; round++) {
		bool more = has_escape(text, n);

		if (round > 0 || !more)
			forms_of_round(f, str_from(text, n));
		if (!more || f->beyond)
			return;
		if (round == LIMIT_PATH_DECODES || !decode_once(text, &n)) {
			f->beyond = true;
			return;
		}
	}
}

static struct plain_forms *plain_forms_new(struct str path)
{
	/* OPTIONS * speaks of the root as far as a deny is concerned. */
	struct str as_path = str_eq(path, STR("*")) ? STR("/") : path;
	size_t slash = as_path.n == 0 || as_path.p[0] != '/';
	struct plain_forms *f = malloc(sizeof(*f));
	char *text = malloc(as_path.n + 1);

	if (!f || !text) {
		free(f);
		free(text);
		return NULL;
	}
	f->mem = NULL;
	f->len = f->cap = f->n = 0;
	f->beyond = false;
	f->path = path;
	text[0] = '/';
	fold(text + slash, as_path);
	forms_make(f, text, as_path.n + slash);
	free(text);
	return f;
}

static void plain_forms_free(struct plain_forms *f)
{
	if (!f)
		return;
	free(f->mem);
	free(f);
}

static bool match_form(const struct plain_pattern *p, struct str form)
{
	return list_match(&p->split, form, true) ||
	       (p->kept.text && list_match(&p->kept, form, true));
}

static bool plain_match_forms(const struct plain_pattern *p, const struct plain_forms *f)
{
	if (!f || f->beyond || plain_match(p, f->path))
		return true;
	for (size_t i = 0; i < f->n; i++) {
		const char *at = f->mem + f->v[i].at;

		if (match_form(p, str_from(at, f->v[i].n)) ||
		    (f->v[i].slash && match_form(p, str_from(at, f->v[i].n + 1))))
			return true;
	}
	return false;
}

/* ---- compiling ---- */

static void list_clear(struct segment_list *l)
{
	free(l->text);
	free(l->v);
}

static void plain_free(struct plain_pattern *p)
{
	if (!p)
		return;
	list_clear(&p->narrow);
	list_clear(&p->split);
	list_clear(&p->kept);
	free(p);
}

static struct str plain_str(const struct plain_pattern *p)
{
	return str_from(p->narrow.text, p->text_n);
}

/* Nothing but wildcards. */
static bool is_wild(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] != WILD)
			return false;
	return true;
}

/* Cuts l->text (n bytes, starts with '/') into segments. `broad`: empty segments go, and so do dots
 * and blanks at the end of a segment, since the path is tried without them too. */
static int list_cut(struct segment_list *l, size_t n, char wild, bool broad, struct err *e)
{
	struct str text;
	size_t count = 0, end;

	while (broad && n > 1 && l->text[n - 1] == '/')
		n--; /* or the last segment would not be known for it */
	text = str_from(l->text, n);
	for (size_t i = 0; i < n; i++)
		count += l->text[i] == '/';
	l->v = calloc(count ? count : 1, sizeof(*l->v));
	if (!l->v)
		return err_set(e, "out of memory");
	for (size_t start = 1; start <= n; start = end + 1) {
		struct segment *seg = &l->v[l->n];

		end = segment_end(text, start);
		seg->text = str_from(l->text + start, end - start);
		seg->glob = str_find(seg->text, wild) >= 0;
		if (broad && !seg->glob && trim_tail(seg->text, true).n > 0)
			seg->text = trim_tail(seg->text, true);
		if (broad && seg->text.n == 0)
			continue;
		seg->any = seg->text.n == 2 && seg->text.p[0] == wild && seg->text.p[1] == wild;
		seg->file = broad && end == n && !seg->any && reading_is_file(seg->text);
		seg->index = broad && !seg->glob && end == n && reading_is_index(seg->text);
		seg->stem = broad ? reading_without_format(seg->text, end == n) : STR_NONE;
		if (seg->stem.n == seg->text.n || is_wild(seg->stem))
			seg->stem = STR_NONE;
		l->n++;
	}
	/* The root is the path with one empty segment. */
	if (l->n == 0)
		l->v[l->n++] = (struct segment){.text = STR("")};
	return 0;
}

/* The two broad readings of the canonical text. */
static int compile_broad(struct plain_pattern *p, struct err *e)
{
	struct str text = plain_str(p);
	size_t n = text.n;
	char *folded = malloc(n + 1);
	bool kept, broken;

	if (!folded)
		return err_set(e, "out of memory");
	p->split.text = folded;
	fold(folded, text);
	for (size_t i = 0; i < n; i++)
		if (folded[i] == '*')
			folded[i] = WILD;
	for (int round = 0; has_escape(folded, n); round++)
		if (round == LIMIT_PATH_DECODES || !decode_once(folded, &n))
			return err_set(e, "the path is percent-encoded in too many layers");
	replace(folded, n, LIKE_SLASH, KEPT_SLASH);
	replace(folded, n, WITHIN_SLASH, KEPT_SLASH);
	if (reading_needs_fold(str_from(folded, n))) {
		if (reading_fold(str_from(folded, n), false, &p->split.text, &n, &broken) < 0)
			return err_set(e, "out of memory");
		free(folded);
		folded = p->split.text;
	}
	kept = memchr(folded, KEPT_SLASH, n) || memchr(folded, '\\', n);
	if (kept) {
		p->kept.text = malloc(n + 1);
		if (!p->kept.text)
			return err_set(e, "out of memory");
		memcpy(p->kept.text, folded, n);
		if (list_cut(&p->kept, n, WILD, true, e) < 0)
			return -1;
	}
	for (size_t i = 0; i < n; i++)
		if (may_be_separator(folded[i]))
			folded[i] = '/';
	return list_cut(&p->split, n, WILD, true, e);
}

/* The canonical text of a pattern is that of a path: `*` is an ordinary character there. */
static int compile_narrow(struct plain_pattern *p, struct str text, struct err *e)
{
	static const struct host nowhere;
	struct url u;
	int rc = -1;

	if (text.n == 0 || text.p[0] != '/')
		return err_set(e, "a path starts with /");
	if (url_parse_origin_form(SCHEME_HTTPS, &nowhere, 443, text, &u, e) < 0)
		goto out;
	if (u.has_query) {
		err_set(e, "a query in the path (rules look at the path alone)");
		goto out;
	}
	p->narrow.text = str_dup(u.path);
	p->text_n = u.path.n;
	if (!p->narrow.text) {
		err_set(e, "out of memory");
		goto out;
	}
	rc = list_cut(&p->narrow, p->text_n, '*', false, e);
out:
	url_clear(&u);
	return rc;
}

static int plain_compile(struct str text, struct plain_pattern **ret, struct err *e)
{
	struct plain_pattern *p = calloc(1, sizeof(*p));

	if (!p)
		return err_set(e, "out of memory");
	if (compile_narrow(p, text, e) < 0)
		goto failed;
	for (size_t i = 0; i < p->narrow.n; i++) {
		struct str seg = p->narrow.v[i].text;

		for (size_t j = 1; j < seg.n && !p->narrow.v[i].any; j++)
			if (seg.p[j] == '*' && seg.p[j - 1] == '*') {
				err_set(e, "** stands for whole segments, between slashes (write * "
					   "for a run of characters)");
				goto failed;
			}
	}
	if (compile_broad(p, e) < 0)
		goto failed;
	*ret = p;
	return 0;
failed:
	plain_free(p);
	return -1;
}

#endif
