/*
 * Building blocks of certificates (RFC 5280). Called by ca.c and leaf.c only; what a certificate
 * says as a whole is decided there.
 */
#include "certs/x509_build.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#define SERIAL_BYTES 16

int x509_set_serial(X509 *x)
{
	unsigned char bytes[SERIAL_BYTES];
	BIGNUM *n = NULL;
	int rc = -1;

	if (RAND_bytes(bytes, sizeof(bytes)) != 1)
		return -1;
	/* Positive, and always of the full length. */
	bytes[0] = (unsigned char)((bytes[0] & 0x7f) | 0x40);
	n = BN_bin2bn(bytes, sizeof(bytes), NULL);
	if (n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x)) &&
	    X509_set_version(x, X509_VERSION_3))
		rc = 0;
	BN_free(n);
	return rc;
}

int x509_set_validity(X509 *x, time_t not_before, time_t not_after)
{
	if (!ASN1_TIME_set(X509_getm_notBefore(x), not_before) ||
	    !ASN1_TIME_set(X509_getm_notAfter(x), not_after))
		return -1;
	return 0;
}

int x509_add_name(X509_NAME *name, int nid, struct str value)
{
	return X509_NAME_add_entry_by_NID(name, nid, MBSTRING_UTF8, (const unsigned char *)value.p,
					  (int)value.n, -1, 0) == 1
		       ? 0
		       : -1;
}

ASN1_OCTET_STRING *x509_key_id(const X509 *x)
{
	unsigned char md[EVP_MAX_MD_SIZE];
	unsigned md_len = 0;
	ASN1_OCTET_STRING *id = ASN1_OCTET_STRING_new();

	if (!id || X509_pubkey_digest(x, EVP_sha1(), md, &md_len) != 1 ||
	    !ASN1_OCTET_STRING_set(id, md, (int)md_len)) {
		ASN1_OCTET_STRING_free(id);
		return NULL;
	}
	return id;
}

X509_EXTENSION *x509_ext_key_usage(const int *bits, size_t bits_n)
{
	ASN1_BIT_STRING *usage = ASN1_BIT_STRING_new();
	X509_EXTENSION *ext = NULL;
	bool ok = usage != NULL;

	for (size_t i = 0; ok && i < bits_n; i++)
		ok = ASN1_BIT_STRING_set_bit(usage, bits[i], 1) == 1;
	if (ok)
		ext = X509V3_EXT_i2d(NID_key_usage, 1, usage);
	ASN1_BIT_STRING_free(usage);
	return ext;
}

X509_EXTENSION *x509_ext_basic(bool is_ca, long pathlen)
{
	BASIC_CONSTRAINTS *bc = BASIC_CONSTRAINTS_new();
	X509_EXTENSION *ext = NULL;

	if (!bc)
		return NULL;
	bc->ca = is_ca ? 0xff : 0;
	if (pathlen >= 0) {
		bc->pathlen = ASN1_INTEGER_new();
		if (!bc->pathlen || !ASN1_INTEGER_set(bc->pathlen, pathlen))
			goto out;
	}
	ext = X509V3_EXT_i2d(NID_basic_constraints, 1, bc);
out:
	BASIC_CONSTRAINTS_free(bc);
	return ext;
}

int x509_add_ext_free(X509 *x, X509_EXTENSION *ext)
{
	int rc = ext && X509_add_ext(x, ext, -1) == 1 ? 0 : -1;

	X509_EXTENSION_free(ext);
	return rc;
}

int x509_sign(X509 *x, EVP_PKEY *key)
{
	const EVP_MD *md = EVP_sha256();
	int nid = NID_undef;

	/* 2: this digest and no other; undef with it: the algorithm hashes by itself (Ed25519). */
	if (EVP_PKEY_get_default_digest_nid(key, &nid) == 2 && nid == NID_undef)
		md = NULL;
	return X509_sign(x, key, md) > 0 ? 0 : -1;
}

int x509_time_to_unix(const ASN1_TIME *t, time_t *ret)
{
	struct tm tm;

	if (ASN1_TIME_to_tm(t, &tm) != 1)
		return -1;
	*ret = timegm(&tm);
	return 0;
}
