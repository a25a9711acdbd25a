/*
 * Certificates as a process reads them that somebody else has signed over its key. OpenSSL 3.0
 * takes five times longer to make that key out of a certificate than anybody takes to sign it. So
 * the key is put into a few blank certificates before there is a question, and what comes is filled
 * in.
 */
#ifndef STILE_CERTS_LEAF_BLANK_H
#define STILE_CERTS_LEAF_BLANK_H

#include <openssl/x509.h>

#include "logging/err.h"
#include "logging/str.h"

struct leaf_blanks; /* safe for threads */

int leaf_blanks_new(EVP_PKEY *key, struct leaf_blanks **ret, struct err *e) ATTR_NODISCARD;
void leaf_blanks_free(struct leaf_blanks *b); /* NULL is accepted */
/* The certificate that der is, whatever its key; the caller's. Out of a blank if there is one and
 * the key is the blanks'. NULL: it is none, or memory is out. */
X509 *leaf_blanks_read(struct leaf_blanks *b, struct str der);
/* Makes those that were used anew: 0.2 ms each, LIMIT_LEAF_BLANKS at most. When nobody waits. */
void leaf_blanks_refill(struct leaf_blanks *b);

#endif
