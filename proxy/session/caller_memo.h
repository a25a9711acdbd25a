/*
 * What stays the same from request to request of one connection, and was worked out for its first:
 * who calls, and under which key connections to the origin are kept. It decides nothing: each
 * request is still asked of the policy, and what is kept here is looked up by all that it was made
 * of.
 */
#ifndef STILE_PROXY_SESSION_CALLER_MEMO_H
#define STILE_PROXY_SESSION_CALLER_MEMO_H

#include "policy/rule.h"
#include "policy/url.h"
#include "proxy/net/pool.h"
#include "proxy/session/identity.h"

/* identity_of, remembered where there is memory for that. */
struct identity caller_identity(struct caller *c, const struct snapshot *s);
/* Everything under which a connection for u is judged: another sandbox, policy or rule finds
 * nothing there, so no identity and no address judgement is ever shared. A reference, or NULL when
 * memory is out. cert: what the origin is shown, or NULL. c's identity is that of
 * caller_identity(c, s), and has a policy. */
struct pool_key *caller_pool_key(struct caller *c, const struct snapshot *s, const struct pool *p,
				 const struct url *u, const struct rule *rule,
				 const struct client_cert *cert);
void caller_memo_free(struct caller_memo *m); /* NULL is accepted */

#endif
