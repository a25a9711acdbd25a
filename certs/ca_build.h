/*
 * Between ca.c, which knows what a CA is, and ca_dir.c, which knows where it lies. Nobody else
 * includes this.
 */
#ifndef STILE_CERTS_CA_BUILD_H
#define STILE_CERTS_CA_BUILD_H

#include "certs/ca.h"

/* A new P-256 key. NULL: see OpenSSL's queue. */
EVP_PKEY *ca_make_key(void);
/* A self-signed certificate for key. NULL on failure. */
X509 *ca_make_cert(EVP_PKEY *key, unsigned days, struct err *e);
/* Checks that the first certificate of pem is a CA's, that it has not expired and that key belongs
 * to it (NULL: none is at hand). The key is counted up, the text is copied. */
int ca_from_pem(struct str pem, EVP_PKEY *key, struct ca **ret, struct err *e) ATTR_NODISCARD;

#endif
