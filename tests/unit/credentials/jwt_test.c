/*
 * Tokens: base64url in both directions, signatures that OpenSSL itself verifies, and the table of
 * tokens that sandboxes have of their own. What others make of a token is tested in
 * tests/integration/test_jwt.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <unistd.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/credentials/encode.h"
#include "proxy/credentials/jwt.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"

/* A private key in PEM, made here, as bytes that outlive the call. */
static struct str make_pem(EVP_PKEY **ret, const char *type, const char *curve)
{
	static char text[2][1024];
	static unsigned which;
	EVP_PKEY *k = curve ? EVP_PKEY_Q_keygen(NULL, NULL, type, curve)
			    : EVP_PKEY_Q_keygen(NULL, NULL, type);
	BIO *bio = BIO_new(BIO_s_mem());
	char *at = text[which++ % 2];
	int n;

	assert_non_null(k);
	assert_int_equal(PEM_write_bio_PrivateKey(bio, k, NULL, NULL, 0, NULL, NULL), 1);
	n = BIO_read(bio, at, sizeof(text[0]));
	BIO_free(bio);
	*ret = k;
	return str_from(at, (size_t)n);
}

static void test_base64url(void **state)
{
	static const struct {
		const char *bytes, *text;
	} known[] = {
		{"", ""},
		{"f", "Zg"},
		{"fo", "Zm8"},
		{"foo", "Zm9v"},
		{"foob", "Zm9vYg"},
		{"\xfb\xff", "-_8"},
		{"{\"typ\"", "eyJ0eXAi"},
	};
	static const struct str wrong[] = {
		{"Z", 1},   {"Zg==", 4},  {"Zm8=", 4},	{"Zh", 2},    {"Zm9", 3},   {"+_8", 3},
		{"-/8", 3}, {"Zm9v.", 5}, {"Zm 9v", 5}, {"Zm\0v", 4}, {"Zm9vY", 5}, {"\xc3\xa4", 2},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		struct strbuf text, back;

		strbuf_init(&text, 64);
		strbuf_init(&back, 64);
		encode_base64url(&text, str_from_c(known[i].bytes));
		assert_string_equal(strbuf_cstr(&text), known[i].text);
		assert_int_equal(decode_base64url(str_from_c(known[i].text), &back), 0);
		assert_string_equal(strbuf_cstr(&back), known[i].bytes);
		strbuf_clear(&text);
		strbuf_clear(&back);
	}
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct strbuf back;

		strbuf_init(&back, 64);
		assert_int_equal(decode_base64url(wrong[i], &back), -1);
		strbuf_clear(&back);
	}
}

/* The number of one part of the token, decoded. */
static struct str part(struct str token, unsigned which, struct strbuf *out)
{
	struct str rest = token, p = STR_NONE;

	for (unsigned i = 0; i <= which; i++)
		p = str_split(&rest, '.');
	strbuf_reset(out);
	assert_int_equal(decode_base64url(p, out), 0);
	return strbuf_str(out);
}

static void test_eddsa(void **state)
{
	EVP_PKEY *public;
	struct str pem = make_pem(&public, "ED25519", NULL), signed_part;
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	struct jwt_key *key = NULL;
	struct secret *token = NULL;
	struct err e = ERR_INIT;
	struct strbuf text;
	struct str sig;

	(void)state;
	assert_int_equal(jwt_key_new(pem, NULL, &key, &e), 0);
	assert_int_equal(jwt_sign(key, "k\"1", STR("{\"a\":1}"), &token, &e), 0);
	strbuf_init(&text, 4096);
	assert_true(str_eq(part(secret_value(token), 0, &text),
			   STR("{\"alg\":\"EdDSA\",\"typ\":\"JWT\",\"kid\":\"k\\\"1\"}")));
	assert_true(str_eq(part(secret_value(token), 1, &text), STR("{\"a\":1}")));
	sig = part(secret_value(token), 2, &text);
	signed_part = secret_value(token);
	while (signed_part.p[signed_part.n - 1] != '.')
		signed_part.n--;
	signed_part.n--;
	assert_int_equal(EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, public), 1);
	assert_int_equal(EVP_DigestVerify(ctx, (const unsigned char *)sig.p, sig.n,
					  (const unsigned char *)signed_part.p, signed_part.n),
			 1);
	EVP_MD_CTX_free(ctx);
	EVP_PKEY_free(public);
	strbuf_clear(&text);
	secret_unref(token);
	jwt_key_unref(key);
}

static void test_es256_is_of_one_length(void **state)
{
	EVP_PKEY *public;
	struct str pem = make_pem(&public, "EC", "P-256");
	struct jwt_key *key = NULL;
	struct err e = ERR_INIT;
	struct strbuf text;

	(void)state;
	strbuf_init(&text, 4096);
	assert_int_equal(jwt_key_new(pem, "ES256", &key, &e), 0);
	/* A number that begins with a zero byte comes once in 128 times. */
	for (unsigned i = 0; i < 600; i++) {
		struct secret *token = NULL;

		assert_int_equal(jwt_sign(key, NULL, STR("{}"), &token, &e), 0);
		assert_int_equal(part(secret_value(token), 2, &text).n, 64);
		secret_unref(token);
	}
	strbuf_clear(&text);
	jwt_key_unref(key);
	EVP_PKEY_free(public);
}

static void test_no_payload(void **state)
{
	static const char *const wrong[] = {"",	     "a",	"a.b",	     ".",	 "..",
					    "a.e30", "a.W10.c", "a.e30.c.d", "a.e30=.c", "a.e.c"};
	struct err e = ERR_INIT;
	json_t *o;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		e = ERR_INIT;
		assert_null(jwt_payload(str_from_c(wrong[i]), &e));
		assert_int_equal(e.reason, REASON_CREDENTIAL_UNAVAILABLE);
	}
	o = jwt_payload(STR("a.e30.c"), &e);
	assert_non_null(o);
	json_decref(o);
}

/* ---- the mint ---- */

static char claims[] = "\"sub\":\"s-{sandbox}\"", plain_claims[] = "\"sub\":\"all\"";

static struct config_credential *credential(char *text, uint64_t ttl_ms)
{
	static struct config_credential c;
	static struct config_param params[1];

	params[0] = (struct config_param){.key = PARAM_CLAIMS, .text = text};
	c = (struct config_credential){.source = CREDENTIAL_FROM_JWT,
				       .params = params,
				       .params_n = 1,
				       .ttl_ms = ttl_ms};
	return &c;
}

static struct secret *secret_of(struct str value)
{
	struct secret *s = secret_copy(value);

	assert_non_null(s);
	return s;
}

static struct secret *new_pem(void)
{
	EVP_PKEY *k;
	struct secret *s = secret_of(make_pem(&k, "ED25519", NULL));

	EVP_PKEY_free(k);
	return s;
}

static struct secret *get(struct jwt_mint *m, struct secret *pem, const char *sandbox)
{
	struct secret *token = NULL;
	struct err e = ERR_INIT;

	if (jwt_mint_get(m, pem, str_from_c(sandbox), &token, &e) != 0)
		fail_msg("%s", e.text);
	return token;
}

static bool is_same(struct jwt_mint *m, struct secret *pem, const char *sandbox,
		    const struct secret *before)
{
	struct secret *now = get(m, pem, sandbox);
	bool same = str_eq(secret_value(now), secret_value(before));

	secret_unref(now);
	return same;
}

static void test_a_table_of_sandboxes(void **state)
{
	struct secret *pem = new_pem(), *other = new_pem(), *red, *blue, *token = NULL;
	struct jwt_mint *m = NULL;
	struct err e = ERR_INIT;
	struct strbuf text;

	(void)state;
	assert_int_equal(jwt_mint_new(credential(claims, 0), &m, &e), 0);
	assert_int_equal(jwt_mint_get(m, pem, STR_NONE, &token, &e), -1);
	assert_int_equal(e.reason, REASON_CREDENTIAL_UNAVAILABLE);
	red = get(m, pem, "red");
	blue = get(m, pem, "blue");
	strbuf_init(&text, 4096);
	assert_true(str_starts(part(secret_value(red), 1, &text), STR("{\"sub\":\"s-red\",")));
	assert_true(str_starts(part(secret_value(blue), 1, &text), STR("{\"sub\":\"s-blue\",")));
	assert_true(is_same(m, pem, "red", red));
	/* A name cannot end the text that it stands in. */
	token = get(m, pem, "a\",\"sub\":\"b");
	assert_true(str_starts(part(secret_value(token), 1, &text),
			       STR("{\"sub\":\"s-a\\\",\\\"sub\\\":\\\"b\",")));
	secret_unref(token);
	/* The oldest makes room, and only that. */
	for (unsigned i = 0; i < LIMIT_JWT_SANDBOXES - 2; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%u", i);
		secret_unref(get(m, pem, name));
	}
	assert_true(is_same(m, pem, "blue", blue));
	assert_false(is_same(m, pem, "red", red));
	/* Another key: nothing that the one before signed is handed out. */
	secret_unref(red);
	red = get(m, other, "red");
	assert_false(is_same(m, other, "blue", blue));
	assert_true(is_same(m, other, "red", red));
	strbuf_clear(&text);
	secret_unref(red);
	secret_unref(blue);
	secret_unref(pem);
	secret_unref(other);
	jwt_mint_free(m);
}

static void test_one_for_all(void **state)
{
	struct secret *pem = new_pem(), *first;
	struct jwt_mint *m = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(jwt_mint_new(credential(plain_claims, 0), &m, &e), 0);
	first = get(m, pem, "red");
	assert_true(is_same(m, pem, "blue", first) && is_same(m, pem, NULL, first));
	secret_unref(first);
	secret_unref(pem);
	jwt_mint_free(m);
}

static void test_half_a_life(void **state)
{
	struct secret *pem = new_pem(), *first;
	struct jwt_mint *m = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(jwt_mint_new(credential(plain_claims, 20), &m, &e), 0);
	first = get(m, pem, NULL);
	usleep(11000);
	assert_false(is_same(m, pem, NULL, first));
	secret_unref(first);
	secret_unref(pem);
	jwt_mint_free(m);
}

/* ---- many threads, two keys ---- */

struct swarm {
	struct jwt_mint *mint;
	struct secret *pems[2];
};

static void *swarm_run(void *arg)
{
	struct swarm *s = arg;
	size_t failed = 0;

	for (unsigned i = 0; i < 300; i++) {
		struct secret *token = NULL;
		char name[16];

		snprintf(name, sizeof(name), "n%u", i % 7);
		if (jwt_mint_get(s->mint, s->pems[i / 50 % 2], str_from_c(name), &token, NULL) != 0)
			failed++;
		else
			secret_unref(token);
	}
	return failed ? s : NULL;
}

static void test_threads(void **state)
{
	struct swarm s = {.pems = {new_pem(), new_pem()}};
	pthread_t threads[4];
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(jwt_mint_new(credential(claims, 0), &s.mint, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, swarm_run, &s), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
		void *bad;

		pthread_join(threads[i], &bad);
		assert_null(bad);
	}
	secret_unref(s.pems[0]);
	secret_unref(s.pems[1]);
	jwt_mint_free(s.mint);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_base64url),
		cmocka_unit_test(test_eddsa),
		cmocka_unit_test(test_es256_is_of_one_length),
		cmocka_unit_test(test_no_payload),
		cmocka_unit_test(test_a_table_of_sandboxes),
		cmocka_unit_test(test_one_for_all),
		cmocka_unit_test(test_half_a_life),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
