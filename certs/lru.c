/*
 * The table is an array of chains, the order of use a ring with a sentinel. The number of buckets
 * is fixed at birth. The hash is seeded at random, because a sandbox chooses the names; and even a
 * perfect collision walks no more than the bound.
 */
#include "certs/lru.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/rand.h>

struct entry {
	/* owned */
	void *value;
	/* borrowed (the table's) */
	struct entry *chain;
	struct entry *newer, *older;
	/* plain */
	uint64_t hash;
	size_t key_len;
	unsigned char *key; /* behind the struct, in the same allocation */
};

struct lru {
	/* owned */
	struct entry **buckets;
	/* plain */
	struct entry ring; /* ring.older is the newest, ring.newer the oldest */
	void (*value_free)(void *value);
	uint64_t seed;
	size_t mask;
	size_t count, max;
};

int lru_new(size_t max, void (*value_free)(void *value), struct lru **ret, struct err *e)
{
	struct lru *l = calloc(1, sizeof(*l));
	size_t buckets = 1;

	if (!l)
		return err_set(e, "out of memory");
	l->max = max ? max : 1;
	while (buckets < l->max && buckets < SIZE_MAX / 2 / sizeof(struct entry *))
		buckets *= 2;
	l->buckets = calloc(buckets, sizeof(struct entry *));
	if (!l->buckets || RAND_bytes((unsigned char *)&l->seed, sizeof(l->seed)) != 1) {
		lru_free(l);
		return err_set(e, "out of memory");
	}
	l->mask = buckets - 1;
	l->value_free = value_free;
	l->ring.newer = l->ring.older = &l->ring;
	*ret = l;
	return 0;
}

void lru_free(struct lru *l)
{
	struct entry *n, *next;

	if (!l)
		return;
	for (n = l->ring.older; n && n != &l->ring; n = next) {
		next = n->older;
		l->value_free(n->value);
		free(n);
	}
	free(l->buckets);
	free(l);
}

/* FNV-1a over the seed and the key. */
static uint64_t hash_of(const struct lru *l, const unsigned char *key, size_t key_len)
{
	uint64_t h = 14695981039346656037ULL ^ l->seed;

	for (size_t i = 0; i < key_len; i++)
		h = (h ^ key[i]) * 1099511628211ULL;
	return h ^ (h >> 32);
}

/* Where the chain points to the entry, or to NULL. */
static struct entry **find(struct lru *l, uint64_t hash, const void *key, size_t key_len)
{
	struct entry **at = &l->buckets[hash & l->mask];

	while (*at && ((*at)->hash != hash || (*at)->key_len != key_len ||
		       (key_len && memcmp((*at)->key, key, key_len) != 0)))
		at = &(*at)->chain;
	return at;
}

static void ring_out(struct entry *n)
{
	n->newer->older = n->older;
	n->older->newer = n->newer;
}

static void ring_in_newest(struct lru *l, struct entry *n)
{
	n->newer = &l->ring;
	n->older = l->ring.older;
	n->older->newer = n;
	l->ring.older = n;
}

/* Unlinks the entry at *at, frees it and hands out its value. */
static void *cut(struct lru *l, struct entry **at)
{
	struct entry *n = *at;
	void *value = n->value;

	*at = n->chain;
	ring_out(n);
	free(n);
	l->count--;
	return value;
}

void *lru_get(struct lru *l, const void *key, size_t key_len)
{
	struct entry *n = *find(l, hash_of(l, key, key_len), key, key_len);

	if (!n)
		return NULL;
	ring_out(n);
	ring_in_newest(l, n);
	return n->value;
}

int lru_put(struct lru *l, const void *key, size_t key_len, void *value)
{
	uint64_t hash = hash_of(l, key, key_len);
	struct entry **at = find(l, hash, key, key_len);
	struct entry *n = *at;

	if (n) {
		l->value_free(n->value);
		n->value = value;
		ring_out(n);
		ring_in_newest(l, n);
		return 0;
	}
	n = malloc(sizeof(*n) + key_len);
	if (!n)
		return -1;
	if (l->count >= l->max) {
		struct entry *old = l->ring.newer;

		l->value_free(cut(l, find(l, old->hash, old->key, old->key_len)));
	}
	n->value = value;
	n->hash = hash;
	n->key = (unsigned char *)(n + 1);
	n->key_len = key_len;
	if (key_len)
		memcpy(n->key, key, key_len);
	n->chain = l->buckets[hash & l->mask];
	l->buckets[hash & l->mask] = n;
	ring_in_newest(l, n);
	l->count++;
	return 0;
}

void *lru_take(struct lru *l, const void *key, size_t key_len)
{
	struct entry **at = find(l, hash_of(l, key, key_len), key, key_len);

	return *at ? cut(l, at) : NULL;
}

size_t lru_count(const struct lru *l)
{
	return l->count;
}
