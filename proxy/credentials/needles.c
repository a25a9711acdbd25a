/*
 * See needles.h. A window of the shortest one's length moves over the text; the two bytes at its
 * end say how far it may jump (Wu and Manber, 1994), which is nearly its whole length where nothing
 * is found. What could end there is chained by the same two bytes, so that a text made to hit costs
 * no more for many needles than for one.
 */
#include "proxy/credentials/needles.h"

#include <stdlib.h>

#define TABLE 4096
#define NONE  UINT16_MAX

struct needle {
	struct str text; /* owned */
	uint16_t next;	 /* of the same end of its window */
};

struct needles {
	/* owned */
	struct needle *v;
	/* plain */
	size_t n, window, longest;
	uint16_t first[TABLE];
	uint8_t jump[TABLE];
	bool begins[256];
};

static unsigned slot_of(const char *p)
{
	return ((unsigned)(unsigned char)p[0] << 5 ^ (unsigned char)p[1]) % TABLE;
}

static void set_jumps(struct needles *s)
{
	for (size_t i = 0; i < TABLE; i++) {
		s->jump[i] = (uint8_t)(s->window - 1);
		s->first[i] = NONE;
	}
	for (size_t i = 0; i < s->n; i++) {
		const char *p = s->v[i].text.p;
		unsigned last = slot_of(p + s->window - 2);

		for (size_t at = 0; at + 2 <= s->window; at++) {
			uint8_t left = (uint8_t)(s->window - 2 - at);
			unsigned slot = slot_of(p + at);

			if (left < s->jump[slot])
				s->jump[slot] = left;
		}
		s->v[i].next = s->first[last];
		s->first[last] = (uint16_t)i;
		s->begins[(unsigned char)p[0]] = true;
	}
}

struct needles *needles_new(const struct str *v, size_t n)
{
	struct needles *s = n > 0 && n < NONE ? calloc(1, sizeof(*s)) : NULL;

	if (!s)
		return NULL;
	s->v = calloc(n, sizeof(*s->v));
	if (!s->v) {
		free(s);
		return NULL;
	}
	s->n = n;
	s->window = LIMIT_PLACEHOLDER_BYTES;
	for (size_t i = 0; i < n; i++) {
		bool fits = v[i].n >= NEEDLE_LEAST && v[i].n <= LIMIT_PLACEHOLDER_BYTES;

		s->v[i].text = str_from(fits ? str_dup(v[i]) : NULL, v[i].n);
		if (!s->v[i].text.p) {
			needles_free(s);
			return NULL;
		}
		if (v[i].n < s->window)
			s->window = v[i].n;
		if (v[i].n > s->longest)
			s->longest = v[i].n;
	}
	set_jumps(s);
	return s;
}

void needles_free(struct needles *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		free((void *)(uintptr_t)s->v[i].text.p);
	free(s->v);
	free(s);
}

struct str needles_text(const struct needles *s, size_t which)
{
	return s->v[which].text;
}

size_t needles_longest(const struct needles *s)
{
	return s->longest;
}

ptrdiff_t needles_find(const struct needles *s, struct str in, size_t *ret_which)
{
	size_t at = 0;

	while (at + s->window <= in.n) {
		unsigned slot = slot_of(in.p + at + s->window - 2);

		if (s->jump[slot] > 0) {
			at += s->jump[slot];
			continue;
		}
		for (uint16_t i = s->first[slot]; i != NONE; i = s->v[i].next) {
			struct str text = s->v[i].text;

			if (text.n <= in.n - at && memcmp(in.p + at, text.p, text.n) == 0) {
				*ret_which = i;
				return (ptrdiff_t)at;
			}
		}
		at++;
	}
	return -1;
}

static bool begins_one(const struct needles *s, struct str part)
{
	if (!s->begins[(unsigned char)part.p[0]])
		return false;
	for (size_t i = 0; i < s->n; i++)
		if (part.n < s->v[i].text.n && memcmp(part.p, s->v[i].text.p, part.n) == 0)
			return true;
	return false;
}

size_t needles_tail(const struct needles *s, struct str in)
{
	size_t most = in.n < s->longest - 1 ? in.n : s->longest - 1;

	for (size_t n = most; n > 0; n--)
		if (begins_one(s, str_skip(in, in.n - n)))
			return n;
	return 0;
}
