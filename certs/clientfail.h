/*
 * What went wrong on the client's side of an inspected connection, in words: a client that does not
 * trust the CA sends an alert, and the log must say so.
 */
#ifndef STILE_CERTS_CLIENTFAIL_H
#define STILE_CERTS_CLIENTFAIL_H

#include <openssl/ssl.h>

#include "logging/err.h"

/* After a failed accept or the first failed read (TLS 1.3 clients reject after our handshake is
 * done): REASON_LEAF_REJECTED for unknown_ca, bad_certificate, certificate_unknown,
 * certificate_expired, unsupported_certificate and the like, with the alert's name and the cure;
 * REASON_CLIENT_TLS_FAILED otherwise. Always returns -1; empties OpenSSL's queue. */
int clientfail_explain(SSL *ssl, struct err *e);

#endif
