/*
 * See leaf_blank.h. What comes is read with a library context that has no algorithms: then OpenSSL
 * leaves its key as bytes. The copy counts only if it has the very bytes that came; else, and where
 * there is no blank, they are read the long way.
 */
#include "certs/leaf_blank.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/provider.h>

#include "certs/tls_err.h"
#include "logging/limits.h"

struct leaf_blanks {
	/* owned */
	OSSL_LIB_CTX *bare;
	OSSL_PROVIDER *null;
	X509 *blanks[LIMIT_LEAF_BLANKS]; /* under the lock */
	/* counted */
	EVP_PKEY *key;
	/* plain */
	pthread_mutex_t lock;
	size_t n; /* under the lock */
};

int leaf_blanks_new(EVP_PKEY *key, struct leaf_blanks **ret, struct err *e)
{
	struct leaf_blanks *b = calloc(1, sizeof(*b));

	if (!b)
		return err_set(e, "out of memory");
	if (pthread_mutex_init(&b->lock, NULL) != 0) {
		free(b);
		return err_set(e, "out of memory");
	}
	if (EVP_PKEY_up_ref(key))
		b->key = key;
	b->bare = OSSL_LIB_CTX_new();
	b->null = b->bare ? OSSL_PROVIDER_load(b->bare, "null") : NULL;
	if (!b->key || !b->null) {
		leaf_blanks_free(b);
		return tls_err(e, REASON_NONE, "cannot prepare the reading of leaves");
	}
	*ret = b;
	return 0;
}

void leaf_blanks_free(struct leaf_blanks *b)
{
	if (!b)
		return;
	for (size_t i = 0; i < b->n; i++)
		X509_free(b->blanks[i]);
	EVP_PKEY_free(b->key);
	if (b->null)
		(void)OSSL_PROVIDER_unload(b->null);
	OSSL_LIB_CTX_free(b->bare);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

static X509 *take(struct leaf_blanks *b)
{
	X509 *x;

	pthread_mutex_lock(&b->lock);
	x = b->n > 0 ? b->blanks[--b->n] : NULL;
	pthread_mutex_unlock(&b->lock);
	return x;
}

/* OpenSSL has no call that sets a signature which was made elsewhere; what these calls give is the
 * certificate's own. */
static int copy_signature(X509 *to, const X509 *from)
{
	const ASN1_BIT_STRING *sig, *own_sig;
	const X509_ALGOR *alg, *own_alg;

	X509_get0_signature(&sig, &alg, from);
	X509_get0_signature(&own_sig, &own_alg, to);
	return ASN1_STRING_copy((ASN1_BIT_STRING *)(uintptr_t)own_sig, sig) == 1 &&
	       X509_ALGOR_copy((X509_ALGOR *)(uintptr_t)own_alg, alg) == 1 &&
	       X509_ALGOR_copy((X509_ALGOR *)(uintptr_t)X509_get0_tbs_sigalg(to),
			       X509_get0_tbs_sigalg(from)) == 1;
}

static bool fill(X509 *to, X509 *from)
{
	if (X509_set_version(to, X509_get_version(from)) != 1 ||
	    X509_set_serialNumber(to, X509_get_serialNumber(from)) != 1 ||
	    X509_set_issuer_name(to, X509_get_issuer_name(from)) != 1 ||
	    X509_set_subject_name(to, X509_get_subject_name(from)) != 1 ||
	    X509_set1_notBefore(to, X509_get0_notBefore(from)) != 1 ||
	    X509_set1_notAfter(to, X509_get0_notAfter(from)) != 1)
		return false;
	for (int i = 0; i < X509_get_ext_count(from); i++)
		if (X509_add_ext(to, X509_get_ext(from, i), -1) != 1)
			return false;
	return copy_signature(to, from);
}

static bool is_same(X509 *x, struct str der)
{
	unsigned char *own = NULL;
	int n = i2d_X509(x, &own);
	bool same = n >= 0 && (size_t)n == der.n && memcmp(own, der.p, der.n) == 0;

	OPENSSL_free(own);
	return same;
}

/* NULL: not in this way. x is taken over. */
static X509 *read_into(X509 *x, const struct leaf_blanks *b, struct str der)
{
	const unsigned char *p = (const unsigned char *)der.p;
	X509 *bare = X509_new_ex(b->bare, NULL);

	/* d2i frees it, and forgets it, where that is no certificate. */
	if (bare && d2i_X509(&bare, &p, (long)der.n) && fill(x, bare) && is_same(x, der)) {
		X509_free(bare);
		return x;
	}
	X509_free(bare);
	X509_free(x);
	return NULL;
}

X509 *leaf_blanks_read(struct leaf_blanks *b, struct str der)
{
	const unsigned char *p = (const unsigned char *)der.p;
	X509 *x = take(b);

	if (x)
		x = read_into(x, b, der);
	return x ? x : d2i_X509(NULL, &p, (long)der.n);
}

static X509 *make(const struct leaf_blanks *b)
{
	X509 *x = X509_new();

	if (x && X509_set_pubkey(x, b->key) == 1)
		return x;
	X509_free(x);
	return NULL;
}

void leaf_blanks_refill(struct leaf_blanks *b)
{
	for (size_t i = 0; i < LIMIT_LEAF_BLANKS; i++) {
		bool full;
		X509 *x;

		pthread_mutex_lock(&b->lock);
		full = b->n == LIMIT_LEAF_BLANKS;
		pthread_mutex_unlock(&b->lock);
		x = full ? NULL : make(b);
		/* Nobody was promised one. */
		if (!x) {
			ERR_clear_error();
			return;
		}
		pthread_mutex_lock(&b->lock);
		if (b->n < LIMIT_LEAF_BLANKS) {
			b->blanks[b->n++] = x;
			x = NULL;
		}
		pthread_mutex_unlock(&b->lock);
		X509_free(x);
	}
}
