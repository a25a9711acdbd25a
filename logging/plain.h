/*
 * Which bytes may stand in a JSON string as they are, looked at eight or sixteen at a time: ASCII
 * but for control characters, DEL, the quote and the backslash. json.c calls it, and pen.h, which
 * looks while it copies.
 */
#ifndef STILE_LOGGING_PLAIN_H
#define STILE_LOGGING_PLAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "logging/attrs.h"
#include "logging/str.h"

typedef unsigned char plain_bytes __attribute__((vector_size(16)));
typedef signed char plain_signs __attribute__((vector_size(16)));
typedef uint64_t plain_words __attribute__((vector_size(16)));

#define PLAIN_EACH(c) (0x0101010101010101U * (c))

static ATTR_INLINE uint32_t plain_load32(const char *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static ATTR_INLINE uint64_t plain_load64(const char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static ATTR_INLINE plain_words plain_load128(const char *p)
{
	plain_words v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Sixteen bytes, of which those that may not stand as they are become all ones, and the others 0.
 * One more than DEL, and what is not ASCII, is below the space as a signed number. */
static ATTR_INLINE plain_words plain_odd(plain_words w)
{
	plain_bytes v = (plain_bytes)w;

	return (plain_words)((plain_signs)(v + 1) < 0x21) | (plain_words)(v == '"') |
	       (plain_words)(v == '\\');
}

static ATTR_INLINE bool plain_any(plain_words odd)
{
	return (odd[0] | odd[1]) != 0;
}

/* Fewer than sixteen bytes as sixteen: all of s, some of it twice, and spaces. The last load
 * overlaps the one before it instead of going byte by byte: most strings of a record are short. */
static ATTR_INLINE plain_words plain_load_short(struct str s)
{
	uint64_t few = PLAIN_EACH(' ');

	if (s.n >= 8)
		return (plain_words){plain_load64(s.p), plain_load64(s.p + s.n - 8)};
	if (s.n >= 4)
		few = plain_load32(s.p) | (uint64_t)plain_load32(s.p + s.n - 4) << 32;
	else if (s.n > 0)
		memcpy(&few, (char[]){s.p[0], s.p[s.n / 2], s.p[s.n - 1]}, 3);
	return (plain_words){few, PLAIN_EACH(' ')};
}

/* Whether all of s may stand as it is. */
static inline bool plain_is(struct str s)
{
	if (s.n < 16)
		return !plain_any(plain_odd(plain_load_short(s)));
	for (size_t i = 0; i + 16 < s.n; i += 16)
		if (plain_any(plain_odd(plain_load128(s.p + i))))
			return false;
	return !plain_any(plain_odd(plain_load128(s.p + s.n - 16)));
}

#endif
