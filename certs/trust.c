/*
 * The client side of TLS towards an origin: which roots, which checks, which sessions. The checks
 * are OpenSSL's own, set so that they cannot be left out; what they found is put in words by
 * trust_explain.c.
 */
#include "certs/trust.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "certs/file.h"
#include "certs/root_lookup.h"
#include "certs/roots.h"
#include "certs/tls_ctx.h"
#include "certs/tls_err.h"
#include "certs/trust_conn.h"

/* A longer session_key is no fault; such a connection is not resumed. */
#define SESSION_KEY_MAX 1024

struct trust {
	/* owned */
	struct session_cache *sessions;
	SSL_CTX *ctx; /* counted by each SSL as well */
	/* plain */
	atomic_uint refs;
};

static int conn_index = -1;
static pthread_once_t index_once = PTHREAD_ONCE_INIT;

static void on_conn_free(void *parent, void *ptr, CRYPTO_EX_DATA *ad, int idx, long argl,
			 void *argp)
{
	struct trust_conn *conn = ptr;

	(void)parent;
	(void)ad;
	(void)idx;
	(void)argl;
	(void)argp;
	if (!conn)
		return;
	X509_free(conn->bad);
	client_cert_unref(conn->show);
	trust_unref(conn->trust);
	free(conn);
}

static void make_index(void)
{
	conn_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, on_conn_free);
}

struct trust_conn *trust_conn_of(const SSL *ssl)
{
	return SSL_get_ex_data(ssl, conn_index);
}

struct session_cache *trust_sessions(const struct trust *t)
{
	return t->sessions;
}

/* Is host the name that a dNSName of an exclusion says, or below it (RFC 5280 section 4.2.1.10)? */
static bool is_within(const char *host, const ASN1_IA5STRING *base)
{
	struct str h = str_from_c(host),
		   b = str_from(ASN1_STRING_get0_data(base), (size_t)ASN1_STRING_length(base));

	if (b.n == 0)
		return true;
	if (b.n > h.n || !str_eq_nocase(str_skip(h, h.n - b.n), b))
		return false;
	return b.n == h.n || b.p[0] == '.' || h.p[h.n - b.n - 1] == '.';
}

static bool excludes(X509 *ca, const char *host)
{
	NAME_CONSTRAINTS *nc = NULL;
	bool found = false;

	if (X509_get_ext_by_NID(ca, NID_name_constraints, -1) < 0)
		return false;
	nc = X509_get_ext_d2i(ca, NID_name_constraints, NULL, NULL);
	for (int i = 0; nc && i < sk_GENERAL_SUBTREE_num(nc->excludedSubtrees); i++) {
		const GENERAL_NAME *gn = sk_GENERAL_SUBTREE_value(nc->excludedSubtrees, i)->base;

		found |= gn->type == GEN_DNS && is_within(host, gn->d.dNSName);
	}
	found |= !nc;
	NAME_CONSTRAINTS_free(nc);
	return found;
}

/* OpenSSL compares the names of the certificate with what its CAs may not sign: *.a.test is no name
 * within an excluded x.a.test, and would be taken for x.a.test all the same. So the name that is
 * asked for is compared as well. What is permitted needs no such look: with *.a.test all of it is.
 */
static bool is_excluded(X509_STORE_CTX *store)
{
	STACK_OF(X509) *chain = X509_STORE_CTX_get0_chain(store);
	const char *host = X509_VERIFY_PARAM_get0_host(X509_STORE_CTX_get0_param(store), 0);

	for (int i = 1; host && i < sk_X509_num(chain); i++)
		if (excludes(sk_X509_value(chain, i), host))
			return true;
	return false;
}

/* Watches, and never turns a no into a yes. */
static int on_verify(int ok, X509_STORE_CTX *store)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct trust_conn *conn = ssl ? trust_conn_of(ssl) : NULL;
	X509 *bad = X509_STORE_CTX_get_current_cert(store);

	if (ok && X509_STORE_CTX_get_error_depth(store) == 0 && is_excluded(store)) {
		X509_STORE_CTX_set_error(store, X509_V_ERR_EXCLUDED_VIOLATION);
		ok = 0;
	}
	if (ok || !conn || conn->error != X509_V_OK)
		return ok;
	conn->error = X509_STORE_CTX_get_error(store);
	conn->depth = X509_STORE_CTX_get_error_depth(store);
	conn->chain_n = sk_X509_num(X509_STORE_CTX_get0_untrusted(store));
	if (!bad)
		bad = X509_STORE_CTX_get0_cert(store);
	if (bad && X509_up_ref(bad))
		conn->bad = bad;
	return 0;
}

/* We have none to show; remembered, since what follows may be a bare alert. */
static int on_client_cert(SSL *ssl, X509 **cert, EVP_PKEY **key)
{
	struct trust_conn *conn = trust_conn_of(ssl);

	(void)cert;
	(void)key;
	if (conn)
		conn->asked_for_cert = true;
	return 0;
}

/* The origin asks for a certificate: we have one, for an origin that was verified. OpenSSL calls it
 * behind that anyway, in TLS 1.3 too, where the question comes first (RFC 8446 section 4.3.2). */
static int on_cert_wanted(SSL *ssl, void *arg)
{
	struct trust_conn *conn = trust_conn_of(ssl);

	(void)arg;
	if (!conn || !conn->show)
		return 1;
	conn->asked_for_cert = true;
	if (!SSL_get0_peer_certificate(ssl) || SSL_get_verify_result(ssl) != X509_V_OK ||
	    client_cert_use(conn->show, ssl) < 0)
		return 0;
	conn->shown = true;
	return 1;
}

void trust_client_show(SSL *ssl, struct client_cert *c)
{
	struct trust_conn *conn = trust_conn_of(ssl);

	client_cert_unref(conn->show);
	conn->show = client_cert_ref(c);
	SSL_set_cert_cb(ssl, on_cert_wanted, NULL);
}

void trust_client_shown(SSL *ssl)
{
	struct trust_conn *conn = trust_conn_of(ssl);

	if (!conn || !conn->show)
		return;
	SSL_set_cert_cb(ssl, NULL, NULL);
	SSL_certs_clear(ssl);
	client_cert_unref(conn->show);
	conn->show = NULL;
}

/* An origin chooses how large its ticket is, and how many certificates it shows. */
static bool is_small(SSL *ssl, const SSL_SESSION *session)
{
	STACK_OF(X509) *chain = SSL_get_peer_cert_chain(ssl);
	const unsigned char *ticket;
	size_t n = 0;

	SSL_SESSION_get0_ticket(session, &ticket, &n);
	for (int i = 0; i < sk_X509_num(chain) && n <= LIMIT_SESSION_BYTES; i++) {
		int der_n = i2d_X509(sk_X509_value(chain, i), NULL);

		n += LIMIT_SESSION_CERTIFICATE + (size_t)(der_n > 0 ? der_n : LIMIT_SESSION_BYTES);
	}
	return n <= LIMIT_SESSION_BYTES;
}

/* Returns 1 if it keeps the session. */
static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
	struct trust_conn *conn = trust_conn_of(ssl);

	if (!conn || conn->key_len == 0 || SSL_get_verify_result(ssl) != X509_V_OK ||
	    !SSL_SESSION_is_resumable(session) || !is_small(ssl, session))
		return 0;
	session_cache_put(conn->trust->sessions, str_from(conn->key, conn->key_len), session);
	return 1;
}

static SSL_CTX *make_ctx(void)
{
	SSL_CTX *ctx = tls_ctx_new(TLS_client_method());

	if (!ctx)
		return NULL;
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, on_verify);
	/* A certificate that the admin put into upstream.trust is an anchor, be it a root or not.
	 */
	X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(ctx), X509_V_FLAG_PARTIAL_CHAIN);
	/* The names of a certificate are in its subjectAltName (RFC 9525 section 6.3). */
	X509_VERIFY_PARAM_set_hostflags(SSL_CTX_get0_param(ctx),
					X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
						X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	SSL_CTX_set_client_cert_cb(ctx, on_client_cert);
	SSL_CTX_set_max_cert_list(ctx, LIMIT_CHAIN_BYTES);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(ctx, on_new_session);
	return ctx;
}

/* Every certificate of pem becomes an anchor. */
static int add_anchors(X509_STORE *store, struct str pem, struct err *e)
{
	BIO *bio = BIO_new_mem_buf(pem.p, (int)pem.n);
	size_t n = 0;
	X509 *x;

	if (!bio)
		return err_set(e, "out of memory");
	while ((x = PEM_read_bio_X509_AUX(bio, NULL, file_no_passphrase, NULL))) {
		int ok = X509_STORE_add_cert(store, x);

		X509_free(x);
		if (ok != 1)
			break;
		n++;
	}
	BIO_free(bio);
	if (n == 0 || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		return tls_err(e, REASON_NONE, "certificate number %zu cannot be read", n + 1);
	ERR_clear_error();
	return 0;
}

/* alone: no other source is added to that store. */
static int add_source(X509_STORE *store, const char *source, bool alone, struct err *e)
{
	bool system = strcmp(source, "system") == 0;
	struct strbuf pem;
	int rc;

	strbuf_init(&pem, ROOTS_BYTES_MAX);
	rc = system ? roots_add_system(&pem, e) : roots_add_file(source, &pem, e);
	if (rc == 0) {
		/* What an admin names is read to the last byte, so that it is told at once. */
		rc = system && alone ? root_lookup_add(store, strbuf_str(&pem), e)
				     : add_anchors(store, strbuf_str(&pem), e);
		if (rc != 0)
			err_wrap(e, "%s", source);
	}
	strbuf_clear(&pem);
	return rc;
}

int trust_new(char *const *sources, size_t sources_n, struct trust **ret, struct err *e)
{
	struct trust *t;

	if (sources_n == 0)
		return err_set(e, "upstream.trust is empty: no origin could be verified (write "
				  "`trust: [system]`)");
	pthread_once(&index_once, make_index);
	t = calloc(1, sizeof(*t));
	if (!t)
		return err_set(e, "out of memory");
	atomic_init(&t->refs, 1);
	t->ctx = make_ctx();
	if (!t->ctx || conn_index < 0) {
		tls_err(e, REASON_NONE, "cannot prepare TLS towards origins");
		goto fail;
	}
	for (size_t i = 0; i < sources_n; i++)
		if (add_source(SSL_CTX_get_cert_store(t->ctx), sources[i], sources_n == 1, e) !=
		    0) {
			err_wrap(e, "upstream.trust");
			goto fail;
		}
	if (session_cache_new(LIMIT_SESSION_CACHE, &t->sessions, e) != 0)
		goto fail;
	*ret = t;
	return 0;
fail:
	trust_unref(t);
	return -1;
}

struct trust *trust_ref(struct trust *t)
{
	atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
	return t;
}

void trust_unref(struct trust *t)
{
	if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
		return;
	session_cache_free(t->sessions);
	SSL_CTX_free(t->ctx);
	free(t);
}

/* An empty name would switch OpenSSL's check off, and one that begins with a dot would widen it to
 * every name below. */
static int check_host(const char *host, struct err *e)
{
	size_t n = host ? strlen(host) : 0;

	if (n == 0 || n > LIMIT_HOST_BYTES || host[0] == '.')
		return err_reason(e, REASON_INTERNAL_ERROR, "no host name to verify an origin by");
	return 0;
}

/* The name or the address to check the certificate against, and the SNI (RFC 6066 section 3: never
 * an address). */
static int set_peer(SSL *ssl, struct trust_conn *conn, const char *host, const unsigned char *ip,
		    size_t ip_len)
{
	X509_VERIFY_PARAM *param = SSL_get0_param(ssl);

	if (ip) {
		if (!inet_ntop(ip_len == 4 ? AF_INET : AF_INET6, ip, conn->host,
			       sizeof(conn->host)))
			return -1;
		return X509_VERIFY_PARAM_set1_ip(param, ip, ip_len) == 1 ? 0 : -1;
	}
	memcpy(conn->host, host, strlen(host) + 1);
	if (X509_VERIFY_PARAM_set1_host(param, host, strlen(host)) != 1)
		return -1;
	return SSL_set_tlsext_host_name(ssl, host) == 1 ? 0 : -1;
}

/* The session cache's key: the name that was verified, NUL, what the caller wants kept apart. So
 * even a careless session_key cannot make one host's session serve another. */
static void fill_key(struct trust_conn *conn, struct str session_key)
{
	size_t host_n = strlen(conn->host) + 1;

	if (session_key.n > SESSION_KEY_MAX)
		return;
	memcpy(conn->key, conn->host, host_n);
	if (session_key.n > 0)
		memcpy(conn->key + host_n, session_key.p, session_key.n);
	conn->key_len = host_n + session_key.n;
}

static int resume(SSL *ssl, struct trust_conn *conn)
{
	SSL_SESSION *session;
	int rc;

	if (conn->key_len == 0)
		return 0;
	session = session_cache_take(conn->trust->sessions, str_from(conn->key, conn->key_len));
	if (!session)
		return 0;
	rc = SSL_set_session(ssl, session) == 1 ? 0 : -1;
	SSL_SESSION_free(session);
	return rc;
}

/* Hangs a trust_conn on ssl, which owns it from then on. */
static struct trust_conn *attach(SSL *ssl, struct trust *t, size_t session_key_n)
{
	size_t room = session_key_n > SESSION_KEY_MAX ? 0 : session_key_n;
	struct trust_conn *conn = calloc(1, sizeof(*conn) + LIMIT_HOST_BYTES + 1 + room);

	if (!conn)
		return NULL;
	if (SSL_set_ex_data(ssl, conn_index, conn) != 1) {
		free(conn);
		return NULL;
	}
	conn->trust = trust_ref(t);
	conn->error = X509_V_OK;
	return conn;
}

int trust_client_new(struct trust *t, const char *host, const unsigned char *ip, size_t ip_len,
		     struct str alpn, struct str session_key, SSL **ret, struct err *e)
{
	struct trust_conn *conn;
	SSL *ssl;

	if (ip && ip_len != 4 && ip_len != 16)
		return err_reason(e, REASON_INTERNAL_ERROR, "an address of %zu bytes", ip_len);
	if (!ip && check_host(host, e) != 0)
		return -1;
	ssl = SSL_new(t->ctx);
	conn = ssl ? attach(ssl, t, session_key.n) : NULL;
	if (!conn || set_peer(ssl, conn, host, ip, ip_len) != 0)
		goto fail;
	/* 0 is success here. */
	if (alpn.n > 0 &&
	    SSL_set_alpn_protos(ssl, (const unsigned char *)alpn.p, (unsigned)alpn.n) != 0)
		goto fail;
	fill_key(conn, session_key);
	if (resume(ssl, conn) != 0)
		goto fail;
	SSL_set_connect_state(ssl);
	*ret = ssl;
	return 0;
fail:
	SSL_free(ssl);
	return tls_err(e, REASON_INTERNAL_ERROR, "cannot prepare the TLS connection to the origin");
}
