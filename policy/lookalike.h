/*
 * Which characters beyond ASCII a reader may take for ASCII: servers and file systems fold what
 * they are asked for (NFKC, case, the code pages of Windows), and two dots that are no dots are a
 * parent folder then. Called by url.c, which refuses dot segments in every reading, and pattern.c,
 * for denies.
 */
#ifndef STILE_POLICY_LOOKALIKE_H
#define STILE_POLICY_LOOKALIKE_H

#include <stddef.h>
#include <stdint.h>

#define LOOKALIKE_MAX 3

/* Writes what the code point may be read as, in lower case, never more bytes than it has in UTF-8.
 * Returns how many: 0, it is left out; -1, it is nothing but itself. ASCII is itself, as it is. */
int lookalike(uint32_t cp, char out[static LOOKALIKE_MAX]);

/* How many bytes of UTF-8 begin with that one, and the code point of n (1 to 4) such bytes. Longer
 * forms than the shortest are read too, as a careless reader would. */
size_t lookalike_utf8_size(uint8_t lead);
uint32_t lookalike_utf8(const uint8_t *p, size_t n);

#endif
