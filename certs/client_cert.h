/*
 * A client certificate with its chain and its key, as stile shows it to an origin that asks. Read
 * once from PEM, immutable, shared by threads; the key is wiped when the last reference goes.
 */
#ifndef STILE_CERTS_CLIENT_CERT_H
#define STILE_CERTS_CLIENT_CERT_H

#include <stdint.h>

#include <openssl/ssl.h>

#include "logging/err.h"
#include "logging/str.h"

struct client_cert;

/* pem: certificates and one private key (RSA, EC or Ed25519, not encrypted), in any order; the
 * certificate that the key belongs to is shown, the others go with it as they stand. -1: what is
 * wrong (missing, not to be read, another's key, expired, not valid yet, too weak), without
 * anything of the key. */
int client_cert_new(struct str pem, struct client_cert **ret, struct err *e) ATTR_NODISCARD;
struct client_cert *client_cert_ref(struct client_cert *c);
void client_cert_unref(struct client_cert *c); /* NULL is accepted */

/* Of this process, never given twice: what is kept apart by it is never another one's. Not 0. */
uint64_t client_cert_id(const struct client_cert *c);
/* Until it expires; not above 0: it has. */
int64_t client_cert_left_us(const struct client_cert *c);

/* For trust.c, when the origin asks. 0: OpenSSL has it. */
int client_cert_use(const struct client_cert *c, SSL *ssl);

#endif
