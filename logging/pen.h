/*
 * JSON into memory that its caller has proven to be enough: no piece is checked for room, and a
 * string is looked at while it is copied. Whether all of them could stand as they are is asked
 * once, at the end; if not, what was written is worth nothing, and json.h says it all again.
 * record_quick.c calls it.
 */
#ifndef STILE_LOGGING_PEN_H
#define STILE_LOGGING_PEN_H

#include "logging/digits.h"
#include "logging/plain.h"

struct pen {
	/* borrowed (the caller's) */
	char *at;	  /* where the next byte goes */
	plain_words *odd; /* of all strings so far; apart, so that `at` may live in a register */
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

/* Fewer than sixteen bytes: those that a length needs are loaded once, to be stored and judged. */
static ATTR_INLINE void pen_put_short(char *out, struct str s, plain_words *odd)
{
	plain_words v = {PLAIN_EACH(' '), PLAIN_EACH(' ')};

	if (s.n >= 8) {
		v = (plain_words){plain_load64(s.p), plain_load64(s.p + s.n - 8)};
		memcpy(out, (char *)&v, 8);
		memcpy(out + s.n - 8, (char *)&v + 8, 8);
	} else if (s.n >= 4) {
		uint32_t first = plain_load32(s.p), last = plain_load32(s.p + s.n - 4);

		memcpy(out, &first, sizeof(first));
		memcpy(out + s.n - sizeof(last), &last, sizeof(last));
		v[0] = first | (uint64_t)last << 32;
	} else if (s.n > 0) {
		unsigned char first = (unsigned char)s.p[0], last = (unsigned char)s.p[s.n - 1];
		unsigned char middle = (unsigned char)s.p[s.n / 2];

		out[0] = (char)first;
		out[s.n / 2] = (char)middle;
		out[s.n - 1] = (char)last;
		v[0] = PLAIN_EACH(' ') << 24 | (uint64_t)last << 16 | (uint64_t)middle << 8 | first;
	}
	*odd |= plain_odd(v);
}

/* s to out, where nothing beyond s.n bytes is read or written: the last step overlaps the one
 * before it. *odd is no longer 0 when something of s has an escape to get. */
static inline void pen_put(char *out, struct str s, plain_words *odd)
{
	plain_words all = *odd, v;

	if (s.n < 16) {
		pen_put_short(out, s, odd);
		return;
	}
	for (size_t i = 0; i + 16 < s.n; i += 16) {
		v = plain_load128(s.p + i);
		memcpy(out + i, &v, sizeof(v));
		all |= plain_odd(v);
	}
	v = plain_load128(s.p + s.n - 16);
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
