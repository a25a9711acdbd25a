/*
 * See root_lookup.h. At the start the text is decoded and the subject of each certificate is read
 * out of its bytes; what is dear, the key above all, waits. The store keeps what was taken apart.
 */
#include "certs/root_lookup.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/asn1.h>
#include <openssl/err.h>
#include <openssl/x509.h>

#include "certs/roots.h"
#include "certs/tls_err.h"

struct root {
	/* owned */
	unsigned char *der;
	X509_NAME *name;
	X509 *cert; /* NULL: not taken apart yet, or it cannot be */
	/* plain */
	size_t n;
};

struct roots {
	/* owned */
	struct root *v;
	pthread_mutex_t lock;
	/* plain */
	size_t n, cap;
};

/* Steps into the value at *at, which ends at end, if it is of that class and tag. *ret_end: where
 * it ends itself. */
static int enter(const unsigned char **at, const unsigned char *end, int tag, int class,
		 const unsigned char **ret_end)
{
	long n;
	int got_tag, got_class;
	const unsigned char *p = *at;

	/* 0x80: an error; 1: of indefinite length, which DER has not. */
	if (p >= end || (ASN1_get_object(&p, &n, &got_tag, &got_class, end - p) & 0x81) != 0 ||
	    got_tag != tag || got_class != class)
		return -1;
	*at = p;
	*ret_end = p + n;
	return 0;
}

static int skip(const unsigned char **at, const unsigned char *end, int tag, int class)
{
	const unsigned char *behind;

	if (enter(at, end, tag, class, &behind) != 0)
		return -1;
	*at = behind;
	return 0;
}

/* RFC 5280 section 4.1: the subject is the sixth of a TBSCertificate, behind an optional version.
 */
static X509_NAME *read_subject(const struct root *r)
{
	/* serial number, algorithm, issuer, validity */
	static const int before[] = {V_ASN1_INTEGER, V_ASN1_SEQUENCE, V_ASN1_SEQUENCE,
				     V_ASN1_SEQUENCE};
	const unsigned char *at = r->der, *end = r->der + r->n;

	for (int depth = 0; depth < 2; depth++)
		if (enter(&at, end, V_ASN1_SEQUENCE, V_ASN1_UNIVERSAL, &end) != 0)
			return NULL;
	(void)skip(&at, end, 0, V_ASN1_CONTEXT_SPECIFIC);
	for (size_t i = 0; i < ARRAY_LEN(before); i++)
		if (skip(&at, end, before[i], V_ASN1_UNIVERSAL) != 0)
			return NULL;
	return d2i_X509_NAME(NULL, &at, end - at);
}

static int keep(struct str der, void *arg, struct err *e)
{
	struct roots *all = arg;
	struct root r = {.n = der.n};

	if (all->n == all->cap) {
		size_t cap = all->cap ? 2 * all->cap : 256;
		void *grown = realloc(all->v, cap * sizeof(*all->v));

		if (!grown)
			return err_set(e, "out of memory");
		all->v = grown;
		all->cap = cap;
	}
	r.der = malloc(der.n ? der.n : 1);
	if (!r.der)
		return err_set(e, "out of memory");
	memcpy(r.der, der.p, der.n);
	r.name = read_subject(&r);
	if (!r.name) {
		free(r.der);
		return err_set(e, "certificate number %zu cannot be read", all->n + 1);
	}
	all->v[all->n++] = r;
	return 0;
}

static void roots_free(struct roots *all)
{
	if (!all)
		return;
	for (size_t i = 0; i < all->n; i++) {
		free(all->v[i].der);
		X509_NAME_free(all->v[i].name);
		X509_free(all->v[i].cert);
	}
	free(all->v);
	pthread_mutex_destroy(&all->lock);
	free(all);
}

/* Into the store. NULL: it is no certificate. */
static X509 *take_one(struct root *r, X509_STORE *store)
{
	const unsigned char *at = r->der;

	if (!r->cert)
		r->cert = d2i_X509_AUX(NULL, &at, (long)r->n);
	return r->cert && X509_STORE_add_cert(store, r->cert) == 1 ? r->cert : NULL;
}

/* The one of that name. */
static X509 *take(struct roots *all, X509_STORE *store, const X509_NAME *name)
{
	for (size_t i = 0; i < all->n; i++)
		if (X509_NAME_cmp(all->v[i].name, name) == 0)
			return take_one(&all->v[i], store);
	return NULL;
}

static int by_name(const void *a, const void *b)
{
	return X509_NAME_cmp(((const struct root *)a)->name, ((const struct root *)b)->name);
}

/* Where several have one name, a thread could come upon the first of them in the store while
 * another is about to add the second: these are there from the start. */
static int take_twins(struct roots *all, X509_STORE *store, struct err *e)
{
	if (all->n > 1)
		qsort(all->v, all->n, sizeof(*all->v), by_name);
	for (size_t i = 0; i < all->n; i++)
		if ((i > 0 && by_name(&all->v[i - 1], &all->v[i]) == 0) ||
		    (i + 1 < all->n && by_name(&all->v[i], &all->v[i + 1]) == 0))
			if (!take_one(&all->v[i], store))
				return tls_err(e, REASON_NONE, "a certificate cannot be read");
	return 0;
}

/* OpenSSL's: 1 with *ret, which it does not own, or 0. On any thread. */
static int by_subject(X509_LOOKUP *lookup, X509_LOOKUP_TYPE type, const X509_NAME *name,
		      X509_OBJECT *ret)
{
	struct roots *all = X509_LOOKUP_get_method_data(lookup);
	X509 *found;

	if (type != X509_LU_X509 || !all)
		return 0;
	(void)ERR_set_mark();
	pthread_mutex_lock(&all->lock);
	found = take(all, X509_LOOKUP_get_store(lookup), name);
	pthread_mutex_unlock(&all->lock);
	(void)ERR_pop_to_mark();
	if (!found || X509_OBJECT_set1_X509(ret, found) != 1)
		return 0;
	/* That one counted it, and what is given back here is taken for the store's. */
	X509_free(found);
	return 1;
}

static void on_free(X509_LOOKUP *lookup)
{
	roots_free(X509_LOOKUP_get_method_data(lookup));
}

static X509_LOOKUP_METHOD *method; /* one for the process; made when it is first needed */
static pthread_mutex_t method_lock = PTHREAD_MUTEX_INITIALIZER;

/* NULL: out of memory, this time. */
static X509_LOOKUP_METHOD *get_method(void)
{
	X509_LOOKUP_METHOD *m;

	pthread_mutex_lock(&method_lock);
	m = method ? method : X509_LOOKUP_meth_new("stile roots");
	if (m && !method &&
	    (X509_LOOKUP_meth_set_get_by_subject(m, by_subject) != 1 ||
	     X509_LOOKUP_meth_set_free(m, on_free) != 1)) {
		X509_LOOKUP_meth_free(m);
		m = NULL;
	}
	method = m;
	pthread_mutex_unlock(&method_lock);
	return m;
}

int root_lookup_add(X509_STORE *store, struct str pem, struct err *e)
{
	struct roots *all = calloc(1, sizeof(*all));
	X509_LOOKUP_METHOD *m = get_method();
	X509_LOOKUP *lookup;

	if (!all)
		return err_set(e, "out of memory");
	pthread_mutex_init(&all->lock, NULL);
	if (roots_each(pem, keep, all, e) != 0 || take_twins(all, store, e) != 0) {
		roots_free(all);
		return -1;
	}
	lookup = all->n > 0 && m ? X509_STORE_add_lookup(store, m) : NULL;
	if (!lookup || X509_LOOKUP_set_method_data(lookup, all) != 1) {
		roots_free(all);
		return tls_err(e, REASON_NONE, "no certificate can be used");
	}
	return 0;
}
