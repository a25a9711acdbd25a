/*
 * See name_map.h. An address is its place in the range: a table by place leads to the name, chains
 * by hash lead from the name, and a list by use says who may be forgotten. Called by the stub DNS
 * (session/stub_dns.c) and by transparent connections, of any worker.
 */
#include "proxy/net/name_map.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>

#include "logging/limits.h"

#define PLACES 131072u /* of 198.18.0.0/15; the first and the last are no host's */
#define CHAINS 8192u   /* a power of two */

struct name {
	TAILQ_ENTRY(name) by_use;
	struct name *next; /* of its chain */
	/* plain */
	int64_t until_us; /* not forgotten before */
	uint64_t hash;
	uint32_t place;
	bool is_kept;
	uint8_t len;
	char text[]; /* terminated */
};

TAILQ_HEAD(names, name);

struct name_map {
	/* owned */
	pthread_mutex_t lock;
	struct name **places; /* PLACES; only what is in use is ever touched */
	struct name *chains[CHAINS];
	struct names names; /* those that may be forgotten, most lately used first */
	struct names kept;
	/* plain */
	size_t n, kept_n;
	uint64_t seed;
	uint32_t next_place;
	unsigned refs; /* atomic */
};

static const uint8_t v4_base[2] = {198, 18};
static const uint8_t v6_base[12] = {0xfd, 0x73, 0x74, 0x69, 0x6c, 0x65};

int name_map_new(struct name_map **ret, struct err *e)
{
	struct name_map *m = calloc(1, sizeof(*m));

	if (m)
		m->places = calloc(PLACES, sizeof(struct name *));
	if (!m || !m->places || pthread_mutex_init(&m->lock, NULL) != 0) {
		free(m ? m->places : NULL);
		free(m);
		return err_set(e, "out of memory");
	}
	TAILQ_INIT(&m->names);
	TAILQ_INIT(&m->kept);
	if (getrandom(&m->seed, sizeof(m->seed), 0) != (ssize_t)sizeof(m->seed))
		m->seed = (uint64_t)(uintptr_t)m;
	m->next_place = 1;
	m->refs = 1;
	*ret = m;
	return 0;
}

struct name_map *name_map_ref(struct name_map *m)
{
	__atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED);
	return m;
}

static void free_all(struct names *list)
{
	struct name *n;

	while ((n = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, n, by_use);
		free(n);
	}
}

void name_map_unref(struct name_map *m)
{
	if (!m || __atomic_sub_fetch(&m->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	free_all(&m->names);
	free_all(&m->kept);
	pthread_mutex_destroy(&m->lock);
	free(m->places);
	free(m);
}

/* ---- addresses and places ---- */

static void addresses_of(uint32_t place, struct ipaddr *v4, struct ipaddr *v6)
{
	*v4 = (struct ipaddr){
		.family = 4,
		.b = {v4_base[0], (uint8_t)(v4_base[1] + (place >> 16)), (uint8_t)(place >> 8),
		      (uint8_t)place},
	};
	*v6 = (struct ipaddr){.family = 6};
	memcpy(v6->b, v6_base, sizeof(v6_base));
	memcpy(v6->b + sizeof(v6_base), v4->b, 4);
}

static bool is_v4(const uint8_t b[4])
{
	return b[0] == v4_base[0] && (b[1] & 0xfe) == v4_base[1];
}

/* 0: not an address that a name may have. */
static uint32_t place_of(const struct ipaddr *a)
{
	const uint8_t *b = a->b;

	if (a->family == 6) {
		if (memcmp(b, v6_base, sizeof(v6_base)) != 0)
			return 0;
		b += sizeof(v6_base);
	} else if (a->family != 4) {
		return 0;
	}
	if (!is_v4(b))
		return 0;
	return (uint32_t)(b[1] & 1) << 16 | (uint32_t)b[2] << 8 | b[3];
}

bool name_map_is_made_up(const struct ipaddr *a)
{
	return a->family == 4 ? is_v4(a->b) : a->family == 6 && memcmp(a->b, v6_base, 8) == 0;
}

/* ---- names ---- */

/* Seeded, so that nobody can make up names that share a chain. The addresses do not depend on it.
 */
static uint64_t hash_of(const struct name_map *m, const struct host *h)
{
	return str_hash(m->seed, host_str(h));
}

static struct name *find_name(struct name_map *m, const struct host *h, uint64_t hash)
{
	struct name *n = m->chains[hash & (CHAINS - 1)];

	while (n && (n->hash != hash || n->len != h->len || memcmp(n->text, h->text, n->len) != 0))
		n = n->next;
	return n;
}

static void forget(struct name_map *m, struct name *n)
{
	struct name **at = &m->chains[n->hash & (CHAINS - 1)];

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	TAILQ_REMOVE(&m->names, n, by_use);
	m->places[n->place] = NULL;
	m->n--;
	free(n);
}

/* Round and round, so that an address comes back to another name as late as can be. There is always
 * a free one, as there are far more places than names. */
static uint32_t next_place(struct name_map *m)
{
	uint32_t place;

	do {
		place = m->next_place;
		m->next_place = place + 2 < PLACES ? place + 1 : 1;
	} while (m->places[place]);
	return place;
}

/* Whoever may make names up takes all there are: those of the rules themselves have some left. */
static int make_room(struct name_map *m, bool is_spelt, int64_t now_us, struct err *e)
{
	size_t most = is_spelt ? LIMIT_NAMES : LIMIT_NAMES - LIMIT_NAMES_SPELT;
	struct name *oldest = TAILQ_LAST(&m->names, names), *newer;

	for (; m->n >= most; oldest = newer) {
		if (!oldest || oldest->until_us > now_us)
			return err_reason(e, REASON_OVERLOADED, "%zu names are in use", most);
		newer = TAILQ_PREV(oldest, names, by_use);
		forget(m, oldest);
	}
	return 0;
}

static struct name *add_name(struct name_map *m, const struct host *h, uint64_t hash)
{
	struct name *n = calloc(1, sizeof(*n) + h->len + 1u);
	struct name **chain = &m->chains[hash & (CHAINS - 1)];

	if (!n)
		return NULL;
	memcpy(n->text, h->text, h->len);
	n->len = h->len;
	n->hash = hash;
	n->next = *chain;
	*chain = n;
	n->place = next_place(m);
	m->places[n->place] = n;
	TAILQ_INSERT_HEAD(&m->names, n, by_use);
	m->n++;
	return n;
}

static void use(struct name_map *m, struct name *n)
{
	if (n->is_kept)
		return;
	TAILQ_REMOVE(&m->names, n, by_use);
	TAILQ_INSERT_HEAD(&m->names, n, by_use);
}

/* Under the lock. */
static struct name *find_or_add(struct name_map *m, const struct host *h, bool is_spelt,
				int64_t now_us, struct err *e)
{
	uint64_t hash = hash_of(m, h);
	struct name *n = find_name(m, h, hash);

	if (n) {
		use(m, n);
		return n;
	}
	if (make_room(m, is_spelt, now_us, e) != 0)
		return NULL;
	n = add_name(m, h, hash);
	if (!n)
		err_reason(e, REASON_OVERLOADED, "out of memory");
	return n;
}

int name_map_give(struct name_map *m, const struct host *host, bool is_spelt, int64_t now_us,
		  struct ipaddr *ret_v4, struct ipaddr *ret_v6, struct err *e)
{
	struct name *n;

	if (host->kind != HOST_NAME)
		return err_reason(e, REASON_INTERNAL_ERROR, "an address has no name");
	pthread_mutex_lock(&m->lock);
	n = find_or_add(m, host, is_spelt, now_us, e);
	if (n) {
		n->until_us = now_us + (int64_t)LIMIT_NAME_TTL_SECS * 1000000;
		addresses_of(n->place, ret_v4, ret_v6);
	}
	pthread_mutex_unlock(&m->lock);
	return n ? 0 : -1;
}

int name_map_keep(struct name_map *m, const struct host *host, struct ipaddr *ret_v4,
		  struct ipaddr *ret_v6, struct err *e)
{
	struct name *n = NULL;

	if (host->kind != HOST_NAME)
		return err_reason(e, REASON_INTERNAL_ERROR, "an address has no name");
	pthread_mutex_lock(&m->lock);
	n = find_or_add(m, host, true, 0, e);
	if (n && !n->is_kept) {
		if (m->kept_n == LIMIT_NAMES_KEPT) {
			n = NULL;
			err_reason(e, REASON_OVERLOADED, "%d names are kept", LIMIT_NAMES_KEPT);
		} else {
			n->is_kept = true;
			TAILQ_REMOVE(&m->names, n, by_use);
			TAILQ_INSERT_HEAD(&m->kept, n, by_use);
			m->kept_n++;
		}
	}
	if (n)
		addresses_of(n->place, ret_v4, ret_v6);
	pthread_mutex_unlock(&m->lock);
	return n ? 0 : -1;
}

int name_map_find(struct name_map *m, const struct ipaddr *a, struct host *ret)
{
	uint32_t place = place_of(a);
	struct name *n;

	if (place == 0)
		return -1;
	pthread_mutex_lock(&m->lock);
	n = m->places[place];
	if (n) {
		*ret = (struct host){.kind = HOST_NAME, .len = n->len};
		memcpy(ret->text, n->text, n->len);
		use(m, n);
	}
	pthread_mutex_unlock(&m->lock);
	return n ? 0 : -1;
}
