/*
 * What DNS answered, one entry a name with a slot for A and one for AAAA, each with its own time to
 * live. Bounded; the name that was asked for longest ago makes room.
 */
#ifndef STILE_PROXY_NET_DNS_CACHE_H
#define STILE_PROXY_NET_DNS_CACHE_H

#include "proxy/net/dns_channel.h"

struct dns_cache;

int dns_cache_new(size_t max, struct dns_cache **ret, struct err *e) ATTR_NODISCARD;
void dns_cache_free(struct dns_cache *c); /* NULL is accepted */
void dns_cache_empty(struct dns_cache *c);

/* False when nothing is kept or its time is over. Kept are: addresses, as long as the TTL says and
 * LIMIT_DNS_TTL_SECS at most; "no such name" and "no address", a few seconds; a failure, a few
 * seconds too, but it is no answer: it only says that waiting for this family is in vain when the
 * other one has addresses. */
bool dns_cache_get(struct dns_cache *c, struct str name, enum dns_family f, int64_t now_us,
		   struct dns_answer *ret);
void dns_cache_put(struct dns_cache *c, struct str name, enum dns_family f, int64_t now_us,
		   const struct dns_answer *a);

#endif
