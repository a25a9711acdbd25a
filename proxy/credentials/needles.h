/*
 * Many texts looked for at once, each of them long and random: the placeholders of a configuration
 * in a head or in a stream. Pure; immutable once made, so threads share one.
 */
#ifndef STILE_PROXY_CREDENTIALS_NEEDLES_H
#define STILE_PROXY_CREDENTIALS_NEEDLES_H

#include "logging/attrs.h"
#include "logging/limits.h"
#include "logging/str.h"

#define NEEDLE_LEAST 8

struct needles;

/* n of them (n > 0), each of NEEDLE_LEAST to LIMIT_PLACEHOLDER_BYTES bytes; copied. NULL: memory is
 * out, or one is of another length. */
struct needles *needles_new(const struct str *v, size_t n);
void needles_free(struct needles *s); /* NULL is accepted */
struct str needles_text(const struct needles *s, size_t which);
/* Where the first one begins, and which it is; -1: there is none. */
ptrdiff_t needles_find(const struct needles *s, struct str in, size_t *ret_which);
/* How many bytes at the end of `in` may be the beginning of one that does not end there: 0 to
 * LIMIT_PLACEHOLDER_BYTES - 1. */
size_t needles_tail(const struct needles *s, struct str in);
size_t needles_longest(const struct needles *s);

#endif
