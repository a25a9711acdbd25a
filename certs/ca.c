/*
 * What the interception CA is: its key, its certificate, the checks on one that was brought from
 * outside. Where it is kept is ca_dir.c's business; what is signed with it is leaf.c's.
 */
#include "certs/ca.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include "certs/ca_build.h"
#include "certs/file.h"
#include "certs/tls_err.h"
#include "certs/x509_build.h"

#define CA_PEM_CERTS_MAX 16

struct ca {
	/* owned */
	STACK_OF(X509) * rest;	/* what else ca.pem holds */
	STACK_OF(X509) * chain; /* see ca_chain */
	/* counted */
	X509 *cert;
	EVP_PKEY *key;
	/* plain */
	atomic_uint refs;
};

EVP_PKEY *ca_make_key(void)
{
	return EVP_EC_gen("P-256");
}

/* "stile CA 1a2b3c4d": two CAs of one machine must not share a name, or a client that trusts both
 * tries the wrong key. */
static int set_subject(X509 *x)
{
	static const char hex[] = "0123456789abcdef";
	char cn[] = "stile CA xxxxxxxx";
	unsigned char r[4];
	X509_NAME *name = X509_get_subject_name(x);

	if (RAND_bytes(r, sizeof(r)) != 1)
		return -1;
	for (size_t i = 0; i < sizeof(r); i++) {
		cn[9 + 2 * i] = hex[r[i] >> 4];
		cn[10 + 2 * i] = hex[r[i] & 15];
	}
	if (x509_add_name(name, NID_organizationName, STR("stile")) != 0 ||
	    x509_add_name(name, NID_commonName, str_from_c(cn)) != 0)
		return -1;
	return X509_set_issuer_name(x, name) == 1 ? 0 : -1;
}

static int add_extensions(X509 *x)
{
	static const int usage[] = {5, 6}; /* keyCertSign, cRLSign */
	ASN1_OCTET_STRING *id = x509_key_id(x);
	X509_EXTENSION *ski = id ? X509V3_EXT_i2d(NID_subject_key_identifier, 0, id) : NULL;
	int rc = x509_add_ext_free(x, ski);

	if (rc == 0)
		rc = x509_add_ext_free(x, x509_ext_basic(true, 0));
	if (rc == 0)
		rc = x509_add_ext_free(x, x509_ext_key_usage(usage, ARRAY_LEN(usage)));
	ASN1_OCTET_STRING_free(id);
	return rc;
}

X509 *ca_make_cert(EVP_PKEY *key, unsigned days, struct err *e)
{
	time_t from = time(NULL) - CERT_BACKDATE_SECS;
	X509 *x = X509_new();

	if (x && x509_set_serial(x) == 0 && set_subject(x) == 0 && X509_set_pubkey(x, key) == 1 &&
	    x509_set_validity(x, from, from + (time_t)days * 86400 - 1) == 0 &&
	    add_extensions(x) == 0 && x509_sign(x, key) == 0)
		return x;
	tls_err(e, REASON_NONE, "cannot make the CA's certificate");
	X509_free(x);
	return NULL;
}

/* Both stacks empty; takes a count of cert and key (NULL: public). NULL when memory is out. */
static struct ca *ca_new(X509 *cert, EVP_PKEY *key, struct err *e)
{
	struct ca *ca = calloc(1, sizeof(*ca));

	if (!ca) {
		err_set(e, "out of memory");
		return NULL;
	}
	atomic_init(&ca->refs, 1);
	ca->rest = sk_X509_new_null();
	ca->chain = sk_X509_new_null();
	if (X509_up_ref(cert))
		ca->cert = cert;
	if (key && EVP_PKEY_up_ref(key))
		ca->key = key;
	if (!ca->rest || !ca->chain || !ca->cert || (key && !ca->key)) {
		ca_unref(ca);
		err_set(e, "out of memory");
		return NULL;
	}
	return ca;
}

int ca_new_memory(unsigned days, struct ca **ret, struct err *e)
{
	EVP_PKEY *key = ca_make_key();
	struct ca *ca = NULL;
	X509 *cert;

	if (!key)
		return tls_err(e, REASON_NONE, "cannot make the CA's key");
	cert = ca_make_cert(key, days, e);
	if (cert)
		ca = ca_new(cert, key, e);
	X509_free(cert);
	EVP_PKEY_free(key);
	if (!ca)
		return -1;
	*ret = ca;
	return 0;
}

static int check_cert(X509 *x, EVP_PKEY *key, struct err *e)
{
	if (X509_check_ca(x) != 1)
		return err_set(e, "the certificate is not a CA's (basicConstraints CA:TRUE)");
	if (!(X509_get_key_usage(x) & KU_KEY_CERT_SIGN))
		return err_set(e, "the certificate's keyUsage does not include keyCertSign");
	if (X509_cmp_current_time(X509_get0_notAfter(x)) <= 0)
		return err_set(e,
			       "the certificate has expired (`stile ca rotate` makes a new one)");
	if (X509_cmp_current_time(X509_get0_notBefore(x)) > 0)
		return err_set(e, "the certificate is not valid yet (is the clock right? `stile ca "
				  "rotate` makes a new one)");
	if (key && X509_check_private_key(x, key) != 1) {
		tls_err(NULL, REASON_NONE, "mismatch");
		return err_set(e, "ca.key is not the key of the certificate");
	}
	return 0;
}

static int push(STACK_OF(X509) * sk, X509 *x)
{
	if (!X509_up_ref(x))
		return -1;
	if (sk_X509_push(sk, x) > 0)
		return 0;
	X509_free(x);
	return -1;
}

/* A root is left out: a client that needs it has it. */
static int fill_chain(struct ca *ca)
{
	if (X509_self_signed(ca->cert, 0) == 1)
		return 0;
	if (push(ca->chain, ca->cert) != 0)
		return -1;
	for (int i = 0; i < sk_X509_num(ca->rest); i++) {
		X509 *x = sk_X509_value(ca->rest, i);

		if (X509_self_signed(x, 0) != 1 && push(ca->chain, x) != 0)
			return -1;
	}
	return 0;
}

/* Reads the certificates behind the first. */
static int read_rest(BIO *bio, struct ca *ca, struct err *e)
{
	X509 *x;

	while ((x = PEM_read_bio_X509(bio, NULL, file_no_passphrase, NULL))) {
		if (sk_X509_num(ca->rest) >= CA_PEM_CERTS_MAX || sk_X509_push(ca->rest, x) <= 0) {
			X509_free(x);
			return err_set(e, "more than %d certificates", CA_PEM_CERTS_MAX);
		}
	}
	if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		return tls_err(e, REASON_NONE, "a further certificate cannot be read");
	ERR_clear_error();
	return 0;
}

int ca_from_pem(struct str pem, EVP_PKEY *key, struct ca **ret, struct err *e)
{
	BIO *bio = BIO_new_mem_buf(pem.p, (int)pem.n);
	X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, file_no_passphrase, NULL) : NULL;
	struct ca *ca = NULL;
	int rc = -1;

	if (!cert) {
		tls_err(e, REASON_NONE, "no certificate can be read");
		goto out;
	}
	if (check_cert(cert, key, e) != 0)
		goto out;
	ca = ca_new(cert, key, e);
	if (!ca || read_rest(bio, ca, e) != 0)
		goto out;
	if (fill_chain(ca) != 0) {
		err_set(e, "out of memory");
		goto out;
	}
	*ret = ca;
	ca = NULL;
	rc = 0;
out:
	ca_unref(ca);
	X509_free(cert);
	BIO_free(bio);
	return rc;
}

int ca_new_public(struct str pem, struct ca **ret, struct err *e)
{
	return ca_from_pem(pem, NULL, ret, e);
}

struct ca *ca_ref(struct ca *ca)
{
	atomic_fetch_add_explicit(&ca->refs, 1, memory_order_relaxed);
	return ca;
}

void ca_unref(struct ca *ca)
{
	if (!ca || atomic_fetch_sub_explicit(&ca->refs, 1, memory_order_acq_rel) != 1)
		return;
	sk_X509_pop_free(ca->rest, X509_free);
	sk_X509_pop_free(ca->chain, X509_free);
	X509_free(ca->cert);
	EVP_PKEY_free(ca->key); /* OpenSSL wipes the private number */
	free(ca);
}

X509 *ca_cert(const struct ca *ca)
{
	return ca->cert;
}

EVP_PKEY *ca_key(const struct ca *ca)
{
	return ca->key;
}

STACK_OF(X509) * ca_chain(const struct ca *ca)
{
	return ca->chain;
}

int ca_add_pem(const struct ca *ca, struct strbuf *out, struct err *e)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *p = NULL;
	long n;
	bool ok = bio && PEM_write_bio_X509(bio, ca->cert) == 1;

	for (int i = 0; ok && i < sk_X509_num(ca->rest); i++)
		ok = PEM_write_bio_X509(bio, sk_X509_value(ca->rest, i)) == 1;
	if (!ok) {
		BIO_free(bio);
		return tls_err(e, REASON_NONE, "cannot write the CA's certificate");
	}
	n = BIO_get_mem_data(bio, &p);
	strbuf_add(out, str_from(p, (size_t)n));
	BIO_free(bio);
	return out->overflowed ? err_set(e, "no room for the CA's certificate") : 0;
}
