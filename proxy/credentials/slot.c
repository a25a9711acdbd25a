/*
 * See slot.h. The lock is held for a pointer's exchange, never while anything is read. Ends are
 * counted by a clock that goes on while the machine sleeps and that nobody can set, so that a
 * token is never used past its life.
 */
#include "proxy/credentials/slot.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/credentials/redact.h"
#include "proxy/credentials/secret.h"

struct slot {
	pthread_mutex_t lock;
	pthread_cond_t tried_cond;
	/* borrowed */
	const struct config_credential *c;
	/* under the lock */
	struct secret *current;	  /* counted; NULL: unavailable */
	struct client_cert *cert; /* counted; of current, if that is one */
	int64_t ends_us;	  /* 0: it does not */
	int64_t given_us;	  /* when the source last gave a value */
	int64_t next_us;	  /* when it is asked again; 0: not known */
	int64_t used_us;	  /* 0: never */
	uint64_t uses;
	char why[ERR_TEXT_MAX];
	unsigned refs;
	bool tried;	  /* something was put */
	uint64_t version; /* see struct slot_state */
};

static void (*tell_fn)(void *arg);
static void *tell_arg;

void slot_tell(void (*fn)(void *arg), void *arg)
{
	tell_fn = fn;
	tell_arg = arg;
}

static int64_t clock_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

struct slot *slot_new(const struct config_credential *c)
{
	struct slot *s = calloc(1, sizeof(*s));
	pthread_condattr_t attr;

	if (!s)
		return NULL;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (pthread_mutex_init(&s->lock, NULL) != 0 ||
	    pthread_cond_init(&s->tried_cond, &attr) != 0) {
		pthread_condattr_destroy(&attr);
		free(s);
		return NULL;
	}
	pthread_condattr_destroy(&attr);
	s->c = c;
	s->refs = 1;
	return s;
}

struct slot *slot_ref(struct slot *s)
{
	pthread_mutex_lock(&s->lock);
	s->refs++;
	pthread_mutex_unlock(&s->lock);
	return s;
}

bool slot_unref(struct slot *s)
{
	bool last;

	if (!s)
		return false;
	pthread_mutex_lock(&s->lock);
	last = --s->refs == 0;
	pthread_mutex_unlock(&s->lock);
	if (!last)
		return false;
	secret_unref(s->current);
	client_cert_unref(s->cert);
	pthread_cond_destroy(&s->tried_cond);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return true;
}

static bool has_ended(const struct slot *s)
{
	return s->ends_us != 0 && clock_us() >= s->ends_us;
}

/* What the operator hears of it. */
enum news { NEWS_NONE, NEWS_LOST, NEWS_KEPT, NEWS_NEW, NEWS_BACK };

/* What is no more: freed when the lock is not held. */
struct gone {
	struct secret *value;
	struct client_cert *cert;
};

static enum news put(struct slot *s, struct secret *value, struct client_cert *cert,
		     int64_t life_us, bool keep, const struct err *why, struct gone *ret_old)
{
	bool was_tried = s->tried, had = s->current && !has_ended(s);
	struct secret *old = s->current;

	s->tried = true;
	pthread_cond_broadcast(&s->tried_cond);
	if (!value) {
		bool same = was_tried && strcmp(s->why, why->text) == 0;

		/* Both are of the same size, and err terminates its text. */
		memcpy(s->why, why->text, sizeof(s->why));
		if (!same || (old && !(had && keep)))
			s->version++;
		if (had && keep)
			return same ? NEWS_NONE : NEWS_KEPT;
		*ret_old = (struct gone){old, s->cert};
		s->current = NULL;
		s->cert = NULL;
		return old || !same ? NEWS_LOST : NEWS_NONE;
	}
	if (!had || s->why[0] || life_us || s->ends_us ||
	    !str_eq(secret_value(value), secret_value(old)))
		s->version++;
	s->why[0] = '\0';
	s->given_us = clock_us();
	s->ends_us = life_us ? s->given_us + life_us : 0;
	if (old && str_eq(secret_value(value), secret_value(old))) {
		*ret_old = (struct gone){value, cert};
		return had ? NEWS_NONE : NEWS_BACK;
	}
	*ret_old = (struct gone){old, s->cert};
	s->current = value;
	s->cert = cert;
	return !was_tried ? NEWS_NONE : had ? NEWS_NEW : NEWS_BACK;
}

/* What is handed out can be found again in what comes back. */
static struct secret *make_searchable(const struct slot *s, struct secret *value, struct err *e)
{
	struct redactor *r;

	if (redactor_new(s->c, secret_value(value), &r, e) < 0) {
		secret_unref(value);
		return NULL;
	}
	secret_set_redactor(value, r);
	return value;
}

/* The certificate that *value is, and no life beyond its own. -1: it is none, and *value is gone.
 */
static int read_cert(struct secret **value, int64_t *life_us, struct client_cert **ret,
		     struct err *e)
{
	int64_t left_us;

	if (client_cert_new(secret_value(*value), ret, e) < 0) {
		secret_unref(*value);
		*value = NULL;
		return -1;
	}
	left_us = client_cert_left_us(*ret);
	if (*life_us == 0 || left_us < *life_us)
		*life_us = left_us > 0 ? left_us : 1;
	return 0;
}

void slot_put(struct slot *s, struct secret *value, int64_t life_us, bool keep,
	      const struct err *why)
{
	struct client_cert *cert = NULL;
	struct gone old = {0};
	struct err e = ERR_INIT;
	int64_t left_us;
	enum news news;
	bool unsearched;

	/* A certificate is in no answer: it was shown in the handshake. */
	if (value && s->c->as == CREDENTIAL_AS_MTLS) {
		if (read_cert(&value, &life_us, &cert, &e) < 0) {
			why = &e;
			keep = false;
		}
	} else if (value && !(value = make_searchable(s, value, &e))) {
		why = &e;
	}
	pthread_mutex_lock(&s->lock);
	news = put(s, value, cert, life_us, keep, why, &old);
	unsearched =
		value && !cert && s->current == value && secret_value(value).n < LIMIT_REDACT_MIN;
	left_us = s->ends_us ? s->ends_us - clock_us() : 0;
	pthread_mutex_unlock(&s->lock);
	if (tell_fn) {
		tell_fn(tell_arg);
		news = NEWS_NONE;
		unsearched = false;
	}
	switch (news) {
	case NEWS_NONE: break;
	case NEWS_LOST:
		log_warn("credential %s (%s) is not available: %s", s->c->name, s->c->from,
			 why->text);
		break;
	case NEWS_KEPT:
		log_warn("credential %s (%s) cannot be renewed: %s (the value at hand holds for "
			 "%lld s)",
			 s->c->name, s->c->from, why->text, (long long)(left_us / 1000000));
		break;
	case NEWS_NEW: log_info("credential %s: has a new value", s->c->name); break;
	case NEWS_BACK: log_info("credential %s: is available again", s->c->name); break;
	}
	if (unsearched)
		log_warn("credential %s: its value is shorter than %d bytes, so answers are not "
			 "searched for it",
			 s->c->name, LIMIT_REDACT_MIN);
	secret_unref(old.value);
	client_cert_unref(old.cert);
}

/* Under the lock: why there is no value. */
static void say_why(const struct slot *s, char *why, size_t size)
{
	const char *text = s->why[0]   ? s->why
			   : !s->tried ? "its source has not answered yet"
			   : s->current && s->c->as == CREDENTIAL_AS_MTLS
				   ? "its certificate has expired, "
				     "and no new one has come yet"
				   : "its value has ended, and no "
				     "new one has come yet";

	snprintf(why, size, "%s", text);
}

/* The one that is asked for; the other is NULL. Counts a use where it is there. */
static int take(struct slot *s, struct secret **ret_value, struct client_cert **ret_cert,
		struct err *e)
{
	char why[ERR_TEXT_MAX];
	bool found;

	pthread_mutex_lock(&s->lock);
	found = (ret_cert ? s->cert != NULL : s->current != NULL) && !has_ended(s);
	if (!found) {
		say_why(s, why, sizeof(why));
	} else {
		if (ret_cert)
			*ret_cert = client_cert_ref(s->cert);
		if (ret_value)
			*ret_value = secret_ref(s->current);
		s->uses++;
		s->used_us = clock_us();
	}
	pthread_mutex_unlock(&s->lock);
	return found ? 0 : err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "%s", why);
}

int slot_get(struct slot *s, struct secret **ret, struct err *e)
{
	return take(s, ret, NULL, e);
}

int slot_get_cert(struct slot *s, struct client_cert **ret, struct err *e)
{
	return take(s, NULL, ret, e);
}

void slot_read(struct slot *s, struct slot_state *ret)
{
	*ret = (struct slot_state){0};
	pthread_mutex_lock(&s->lock);
	ret->version = s->version;
	memcpy(ret->why, s->why, sizeof(ret->why));
	ret->next_us = s->next_us ? s->next_us - clock_us() : -1;
	if (s->current && !has_ended(s)) {
		ret->value = secret_ref(s->current);
		ret->life_us = s->ends_us ? s->ends_us - clock_us() : 0;
		/* It ended between the two looks at the clock. */
		if (s->ends_us && ret->life_us <= 0)
			ret->life_us = 1;
	}
	pthread_mutex_unlock(&s->lock);
}

bool slot_holds(struct slot *s)
{
	bool holds;

	pthread_mutex_lock(&s->lock);
	holds = s->current && !has_ended(s);
	pthread_mutex_unlock(&s->lock);
	return holds;
}

bool slot_await(struct slot *s, uint64_t ms)
{
	struct timespec until;
	bool tried;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(ms / 1000);
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&s->lock);
	while (!s->tried && pthread_cond_timedwait(&s->tried_cond, &s->lock, &until) == 0)
		;
	tried = s->tried;
	pthread_mutex_unlock(&s->lock);
	return tried;
}

/* ---- for who asks how it is ---- */

void slot_status(struct slot *s, struct slot_status *ret)
{
	int64_t now = clock_us();

	*ret = (struct slot_status){.age_us = -1, .left_us = -1, .next_us = -1, .unused_us = -1};
	pthread_mutex_lock(&s->lock);
	ret->holds = s->current && !has_ended(s);
	ret->tried = s->tried;
	if (ret->holds)
		ret->age_us = now - s->given_us;
	if (ret->holds && s->ends_us)
		ret->left_us = s->ends_us > now ? s->ends_us - now : 0;
	if (s->next_us)
		ret->next_us = s->next_us > now ? s->next_us - now : 0;
	if (s->used_us)
		ret->unused_us = now > s->used_us ? now - s->used_us : 0;
	ret->uses = s->uses;
	memcpy(ret->why, s->why, sizeof(ret->why));
	pthread_mutex_unlock(&s->lock);
}

void slot_expect(struct slot *s, int64_t in_us)
{
	pthread_mutex_lock(&s->lock);
	s->next_us = clock_us() + in_us;
	s->version++;
	pthread_mutex_unlock(&s->lock);
	if (tell_fn)
		tell_fn(tell_arg);
}

void slot_carry(struct slot *s, struct slot *from)
{
	uint64_t uses;
	int64_t used_us;

	pthread_mutex_lock(&from->lock);
	uses = from->uses;
	used_us = from->used_us;
	pthread_mutex_unlock(&from->lock);
	pthread_mutex_lock(&s->lock);
	s->uses += uses;
	s->used_us = s->used_us > used_us ? s->used_us : used_us;
	pthread_mutex_unlock(&s->lock);
}
