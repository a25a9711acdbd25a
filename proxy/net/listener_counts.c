/*
 * How many connections a listener has over all workers, in total and for each client address. The
 * total is one atomic; the addresses are spread over shards, each with its lock, so that workers
 * seldom meet. IPv6 clients count by their /64: one host has a whole one to choose from.
 */
#include "proxy/net/listener_counts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SHARDS	64
#define BUCKETS 64 /* of one shard */

struct count {
	struct count *next;
	uint64_t key;
	uint64_t n;
	uint8_t family;
};

struct shard {
	pthread_mutex_t lock;
	struct count *buckets[BUCKETS];
};

struct listener_counts {
	/* owned */
	struct shard shards[SHARDS];
	/* plain */
	uint64_t max, max_per_addr;
	uint64_t seed; /* the client may choose its address */
	_Atomic uint64_t total;
	atomic_int refs;
};

struct listener_counts *listener_counts_new(uint64_t max, uint64_t max_per_addr)
{
	struct listener_counts *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	for (size_t i = 0; i < SHARDS; i++)
		pthread_mutex_init(&c->shards[i].lock, NULL);
	c->max = max;
	c->max_per_addr = max_per_addr;
	if (getrandom(&c->seed, sizeof(c->seed), 0) != (ssize_t)sizeof(c->seed))
		c->seed = (uint64_t)(uintptr_t)c;
	atomic_init(&c->total, 0);
	atomic_init(&c->refs, 1);
	return c;
}

struct listener_counts *listener_counts_ref(struct listener_counts *c)
{
	atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
	return c;
}

void listener_counts_unref(struct listener_counts *c)
{
	if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (size_t i = 0; i < SHARDS; i++) {
		for (size_t j = 0; j < BUCKETS; j++)
			while (c->shards[i].buckets[j]) {
				struct count *n = c->shards[i].buckets[j];

				c->shards[i].buckets[j] = n->next;
				free(n);
			}
		pthread_mutex_destroy(&c->shards[i].lock);
	}
	free(c);
}

static uint64_t key_of(const struct ipaddr *a)
{
	uint64_t key = 0;

	memcpy(&key, a->b, a->family == 4 ? 4 : 8);
	return key;
}

static uint64_t hash_of(const struct listener_counts *c, uint64_t key)
{
	uint64_t h = (key ^ c->seed) * 0x9e3779b97f4a7c15ULL;

	h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93ULL;
	return h ^ (h >> 32);
}

static struct count **find(struct shard *s, uint64_t hash, uint64_t key, uint8_t family)
{
	struct count **at = &s->buckets[(hash / SHARDS) % BUCKETS];

	while (*at && ((*at)->key != key || (*at)->family != family))
		at = &(*at)->next;
	return at;
}

/* One more from addr, unless that is over its bound. */
static bool enter_addr(struct listener_counts *c, const struct ipaddr *addr)
{
	uint64_t key = key_of(addr), hash = hash_of(c, key);
	struct shard *s = &c->shards[hash % SHARDS];
	struct count **at;
	bool ok = false;

	pthread_mutex_lock(&s->lock);
	at = find(s, hash, key, addr->family);
	if (!*at && c->max_per_addr > 0) {
		*at = calloc(1, sizeof(**at));
		if (*at) {
			(*at)->key = key;
			(*at)->family = addr->family;
		}
	}
	if (*at && (*at)->n < c->max_per_addr) {
		(*at)->n++;
		ok = true;
	}
	pthread_mutex_unlock(&s->lock);
	return ok;
}

static void leave_addr(struct listener_counts *c, const struct ipaddr *addr)
{
	uint64_t key = key_of(addr), hash = hash_of(c, key);
	struct shard *s = &c->shards[hash % SHARDS];
	struct count **at, *n;

	pthread_mutex_lock(&s->lock);
	at = find(s, hash, key, addr->family);
	n = *at;
	if (n && --n->n == 0) {
		*at = n->next;
		free(n);
	}
	pthread_mutex_unlock(&s->lock);
}

enum reason listener_counts_enter(struct listener_counts *c, const struct listener_peer *peer)
{
	if (atomic_fetch_add_explicit(&c->total, 1, memory_order_relaxed) >= c->max) {
		atomic_fetch_sub_explicit(&c->total, 1, memory_order_relaxed);
		return REASON_OVERLOADED;
	}
	if (peer->addr.family != 0 && !enter_addr(c, &peer->addr)) {
		atomic_fetch_sub_explicit(&c->total, 1, memory_order_relaxed);
		return REASON_RATE_LIMITED;
	}
	return REASON_NONE;
}

void listener_counts_leave(struct listener_counts *c, const struct listener_peer *peer)
{
	if (peer->addr.family != 0)
		leave_addr(c, &peer->addr);
	atomic_fetch_sub_explicit(&c->total, 1, memory_order_relaxed);
}
