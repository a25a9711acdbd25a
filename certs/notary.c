/*
 * See notary.h. What a leaf says is leaf.c's business; here a public key becomes one that OpenSSL
 * can put into it.
 */
#include "certs/notary.h"

#include <stdlib.h>

#include <openssl/core_names.h>
#include <openssl/ec.h>

#include "certs/leaf.h"
#include "certs/tls_err.h"

struct notary {
	/* owned */
	struct leaf_maker *maker;
};

/* OpenSSL checks that the point is on the curve. */
static EVP_PKEY *key_of(const unsigned char point[SIGNER_POINT_LEN])
{
	char group[] = "P-256";
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
		OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, (void *)(uintptr_t)point,
						  SIGNER_POINT_LEN),
		OSSL_PARAM_construct_end(),
	};
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
	EVP_PKEY *key = NULL;

	if (point[0] != POINT_CONVERSION_UNCOMPRESSED || !ctx || EVP_PKEY_fromdata_init(ctx) != 1 ||
	    EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
		key = NULL;
	EVP_PKEY_CTX_free(ctx);
	return key;
}

int notary_new(struct ca *ca, const unsigned char point[SIGNER_POINT_LEN], struct notary **ret,
	       struct err *e)
{
	EVP_PKEY *key = key_of(point);
	struct notary *n;

	if (!key)
		return tls_err(e, REASON_NONE, "that is no public key for leaves");
	n = calloc(1, sizeof(*n));
	if (!n || leaf_maker_new_for(ca, key, &n->maker, e) != 0) {
		if (!n)
			err_set(e, "out of memory");
		EVP_PKEY_free(key);
		free(n);
		return -1;
	}
	EVP_PKEY_free(key);
	*ret = n;
	return 0;
}

void notary_free(struct notary *n)
{
	if (!n)
		return;
	leaf_maker_free(n->maker);
	free(n);
}

int notary_sign(const struct notary *n, const struct leaf_name *name, unsigned life_secs,
		struct strbuf *out, struct err *e)
{
	struct leaf_key key;

	if (leaf_key_init(&key, name, e) != 0)
		return -1;
	return leaf_make_der(n->maker, &key, name->text, time(NULL),
			     life_secs ? (time_t)life_secs : LEAF_LIFE_SECS, out, e);
}
