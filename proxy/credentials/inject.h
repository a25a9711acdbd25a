/*
 * Puts a credential into a request that its own rule admitted, and sees to what the client brought
 * in any place that an origin could read as an identity.
 */
#ifndef STILE_PROXY_CREDENTIALS_INJECT_H
#define STILE_PROXY_CREDENTIALS_INJECT_H

#include "policy/rule.h"
#include "proxy/credentials/store.h"
#include "proxy/http/message.h"

struct injection {
	/* owned */
	struct fields extra; /* to be written behind the request's own fields */
	struct strbuf query; /* "key=value", percent-encoded; empty: none */
	struct strbuf path;  /* in place of the request's own; empty: that */
	struct strbuf mem;   /* what extra points into; wiped */
};

void injection_init(struct injection *i);
void injection_clear(struct injection *i); /* wipes */
/* "Basic ..." or "Bearer ...", for a field of the caller's own; what is in out is a secret. -1:
 * REASON_CREDENTIAL_UNAVAILABLE (out may hold a part of it all the same). */
int credential_add_value(const struct config_credential *c, const struct secret *s,
			 struct strbuf *out, struct err *e) ATTR_NODISCARD;
/* What the rule says of an identity of the client's. -1: REASON_CLIENT_CREDENTIAL, it brought one
 * where that is refused (RULE_CLIENT_DENY). c: the credential that will be injected, or NULL. Which
 * fields count: see README.md of this folder. */
int credential_check_client(const struct config_credential *c, enum rule_client client,
			    const struct request *r, struct err *e) ATTR_NODISCARD;
/* Takes it out: all of it with STRIP, else what stands where c goes. Was there any? r->url.query
 * shrinks in place: a slice of it that was taken before is stale. */
bool credential_strip(const struct config_credential *c, enum rule_client client,
		      struct request *r);
/* 0 with *ret filled; -1: REASON_CREDENTIAL_UNAVAILABLE (e.g. the value cannot stand in a field) or
 * memory out. r is not changed: credential_strip has made room. */
int credential_inject(const struct config_credential *c, const struct secret *s,
		      struct injection *ret, struct err *e) ATTR_NODISCARD;

#endif
