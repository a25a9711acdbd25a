/*
 * One request of a client's that is signed on its way out: what of it may be signed, what stands
 * for its body, and the signature over what is sent in the end. The body is in no signature unless
 * its hash is known before the head leaves: then it was declared and is checked as it goes by, or
 * the body is held until it is whole.
 */
#ifndef STILE_PROXY_CREDENTIALS_SIGNING_H
#define STILE_PROXY_CREDENTIALS_SIGNING_H

#include "policy/config.h"
#include "proxy/credentials/inject.h"
#include "proxy/credentials/sigv4.h"

struct signing;

/* Takes a reference to s. r: as the client sent it, nothing taken out yet; c (of
 * CREDENTIAL_AS_SIGV4) outlives it. -1: REASON_UNSIGNABLE, REASON_BODY_TOO_LARGE or
 * REASON_CREDENTIAL_UNAVAILABLE, with what to do. */
int signing_new(const struct config_credential *c, struct secret *s, const struct request *r,
		struct signing **ret, struct err *e) ATTR_NODISCARD;
void signing_free(struct signing *g); /* NULL is accepted */

/* Must the body be given to signing_hold, whole, before signing_sign? */
bool signing_holds_body(const struct signing *g);
/* -1: REASON_BODY_TOO_LARGE. */
int signing_hold(struct signing *g, struct str data, struct err *e) ATTR_NODISCARD;
int signing_hold_end(struct signing *g, struct err *e) ATTR_NODISCARD;
struct str signing_held(const struct signing *g);

/* The body's next bytes, about to be sent: `last` when none follow. -1: REASON_MALFORMED_REQUEST,
 * they are not what was declared, and must not be sent. Where nothing was declared, always 0. */
int signing_check(struct signing *g, struct str data, bool last, struct err *e) ATTR_NODISCARD;

/* Fills *ret for r as it is now, and as it is going to be written. May be called again, for another
 * attempt. */
int signing_sign(struct signing *g, struct sigv4 *s, const struct request *r, time_t now,
		 struct injection *ret, struct err *e) ATTR_NODISCARD;

#endif
