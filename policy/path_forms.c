/*
 * One path and many patterns. For deny rules the path has forms: all that an upstream might take it
 * for. The segments of all forms are numbered, each different text once, so a form is a row of
 * numbers, and a pattern can only match where its literal segments stand: most patterns cost one
 * look-up, however long the path is. What it may cost beyond has a bound, and so have the forms;
 * what goes beyond a bound, and memory that runs out, count as a match for a deny, so a trick that
 * is too deep to follow is denied, and as none for an allow.
 */
#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "policy/path_texts.h"
#include "policy/reading.h"

/* The forms of one text differ in six yes-or-no questions (enum form_bit), which are seldom all
 * worth asking. */
#define FORMS_MAX  (LIMIT_PATH_DECODES * 64)
#define FORMS_BITS 64

enum form_bit {
	FORM_CUTS = CUTS_ALL, /* encoded slashes and backslashes, or one of them, are slashes */
	FORM_COLLAPSE = 4,    /* no empty segments, no slash at the end */
	FORM_RESOLVE = 8,     /* dot segments are followed */
	FORM_CUT = 16,	      /* the path ends at a decoded '?', '#' or NUL */
	FORM_GLUED = 32, /* `a../` is `a/../`, as where a server puts a folder in the place of /a */
};

/* A row of numbers. */
struct row {
	size_t at, n;
};

struct form {
	struct row row;
	bool slash; /* a '/' stands behind it, for readers who keep one at the end: an empty one
		       follows the row */
};

#define NUMBERS_FEW 64

struct numbers {
	uint16_t *v; /* owned, or the few */
	size_t cap;
	uint16_t few[NUMBERS_FEW];
};

struct pattern_forms {
	/* owned */
	struct texts texts;
	struct numbers rows;	 /* the numbers of all rows */
	struct numbers literals; /* of a pattern's segments, while it is compared */
	/* plain */
	size_t rows_n;
	struct row raw;
	struct form v[FORMS_MAX];
	size_t n;
	size_t made, bytes; /* doubles included */
	size_t allowed;	    /* steps */
	bool raw_made, made_all, spent;
	bool beyond; /* a bound was met: whatever the pattern, a deny matches */
	/* borrowed */
	struct str path;
};

static void numbers_init(struct numbers *n)
{
	n->v = n->few;
	n->cap = NUMBERS_FEW;
}

static void numbers_clear(struct numbers *n)
{
	if (n->v != n->few)
		free(n->v);
}

static int reserve(struct numbers *n, size_t want)
{
	size_t cap = n->cap;
	uint16_t *more;

	if (want <= cap)
		return 0;
	while (cap < want)
		cap *= 2;
	more = malloc(cap * sizeof(*more));
	if (!more)
		return -1;
	memcpy(more, n->v, n->cap * sizeof(*more));
	numbers_clear(n);
	n->v = more;
	n->cap = cap;
	return 0;
}

/* Once it is, it stays so. */
static bool is_spent(struct pattern_forms *f)
{
	f->spent = f->spent || f->texts.steps > f->allowed;
	return f->spent;
}

/* ---- the path as it is ---- */

static size_t next_separator(struct str s, size_t at, unsigned cuts)
{
	while (at < s.n && !path_is_separator(s.p[at], cuts))
		at++;
	return at;
}

static int add_segments(struct pattern_forms *f, struct str s, unsigned cuts, bool raw,
			struct row *ret)
{
	size_t end;

	*ret = (struct row){.at = f->rows_n};
	for (size_t start = 1; start <= s.n; start = end + 1) {
		struct str seg;
		uint16_t id;

		end = next_separator(s, start, cuts);
		seg = str_from(s.p + start, end - start);
		id = raw ? texts_add(&f->texts, seg) : texts_add_read(&f->texts, seg);
		if (id == TEXT_NONE || is_spent(f) || (!raw && ret->n == LIMIT_PATH_SEGMENTS) ||
		    reserve(&f->rows, f->rows_n + 1) < 0)
			return -1;
		if (raw)
			f->texts.v[id].raw = true;
		f->rows.v[f->rows_n++] = id;
		ret->n++;
	}
	return 0;
}

/* ---- the forms ---- */

/* One text: its segments in each way to cut it, and where a reader ends it. */
struct reading {
	struct str text;
	struct row rows[CUTS_ALL + 1];
	uint16_t cut[CUTS_ALL + 1]; /* the segment in which it ends, up to there */
	size_t cut_n[CUTS_ALL + 1]; /* the segments before it */
	unsigned bits;		    /* of the questions that could change something */
};

static int cut_reading(struct pattern_forms *f, struct reading *r, unsigned cuts, size_t end)
{
	size_t start = end;

	while (start > 1 && !path_is_separator(r->text.p[start - 1], cuts))
		start--;
	r->cut_n[cuts] = 0;
	for (size_t i = 1; i < start; i++)
		r->cut_n[cuts] += path_is_separator(r->text.p[i], cuts);
	r->cut[cuts] = texts_add_read(&f->texts, str_from(r->text.p + start, end - start));
	return r->cut[cuts] == TEXT_NONE ? -1 : 0;
}

static int make_reading(struct pattern_forms *f, struct reading *r)
{
	struct str s = r->text;
	struct row finest;
	size_t end = s.n;

	r->bits = 0;
	for (size_t i = s.n; i > 0; i--) {
		char c = s.p[i - 1];

		if (c == KEPT_SLASH)
			r->bits |= CUT_ENCODED;
		if (c == '\\')
			r->bits |= CUT_BACKSLASH;
		if (c == '?' || c == '#' || c == '\0') {
			r->bits |= FORM_CUT | FORM_COLLAPSE | FORM_RESOLVE;
			end = i - 1;
		}
	}
	for (unsigned cuts = 0; cuts <= FORM_CUTS; cuts++)
		if ((cuts & ~r->bits) == 0 &&
		    (add_segments(f, s, cuts, false, &r->rows[cuts]) < 0 ||
		     (end < s.n && cut_reading(f, r, cuts, end) < 0)))
			return -1;
	/* A segment that is dots or nothing to who cuts less begins with one for who cuts all. */
	finest = r->rows[r->bits & FORM_CUTS];
	for (size_t i = 0; i < finest.n; i++) {
		const struct text *t = &f->texts.v[f->rows.v[finest.at + i]];

		r->bits |= (t->hollow ? FORM_COLLAPSE : 0U) | (t->dots ? FORM_RESOLVE : 0U) |
			   (t->glued ? FORM_GLUED : 0U);
	}
	return 0;
}

/* Has that row been made already? Where a question changed nothing, it has. */
static bool is_double(const struct pattern_forms *f, const struct form *form)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->v[i].row.n == form->row.n && f->v[i].slash == form->slash &&
		    memcmp(f->rows.v + f->v[i].row.at, f->rows.v + form->row.at,
			   form->row.n * sizeof(*f->rows.v)) == 0)
			return true;
	return false;
}

/* In which forms each text stands, and all that may be left of it. */
static void note_form(struct pattern_forms *f, const struct form *form)
{
	uint64_t bit = 1ULL << f->n % 64;

	for (size_t i = 0; i < form->row.n + form->slash; i++) {
		struct text *t = &f->texts.v[f->rows.v[form->row.at + i]];

		/* That it stands there as another one's rest says nothing of its own. */
		if (t->noted & bit)
			continue;
		t->noted |= bit;
		t->forms |= bit;
		for (size_t k = 0; k < t->last_n; k++)
			f->texts.v[t->others[k]].forms |= bit;
	}
	f->v[f->n++] = *form;
	f->rows_n += form->row.n + form->slash;
}

/* Writes one form of the round behind all numbers; `out` has room. */
static int make_form(struct pattern_forms *f, const struct reading *r, unsigned bits,
		     uint16_t empty)
{
	unsigned cuts = bits & FORM_CUTS;
	bool cut = bits & FORM_CUT, slash = false;
	struct form form = {.row.at = f->rows_n};
	const uint16_t *from;
	uint16_t *out;
	size_t n = 0, count = cut ? r->cut_n[cuts] + 1 : r->rows[cuts].n;

	if (f->bytes + r->text.n + 2 > LIMIT_PATH_FORMS_BYTES || f->made++ == FORMS_MAX ||
	    reserve(&f->rows, f->rows_n + count + 2) < 0)
		return -1;
	from = f->rows.v + r->rows[cuts].at;
	out = f->rows.v + f->rows_n;
	for (size_t i = 0; i < count; i++) {
		uint16_t id = cut && i + 1 == count ? r->cut[cuts] : from[i];
		const struct text *t = &f->texts.v[id];
		unsigned dots = bits & FORM_RESOLVE ? t->dots : 0;

		slash = dots > 0 || (bits & FORM_COLLAPSE && t->hollow) ||
			(bits & FORM_GLUED && t->glued);
		if (dots == 2 && n > 0)
			n--;
		if (!slash)
			out[n++] = id;
	}
	/* "/a/b/.." is "/a/" (RFC 3986 section 5.2.4), but for who drops the slash. */
	slash = slash && n > 0;
	if (n == 0 || (slash && !(bits & FORM_COLLAPSE)))
		out[n++] = empty;
	form.row.n = n;
	form.slash = slash && bits & FORM_COLLAPSE;
	out[n] = empty;
	for (size_t i = 0; i < n + form.slash; i++)
		f->bytes += f->texts.v[out[i]].s.n + 1;
	if (!is_double(f, &form))
		note_form(f, &form);
	return 0;
}

static int forms_of_text(struct pattern_forms *f, struct str s)
{
	static const char separators[] = {'\\', KEPT_SLASH, '\0'};
	static const char ends[] = {'\\', KEPT_SLASH, '?', '#', '\0'};
	uint16_t empty = texts_add_read(&f->texts, STR(""));
	struct reading r = {.text = s};
	struct str behind, later;

	if (empty == TEXT_NONE || make_reading(f, &r) < 0)
		return -1;
	for (unsigned bits = 0; bits < FORMS_BITS; bits++)
		if ((bits & ~r.bits) == 0 && make_form(f, &r, bits, empty) < 0)
			return -1;
	if (!reading_behind_authority(s, separators, ends, &behind))
		return 0;
	if (forms_of_text(f, behind) < 0)
		return -1;
	/* What is encoded ends the authority for who decodes first alone. */
	if (reading_behind_authority(s, separators, "", &later) && later.p != behind.p)
		return forms_of_text(f, later);
	return 0;
}

/* Do parameters hold what may be a slash? Others go with their segment's other forms. */
static bool has_cut_params(struct str s)
{
	bool is_param = false;

	for (size_t i = 0; i < s.n; i++) {
		is_param = s.p[i] != '/' && (is_param || s.p[i] == ';');
		if (is_param && path_is_separator(s.p[i], CUTS_ALL))
			return true;
	}
	return false;
}

static int forms_of_params(struct pattern_forms *f, struct str s)
{
	char *without;

	if (forms_of_text(f, s) < 0)
		return -1;
	if (!has_cut_params(s))
		return 0;
	without = texts_keep(&f->texts, malloc(s.n));
	return without ? forms_of_text(f, str_from(without, reading_without_params(s, without)))
		       : -1;
}

static int forms_of_session(struct pattern_forms *f, struct str s)
{
	char *without;
	size_t n;

	if (forms_of_params(f, s) < 0)
		return -1;
	if (!memmem(s.p, s.n, "/(", 2))
		return 0;
	without = texts_keep(&f->texts, malloc(s.n + 1));
	if (!without)
		return -1;
	n = reading_without_sessions(s, without);
	return n < s.n ? forms_of_params(f, str_from(without, n)) : 0;
}

static int forms_of_letters(struct pattern_forms *f, struct str s)
{
	bool broken = false;

	if (!reading_needs_fold(s))
		return forms_of_session(f, s);
	for (int drop = 0; drop < 2 && (!drop || broken); drop++) {
		char *folded;
		size_t n;

		if (reading_fold(s, drop, &folded, &n, &broken) < 0 ||
		    !texts_keep(&f->texts, folded) || forms_of_session(f, str_from(folded, n)) < 0)
			return -1;
	}
	return 0;
}

static int forms_of_like(struct pattern_forms *f, struct str s, char like, char within)
{
	char *text = texts_keep(&f->texts, malloc(s.n));

	if (!text)
		return -1;
	memcpy(text, s.p, s.n);
	path_replace(text, s.n, LIKE_SLASH, like);
	path_replace(text, s.n, WITHIN_SLASH, within);
	return forms_of_letters(f, str_from(text, s.n));
}

/* What readers make of the whole text comes before the questions. What looks like a slash is one
 * or, beside what is, a character like others. */
static int forms_of_round(struct pattern_forms *f, struct str s)
{
	bool like = memchr(s.p, LIKE_SLASH, s.n), within = memchr(s.p, WITHIN_SLASH, s.n);
	bool other = memchr(s.p, KEPT_SLASH, s.n) || memchr(s.p, '\\', s.n);

	if (!like && !within)
		return forms_of_letters(f, s);
	if (forms_of_like(f, s, KEPT_SLASH, KEPT_SLASH) < 0 ||
	    (within && (like || other) && forms_of_like(f, s, KEPT_SLASH, OTHER_CONTROL) < 0))
		return -1;
	return like && other ? forms_of_like(f, s, OTHER_CONTROL, OTHER_CONTROL) : 0;
}

/* Every round of decoding gives forms of its own. The path before the first one does so only when
 * there is nothing to decode: it is compared as it is anyway. */
static int make_forms(struct pattern_forms *f)
{
	/* OPTIONS * speaks of the root as far as a deny is concerned. */
	struct str path = str_eq(f->path, STR("*")) ? STR("/") : f->path;
	size_t slash = path.n == 0 || path.p[0] != '/', n = path.n + slash;
	char *text = texts_keep(&f->texts, malloc(n + 1));

	if (!text)
		return -1;
	text[0] = '/';
	path_fold(text + slash, path);
	for (int round = 0;; round++) {
		bool more = path_has_escape(text, n);
		char *next;

		if ((round > 0 || !more) && forms_of_round(f, str_from(text, n)) < 0)
			return -1;
		if (!more)
			return 0;
		if (round == LIMIT_PATH_DECODES)
			return -1;
		/* The texts lie in what the rounds before have left. */
		next = texts_keep(&f->texts, malloc(n + 1));
		if (!next)
			return -1;
		memcpy(next, text, n);
		text = next;
		if (!path_decode_once(text, &n))
			return -1;
	}
}

struct pattern_forms *pattern_forms_new(struct str path)
{
	struct pattern_forms *f = malloc(sizeof(*f));

	if (!f)
		return NULL;
	texts_init(&f->texts);
	numbers_init(&f->rows);
	numbers_init(&f->literals);
	f->rows_n = 0;
	f->n = f->made = f->bytes = 0;
	f->allowed = LIMIT_PATH_STEPS;
	f->made_all = f->beyond = f->spent = false;
	f->path = path;
	f->raw = (struct row){0, 0};
	f->raw_made =
		path.n == 0 || path.p[0] != '/' || add_segments(f, path, 0, true, &f->raw) == 0;
	return f;
}

void pattern_forms_free(struct pattern_forms *f)
{
	if (!f)
		return;
	texts_clear(&f->texts);
	numbers_clear(&f->rows);
	numbers_clear(&f->literals);
	free(f);
}

size_t pattern_forms_steps(const struct pattern_forms *f)
{
	return f->texts.steps;
}

/* ---- comparing ---- */

/* The numbers of a segment's literal, and of that without the ending of a page or a repository. */
struct literal {
	uint16_t text, stem;
};

static struct literal literal_of(const struct pattern_forms *f, size_t i)
{
	return (struct literal){f->literals.v[2 * i], f->literals.v[2 * i + 1]};
}

static bool glob_is(struct pattern_forms *f, const struct segment *seg, const struct text *t,
		    size_t others_n)
{
	if (segment_glob(seg, t->s, true, &f->texts.steps))
		return true;
	for (size_t i = 0; i < others_n; i++)
		if (segment_glob(seg, f->texts.v[t->others[i]].s, true, &f->texts.steps))
			return true;
	return false;
}

/* A glob without its ending, in which there is no wildcard; empty if it has none. */
static struct segment stem_glob(const struct segment *seg)
{
	size_t ending_n = seg->text.n - seg->stem.n;

	if (seg->stem.n == 0)
		return (struct segment){0};
	return (struct segment){.text = seg->stem, .tail_n = seg->tail_n - (uint32_t)ending_n};
}

static bool has_other(const struct text *t, size_t n, uint16_t id)
{
	for (size_t i = 0; i < n; i++)
		if (t->others[i] == id)
			return true;
	return false;
}

/* Broad. Nothing and the page of a folder are one, at the end. */
static bool text_is(struct pattern_forms *f, const struct segment *seg, struct literal literal,
		    uint16_t id, bool last)
{
	const struct text *t = &f->texts.v[id];
	size_t n = last ? t->last_n : t->others_n;
	bool may_lack_ending = seg->stem.n > 0 && (last || seg->git);
	struct segment stem;

	if (last && ((t->s.n == 0 && seg->index) || (seg->text.n == 0 && t->index_trimmed)))
		return true;
	if (seg->glob) {
		if (glob_is(f, seg, t, n))
			return true;
		if (!may_lack_ending)
			return false;
		stem = stem_glob(seg);
		return glob_is(f, &stem, t, t->cut_n);
	}
	if (literal.text != TEXT_NONE && (id == literal.text || has_other(t, n, literal.text)))
		return true;
	return may_lack_ending && literal.stem != TEXT_NONE &&
	       (id == literal.stem || has_other(t, t->cut_n, literal.stem));
}

static bool text_is_raw(struct pattern_forms *f, const struct segment *seg, struct literal literal,
			uint16_t id)
{
	return seg->glob ? segment_glob(seg, f->texts.v[id].s, false, &f->texts.steps)
			 : id == literal.text;
}

/*
 * Segment by segment; at a `**` the place is marked, and a mismatch later returns there with one
 * segment more taken by it. As with segment_glob the last mark is enough. Broad: whoever asks for a
 * folder's page asks for the folder, and the other way round.
 */
static bool row_match(struct pattern_forms *f, const struct segment_list *l, struct row row,
		      bool raw)
{
	const uint16_t *ids = f->rows.v + row.at;
	size_t i = 0, at = 0, after_any = 0, mark = 0;
	bool have_any = false;

	while (at < row.n) {
		bool last = at + 1 == row.n;

		f->texts.steps++;
		if (i < l->n && l->v[i].any) {
			if (++i == l->n)
				return true;
			after_any = i;
			mark = at;
			have_any = true;
		} else if (i < l->n &&
			   (raw ? text_is_raw(f, &l->v[i], literal_of(f, i), ids[at])
				: text_is(f, &l->v[i], literal_of(f, i), ids[at], last))) {
			if (l->v[i].file)
				return true;
			i++;
			at++;
		} else if (!raw && last && i == l->n && f->texts.v[ids[at]].index) {
			return true;
		} else if (have_any && !is_spent(f)) {
			at = ++mark;
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

static uint64_t stands_in(const struct pattern_forms *f, uint16_t id, bool raw)
{
	if (id == TEXT_NONE)
		return 0;
	return raw ? f->texts.v[id].raw : f->texts.v[id].forms;
}

/* Where something stands that the glob fits, of the forms asked for. */
static uint64_t glob_stands_in(struct pattern_forms *f, const struct segment *seg, uint64_t forms,
			       bool raw)
{
	struct segment stem = stem_glob(seg);
	size_t *steps = &f->texts.steps;
	uint64_t some = 0;

	for (size_t k = 0; k < f->texts.n && forms & ~some && !is_spent(f); k++) {
		uint64_t in = stands_in(f, (uint16_t)k, raw);
		struct str s = f->texts.v[k].s;

		++*steps;
		if (in & forms & ~some &&
		    (segment_glob(seg, s, !raw, steps) ||
		     (stem.text.n > 0 && segment_glob(&stem, s, true, steps))))
			some |= in;
	}
	return some;
}

/* The forms (numbers modulo 64) in which each literal segment stands, and something that each glob
 * fits; for the path as it is, the first bit. */
static uint64_t forms_to_compare(struct pattern_forms *f, const struct segment_list *l, bool raw)
{
	uint64_t forms = UINT64_MAX;

	for (size_t i = 0; i < l->n && forms; i++) {
		const struct segment *seg = &l->v[i];
		uint16_t *ids = f->literals.v + 2 * i;

		ids[0] = ids[1] = TEXT_NONE;
		if (seg->glob)
			continue;
		ids[0] = texts_find(&f->texts, seg->text, seg->hash);
		if (seg->stem.n > 0)
			ids[1] = texts_find(&f->texts, seg->stem, seg->stem_hash);
		/* What may stand for nothing need not stand there. */
		if (!seg->index && seg->text.n > 0)
			forms &= stands_in(f, ids[0], raw) | stands_in(f, ids[1], raw);
	}
	for (size_t i = 0; i < l->n && forms; i++)
		if (l->v[i].glob && !l->v[i].any)
			forms &= glob_stands_in(f, &l->v[i], forms, raw);
	return forms;
}

static bool forms_match(struct pattern_forms *f, const struct segment_list *l)
{
	uint64_t forms;

	if (reserve(&f->literals, 2 * l->n) < 0)
		return true;
	forms = forms_to_compare(f, l, false);
	for (size_t i = 0; i < f->n && forms; i++) {
		struct row row = f->v[i].row;

		if (!(forms >> i % 64 & 1))
			continue;
		if (row_match(f, l, row, false))
			return true;
		row.n++;
		if (f->v[i].slash && row_match(f, l, row, false))
			return true;
	}
	return is_spent(f);
}

static bool raw_match(struct pattern_forms *f, const struct segment_list *l)
{
	return f->raw.n > 0 && forms_to_compare(f, l, true) && row_match(f, l, f->raw, true) &&
	       !is_spent(f);
}

bool pattern_match_forms(const struct pattern *p, struct pattern_forms *f)
{
	if (!f || !f->raw_made)
		return true;
	f->allowed += LIMIT_PATH_STEPS_PER_RULE;
	if (!f->made_all) {
		f->beyond = make_forms(f) < 0;
		f->made_all = true;
	}
	if (f->beyond || is_spent(f) || reserve(&f->literals, 2 * p->narrow.n) < 0)
		return true;
	return raw_match(f, &p->narrow) || forms_match(f, &p->split) ||
	       (p->kept.text && forms_match(f, &p->kept));
}

bool pattern_match_path(const struct pattern *p, struct pattern_forms *f)
{
	f->allowed += LIMIT_PATH_STEPS_PER_RULE;
	if (is_spent(f))
		return false;
	/* Out of memory: one by one, as for a few rules. */
	if (!f->raw_made || reserve(&f->literals, 2 * p->narrow.n) < 0)
		return pattern_match(p, f->path);
	return raw_match(f, &p->narrow);
}

bool pattern_match_broad(const struct pattern *p, struct str path)
{
	struct pattern_forms *f;
	bool match;

	if (pattern_match(p, path))
		return true;
	f = pattern_forms_new(path);
	match = pattern_match_forms(p, f);
	pattern_forms_free(f);
	return match;
}
