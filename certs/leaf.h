/*
 * One leaf: a certificate for one host, signed by the CA, and the key that all leaves of a signer
 * share. signer.c calls this; the rest of the program sees leaves through signer.h.
 */
#ifndef STILE_CERTS_LEAF_H
#define STILE_CERTS_LEAF_H

#include <stdatomic.h>
#include <time.h>

#include <openssl/x509.h>

#include "certs/ca.h"
#include "certs/leaf_blank.h"
#include "certs/signer.h"
#include "logging/limits.h"

#define LEAF_SID_CTX_LEN 32
#define LEAF_LIFE_SECS	 ((time_t)LIMIT_LEAF_DAYS * 86400)

struct leaf {
	/* counted */
	X509 *cert;
	EVP_PKEY *key;
	struct ca *ca; /* for its chain */
	/* plain */
	atomic_uint refs;
	time_t usable_from, renew_at; /* handed out for from <= now < renew_at */
	/* Binds session tickets to the host: a hash of its key. */
	unsigned char sid_ctx[LEAF_SID_CTX_LEN];
};

/* A host in one spelling: what kind of name, and its bytes. */
struct leaf_key {
	size_t len;
	unsigned char bytes[1 + LIMIT_HOST_BYTES];
};

/* Refuses what must not stand in a certificate: a wildcard, an empty label, a control character, an
 * address spelled as a name. Letters are folded to lower case. */
int leaf_key_init(struct leaf_key *k, const struct leaf_name *name, struct err *e) ATTR_NODISCARD;

/* The parts that all leaves of one signer have in common, made once; read-only afterwards, so
 * threads share it. */
struct leaf_maker;

/* ca is counted; a key pair is made. */
int leaf_maker_new(struct ca *ca, struct leaf_maker **ret, struct err *e) ATTR_NODISCARD;
/* The same for a key pair of which only the public half is known here; it is counted. */
int leaf_maker_new_for(struct ca *ca, EVP_PKEY *key, struct leaf_maker **ret,
		       struct err *e) ATTR_NODISCARD;
void leaf_maker_free(struct leaf_maker *m);
/* Signs a leaf for the host. The whole span is LIMIT_LEAF_DAYS, or less if the CA ends earlier. */
int leaf_make(const struct leaf_maker *m, const struct leaf_key *k, struct str common_name,
	      time_t now, struct leaf **ret, struct err *e) ATTR_NODISCARD;

/* Signs a leaf that holds for `life` seconds from an hour ago, and gives it as DER. */
int leaf_make_der(const struct leaf_maker *m, const struct leaf_key *k, struct str common_name,
		  time_t now, time_t life, struct strbuf *out, struct err *e) ATTR_NODISCARD;
/* A leaf that was signed elsewhere, over the public half of `key`, which it takes a count of; read
 * by b. */
int leaf_from_der(struct str der, EVP_PKEY *key, struct leaf_blanks *b, struct ca *ca,
		  const struct leaf_key *k, struct leaf **ret, struct err *e) ATTR_NODISCARD;

#endif
