/*
 * Percent-encodings (RFC 3986 section 2.1), undone as most readers undo them: what is broken stays
 * as it stands. Not for what is forwarded: policy/url.c, which refuses what is broken, reads that.
 */
#ifndef STILE_LOGGING_PERCENT_H
#define STILE_LOGGING_PERCENT_H

#include "logging/hex.h"
#include "logging/str.h"

/* The byte that s[at] and the two behind it stand for, or -1: they are no percent-encoding.
 * at < s.n. */
static inline int percent_byte(struct str s, size_t at)
{
	int high, low;

	if (s.p[at] != '%' || s.n - at < 3)
		return -1;
	high = hex_value(s.p[at + 1]);
	low = hex_value(s.p[at + 2]);
	return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Once, into `out`, of which `room` bytes are there, and no terminator; what does not fit is left
 * out. Returns how many bytes it became, never more than s.n. `out` may be where s stands. */
size_t percent_decode(struct str s, char *out, size_t room);

#endif
