/*
 * JSON into memory that its caller has proven to be enough: no piece is checked for room, and a
 * string is looked at while it is copied. Whether all of them could stand as they are is asked
 * once, at the end; if not, what was written is worth nothing, and it is all said again with its
 * escapes. record.c calls it.
 */
#ifndef STILE_LOGGING_PEN_H
#define STILE_LOGGING_PEN_H

#include "logging/digits.h"
#include "logging/plain.h"

struct pen {
	/* borrowed (the caller's) */
	char *at;     /* where the next byte goes */
	bytes16 *odd; /* of all strings so far; apart, so that `at` may live in a register */
};

static ATTR_INLINE void pen_char(struct pen *w, char c)
{
	*w->at++ = c;
}

/* Of the program's own words, which are not looked at: a literal costs a move or two. */
static ATTR_INLINE void pen_literal(struct pen *w, struct str s)
{
	memcpy(w->at, s.p, s.n);
	w->at += s.n;
}

static ATTR_INLINE void pen_number(struct pen *w, uint64_t n)
{
	w->at += digits_put(w->at, n);
}

/* Fewer than sixteen bytes, with one look at how many: what is stored is what is judged, and spaces
 * beside it. */
static ATTR_INLINE void pen_put_short(char *out, struct str s, bytes16 *odd)
{
	typedef uint64_t words __attribute__((vector_size(16)));
	uint64_t first = 0x2020202020202020, last = first;

	if (s.n >= 8) {
		memcpy(&first, s.p, 8);
		memcpy(&last, s.p + s.n - 8, 8);
		memcpy(out, &first, 8);
		memcpy(out + s.n - 8, &last, 8);
	} else if (s.n >= 4) {
		uint32_t head, tail;

		memcpy(&head, s.p, 4);
		memcpy(&tail, s.p + s.n - 4, 4);
		memcpy(out, &head, 4);
		memcpy(out + s.n - 4, &tail, 4);
		first = head | (uint64_t)tail << 32;
	} else if (s.n > 0) {
		unsigned char head = (unsigned char)s.p[0], tail = (unsigned char)s.p[s.n - 1];
		unsigned char middle = (unsigned char)s.p[s.n / 2];

		out[0] = (char)head;
		out[s.n / 2] = (char)middle;
		out[s.n - 1] = (char)tail;
		first = last << 24 | (uint64_t)tail << 16 | (uint64_t)middle << 8 | head;
	}
	*odd |= plain_odd((bytes16)(words){first, last});
}

/* s to out, where nothing beyond s.n bytes is read or written: the last step overlaps the one
 * before it. *odd is no longer 0 when something of s has an escape to get. */
static inline void pen_put(char *out, struct str s, bytes16 *odd)
{
	bytes16 all = *odd, v;

	if (s.n < 16) {
		pen_put_short(out, s, odd);
		return;
	}
	for (size_t i = 0; i + 16 < s.n; i += 16) {
		v = bytes16_load(s.p + i);
		memcpy(out + i, &v, sizeof(v));
		all |= plain_odd(v);
	}
	v = bytes16_load(s.p + s.n - 16);
	memcpy(out + s.n - 16, &v, sizeof(v));
	*odd = all | plain_odd(v);
}

/* A string's bytes, without quotes. */
static ATTR_INLINE void pen_text(struct pen *w, struct str s)
{
	pen_put(w->at, s, w->odd);
	w->at += s.n;
}

#endif
