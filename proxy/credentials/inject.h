/*
 * Puts a credential into a request that its own rule admitted, and takes out what the client
 * brought in any place that an origin could read as an identity.
 */
#ifndef STILE_PROXY_CREDENTIALS_INJECT_H
#define STILE_PROXY_CREDENTIALS_INJECT_H

#include "proxy/credentials/store.h"
#include "proxy/http/message.h"

struct injection {
	/* owned */
	struct fields extra; /* to be written behind the request's own fields */
	struct strbuf query; /* "key=value", percent-encoded; empty: none */
	struct strbuf mem;   /* what extra points into; wiped */
	/* plain */
	bool stripped; /* the client had brought something */
};

void injection_init(struct injection *i);
void injection_clear(struct injection *i); /* wipes */
/* "Basic ..." or "Bearer ...", for a field of the caller's own; what is in out is a secret. -1:
 * REASON_CREDENTIAL_UNAVAILABLE (out may hold a part of it all the same). */
int credential_add_value(const struct config_credential *c, const struct secret *s,
			 struct strbuf *out, struct err *e) ATTR_NODISCARD;
/* 0 with *ret filled and r's own identity fields and query keys removed; -1:
 * REASON_CREDENTIAL_UNAVAILABLE (e.g. the value cannot stand in a field) or memory out. Which
 * fields count: see README.md of this folder. r->url.query shrinks in place: a slice of it that was
 * taken before is stale. On -1 r is as it was. */
int credential_inject(const struct config_credential *c, const struct secret *s, struct request *r,
		      struct injection *ret, struct err *e) ATTR_NODISCARD;

#endif
