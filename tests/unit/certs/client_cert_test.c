/*
 * A client certificate out of PEM: in any order, with what is wrong in words; and whom it is shown
 * to: an origin that was verified, in both versions of TLS, and no key stays behind the handshake.
 */
#include "pki.h"

#include <unistd.h>

#include "certs/client_cert.h"
#include "certs/trust.h"

static struct pki_pair root, clients, leaf;
static struct trust *trust;
static char ca_file[] = "/tmp/stile-client-cert-XXXXXX";

static int set_up(void **state)
{
	char *sources[] = {ca_file};
	struct err e = ERR_INIT;

	(void)state;
	close(mkstemp(ca_file));
	root = pki_make(&(struct pki_spec){.cn = "Root", .ca = true});
	clients = pki_make(&(struct pki_spec){.cn = "Clients", .ca = true});
	leaf = pki_make(&(struct pki_spec){.cn = "robot", .issuer = &clients, .eku = "clientAuth"});
	pki_write(ca_file, &root.cert, 1);
	return trust_new(sources, 1, &trust, &e);
}

static int tear_down(void **state)
{
	(void)state;
	trust_unref(trust);
	pki_free(&root);
	pki_free(&clients);
	pki_free(&leaf);
	return remove(ca_file);
}

/* certs, then key (NULL: none), then more certs; for the caller to free. */
static char *pem_of(X509 *first, EVP_PKEY *key, X509 *last)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text = NULL, *out;
	long n;

	if (first)
		PEM_write_bio_X509(bio, first);
	if (key)
		PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
	if (last)
		PEM_write_bio_X509(bio, last);
	n = BIO_get_mem_data(bio, &text);
	out = strndup(n > 0 ? text : "", (size_t)n);
	BIO_free(bio);
	return out;
}

static struct client_cert *read_good(char *pem)
{
	struct client_cert *c = NULL;
	struct err e = ERR_INIT;

	if (client_cert_new(str_from_c(pem), &c, &e) != 0)
		fail_msg("%s", e.text);
	assert_int_equal(ERR_peek_error(), 0);
	free(pem);
	return c;
}

static void assert_bad(char *pem, const char *why)
{
	struct client_cert *c = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(client_cert_new(str_from_c(pem), &c, &e), -1);
	assert_int_equal(e.reason, REASON_CREDENTIAL_UNAVAILABLE);
	if (!strstr(e.text, why))
		fail_msg("%s does not say %s", e.text, why);
	assert_int_equal(ERR_peek_error(), 0);
	free(pem);
}

static void orders(void **state)
{
	struct client_cert *a, *b;

	(void)state;
	a = read_good(pem_of(leaf.cert, leaf.key, clients.cert));
	b = read_good(pem_of(clients.cert, leaf.key, leaf.cert));
	assert_true(client_cert_id(a) != client_cert_id(b) && client_cert_id(a) != 0);
	assert_true(client_cert_left_us(a) > 0);
	assert_ptr_equal(client_cert_ref(a), a);
	client_cert_unref(a);
	client_cert_unref(a);
	client_cert_unref(b);
	client_cert_unref(NULL);
}

static void faults(void **state)
{
	struct pki_pair old =
		pki_make(&(struct pki_spec){.cn = "old", .from = -2 * DAY, .to = -DAY});
	struct pki_pair early = pki_make(&(struct pki_spec){.cn = "e", .from = DAY, .to = 2 * DAY});
	char *cut = pem_of(leaf.cert, leaf.key, NULL);

	(void)state;
	assert_bad(pem_of(leaf.cert, NULL, NULL), "it has no key");
	assert_bad(pem_of(NULL, leaf.key, NULL), "it has no certificate");
	assert_bad(pem_of(leaf.cert, clients.key, NULL), "not that of its certificate");
	assert_bad(pem_of(old.cert, old.key, NULL), "expired on");
	assert_bad(pem_of(early.cert, early.key, NULL), "is not valid before");
	assert_bad(strdup(""), "it is no PEM");
	assert_bad(strdup("-----BEGIN PRIVATE KEY-----\n"), "it is no PEM");
	cut[strlen(cut) - 40] = '\0';
	assert_bad(cut, "it is no PEM");
	pki_free(&old);
	pki_free(&early);
}

/* Whom the origin saw; -1: the handshake failed. */
static int shown_to(const struct pki_pair *origin, int version, struct client_cert *c, bool *ret)
{
	SSL_CTX *ctx = pki_server_ctx(origin, NULL);
	SSL *client, *server, *failed = NULL;
	struct err e = ERR_INIT;
	bool ok;

	SSL_CTX_set_max_proto_version(ctx, version);
	X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), clients.cert);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	assert_int_equal(trust_client_new(trust, "a.test", NULL, 0, STR_NONE, STR("k"), &client,
					  &e),
			 0);
	if (c)
		trust_client_show(client, c);
	server = SSL_new(ctx);
	SSL_set_accept_state(server);
	pki_join(client, server);
	ok = pki_handshake(client, server, &failed);
	if (ok) {
		assert_true(!c || SSL_get_privatekey(client));
		trust_client_shown(client);
		assert_null(SSL_get_privatekey(client));
		assert_null(SSL_get_certificate(client));
		assert_true(pki_exchange(client, server));
	}
	*ret = SSL_get0_peer_certificate(server) != NULL;
	assert_true(ok || !SSL_get_privatekey(client));
	SSL_free(client);
	SSL_free(server);
	SSL_CTX_free(ctx);
	ERR_clear_error();
	return ok ? 0 : -1;
}

static void whom_it_is_shown(void **state)
{
	struct pki_pair good =
		pki_make(&(struct pki_spec){.cn = "o", .san = "DNS:a.test", .issuer = &root});
	struct pki_pair bad = pki_make(&(struct pki_spec){.cn = "o", .san = "DNS:a.test"});
	struct pki_pair other =
		pki_make(&(struct pki_spec){.cn = "o", .san = "DNS:b.test", .issuer = &root});
	struct client_cert *c = read_good(pem_of(leaf.cert, leaf.key, NULL));
	bool seen;

	(void)state;
	for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++) {
		assert_int_equal(shown_to(&good, v, c, &seen), 0);
		assert_true(seen);
		assert_int_equal(shown_to(&good, v, NULL, &seen), 0);
		assert_false(seen);
		assert_int_equal(shown_to(&bad, v, c, &seen), -1);
		assert_false(seen);
		assert_int_equal(shown_to(&other, v, c, &seen), -1);
		assert_false(seen);
	}
	client_cert_unref(c);
	pki_free(&good);
	pki_free(&bad);
	pki_free(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(orders),
		cmocka_unit_test(faults),
		cmocka_unit_test(whom_it_is_shown),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
