/*
 * Placeholders in the head of a request: those of the rule's own credential that stand where they
 * may are taken out, the real value goes in by an injection, and every other one is misuse. Pure.
 */
#ifndef STILE_PROXY_CREDENTIALS_SWAP_H
#define STILE_PROXY_CREDENTIALS_SWAP_H

#include "proxy/credentials/inject.h"
#include "proxy/credentials/placeholder.h"

/* Where placeholders stood. */
struct swap {
	/* owned */
	struct fields
		fields;	    /* of the client's, with one in them; slices of the request's memory */
	struct strbuf keys; /* of the query, as they were spelt, each with `&` behind it */
	/* plain */
	bool path;
	bool dropped; /* a cookie beside one was not taken along */
};

void swap_init(struct swap *s);
void swap_clear(struct swap *s);
/* Does the head hold one, whose ever, in any spelling that is looked for (README.md)? -1:
 * REASON_PLACEHOLDER_MISUSED, and where. Also of a head that could not be read whole. */
int swap_check_none(const struct placeholders *p, const struct request *r,
		    struct err *e) ATTR_NODISCARD;
int swap_check_trailers(const struct placeholders *p, const struct fields *trailers,
			struct err *e) ATTR_NODISCARD;
/* Takes those of c (a credential with a placeholder, the `own`-th) out of the fields and the query,
 * where c lets them stand. -1: REASON_PLACEHOLDER_MISUSED, there is one elsewhere or of another
 * credential. r->url.query shrinks in place: a slice of it that was taken before is stale. */
int swap_take(const struct placeholders *p, const struct config_credential *c, size_t own,
	      enum rule_client client, struct request *r, struct swap *ret,
	      struct err *e) ATTR_NODISCARD;
/* Was there one? */
bool swap_is_any(const struct swap *s);
/* Fills ret with what stands in their places. -1: REASON_CREDENTIAL_UNAVAILABLE, the value cannot
 * stand in one of them. Of ret->path: whoever calls judges it again. */
int swap_put(const struct placeholders *p, const struct config_credential *c, size_t own,
	     const struct request *r, const struct swap *s, const struct secret *value,
	     enum rule_client client, struct injection *ret, struct err *e) ATTR_NODISCARD;

#endif
