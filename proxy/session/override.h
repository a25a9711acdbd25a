/*
 * What a request asks to be taken for. Common servers and frameworks let fields, and keys of the
 * query, replace the method, the path or the host of a request: then the rule was asked about one
 * request and the server acts on another. Called once for each request that a rule admits.
 * Bodies are not looked at, though some frameworks read `_method` from a form: a look that is
 * bounded could be written past, and one that is not would hold the body back until all of it is
 * here.
 */
#ifndef STILE_PROXY_SESSION_OVERRIDE_H
#define STILE_PROXY_SESSION_OVERRIDE_H

#include "policy/policy.h"
#include "proxy/http/message.h"

/*
 * 0: it asks for nothing, or for nothing that is not admitted too (another method, another path),
 * or for the host that it goes to anyway; *d is untouched. -1: refused; *d holds the reason and the
 * rule that denies it, if one does, and e says what was asked for.
 */
int override_check(const struct policy *p, const struct request *r, const struct policy_request *q,
		   struct policy_decision *d, struct err *e) ATTR_NODISCARD;

#endif
