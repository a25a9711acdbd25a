/*
 * The leaves of a signer by host: bounded, the least recently used goes first, one lock that is
 * held for a look-up only and never while signing.
 */
#ifndef STILE_CERTS_LEAF_CACHE_H
#define STILE_CERTS_LEAF_CACHE_H

#include "certs/leaf.h"

struct leaf_cache;

int leaf_cache_new(size_t max, struct leaf_cache **ret, struct err *e) ATTR_NODISCARD;
void leaf_cache_free(struct leaf_cache *c); /* NULL is accepted */

/* A reference for the caller, or NULL: none, one that is due to be made anew, or one from the
 * future (the clock was set back). */
struct leaf *leaf_cache_get(struct leaf_cache *c, const struct leaf_key *k, time_t now);
/* Takes one reference of `made` over and returns one of the leaf to use: another thread's, if that
 * was faster, so that all connections of a host carry the same certificate. */
struct leaf *leaf_cache_put(struct leaf_cache *c, const struct leaf_key *k, struct leaf *made,
			    time_t now);
size_t leaf_cache_count(struct leaf_cache *c);

#endif
