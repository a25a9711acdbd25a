/*
 * Roots that are taken apart when they are asked for: the same verdicts as with all of them in the
 * store, for made-up ones and for this system's own; damaged ones; many threads at once.
 */
#include "tests/unit/certs/pki.h"

#include <pthread.h>

#include "certs/root_lookup.h"
#include "certs/roots.h"

#define THREADS 8

static struct pki_pair root, twin, other, leaf, twin_leaf, other_leaf;

static void add_pem(struct strbuf *b, X509 *x)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *p;
	long n;

	assert_int_equal(PEM_write_bio_X509(bio, x), 1);
	n = BIO_get_mem_data(bio, &p);
	strbuf_add(b, str_from(p, (size_t)n));
	BIO_free(bio);
}

static int verify(X509_STORE *s, X509 *x)
{
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	int rc;

	assert_int_equal(X509_STORE_CTX_init(ctx, s, x, NULL), 1);
	rc = X509_verify_cert(ctx);
	X509_STORE_CTX_free(ctx);
	ERR_clear_error();
	return rc;
}

static X509_STORE *store_of(struct str pem)
{
	X509_STORE *s = X509_STORE_new();
	struct err e = ERR_INIT;

	assert_non_null(s);
	assert_int_equal(root_lookup_add(s, pem, &e), 0);
	return s;
}

static int setup(void **state)
{
	(void)state;
	root = pki_make(&(struct pki_spec){.cn = "A root", .ca = true});
	twin = pki_make(
		&(struct pki_spec){.cn = "A root", .ca = true}); /* the same name, another key */
	other = pki_make(&(struct pki_spec){.cn = "Another root", .ca = true});
	leaf = pki_make(&(struct pki_spec){.cn = "a.test", .issuer = &root});
	twin_leaf = pki_make(&(struct pki_spec){.cn = "b.test", .issuer = &twin});
	other_leaf = pki_make(&(struct pki_spec){.cn = "c.test", .issuer = &other});
	return 0;
}

static int teardown(void **state)
{
	struct pki_pair *all[] = {&root, &twin, &other, &leaf, &twin_leaf, &other_leaf};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		pki_free(all[i]);
	return 0;
}

static void only_its_own(void **state)
{
	struct strbuf pem;
	X509_STORE *s;

	(void)state;
	strbuf_init(&pem, ROOTS_BYTES_MAX);
	add_pem(&pem, root.cert);
	s = store_of(strbuf_str(&pem));
	strbuf_clear(&pem); /* it was copied */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(verify(s, leaf.cert), 1);
		assert_int_equal(verify(s, root.cert), 1);
		assert_int_equal(verify(s, other_leaf.cert), 0);
		/* The name is not enough. */
		assert_int_equal(verify(s, twin_leaf.cert), 0);
		assert_int_equal(verify(s, twin.cert), 0);
	}
	X509_STORE_free(s);
}

static void several_of_one_name(void **state)
{
	struct strbuf pem;
	X509_STORE *s;

	(void)state;
	strbuf_init(&pem, ROOTS_BYTES_MAX);
	add_pem(&pem, other.cert);
	add_pem(&pem, root.cert);
	add_pem(&pem, twin.cert);
	add_pem(&pem, root.cert);
	for (int i = 0; i < 2; i++) {
		s = store_of(strbuf_str(&pem));
		assert_int_equal(verify(s, i ? twin_leaf.cert : leaf.cert), 1);
		assert_int_equal(verify(s, i ? leaf.cert : twin_leaf.cert), 1);
		assert_int_equal(verify(s, other_leaf.cert), 1);
		X509_STORE_free(s);
	}
	strbuf_clear(&pem);
}

/* Each byte of a root is changed: it is no list any more, or it is no anchor for that leaf, or the
 * byte says nothing about its key. None is taken for another's anchor. */
static void damaged(void **state)
{
	unsigned char *der = NULL;
	int n = i2d_X509(root.cert, &der);
	struct err e = ERR_INIT;
	int refused = 0, kept = 0;

	(void)state;
	assert_true(n > 0);
	for (int i = 0; i < n; i++) {
		X509_STORE *s = X509_STORE_new();
		BIO *bio = BIO_new(BIO_s_mem());
		char *p;
		long len;

		der[i] ^= 0x55;
		assert_true(PEM_write_bio(bio, PEM_STRING_X509, "", der, n) > 0);
		len = BIO_get_mem_data(bio, &p);
		if (root_lookup_add(s, str_from(p, (size_t)len), &e) != 0) {
			refused++;
		} else {
			assert_int_equal(verify(s, other_leaf.cert), 0);
			assert_int_equal(verify(s, twin_leaf.cert), 0);
			(void)verify(s, leaf.cert);
			kept++;
		}
		der[i] ^= 0x55;
		BIO_free(bio);
		X509_STORE_free(s);
	}
	assert_true(refused > 5 && kept > 100);
	OPENSSL_free(der);
}

static void no_list(void **state)
{
	static const char *const bad[] = {
		"",
		"nothing",
		"-----BEGIN CERTIFICATE-----\n",
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
		"-----BEGIN CERTIFICATE-----\nMIAA\n-----END CERTIFICATE-----\n"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		X509_STORE *s = X509_STORE_new();
		struct err e = ERR_INIT;

		assert_int_equal(root_lookup_add(s, str_from_c(bad[i]), &e), -1);
		assert_true(e.text[0]);
		X509_STORE_free(s);
	}
}

struct whole {
	X509_STORE *all, *lazy;
	size_t n;
};

static int add_whole(struct str der, void *arg, struct err *e)
{
	struct whole *w = arg;
	const unsigned char *at = (const unsigned char *)der.p;
	X509 *x = d2i_X509_AUX(NULL, &at, (long)der.n);

	(void)e;
	assert_non_null(x);
	X509_STORE_add_cert(w->all, x);
	X509_free(x);
	w->n++;
	return 0;
}

static int compare(struct str der, void *arg, struct err *e)
{
	struct whole *w = arg;
	const unsigned char *at = (const unsigned char *)der.p;
	X509 *x = d2i_X509_AUX(NULL, &at, (long)der.n);

	(void)e;
	assert_int_equal(verify(w->all, x), verify(w->lazy, x));
	X509_free(x);
	return 0;
}

static void of_this_system(void **state)
{
	struct whole w = {.all = X509_STORE_new()};
	struct strbuf pem;
	struct err e = ERR_INIT;

	(void)state;
	strbuf_init(&pem, ROOTS_BYTES_MAX);
	assert_int_equal(roots_add_system(&pem, &e), 0);
	w.lazy = store_of(strbuf_str(&pem));
	assert_int_equal(roots_each(strbuf_str(&pem), add_whole, &w, &e), 0);
	assert_true(w.n > 0);
	assert_int_equal(roots_each(strbuf_str(&pem), compare, &w, &e), 0);
	assert_int_equal(verify(w.lazy, leaf.cert), 0);
	X509_STORE_free(w.all);
	X509_STORE_free(w.lazy);
	strbuf_clear(&pem);
}

static void *verify_some(void *store)
{
	size_t bad = 0;

	for (int i = 0; i < 50; i++)
		bad += verify(store, leaf.cert) != 1 || verify(store, twin_leaf.cert) != 1 ||
		       verify(store, other_leaf.cert) != 0;
	return bad ? store : NULL;
}

static void many_threads(void **state)
{
	pthread_t threads[THREADS];
	struct strbuf pem;
	X509_STORE *s;
	void *bad;

	(void)state;
	strbuf_init(&pem, ROOTS_BYTES_MAX);
	add_pem(&pem, root.cert);
	add_pem(&pem, twin.cert);
	s = store_of(strbuf_str(&pem));
	strbuf_clear(&pem);
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, verify_some, s), 0);
	for (size_t i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], &bad), 0);
		assert_null(bad);
	}
	X509_STORE_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_its_own),	  cmocka_unit_test(several_of_one_name),
		cmocka_unit_test(damaged),	  cmocka_unit_test(no_list),
		cmocka_unit_test(of_this_system), cmocka_unit_test(many_threads),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
