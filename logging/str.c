/*
 * Slices: comparing, cutting, reading a decimal number. Nothing here allocates except str_dup, and
 * nothing reads past a slice's length or expects a terminator. Every layer calls it.
 */
#include "logging/str.h"

#include <stdlib.h>
#include <string.h>

#include "logging/bytes16.h"

static bool same16(bytes16 a, bytes16 b)
{
	return bytes16_bits((bytes16)(bytes16_lower(a) == bytes16_lower(b))) == 0xffff;
}

bool str_same_nocase(const char *a, const char *b, size_t n)
{
	if (n == 0)
		return true;
	if (n < 16)
		return same16(bytes16_load_any(a, n), bytes16_load_any(b, n));
	for (size_t i = 0; i + 16 < n; i += 16)
		if (!same16(bytes16_load(a + i), bytes16_load(b + i)))
			return false;
	return same16(bytes16_load(a + n - 16), bytes16_load(b + n - 16));
}

int str_cmp(struct str a, struct str b)
{
	size_t n = a.n < b.n ? a.n : b.n;
	int d = n ? memcmp(a.p, b.p, n) : 0;

	if (d != 0)
		return d;
	return (a.n > b.n) - (a.n < b.n);
}

ptrdiff_t str_find(struct str s, char c)
{
	const char *at = s.n ? memchr(s.p, c, s.n) : NULL;

	return at ? at - s.p : -1;
}

struct str str_trim_ows(struct str s)
{
	while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
		s = str_skip(s, 1);
	while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
		s.n--;
	return s;
}

struct str str_split(struct str *rest, char sep)
{
	struct str whole = *rest;
	ptrdiff_t at = str_find(whole, sep);

	if (at < 0) {
		*rest = STR_NONE;
		return whole;
	}
	*rest = str_skip(whole, (size_t)at + 1);
	return str_head(whole, (size_t)at);
}

int str_to_u64(struct str s, uint64_t *ret)
{
	uint64_t n = 0;

	if (s.n == 0)
		return -1;
	for (size_t i = 0; i < s.n; i++) {
		unsigned digit = (unsigned)(unsigned char)s.p[i] - '0';

		/* Nineteen digits always fit. */
		if (digit > 9 || (i >= 19 && n > (UINT64_MAX - digit) / 10))
			return -1;
		n = n * 10 + digit;
	}
	*ret = n;
	return 0;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15U;
	return h ^ h >> 32;
}

/* Eight bytes at a time, some of them twice at the end; the shift brings down the high bits, which
 * a product mixes best. */
uint64_t str_hash(uint64_t seed, struct str s)
{
	uint64_t h = seed ^ s.n * 0x9e3779b97f4a7c15U, v = 0;

	if (s.n < sizeof(v)) {
		for (size_t i = 0; i < s.n; i++)
			v = v << 8 | (unsigned char)s.p[i];
		return mix(h, v);
	}
	for (size_t i = 0; i + sizeof(v) < s.n; i += sizeof(v)) {
		memcpy(&v, s.p + i, sizeof(v));
		h = mix(h, v);
	}
	memcpy(&v, s.p + s.n - sizeof(v), sizeof(v));
	return mix(h, v);
}

char *str_dup(struct str s)
{
	char *copy = malloc(s.n + 1);

	if (!copy)
		return NULL;
	if (s.n)
		memcpy(copy, s.p, s.n);
	copy[s.n] = '\0';
	return copy;
}
