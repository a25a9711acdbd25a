/*
 * The pieces that the CA's certificate and the leaves have in common: serial, validity, name
 * entries, extensions, the signature. Everything is built from structures, never from OpenSSL's
 * configuration strings, in which a hostile name could end one value and begin another.
 */
#ifndef STILE_CERTS_X509_BUILD_H
#define STILE_CERTS_X509_BUILD_H

#include <stdbool.h>
#include <time.h>

#include <openssl/x509v3.h>

#include "logging/str.h"

/* How far notBefore lies in the past, for clients whose clock is behind. */
#define CERT_BACKDATE_SECS 3600

/* All return 0 or -1 and leave the cause in OpenSSL's queue. */

/* Version 3 and a random positive serial of 16 octets (RFC 5280 section 4.1.2.2). */
int x509_set_serial(X509 *x);
/* Both ends belong to the validity (section 4.1.2.5). */
int x509_set_validity(X509 *x, time_t not_before, time_t not_after);
int x509_add_name(X509_NAME *name, int nid, struct str value);
/* The key identifier of section 4.2.1.2, method 1. */
ASN1_OCTET_STRING *x509_key_id(const X509 *x);
/* keyUsage, critical, with these bits of section 4.2.1.3 (digitalSignature is 0). */
X509_EXTENSION *x509_ext_key_usage(const int *bits, size_t bits_n);
/* basicConstraints, critical; pathlen < 0: absent. */
X509_EXTENSION *x509_ext_basic(bool is_ca, long pathlen);
/* Adds *ext, which may be NULL from a failed builder, and frees it. */
int x509_add_ext_free(X509 *x, X509_EXTENSION *ext);
/* With SHA-256, or what the key's algorithm has built in. */
int x509_sign(X509 *x, EVP_PKEY *key);

/* Seconds since 1970. -1: it is no time; *ret is untouched. */
int x509_time_to_unix(const ASN1_TIME *t, time_t *ret);

#endif
