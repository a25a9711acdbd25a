/*
 * The current value of every credential. Sources are read by the thread that makes and polls the
 * store; the lock is held for a pointer's exchange, never while a file is read. Operators learn
 * what is unavailable and when it is back; clients learn why without the path.
 */
#include "proxy/credentials/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "logging/log.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"

struct entry {
	/* borrowed from the config */
	const struct config_credential *c;
	/* counted, under the lock */
	struct secret *current; /* NULL: unavailable */
	/* under the lock */
	char why[ERR_TEXT_MAX];
	/* the polling thread's own */
	struct source_mark mark;
	bool mode_said;
	bool is_read; /* a first time */
};

struct credential_store {
	pthread_mutex_t lock;
	/* owned */
	struct entry *entries;
	/* counted */
	struct config *config;
	/* plain */
	size_t n;
	_Atomic unsigned refs;
};

static int source_read(struct entry *en, struct secret **ret, struct err *e)
{
	switch (en->c->source) {
	case CREDENTIAL_FROM_FILE: return source_file_read(en->c->from, &en->mark, ret, e);
	case CREDENTIAL_FROM_ENV: return source_env_read(en->c->from, ret, e);
	}
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its source is of an unknown kind");
}

static void say_mode(struct entry *en)
{
	if (en->c->source != CREDENTIAL_FROM_FILE || !en->mark.set || en->mode_said)
		return;
	if (!(en->mark.mode & S_IROTH))
		return;
	en->mode_said = true;
	log_warn("credential %s: %s can be read by every user (chmod o-r)", en->c->name,
		 en->c->from);
}

/* The outcome of a reading: fresh (or NULL with e) becomes what the workers get. Says what changed.
 */
static void entry_put(struct credential_store *s, struct entry *en, struct secret *fresh,
		      const struct err *e)
{
	struct secret *old;
	bool same_why;

	pthread_mutex_lock(&s->lock);
	old = en->current;
	if (fresh && old && str_eq(secret_value(fresh), secret_value(old))) {
		pthread_mutex_unlock(&s->lock);
		secret_unref(fresh);
		return;
	}
	en->current = fresh;
	same_why = !fresh && !old && strcmp(en->why, e->text) == 0;
	/* Both are of the same size, and err terminates its text. */
	memcpy(en->why, fresh ? "" : e->text, fresh ? 1 : sizeof(en->why));
	pthread_mutex_unlock(&s->lock);

	if (!fresh && (old || !same_why || !en->is_read))
		log_warn("credential %s (%s) is not available: %s", en->c->name, en->c->from,
			 e->text);
	else if (fresh && en->is_read)
		log_info("credential %s: %s", en->c->name,
			 old ? "has a new value" : "is available again");
	secret_unref(old);
}

static void entry_read(struct credential_store *s, struct entry *en)
{
	struct secret *fresh = NULL;
	struct err e = ERR_INIT;

	if (source_read(en, &fresh, &e) != 0)
		fresh = NULL;
	entry_put(s, en, fresh, &e);
	en->is_read = true;
	say_mode(en);
}

int credential_store_new(struct config *c, struct credential_store **ret, struct err *e)
{
	struct credential_store *s = calloc(1, sizeof(*s));

	if (s)
		s->entries = calloc(c->credentials_n ? c->credentials_n : 1, sizeof(*s->entries));
	if (!s || !s->entries || pthread_mutex_init(&s->lock, NULL) != 0) {
		free(s ? s->entries : NULL);
		free(s);
		return err_set(e, "out of memory");
	}
	atomic_init(&s->refs, 1);
	s->config = config_ref(c);
	s->n = c->credentials_n;
	for (size_t i = 0; i < s->n; i++) {
		s->entries[i].c = &c->credentials[i];
		entry_read(s, &s->entries[i]);
	}
	*ret = s;
	return 0;
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
	for (size_t i = 0; i < s->n; i++)
		secret_unref(s->entries[i].current);
	pthread_mutex_destroy(&s->lock);
	config_unref(s->config);
	free(s->entries);
	free(s);
}

/* Only this thread ever sets `current`, so it may look without the lock. */
static bool entry_is_due(const struct entry *en)
{
	if (en->c->source != CREDENTIAL_FROM_FILE)
		return false;
	return !en->current || source_file_changed(en->c->from, &en->mark);
}

void credential_store_poll(struct credential_store *s)
{
	for (size_t i = 0; i < s->n; i++) {
		if (entry_is_due(&s->entries[i]))
			entry_read(s, &s->entries[i]);
	}
}

int credential_get(struct credential_store *s, const char *name, struct secret **ret, struct err *e)
{
	char why[ERR_TEXT_MAX] = "no such credential";
	struct secret *found = NULL;

	for (size_t i = 0; i < s->n; i++) {
		struct entry *en = &s->entries[i];

		if (strcmp(en->c->name, name) != 0)
			continue;
		pthread_mutex_lock(&s->lock);
		if (en->current)
			found = secret_ref(en->current);
		else
			memcpy(why, en->why, sizeof(why));
		pthread_mutex_unlock(&s->lock);
		break;
	}
	if (!found)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "credential %s is not available: %s", name, why);
	*ret = found;
	return 0;
}
