/*
 * The way to an origin through upstream.proxy: finds that proxy, connects to it, and asks it by
 * CONNECT (RFC 9110 section 9.3.6) for one address after the other that has been judged, or for the
 * name where the admin said so. Called by route.c alone; it judges nothing.
 */
#ifndef STILE_PROXY_SESSION_PARENT_H
#define STILE_PROXY_SESSION_PARENT_H

#include "proxy/net/resolve.h"
#include "proxy/net/stream.h"
#include "proxy/session/worker.h"

struct parent;

struct parent_options {
	/* borrowed; all outlive the parent */
	struct worker *worker;
	struct snapshot *snapshot; /* has an upstream.proxy */
	const struct host *host;
	const struct resolved *judged; /* where to; none: the name is sent */
	/* Called once, from the loop and never from inside parent_start. s: the callee's, in clear,
	 * from here on the bytes are the origin's, of which some may be buffered already; addr: the
	 * one that it leads to, NULL when the name was sent. Or s NULL and why:
	 * REASON_PROXY_UNREACHABLE, _REFUSED, _MALFORMED, _TIMEOUT, REASON_CREDENTIAL_UNAVAILABLE,
	 * REASON_OVERLOADED. */
	void (*done)(void *arg, struct stream *s, const struct ipaddr *addr, const struct err *e);
	void *arg;
	/* plain */
	uint16_t port;
};

/* All of it has limits.dial. -1: failed at once, done is not called. */
int parent_start(const struct parent_options *o, struct parent **ret, struct err *e) ATTR_NODISCARD;
void parent_cancel(struct parent *p); /* done is not called; NULL is accepted */

#endif
