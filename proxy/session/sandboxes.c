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
#define DIGEST_BYTES STATE_DIGEST_BYTES
#define CHAINS	     4096 /* a power of two */

struct sandbox {
	TAILQ_ENTRY(sandbox) next; /* in `order` */
	LIST_ENTRY(sandbox) chained;
	/* owned */
	char *policy, *listener;
	/* plain */
	unsigned char digest[DIGEST_BYTES];
	unsigned pass; /* under the lock: of the mirror's last reading that had it */
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
	size_t n; /* with those that have ended */
	bool shared;
	unsigned pass;
	_Atomic int64_t good_until_us; /* a mirror: CLOCK_BOOTTIME */
	int64_t next_end_us;	       /* CLOCK_BOOTTIME: none that was not told of ends before */
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

/* The id is of the digest: it is the same at whoever shares it, and nobody but who made a token
 * could choose it to be another one's. */
static struct sandbox *make(const struct state_record *r)
{
	struct sandbox *s = calloc(1, sizeof(*s));
	char hex[STATE_DIGEST_HEX + 1];

	if (!s)
		return NULL;
	atomic_init(&s->refs, 1);
	state_digest_write(r->digest, hex);
	(void)snprintf(s->key, sizeof(s->key), "@%.*s", SANDBOX_ID_LEN, hex);
	memcpy(s->digest, r->digest, sizeof(s->digest));
	memcpy(s->name, r->name, sizeof(s->name));
	s->created_us = r->created_us;
	s->ends_us = r->ends_us;
	/* By this machine's clock, once. */
	s->ends_boot_us = clock_us(CLOCK_BOOTTIME) + (r->ends_us - clock_us(CLOCK_REALTIME));
	s->policy = strdup(r->policy);
	s->listener = strdup(r->listener);
	if (s->policy && s->listener)
		return s;
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
	if (o->name.n > 0 && !state_is_name(o->name))
		return err_set(e,
			       "a name has 1 to %d letters, digits, dots, underscores and hyphens",
			       SANDBOX_NAME_MAX - 1);
	if (o->ttl_ms < LIMIT_MS_SANDBOX_LEAST || o->ttl_ms > LIMIT_MS_SANDBOX_MOST)
		return err_set(e, "a token lives between %d s and %lld days",
			       LIMIT_MS_SANDBOX_LEAST / 1000, LIMIT_MS_SANDBOX_MOST / 86400000);
	return 0;
}

/* A reference of its own. Under the lock. */
static void link_in(struct sandboxes *all, struct sandbox *s)
{
	(void)sandbox_ref(s); /* not within the macro, which repeats its argument */
	TAILQ_INSERT_TAIL(&all->order, s, next);
	LIST_INSERT_HEAD(&all->chains[chain_of(s->digest)], s, chained);
	all->n++;
	if (s->ends_boot_us < all->next_end_us)
		all->next_end_us = s->ends_boot_us;
}

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
	if (rc == 0)
		link_in(all, s);
	pthread_mutex_unlock(&all->lock);
	return rc;
}

static int put_name(char out[STATE_NAME_MAX], struct str s, struct err *e)
{
	if (!s.p || !state_is_name(s))
		return err_set(e, "`%.*s` is no name", STR_FMT(s));
	memcpy(out, s.p, s.n);
	out[s.n] = '\0';
	return 0;
}

int sandboxes_draft(const struct sandboxes *all, const struct sandbox_options *o,
		    char token[SANDBOX_TOKEN_LEN + 1], struct state_record *ret, struct err *e)
{
	struct state_record r = {.created_us = clock_us(CLOCK_REALTIME)};
	unsigned char raw[TOKEN_BYTES];
	char hex[STATE_DIGEST_HEX + 1], made_up[32];
	int rc;

	if (check(o, e) < 0)
		return -1;
	if (RAND_priv_bytes(raw, sizeof(raw)) != 1)
		return err_set(e, "no random bytes are to be had");
	write_token(raw, token);
	OPENSSL_cleanse(raw, sizeof(raw));
	rc = hash(all, str_from(token, SANDBOX_TOKEN_LEN), r.digest);
	if (rc < 0) {
		err_set(e, "SHA-256 is not to be had");
	} else {
		r.ends_us = r.created_us + (int64_t)o->ttl_ms * 1000;
		state_digest_write(r.digest, hex);
		(void)snprintf(made_up, sizeof(made_up), "sandbox-%.12s", hex);
		if (put_name(r.name, o->name.n > 0 ? o->name : str_from_c(made_up), e) < 0 ||
		    put_name(r.policy, str_from_c(o->policy), e) < 0 ||
		    put_name(r.listener, str_from_c(o->listener), e) < 0)
			rc = -1;
	}
	if (rc < 0)
		OPENSSL_cleanse(token, SANDBOX_TOKEN_LEN + 1);
	else
		*ret = r;
	return rc;
}

int sandboxes_add(struct sandboxes *all, const struct sandbox_options *o,
		  char token[SANDBOX_TOKEN_LEN + 1], struct sandbox **ret, struct err *e)
{
	struct state_record r = {0};
	struct sandbox *s;
	int rc;

	if (sandboxes_draft(all, o, token, &r, e) < 0)
		return -1;
	s = make(&r);
	rc = s ? insert(all, s, e) : err_set(e, "out of memory");
	if (rc < 0) {
		OPENSSL_cleanse(token, SANDBOX_TOKEN_LEN + 1);
		sandbox_unref(s);
		return -1;
	}
	*ret = s;
	return 0;
}

/* Under the lock. */
static struct sandbox *by_digest(struct sandboxes *all, const unsigned char digest[DIGEST_BYTES])
{
	struct sandbox *s, *found = NULL;

	LIST_FOREACH(s, &all->chains[chain_of(digest)], chained)
	if (CRYPTO_memcmp(s->digest, digest, DIGEST_BYTES) == 0)
		found = s;
	return found;
}

struct sandbox *sandboxes_find(struct sandboxes *all, struct str token)
{
	unsigned char digest[DIGEST_BYTES];
	struct sandbox *found;

	if (token.n != SANDBOX_TOKEN_LEN || hash(all, token, digest) < 0)
		return NULL;
	pthread_mutex_lock(&all->lock);
	found = by_digest(all, digest);
	if (found)
		sandbox_ref(found);
	pthread_mutex_unlock(&all->lock);
	return found;
}

/* The living one of that id, or else of that name. Under the lock. */
static struct sandbox *by_id_or_name(struct sandboxes *all, struct str id_or_name)
{
	struct sandbox *s;

	TAILQ_FOREACH(s, &all->order, next)
	if (str_eq(id_or_name, str_from_c(sandbox_id(s))) && sandbox_end(s) == REASON_NONE)
		return s;
	return by_name(all, id_or_name);
}

/* Under the lock. */
static void end(struct sandbox *s)
{
	int64_t now = clock_us(CLOCK_BOOTTIME);

	atomic_store_explicit(&s->revoked_boot_us, now ? now : 1, memory_order_release);
}

int sandboxes_revoke(struct sandboxes *all, struct str id_or_name, struct sandbox **ret,
		     struct err *e)
{
	struct sandbox *s;

	pthread_mutex_lock(&all->lock);
	s = by_id_or_name(all, id_or_name);
	if (s) {
		end(s);
		s->told = true;
		*ret = sandbox_ref(s);
	}
	pthread_mutex_unlock(&all->lock);
	return s ? 0
		 : err_set(e, "no living sandbox has that name or id (see `stile sandbox list`)");
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

/* ---- as a mirror ---- */

void sandboxes_share(struct sandboxes *all)
{
	all->shared = true;
}

void sandboxes_hold(struct sandboxes *all, int64_t until_us)
{
	atomic_store_explicit(&all->good_until_us, until_us, memory_order_release);
}

bool sandboxes_are_current(const struct sandboxes *all)
{
	return !all->shared ||
	       clock_us(CLOCK_BOOTTIME) <
		       atomic_load_explicit(&all->good_until_us, memory_order_acquire);
}

static bool same(const struct sandbox *s, const struct state_record *r)
{
	return strcmp(s->name, r->name) == 0 && strcmp(s->policy, r->policy) == 0 &&
	       strcmp(s->listener, r->listener) == 0 && s->created_us == r->created_us &&
	       s->ends_us == r->ends_us;
}

/* Under the lock. True: it lived until now. */
static bool end_quietly(struct sandboxes *all, struct sandbox *s)
{
	if (sandbox_end(s) != REASON_NONE)
		return false;
	end(s);
	all->next_end_us = 0; /* to be told of */
	return true;
}

/* Under the lock. */
static int put_new(struct sandboxes *all, const struct state_record *r, struct err *e)
{
	struct sandbox *s;

	/* Twice as many: here those that have ended stay for a while, and while all is read anew it
	 * is not known yet which. */
	if (all->n >= 2 * LIMIT_SANDBOXES)
		prune(all);
	if (all->n >= 2 * LIMIT_SANDBOXES)
		return err_set(e, "there are more than %d", 2 * LIMIT_SANDBOXES);
	s = make(r);
	if (!s)
		return err_set(e, "out of memory");
	s->pass = all->pass;
	if (r->revoked)
		end(s);
	/* It never lived here, so that its end is nobody's news. */
	s->told = sandbox_end(s) != REASON_NONE;
	link_in(all, s);
	sandbox_unref(s);
	return 0;
}

int sandboxes_put(struct sandboxes *all, const struct state_record *r, bool *ret_ended,
		  struct err *e)
{
	struct sandbox *s;
	int rc = 0;

	*ret_ended = false;
	pthread_mutex_lock(&all->lock);
	s = by_digest(all, r->digest);
	if (!s) {
		rc = put_new(all, r, e);
	} else {
		s->pass = all->pass;
		if (r->revoked || !same(s, r))
			*ret_ended = end_quietly(all, s);
	}
	pthread_mutex_unlock(&all->lock);
	return rc;
}

bool sandboxes_gone(struct sandboxes *all, const unsigned char digest[STATE_DIGEST_BYTES])
{
	struct sandbox *s;
	bool ended;

	pthread_mutex_lock(&all->lock);
	s = by_digest(all, digest);
	ended = s && end_quietly(all, s);
	pthread_mutex_unlock(&all->lock);
	return ended;
}

void sandboxes_begin(struct sandboxes *all)
{
	pthread_mutex_lock(&all->lock);
	all->pass++;
	pthread_mutex_unlock(&all->lock);
}

bool sandboxes_whole(struct sandboxes *all)
{
	struct sandbox *s;
	bool ended = false;

	pthread_mutex_lock(&all->lock);
	TAILQ_FOREACH(s, &all->order, next)
	if (s->pass != all->pass)
		ended |= end_quietly(all, s);
	pthread_mutex_unlock(&all->lock);
	return ended;
}

int sandboxes_record(struct sandboxes *all, struct str id_or_name, struct state_record *ret,
		     struct err *e)
{
	struct sandbox *s;

	pthread_mutex_lock(&all->lock);
	s = by_id_or_name(all, id_or_name);
	if (s) {
		*ret = (struct state_record){.created_us = s->created_us, .ends_us = s->ends_us};
		memcpy(ret->digest, s->digest, sizeof(ret->digest));
		memcpy(ret->name, s->name, sizeof(ret->name));
		(void)snprintf(ret->policy, sizeof(ret->policy), "%s", s->policy);
		(void)snprintf(ret->listener, sizeof(ret->listener), "%s", s->listener);
	}
	pthread_mutex_unlock(&all->lock);
	return s ? 0
		 : err_set(e, "no living sandbox has that name or id (see `stile sandbox list`)");
}

struct sandbox *sandboxes_by_digest(struct sandboxes *all,
				    const unsigned char digest[STATE_DIGEST_BYTES], bool tell)
{
	struct sandbox *s;

	pthread_mutex_lock(&all->lock);
	s = by_digest(all, digest);
	if (s) {
		sandbox_ref(s);
		s->told |= tell;
	}
	pthread_mutex_unlock(&all->lock);
	return s;
}
