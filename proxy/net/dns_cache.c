/*
 * Times to live and memory of DNS answers; the table itself is lru.c's. It asks nobody and knows
 * no clock but the caller's. Used by resolve.c alone.
 */
#include "proxy/net/dns_cache.h"

#include <stdlib.h>
#include <string.h>

#include "certs/lru.h"
#include "logging/limits.h"

#define NEGATIVE_SECS 5

struct slot {
	/* owned */
	struct ipaddr *addrs; /* as many as there are: most names have one or two */
	/* plain */
	size_t n;
	enum dns_status status;
	int64_t expires_us; /* 0: empty */
};

struct entry {
	struct slot slots[DNS_FAMILIES];
};

struct dns_cache {
	/* owned */
	struct lru *names;
	/* plain */
	size_t max;
	bool is_stale; /* to be emptied before it is read */
};

static void slot_clear(struct slot *s)
{
	free(s->addrs);
	*s = (struct slot){0};
}

static void entry_free(void *value)
{
	struct entry *n = value;

	for (size_t f = 0; f < DNS_FAMILIES; f++)
		slot_clear(&n->slots[f]);
	free(n);
}

int dns_cache_new(size_t max, struct dns_cache **ret, struct err *e)
{
	struct dns_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return err_set(e, "out of memory");
	if (lru_new(max, entry_free, &c->names, e) < 0) {
		free(c);
		return -1;
	}
	c->max = max;
	*ret = c;
	return 0;
}

void dns_cache_free(struct dns_cache *c)
{
	if (!c)
		return;
	lru_free(c->names);
	free(c);
}

void dns_cache_empty(struct dns_cache *c)
{
	struct lru *fresh;

	if (lru_new(c->max, entry_free, &fresh, NULL) < 0) {
		c->is_stale = true; /* no memory: rather nothing is found than what is outdated */
		return;
	}
	lru_free(c->names);
	c->names = fresh;
	c->is_stale = false;
}

bool dns_cache_get(struct dns_cache *c, struct str name, enum dns_family f, int64_t now_us,
		   struct dns_answer *ret)
{
	struct entry *n;

	if (c->is_stale)
		dns_cache_empty(c);
	n = c->is_stale ? NULL : lru_get(c->names, name.p, name.n);
	if (!n || now_us >= n->slots[f].expires_us)
		return false;
	ret->status = n->slots[f].status;
	ret->n = n->slots[f].n;
	if (ret->n > 0)
		memcpy(ret->addrs, n->slots[f].addrs, ret->n * sizeof(*ret->addrs));
	ret->ttl_secs = 0;
	return true;
}

static uint32_t keep_secs(const struct dns_answer *a)
{
	if (a->status != DNS_FOUND)
		return NEGATIVE_SECS;
	return a->ttl_secs > LIMIT_DNS_TTL_SECS ? LIMIT_DNS_TTL_SECS : a->ttl_secs;
}

void dns_cache_put(struct dns_cache *c, struct str name, enum dns_family f, int64_t now_us,
		   const struct dns_answer *a)
{
	struct entry *n = lru_get(c->names, name.p, name.n);
	uint32_t secs = keep_secs(a);
	struct slot s = {.n = a->n, .status = a->status};

	if (n)
		slot_clear(&n->slots[f]);
	if (secs == 0)
		return;
	s.expires_us = now_us + (int64_t)secs * 1000000;
	if (!n) {
		n = calloc(1, sizeof(*n));
		if (!n)
			return;
		if (lru_put(c->names, name.p, name.n, n) < 0) {
			free(n);
			return;
		}
	}
	if (s.n > 0) {
		s.addrs = malloc(s.n * sizeof(*s.addrs));
		if (!s.addrs)
			return;
		memcpy(s.addrs, a->addrs, s.n * sizeof(*s.addrs));
	}
	n->slots[f] = s;
}
