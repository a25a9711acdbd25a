/*
 * Which sandbox is calling, and so which policy speaks for it: the one whose token the connection
 * has brought, or else the entrance, which is all that a transparent connection shows. Sandboxes
 * are told apart here and nowhere else.
 */
#ifndef STILE_PROXY_SESSION_IDENTITY_H
#define STILE_PROXY_SESSION_IDENTITY_H

#include "proxy/http/message.h"
#include "proxy/session/exchange.h"
#include "proxy/session/sandboxes.h"

struct identity {
	/* borrowed: the snapshot's, the entrance's, the sandbox's */
	const struct policy *policy; /* NULL: none of that name any more: everything is refused */
	struct str sandbox;	     /* for records */
	struct str key;		     /* what connections to origins are kept under */
};

/* Under s, which may be a later one than that under which c said who it is. */
struct identity identity_of(const struct caller *c, const struct snapshot *s);

/* Who asks with q, at the proxy port itself, on a connection that c speaks of? *ret: a reference;
 * NULL: the entrance. -1: the request is refused, with token_required, token_invalid,
 * token_expired, token_revoked or state_unavailable; *ret may be set all the same, to name who it
 * was in the record. *ret_new: it is a token that nobody has heard of. A connection is one
 * sandbox's for its whole life. `all`: NULL where no entrance takes tokens. */
int identity_claim(const struct caller *c, struct sandboxes *all, const struct request *q,
		   struct sandbox **ret, bool *ret_new, struct err *e) ATTR_NODISCARD;

#endif
