/*
 * What both sides of TLS have in common: versions, security level, modes. Set explicitly, because
 * OpenSSL otherwise takes it from a configuration file that is not ours.
 */
#ifndef STILE_CERTS_TLS_CTX_H
#define STILE_CERTS_TLS_CTX_H

#include <openssl/ssl.h>

/* NULL on failure, with the cause in OpenSSL's queue. */
SSL_CTX *tls_ctx_new(const SSL_METHOD *method);

#endif
