/*
 * What is said of a client that does not accept our certificate, by each alert that it may choose
 * and in both versions of TLS; and of one that fails for another reason.
 */
#include "pki.h"

#include "certs/clientfail.h"
#include "certs/leaf.h"
#include "certs/signer.h"

static struct ca *ca;
static struct signer *signer;
static int refuse_with;

static int set_up(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	return ca_new_memory(1, &ca, &e) != 0 || signer_new(ca, 8, &signer, &e) != 0 ? -1 : 0;
}

static int tear_down(void **state)
{
	(void)state;
	signer_free(signer);
	ca_unref(ca);
	return 0;
}

static void on_leaf(void *arg, struct leaf *leaf, const struct err *e)
{
	(void)e;
	*(struct leaf **)arg = leaf;
}

static SSL *make_server(void)
{
	struct err e = ERR_INIT;
	struct leaf *leaf = NULL;
	SSL *ssl;

	signer_get(signer, &(struct leaf_name){STR("a.test"), NULL, 0}, on_leaf, &leaf);
	assert_int_equal(signer_server_new(signer, leaf, STR("\2h2"), &ssl, &e), 0);
	leaf_unref(leaf);
	return ssl;
}

/* The verify result from which OpenSSL derives the alert. */
static int on_verify(X509_STORE_CTX *store, void *arg)
{
	(void)arg;
	X509_STORE_CTX_set_error(store, refuse_with);
	return refuse_with == X509_V_OK;
}

/* A client that refuses the leaf thus, or that has only `alpn` to offer. */
static struct err refused(int verify_error, int version, const char *alpn)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL *client, *server = make_server(), *failed = NULL;
	struct err e = ERR_INIT;
	char c;
	int rc;

	refuse_with = verify_error;
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_cert_verify_callback(ctx, on_verify, NULL);
	SSL_CTX_set_max_proto_version(ctx, version);
	client = SSL_new(ctx);
	SSL_set_connect_state(client);
	if (alpn)
		SSL_set_alpn_protos(client, (const unsigned char *)alpn, (unsigned)strlen(alpn));
	pki_join(client, server);
	assert_false(pki_handshake(client, server, &failed));
	if (failed == client) {
		ERR_clear_error();
		rc = SSL_do_handshake(server);
		/* Our side of a TLS 1.3 handshake may be over before the alert is read. */
		if (rc == 1)
			rc = SSL_read(server, &c, 1);
		assert_true(rc <= 0);
	}
	assert_int_equal(clientfail_explain(server, &e), -1);
	assert_int_equal(ERR_peek_error(), 0);
	SSL_free(client);
	SSL_free(server);
	SSL_CTX_free(ctx);
	return e;
}

static void alerts(void **state)
{
	static const struct {
		int verify_error;
		const char *says;
		enum reason reason;
	} cases[] = {
		{X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, "unknown_ca", REASON_LEAF_REJECTED},
		{X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, "unknown_ca", REASON_LEAF_REJECTED},
		{X509_V_ERR_CERT_HAS_EXPIRED, "certificate_expired", REASON_LEAF_REJECTED},
		{X509_V_ERR_CERT_REVOKED, "certificate_revoked", REASON_LEAF_REJECTED},
		{X509_V_ERR_HOSTNAME_MISMATCH, "bad_certificate", REASON_LEAF_REJECTED},
		{X509_V_ERR_INVALID_PURPOSE, "unsupported_certificate", REASON_LEAF_REJECTED},
		{X509_V_ERR_APPLICATION_VERIFICATION, "handshake failure",
		 REASON_CLIENT_TLS_FAILED},
	};

	(void)state;
	for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++) {
		for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
			struct err e = refused(cases[i].verify_error, v, NULL);

			assert_says(e.text, cases[i].says);
			assert_int_equal(e.reason, cases[i].reason);
			if (e.reason == REASON_LEAF_REJECTED)
				assert_says(e.text, "stile ca bundle");
		}
	}
}

static void no_protocol(void **state)
{
	struct err e = refused(X509_V_OK, TLS1_3_VERSION, "\10http/1.1");

	(void)state;
	assert_int_equal(e.reason, REASON_CLIENT_TLS_FAILED);
	assert_says(e.text, "ALPN");
}

/* Bytes that are no TLS, and a client that goes away in the middle. */
static void not_a_handshake(void **state)
{
	static const char *const sends[] = {"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
					    "\x16\x03\x01", ""};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sends); i++) {
		SSL *server = make_server();
		struct err e = ERR_INIT;
		BIO *ours, *theirs;

		BIO_new_bio_pair(&ours, 0, &theirs, 0);
		SSL_set_bio(server, ours, ours);
		BIO_write(theirs, sends[i], (int)strlen(sends[i]));
		BIO_shutdown_wr(theirs);
		assert_int_not_equal(SSL_do_handshake(server), 1);
		assert_int_equal(clientfail_explain(server, &e), -1);
		assert_int_equal(e.reason, REASON_CLIENT_TLS_FAILED);
		assert_says(e.text, i == 0 ? "http request" : "closed the connection");
		SSL_free(server);
		BIO_free(theirs);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alerts),
		cmocka_unit_test(no_protocol),
		cmocka_unit_test(not_a_handshake),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
