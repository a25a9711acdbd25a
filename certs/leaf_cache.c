/*
 * An lru of leaves with a lock around it. Threads that miss the same host at the same moment sign
 * it once each, at most as many as there are workers; the first to come back wins. Waiting for one
 * another would cost as much as the signature does.
 */
#include "certs/leaf_cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "certs/lru.h"

struct leaf_cache {
	/* owned */
	struct lru *lru;
	/* plain */
	pthread_mutex_t lock;
};

static void on_evict(void *value)
{
	leaf_unref(value);
}

int leaf_cache_new(size_t max, struct leaf_cache **ret, struct err *e)
{
	struct leaf_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return err_set(e, "out of memory");
	if (lru_new(max, on_evict, &c->lru, e) != 0) {
		free(c);
		return -1;
	}
	pthread_mutex_init(&c->lock, NULL);
	*ret = c;
	return 0;
}

void leaf_cache_free(struct leaf_cache *c)
{
	if (!c)
		return;
	lru_free(c->lru);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static struct leaf *get_usable(struct leaf_cache *c, const struct leaf_key *k, time_t now)
{
	struct leaf *l = lru_get(c->lru, k->bytes, k->len);

	if (!l || now < l->usable_from || now >= l->renew_at)
		return NULL;
	return leaf_ref(l);
}

struct leaf *leaf_cache_get(struct leaf_cache *c, const struct leaf_key *k, time_t now)
{
	struct leaf *l;

	pthread_mutex_lock(&c->lock);
	l = get_usable(c, k, now);
	pthread_mutex_unlock(&c->lock);
	return l;
}

struct leaf *leaf_cache_put(struct leaf_cache *c, const struct leaf_key *k, struct leaf *made,
			    time_t now)
{
	struct leaf *use;

	pthread_mutex_lock(&c->lock);
	use = get_usable(c, k, now);
	/* Out of memory: not kept, but served all the same. */
	if (!use && lru_put(c->lru, k->bytes, k->len, leaf_ref(made)) != 0)
		leaf_unref(made);
	pthread_mutex_unlock(&c->lock);
	if (!use)
		return made;
	leaf_unref(made);
	return use;
}

size_t leaf_cache_count(struct leaf_cache *c)
{
	size_t n;

	pthread_mutex_lock(&c->lock);
	n = lru_count(c->lru);
	pthread_mutex_unlock(&c->lock);
	return n;
}
