/*
 * For the tests of this folder: makes any certificate, good or bad, at run time, and lets two SSLs
 * talk through memory. Header-only, since each test is one file.
 */
#ifndef STILE_TESTS_CERTS_PKI_H
#define STILE_TESTS_CERTS_PKI_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#define PKI_UNUSED __attribute__((unused))
#define DAY	   86400L

struct pki_pair {
	X509 *cert;
	EVP_PKEY *key;
};

struct pki_spec {
	const char *cn;
	const char *san;     /* OpenSSL's spelling: "DNS:a.test,IP:127.0.0.1"; NULL: none */
	const char *raw_dns; /* one dNSName of raw_dns_n bytes, whatever they are */
	size_t raw_dns_n;
	long from, to; /* seconds from now; both 0: a day each way */
	bool ca;
	unsigned rsa_bits;	       /* 0: P-256 */
	const EVP_MD *md;	       /* NULL: SHA-256 */
	const struct pki_pair *issuer; /* NULL: self-signed */
	const char *eku;	       /* NULL: none */
	const char *constraints;       /* name constraints; NULL: none */
};

PKI_UNUSED static void pki_add_ext(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *ext;

	X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	assert_non_null(ext);
	assert_int_equal(X509_add_ext(x, ext, -1), 1);
	X509_EXTENSION_free(ext);
}

PKI_UNUSED static void pki_add_raw_dns(X509 *x, const char *p, size_t n)
{
	GENERAL_NAMES *names = GENERAL_NAMES_new();
	GENERAL_NAME *name = GENERAL_NAME_new();
	ASN1_IA5STRING *value = ASN1_IA5STRING_new();

	ASN1_STRING_set(value, p, (int)n);
	GENERAL_NAME_set0_value(name, GEN_DNS, value);
	sk_GENERAL_NAME_push(names, name);
	assert_int_equal(X509_add1_ext_i2d(x, NID_subject_alt_name, names, 0, 0), 1);
	GENERAL_NAMES_free(names);
}

PKI_UNUSED static struct pki_pair pki_make(const struct pki_spec *spec)
{
	struct pki_pair p;
	X509 *issuer;
	int64_t serial;

	p.key = spec->rsa_bits ? EVP_RSA_gen(spec->rsa_bits) : EVP_EC_gen("P-256");
	p.cert = X509_new();
	assert_non_null(p.key);
	assert_non_null(p.cert);
	issuer = spec->issuer ? spec->issuer->cert : p.cert;
	RAND_bytes((unsigned char *)&serial, sizeof(serial));
	ASN1_INTEGER_set_int64(X509_get_serialNumber(p.cert), serial & INT64_MAX);
	X509_set_version(p.cert, X509_VERSION_3);
	if (spec->cn)
		X509_NAME_add_entry_by_txt(X509_get_subject_name(p.cert), "CN", MBSTRING_UTF8,
					   (const unsigned char *)spec->cn, -1, -1, 0);
	X509_set_issuer_name(p.cert, X509_get_subject_name(issuer));
	X509_gmtime_adj(X509_getm_notBefore(p.cert), spec->from || spec->to ? spec->from : -DAY);
	X509_gmtime_adj(X509_getm_notAfter(p.cert), spec->from || spec->to ? spec->to : DAY);
	X509_set_pubkey(p.cert, p.key);
	pki_add_ext(p.cert, issuer, NID_basic_constraints,
		    spec->ca ? "critical,CA:TRUE" : "critical,CA:FALSE");
	pki_add_ext(p.cert, issuer, NID_subject_key_identifier, "hash");
	if (spec->ca)
		pki_add_ext(p.cert, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
	if (spec->issuer)
		pki_add_ext(p.cert, issuer, NID_authority_key_identifier, "keyid:always");
	if (spec->san)
		pki_add_ext(p.cert, issuer, NID_subject_alt_name, spec->san);
	if (spec->raw_dns)
		pki_add_raw_dns(p.cert, spec->raw_dns, spec->raw_dns_n);
	if (spec->eku)
		pki_add_ext(p.cert, issuer, NID_ext_key_usage, spec->eku);
	if (spec->constraints)
		pki_add_ext(p.cert, issuer, NID_name_constraints, spec->constraints);
	assert_true(X509_sign(p.cert, spec->issuer ? spec->issuer->key : p.key,
			      spec->md ? spec->md : EVP_sha256()) > 0);
	return p;
}

PKI_UNUSED static void pki_free(struct pki_pair *p)
{
	X509_free(p->cert);
	EVP_PKEY_free(p->key);
}

/* Makes a file in dir that holds these certificates. */
PKI_UNUSED static void pki_write(const char *path, X509 *const *certs, size_t n)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(PEM_write_X509(f, certs[i]), 1);
	assert_int_equal(fclose(f), 0);
}

PKI_UNUSED static SSL_CTX *pki_server_ctx(const struct pki_pair *leaf, X509 *intermediate)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

	assert_non_null(ctx);
	/* Whatever it is told to serve, it serves. */
	SSL_CTX_set_security_level(ctx, 0);
	SSL_CTX_set_mode(ctx, SSL_MODE_NO_AUTO_CHAIN);
	assert_int_equal(SSL_CTX_use_certificate(ctx, leaf->cert), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(ctx, leaf->key), 1);
	if (intermediate)
		assert_int_equal(SSL_CTX_add1_chain_cert(ctx, intermediate), 1);
	SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"t", 1);
	return ctx;
}

/* Joins two SSLs by memory. */
PKI_UNUSED static void pki_join(SSL *a, SSL *b)
{
	BIO *to_a, *to_b;

	assert_int_equal(BIO_new_bio_pair(&to_a, 65536, &to_b, 65536), 1);
	SSL_set_bio(a, to_a, to_a);
	SSL_set_bio(b, to_b, to_b);
}

PKI_UNUSED static bool pki_wants_more(SSL *ssl, int rc)
{
	int err = SSL_get_error(ssl, rc);

	return err == SSL_ERROR_WANT_READ || err == SSL_ERROR_WANT_WRITE;
}

/* Drives both sides. *ret_failed is the first that failed, whose errors are then in the queue. */
PKI_UNUSED static bool pki_handshake(SSL *client, SSL *server, SSL **ret_failed)
{
	*ret_failed = NULL;
	for (int turn = 0; turn < 50; turn++) {
		int rc;

		ERR_clear_error();
		rc = SSL_do_handshake(client);
		if (rc != 1 && !pki_wants_more(client, rc)) {
			*ret_failed = client;
			return false;
		}
		rc = SSL_do_handshake(server);
		if (rc != 1 && !pki_wants_more(server, rc)) {
			*ret_failed = server;
			return false;
		}
		if (SSL_is_init_finished(client) && SSL_is_init_finished(server))
			return true;
	}
	return false;
}

/* One byte each way; so the client has read the tickets. */
PKI_UNUSED static bool pki_exchange(SSL *client, SSL *server)
{
	char c;

	return SSL_write(client, "x", 1) == 1 && SSL_read(server, &c, 1) == 1 &&
	       SSL_write(server, "y", 1) == 1 && SSL_read(client, &c, 1) == 1;
}

/* The words of a failure must hold `needle`. */
#define assert_says(text, needle)                                                                  \
	do {                                                                                       \
		if (!strstr((text), (needle)))                                                     \
			fail_msg("\"%s\" does not say \"%s\"", (text), (needle));                  \
	} while (0)

PKI_UNUSED static uint64_t pki_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#endif
