/*
 * Which bytes may stand in a JSON string as they are: ASCII but for control characters, DEL, the
 * quote and the backslash. json.c asks it, and pen.h, which looks while it copies.
 */
#ifndef STILE_LOGGING_PLAIN_H
#define STILE_LOGGING_PLAIN_H

#include "logging/bytes16.h"
#include "logging/str.h"

/* Yes where a byte may not. One more than DEL, and what is not ASCII, is below the space as a
 * signed number. */
static ATTR_INLINE bytes16 plain_odd(bytes16 v)
{
	typedef signed char signs __attribute__((vector_size(16)));

	return (bytes16)((signs)(v + 1) < 0x21) | (bytes16)(v == '"') | (bytes16)(v == '\\');
}

/* Whether one of sixteen answers is yes. */
static ATTR_INLINE bool plain_any(bytes16 odd)
{
	typedef uint64_t words __attribute__((vector_size(16)));
	words w = (words)odd;

	return (w[0] | w[1]) != 0;
}

/* Whether all of s may stand as it is. */
static inline bool plain_is(struct str s)
{
	return !bytes16_any(s.p, s.n, plain_odd);
}

#endif
