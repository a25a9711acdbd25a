/*
 * Upstream verification: the roots, the client side of TLS towards an origin, and the words for
 * what was wrong. The chain and the name are checked always; there is no way to switch that off.
 * Sessions are kept and resumed, each only for the very destination and partition it came from.
 */
#ifndef STILE_CERTS_TRUST_H
#define STILE_CERTS_TRUST_H

#include <openssl/ssl.h>

#include "certs/client_cert.h"
#include "logging/err.h"
#include "logging/str.h"
#include "logging/strbuf.h"

struct trust; /* shared by threads */

/* `sources`: "system" and PEM files. An empty list is a fault: nothing could be verified. */
int trust_new(char *const *sources, size_t sources_n, struct trust **ret,
	      struct err *e) ATTR_NODISCARD;
struct trust *trust_ref(struct trust *t);
void trust_unref(struct trust *t);

/* An SSL in connect state for host (DNS name: SNI and name check; ip != NULL: no SNI, address
 * check), TLS 1.2 and 1.3, offering `alpn`. session_key names what a session may be reused for
 * (host, port, sandbox, policy); it is copied. */
int trust_client_new(struct trust *t, const char *host, const unsigned char *ip, size_t ip_len,
		     struct str alpn, struct str session_key, SSL **ret,
		     struct err *e) ATTR_NODISCARD;

/* Before the handshake: c (a reference is taken) is shown if the origin asks for a certificate, and
 * not before its own has been verified. session_key of that SSL must hold client_cert_id: a session
 * is as good as the certificate. */
void trust_client_show(SSL *ssl, struct client_cert *c);
/* After the handshake: the key is of no more use, and the SSL lets go of it. */
void trust_client_shown(SSL *ssl);

/* After a failed handshake on such an SSL (call at once: reads OpenSSL's queue): fills e with
 * REASON_UPSTREAM_UNTRUSTED (expired, not yet valid, wrong name with the names it has, unknown
 * issuer, self-signed, revoked, weak: with subject, issuer and the cure in `upstream.trust`),
 * REASON_UPSTREAM_WANTS_CERT, or REASON_UPSTREAM_TLS_FAILED. Always returns -1. Also right for a
 * read that failed after the handshake: a TLS 1.3 origin asks for a certificate late. */
int trust_explain(SSL *ssl, struct err *e);

/* Appends what a client must trust to verify both our leaves and passthrough origins: the system's
 * roots and then extra_pem (the CA). -1 when the system has no roots to read. */
int bundle_add(struct str extra_pem, struct strbuf *out, struct err *e) ATTR_NODISCARD;

#endif
