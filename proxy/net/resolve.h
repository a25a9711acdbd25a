/*
 * Name to addresses with c-ares on the worker's loop: fixed names first, then the hosts file, then
 * DNS; A and AAAA side by side; search domains never; TCP when truncated; a bounded cache that
 * keeps to the TTL. It answers what it finds and judges nothing (policy_check_addr does).
 */
#ifndef STILE_PROXY_NET_RESOLVE_H
#define STILE_PROXY_NET_RESOLVE_H

#include "logging/limits.h"
#include "policy/config.h"
#include "proxy/net/loop.h"

struct resolver; /* one a worker */
struct resolve;	 /* a question under way */

struct resolved {
	struct ipaddr addrs[LIMIT_DNS_ADDRESSES]; /* in the order to be tried: families interleaved,
						     RFC 8305 section 4 */
	size_t n;
	bool from_cache;
};

/* Fixed names and servers come from c (NULL: none); a reload makes a new resolver. */
int resolver_new(struct loop *l, const struct config *c, struct resolver **ret,
		 struct err *e) ATTR_NODISCARD;
/* Questions still open are answered with a failure first. */
void resolver_free(struct resolver *r);

enum resolve_status { RESOLVE_DONE, RESOLVE_PENDING, RESOLVE_FAILED };

/* A literal, a fixed name or a cached one is RESOLVE_DONE at once with *ret filled. RESOLVE_FAILED:
 * e has REASON_DNS_FAILED or the like. RESOLVE_PENDING: *ret_question is valid until done is called
 * (from the loop, never from inside this call) or resolve_cancel. done's `found` is NULL on
 * failure, with REASON_DNS_FAILED (no such name, no address, SERVFAIL: the text says which) or
 * REASON_DNS_TIMEOUT. */
enum resolve_status
resolve_start(struct resolver *r, const struct host *host, uint64_t timeout_ms,
	      void (*done)(void *arg, const struct resolved *found, const struct err *e), void *arg,
	      struct resolved *ret, struct resolve **ret_question, struct err *e);
void resolve_cancel(struct resolve *q);

#endif
