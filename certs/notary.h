/*
 * Signs leaves for a key pair whose private half is somebody else's: the keeper's side of a remote
 * signer. It keeps none of them, and does not know who may ask for which name.
 */
#ifndef STILE_CERTS_NOTARY_H
#define STILE_CERTS_NOTARY_H

#include "certs/signer.h"

struct notary;

/* point: see signer_public_key. -1: it is no point of P-256. */
int notary_new(struct ca *ca, const unsigned char point[SIGNER_POINT_LEN], struct notary **ret,
	       struct err *e) ATTR_NODISCARD;
void notary_free(struct notary *n); /* NULL is accepted */
/* Appends the DER of a leaf that holds for life_secs (0: as long as leaves do). */
int notary_sign(const struct notary *n, const struct leaf_name *name, unsigned life_secs,
		struct strbuf *out, struct err *e) ATTR_NODISCARD;

#endif
