/*
 * Upstream TLS sessions by destination: the latest of each, bounded, the least recently used goes
 * first. It belongs to one struct trust and dies with it, so a session is never resumed under roots
 * other than those that verified it.
 */
#ifndef STILE_CERTS_SESSION_CACHE_H
#define STILE_CERTS_SESSION_CACHE_H

#include <openssl/ssl.h>

#include "logging/err.h"
#include "logging/str.h"

struct session_cache;

int session_cache_new(size_t max, struct session_cache **ret, struct err *e) ATTR_NODISCARD;
void session_cache_free(struct session_cache *c); /* NULL is accepted */

/* Takes the session over in any case. */
void session_cache_put(struct session_cache *c, struct str key, SSL_SESSION *session);
/* A session that nobody else uses, for the caller to free; NULL if there is none. A TLS 1.3 ticket
 * is handed out once (RFC 8446 appendix C.4); a TLS 1.2 session stays and the caller gets a copy.
 */
SSL_SESSION *session_cache_take(struct session_cache *c, struct str key);
/* After a handshake that failed: what was tried must not be tried for ever. */
void session_cache_drop(struct session_cache *c, struct str key);
size_t session_cache_count(struct session_cache *c);

#endif
