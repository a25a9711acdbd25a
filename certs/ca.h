/*
 * The interception CA: an ECDSA P-256 key and its self-signed certificate, either in a folder
 * (`serve`: ca.pem, ca.key 0600, made on first use) or in memory alone (`run`: dies with the run).
 */
#ifndef STILE_CERTS_CA_H
#define STILE_CERTS_CA_H

#include <openssl/x509.h>

#include "logging/err.h"
#include "logging/str.h"
#include "logging/strbuf.h"

struct ca; /* immutable once made; shared by threads */

/* A CA that exists in this process only, valid `days` from an hour ago. */
int ca_new_memory(unsigned days, struct ca **ret, struct err *e) ATTR_NODISCARD;
/* Reads DIR/ca.pem and DIR/ca.key, or makes both (folder 0700, key 0600, written to a temporary
 * name, synced and renamed, key first). Refuses a key that others can read, a pair that does not
 * belong together, a certificate that is no CA or has expired. */
int ca_load_or_create(const char *dir, struct ca **ret, struct err *e) ATTR_NODISCARD;
/* The same without making one. */
int ca_load(const char *dir, struct ca **ret, struct err *e) ATTR_NODISCARD;
/* What ca_add_pem wrote, without the key: enough to send chains and to say whom to trust, and not
 * to sign (ca_key is NULL). */
int ca_new_public(struct str pem, struct ca **ret, struct err *e) ATTR_NODISCARD;
/* Sets a pair in the folder aside (the certificate stays as ca.pem.old, the key is deleted) and
 * makes a new one. Leaves of the old one are refused by whoever trusts only the new. */
int ca_rotate(const char *dir, struct ca **ret, struct err *e) ATTR_NODISCARD;
struct ca *ca_ref(struct ca *ca);
void ca_unref(struct ca *ca);

/* Borrowed from the ca. */
X509 *ca_cert(const struct ca *ca);
EVP_PKEY *ca_key(const struct ca *ca); /* NULL: a public one */
/* What a server sends behind the leaf: nothing for a self-signed CA, the CA's own certificate and
 * the intermediates that stand behind it in ca.pem for one that somebody else signed. Never NULL.
 */
STACK_OF(X509) * ca_chain(const struct ca *ca);
/* The certificate as PEM, and what else ca.pem holds. */
int ca_add_pem(const struct ca *ca, struct strbuf *out, struct err *e) ATTR_NODISCARD;

#endif
