/* See path_texts.h. */
#include "policy/path_texts.h"

#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "policy/reading.h"

void texts_init(struct texts *t)
{
	t->v = t->few;
	t->places = t->few_places;
	memset(t->few_places, 0, sizeof(t->few_places));
	t->n = 0;
	t->cap = TEXTS_FEW;
	t->mask = 2 * TEXTS_FEW - 1;
	t->kept = NULL;
	t->kept_n = t->kept_cap = 0;
	t->steps = 0;
}

static void drop_tables(struct texts *t)
{
	if (t->v != t->few)
		free(t->v);
	if (t->places != t->few_places)
		free(t->places);
}

void texts_clear(struct texts *t)
{
	for (size_t i = 0; i < t->kept_n; i++)
		free(t->kept[i]);
	free(t->kept);
	drop_tables(t);
}

char *texts_keep(struct texts *t, char *memory)
{
	if (memory && t->kept_n == t->kept_cap) {
		size_t cap = t->kept_cap ? 2 * t->kept_cap : 8;
		char **more = realloc(t->kept, cap * sizeof(*more));

		if (!more) {
			free(memory);
			return NULL;
		}
		t->kept = more;
		t->kept_cap = cap;
	}
	if (memory)
		t->kept[t->kept_n++] = memory;
	return memory;
}

/* Where its number is written down, or would be. Many that collide are many steps. */
static uint16_t *find_place(struct texts *t, struct str s, uint32_t hash)
{
	for (size_t i = hash & t->mask;; i = (i + 1) & t->mask) {
		uint16_t *place = &t->places[i];
		const struct text *text = *place ? &t->v[*place - 1] : NULL;

		t->steps++;
		if (!text || (text->hash == hash && str_eq(text->s, s)))
			return place;
	}
}

static int grow(struct texts *t)
{
	size_t cap = t->cap * 2;
	struct text *v = malloc(cap * sizeof(*v));
	uint16_t *places = calloc(2 * cap, sizeof(*places));

	if (!v || !places) {
		free(v);
		free(places);
		return -1;
	}
	memcpy(v, t->v, t->n * sizeof(*v));
	drop_tables(t);
	t->v = v;
	t->places = places;
	t->mask = 2 * cap - 1;
	t->cap = cap;
	for (size_t i = 0; i < t->n; i++)
		*find_place(t, v[i].s, v[i].hash) = (uint16_t)(i + 1);
	return 0;
}

uint16_t texts_add(struct texts *t, struct str s)
{
	uint32_t hash = segment_hash(s);
	uint16_t *place = find_place(t, s, hash);

	if (*place)
		return (uint16_t)(*place - 1);
	if (t->n == t->cap) {
		if (t->n >= LIMIT_PATH_TEXTS || grow(t) < 0)
			return TEXT_NONE;
		place = find_place(t, s, hash);
	}
	t->v[t->n] = (struct text){.s = s, .hash = hash};
	*place = (uint16_t)++t->n;
	return (uint16_t)(t->n - 1);
}

uint16_t texts_find(struct texts *t, struct str s, uint32_t hash)
{
	return (uint16_t)(*find_place(t, s, hash) - 1);
}

/* `secret::$DATA` and `secret:$I30:$INDEX_ALLOCATION` are `secret` to NTFS. */
static struct str cut_stream(struct str s)
{
	ptrdiff_t at = str_find(s, ':');

	return at < 0 || !memmem(s.p + at, s.n - (size_t)at, ":$", 2) ? s : str_head(s, (size_t)at);
}

/* 1 for a `.` segment, 2 for a `..`, also with parameters or blanks behind; else 0. */
static uint8_t dot_segment(struct str cut)
{
	cut = segment_trim(cut, false);
	if (cut.n > 2 || cut.n == 0 || cut.p[0] != '.' || cut.p[cut.n - 1] != '.')
		return 0;
	return (uint8_t)cut.n;
}

/* `a..`, but not `a...`, with parameters or blanks behind. */
static bool is_glued(struct str cut)
{
	cut = segment_trim(cut, false);
	return cut.n > 2 && cut.p[cut.n - 1] == '.' && cut.p[cut.n - 2] == '.' &&
	       cut.p[cut.n - 3] != '.';
}

static int add_other(struct texts *t, uint16_t id, struct str s)
{
	uint16_t other;

	if (str_find(s, '+') >= 0) {
		char *copy = texts_keep(t, str_dup(s));

		if (!copy)
			return -1;
		for (size_t i = 0; i < s.n; i++)
			copy[i] = s.p[i] == '+' ? ' ' : s.p[i];
		s = str_from(copy, s.n);
	}
	other = texts_add(t, s);
	if (other == TEXT_NONE)
		return -1;
	t->v[id].others[t->v[id].last_n++] = other;
	return 0;
}

/* The segment without parameters (Java servers), without dots and blanks at its end or the name of
 * a stream (Windows), without both. */
static size_t cut_forms(struct str s, struct str ret[5])
{
	struct str cut = segment_cut_params(s), file = cut_stream(cut);
	struct str trimmed = segment_trim(s, true);
	size_t n = 0;

	ret[n++] = s;
	if (cut.n < s.n) {
		ret[n++] = cut;
		ret[n++] = segment_trim(cut, true);
	}
	if (trimmed.n < s.n)
		ret[n++] = trimmed;
	if (file.n < cut.n)
		ret[n++] = segment_trim(file, true);
	return n;
}

static int add_others(struct texts *t, uint16_t id)
{
	struct str all[5];
	size_t n = cut_forms(t->v[id].s, all);

	for (size_t i = 0; i < n; i++)
		if ((i > 0 || str_find(all[i], '+') >= 0) && add_other(t, id, all[i]) < 0)
			return -1;
	t->v[id].cut_n = t->v[id].last_n;
	for (int last = 0; last < 2; last++) {
		for (size_t i = 0; i < n; i++) {
			struct str always = reading_without_format(all[i], false);
			struct str plain = last ? reading_without_format(all[i], true) : always;

			if (plain.n < all[i].n && (!last || always.n == all[i].n) &&
			    add_other(t, id, plain) < 0)
				return -1;
		}
		if (!last)
			t->v[id].others_n = t->v[id].last_n;
	}
	return 0;
}

/* Most hold nothing of which a reader could make something else. */
static bool is_what_it_is(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		switch (s.p[i]) {
		case ' ':
		case '+':
		case '.':
		case ':':
		case ';': return false;
		default: break;
		}
	return s.n > 0;
}

static int read_text(struct texts *t, uint16_t id)
{
	struct text *text = &t->v[id];
	struct str cut, trimmed;

	t->steps += TEXT_OTHERS;
	text->read = true;
	if (is_what_it_is(text->s))
		return 0;
	cut = segment_cut_params(text->s);
	trimmed = segment_trim(cut, true);
	text->dots = dot_segment(cut);
	text->glued = is_glued(cut);
	text->hollow = trimmed.n == 0 && text->dots != 2;
	text->index = reading_is_index(cut);
	text->index_trimmed = reading_is_index(trimmed);
	return add_others(t, id);
}

uint16_t texts_add_read(struct texts *t, struct str s)
{
	uint16_t id = texts_add(t, s);

	if (id != TEXT_NONE && !t->v[id].read && read_text(t, id) < 0)
		return TEXT_NONE;
	return id;
}
