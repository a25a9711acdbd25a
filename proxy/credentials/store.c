/*
 * The credentials of one configuration. Files and variables are read by the thread that makes and
 * polls the store; sources that take time are the broker's. Operators learn what is unavailable and
 * when it is back; clients learn why without the path.
 */
#include "proxy/credentials/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/credentials/broker.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"

#define AWAIT_LOOK_MS 100 /* between two looks at what ends the wait */

struct entry {
	/* borrowed from the config */
	const struct config_credential *c;
	/* counted */
	struct kept *kept; /* the broker's; NULL: read here */
	struct slot
		*slot; /* with kept: borrowed from it; with mint: of the key; NULL: not wanted */
	struct credential_store *store; /* with mint: whose it is */
	/* owned */
	struct jwt_mint *mint; /* NULL: the slot's value is the credential's */
	/* the polling thread's own */
	struct source_mark mark, key_mark;
	bool mode_said;
};

struct credential_store {
	/* owned */
	struct entry *entries;
	/* counted */
	struct config *config;
	/* borrowed */
	struct broker *broker;
	/* plain */
	struct credential_feed feed; /* nudge is NULL: not fed */
	size_t n;
	_Atomic unsigned refs;
};

/* Is the value read from a file that is polled? `from` is then its path. */
static bool reads_file(const struct config_credential *c)
{
	return c->source == CREDENTIAL_FROM_FILE || c->source == CREDENTIAL_FROM_JWT ||
	       (c->source == CREDENTIAL_FROM_KUBERNETES && !broker_keeps(c));
}

/* One behind the other, as if they were one file. */
static int read_pair(struct entry *en, struct secret **ret, struct err *e)
{
	struct secret *cert = NULL, *key = NULL, *both = NULL;
	int rc = -1;

	en->key_mark = (struct source_mark){0};
	if (source_file_read_lines(en->c->from, &en->mark, &cert, e) < 0)
		return -1;
	if (source_file_read_lines(en->c->key_file, &en->key_mark, &key, e) < 0) {
		(void)err_wrap(e, "`key`");
		goto out;
	}
	both = secret_join(secret_value(cert), '\n', secret_value(key));
	if (!both) {
		(void)err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
		goto out;
	}
	*ret = both;
	rc = 0;
out:
	secret_unref(cert);
	secret_unref(key);
	return rc;
}

static int source_read(struct entry *en, struct secret **ret, int64_t *ret_life_us, struct err *e)
{
	bool lines = en->c->as == CREDENTIAL_AS_MTLS;

	*ret_life_us = 0;
	if (en->c->source == CREDENTIAL_FROM_FILE && en->c->key_file)
		return read_pair(en, ret, e);
	if (en->c->source == CREDENTIAL_FROM_FILE)
		return lines ? source_file_read_lines(en->c->from, &en->mark, ret, e)
			     : source_file_read(en->c->from, &en->mark, ret, e);
	if (en->c->source == CREDENTIAL_FROM_ENV)
		return lines ? source_env_read_lines(en->c->from, ret, e)
			     : source_env_read(en->c->from, ret, e);
	if (en->c->source == CREDENTIAL_FROM_JWT)
		return source_jwt_read(en->c, &en->mark, ret, e);
	if (en->c->source == CREDENTIAL_FROM_KUBERNETES)
		return source_kubernetes_read(en->c, &en->mark, ret, ret_life_us, e);
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its source is of an unknown kind");
}

static void say_mode(struct entry *en)
{
	/* Of a pair the key alone is a secret. */
	const struct source_mark *mark = en->c->key_file ? &en->key_mark : &en->mark;

	if (!reads_file(en->c) || !mark->set || en->mode_said)
		return;
	if (!(mark->mode & S_IROTH))
		return;
	en->mode_said = true;
	log_warn("credential %s: %s can be read by every user (chmod o-r)", en->c->name,
		 en->c->key_file ? en->c->key_file : en->c->from);
}

/* Whoever replaces a certificate and its key does so one after the other. For the moment in which
 * they do not fit, while the files are that young, the pair at hand stays. */
static bool is_half_replaced(const struct entry *en, const struct secret *fresh)
{
	if (!en->c->key_file || !fresh || (en->mark.settled && en->key_mark.settled) ||
	    !slot_holds(en->slot))
		return false;
	return secret_check_as(en->c, fresh, NULL) < 0;
}

static void entry_read(struct entry *en)
{
	struct secret *fresh = NULL;
	struct err e = ERR_INIT;
	int64_t life_us;

	if (source_read(en, &fresh, &life_us, &e) < 0)
		fresh = NULL;
	if (is_half_replaced(en, fresh)) {
		secret_unref(fresh);
		return;
	}
	slot_put(en->slot, fresh, life_us, false, &e);
	say_mode(en);
}

/* For jwt_mint_new_remote. */
static int mint_by_feed(void *arg, struct str sandbox, struct secret **ret, struct err *e)
{
	const struct entry *en = arg;
	const struct credential_store *s = en->store;

	return s->feed.mint(s->feed.arg, s->feed.id, (size_t)(en - s->entries), sandbox, ret, e);
}

static int mint_open(struct credential_store *s, struct entry *en, struct err *e)
{
	en->store = s;
	return s->feed.nudge ? jwt_mint_new_remote(en->c, mint_by_feed, en, &en->mint, e)
			     : jwt_mint_new(en->c, &en->mint, e);
}

static int entry_open(struct credential_store *s, size_t i, struct trust *t, struct err *e)
{
	struct entry *en = &s->entries[i];

	if (en->c->source == CREDENTIAL_FROM_JWT && mint_open(s, en, e) < 0)
		return -1;
	if (s->feed.nudge || !broker_keeps(en->c)) {
		en->slot = slot_new(en->c);
		if (!en->slot)
			return err_set(e, "out of memory");
		if (!s->feed.nudge)
			entry_read(en);
		return 0;
	}
	if (!s->broker)
		return err_set(e, "credential %s: nobody is there to ask its source", en->c->name);
	if (broker_take(s->broker, s->config, i, t, &en->kept, e) < 0)
		return -1;
	en->slot = kept_slot(en->kept);
	return 0;
}

/* Nothing is opened yet. NULL: no memory. */
static struct credential_store *new_bare(struct config *c)
{
	struct credential_store *s = calloc(1, sizeof(*s));

	if (s)
		s->entries = calloc(c->credentials_n ? c->credentials_n : 1, sizeof(*s->entries));
	if (!s || !s->entries) {
		free(s);
		return NULL;
	}
	atomic_init(&s->refs, 1);
	s->config = config_ref(c);
	s->n = c->credentials_n;
	for (size_t i = 0; i < s->n; i++)
		s->entries[i].c = &c->credentials[i];
	return s;
}

/* Takes s over. */
static int open_wanted(struct credential_store *s, const bool *wanted, struct trust *t,
		       struct credential_store **ret, struct err *e)
{
	if (!s)
		return err_set(e, "out of memory");
	for (size_t i = 0; i < s->n; i++)
		if ((!wanted || wanted[i]) && entry_open(s, i, t, e) < 0) {
			credential_store_unref(s);
			return -1;
		}
	*ret = s;
	return 0;
}

int credential_store_new_of(struct config *c, const bool *wanted, struct broker *b, struct trust *t,
			    struct credential_store **ret, struct err *e)
{
	struct credential_store *s = new_bare(c);

	if (s)
		s->broker = b;
	return open_wanted(s, wanted, t, ret, e);
}

int credential_store_new(struct config *c, struct broker *b, struct trust *t,
			 struct credential_store **ret, struct err *e)
{
	return credential_store_new_of(c, NULL, b, t, ret, e);
}

int credential_store_new_fed(struct config *c, const bool *wanted, const struct credential_feed *f,
			     struct credential_store **ret, struct err *e)
{
	struct credential_store *s = new_bare(c);

	if (s)
		s->feed = *f;
	return open_wanted(s, wanted, NULL, ret, e);
}

static bool slot_has(struct slot *slot, const struct secret *value)
{
	struct slot_state st;
	bool same;

	slot_read(slot, &st);
	same = st.value && str_eq(secret_value(st.value), secret_value(value));
	secret_unref(st.value);
	return same;
}

void credential_store_put(struct credential_store *s, size_t i, struct secret *value,
			  int64_t life_us, int64_t next_us, const struct err *why)
{
	struct slot *slot = credential_store_slot(s, i);

	if (!slot) {
		secret_unref(value);
		return;
	}
	if (value && why && slot_has(slot, value))
		/* It was told already; what is new is that it could not be renewed. */
		secret_unref(value);
	else if (value)
		slot_put(slot, value, life_us, true, NULL);
	if (why)
		slot_put(slot, NULL, 0, value != NULL, why);
	if (next_us >= 0)
		slot_expect(slot, next_us);
}

void credential_store_lose(struct credential_store *s, const struct err *why)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->entries[i].slot)
			slot_put(s->entries[i].slot, NULL, 0, false, why);
}

struct slot *credential_store_slot(struct credential_store *s, size_t i)
{
	return i < s->n ? s->entries[i].slot : NULL;
}

void credential_store_nudge(struct credential_store *s, size_t i)
{
	if (i < s->n && s->entries[i].kept)
		broker_nudge(s->entries[i].kept);
}

struct credential_store *credential_store_ref(struct credential_store *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
	return s;
}

void credential_store_unref(struct credential_store *s)
{
	if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (size_t i = 0; i < s->n; i++) {
		if (s->entries[i].kept)
			broker_give_back(s->broker, s->entries[i].kept);
		else
			slot_unref(s->entries[i].slot);
		jwt_mint_free(s->entries[i].mint);
	}
	config_unref(s->config);
	free(s->entries);
	free(s);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void credential_store_await(struct credential_store *s, bool (*is_over)(void))
{
	int64_t until = now_ms() + LIMIT_MS_SOURCES_FIRST, left;

	for (size_t i = 0; i < s->n; i++) {
		if (!s->entries[i].slot || (!s->feed.nudge && !s->entries[i].kept))
			continue;
		while ((left = until - now_ms()) > 0 && !is_over() &&
		       !slot_await(s->entries[i].slot,
				   (uint64_t)(left < AWAIT_LOOK_MS ? left : AWAIT_LOOK_MS)))
			;
	}
}

static bool entry_is_due(const struct entry *en)
{
	if (!reads_file(en->c) || !en->slot)
		return false;
	return !slot_holds(en->slot) || source_file_changed(en->c->from, &en->mark) ||
	       (en->c->key_file && source_file_changed(en->c->key_file, &en->key_mark));
}

void credential_store_poll(struct credential_store *s)
{
	if (s->feed.nudge)
		return;
	for (size_t i = 0; i < s->n; i++) {
		if (entry_is_due(&s->entries[i]))
			entry_read(&s->entries[i]);
	}
}

static int entry_get(struct entry *en, struct str sandbox, struct secret **ret, struct err *e)
{
	struct secret *key = NULL;
	int rc;

	if (!en->mint)
		return slot_get(en->slot, ret, e);
	if (slot_get(en->slot, &key, e) < 0)
		return -1;
	rc = jwt_mint_get(en->mint, key, sandbox, ret, e);
	secret_unref(key);
	return rc;
}

bool credential_store_is_key(const struct credential_store *s, size_t i)
{
	return i < s->n && s->entries[i].mint;
}

int credential_store_mint(struct credential_store *s, size_t i, struct str sandbox,
			  struct secret **ret, struct err *e)
{
	struct secret *key = NULL;
	int rc;

	if (!credential_store_is_key(s, i))
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "no token is made of it");
	if (slot_get(s->entries[i].slot, &key, e) < 0)
		return -1;
	rc = jwt_mint_make(s->entries[i].mint, key, sandbox, ret, e);
	secret_unref(key);
	return rc;
}

static struct entry *find(struct credential_store *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->entries[i].c->name, name) == 0)
			return &s->entries[i];
	return NULL;
}

static int unavailable(struct credential_store *s, struct entry *en, const char *name,
		       struct err *e)
{
	if (!en->slot)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "credential %s is not available: no rule in force names it",
				  name);
	if (s->feed.nudge)
		s->feed.nudge(s->feed.arg, s->feed.id, (size_t)(en - s->entries));
	else if (en->kept)
		broker_nudge(en->kept);
	return err_wrap(e, "credential %s is not available", name);
}

static int unknown(const char *name, struct err *e)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
			  "credential %s is not available: no such credential", name);
}

void credential_store_each(struct credential_store *s,
			   void (*fn)(void *arg, const struct config_credential *c,
				      const struct slot_status *st),
			   void *arg)
{
	for (size_t i = 0; i < s->n; i++) {
		struct slot_status st;

		if (s->entries[i].slot)
			slot_status(s->entries[i].slot, &st);
		else
			st = (struct slot_status){.age_us = -1,
						  .left_us = -1,
						  .next_us = -1,
						  .unused_us = -1,
						  .tried = true,
						  .why = "no rule in force names it"};
		fn(arg, s->entries[i].c, &st);
	}
}

void credential_store_carry(struct credential_store *s, struct credential_store *old)
{
	size_t k = 0;

	/* Both are sorted by name. A slot that is the same one has its counts. */
	for (size_t i = 0; i < s->n; i++) {
		while (k < old->n && strcmp(old->entries[k].c->name, s->entries[i].c->name) < 0)
			k++;
		if (k < old->n && strcmp(old->entries[k].c->name, s->entries[i].c->name) == 0 &&
		    s->entries[i].slot && old->entries[k].slot &&
		    old->entries[k].slot != s->entries[i].slot)
			slot_carry(s->entries[i].slot, old->entries[k].slot);
	}
}

int credential_get(struct credential_store *s, const char *name, struct str sandbox,
		   struct secret **ret, struct err *e)
{
	struct entry *en = find(s, name);

	if (!en)
		return unknown(name, e);
	return en->slot && entry_get(en, sandbox, ret, e) == 0 ? 0 : unavailable(s, en, name, e);
}

int credential_get_cert(struct credential_store *s, const char *name, struct client_cert **ret,
			struct err *e)
{
	struct entry *en = find(s, name);

	if (!en)
		return unknown(name, e);
	return en->slot && slot_get_cert(en->slot, ret, e) == 0 ? 0 : unavailable(s, en, name, e);
}
