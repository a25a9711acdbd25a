/*
 * JSON Web Tokens (RFC 7519) in their compact form: signed with a private key, and the payload of
 * one that somebody else made. Nothing is verified here: whoever is sent a token does that.
 */
#ifndef STILE_PROXY_CREDENTIALS_JWT_H
#define STILE_PROXY_CREDENTIALS_JWT_H

#include <jansson.h>

#include "proxy/credentials/store.h"

struct jwt_key; /* counted, immutable; many threads may sign with one */

/* A private key in PEM (PKCS #8 or the older forms, not encrypted): RSA of 2048 to 8192 bits for
 * RS256 and PS256, P-256 for ES256, Ed25519 for EdDSA (RFC 7518 sections 3.3 to 3.5, RFC 8037).
 * algorithm NULL: the kind's own, RS256 for RSA. -1: REASON_CREDENTIAL_UNAVAILABLE and what is
 * wrong, never with a byte of it. */
int jwt_key_new(struct str pem, const char *algorithm, struct jwt_key **ret,
		struct err *e) ATTR_NODISCARD;
struct jwt_key *jwt_key_ref(struct jwt_key *k);
void jwt_key_unref(struct jwt_key *k); /* NULL is accepted */

/* Signs claims, the text of a JSON object. kid: NULL, none. -1: REASON_CREDENTIAL_UNAVAILABLE. Some
 * 0.03 ms with ES256 and EdDSA, 0.7 ms with RSA of 2048 bits. */
int jwt_sign(const struct jwt_key *k, const char *kid, struct str claims, struct secret **ret,
	     struct err *e) ATTR_NODISCARD;
/* Seconds since 1970, for claims. */
int64_t jwt_now(void);

/* The payload of a token that came from where it is trusted: to learn its end, not to believe it.
 * NULL, with e: it is no compact JWS with a JSON object. */
json_t *jwt_payload(struct str token, struct err *e);
/* How long from now until `exp`, in microseconds as token_json_end; a token without one is refused.
 */
int jwt_life(const json_t *payload, int64_t *ret_us, struct err *e) ATTR_NODISCARD;

/* Is the token for these alone? asked: a JSON array of texts; NULL: whatever it is for. */
int jwt_check_audience(const json_t *payload, const char *asked, struct err *e) ATTR_NODISCARD;

#endif
