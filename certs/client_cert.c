/*
 * See client_cert.h. The text is taken apart block by block, so that every fault has its words, and
 * with the flags under which OpenSSL wipes what it copies on the way.
 */
#include "certs/client_cert.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "certs/tls_mem.h"

#define STRENGTH_MIN 112 /* bits, as in tls_ctx.c: RSA of 2048 */
#define CHAIN_MAX    16

struct client_cert {
	_Atomic unsigned refs;
	/* owned */
	X509 *leaf;
	STACK_OF(X509) * chain; /* without the leaf */
	EVP_PKEY *key;
	/* plain */
	uint64_t id;
};

static int bad(struct err *e, const char *what)
{
	ERR_clear_error();
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "%s", what);
}

/* ---- PEM ---- */

static int add_cert(struct client_cert *c, const unsigned char *der, long n, struct err *e)
{
	X509 *x = d2i_X509(NULL, &der, n);

	if (!x)
		return bad(e, "one of its certificates cannot be read");
	if (sk_X509_num(c->chain) >= CHAIN_MAX || sk_X509_push(c->chain, x) <= 0) {
		X509_free(x);
		return bad(e, "it has too many certificates");
	}
	return 0;
}

static int add_key(struct client_cert *c, const unsigned char *der, long n, struct err *e)
{
	if (c->key)
		return bad(e, "it has more than one key");
	c->key = d2i_AutoPrivateKey(NULL, &der, n);
	return c->key ? 0 : bad(e, "its key cannot be read");
}

static bool ends_in(const char *name, const char *end)
{
	return str_ends(str_from_c(name), str_from_c(end));
}

static int add_block(struct client_cert *c, const char *name, const char *header,
		     const unsigned char *der, long n, struct err *e)
{
	if (strcmp(name, PEM_STRING_X509) == 0 || strcmp(name, PEM_STRING_X509_OLD) == 0)
		return add_cert(c, der, n, e);
	if (!ends_in(name, "PRIVATE KEY"))
		return 0; /* parameters of a curve, say */
	if (strcmp(name, PEM_STRING_PKCS8) == 0 || strstr(header, "ENCRYPTED"))
		return bad(e, "its key is encrypted (write it without a passphrase)");
	return add_key(c, der, n, e);
}

static int read_pem(struct client_cert *c, struct str pem, struct err *e)
{
	BIO *bio = pem.n <= INT_MAX ? BIO_new_mem_buf(pem.p, (int)pem.n) : NULL;
	char *name, *header;
	unsigned char *der;
	long n;
	int rc = 0;

	if (!bio)
		return bad(e, "out of memory");
	ERR_clear_error();
	while (rc == 0 && PEM_read_bio_ex(bio, &name, &header, &der, &n,
					  PEM_FLAG_SECURE | PEM_FLAG_EAY_COMPATIBLE) == 1) {
		rc = add_block(c, name, header, der, n, e);
		OPENSSL_secure_clear_free(der, (size_t)n);
		OPENSSL_secure_free(name);
		OPENSSL_secure_free(header);
	}
	if (rc == 0 && ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		rc = bad(e, "it is no PEM of a certificate and a key");
	ERR_clear_error();
	BIO_free(bio);
	return rc;
}

/* ---- what it must be ---- */

/* Which of the certificates is the key's? */
static int find_leaf(struct client_cert *c, struct err *e)
{
	if (sk_X509_num(c->chain) == 0)
		return bad(e, c->key ? "it has no certificate"
				     : "it is no PEM of a certificate "
				       "and a key");
	if (!c->key)
		return bad(e, "it has no key");
	for (int i = 0; i < sk_X509_num(c->chain); i++)
		if (X509_check_private_key(sk_X509_value(c->chain, i), c->key) == 1) {
			c->leaf = sk_X509_delete(c->chain, i);
			ERR_clear_error();
			return 0;
		}
	return bad(e, "its key is not that of its certificate");
}

static int check_key(const struct client_cert *c, struct err *e)
{
	int kind = EVP_PKEY_get_base_id(c->key);

	if (kind != EVP_PKEY_RSA && kind != EVP_PKEY_EC && kind != EVP_PKEY_ED25519)
		return bad(e, "its key is of a kind that is not used (use RSA, EC or Ed25519)");
	if (EVP_PKEY_get_security_bits(c->key) < STRENGTH_MIN)
		return bad(e, "its key is too short (RSA takes 2048 bits)");
	return 0;
}

static int say_date(const char *what, const ASN1_TIME *t, struct err *e)
{
	struct tm tm = {0};

	ERR_clear_error();
	if (ASN1_TIME_to_tm(t, &tm) != 1)
		return bad(e, "its certificate has dates that cannot be read");
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
			  "its certificate %s %04d-%02d-%02d at %02d:%02dZ", what,
			  tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min);
}

static int check_dates(const struct client_cert *c, struct err *e)
{
	if (X509_cmp_current_time(X509_get0_notBefore(c->leaf)) >= 0)
		return say_date("is not valid before", X509_get0_notBefore(c->leaf), e);
	if (X509_cmp_current_time(X509_get0_notAfter(c->leaf)) <= 0)
		return say_date("expired on", X509_get0_notAfter(c->leaf), e);
	return 0;
}

int client_cert_new(struct str pem, struct client_cert **ret, struct err *e)
{
	static _Atomic uint64_t ids;
	struct client_cert *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return bad(e, "out of memory");
	atomic_init(&c->refs, 1);
	c->id = atomic_fetch_add(&ids, 1) + 1;
	c->chain = sk_X509_new_null();
	if (!c->chain) {
		client_cert_unref(c);
		return bad(e, "out of memory");
	}
	tls_mem_wipe(true);
	rc = read_pem(c, pem, e);
	tls_mem_wipe(false);
	if (rc == 0 && find_leaf(c, e) == 0 && check_key(c, e) == 0 && check_dates(c, e) == 0) {
		*ret = c;
		return 0;
	}
	client_cert_unref(c);
	return -1;
}

struct client_cert *client_cert_ref(struct client_cert *c)
{
	atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
	return c;
}

void client_cert_unref(struct client_cert *c)
{
	if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
		return;
	sk_X509_pop_free(c->chain, X509_free);
	X509_free(c->leaf);
	EVP_PKEY_free(c->key);
	free(c);
}

uint64_t client_cert_id(const struct client_cert *c)
{
	return c->id;
}

int64_t client_cert_left_us(const struct client_cert *c)
{
	int days = 0, seconds = 0;

	if (ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(c->leaf)) != 1)
		return -1;
	return ((int64_t)days * 86400 + seconds) * 1000000;
}

int client_cert_use(const struct client_cert *c, SSL *ssl)
{
	/* Nothing is added from upstream.trust. */
	SSL_set_mode(ssl, SSL_MODE_NO_AUTO_CHAIN);
	return SSL_use_cert_and_key(ssl, c->leaf, c->key, c->chain, 1) == 1 ? 0 : -1;
}
