/*
 * Compiles path patterns, and matches one with the one canonical path. Knows nothing of hosts and
 * rules; called by load.c (compile) and policy.c. Many rules, and the forms of a path that a deny
 * is compared with, are path_forms.c.
 */
#include "policy/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "policy/lookalike.h"
#include "policy/pattern_parts.h"
#include "policy/reading.h"
#include "policy/url.h"

/* ---- one segment ---- */

uint32_t segment_hash(struct str s)
{
	return (uint32_t)str_hash(0, s);
}

/* Stores (S3 among them) and the decoders of forms take a plus for a blank. */
static bool is_same(char a, char b, bool broad)
{
	return a == b || (broad && (a == '+' || a == ' ') && (b == '+' || b == ' '));
}

static bool glob_match(struct str p, struct str s, bool broad, size_t *steps)
{
	size_t pi = 0, si = 0, after_wild = 0, mark = 0;
	bool have_wild = false;
	char wild = broad ? WILD : '*';

	while (si < s.n) {
		++*steps;
		if (pi < p.n && p.p[pi] == wild) {
			after_wild = ++pi;
			mark = si;
			have_wild = true;
		} else if (pi < p.n && is_same(p.p[pi], s.p[si], broad)) {
			pi++;
			si++;
		} else if (have_wild) {
			mark += !broad && path_is_escape(s.p + mark, s.n - mark) ? 3 : 1;
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

bool segment_glob(const struct segment *seg, struct str s, bool broad, size_t *steps)
{
	/* Most are dismissed at the end, and cheaply. */
	if (s.n < seg->tail_n)
		return false;
	for (size_t i = 1; i <= seg->tail_n; i++)
		if (!is_same(seg->text.p[seg->text.n - i], s.p[s.n - i], broad))
			return false;
	return glob_match(seg->text, s, broad, steps);
}

static bool segment_match(const struct segment *seg, struct str s)
{
	size_t steps = 0;

	return seg->glob ? segment_glob(seg, s, false, &steps) : str_eq(seg->text, s);
}

struct str segment_trim(struct str s, bool dots)
{
	while (s.n > 0 && (s.p[s.n - 1] == ' ' || (dots && s.p[s.n - 1] == '.')))
		s.n--;
	return s;
}

struct str segment_cut_params(struct str s)
{
	ptrdiff_t at = str_find(s, ';');

	return at < 0 ? s : str_head(s, (size_t)at);
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
 * current segment begins; path.n + 1 means that all are taken.
 */
static bool list_match(const struct segment_list *l, struct str path)
{
	size_t i = 0, start = 1, after_any = 0, mark = 0;
	bool have_any = false;

	if (path.n == 0 || path.p[0] != '/')
		return false;
	while (start <= path.n) {
		size_t end = segment_end(path, start);

		if (i < l->n && l->v[i].any) {
			if (++i == l->n)
				return true;
			after_any = i;
			mark = start;
			have_any = true;
		} else if (i < l->n &&
			   segment_match(&l->v[i], str_from(path.p + start, end - start))) {
			i++;
			start = end + 1;
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
	return i == l->n;
}

bool pattern_match(const struct pattern *p, struct str path)
{
	return list_match(&p->narrow, path);
}

/* ---- compiling ---- */

/* STR_NONE: there is no ending to leave out, or nothing in front of it that names a thing: `*.php`
 * is all that have this format, and not all that there is. */
static struct str stem_of(struct str text, bool last, char wild)
{
	struct str stem = reading_without_format(text, last);

	for (size_t i = 0; stem.n < text.n && i < stem.n; i++)
		if (stem.p[i] != wild)
			return stem;
	return STR_NONE;
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
		if (broad && !seg->glob && segment_trim(seg->text, true).n > 0)
			seg->text = segment_trim(seg->text, true);
		if (broad && seg->text.n == 0)
			continue;
		seg->any = seg->text.n == 2 && seg->text.p[0] == wild && seg->text.p[1] == wild;
		seg->file = broad && end == n && !seg->any && reading_is_file(seg->text);
		if (broad) {
			seg->index = !seg->glob && end == n && reading_is_index(seg->text);
			seg->git = str_ends(seg->text, STR(".git"));
			seg->stem = stem_of(seg->text, end == n, wild);
		}
		/* A plus is a blank; text ends nowhere else by it. */
		for (size_t i = start; broad && i < end; i++)
			if (l->text[i] == '+')
				l->text[i] = ' ';
		seg->hash = segment_hash(seg->text);
		seg->stem_hash = segment_hash(seg->stem);
		while (seg->glob && seg->text.p[seg->text.n - seg->tail_n - 1] != wild)
			seg->tail_n++;
		l->n++;
	}
	/* The root is the path with one empty segment. */
	if (l->n == 0)
		l->v[l->n++] = (struct segment){.text = STR(""), .hash = segment_hash(STR(""))};
	return 0;
}

static bool is_continuation(char c)
{
	return ((uint8_t)c & 0xc0) == 0x80;
}

/* A wildcard beside a part of a character takes the rest of it, and who folds the case or the
 * accents of that character has nothing left for the part. */
static bool cuts_character(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		size_t size = 1;

		if (s.p[i] != WILD)
			continue;
		if (i + 1 < s.n && is_continuation(s.p[i + 1]))
			return true;
		while (size < 4 && size < i && is_continuation(s.p[i - size]))
			size++;
		if (size <= i && lookalike_utf8_size((uint8_t)s.p[i - size]) > size)
			return true;
	}
	return false;
}

/* The two broad readings of the canonical text. */
static int compile_broad(struct pattern *p, struct err *e)
{
	struct str text = pattern_str(p);
	size_t n = text.n;
	char *folded = malloc(n + 1);
	bool kept, broken;

	if (!folded)
		return err_set(e, "out of memory");
	p->split.text = folded;
	path_fold(folded, text);
	for (size_t i = 0; i < n; i++)
		if (folded[i] == '*')
			folded[i] = WILD;
	for (int round = 0; path_has_escape(folded, n); round++)
		if (round == LIMIT_PATH_DECODES || !path_decode_once(folded, &n))
			return err_set(e, "the path is percent-encoded in too many layers");
	if (cuts_character(str_from(folded, n)))
		return err_set(e, "a * beside a part of a character (write the whole of it, or "
				  "percent-encode all of its bytes)");
	path_replace(folded, n, LIKE_SLASH, KEPT_SLASH);
	path_replace(folded, n, WITHIN_SLASH, KEPT_SLASH);
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
		if (path_is_separator(folded[i], CUTS_ALL))
			folded[i] = '/';
	return list_cut(&p->split, n, WILD, true, e);
}

/* The canonical text of a pattern is that of a path: `*` is an ordinary character there. */
static int compile_narrow(struct pattern *p, struct str text, struct err *e)
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

int pattern_compile(struct str text, struct pattern **ret, struct err *e)
{
	struct pattern *p = calloc(1, sizeof(*p));

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
	pattern_free(p);
	return -1;
}

static void list_clear(struct segment_list *l)
{
	free(l->text);
	free(l->v);
}

void pattern_free(struct pattern *p)
{
	if (!p)
		return;
	list_clear(&p->narrow);
	list_clear(&p->split);
	list_clear(&p->kept);
	free(p);
}

struct str pattern_str(const struct pattern *p)
{
	return str_from(p->narrow.text, p->text_n);
}

/* ---- comparing patterns ---- */

/* Could one text match both? Two globs are compared by what stands before their first and behind
 * their last wildcard. */
static bool segments_meet(const struct segment *a, const struct segment *b)
{
	struct str x = a->text, y = b->text;

	if (!a->glob)
		return segment_match(b, x);
	if (!b->glob)
		return segment_match(a, y);
	for (size_t i = 0; i < x.n && i < y.n && x.p[i] != '*' && y.p[i] != '*'; i++)
		if (x.p[i] != y.p[i])
			return false;
	for (size_t i = 1; i <= x.n && i <= y.n && x.p[x.n - i] != '*' && y.p[y.n - i] != '*'; i++)
		if (x.p[x.n - i] != y.p[y.n - i])
			return false;
	return true;
}

static size_t count_any(const struct segment_list *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		n += l->v[i].any;
	return n;
}

bool pattern_covers(const struct pattern *p, const struct pattern *q)
{
	const struct segment_list *a = &p->narrow, *b = &q->narrow;
	size_t a_any = count_any(a), b_any = count_any(b);

	if ((a_any == 0 && b->n - b_any > a->n) || (b_any == 0 && a->n - a_any > b->n))
		return false;
	if (a_any == 0 && b_any == 0 && a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n && i < b->n && !a->v[i].any && !b->v[i].any; i++)
		if (!segments_meet(&a->v[i], &b->v[i]))
			return false;
	for (size_t i = 1; i <= a->n && i <= b->n; i++) {
		const struct segment *x = &a->v[a->n - i], *y = &b->v[b->n - i];

		if (x->any || y->any)
			break;
		if (!segments_meet(x, y))
			return false;
	}
	return true;
}
