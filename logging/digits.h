/*
 * A number as decimal text, into room that the caller has. Two digits at a time, and straight to
 * where they belong: a record has some ten numbers. strbuf.c and pen.h call it.
 */
#ifndef STILE_LOGGING_DIGITS_H
#define STILE_LOGGING_DIGITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "logging/attrs.h"

#define DIGITS_MAX 20 /* of a 64-bit number */

/* "000102...99" (strbuf.c). */
extern const char digits_pairs[201];

/* n < 100 as exactly two digits. */
static ATTR_INLINE void digits_put_pair(char *out, unsigned n)
{
	memcpy(out, digits_pairs + 2 * (size_t)n, 2);
}

/* n >= 100. */
size_t digits_put_long(char *out, uint64_t n);

/* Without leading zeros; how many there are. At most DIGITS_MAX are written, and no terminator. */
static ATTR_INLINE size_t digits_put(char *out, uint64_t n)
{
	if (n >= 100)
		return digits_put_long(out, n);
	if (n >= 10) {
		digits_put_pair(out, (unsigned)n);
		return 2;
	}
	*out = (char)('0' + n);
	return 1;
}

#endif
