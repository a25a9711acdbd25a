/*
 * One request of stile's own to an endpoint that hands out tokens: resolve, judge, dial, verify,
 * ask, and a bounded answer. No redirect is followed, nothing is tried twice, no connection kept.
 * The broker's loop alone. Not the way of a sandbox's request: that is session/.
 */
#ifndef STILE_PROXY_CREDENTIALS_FETCH_H
#define STILE_PROXY_CREDENTIALS_FETCH_H

#include "certs/trust.h"
#include "policy/config.h"
#include "proxy/credentials/inject.h"
#include "proxy/net/loop.h"

/* By what endpoints are resolved and verified: that of the configuration in force. */
struct fetcher;

int fetcher_new(struct loop *l, struct fetcher **ret, struct err *e) ATTR_NODISCARD;
/* No fetch of it is under way. NULL is accepted. */
void fetcher_free(struct fetcher *f);
/* From here on c's fixed names and servers, and t. Takes references of its own. No fetch is under
 * way. */
int fetcher_use(struct fetcher *f, struct config *c, struct trust *t, struct err *e) ATTR_NODISCARD;

struct fetch_request {
	/* borrowed until fetch_start returns */
	struct str method;
	struct str url; /* https; http to loopback and link-local addresses alone */
	const struct fields *fields;
	struct str body; /* empty: none is sent, but for POST and PUT, whose length is then 0 */
	/* borrowed until the end: addresses that the endpoint may have though they are not public
	 */
	const struct iprange *ranges;
	/* counted: verifies this endpoint instead of the fetcher's. NULL: the fetcher's */
	struct trust *trust;
	/* plain */
	size_t ranges_n;
	uint64_t timeout_ms; /* for the whole */
	size_t most;	     /* bytes of the answer's body; 0: LIMIT_SOURCE_BYTES */
};

/* Borrowed until the callback returns. */
struct fetch_answer {
	unsigned status;
	const struct fields *fields;
	struct str body; /* in memory that is wiped */
};

struct fetch;

/* done is called once, from the loop and never from inside this call: a whole answer of whatever
 * status, or NULL and why, as a client may see it. -1: done is not called. */
int fetch_start(struct fetcher *f, const struct fetch_request *r,
		void (*done)(void *arg, const struct fetch_answer *a, const struct err *why),
		void *arg, struct fetch **ret, struct err *e) ATTR_NODISCARD;
void fetch_cancel(struct fetch *f); /* done is not called. NULL is accepted */

#endif
