/*
 * Reads UTF-8 strictly (Unicode table 3-7: no overlong form, no surrogate, nothing past U+10FFFF)
 * and knows which characters must not reach a terminal or a log as they are. It writes two kinds of
 * escapes for people; those of JSON are json.c's.
 */
#ifndef STILE_LOGGING_UTF8_H
#define STILE_LOGGING_UTF8_H

#include <stdbool.h>
#include <stdint.h>

#include "logging/str.h"

#define UTF8_INVALID	UINT32_MAX
#define UTF8_ESCAPE_MAX 8 /* the longest thing utf8_escape_one writes */

/* The code point at the start of s (s.n > 0) and the bytes it takes; for a byte that starts no
 * valid character UTF8_INVALID and 1. */
size_t utf8_decode(struct str s, uint32_t *ret_cp);
/* Control characters, DEL, C1, bidi controls, U+2028 and U+2029, and UTF8_INVALID. */
bool utf8_is_hazard(uint32_t cp);
/* How many bytes from the start of s are free of hazards. */
size_t utf8_clean(struct str s);

/* Writes the character at the start of s for human eyes: a hazard below U+0080 or an invalid byte
 * as \xNN, any other hazard as \uNNNN, all else as it is. Returns the bytes of s it took. */
size_t utf8_escape_one(struct str s, char out[UTF8_ESCAPE_MAX], size_t *ret_len);
/* The same for all of s into out with a terminator (cap > 0). What does not fit is left out, never
 * in the middle of a character or an escape. The length written. */
size_t utf8_escape(struct str s, char *out, size_t cap);

#endif
