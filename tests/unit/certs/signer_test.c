/*
 * The signer as a client meets it, over memory: the certificate in a real handshake, ALPN, tickets
 * that stay with their host, leaves that are made anew in time, and several threads at once.
 */
#include "pki.h"

#include <pthread.h>

#include "certs/leaf.h"
#include "certs/notary.h"
#include "certs/signer.h"
#include "certs/signer_clock.h"

#define H2   "\2h2"
#define HTTP "\10http/1.1"

static struct ca *ca;
static struct signer *signer;
static SSL_CTX *client_ctx;

/* The last session that the client was given. */
static SSL_SESSION *last_session;

static int on_session(SSL *ssl, SSL_SESSION *session)
{
	(void)ssl;
	SSL_SESSION_free(last_session);
	last_session = session;
	return 1;
}

static int on_client_cert(SSL *ssl, X509 **cert, EVP_PKEY **key)
{
	(void)ssl;
	(void)cert;
	(void)key;
	fail_msg("the client was asked for a certificate");
	return 0;
}

static int set_up(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	if (ca_new_memory(LIMIT_CA_RUN_DAYS, &ca, &e) != 0 || signer_new(ca, 8, &signer, &e) != 0)
		return -1;
	client_ctx = SSL_CTX_new(TLS_client_method());
	X509_STORE_add_cert(SSL_CTX_get_cert_store(client_ctx), ca_cert(ca));
	SSL_CTX_set_verify(client_ctx, SSL_VERIFY_PEER, NULL);
	X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(client_ctx), X509_V_FLAG_X509_STRICT);
	SSL_CTX_set_session_cache_mode(client_ctx,
				       SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(client_ctx, on_session);
	SSL_CTX_set_client_cert_cb(client_ctx, on_client_cert);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	SSL_SESSION_free(last_session);
	SSL_CTX_free(client_ctx);
	signer_free(signer);
	ca_unref(ca);
	return 0;
}

struct got {
	struct leaf *leaf;
	struct err err;
	int calls;
};

static void on_leaf(void *arg, struct leaf *leaf, const struct err *e)
{
	struct got *g = arg;

	g->leaf = leaf;
	g->err = *e;
	g->calls++;
}

static struct leaf *get(struct signer *s, const char *host)
{
	struct got g = {0};

	signer_get(s, &(struct leaf_name){str_from_c(host), NULL, 0}, on_leaf, &g);
	assert_int_equal(g.calls, 1);
	assert_non_null(g.leaf);
	return g.leaf;
}

static SSL *server_for(struct signer *s, const char *host, struct str alpn)
{
	struct leaf *l = get(s, host);
	struct err e = ERR_INIT;
	SSL *ssl;

	assert_int_equal(signer_server_new(s, l, alpn, &ssl, &e), 0);
	leaf_unref(l); /* the SSL holds what it needs */
	return ssl;
}

static SSL *client_for(const char *host, struct str alpn, int version, SSL_SESSION *session)
{
	SSL *ssl = SSL_new(client_ctx);

	SSL_set_connect_state(ssl);
	SSL_set1_host(ssl, host);
	SSL_set_tlsext_host_name(ssl, host);
	SSL_set_min_proto_version(ssl, version);
	SSL_set_max_proto_version(ssl, version);
	if (alpn.n > 0)
		SSL_set_alpn_protos(ssl, (const unsigned char *)alpn.p, (unsigned)alpn.n);
	if (session)
		SSL_set_session(ssl, session);
	return ssl;
}

/* True if the handshake succeeds; *ret_reused whether it was a resumption. */
static bool connect_to(struct signer *s, const char *leaf_host, const char *host, int version,
		       SSL_SESSION *session, bool *ret_reused)
{
	SSL *server = server_for(s, leaf_host, STR_NONE);
	SSL *client = client_for(host, STR_NONE, version, session);
	SSL *failed;
	bool ok;

	pki_join(client, server);
	ok = pki_handshake(client, server, &failed) && pki_exchange(client, server);
	if (ok) {
		*ret_reused = SSL_session_reused(client);
		assert_int_equal(SSL_session_reused(server), *ret_reused);
		assert_int_equal(SSL_version(client), version);
		SSL_shutdown(client);
		SSL_shutdown(server);
	}
	ERR_clear_error();
	SSL_free(client);
	SSL_free(server);
	return ok;
}

static void handshakes(void **state)
{
	bool reused;

	(void)state;
	for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++) {
		assert_true(connect_to(signer, "a.test", "a.test", v, NULL, &reused));
		assert_false(reused);
		/* The client does check: the tests above could not fail otherwise. */
		assert_false(connect_to(signer, "a.test", "b.test", v, NULL, &reused));
	}
	SSL_CTX_set_security_level(client_ctx, 0);
	assert_false(connect_to(signer, "a.test", "a.test", TLS1_1_VERSION, NULL, &reused));
	SSL_CTX_set_security_level(client_ctx, 2);
}

static void tickets(void **state)
{
	bool reused;

	(void)state;
	for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++) {
		SSL_SESSION *of_a;

		assert_true(connect_to(signer, "a.test", "a.test", v, NULL, &reused));
		of_a = last_session;
		assert_non_null(of_a);
		SSL_SESSION_up_ref(of_a);
		assert_true(connect_to(signer, "a.test", "a.test", v, of_a, &reused));
		assert_true(reused);
		SSL_SESSION_free(of_a);

		assert_true(connect_to(signer, "a.test", "a.test", v, NULL, &reused));
		of_a = last_session;
		SSL_SESSION_up_ref(of_a);
		/* The same ticket at another host: a full handshake with that host's leaf. */
		assert_true(connect_to(signer, "b.test", "b.test", v, of_a, &reused));
		assert_false(reused);
		SSL_SESSION_free(of_a);
	}
}

/* A ticket of another signer (another CA, an earlier run) is no use either. */
static void tickets_of_another_signer(void **state)
{
	struct err e = ERR_INIT;
	struct signer *other;
	SSL_SESSION *session;
	bool reused;

	(void)state;
	assert_int_equal(signer_new(ca, 8, &other, &e), 0);
	assert_true(connect_to(signer, "a.test", "a.test", TLS1_3_VERSION, NULL, &reused));
	session = last_session;
	SSL_SESSION_up_ref(session);
	assert_true(connect_to(other, "a.test", "a.test", TLS1_3_VERSION, session, &reused));
	assert_false(reused);
	SSL_SESSION_free(session);
	signer_free(other);
}

static void alpn(void **state)
{
	static const struct {
		const char *ours, *theirs; /* wire format; "": the extension is not sent */
		const char *picked;	   /* NULL: refused; "": none */
	} cases[] = {
		{H2 HTTP, H2 HTTP, "h2"},
		{H2 HTTP, HTTP H2, "h2"},
		{HTTP H2, H2 HTTP, "http/1.1"},
		{H2 HTTP, HTTP, "http/1.1"},
		{H2 HTTP, H2, "h2"},
		{H2 HTTP, "\3foo" H2, "h2"},
		{HTTP, H2 HTTP, "http/1.1"},
		{H2 HTTP, "", ""},
		{"", H2 HTTP, ""},
		{HTTP, H2, NULL},
		{H2 HTTP, "\10http/1.0", NULL},
		{H2 HTTP, "\2H2", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases) * 2; i++) {
		int version = i % 2 ? TLS1_3_VERSION : TLS1_2_VERSION;
		SSL *server = server_for(signer, "a.test", str_from_c(cases[i / 2].ours));
		SSL *client = client_for("a.test", str_from_c(cases[i / 2].theirs), version, NULL);
		const char *picked = cases[i / 2].picked;
		const unsigned char *p;
		unsigned n;
		SSL *failed;

		pki_join(client, server);
		assert_int_equal(pki_handshake(client, server, &failed), picked != NULL);
		if (picked) {
			SSL_get0_alpn_selected(client, &p, &n);
			assert_int_equal(n, strlen(picked));
			assert_memory_equal(p ? (const char *)p : "", picked, n);
		} else {
			assert_ptr_equal(failed, server);
			assert_int_not_equal(SSL_do_handshake(client), 1);
			/* 120, no_application_protocol, as the peer's alert */
			assert_int_equal(ERR_GET_REASON(ERR_peek_last_error()), 1120);
		}
		ERR_clear_error();
		SSL_free(client);
		SSL_free(server);
	}
}

/* The list that the client sees must be whatever the SSL was made with, not a neighbour's. */
static void settings(void **state)
{
	SSL *server = server_for(signer, "a.test", STR(H2));
	SSL *client = client_for("a.test", STR(H2), TLS1_2_VERSION, NULL);
	SSL *failed;
	char c;

	(void)state;
	assert_int_equal(SSL_get_verify_mode(server), SSL_VERIFY_NONE);
	assert_int_equal(SSL_get_num_tickets(server), 1);
	assert_int_equal(SSL_get_max_early_data(server), 0);
	assert_true(SSL_get_options(server) & SSL_OP_NO_RENEGOTIATION);
	assert_true(SSL_get_options(server) & SSL_OP_NO_COMPRESSION);
	assert_false(SSL_get_options(server) & SSL_OP_IGNORE_UNEXPECTED_EOF);
	assert_true(SSL_get_mode(server) & SSL_MODE_RELEASE_BUFFERS);
	assert_true(SSL_get_mode(server) & SSL_MODE_AUTO_RETRY);
	assert_int_equal(SSL_get_security_level(server), 2);
	assert_true(SSL_get_read_ahead(server));

	pki_join(client, server);
	assert_true(pki_handshake(client, server, &failed));
	assert_int_equal(SSL_CIPHER_is_aead(SSL_get_current_cipher(server)), 1);
	assert_int_equal(SSL_CIPHER_get_kx_nid(SSL_get_current_cipher(server)), NID_kx_ecdhe);
	assert_int_equal(sk_X509_num(SSL_get_peer_cert_chain(client)), 1);
	assert_true(pki_exchange(client, server));
	/* No renegotiation. */
	SSL_renegotiate(client);
	SSL_do_handshake(client);
	SSL_read(server, &c, 1);
	assert_int_not_equal(SSL_do_handshake(client), 1);
	ERR_clear_error();
	SSL_free(client);
	SSL_free(server);
}

/* Which cipher is taken for what a client offers: ours first, if it has it; ChaCha20 for one that
 * prefers it above all; nothing that it did not offer. */
static void suites(void **state)
{
	static const struct {
		const char *offer, *picked;
	} cases[] = {
		{"TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256",
		 "TLS_AES_128_GCM_SHA256"},
		{"TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"},
		{"TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256",
		 "TLS_CHACHA20_POLY1305_SHA256"},
		{"TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_256_GCM_SHA384"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		SSL *server = server_for(signer, "a.test", STR_NONE);
		SSL *client = client_for("a.test", STR_NONE, TLS1_3_VERSION, NULL);
		SSL *failed;

		assert_int_equal(SSL_set_ciphersuites(client, cases[i].offer), 1);
		pki_join(client, server);
		assert_true(pki_handshake(client, server, &failed));
		assert_string_equal(SSL_get_cipher_name(client), cases[i].picked);
		SSL_free(client);
		SSL_free(server);
	}
}

/* A connection that was cut must not look like one that ended. */
static void truncation(void **state)
{
	SSL *server = server_for(signer, "a.test", STR_NONE);
	SSL *client = client_for("a.test", STR_NONE, TLS1_3_VERSION, NULL);
	SSL *failed;
	char c;
	int rc;

	(void)state;
	pki_join(client, server);
	assert_true(pki_handshake(client, server, &failed));
	assert_true(pki_exchange(client, server));
	BIO_shutdown_wr(SSL_get_wbio(client));
	ERR_clear_error();
	rc = SSL_read(server, &c, 1);
	assert_int_equal(SSL_get_error(server, rc), SSL_ERROR_SSL);
	ERR_clear_error();
	SSL_free(client);
	SSL_free(server);
}

static time_t fake;

static time_t fake_now(void)
{
	return fake;
}

static void renewal(void **state)
{
	struct err e = ERR_INIT;
	struct signer *s;
	struct leaf *a, *b, *c;
	struct got g = {0};

	(void)state;
	assert_int_equal(signer_new(ca, 8, &s, &e), 0);
	signer_set_clock(s, fake_now);
	fake = time(NULL);
	a = get(s, "a.test");
	b = get(s, "a.test");
	assert_ptr_equal(a, b);
	leaf_unref(b);
	/* With a quarter of seven days and a little to go it is kept, then made anew. */
	fake += LIMIT_LEAF_DAYS * DAY * 3 / 4 - 3602;
	b = get(s, "a.test");
	assert_ptr_equal(a, b);
	leaf_unref(b);
	fake += 2;
	b = get(s, "a.test");
	assert_ptr_not_equal(a, b);
	assert_int_not_equal(X509_cmp(leaf_cert(a), leaf_cert(b)), 0);
	assert_int_equal(EVP_PKEY_eq(X509_get0_pubkey(leaf_cert(a)),
				     X509_get0_pubkey(leaf_cert(b))),
			 1);
	c = get(s, "A.TEST");
	assert_ptr_equal(b, c);
	leaf_unref(a);
	leaf_unref(b);
	leaf_unref(c);
	/* The CA's own end. */
	fake += LIMIT_CA_RUN_DAYS * DAY;
	signer_get(s, &(struct leaf_name){STR("z.test"), NULL, 0}, on_leaf, &g);
	assert_int_equal(g.calls, 1);
	assert_null(g.leaf);
	assert_says(g.err.text, "expired");
	signer_free(s);
	signer_free(NULL);
	leaf_unref(NULL);
}

static void bad_name(void **state)
{
	struct got g = {0};

	(void)state;
	signer_get(signer, &(struct leaf_name){STR("*.test"), NULL, 0}, on_leaf, &g);
	assert_int_equal(g.calls, 1);
	assert_null(g.leaf);
	assert_int_equal(g.err.reason, REASON_INTERNAL_ERROR);
}

/* A leaf and a connection may outlive the signer that made them. */
static void outlives(void **state)
{
	struct err e = ERR_INIT;
	struct signer *s;
	SSL *server, *client, *failed;
	struct leaf *l;

	(void)state;
	assert_int_equal(signer_new(ca, 8, &s, &e), 0);
	l = get(s, "a.test");
	server = server_for(s, "a.test", STR(H2));
	signer_free(s);
	client = client_for("a.test", STR(H2), TLS1_3_VERSION, NULL);
	pki_join(client, server);
	assert_true(pki_handshake(client, server, &failed));
	assert_int_equal(X509_cmp(leaf_cert(l), SSL_get0_peer_certificate(client)), 0);
	SSL_free(client);
	SSL_free(server);
	leaf_unref(l);
}

/* One signer, one small cache, several threads that ask for the same few names. */
static void *hammer(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 60; i++) {
		char host[] = "?.test";
		struct got g = {0};
		struct err e = ERR_INIT;
		SSL *server, *client, *failed;

		host[0] = (char)('a' + rand_r(&seed) % 12);
		signer_get(signer, &(struct leaf_name){str_from_c(host), NULL, 0}, on_leaf, &g);
		if (!g.leaf || signer_server_new(signer, g.leaf, STR(H2), &server, &e) != 0)
			return (void *)"no leaf";
		leaf_unref(g.leaf);
		if (i % 4 == 0) {
			client = SSL_new(client_ctx);
			SSL_set_connect_state(client);
			SSL_set1_host(client, host);
			pki_join(client, server);
			if (!pki_handshake(client, server, &failed))
				return (void *)"no handshake";
			SSL_free(client);
		}
		SSL_free(server);
	}
	return NULL;
}

static void threads(void **state)
{
	enum { THREADS = 4 };
	pthread_t t[THREADS];
	void *fault;

	(void)state;
	SSL_CTX_sess_set_new_cb(client_ctx, NULL);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, hammer, (void *)(i + 1)), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], &fault);
		if (fault)
			fail_msg("%s", (const char *)fault);
	}
	SSL_CTX_sess_set_new_cb(client_ctx, on_session);
}

/* ---- where somebody else signs ---- */

static struct notary *notary_for(const struct signer *s)
{
	unsigned char point[SIGNER_POINT_LEN];
	struct notary *n = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(signer_public_key(s, point, &e), 0);
	assert_int_equal(notary_new(ca, point, &n, &e), 0);
	return n;
}

static struct signer *remote_signer(void)
{
	struct signer *s = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(signer_new_remote(ca, 64, &s, &e), 0);
	return s;
}

static void sign_for(const struct notary *n, const struct leaf_name *name, struct strbuf *der)
{
	struct err e = ERR_INIT;

	strbuf_init(der, 65536);
	assert_int_equal(notary_sign(n, name, 0, der, &e), 0);
}

/* What was put is what was signed, to the byte, and can be served. */
static void put_and_serve(struct signer *s, const struct notary *n, const struct leaf_name *name)
{
	char host[LIMIT_HOST_BYTES + 1];
	struct leaf *l = NULL;
	struct err e = ERR_INIT;
	unsigned char *own = NULL;
	struct strbuf der;
	bool reused;
	int len;

	sign_for(n, name, &der);
	assert_int_equal(signer_put(s, name, strbuf_str(&der), &l, &e), 0);
	len = i2d_X509(leaf_cert(l), &own);
	assert_int_equal(len, der.len);
	assert_memory_equal(own, der.data, der.len);
	assert_int_equal(X509_verify(leaf_cert(l), X509_get0_pubkey(ca_cert(ca))), 1);
	OPENSSL_free(own);
	leaf_unref(l);
	strbuf_clear(&der);
	if (name->ip)
		return;
	memcpy(host, name->text.p, name->text.n);
	host[name->text.n] = '\0';
	for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++)
		assert_true(connect_to(s, host, host, v, NULL, &reused));
	assert_false(connect_to(s, host, "another.test", TLS1_3_VERSION, NULL, &reused));
}

static void signed_elsewhere(void **state)
{
	unsigned char ip[4] = {192, 0, 2, 7};
	struct signer *s = remote_signer();
	struct notary *n = notary_for(s);
	/* Over 64 bytes: its subject is empty, and the name critical. */
	char long_name[] =
		"a-name-of-more-than-sixty-four-bytes.which-no-common-name-can-hold.test";

	(void)state;
	/* Without blanks, with some, with none left. */
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < LIMIT_LEAF_BLANKS + 2; i++) {
			char host[32];

			(void)snprintf(host, sizeof(host), "r%d-%d.test", round, i);
			put_and_serve(s, n, &(struct leaf_name){.text = str_from_c(host)});
		}
		signer_prepare(s);
		/* Others than before, which are kept. */
		ip[3]++;
		long_name[0]++;
		put_and_serve(s, n, &(struct leaf_name){.text = STR("192.0.2.x"), ip, sizeof(ip)});
		put_and_serve(s, n, &(struct leaf_name){.text = str_from_c(long_name)});
		signer_prepare(s);
		signer_prepare(s);
	}
	notary_free(n);
	signer_free(s);
}

/* What is no certificate, or one over another key, is not taken; blanks that it has used up are no
 * loss. */
static void signed_wrongly(void **state)
{
	const struct leaf_name name = {.text = STR("a.test")};
	struct signer *s = remote_signer(), *other = remote_signer();
	struct notary *n = notary_for(s), *others = notary_for(other);
	struct strbuf der, wrong;

	(void)state;
	sign_for(n, &name, &der);
	sign_for(others, &name, &wrong);
	for (int round = 0; round < 2; round++) {
		struct leaf *l = NULL;
		struct err e = ERR_INIT;

		assert_int_equal(signer_put(s, &name, strbuf_str(&wrong), &l, &e), -1);
		assert_int_equal(signer_put(s, &name, STR("no certificate"), &l, &e), -1);
		for (size_t cut = 0; cut < der.len; cut += 7)
			assert_int_equal(signer_put(s, &name, str_head(strbuf_str(&der), cut), &l,
						    &e),
					 -1);
		for (size_t at = 0; at < der.len; at += 5) {
			unsigned char *own = NULL;
			char host[32];
			struct leaf_name fresh;

			(void)snprintf(host, sizeof(host), "r%d-%zu.test", round, at);
			fresh = (struct leaf_name){.text = str_from_c(host)};
			der.data[at] ^= 0x15;
			signer_prepare(s);
			if (signer_put(s, &fresh, strbuf_str(&der), &l, &e) == 0) {
				/* Its names, say: not this process's to check. */
				int len = i2d_X509(leaf_cert(l), &own);

				assert_int_equal(len, der.len);
				assert_memory_equal(own, der.data, der.len);
				OPENSSL_free(own);
				leaf_unref(l);
			}
			der.data[at] ^= 0x15;
		}
		ERR_clear_error();
		put_and_serve(s, n,
			      &(struct leaf_name){.text = round ? STR("b.test") : STR("a.test")});
		signer_prepare(s);
	}
	strbuf_clear(&der);
	strbuf_clear(&wrong);
	notary_free(n);
	notary_free(others);
	signer_free(s);
	signer_free(other);
}

static void speed(void **state)
{
	enum { N = 1000 };
	struct leaf *l = get(signer, "a.test");
	struct err e = ERR_INIT;
	uint64_t t, in_new = 0, in_server = 0;
	SSL *server, *client;

	(void)state;
	for (int i = 0; i < N; i++) {
		t = pki_ns();
		assert_int_equal(signer_server_new(signer, l, STR(H2), &server, &e), 0);
		in_new += pki_ns() - t;
		client = client_for("a.test", STR(H2), TLS1_3_VERSION, NULL);
		pki_join(client, server);
		SSL_do_handshake(client);
		t = pki_ns();
		SSL_do_handshake(server);
		in_server += pki_ns() - t;
		SSL_do_handshake(client);
		t = pki_ns();
		assert_int_equal(SSL_do_handshake(server), 1);
		in_server += pki_ns() - t;
		SSL_free(client);
		SSL_free(server);
	}
	leaf_unref(l);
	print_message(
		"signer_server_new %.1f us, the server's side of a TLS 1.3 handshake %.1f us\n",
		(double)in_new / 1000 / N, (double)in_server / 1000 / N);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(handshakes),
		cmocka_unit_test(tickets),
		cmocka_unit_test(tickets_of_another_signer),
		cmocka_unit_test(alpn),
		cmocka_unit_test(settings),
		cmocka_unit_test(suites),
		cmocka_unit_test(truncation),
		cmocka_unit_test(renewal),
		cmocka_unit_test(bad_name),
		cmocka_unit_test(outlives),
		cmocka_unit_test(threads),
		cmocka_unit_test(signed_elsewhere),
		cmocka_unit_test(signed_wrongly),
		cmocka_unit_test(speed),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
