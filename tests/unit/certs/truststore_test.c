/*
 * The trust store for Java, read back with OpenSSL: every certificate once, each marked as trusted,
 * open to any password. Whether Java agrees is seen in tests/integration/test_trust.py.
 */
#include "pki.h"

#include <string.h>

#include <openssl/objects.h>
#include <openssl/pkcs12.h>

#include "certs/ca.h"
#include "certs/roots.h"
#include "certs/truststore.h"

#define TRUSTED_KEY_USAGE "2.16.840.1.113894.746875.1.1"

static struct pki_pair one, two;

static int set_up(void **state)
{
	(void)state;
	one = pki_make(&(struct pki_spec){.cn = "one", .ca = true});
	two = pki_make(&(struct pki_spec){.cn = "two", .ca = true});
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pki_free(&one);
	pki_free(&two);
	return 0;
}

static void add_pem(struct strbuf *b, X509 *x, const char *header)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *p;
	long n;

	assert_int_equal(PEM_write_bio_X509(bio, x), 1);
	n = BIO_get_mem_data(bio, &p);
	strbuf_adds(b, header);
	strbuf_add(b, str_from(p, (size_t)n));
	BIO_free(bio);
}

static void check_trusted(const PKCS12_SAFEBAG *bag)
{
	ASN1_OBJECT *want = OBJ_txt2obj(TRUSTED_KEY_USAGE, 1);
	const STACK_OF(X509_ATTRIBUTE) *attrs = PKCS12_SAFEBAG_get0_attrs(bag);
	int found = 0;

	for (int i = 0; i < sk_X509_ATTRIBUTE_num(attrs); i++) {
		X509_ATTRIBUTE *a = sk_X509_ATTRIBUTE_value(attrs, i);
		ASN1_TYPE *value = X509_ATTRIBUTE_get0_type(a, 0);

		if (OBJ_cmp(X509_ATTRIBUTE_get0_object(a), want) != 0)
			continue;
		assert_int_equal(X509_ATTRIBUTE_count(a), 1);
		assert_int_equal(ASN1_TYPE_get(value), V_ASN1_OBJECT);
		assert_int_equal(OBJ_obj2nid(value->value.object), NID_anyExtendedKeyUsage);
		found++;
	}
	assert_int_equal(found, 1);
	ASN1_OBJECT_free(want);
}

/* How many entries there are. *ret_alias: that of x, for the caller to free; NULL: not in it. */
static int read_back(const struct strbuf *store, const X509 *x, char **ret_alias)
{
	const unsigned char *at = (const unsigned char *)store->data;
	PKCS12 *p12 = d2i_PKCS12(NULL, &at, (long)store->len);
	STACK_OF(PKCS7) * safes;
	STACK_OF(PKCS12_SAFEBAG) * bags;
	int n;

	*ret_alias = NULL;
	assert_non_null(p12);
	assert_ptr_equal(at, (const unsigned char *)store->data + store->len);
	assert_int_equal(PKCS12_mac_present(p12), 0);
	safes = PKCS12_unpack_authsafes(p12);
	assert_int_equal(sk_PKCS7_num(safes), 1);
	/* Not encrypted. */
	bags = PKCS12_unpack_p7data(sk_PKCS7_value(safes, 0));
	n = sk_PKCS12_SAFEBAG_num(bags);
	for (int i = 0; i < n; i++) {
		PKCS12_SAFEBAG *bag = sk_PKCS12_SAFEBAG_value(bags, i);
		X509 *got = PKCS12_SAFEBAG_get1_cert(bag);

		assert_non_null(got);
		check_trusted(bag);
		if (X509_cmp(got, x) == 0)
			*ret_alias = PKCS12_get_friendlyname(bag);
		X509_free(got);
	}
	sk_PKCS12_SAFEBAG_pop_free(bags, PKCS12_SAFEBAG_free);
	sk_PKCS7_pop_free(safes, PKCS7_free);
	PKCS12_free(p12);
	return n;
}

static void each_once_and_trusted(void **state)
{
	struct strbuf pem, own, out, again;
	struct err e = ERR_INIT;
	char *alias;

	(void)state;
	strbuf_init(&pem, 65536);
	strbuf_init(&own, 65536);
	strbuf_init(&out, 65536);
	strbuf_init(&again, 65536);
	add_pem(&pem, one.cert, "# a comment\n");
	add_pem(&pem, two.cert, "");
	add_pem(&pem, one.cert, "\n");
	add_pem(&own, two.cert, "");
	if (truststore_add(strbuf_str(&pem), strbuf_str(&own), &out, &e) != 0)
		fail_msg("%s", e.text);
	assert_int_equal(read_back(&out, one.cert, &alias), 2);
	assert_non_null(alias);
	assert_int_equal(strncmp(alias, "root-", 5), 0);
	assert_int_equal(strlen(alias), 5 + 16);
	OPENSSL_free(alias);
	assert_int_equal(read_back(&out, two.cert, &alias), 2);
	assert_non_null(alias);
	assert_int_equal(strncmp(alias, "stile-", 6), 0);
	OPENSSL_free(alias);
	/* Behind what is there, and always the same. */
	strbuf_addc(&again, 'x');
	assert_int_equal(truststore_add(strbuf_str(&pem), strbuf_str(&own), &again, &e), 0);
	assert_true(str_eq(str_skip(strbuf_str(&again), 1), strbuf_str(&out)));
	strbuf_clear(&pem);
	strbuf_clear(&own);
	strbuf_clear(&out);
	strbuf_clear(&again);
}

/* OpenSSL's own form has purposes behind the certificate. */
static void trusted_form(void **state)
{
	BIO *bio = BIO_new(BIO_s_mem());
	struct strbuf out;
	struct err e = ERR_INIT;
	char *p, *alias;
	long n;

	(void)state;
	strbuf_init(&out, 65536);
	assert_int_equal(X509_add1_trust_object(one.cert, OBJ_nid2obj(NID_server_auth)), 1);
	assert_int_equal(PEM_write_bio_X509_AUX(bio, one.cert), 1);
	X509_trust_clear(one.cert);
	n = BIO_get_mem_data(bio, &p);
	assert_non_null(memmem(p, (size_t)n, "TRUSTED", 7));
	if (truststore_add(str_from(p, (size_t)n), STR_NONE, &out, &e) != 0)
		fail_msg("%s", e.text);
	assert_int_equal(read_back(&out, one.cert, &alias), 1);
	assert_non_null(alias);
	OPENSSL_free(alias);
	BIO_free(bio);
	strbuf_clear(&out);
}

static void what_is_no_bundle(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{"", "no certificate"},
		{"nothing in it\n", "no certificate"},
		{"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n", "cannot be read"},
		{"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		 "cannot be read"},
		{"-----BEGIN CERTIFICATE-----\nMIIB\n", "cannot be read"},
		{"-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n", "no certificate"},
	};
	struct strbuf out;

	(void)state;
	strbuf_init(&out, 65536);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(truststore_add(str_from_c(bad[i].text), STR_NONE, &out, &e), -1);
		if (!strstr(e.text, bad[i].says))
			fail_msg("%zu: %s", i, e.text);
		assert_int_equal(out.len, 0);
	}
	strbuf_clear(&out);
}

static void too_small_a_bound(void **state)
{
	struct strbuf pem, out;
	struct err e = ERR_INIT;

	(void)state;
	strbuf_init(&pem, 65536);
	strbuf_init(&out, 100);
	add_pem(&pem, one.cert, "");
	assert_int_equal(truststore_add(strbuf_str(&pem), STR_NONE, &out, &e), -1);
	assert_non_null(strstr(e.text, "no room"));
	strbuf_clear(&pem);
	strbuf_clear(&out);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_once_and_trusted),
		cmocka_unit_test(trusted_form),
		cmocka_unit_test(what_is_no_bundle),
		cmocka_unit_test(too_small_a_bound),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
