/*
 * Sixteen bytes at a time, for whoever asks a question of every byte of a head or a URL: vectors of
 * GCC and clang, which every processor that they compile for has or is given. Nothing here reads
 * outside of the slice it is given. The question is a function from sixteen bytes to sixteen
 * answers (0xff or 0); it is inlined.
 */
#ifndef STILE_LOGGING_BYTES16_H
#define STILE_LOGGING_BYTES16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "logging/attrs.h"

typedef unsigned char bytes16 __attribute__((vector_size(16)));
typedef bytes16 (*bytes16_question)(bytes16 v);

static ATTR_INLINE bytes16 bytes16_load(const char *p)
{
	bytes16 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Yes where lo <= v <= hi. */
static ATTR_INLINE bytes16 bytes16_range(bytes16 v, unsigned char lo, unsigned char hi)
{
	return (bytes16)(v - lo <= (bytes16){0} + (unsigned char)(hi - lo));
}

/* Yes for an ASCII letter of either case. */
static ATTR_INLINE bytes16 bytes16_letter(bytes16 v)
{
	return bytes16_range(v | 0x20, 'a', 'z');
}

/* With ASCII letters in lower case. */
static ATTR_INLINE bytes16 bytes16_lower(bytes16 v)
{
	return v | (bytes16_range(v, 'A', 'Z') & 0x20);
}

/* A bit for each yes, the first byte's lowest. */
static ATTR_INLINE unsigned bytes16_bits(bytes16 yes)
{
#ifdef __SSE2__
	return (unsigned)_mm_movemask_epi8((__m128i)yes);
#elif __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	const uint64_t ones = 0x0101010101010101u, gather = 0x0102040810204080u;
	uint64_t w[2];

	/* The product's highest byte has the lowest bit of each byte, none carried into another. */
	memcpy(w, &yes, sizeof(w));
	return (unsigned)((w[0] & ones) * gather >> 56 | (w[1] & ones) * gather >> 56 << 8);
#else
	unsigned bits = 0;

	for (unsigned i = 0; i < 16; i++)
		bits |= (unsigned)(yes[i] & 1) << i;
	return bits;
#endif
}

/* The n < 16 bytes at p in any order, some of them twice, and nothing else; n > 0. */
static ATTR_INLINE bytes16 bytes16_load_any(const char *p, size_t n)
{
	typedef uint64_t words __attribute__((vector_size(16)));
	uint64_t first, last;

	if (n >= 8) {
		memcpy(&first, p, 8);
		memcpy(&last, p + n - 8, 8);
	} else if (n >= 4) {
		uint32_t four;

		memcpy(&four, p, 4);
		first = four;
		memcpy(&four, p + n - 4, 4);
		first |= (uint64_t)four << 32;
		last = first;
	} else {
		first = (uint8_t)p[0] * (uint64_t)0x010101010101 |
			(uint64_t)(uint8_t)p[n / 2] << 48 | (uint64_t)(uint8_t)p[n - 1] << 56;
		last = first;
	}
	return (bytes16)(words){first, last};
}

/* The n < 16 bytes at p, zeros behind them. */
static ATTR_INLINE bytes16 bytes16_load_few(const char *p, size_t n)
{
	bytes16 v = {0};

	/* In one copy of a known size for each bit of n, not in a call. */
	if (n & 8)
		memcpy(&v, p, 8);
	if (n & 4)
		memcpy((char *)&v + (n & 8), p + (n & 8), 4);
	if (n & 2)
		memcpy((char *)&v + (n & 12), p + (n & 12), 2);
	if (n & 1)
		v[n & 14] = (unsigned char)p[n & 14];
	return v;
}

/* Is the answer yes for a byte of p[0..n)? */
static ATTR_INLINE bool bytes16_any(const char *p, size_t n, bytes16_question ask)
{
	if (n == 0)
		return false;
	if (n < 16)
		return bytes16_bits(ask(bytes16_load_any(p, n)));
	for (size_t i = 0; i + 16 < n; i += 16)
		if (bytes16_bits(ask(bytes16_load(p + i))))
			return true;
	return bytes16_bits(ask(bytes16_load(p + n - 16)));
}

/* The bits of the last bytes, p[i..n), fewer than sixteen and at least one. */
static ATTR_INLINE unsigned bytes16_bits_few(const char *p, size_t i, size_t n,
					     bytes16_question ask)
{
	/* Of the last sixteen bytes, but for the answers to those before i. */
	if (n >= 16)
		return bytes16_bits(ask(bytes16_load(p + n - 16))) >> (16 - (n - i));
	return bytes16_bits(ask(bytes16_load_few(p + i, n - i))) & ((1U << (n - i)) - 1);
}

/* From i on, where is the first byte of p[0..n) for which the answer is yes? n: there is none. */
static ATTR_INLINE size_t bytes16_find(const char *p, size_t i, size_t n, bytes16_question ask)
{
	unsigned bits;

	for (; n - i >= 16; i += 16) {
		bits = bytes16_bits(ask(bytes16_load(p + i)));
		if (bits)
			return i + (unsigned)__builtin_ctz(bits);
	}
	if (i == n)
		return n;
	bits = bytes16_bits_few(p, i, n, ask);
	return bits ? i + (unsigned)__builtin_ctz(bits) : n;
}

/* The same question of a whole text, for whoever goes from each yes to the next: sixty-four bytes
 * are asked at once. */
struct bytes16_walk {
	const char *p;
	size_t n, base; /* of the bytes that the bits are of */
	uint64_t left;	/* a bit for each yes that is still to come */
};

static ATTR_INLINE uint64_t bytes16_ask64(const char *p, size_t at, size_t n, bytes16_question ask)
{
	uint64_t bits = 0;
	size_t i = 0;

	for (; i < 64 && n - at - i >= 16; i += 16)
		bits |= (uint64_t)bytes16_bits(ask(bytes16_load(p + at + i))) << i;
	if (i == 64 || at + i == n)
		return bits;
	return bits | (uint64_t)bytes16_bits_few(p, at + i, n, ask) << i;
}

static ATTR_INLINE struct bytes16_walk bytes16_walk(const char *p, size_t at, size_t n,
						    bytes16_question ask)
{
	return (struct bytes16_walk){p, n, at, bytes16_ask64(p, at, n, ask)};
}

/* Where the next yes is; n: there is none. */
static ATTR_INLINE size_t bytes16_next(struct bytes16_walk *w, bytes16_question ask)
{
	size_t at;

	while (w->left == 0) {
		if (w->n - w->base <= 64)
			return w->n;
		w->base += 64;
		w->left = bytes16_ask64(w->p, w->base, w->n, ask);
	}
	at = w->base + (unsigned)__builtin_ctzll(w->left);
	w->left &= w->left - 1;
	return at;
}

#endif
