/*
 * An lru of SSL_SESSIONs with a lock around it. Which session may be used for what is the key's
 * matter, and trust.c makes the key.
 */
#include "certs/session_cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "certs/lru.h"

struct session_cache {
	/* owned */
	struct lru *lru;
	/* plain */
	pthread_mutex_t lock;
};

static void on_evict(void *value)
{
	SSL_SESSION_free(value);
}

int session_cache_new(size_t max, struct session_cache **ret, struct err *e)
{
	struct session_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return err_set(e, "out of memory");
	if (lru_new(max, on_evict, &c->lru, e) != 0) {
		free(c);
		return -1;
	}
	pthread_mutex_init(&c->lock, NULL);
	*ret = c;
	return 0;
}

void session_cache_free(struct session_cache *c)
{
	if (!c)
		return;
	lru_free(c->lru);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void session_cache_put(struct session_cache *c, struct str key, SSL_SESSION *session)
{
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = lru_put(c->lru, key.p, key.n, session);
	pthread_mutex_unlock(&c->lock);
	if (rc != 0)
		SSL_SESSION_free(session);
}

/* The certificate is not looked at again on resumption, so a session ends when it does. */
static bool is_alive(SSL_SESSION *session)
{
	X509 *peer = SSL_SESSION_get0_peer(session);

	return SSL_SESSION_is_resumable(session) && peer &&
	       X509_cmp_current_time(X509_get0_notAfter(peer)) > 0;
}

SSL_SESSION *session_cache_take(struct session_cache *c, struct str key)
{
	SSL_SESSION *session, *out;

	pthread_mutex_lock(&c->lock);
	session = lru_get(c->lru, key.p, key.n);
	out = session;
	if (session && SSL_SESSION_get_protocol_version(session) < TLS1_3_VERSION &&
	    is_alive(session))
		/* OpenSSL marks a session when its connection fails: two must not share one. */
		out = SSL_SESSION_dup(session);
	else if (session)
		out = lru_take(c->lru, key.p, key.n);
	pthread_mutex_unlock(&c->lock);
	if (out && !is_alive(out)) {
		SSL_SESSION_free(out);
		out = NULL;
	}
	return out;
}

void session_cache_drop(struct session_cache *c, struct str key)
{
	SSL_SESSION *session;

	pthread_mutex_lock(&c->lock);
	session = lru_take(c->lru, key.p, key.n);
	pthread_mutex_unlock(&c->lock);
	SSL_SESSION_free(session);
}

size_t session_cache_count(struct session_cache *c)
{
	size_t n;

	pthread_mutex_lock(&c->lock);
	n = lru_count(c->lru);
	pthread_mutex_unlock(&c->lock);
	return n;
}
