/*
 * A bounded table from a key of bytes to a value, in which the entry that was touched longest ago
 * makes room for a new one. It has no lock: leaf_cache and session_cache each put their own around
 * it.
 */
#ifndef STILE_CERTS_LRU_H
#define STILE_CERTS_LRU_H

#include <stddef.h>

#include "logging/err.h"

struct lru;

/* At most max values (0 counts as 1); value_free is called for each that leaves. */
int lru_new(size_t max, void (*value_free)(void *value), struct lru **ret,
	    struct err *e) ATTR_NODISCARD;
void lru_free(struct lru *l); /* frees the values as well; NULL is accepted */

/* Borrowed until the next change; NULL if there is none. Counts as a touch. */
void *lru_get(struct lru *l, const void *key, size_t key_len);
/* Takes the value over, in place of one that had the same key. -1 when memory is out: then the
 * value is still the caller's. */
int lru_put(struct lru *l, const void *key, size_t key_len, void *value) ATTR_NODISCARD;
/* Takes the value out without freeing it: it is the caller's. NULL if there was none. */
void *lru_take(struct lru *l, const void *key, size_t key_len);
size_t lru_count(const struct lru *l);

#endif
