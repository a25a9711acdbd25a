/*
 * Upstream verification against origins that are right and wrong in every way that we know of, the
 * words that come of it, and which sessions are resumed. The origins live in memory.
 */
#include "pki.h"

#include <pthread.h>
#include <unistd.h>

#include "certs/session_cache.h"
#include "certs/trust.h"
#include "certs/trust_conn.h"

static char ca_file[] = "/tmp/stile-trust-XXXXXX";
static struct pki_pair root, mid, stranger;
static struct trust *trust;

static struct trust *trust_in(X509 *const *certs, size_t n)
{
	char *sources[] = {ca_file};
	struct err e = ERR_INIT;
	struct trust *t;

	pki_write(ca_file, certs, n);
	if (trust_new(sources, 1, &t, &e) != 0)
		fail_msg("%s", e.text);
	return t;
}

static int set_up(void **state)
{
	(void)state;
	close(mkstemp(ca_file));
	root = pki_make(&(struct pki_spec){.cn = "Test Root", .ca = true});
	mid = pki_make(&(struct pki_spec){.cn = "Test Intermediate", .ca = true, .issuer = &root});
	stranger = pki_make(&(struct pki_spec){.cn = "Stranger", .ca = true});
	trust = trust_in(&root.cert, 1);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	trust_unref(trust);
	pki_free(&root);
	pki_free(&mid);
	pki_free(&stranger);
	return remove(ca_file);
}

struct
try {
	struct trust *trust; /* NULL: the one of all tests */
	const char *host;
	const unsigned char *ip;
	size_t ip_len;
	const char *key;
	bool reused;
	int version;
	struct err err;
};

/* One connection. 0, or -1 with t->err filled. */
static int attempt(SSL_CTX *server_ctx, struct try *t)
{
	SSL *client, *server, *failed;
	int rc = -1;
	bool ok;
	char c;

	assert_int_equal(trust_client_new(t->trust ? t->trust : trust, t->host, t->ip, t->ip_len,
					  STR("\10http/1.1"), str_from_c(t->key ? t->key : "k"),
					  &client, &t->err),
			 0);
	server = SSL_new(server_ctx);
	SSL_set_accept_state(server);
	pki_join(client, server);
	ok = pki_handshake(client, server, &failed);
	if (!ok && failed == server) {
		/* A TLS 1.3 client is done by now and learns of it when it reads. */
		ERR_clear_error();
		assert_true(SSL_do_handshake(client) != 1 || SSL_read(client, &c, 1) <= 0);
	} else if (ok) {
		ok = pki_exchange(client, server);
	}
	if (!ok) {
		rc = trust_explain(client, &t->err);
		assert_int_equal(rc, -1);
		assert_int_equal(ERR_peek_error(), 0);
	} else {
		rc = 0;
		t->reused = SSL_session_reused(client);
		t->version = SSL_version(client);
		SSL_shutdown(client);
		SSL_shutdown(server);
	}
	SSL_free(client);
	SSL_free(server);
	ERR_clear_error();
	return rc;
}

/* An origin with this leaf (and perhaps an intermediate) seen by `trust` as host. */
static struct err seen(const struct pki_spec *spec, X509 *intermediate, const char *host)
{
	struct pki_pair leaf = pki_make(spec);
	struct err first = ERR_INIT;

	for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++) {
		SSL_CTX *ctx = pki_server_ctx(&leaf, intermediate);
		struct try t = {.host = host};

		SSL_CTX_set_max_proto_version(ctx, v);
		if (attempt(ctx, &t) == 0)
			t.err.text[0] = '\0';
		if (v == TLS1_2_VERSION)
			first = t.err;
		else
			assert_string_equal(first.text, t.err.text);
		SSL_CTX_free(ctx);
	}
	pki_free(&leaf);
	return first;
}

static void good(struct err e)
{
	if (e.text[0])
		fail_msg("refused: %s", e.text);
}

static void bad(struct err e, const char *const *needles)
{
	if (!e.text[0])
		fail_msg("was believed; should be %s", needles[0]);
	assert_int_equal(e.reason, REASON_UPSTREAM_UNTRUSTED);
	for (; *needles; needles++)
		assert_says(e.text, *needles);
}

#define BAD(e, ...) bad(e, (const char *const[]){__VA_ARGS__, NULL})
#define LEAF(...)   (&(struct pki_spec){.cn = "x", .issuer = &root, __VA_ARGS__})

static void names(void **state)
{
	(void)state;
	good(seen(LEAF(.san = "DNS:a.test"), NULL, "a.test"));
	good(seen(LEAF(.san = "DNS:A.TEST"), NULL, "a.test"));
	good(seen(LEAF(.san = "DNS:b.test,DNS:a.test"), NULL, "a.test"));
	BAD(seen(LEAF(.san = "DNS:a.test,DNS:b.test"), NULL, "c.test"),
	    "certificate is for a.test, b.test, not for c.test");
	BAD(seen(LEAF(.san = "DNS:a,DNS:b,DNS:c,DNS:d,DNS:e,DNS:f,IP:10.0.0.1"), NULL, "c.test"),
	    "a, b, c, d and 3 more, not for c.test");
	BAD(seen(LEAF(.san = "IP:10.0.0.1,IP:fe80::1"), NULL, "c.test"), "10.0.0.1, fe80::1");
	/* The common name counts for nothing, whether there is a subjectAltName or not. */
	BAD(seen(&(struct pki_spec){.cn = "a.test", .issuer = &root}, NULL, "a.test"),
	    "no subjectAltName", "CN=a.test");
	BAD(seen(&(struct pki_spec){.cn = "a.test", .issuer = &root, .san = "DNS:b.test"}, NULL,
		 "a.test"),
	    "b.test, not for a.test");
	BAD(seen(&(struct pki_spec){.cn = "a.test", .issuer = &root, .san = "email:x@a.test"}, NULL,
		 "a.test"),
	    "no subjectAltName");
	/* Neither a longer nor a shorter name. */
	BAD(seen(LEAF(.san = "DNS:a.test"), NULL, "b.a.test"), "not for b.a.test");
	BAD(seen(LEAF(.san = "DNS:b.a.test"), NULL, "a.test"), "not for a.test");
	BAD(seen(LEAF(.san = "DNS:.a.test"), NULL, "b.a.test"), "not for b.a.test");
}

static void wildcards(void **state)
{
	(void)state;
	good(seen(LEAF(.san = "DNS:*.a.test"), NULL, "b.a.test"));
	BAD(seen(LEAF(.san = "DNS:*.a.test"), NULL, "a.test"), "*.a.test, not for a.test");
	BAD(seen(LEAF(.san = "DNS:*.a.test"), NULL, "c.b.a.test"), "not for");
	BAD(seen(LEAF(.san = "DNS:*.test"), NULL, "a.test"), "not for");
	BAD(seen(LEAF(.san = "DNS:*"), NULL, "a.test"), "not for");
	BAD(seen(LEAF(.san = "DNS:b*.a.test"), NULL, "bc.a.test"), "not for");
	BAD(seen(LEAF(.san = "DNS:b.*.test"), NULL, "b.a.test"), "not for");
	BAD(seen(LEAF(.san = "DNS:*.*.test"), NULL, "b.a.test"), "not for");
}

static struct err seen_below(const char *constraints, const char *san, const char *host)
{
	struct pki_pair ca = pki_make(&(struct pki_spec){
		.cn = "Bounded", .ca = true, .issuer = &root, .constraints = constraints});
	struct err e =
		seen(&(struct pki_spec){.cn = "x", .issuer = &ca, .san = san}, ca.cert, host);

	pki_free(&ca);
	return e;
}

/* A CA that may not sign for a name cannot do so with a wildcard above it, either. */
static void name_constraints(void **state)
{
	static const char permitted[] = "critical,permitted;DNS:b.a.test";
	static const char excluded[] = "critical,excluded;DNS:b.a.test";
	static const char above[] = "critical,excluded;DNS:.a.test";

	(void)state;
	good(seen_below(permitted, "DNS:b.a.test", "b.a.test"));
	good(seen_below(permitted, "DNS:c.b.a.test,DNS:*.b.a.test", "d.b.a.test"));
	BAD(seen_below(permitted, "DNS:*.a.test", "b.a.test"), "permitted subtree violation");
	BAD(seen_below(permitted, "DNS:c.test", "c.test"), "permitted subtree violation");
	BAD(seen_below(excluded, "DNS:b.a.test", "b.a.test"), "excluded subtree violation");
	BAD(seen_below(excluded, "DNS:*.a.test", "b.a.test"), "excluded subtree violation",
	    "issuer CN=Bounded");
	BAD(seen_below(excluded, "DNS:*.a.test", "B.A.test"), "excluded subtree violation");
	good(seen_below(excluded, "DNS:*.a.test", "c.a.test"));
	good(seen_below(excluded, "DNS:*.a.test", "bb.a.test"));
	good(seen_below("critical,excluded;DNS:c.b.a.test", "DNS:*.a.test", "b.a.test"));
	BAD(seen_below(above, "DNS:*.a.test", "b.a.test"), "excluded subtree violation");
	good(seen_below(above, "DNS:a.test", "a.test"));
	good(seen_below("critical,excluded;IP:10.0.0.0/255.0.0.0", "DNS:*.a.test", "b.a.test"));
}

static void addresses(void **state)
{
	static const unsigned char v4[] = {127, 0, 0, 1}, other[] = {127, 0, 0, 2};
	static const unsigned char v6[16] = {[15] = 1};
	struct pki_pair leaf = pki_make(LEAF(.san = "IP:127.0.0.1,IP:::1"));
	struct pki_pair text = pki_make(LEAF(.san = "DNS:127.0.0.1"));
	SSL_CTX *ctx = pki_server_ctx(&leaf, NULL), *text_ctx = pki_server_ctx(&text, NULL);
	struct try t = {.host = "127.0.0.1", .ip = v4, .ip_len = 4};
	struct err e = ERR_INIT;
	SSL *ssl;

	(void)state;
	assert_int_equal(attempt(ctx, &t), 0);
	t = (struct try){.host = NULL, .ip = v6, .ip_len = 16};
	assert_int_equal(attempt(ctx, &t), 0);
	t = (struct try){.host = "127.0.0.1", .ip = other, .ip_len = 4};
	assert_int_equal(attempt(ctx, &t), -1);
	assert_says(t.err.text, "127.0.0.1, ::1, not for 127.0.0.2");
	/* An address that is spelled as a DNS name is not one. */
	t = (struct try){.host = "127.0.0.1", .ip = v4, .ip_len = 4};
	assert_int_equal(attempt(text_ctx, &t), -1);
	assert_int_equal(t.err.reason, REASON_UPSTREAM_UNTRUSTED);
	/* No SNI for an address, one for a name. */
	assert_int_equal(trust_client_new(trust, "127.0.0.1", v4, 4, STR_NONE, STR("k"), &ssl, &e),
			 0);
	assert_null(SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name));
	SSL_free(ssl);
	assert_int_equal(trust_client_new(trust, "a.test", NULL, 0, STR_NONE, STR("k"), &ssl, &e),
			 0);
	assert_string_equal(SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name), "a.test");
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	SSL_CTX_free(text_ctx);
	pki_free(&leaf);
	pki_free(&text);
}

/* Names with which OpenSSL would check less than asked, or nothing. */
static void unusable_hosts(void **state)
{
	static const unsigned char ip[16];
	char longest[LIMIT_HOST_BYTES + 2];
	const char *bad_hosts[] = {NULL, "", ".test", longest};
	struct err e = ERR_INIT;
	SSL *ssl;

	(void)state;
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(bad_hosts); i++)
		assert_int_equal(trust_client_new(trust, bad_hosts[i], NULL, 0, STR_NONE, STR("k"),
						  &ssl, &e),
				 -1);
	assert_int_equal(trust_client_new(trust, "a", ip, 5, STR_NONE, STR("k"), &ssl, &e), -1);
	assert_int_equal(trust_client_new(trust, "a", ip, 0, STR_NONE, STR("k"), &ssl, &e), -1);
}

static void dates(void **state)
{
	char day[32];
	time_t then = time(NULL) - 2 * DAY;
	struct tm tm;

	(void)state;
	gmtime_r(&then, &tm);
	strftime(day, sizeof(day), "expired on %Y-%m-%d at ", &tm);
	BAD(seen(LEAF(.san = "DNS:a.test", .from = -9 * DAY, .to = -2 * DAY), NULL, "a.test"),
	    "certificate of a.test expired", day, "Z (subject CN=x", "issuer CN=Test Root");
	BAD(seen(LEAF(.san = "DNS:a.test", .from = 2 * DAY, .to = 9 * DAY), NULL, "a.test"),
	    "certificate of a.test is not valid before ");
}

static void issuers(void **state)
{
	struct pki_pair old_mid = pki_make(&(struct pki_spec){
		.cn = "Old", .ca = true, .issuer = &root, .from = -9 * DAY, .to = -DAY});
	struct pki_pair fake = pki_make(&(struct pki_spec){.cn = "Test Root", .ca = true});
	struct pki_pair not_ca = pki_make(LEAF(.san = "DNS:a.test"));

	(void)state;
	good(seen(&(struct pki_spec){.san = "DNS:a.test", .issuer = &mid}, mid.cert, "a.test"));
	BAD(seen(&(struct pki_spec){.san = "DNS:a.test", .issuer = &mid}, NULL, "a.test"),
	    "issuer CN=Test Intermediate is not trusted", "upstream.trust", "no intermediate");
	BAD(seen(&(struct pki_spec){.san = "DNS:a.test", .issuer = &stranger}, NULL, "a.test"),
	    "issuer CN=Stranger is not trusted", "upstream.trust");
	BAD(seen(&(struct pki_spec){.san = "DNS:a.test", .issuer = &stranger}, stranger.cert,
		 "a.test"),
	    "issuer CN=Stranger is not trusted");
	BAD(seen(&(struct pki_spec){.cn = "me", .san = "DNS:a.test"}, NULL, "a.test"),
	    "self-signed", "subject CN=me", "upstream.trust");
	BAD(seen(&(struct pki_spec){.san = "DNS:a.test", .issuer = &old_mid}, old_mid.cert,
		 "a.test"),
	    "a CA certificate of a.test expired", "subject CN=Old");
	/* The right name with another key; a leaf that plays the CA; a certificate for clients. */
	BAD(seen(&(struct pki_spec){.san = "DNS:a.test", .issuer = &fake}, NULL, "a.test"),
	    "a.test");
	BAD(seen(&(struct pki_spec){.cn = "y", .san = "DNS:a.test", .issuer = &not_ca}, not_ca.cert,
		 "a.test"),
	    "a.test");
	BAD(seen(LEAF(.san = "DNS:a.test", .eku = "clientAuth"), NULL, "a.test"), "a.test",
	    "purpose");
	pki_free(&old_mid);
	pki_free(&fake);
	pki_free(&not_ca);
}

static void weak(void **state)
{
	struct err e;

	(void)state;
	BAD(seen(LEAF(.san = "DNS:a.test", .rsa_bits = 1024), NULL, "a.test"), "too weak");
	e = seen(LEAF(.san = "DNS:a.test", .md = EVP_sha1()), NULL, "a.test");
	BAD(e, "too weak");
}

/* A name with a NUL in it is neither the part before nor a line that ends there. */
static void nul_in_name(void **state)
{
	(void)state;
	BAD(seen(LEAF(.raw_dns = "a.test\0.evil.test", .raw_dns_n = 17), NULL, "a.test"),
	    "a.test\\x00.evil.test, not for a.test");
	BAD(seen(LEAF(.raw_dns = "a.test\0", .raw_dns_n = 7), NULL, "a.test"), "not for a.test");
	BAD(seen(LEAF(.raw_dns = "a.test\n", .raw_dns_n = 7), NULL, "a.test"), "not for a.test");
	BAD(seen(LEAF(.raw_dns = "", .raw_dns_n = 0), NULL, "a.test"), "not for a.test");
}

/* What a certificate says must not move a cursor, forge a line or push the cure out of the text. */
static void hostile_text(void **state)
{
	char cn[65];
	struct err e;

	(void)state;
	e = seen(&(struct pki_spec){.cn = "a\n\x1b[2Kforged\x7f", .san = "DNS:a.test"}, NULL,
		 "a.test");
	BAD(e, "self-signed");
	for (const char *p = e.text; *p; p++)
		assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
	memset(cn, '\x01', 64);
	cn[64] = '\0';
	e = seen(&(struct pki_spec){.cn = cn, .san = "DNS:a.test"}, NULL, "a.test");
	BAD(e, "self-signed", "upstream.trust");
}

static void partial_chain(void **state)
{
	struct pki_pair self = pki_make(&(struct pki_spec){.cn = "self", .san = "DNS:s.test"});
	struct pki_pair leaf = pki_make(&(struct pki_spec){.san = "DNS:a.test", .issuer = &mid});
	SSL_CTX *self_ctx = pki_server_ctx(&self, NULL), *leaf_ctx = pki_server_ctx(&leaf, NULL);
	struct trust *t = trust_in((X509 *[]){mid.cert, self.cert}, 2);
	struct try a = {.trust = t, .host = "a.test"}, s = {.trust = t, .host = "s.test"};
	struct try wrong = {.trust = t, .host = "x.test"};

	(void)state;
	/* The cure that the message proposes does cure, without opening anything else. */
	assert_int_equal(attempt(leaf_ctx, &a), 0);
	assert_int_equal(attempt(self_ctx, &s), 0);
	assert_int_equal(attempt(self_ctx, &wrong), -1);
	trust_unref(t);
	SSL_CTX_free(self_ctx);
	SSL_CTX_free(leaf_ctx);
	pki_free(&self);
	pki_free(&leaf);
}

static void client_cert_wanted(void **state)
{
	struct pki_pair leaf = pki_make(LEAF(.san = "DNS:a.test"));

	(void)state;
	for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++) {
		SSL_CTX *ctx = pki_server_ctx(&leaf, NULL);
		struct try t = {.host = "a.test"};

		SSL_CTX_set_max_proto_version(ctx, v);
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
		assert_int_equal(attempt(ctx, &t), -1);
		assert_int_equal(t.err.reason, REASON_UPSTREAM_WANTS_CERT);
		assert_says(t.err.text, "tls: passthrough");
		/* Asked, but not insisted on. */
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
		assert_int_equal(attempt(ctx, &t), 0);
		SSL_CTX_free(ctx);
	}
	pki_free(&leaf);
}

static void other_failures(void **state)
{
	struct pki_pair leaf = pki_make(LEAF(.san = "DNS:a.test"));
	SSL_CTX *ctx = pki_server_ctx(&leaf, NULL);
	struct try t = {.host = "a.test"};
	struct err e = ERR_INIT;
	BIO *ours, *theirs;
	SSL *ssl;

	(void)state;
	SSL_CTX_set_min_proto_version(ctx, TLS1_1_VERSION);
	SSL_CTX_set_max_proto_version(ctx, TLS1_1_VERSION);
	SSL_CTX_set_cipher_list(ctx, "ALL:@SECLEVEL=0");
	assert_int_equal(attempt(ctx, &t), -1);
	assert_int_equal(t.err.reason, REASON_UPSTREAM_TLS_FAILED);
	assert_says(t.err.text, "a.test");

	/* An origin that speaks plain HTTP, and one that hangs up. */
	for (int i = 0; i < 2; i++) {
		const char *says = i == 0 ? "HTTP/1.1 400 Bad Request\r\n\r\n" : "";

		assert_int_equal(trust_client_new(trust, "a.test", NULL, 0, STR_NONE, STR("k"),
						  &ssl, &e),
				 0);
		BIO_new_bio_pair(&ours, 0, &theirs, 0);
		SSL_set_bio(ssl, ours, ours);
		assert_int_not_equal(SSL_do_handshake(ssl), 1);
		BIO_write(theirs, says, (int)strlen(says));
		BIO_shutdown_wr(theirs);
		ERR_clear_error();
		assert_int_not_equal(SSL_do_handshake(ssl), 1);
		assert_int_equal(trust_explain(ssl, &e), -1);
		assert_int_equal(e.reason, REASON_UPSTREAM_TLS_FAILED);
		assert_says(e.text, i == 0 ? "does it speak TLS" : "closed the connection");
		SSL_free(ssl);
		BIO_free(theirs);
	}
	SSL_CTX_free(ctx);
	pki_free(&leaf);
}

static void sessions(void **state)
{
	struct pki_pair leaf = pki_make(LEAF(.san = "DNS:a.test,DNS:b.test"));

	(void)state;
	for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++) {
		struct trust *t = trust_in(&root.cert, 1), *reloaded = trust_in(&root.cert, 1);
		SSL_CTX *ctx = pki_server_ctx(&leaf, NULL);
		struct try one = {.trust = t, .host = "a.test", .key = "a|443|s1"};
		struct try two = {.trust = t, .host = "a.test", .key = "a|443|s2"};
		struct try other_host = {.trust = t, .host = "b.test", .key = "a|443|s1"};
		struct try fresh = {.trust = reloaded, .host = "a.test", .key = "a|443|s1"};

		SSL_CTX_set_max_proto_version(ctx, v);
		assert_int_equal(attempt(ctx, &one), 0);
		assert_int_equal(one.version, v);
		assert_false(one.reused);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(attempt(ctx, &one), 0);
			assert_true(one.reused);
		}
		/* Another partition, another host with the same key, other roots: from scratch. */
		assert_int_equal(attempt(ctx, &two), 0);
		assert_false(two.reused);
		assert_int_equal(attempt(ctx, &other_host), 0);
		assert_false(other_host.reused);
		assert_int_equal(attempt(ctx, &fresh), 0);
		assert_false(fresh.reused);
		SSL_CTX_free(ctx);
		trust_unref(t);
		trust_unref(reloaded);
	}
	pki_free(&leaf);
}

/* A handshake that was refused leaves nothing to resume, and an SSL may outlive its trust. */
static void no_session_without_trust(void **state)
{
	struct pki_pair leaf =
		pki_make(&(struct pki_spec){.san = "DNS:a.test", .issuer = &stranger});
	SSL_CTX *ctx = pki_server_ctx(&leaf, NULL);
	struct trust *t = trust_in(&root.cert, 1);
	struct try a = {.trust = t, .host = "a.test"};
	struct err e = ERR_INIT;
	SSL *ssl;

	(void)state;
	assert_int_equal(attempt(ctx, &a), -1);
	assert_int_equal(attempt(ctx, &a), -1);
	assert_int_equal(session_cache_count(trust_sessions(t)), 0);
	assert_int_equal(trust_client_new(t, "a.test", NULL, 0, STR_NONE, STR("k"), &ssl, &e), 0);
	trust_unref(t);
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	pki_free(&leaf);
}

static int fill_ticket(SSL *ssl, void *arg)
{
	static const unsigned char filling[65535];

	return SSL_SESSION_set1_ticket_appdata(SSL_get_session(ssl), filling, *(size_t *)arg);
}

/* How many sessions are kept of an origin whose ticket has so many bytes more than it needs, and
 * which sends so many certificates more. */
static size_t kept_of_large(int version, size_t filling, int certs)
{
	struct pki_pair leaf = pki_make(LEAF(.san = "DNS:a.test"));
	SSL_CTX *ctx = pki_server_ctx(&leaf, NULL);
	struct trust *t = trust_in(&root.cert, 1);
	struct try a = {.trust = t, .host = "a.test"};
	size_t n;

	SSL_CTX_set_max_proto_version(ctx, version);
	SSL_CTX_set_num_tickets(ctx, 1);
	SSL_CTX_set_session_ticket_cb(ctx, fill_ticket, NULL, &filling);
	for (int i = 0; i < certs; i++)
		assert_int_equal(SSL_CTX_add1_chain_cert(ctx, stranger.cert), 1);
	assert_int_equal(attempt(ctx, &a), 0);
	n = session_cache_count(trust_sessions(t));
	SSL_CTX_free(ctx);
	trust_unref(t);
	pki_free(&leaf);
	return n;
}

/* An origin must not decide how much memory a thousand of its sessions take. */
static void large_sessions_are_not_kept(void **state)
{
	(void)state;
	for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++) {
		assert_int_equal(kept_of_large(v, 4096, 4), 1);
		assert_int_equal(kept_of_large(v, 4096, 40), 0);
		assert_int_equal(kept_of_large(v, LIMIT_SESSION_BYTES, 0), 0);
	}
}

/* Nor how long it takes to read what it shows. */
static void a_long_chain_is_refused(void **state)
{
	struct pki_pair leaf = pki_make(LEAF(.san = "DNS:a.test"));
	int der_n = i2d_X509(stranger.cert, NULL);

	(void)state;
	for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++)
		for (int is_long = 0; is_long <= 1; is_long++) {
			SSL_CTX *ctx = pki_server_ctx(&leaf, NULL);
			struct try a = {.host = "a.test"};
			int n = LIMIT_CHAIN_BYTES / (is_long ? 1 : 2) / der_n;

			SSL_CTX_set_max_proto_version(ctx, v);
			while (n-- > 0)
				assert_int_equal(SSL_CTX_add1_chain_cert(ctx, stranger.cert), 1);
			assert_int_equal(attempt(ctx, &a), is_long ? -1 : 0);
			if (is_long)
				assert_says(a.err.text, "excessive message size");
			SSL_CTX_free(ctx);
		}
	pki_free(&leaf);
}

/* A TLS 1.3 ticket shows on the wire, so it is used once; a TLS 1.2 session is not shared but
 * copied. */
static void handed_out_once(void **state)
{
	struct pki_pair leaf = pki_make(LEAF(.san = "DNS:a.test"));
	struct str key = {"a.test\0k", 8};

	(void)state;
	for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++) {
		SSL_CTX *ctx = pki_server_ctx(&leaf, NULL);
		struct trust *t = trust_in(&root.cert, 1);
		struct try a = {.trust = t, .host = "a.test", .key = "k"};
		SSL_SESSION *first, *second;

		SSL_CTX_set_max_proto_version(ctx, v);
		assert_int_equal(attempt(ctx, &a), 0);
		assert_int_equal(session_cache_count(trust_sessions(t)), 1);
		first = session_cache_take(trust_sessions(t), key);
		second = session_cache_take(trust_sessions(t), key);
		assert_non_null(first);
		assert_int_equal(second != NULL, v == TLS1_2_VERSION);
		assert_ptr_not_equal(first, second);
		SSL_SESSION_free(first);
		SSL_SESSION_free(second);
		SSL_CTX_free(ctx);
		trust_unref(t);
	}
	pki_free(&leaf);
}

static void long_session_key(void **state)
{
	struct pki_pair leaf = pki_make(LEAF(.san = "DNS:a.test"));
	SSL_CTX *ctx = pki_server_ctx(&leaf, NULL);
	char key[4000];
	struct try a = {.host = "a.test", .key = key};

	(void)state;
	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	assert_int_equal(attempt(ctx, &a), 0);
	assert_int_equal(attempt(ctx, &a), 0);
	assert_false(a.reused);
	SSL_CTX_free(ctx);
	pki_free(&leaf);
}

static void session_cache(void **state)
{
	struct pki_pair leaf = pki_make(LEAF(.san = "DNS:a.test"));
	SSL_CTX *ctx = pki_server_ctx(&leaf, NULL);
	struct session_cache *c;
	struct err e = ERR_INIT;
	char key[32];

	(void)state;
	assert_int_equal(session_cache_new(4, &c, &e), 0);
	for (int i = 0; i < 10; i++) {
		snprintf(key, sizeof(key), "%d", i);
		session_cache_put(c, str_from_c(key), SSL_SESSION_new());
	}
	assert_int_equal(session_cache_count(c), 4);
	/* Without a peer's certificate there is nothing to rest on. */
	assert_null(session_cache_take(c, STR("9")));
	assert_null(session_cache_take(c, STR("0")));
	session_cache_drop(c, STR("8"));
	session_cache_drop(c, STR("8"));
	assert_int_equal(session_cache_count(c), 2);
	session_cache_free(c);
	session_cache_free(NULL);
	SSL_CTX_free(ctx);
	pki_free(&leaf);
}

/* A session does not outlive the certificate that it was verified by. */
static void session_ends_with_certificate(void **state)
{
	struct pki_pair leaf = pki_make(LEAF(.san = "DNS:a.test", .from = -DAY, .to = 5));

	(void)state;
	for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++) {
		SSL_CTX *ctx = pki_server_ctx(&leaf, NULL);
		struct trust *t = trust_in(&root.cert, 1);
		struct try a = {.trust = t, .host = "a.test"};

		SSL_CTX_set_max_proto_version(ctx, v);
		if (v == TLS1_2_VERSION) {
			assert_int_equal(attempt(ctx, &a), 0);
			assert_int_equal(attempt(ctx, &a), 0);
			assert_true(a.reused);
			sleep(6);
		}
		assert_int_equal(attempt(ctx, &a), -1);
		assert_says(a.err.text, "expired");
		trust_unref(t);
		SSL_CTX_free(ctx);
	}
	pki_free(&leaf);
}

static void bad_sources(void **state)
{
	char *none[] = {ca_file}, *missing[] = {(char *)"/nonexistent/x.pem"};
	char *dir[] = {(char *)"/tmp"};
	struct err e = ERR_INIT;
	struct trust *t;
	FILE *f;

	(void)state;
	assert_int_equal(trust_new(NULL, 0, &t, &e), -1);
	assert_says(e.text, "upstream.trust");
	assert_int_equal(trust_new(missing, 1, &t, &e), -1);
	assert_says(e.text, "/nonexistent/x.pem");
	assert_int_equal(trust_new(dir, 1, &t, &e), -1);
	pki_write(ca_file, NULL, 0);
	assert_int_equal(trust_new(none, 1, &t, &e), -1);
	assert_says(e.text, ca_file);
	/* One good, one cut: a fault, not half a list. */
	pki_write(ca_file, (X509 *[]){root.cert}, 1);
	f = fopen(ca_file, "a");
	fputs("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", f);
	fclose(f);
	assert_int_equal(trust_new(none, 1, &t, &e), -1);
	assert_says(e.text, "certificate number 2");
	assert_int_equal(ERR_peek_error(), 0);
}

static void settings(void **state)
{
	struct err e = ERR_INIT;
	SSL *ssl;

	(void)state;
	assert_int_equal(trust_client_new(trust, "a.test", NULL, 0, STR_NONE, STR("k"), &ssl, &e),
			 0);
	assert_int_equal(SSL_get_verify_mode(ssl), SSL_VERIFY_PEER);
	assert_int_equal(SSL_get_min_proto_version(ssl), TLS1_2_VERSION);
	assert_int_equal(SSL_get_security_level(ssl), 2);
	assert_false(SSL_get_options(ssl) &
		     (SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_LEGACY_SERVER_CONNECT));
	/* None is lost by the order. */
	assert_string_equal(SSL_get_cipher_list(ssl, 0), "TLS_AES_128_GCM_SHA256");
	assert_string_equal(SSL_get_cipher_list(ssl, 1), "TLS_AES_256_GCM_SHA384");
	assert_string_equal(SSL_get_cipher_list(ssl, 2), "TLS_CHACHA20_POLY1305_SHA256");
	SSL_free(ssl);
	trust_unref(trust_ref(trust));
	trust_unref(NULL);
}

/* One trust, one origin, several threads that store and take the same session. */
static SSL_CTX *shared_origin[2];

static void *hammer(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 40; i++) {
		struct err e = ERR_INIT;
		SSL *client, *server, *failed;
		bool wrong = rand_r(&seed) % 8 == 0;

		if (trust_client_new(trust, wrong ? "b.test" : "a.test", NULL, 0, STR_NONE,
				     i % 3 ? STR("k") : STR("l"), &client, &e) != 0)
			return (void *)"no client";
		server = SSL_new(shared_origin[i % 2]);
		SSL_set_accept_state(server);
		pki_join(client, server);
		if (pki_handshake(client, server, &failed) == wrong)
			return (void *)"the wrong outcome";
		if (wrong && (trust_explain(client, &e), !strstr(e.text, "not for b.test")))
			return (void *)"the wrong words";
		if (!wrong && !pki_exchange(client, server))
			return (void *)"no exchange";
		SSL_shutdown(client);
		SSL_free(client);
		SSL_free(server);
	}
	return NULL;
}

static void threads(void **state)
{
	enum { THREADS = 4 };
	struct pki_pair leaf = pki_make(LEAF(.san = "DNS:a.test"));
	pthread_t t[THREADS];
	void *fault;

	(void)state;
	for (int i = 0; i < 2; i++)
		shared_origin[i] = pki_server_ctx(&leaf, NULL);
	SSL_CTX_set_max_proto_version(shared_origin[0], TLS1_2_VERSION);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, hammer, (void *)(i + 1)), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], &fault);
		if (fault)
			fail_msg("%s", (const char *)fault);
	}
	SSL_CTX_free(shared_origin[0]);
	SSL_CTX_free(shared_origin[1]);
	pki_free(&leaf);
}

static void speed(void **state)
{
	enum { N = 2000 };
	struct err e = ERR_INIT;
	uint64_t t = pki_ns();
	SSL *ssl;

	(void)state;
	for (int i = 0; i < N; i++) {
		assert_int_equal(trust_client_new(trust, "a.test", NULL, 0, STR_NONE, STR("k"),
						  &ssl, &e),
				 0);
		SSL_free(ssl);
	}
	print_message("trust_client_new and SSL_free %.1f us\n", (double)(pki_ns() - t) / 1000 / N);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(wildcards),
		cmocka_unit_test(name_constraints),
		cmocka_unit_test(addresses),
		cmocka_unit_test(unusable_hosts),
		cmocka_unit_test(dates),
		cmocka_unit_test(issuers),
		cmocka_unit_test(weak),
		cmocka_unit_test(nul_in_name),
		cmocka_unit_test(hostile_text),
		cmocka_unit_test(partial_chain),
		cmocka_unit_test(client_cert_wanted),
		cmocka_unit_test(other_failures),
		cmocka_unit_test(sessions),
		cmocka_unit_test(no_session_without_trust),
		cmocka_unit_test(large_sessions_are_not_kept),
		cmocka_unit_test(a_long_chain_is_refused),
		cmocka_unit_test(handed_out_once),
		cmocka_unit_test(long_session_key),
		cmocka_unit_test(session_cache),
		cmocka_unit_test(session_ends_with_certificate),
		cmocka_unit_test(bad_sources),
		cmocka_unit_test(settings),
		cmocka_unit_test(threads),
		cmocka_unit_test(speed),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
