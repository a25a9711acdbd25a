/*
 * Fields by which an object store copies what lies elsewhere into what the request names. With a
 * credential of ours it may read more than the rules admit, so what is read has to be admitted too.
 */
#ifndef STILE_PROXY_SESSION_COPY_SOURCE_H
#define STILE_PROXY_SESSION_COPY_SOURCE_H

#include "policy/policy.h"
#include "proxy/http/message.h"

/* d: what admits r, by a rule with a credential. -1: a field of r names a source whose GET no rule
 * with the same credential admits, or one that cannot be told. Then *d is a denial, and e says so.
 */
int copy_source_check(const struct policy *p, const struct request *r, struct policy_decision *d,
		      struct err *e) ATTR_NODISCARD;

#endif
