/*
 * A bundle of roots in the form that Java reads: a PKCS#12 file of trusted certificates. Called by
 * whoever hands a bundle to clients; it reads no file and decides nothing on trust.
 */
#ifndef STILE_CERTS_TRUSTSTORE_H
#define STILE_CERTS_TRUSTSTORE_H

#include "logging/err.h"
#include "logging/str.h"
#include "logging/strbuf.h"

/* What javax.net.ssl.trustStorePassword may be told. The store holds nothing secret and has no
 * integrity of its own: any password opens it, and so does none. */
#define TRUSTSTORE_TYPE "PKCS12"

/* Appends every certificate of the PEM text, each once, as an entry that Java counts as trusted.
 * The aliases are "stile-" or "root-" and the first 16 digits of the SHA-256 fingerprint: "stile-"
 * for those that also stand in own_pem. The same input gives the same bytes. -1: the text holds no
 * certificate, or one that cannot be read. */
int truststore_add(struct str pem, struct str own_pem, struct strbuf *out,
		   struct err *e) ATTR_NODISCARD;

#endif
