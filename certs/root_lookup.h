/*
 * The system's roots as anchors of a store, each taken apart when a chain first asks for its name.
 * Of a hundred and more that would cost more than all else at a start, and a process verifies by a
 * few. Called by trust.c.
 */
#ifndef STILE_CERTS_ROOT_LOOKUP_H
#define STILE_CERTS_ROOT_LOOKUP_H

#include <openssl/x509_vfy.h>

#include "logging/err.h"
#include "logging/str.h"

/* Every certificate of pem (copied) is an anchor of store from now on; one that cannot be taken
 * apart later is none. The store must hold no others: OpenSSL asks for a name only if the store has
 * nothing of that name yet. -1: pem is no list of certificates. */
int root_lookup_add(X509_STORE *store, struct str pem, struct err *e) ATTR_NODISCARD;

#endif
