/*
 * A leaf, field by field as a client reads it back, under OpenSSL's strict rules; the names that
 * must never get one; and how long it lives.
 */
#include "pki.h"

#include <unistd.h>

#include "certs/leaf.h"

struct fixture {
	struct ca *ca;
	struct leaf_maker *maker;
};

static struct fixture fx;

static int set_up(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	if (ca_new_memory(LIMIT_CA_RUN_DAYS, &fx.ca, &e) != 0)
		return -1;
	return leaf_maker_new(fx.ca, &fx.maker, &e);
}

static int tear_down(void **state)
{
	(void)state;
	leaf_maker_free(fx.maker);
	ca_unref(fx.ca);
	return 0;
}

static struct leaf *make(const char *text, const unsigned char *ip, size_t ip_len, time_t now)
{
	struct leaf_name name = {str_from_c(text), ip, ip_len};
	struct err e = ERR_INIT;
	struct leaf_key key;
	struct leaf *l;

	assert_int_equal(leaf_key_init(&key, &name, &e), 0);
	assert_int_equal(leaf_make(fx.maker, &key, name.text, now, &l, &e), 0);
	return l;
}

/* 0, or the X509_V_ERR that a strict client finds. */
static int strict(X509 *x, const char *host, const unsigned char *ip, size_t ip_len)
{
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	X509_VERIFY_PARAM *param;
	int err;

	assert_int_equal(X509_STORE_add_cert(store, ca_cert(fx.ca)), 1);
	assert_int_equal(X509_STORE_CTX_init(ctx, store, x, NULL), 1);
	param = X509_STORE_CTX_get0_param(ctx);
	X509_VERIFY_PARAM_set_flags(param,
				    X509_V_FLAG_X509_STRICT | X509_V_FLAG_CHECK_SS_SIGNATURE);
	X509_VERIFY_PARAM_set_auth_level(param, 2);
	X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_SERVER);
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	if (host)
		assert_int_equal(X509_VERIFY_PARAM_set1_host(param, host, 0), 1);
	if (ip)
		assert_int_equal(X509_VERIFY_PARAM_set1_ip(param, ip, ip_len), 1);
	X509_verify_cert(ctx);
	err = X509_STORE_CTX_get_error(ctx);
	X509_STORE_CTX_free(ctx);
	X509_STORE_free(store);
	return err;
}

static bool is_critical(X509 *x, int nid)
{
	int at = X509_get_ext_by_NID(x, nid, -1);

	assert_true(at >= 0);
	assert_int_equal(X509_get_ext_by_NID(x, nid, at), -1);
	return X509_EXTENSION_get_critical(X509_get_ext(x, at));
}

static void fields(void **state)
{
	struct leaf *l = make("api.example.com", NULL, 0, time(NULL));
	X509 *x = leaf_cert(l);
	AUTHORITY_KEYID *aki = X509_get_ext_d2i(x, NID_authority_key_identifier, NULL, NULL);
	unsigned char md[EVP_MAX_MD_SIZE];
	unsigned md_len;
	char text[64];

	(void)state;
	assert_int_equal(strict(x, "api.example.com", NULL, 0), X509_V_OK);
	assert_int_equal(strict(x, "b.example.com", NULL, 0), X509_V_ERR_HOSTNAME_MISMATCH);
	assert_int_equal(X509_get_version(x), X509_VERSION_3);
	assert_int_equal(X509_get_ext_count(x), 6);
	assert_int_equal(ASN1_STRING_length(X509_get0_serialNumber(x)), 16);
	assert_int_equal(ASN1_STRING_type(X509_get0_serialNumber(x)), V_ASN1_INTEGER);
	assert_int_equal(X509_get_signature_nid(x), NID_ecdsa_with_SHA256);
	assert_int_equal(X509_NAME_cmp(X509_get_issuer_name(x),
				       X509_get_subject_name(ca_cert(fx.ca))),
			 0);
	X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, text, sizeof(text));
	assert_string_equal(text, "api.example.com");
	EVP_PKEY_get_group_name(X509_get0_pubkey(x), text, sizeof(text), NULL);
	assert_string_equal(text, "prime256v1");

	assert_int_equal(X509_check_ca(x), 0);
	assert_true(is_critical(x, NID_basic_constraints));
	assert_int_equal(X509_get_key_usage(x), KU_DIGITAL_SIGNATURE);
	assert_true(is_critical(x, NID_key_usage));
	assert_int_equal(X509_get_extended_key_usage(x), XKU_SSL_SERVER);
	assert_non_null(aki);
	assert_null(aki->issuer);
	assert_null(aki->serial);
	assert_int_equal(ASN1_OCTET_STRING_cmp(aki->keyid,
					       X509_get0_subject_key_id(ca_cert(fx.ca))),
			 0);
	AUTHORITY_KEYID_free(aki);
	assert_int_equal(X509_pubkey_digest(x, EVP_sha1(), md, &md_len), 1);
	assert_int_equal(ASN1_STRING_length(X509_get0_subject_key_id(x)), md_len);
	assert_memory_equal(ASN1_STRING_get0_data(X509_get0_subject_key_id(x)), md, md_len);
	assert_false(is_critical(x, NID_subject_alt_name));
	leaf_unref(l);
}

/* The one name of the subjectAltName. */
static void check_san(X509 *x, int type, const void *value, size_t n)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
	const GENERAL_NAME *gn;
	int got_type;
	const ASN1_STRING *s;

	assert_int_equal(sk_GENERAL_NAME_num(names), 1);
	gn = sk_GENERAL_NAME_value(names, 0);
	s = GENERAL_NAME_get0_value(gn, &got_type);
	assert_int_equal(got_type, type);
	assert_int_equal(ASN1_STRING_length(s), n);
	assert_memory_equal(ASN1_STRING_get0_data(s), value, n);
	GENERAL_NAMES_free(names);
}

static void kinds_of_name(void **state)
{
	static const unsigned char v4[] = {127, 0, 0, 1};
	static const unsigned char v6[16] = {[15] = 1};
	struct leaf *l;

	(void)state;
	l = make("127.0.0.1", v4, 4, time(NULL));
	check_san(leaf_cert(l), GEN_IPADD, v4, 4);
	assert_int_equal(strict(leaf_cert(l), NULL, v4, 4), X509_V_OK);
	assert_int_equal(strict(leaf_cert(l), "127.0.0.1", NULL, 0), X509_V_ERR_HOSTNAME_MISMATCH);
	leaf_unref(l);
	l = make("::1", v6, 16, time(NULL));
	check_san(leaf_cert(l), GEN_IPADD, v6, 16);
	assert_int_equal(strict(leaf_cert(l), NULL, v6, 16), X509_V_OK);
	leaf_unref(l);
	l = make("My_Host.EXAMPLE.com", NULL, 0, time(NULL));
	check_san(leaf_cert(l), GEN_DNS, "my_host.example.com", 19);
	leaf_unref(l);
}

/* A name beyond 64 bytes cannot stand in the subject; then the SAN alone says who it is. */
static void long_name(void **state)
{
	char host[LIMIT_HOST_BYTES + 1];
	struct leaf *l;

	(void)state;
	for (size_t n = 63; n <= 66; n++) {
		memset(host, 'a', n);
		host[30] = '.';
		host[n] = '\0';
		l = make(host, NULL, 0, time(NULL));
		assert_int_equal(X509_NAME_entry_count(X509_get_subject_name(leaf_cert(l))),
				 n <= 64);
		assert_int_equal(is_critical(leaf_cert(l), NID_subject_alt_name), n > 64);
		assert_int_equal(strict(leaf_cert(l), host, NULL, 0), X509_V_OK);
		leaf_unref(l);
	}
	memset(host, 'a', LIMIT_HOST_BYTES);
	for (size_t i = 60; i < LIMIT_HOST_BYTES; i += 60)
		host[i] = '.';
	host[LIMIT_HOST_BYTES] = '\0';
	l = make(host, NULL, 0, time(NULL));
	assert_int_equal(strict(leaf_cert(l), host, NULL, 0), X509_V_OK);
	leaf_unref(l);
}

static void refused_names(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} bad[] = {
		{"", 0},      {".", 1},	     {"a..b", 4},	{".a", 2},    {"a.", 2},
		{"*.a.b", 5}, {"*", 1},	     {"a b", 3},	{"a\nb", 3},  {"a\0b.c", 5},
		{"a,b", 3},   {"DNS:a", 5},  {"1.2.3.4", 7},	{"::1", 3},   {"[::1]", 5},
		{"a/b", 3},   {"a\x80z", 3}, {"\xc3\xa4.d", 4}, {"a:443", 5}, {"@a", 2},
	};
	char longest[LIMIT_HOST_BYTES + 2];
	struct leaf_key key;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct leaf_name name = {str_from(bad[i].p, bad[i].n), NULL, 0};

		if (leaf_key_init(&key, &name, &e) != -1)
			fail_msg("case %zu was taken", i);
		assert_int_equal(e.reason, REASON_INTERNAL_ERROR);
	}
	memset(longest, 'a', sizeof(longest));
	assert_int_equal(leaf_key_init(&key,
				       &(struct leaf_name){str_from(longest, sizeof(longest) - 1),
							   NULL, 0},
				       &e),
			 -1);
	for (size_t n = 0; n <= 17; n++)
		assert_int_equal(leaf_key_init(&key,
					       &(struct leaf_name){STR("x"),
								   (const unsigned char *)longest,
								   n},
					       &e),
				 n == 4 || n == 16 ? 0 : -1);
}

/* Two spellings that mean one host share a leaf; an address and a name never do. */
static void keys(void **state)
{
	struct leaf_key a, b;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(leaf_key_init(&a, &(struct leaf_name){STR("A.test"), NULL, 0}, &e), 0);
	assert_int_equal(leaf_key_init(&b, &(struct leaf_name){STR("a.TEST"), NULL, 0}, &e), 0);
	assert_int_equal(a.len, b.len);
	assert_memory_equal(a.bytes, b.bytes, a.len);
	assert_int_equal(leaf_key_init(&a, &(struct leaf_name){STR("aaaa"), NULL, 0}, &e), 0);
	assert_int_equal(
		leaf_key_init(&b, &(struct leaf_name){STR("x"), (const unsigned char *)"aaaa", 4},
			      &e),
		0);
	assert_int_equal(a.len, b.len);
	assert_memory_not_equal(a.bytes, b.bytes, a.len);
}

static long diff(const ASN1_TIME *from, const ASN1_TIME *to)
{
	int days, secs;

	assert_int_equal(ASN1_TIME_diff(&days, &secs, from, to), 1);
	return days * DAY + secs;
}

static void life(void **state)
{
	const long life = LIMIT_LEAF_DAYS * DAY;
	time_t now = time(NULL);
	struct leaf *l = make("a.test", NULL, 0, now);
	X509 *x = leaf_cert(l);
	ASN1_TIME *t = ASN1_TIME_set(NULL, now);
	struct err e = ERR_INIT;
	struct leaf_key key;
	time_t ca_end, late;

	(void)state;
	assert_int_equal(diff(X509_get0_notBefore(x), t), 3600);
	/* Both ends count, so the span is a second more than the difference. */
	assert_int_equal(diff(X509_get0_notBefore(x), X509_get0_notAfter(x)) + 1, life);
	assert_int_equal(l->usable_from, now - 3600);
	assert_int_equal(l->renew_at, now - 3600 + life - 1 - life / 4);
	leaf_unref(l);

	/* Near the CA's end: cut to it, and not re-made in vain. */
	ASN1_TIME_free(t);
	t = ASN1_TIME_set(NULL, now);
	ca_end = now + diff(t, X509_get0_notAfter(ca_cert(fx.ca)));
	ASN1_TIME_free(t);
	for (late = ca_end - 5 * DAY; late < ca_end; late += DAY) {
		l = make("a.test", NULL, 0, late);
		assert_int_equal(ASN1_TIME_compare(X509_get0_notAfter(leaf_cert(l)),
						   X509_get0_notAfter(ca_cert(fx.ca))),
				 0);
		assert_int_equal(l->renew_at, ca_end);
		leaf_unref(l);
	}
	assert_int_equal(leaf_key_init(&key, &(struct leaf_name){STR("a"), NULL, 0}, &e), 0);
	assert_int_equal(leaf_make(fx.maker, &key, STR("a"), ca_end, &l, &e), -1);
	assert_says(e.text, "stile ca rotate");
}

/* The same with the tool that an auditor would use. */
static void openssl_verify(void **state)
{
	char ca_file[] = "/tmp/stile-ca-XXXXXX", leaf_file[] = "/tmp/stile-leaf-XXXXXX", cmd[256];
	struct leaf *l = make("a.example.com", NULL, 0, time(NULL));
	X509 *certs[] = {ca_cert(fx.ca), leaf_cert(l)};

	(void)state;
	if (system("command -v openssl >/dev/null") != 0) {
		leaf_unref(l);
		skip();
	}
	close(mkstemp(ca_file));
	close(mkstemp(leaf_file));
	pki_write(ca_file, certs, 1);
	pki_write(leaf_file, certs + 1, 1);
	snprintf(cmd, sizeof(cmd),
		 "openssl verify -x509_strict -purpose sslserver -verify_hostname a.example.com "
		 "-CAfile %s %s >/dev/null",
		 ca_file, leaf_file);
	assert_int_equal(system(cmd), 0);
	remove(ca_file);
	remove(leaf_file);
	leaf_unref(l);
}

/* A CA with an RSA key, and one whose key hashes by itself. */
static void other_cas(void **state)
{
	struct pki_pair root =
		pki_make(&(struct pki_spec){.cn = "r", .ca = true, .rsa_bits = 2048});
	char dir[] = "/tmp/stile-ca-XXXXXX", file[64], cmd[128];
	struct fixture keep = fx;
	struct err e = ERR_INIT;
	struct leaf *l;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/ca.pem", dir);
	pki_write(file, &root.cert, 1);
	snprintf(file, sizeof(file), "%s/ca.key", dir);
	f = fopen(file, "w");
	PEM_write_PrivateKey(f, root.key, NULL, NULL, 0, NULL, NULL);
	fclose(f);
	snprintf(cmd, sizeof(cmd), "chmod 600 %s", file);
	assert_int_equal(system(cmd), 0);
	assert_int_equal(ca_load(dir, &fx.ca, &e), 0);
	assert_int_equal(leaf_maker_new(fx.ca, &fx.maker, &e), 0);
	l = make("a.test", NULL, 0, time(NULL));
	assert_int_equal(strict(leaf_cert(l), "a.test", NULL, 0), X509_V_OK);
	leaf_unref(l);
	leaf_maker_free(fx.maker);
	ca_unref(fx.ca);
	fx = keep;
	pki_free(&root);
	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	assert_int_equal(system(cmd), 0);
}

static void speed(void **state)
{
	enum { N = 2000 };
	uint64_t t = pki_ns();

	(void)state;
	for (int i = 0; i < N; i++)
		leaf_unref(make("api.example.com", NULL, 0, time(NULL)));
	print_message("a leaf is signed in %.1f us\n", (double)(pki_ns() - t) / 1000 / N);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields),	  cmocka_unit_test(kinds_of_name),
		cmocka_unit_test(long_name),	  cmocka_unit_test(refused_names),
		cmocka_unit_test(keys),		  cmocka_unit_test(life),
		cmocka_unit_test(openssl_verify), cmocka_unit_test(other_cas),
		cmocka_unit_test(speed),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
