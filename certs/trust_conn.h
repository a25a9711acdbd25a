/*
 * What trust.c hangs on each SSL and trust_explain.c reads when the handshake has failed. OpenSSL
 * forgets a certificate that it has refused, so the first fault is kept here as it is found.
 */
#ifndef STILE_CERTS_TRUST_CONN_H
#define STILE_CERTS_TRUST_CONN_H

#include <stdbool.h>

#include <openssl/ssl.h>

#include "certs/session_cache.h"
#include "certs/trust.h"
#include "logging/limits.h"

struct trust_conn {
	/* counted */
	struct trust *trust;
	X509 *bad;		  /* the certificate at fault, NULL without a fault */
	struct client_cert *show; /* NULL: none is shown */
	/* plain */
	int error;   /* X509_V_..., X509_V_OK without a fault */
	int depth;   /* of bad: 0 is the origin's own */
	int chain_n; /* certificates that the origin sent */
	bool asked_for_cert;
	bool shown;			 /* it was handed to OpenSSL, to be shown */
	char host[LIMIT_HOST_BYTES + 1]; /* or the address in text, for messages */
	size_t key_len;
	char key[]; /* of the session cache; empty: this connection keeps no session */
};

/* Both borrowed. NULL: trust.c did not make that SSL. */
struct trust_conn *trust_conn_of(const SSL *ssl);
struct session_cache *trust_sessions(const struct trust *t);

#endif
