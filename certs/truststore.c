/*
 * Writes PKCS#12 (RFC 7292) without encryption and without a MAC: what is in it is public, and a
 * password that everybody knows would protect nothing, only be one more thing to pass to each Java.
 */
#include "certs/truststore.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/objects.h>
#include <openssl/pkcs12.h>

#include "certs/roots.h"

/* Oracle's attribute of a bag: "trusted for these purposes". Java takes a certificate without it
 * for a part of some key's chain, and lists no entry. */
#define TRUSTED_KEY_USAGE "2.16.840.1.113894.746875.1.1"

#define DIGEST_BYTES 32
#define ALIAS_DIGITS 16

struct digests {
	unsigned char (*v)[DIGEST_BYTES]; /* owned */
	size_t n, cap;
};

static bool digests_have(const struct digests *d, const unsigned char *digest)
{
	for (size_t i = 0; i < d->n; i++)
		if (memcmp(d->v[i], digest, DIGEST_BYTES) == 0)
			return true;
	return false;
}

static int digests_add(struct digests *d, const unsigned char *digest)
{
	if (d->n == d->cap) {
		size_t cap = d->cap ? 2 * d->cap : 256;
		void *grown = realloc(d->v, cap * sizeof(*d->v));

		if (!grown)
			return -1;
		d->v = grown;
		d->cap = cap;
	}
	memcpy(d->v[d->n++], digest, DIGEST_BYTES);
	return 0;
}

/* The certificate as one ASN.1 value. NULL: it is none. */
static ASN1_TYPE *value_of(struct str der, struct str *ret_der)
{
	const unsigned char *at = (const unsigned char *)der.p;
	ASN1_TYPE *t = d2i_ASN1_TYPE(NULL, &at, (long)der.n);

	if (t && ASN1_TYPE_get(t) != V_ASN1_SEQUENCE) {
		ASN1_TYPE_free(t);
		return NULL;
	}
	if (t)
		*ret_der = str_head(der, (size_t)(at - (const unsigned char *)der.p));
	return t;
}

static int digest_of(struct str der, unsigned char *ret)
{
	return EVP_Digest(der.p, der.n, ret, NULL, EVP_sha256(), NULL) == 1 ? 0 : -1;
}

static int note(struct str der, void *arg, struct err *e)
{
	unsigned char digest[DIGEST_BYTES];

	if (digest_of(der, digest) != 0 || digests_add(arg, digest) != 0)
		return err_set(e, "out of memory");
	return 0;
}

struct store {
	/* owned */
	STACK_OF(PKCS12_SAFEBAG) * bags;
	struct digests own, seen;
	ASN1_OBJECT *any_purpose;
};

static void name_entry(const unsigned char *digest, bool own, struct strbuf *b)
{
	strbuf_adds(b, own ? "stile-" : "root-");
	for (size_t i = 0; i < ALIAS_DIGITS / 2; i++)
		strbuf_addf(b, "%02x", digest[i]);
}

static int add_value(struct store *s, const ASN1_TYPE *value, const char *alias, struct err *e)
{
	PKCS12_SAFEBAG *bag =
		PKCS12_item_pack_safebag((void *)(uintptr_t)value, ASN1_ITEM_rptr(ASN1_ANY),
					 NID_x509Certificate, NID_certBag);

	if (bag && PKCS12_add_friendlyname_utf8(bag, alias, -1) == 1 &&
	    PKCS12_add1_attr_by_txt(bag, TRUSTED_KEY_USAGE, V_ASN1_OBJECT,
				    (const unsigned char *)s->any_purpose, -1) == 1 &&
	    sk_PKCS12_SAFEBAG_push(s->bags, bag) > 0)
		return 0;
	PKCS12_SAFEBAG_free(bag);
	return err_set(e, "out of memory");
}

static int add_bag(struct str given, void *arg, struct err *e)
{
	struct store *s = arg;
	unsigned char digest[DIGEST_BYTES];
	char alias[8 + ALIAS_DIGITS + 1];
	struct strbuf b;
	struct str der;
	ASN1_TYPE *value = value_of(given, &der);
	int rc = -1;

	if (!value)
		return err_set(e, "a root certificate cannot be read");
	if (digest_of(der, digest) != 0) {
		err_set(e, "out of memory");
	} else if (digests_have(&s->seen, digest)) {
		/* Of two entries with one alias Java keeps the last. */
		rc = 0;
	} else if (digests_add(&s->seen, digest) != 0) {
		err_set(e, "out of memory");
	} else {
		strbuf_init_fixed(&b, alias, sizeof(alias));
		name_entry(digest, digests_have(&s->own, digest), &b);
		rc = add_value(s, value, alias, e);
	}
	ASN1_TYPE_free(value);
	return rc;
}

static int encode(struct store *s, struct strbuf *out, struct err *e)
{
	STACK_OF(PKCS7) *safes = NULL;
	PKCS12 *p12 = NULL;
	unsigned char *der = NULL;
	int n = -1;

	/* -1: not encrypted. */
	if (PKCS12_add_safe(&safes, s->bags, -1, 0, NULL) == 1 &&
	    (p12 = PKCS12_add_safes(safes, 0)) != NULL)
		n = i2d_PKCS12(p12, &der);
	if (n > 0)
		strbuf_add(out, str_from((const char *)der, (size_t)n));
	OPENSSL_free(der);
	PKCS12_free(p12);
	sk_PKCS7_pop_free(safes, PKCS7_free);
	ERR_clear_error();
	if (n <= 0)
		return err_set(e, "cannot write the trust store");
	return out->overflowed ? err_set(e, "no room for the trust store") : 0;
}

int truststore_add(struct str pem, struct str own_pem, struct strbuf *out, struct err *e)
{
	struct store s = {
		.bags = sk_PKCS12_SAFEBAG_new_null(),
		.any_purpose = OBJ_nid2obj(NID_anyExtendedKeyUsage),
	};
	int rc = -1;

	ERR_clear_error();
	if (!s.bags || !s.any_purpose)
		err_set(e, "out of memory");
	else if (roots_each(own_pem, note, &s.own, e) == 0 && roots_each(pem, add_bag, &s, e) == 0)
		rc = s.seen.n > 0 ? encode(&s, out, e)
				  : err_set(e, "no certificate for the trust store");
	sk_PKCS12_SAFEBAG_pop_free(s.bags, PKCS12_SAFEBAG_free);
	free(s.own.v);
	free(s.seen.v);
	return rc;
}
