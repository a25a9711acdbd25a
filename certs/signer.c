/*
 * Puts leaf.c, leaf_cache.c and the server side of TLS together. One SSL_CTX serves all hosts: a
 * context per host would cost tens of kilobytes each, and its ticket keys with it. What differs
 * from host to host (leaf, ticket binding) is set on the SSL. It does not know who may ask for
 * which name.
 */
#include "certs/signer.h"

#include <pthread.h>
#include <stdlib.h>

#include <openssl/core_names.h>

#include "certs/leaf.h"
#include "certs/leaf_cache.h"
#include "certs/signer_clock.h"
#include "certs/tls_ctx.h"
#include "certs/tls_err.h"

struct signer {
	/* owned */
	struct leaf_maker *maker;   /* NULL: remote */
	EVP_PKEY *key;		    /* remote: of all leaves */
	struct leaf_blanks *blanks; /* remote */
	struct leaf_cache *cache;
	SSL_CTX *ctx; /* counted by each SSL as well */
	/* counted */
	struct ca *ca; /* remote: for the chain */
	/* plain */
	time_t (*now)(void);
};

/* Where an SSL keeps the caller's `alpn`. */
static int alpn_data_index = -1, alpn_len_index = -1;
static pthread_once_t index_once = PTHREAD_ONCE_INIT;

static void make_indexes(void)
{
	alpn_data_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
	alpn_len_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
}

/* RFC 7301 section 3.2: our order decides; no overlap is fatal. Not called for a client without
 * the extension. */
static int on_alpn_select(SSL *ssl, const unsigned char **out, unsigned char *out_len,
			  const unsigned char *in, unsigned in_len, void *arg)
{
	const unsigned char *ours = SSL_get_ex_data(ssl, alpn_data_index);
	uintptr_t ours_len = (uintptr_t)SSL_get_ex_data(ssl, alpn_len_index);
	unsigned char *picked = NULL;

	(void)arg;
	if (ours_len == 0)
		return SSL_TLSEXT_ERR_NOACK;
	if (SSL_select_next_proto(&picked, out_len, ours, (unsigned)ours_len, in, in_len) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = picked;
	return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *make_ctx(void)
{
	SSL_CTX *ctx = tls_ctx_new(TLS_server_method());

	if (!ctx)
		return NULL;
	/* Leaves are ECDSA, so only these suites can be meant in TLS 1.2. */
	if (SSL_CTX_set_cipher_list(ctx, "ECDHE-ECDSA-AES128-GCM-SHA256:"
					 "ECDHE-ECDSA-AES256-GCM-SHA384:"
					 "ECDHE-ECDSA-CHACHA20-POLY1305") != 1 ||
	    /* And only these signatures; that of the key's own curve is what TLS 1.3 has. */
	    SSL_CTX_set1_sigalgs_list(ctx, "ECDSA+SHA256:ECDSA+SHA384:ECDSA+SHA512:ECDSA+SHA224") !=
		    1 ||
	    SSL_CTX_set_num_tickets(ctx, 1) != 1) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	/* Our order (tls_ctx.c), unless a client has ChaCha20 first: that one has no AES in
	 * hardware. */
	SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_NONE, NULL);
	SSL_CTX_set_alpn_select_cb(ctx, on_alpn_select, NULL);
	/* Tickets carry the state; nothing is kept here for a client that does not come back. */
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	/* The chain is what ca_chain says, not what OpenSSL could find. */
	SSL_CTX_set_mode(ctx, SSL_MODE_NO_AUTO_CHAIN);
	return ctx;
}

static time_t real_now(void)
{
	return time(NULL);
}

/* Neither maker nor key yet. NULL on failure. */
static struct signer *new_bare(size_t cache_max, struct err *e)
{
	struct signer *s = calloc(1, sizeof(*s));

	if (!s) {
		err_set(e, "out of memory");
		return NULL;
	}
	pthread_once(&index_once, make_indexes);
	s->now = real_now;
	s->ctx = make_ctx();
	if (!s->ctx || alpn_data_index < 0 || alpn_len_index < 0) {
		tls_err(e, REASON_NONE, "cannot prepare the server side of TLS");
		signer_free(s);
		return NULL;
	}
	if (leaf_cache_new(cache_max, &s->cache, e) != 0) {
		signer_free(s);
		return NULL;
	}
	return s;
}

int signer_new(struct ca *ca, size_t cache_max, struct signer **ret, struct err *e)
{
	struct signer *s = new_bare(cache_max, e);

	if (!s)
		return -1;
	if (leaf_maker_new(ca, &s->maker, e) != 0) {
		signer_free(s);
		return -1;
	}
	*ret = s;
	return 0;
}

int signer_new_remote(struct ca *ca, size_t cache_max, struct signer **ret, struct err *e)
{
	struct signer *s = new_bare(cache_max, e);

	if (!s)
		return -1;
	s->ca = ca_ref(ca);
	s->key = EVP_EC_gen("P-256");
	if (!s->key) {
		signer_free(s);
		return tls_err(e, REASON_NONE, "cannot make a key for leaves");
	}
	if (leaf_blanks_new(s->key, &s->blanks, e) != 0) {
		signer_free(s);
		return -1;
	}
	*ret = s;
	return 0;
}

bool signer_is_remote(const struct signer *s)
{
	return !s->maker;
}

int signer_public_key(const struct signer *s, unsigned char ret[SIGNER_POINT_LEN], struct err *e)
{
	size_t n = 0;

	if (EVP_PKEY_get_octet_string_param(s->key, OSSL_PKEY_PARAM_PUB_KEY, ret, SIGNER_POINT_LEN,
					    &n) == 1 &&
	    n == SIGNER_POINT_LEN)
		return 0;
	return tls_err(e, REASON_NONE, "cannot tell the key of leaves");
}

void signer_free(struct signer *s)
{
	if (!s)
		return;
	SSL_CTX_free(s->ctx);
	leaf_cache_free(s->cache);
	leaf_maker_free(s->maker);
	leaf_blanks_free(s->blanks);
	EVP_PKEY_free(s->key);
	ca_unref(s->ca);
	free(s);
}

void signer_set_clock(struct signer *s, time_t (*now)(void))
{
	s->now = now;
}

static struct leaf *get_or_make(struct signer *s, const struct leaf_name *name, struct err *e)
{
	time_t now = s->now();
	struct leaf_key key;
	struct leaf *l;

	if (leaf_key_init(&key, name, e) != 0)
		return NULL;
	l = leaf_cache_get(s->cache, &key, now);
	if (l)
		return l;
	if (signer_is_remote(s)) {
		err_reason(e, REASON_INTERNAL_ERROR, "nobody here signs a leaf");
		return NULL;
	}
	if (leaf_make(s->maker, &key, name->text, now, &l, e) != 0)
		return NULL;
	return leaf_cache_put(s->cache, &key, l, now);
}

struct leaf *signer_find(struct signer *s, const struct leaf_name *name)
{
	struct leaf_key key;

	if (leaf_key_init(&key, name, NULL) != 0)
		return NULL;
	return leaf_cache_get(s->cache, &key, s->now());
}

int signer_put(struct signer *s, const struct leaf_name *name, struct str der, struct leaf **ret,
	       struct err *e)
{
	struct leaf *l = NULL;
	struct leaf_key key;

	if (leaf_key_init(&key, name, e) != 0 ||
	    leaf_from_der(der, s->key, s->blanks, s->ca, &key, &l, e) != 0)
		return -1;
	*ret = leaf_cache_put(s->cache, &key, l, s->now());
	return 0;
}

void signer_prepare(struct signer *s)
{
	if (s->blanks)
		leaf_blanks_refill(s->blanks);
}

void signer_get(struct signer *s, const struct leaf_name *name,
		void (*done)(void *arg, struct leaf *leaf, const struct err *e), void *arg)
{
	struct err e = ERR_INIT;

	done(arg, get_or_make(s, name, &e), &e);
}

int signer_server_new(struct signer *s, struct leaf *leaf, struct str alpn, SSL **ret,
		      struct err *e)
{
	STACK_OF(X509) *chain = ca_chain(leaf->ca);
	SSL *ssl = SSL_new(s->ctx);

	/* One call for the three: what kind of key it is gets looked for once. */
	if (!ssl ||
	    SSL_use_cert_and_key(ssl, leaf->cert, leaf->key, sk_X509_num(chain) > 0 ? chain : NULL,
				 1) != 1 ||
	    SSL_set_session_id_context(ssl, leaf->sid_ctx, LEAF_SID_CTX_LEN) != 1 ||
	    SSL_set_ex_data(ssl, alpn_data_index, (void *)(uintptr_t)alpn.p) != 1 ||
	    SSL_set_ex_data(ssl, alpn_len_index, (void *)(uintptr_t)alpn.n) != 1) {
		SSL_free(ssl);
		return tls_err(e, REASON_INTERNAL_ERROR,
			       "cannot prepare the client's TLS connection");
	}
	SSL_set_accept_state(ssl);
	*ret = ssl;
	return 0;
}
