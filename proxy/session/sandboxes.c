/*
 * See sandboxes.h. Found by a table over the hash of the token: what a caller can choose is the
 * token, and of that no bit of the hash, so neither the chain that is walked nor where a comparison
 * ends tells anything about another one's.
 */
#include "proxy/session/sandboxes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "logging/limits.h"

#define TOKEN_BYTES  32
#define DIGEST_BYTES 32
#define CHAINS	     4096 /* a power of two */

struct sandbox {
	TAILQ_ENTRY(sandbox) next; /* in `order` */
	LIST_ENTRY(sandbox) chained;
	/* owned */
	char *policy, *listener;
	/* plain */
	unsigned char digest[DIGEST_BYTES];
	char name[SANDBOX_NAME_MAX];
	char key[1 + SANDBOX_ID_LEN + 1]; /* "@" and the id: no listener may be called so */
	int64_t created_us, ends_us;	  /* since 1970 */
	int64_t ends_boot_us;
	_Atomic int64_t revoked_boot_us; /* 0: it was not */
	_Atomic int64_t seen_us;
	_Atomic uint64_t connections;
	_Atomic unsigned refs;
	bool told; /* under the lock: that it has ended */
};

struct sandboxes {
	/* owned */
	EVP_MD *sha256;
	TAILQ_HEAD(sandbox_order, sandbox) order; /* a reference each; oldest first */
	LIST_HEAD(, sandbox) chains[CHAINS];
	/* plain */
	pthread_mutex_t lock;
	size_t n;	     /* with those that have ended */
	int64_t next_end_us; /* CLOCK_BOOTTIME: none that was not told of ends before */
};

static int64_t clock_us(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- one of them ---- */

struct sandbox *sandbox_ref(struct sandbox *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
	return s;
}

void sandbox_unref(struct sandbox *s)
{
	if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	free(s->policy);
	free(s->listener);
	free(s);
}

/* When it ended; 0: it lives. */
static int64_t ended_boot_us(const struct sandbox *s, int64_t now)
{
	int64_t revoked = atomic_load_explicit(&s->revoked_boot_us, memory_order_acquire);

	return revoked ? revoked : now >= s->ends_boot_us ? s->ends_boot_us : 0;
}

enum reason sandbox_end(const struct sandbox *s)
{
	if (atomic_load_explicit(&s->revoked_boot_us, memory_order_acquire))
		return REASON_TOKEN_REVOKED;
	return sandbox_left_us(s) <= 0 ? REASON_TOKEN_EXPIRED : REASON_NONE;
}

const char *sandbox_end_text(enum reason why)
{
	return why == REASON_TOKEN_REVOKED ? "the sandbox's token was revoked"
					   : "the sandbox's token has ended";
}

int64_t sandbox_left_us(const struct sandbox *s)
{
	return s->ends_boot_us - clock_us(CLOCK_BOOTTIME);
}

void sandbox_enter(struct sandbox *s)
{
	atomic_fetch_add_explicit(&s->connections, 1, memory_order_relaxed);
}

void sandbox_leave(struct sandbox *s)
{
	atomic_fetch_sub_explicit(&s->connections, 1, memory_order_relaxed);
}

void sandbox_seen(struct sandbox *s)
{
	atomic_store_explicit(&s->seen_us, clock_us(CLOCK_REALTIME_COARSE), memory_order_relaxed);
}

const char *sandbox_id(const struct sandbox *s)
{
	return s->key + 1;
}

const char *sandbox_name(const struct sandbox *s)
{
	return s->name;
}

const char *sandbox_policy(const struct sandbox *s)
{
	return s->policy;
}

const char *sandbox_listener(const struct sandbox *s)
{
	return s->listener;
}

const char *sandbox_key(const struct sandbox *s)
{
	return s->key;
}

struct sandbox_times sandbox_times(const struct sandbox *s)
{
	return (struct sandbox_times){
		.created_us = s->created_us,
		.ends_us = s->ends_us,
		.seen_us = atomic_load_explicit(&s->seen_us, memory_order_relaxed),
		.connections = atomic_load_explicit(&s->connections, memory_order_relaxed),
	};
}

/* ---- all of them ---- */

int sandboxes_new(struct sandboxes **ret, struct err *e)
{
	struct sandboxes *all = calloc(1, sizeof(*all));

	if (!all)
		return err_set(e, "out of memory");
	TAILQ_INIT(&all->order);
	all->next_end_us = INT64_MAX;
	/* Fetched once: a lookup in OpenSSL's tables for each token costs more than the hash. */
	all->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	if (!all->sha256 || pthread_mutex_init(&all->lock, NULL) != 0) {
		EVP_MD_free(all->sha256);
		free(all);
		return err_set(e, "SHA-256 or a lock is not to be had");
	}
	*ret = all;
	return 0;
}

/* Under the lock. */
static void drop(struct sandboxes *all, struct sandbox *s)
{
	TAILQ_REMOVE(&all->order, s, next);
	LIST_REMOVE(s, chained);
	all->n--;
	sandbox_unref(s);
}

void sandboxes_free(struct sandboxes *all)
{
	struct sandbox *s;

	if (!all)
		return;
	while ((s = TAILQ_FIRST(&all->order)))
		drop(all, s);
	pthread_mutex_destroy(&all->lock);
	EVP_MD_free(all->sha256);
	free(all);
}

static size_t chain_of(const unsigned char digest[DIGEST_BYTES])
{
	return ((size_t)digest[0] << 8 | digest[1]) & (CHAINS - 1);
}

static int hash(const struct sandboxes *all, struct str token, unsigned char ret[DIGEST_BYTES])
{
	return EVP_Digest(token.p, token.n, ret, NULL, all->sha256, NULL) == 1 ? 0 : -1;
}

/* Letters, digits, dot, underscore, hyphen, as a listener's name: it stands in the log. */
static bool is_name(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '.' || c == '_' || c == '-'))
			return false;
	}
	return s.n > 0 && s.n < SANDBOX_NAME_MAX;
}

/* Without padding (RFC 4648 section 5): it stands in a URL as it is. */
static void write_token(const unsigned char raw[TOKEN_BYTES], char out[SANDBOX_TOKEN_LEN + 1])
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	size_t at = sizeof(SANDBOX_TOKEN_PREFIX) - 1;
	unsigned bits = 0, held = 0;

	memcpy(out, SANDBOX_TOKEN_PREFIX, at);
	for (size_t i = 0; i < TOKEN_BYTES; i++) {
		held = (held << 8 | raw[i]) & 0xffff;
		bits += 8;
		for (; bits >= 6; bits -= 6)
			out[at++] = digits[held >> (bits - 6) & 63];
	}
	out[at++] = digits[held << (6 - bits) & 63];
	out[at] = '\0';
}

static struct sandbox *make(const struct sandbox_options *o, struct err *e)
{
	struct sandbox *s = calloc(1, sizeof(*s));
	unsigned char id[SANDBOX_ID_LEN / 2];
	int64_t ttl_us = (int64_t)o->ttl_ms * 1000;

	if (!s || RAND_bytes(id, sizeof(id)) != 1) {
		free(s);
		err_set(e, "no memory or no random bytes are to be had");
		return NULL;
	}
	atomic_init(&s->refs, 1);
	s->key[0] = '@';
	for (size_t i = 0; i < sizeof(id); i++)
		snprintf(s->key + 1 + 2 * i, 3, "%02x", id[i]);
	if (o->name.n > 0)
		memcpy(s->name, o->name.p, o->name.n);
	else
		snprintf(s->name, sizeof(s->name), "sandbox-%.8s", sandbox_id(s));
	s->created_us = clock_us(CLOCK_REALTIME);
	s->ends_us = s->created_us + ttl_us;
	s->ends_boot_us = clock_us(CLOCK_BOOTTIME) + ttl_us;
	s->policy = strdup(o->policy);
	s->listener = strdup(o->listener);
	if (s->policy && s->listener)
		return s;
	err_set(e, "out of memory");
	sandbox_unref(s);
	return NULL;
}

/* Those that nobody needs to tell from a wrong one any more; and where there is no room, those that
 * have ended at all. Under the lock. */
static void prune(struct sandboxes *all)
{
	int64_t now = clock_us(CLOCK_BOOTTIME);
	bool full = all->n >= LIMIT_SANDBOXES;
	struct sandbox *s = TAILQ_FIRST(&all->order);

	while (s) {
		struct sandbox *next = TAILQ_NEXT(s, next);
		int64_t ended = ended_boot_us(s, now);

		if (ended && s->told && (full || now - ended > LIMIT_MS_SANDBOX_KEPT * 1000LL))
			drop(all, s);
		s = next;
	}
}

/* The living one. Under the lock. */
static struct sandbox *by_name(struct sandboxes *all, struct str name)
{
	struct sandbox *s;

	TAILQ_FOREACH(s, &all->order, next)
	if (str_eq(name, str_from_c(s->name)) && sandbox_end(s) == REASON_NONE)
		return s;
	return NULL;
}

static int check(const struct sandbox_options *o, struct err *e)
{
	if (o->name.n > 0 && !is_name(o->name))
		return err_set(e,
			       "a name has 1 to %d letters, digits, dots, underscores and hyphens",
			       SANDBOX_NAME_MAX - 1);
	if (o->ttl_ms < LIMIT_MS_SANDBOX_LEAST || o->ttl_ms > LIMIT_MS_SANDBOX_MOST)
		return err_set(e, "a token lives between %d s and %lld days",
			       LIMIT_MS_SANDBOX_LEAST / 1000, LIMIT_MS_SANDBOX_MOST / 86400000);
	return 0;
}

/* Takes s over. */
static int insert(struct sandboxes *all, struct sandbox *s, struct err *e)
{
	int rc = 0;

	pthread_mutex_lock(&all->lock);
	prune(all);
	if (by_name(all, str_from_c(s->name)))
		rc = err_set(e, "a sandbox of the name %s lives (revoke it, or take another name)",
			     s->name);
	else if (all->n >= LIMIT_SANDBOXES)
		rc = err_set(e, "%d sandboxes live, which is the limit (revoke some)",
			     LIMIT_SANDBOXES);
	if (rc == 0) {
		(void)sandbox_ref(s); /* not within the macro, which repeats its argument */
		TAILQ_INSERT_TAIL(&all->order, s, next);
		LIST_INSERT_HEAD(&all->chains[chain_of(s->digest)], s, chained);
		all->n++;
		if (s->ends_boot_us < all->next_end_us)
			all->next_end_us = s->ends_boot_us;
	}
	pthread_mutex_unlock(&all->lock);
	return rc;
}

int sandboxes_add(struct sandboxes *all, const struct sandbox_options *o,
		  char token[SANDBOX_TOKEN_LEN + 1], struct sandbox **ret, struct err *e)
{
	unsigned char raw[TOKEN_BYTES];
	struct sandbox *s;
	int rc = -1;

	if (check(o, e) < 0)
		return -1;
	s = make(o, e);
	if (!s)
		return -1;
	if (RAND_priv_bytes(raw, sizeof(raw)) != 1) {
		err_set(e, "no random bytes are to be had");
		goto out;
	}
	write_token(raw, token);
	rc = hash(all, str_from(token, SANDBOX_TOKEN_LEN), s->digest);
	rc = rc == 0 ? insert(all, s, e) : err_set(e, "SHA-256 is not to be had");
out:
	OPENSSL_cleanse(raw, sizeof(raw));
	if (rc < 0) {
		OPENSSL_cleanse(token, SANDBOX_TOKEN_LEN + 1);
		sandbox_unref(s);
		return -1;
	}
	*ret = s;
	return 0;
}

struct sandbox *sandboxes_find(struct sandboxes *all, struct str token)
{
	unsigned char digest[DIGEST_BYTES];
	struct sandbox *s, *found = NULL;

	if (token.n != SANDBOX_TOKEN_LEN || hash(all, token, digest) < 0)
		return NULL;
	pthread_mutex_lock(&all->lock);
	LIST_FOREACH(s, &all->chains[chain_of(digest)], chained)
	if (CRYPTO_memcmp(s->digest, digest, sizeof(digest)) == 0)
		found = s;
	if (found)
		sandbox_ref(found);
	pthread_mutex_unlock(&all->lock);
	return found;
}

int sandboxes_revoke(struct sandboxes *all, struct str id_or_name, struct sandbox **ret,
		     struct err *e)
{
	int64_t now = clock_us(CLOCK_BOOTTIME);
	struct sandbox *s;

	pthread_mutex_lock(&all->lock);
	TAILQ_FOREACH(s, &all->order, next)
	if (str_eq(id_or_name, str_from_c(sandbox_id(s))) && sandbox_end(s) == REASON_NONE)
		break;
	if (!s)
		s = by_name(all, id_or_name);
	if (s) {
		atomic_store_explicit(&s->revoked_boot_us, now ? now : 1, memory_order_release);
		s->told = true;
		*ret = sandbox_ref(s);
	}
	pthread_mutex_unlock(&all->lock);
	return s ? 0 : err_set(e, "no living sandbox has that name or id");
}

void sandboxes_each(struct sandboxes *all, void (*fn)(void *arg, const struct sandbox *s),
		    void *arg)
{
	struct sandbox **v, *s;
	size_t n = 0;

	pthread_mutex_lock(&all->lock);
	v = malloc((all->n ? all->n : 1) * sizeof(struct sandbox *));
	TAILQ_FOREACH(s, &all->order, next)
	if (v && sandbox_end(s) == REASON_NONE)
		v[n++] = sandbox_ref(s);
	pthread_mutex_unlock(&all->lock);
	for (size_t i = 0; i < n; i++) {
		fn(arg, v[i]);
		sandbox_unref(v[i]);
	}
	free(v);
}

size_t sandboxes_n(struct sandboxes *all)
{
	const struct sandbox *s;
	size_t n = 0;

	pthread_mutex_lock(&all->lock);
	TAILQ_FOREACH(s, &all->order, next)
	n += sandbox_end(s) == REASON_NONE;
	pthread_mutex_unlock(&all->lock);
	return n;
}

/* References to those that have just ended go to v (room for all); how many. Under the lock. */
static size_t take_ended(struct sandboxes *all, int64_t now, struct sandbox **v)
{
	struct sandbox *s;
	size_t n = 0;

	all->next_end_us = INT64_MAX;
	TAILQ_FOREACH(s, &all->order, next)
	{
		if (s->told)
			continue;
		if (ended_boot_us(s, now)) {
			s->told = true;
			v[n++] = sandbox_ref(s);
		} else if (s->ends_boot_us < all->next_end_us) {
			all->next_end_us = s->ends_boot_us;
		}
	}
	return n;
}

void sandboxes_each_ended(struct sandboxes *all, void (*fn)(void *arg, const struct sandbox *s),
			  void *arg)
{
	int64_t now = clock_us(CLOCK_BOOTTIME);
	struct sandbox **v = NULL;
	size_t n = 0;

	pthread_mutex_lock(&all->lock);
	if (now >= all->next_end_us)
		v = malloc((all->n ? all->n : 1) * sizeof(struct sandbox *));
	if (v)
		n = take_ended(all, now, v);
	pthread_mutex_unlock(&all->lock);
	for (size_t i = 0; i < n; i++) {
		fn(arg, v[i]);
		sandbox_unref(v[i]);
	}
	free(v);
}
