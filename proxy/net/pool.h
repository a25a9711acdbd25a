/*
 * Idle upstream connections, kept for reuse by key. The key holds everything that must agree:
 * scheme, host, port, policy and its version, rule, sandbox, and the client certificate that the
 * connection stands for. A kept connection that the origin closes, or on which it speaks unasked,
 * is dropped at once.
 */
#ifndef STILE_PROXY_NET_POOL_H
#define STILE_PROXY_NET_POOL_H

#include "logging/str.h"
#include "policy/ipaddr.h"
#include "proxy/net/stream.h"

struct pool; /* one a worker */

/* What a kept connection is found by: bytes, with their hash. Counted, so that a client that asks
 * for the same again and again (most do) has it made once; of one worker, as its pool is. */
struct pool_key {
	unsigned refs;
	uint64_t hash; /* keyed by the pool, so that nobody can choose names that collide */
	size_t n;
	char text[]; /* terminated */
};
/* NULL: memory is out. It may outlive the pool. */
struct pool_key *pool_key_new(const struct pool *p, struct str text);
struct pool_key *pool_key_ref(struct pool_key *k);
void pool_key_unref(struct pool_key *k); /* NULL is accepted */
bool pool_key_eq(const struct pool_key *a, const struct pool_key *b);

/* At most max connections, max_per_key of them of one key, each for at most idle_ms. */
int pool_new(struct loop *l, size_t max, size_t max_per_key, uint64_t idle_ms, struct pool **ret,
	     struct err *e) ATTR_NODISCARD;
void pool_free(struct pool *p); /* closes all */
/* Keeps s (taken over, always) with a reference to key: over a bound the oldest goes. addr:port is
 * where it leads. It is handed out for idle_ms at most; 0: for as long as any. */
void pool_put(struct pool *p, struct pool_key *key, struct stream *s, const struct ipaddr *addr,
	      uint16_t port, uint64_t idle_ms);
/* The freshest for key, or NULL; the caller owns it and sets itself as its owner. */
struct stream *pool_take(struct pool *p, const struct pool_key *key, struct ipaddr *ret_addr,
			 uint16_t *ret_port);
void pool_close_all(struct pool *p);
size_t pool_size(const struct pool *p);

#endif
