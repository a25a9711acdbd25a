/*
 * Name in, certificate out, by callback: today a call within the process, later a process of its
 * own. Leaves are ECDSA P-256, signed by the CA, one a host, kept in a bounded LRU cache and made
 * anew before they end. All leaves of a signer share one key, which lives as long as the signer.
 */
#ifndef STILE_CERTS_SIGNER_H
#define STILE_CERTS_SIGNER_H

#include <openssl/ssl.h>

#include "certs/ca.h"
#include "logging/str.h"

/* Which host a leaf is for: a DNS name (its A-label, which also may hold underscores), or an
 * address of 4 or 16 bytes (then text is its spelling, for the common name and the cache). */
struct leaf_name {
	struct str text;
	const unsigned char *ip; /* NULL for a DNS name */
	size_t ip_len;
};

#define SIGNER_POINT_LEN 65

struct leaf; /* counted: a certificate and the key it belongs to */
struct signer;

/* One that signs by ca, which is counted, and makes the key of all leaves. cache_max: how many of
 * these are kept. Threads share it. */
int signer_new(struct ca *ca, size_t cache_max, struct signer **ret, struct err *e) ATTR_NODISCARD;
/* A signer that holds no CA's key (ca may be public): what it has not got in its cache somebody
 * else signs, who is given signer_public_key and whose answer is put with signer_put. */
int signer_new_remote(struct ca *ca, size_t cache_max, struct signer **ret,
		      struct err *e) ATTR_NODISCARD;
bool signer_is_remote(const struct signer *s);
/* The public half of the key of all leaves, an uncompressed point of P-256 (SEC 1 section 2.3.3).
 */
int signer_public_key(const struct signer *s, unsigned char ret[SIGNER_POINT_LEN],
		      struct err *e) ATTR_NODISCARD;
/* A reference to the leaf if it is in the cache; NULL: it has to be signed. */
struct leaf *signer_find(struct signer *s, const struct leaf_name *name);
/* Keeps what was signed for name, and gives a reference to the leaf to use. */
int signer_put(struct signer *s, const struct leaf_name *name, struct str der, struct leaf **ret,
	       struct err *e) ATTR_NODISCARD;
/* Does ahead what the next signer_put would have to: takes 0.2 ms for each leaf that was put, some
 * of them at most. Behind the answers, when nobody waits for one. */
void signer_prepare(struct signer *s);
void signer_free(struct signer *s);
/* Calls done exactly once, perhaps before it returns: leaf is a reference that the callee owns,
 * NULL on failure with the reason in e. Thread-safe: the cache has one lock, never held while
 * signing. */
void signer_get(struct signer *s, const struct leaf_name *name,
		void (*done)(void *arg, struct leaf *leaf, const struct err *e), void *arg);
struct leaf *leaf_ref(struct leaf *l);
void leaf_unref(struct leaf *l);
X509 *leaf_cert(const struct leaf *l);

/* Server side of an inspected connection: an SSL in accept state with the leaf and its chain,
 * TLS 1.2 and 1.3, session tickets bound to the leaf's host (a ticket of another host is not
 * resumed), no renegotiation, no client certificate asked for. ALPN: picks the first of `alpn`
 * (wire format of RFC 7301: length byte, name) that the client offers; no overlap is the fatal
 * alert no_application_protocol; a client without ALPN goes on without. `alpn` must outlive the
 * SSL. */
int signer_server_new(struct signer *s, struct leaf *leaf, struct str alpn, SSL **ret,
		      struct err *e) ATTR_NODISCARD;

#endif
