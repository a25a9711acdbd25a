/*
 * See state.h. The thread and what others may ask of it; sync.c is what it asks of Redis.
 */
#include "proxy/state/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/rand.h>

#include "logging/log.h"
#include "logging/thread.h"
#include "proxy/state/internal.h"

int64_t state_boot_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- who waits ---- */

/* Whoever has asked until now has its answer. */
static void answer(struct state *st, _Atomic uint64_t *to, uint64_t ticket)
{
	if (atomic_load(to) >= ticket)
		return;
	pthread_mutex_lock(&st->lock);
	atomic_store(to, ticket);
	pthread_cond_broadcast(&st->moved);
	pthread_mutex_unlock(&st->lock);
	st->ops.answered(st->ops.arg);
}

uint64_t state_ask(struct state *st)
{
	uint64_t ticket = atomic_fetch_add(&st->asked, 1) + 1;

	loop_post(st->loop, &st->letter);
	return ticket;
}

enum state_answer state_answer(struct state *st, uint64_t ticket)
{
	if (atomic_load(&st->known) >= ticket)
		return STATE_KNOWN;
	return atomic_load(&st->unknown) >= ticket ? STATE_UNKNOWN : STATE_PENDING;
}

/* ---- ends that are owed ---- */

void state_owe(struct state *st, const struct state_record *r)
{
	pthread_mutex_lock(&st->lock);
	if (st->owed_n == LIMIT_STATE_OWED)
		log_error("state: the end of sandbox %s could not be told of and is given up "
			  "(revoke it again)",
			  r->name);
	else
		st->owed[st->owed_n++] = *r;
	pthread_mutex_unlock(&st->lock);
}

/* ---- orders of the main thread ---- */

void state_order_done(struct state *st, struct state_order *o, int rc, const struct err *why)
{
	if (rc < 0 && (o->kind == STATE_END || o->sent))
		state_owe(st, &o->r);
	pthread_mutex_lock(&st->lock);
	st->under_way = NULL;
	o->rc = rc;
	if (why)
		o->e = *why;
	o->done = true;
	if (o->abandoned)
		free(o);
	else
		pthread_cond_broadcast(&st->moved);
	pthread_mutex_unlock(&st->lock);
}

static void take_order(struct state *st)
{
	struct err e = ERR_INIT;
	struct state_order *o;

	pthread_mutex_lock(&st->lock);
	o = st->under_way ? NULL : st->order;
	if (o) {
		st->order = NULL;
		st->under_way = o;
	}
	pthread_mutex_unlock(&st->lock);
	if (!o)
		return;
	if (st->phase != PHASE_CURRENT)
		(void)err_set(&e, "the shared state is out of reach");
	else if (sync_order(st, o, &e) == 0)
		return;
	state_order_done(st, o, -1, &e);
}

static struct timespec deadline(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += LIMIT_MS_STATE_ORDER / 1000;
	return t;
}

/* Under the lock. True: it is over, and the order the caller's again. */
static bool await_order(struct state *st, struct state_order *o)
{
	struct timespec end = deadline();

	while (!o->done && pthread_cond_timedwait(&st->moved, &st->lock, &end) == 0)
		;
	if (o->done)
		return true;
	if (st->order == o) {
		st->order = NULL; /* nobody has looked at it */
		return true;
	}
	o->abandoned = true;
	return false;
}

static int order(struct state *st, enum state_order_kind kind, const struct state_record *r,
		 struct err *e)
{
	struct state_order *o = calloc(1, sizeof(*o));
	bool done, busy;
	int rc;

	if (!o)
		return err_set(e, "out of memory");
	o->kind = kind;
	o->r = *r;
	o->e = ERR_INIT;
	o->rc = err_set(&o->e, "the shared state does not answer");
	pthread_mutex_lock(&st->lock);
	busy = st->order != NULL;
	if (!busy)
		st->order = o;
	pthread_mutex_unlock(&st->lock);
	if (!busy)
		loop_post(st->loop, &st->letter);
	pthread_mutex_lock(&st->lock);
	done = busy || await_order(st, o);
	rc = done ? o->rc : -1;
	if (rc < 0 && e)
		*e = o->e;
	pthread_mutex_unlock(&st->lock);
	/* It never came to whoever would have done this. */
	if (done && rc < 0 && !o->done && kind == STATE_END)
		state_owe(st, r);
	if (done)
		free(o);
	return rc;
}

int state_add(struct state *st, const struct state_record *r, struct err *e)
{
	return order(st, STATE_ADD, r, e);
}

int state_end(struct state *st, const struct state_record *r, struct err *e)
{
	return order(st, STATE_END, r, e);
}

int state_sync(struct state *st, struct err *e)
{
	uint64_t ticket = state_ask(st);
	struct timespec end = deadline();
	enum state_answer a;

	pthread_mutex_lock(&st->lock);
	while ((a = state_answer(st, ticket)) == STATE_PENDING)
		if (pthread_cond_timedwait(&st->moved, &st->lock, &end) != 0)
			break;
	pthread_mutex_unlock(&st->lock);
	return a == STATE_KNOWN ? 0 : err_set(e, "the shared state is out of reach");
}

/* ---- up and down ---- */

static void note_trouble(struct state *st, const char *why)
{
	pthread_mutex_lock(&st->lock);
	(void)snprintf(st->trouble, sizeof(st->trouble), "%.*s", (int)sizeof(st->trouble) - 1, why);
	pthread_mutex_unlock(&st->lock);
}

bool state_is_up(struct state *st, char *why, size_t n)
{
	bool up;

	pthread_mutex_lock(&st->lock);
	up = st->trouble[0] == '\0';
	(void)snprintf(why, n, "%s", st->trouble);
	pthread_mutex_unlock(&st->lock);
	return up;
}

/* Half of it by chance, so that replicas do not come all at once. */
static uint64_t pause_ms(unsigned failures)
{
	uint64_t ms = LIMIT_MS_STATE_RETRY_MOST;
	unsigned char chance = 0;

	if (failures < 8 && (uint64_t)LIMIT_MS_STATE_RETRY << failures < ms)
		ms = (uint64_t)LIMIT_MS_STATE_RETRY << failures;
	(void)!RAND_bytes(&chance, 1);
	return ms / 2 + ms / 2 * chance / 255;
}

void state_down(struct state *st, const struct err *why)
{
	struct err e = *why;

	resp_free(st->resp);
	st->resp = NULL;
	st->busy = false;
	timer_stop(&st->poll);
	if (!st->lost)
		log_warn("state: %s is out of reach: %s (tokens that are known hold for %llu ms)",
			 st->to->text, e.text, (unsigned long long)st->to->grace_ms);
	st->lost = true;
	st->phase = PHASE_DOWN;
	note_trouble(st, e.text);
	if (st->under_way) {
		struct err gone = ERR_INIT;

		(void)err_set(&gone, "the shared state is out of reach");
		state_order_done(st, st->under_way, -1, &gone);
	}
	if (st->pays)
		state_owe(st, &st->paying);
	st->pays = false;
	answer(st, &st->unknown, atomic_load(&st->asked));
	timer_arm(&st->retry, pause_ms(st->failures++));
}

static void on_failed(void *arg, const struct err *why)
{
	state_down(arg, why);
}

static void on_linked(void *arg, struct resp *r, const struct err *why)
{
	struct state *st = arg;

	st->link = NULL;
	if (!r) {
		state_down(st, why);
		return;
	}
	st->resp = r;
	resp_set_owner(r, on_failed, st);
	st->phase = PHASE_LOAD;
	st->reload = true;
	st->primary_at_us = 0;
	sync_start(st);
}

/* Those of before stay: a request may still know them. */
static void on_found(void *arg, const struct ipaddr *addrs, size_t n)
{
	struct state *st = arg;

	pthread_mutex_lock(&st->lock);
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;

		while (k < st->addrs_n && !ipaddr_eq(&st->addrs[k], &addrs[i]))
			k++;
		if (k < st->addrs_n)
			continue;
		if (st->addrs_n == LIMIT_STATE_ADDRESSES)
			memmove(st->addrs, st->addrs + 1, --st->addrs_n * sizeof(st->addrs[0]));
		st->addrs[st->addrs_n++] = addrs[i];
	}
	pthread_mutex_unlock(&st->lock);
}

bool state_addresses(struct state *st, struct ipaddr *ret, size_t *ret_n)
{
	pthread_mutex_lock(&st->lock);
	memcpy(ret, st->addrs, st->addrs_n * sizeof(*ret));
	*ret_n = st->addrs_n;
	pthread_mutex_unlock(&st->lock);
	return *ret_n > 0;
}

uint16_t state_port(const struct state *st)
{
	return st->to->unix_path ? 0 : st->to->port;
}

static void on_retry(void *arg)
{
	struct state *st = arg;
	struct link_options o = {
		.loop = st->loop,
		.resolver = st->resolver,
		.to = st->to,
		.login = st->to->credential ? st->ops.login : NULL,
		.tls = st->ops.tls,
		.found = on_found,
		.done = on_linked,
		.arg = st,
		.auth_arg = st->ops.arg,
	};
	struct err e = ERR_INIT;

	st->phase = PHASE_LINK;
	if (link_start(&o, &st->link, &e) < 0)
		state_down(st, &e);
}

void state_synced(struct state *st)
{
	int64_t left_us = st->sync_at_us + (int64_t)st->to->grace_ms * 1000 - state_boot_us();
	bool more;

	st->busy = false;
	st->phase = PHASE_CURRENT;
	st->failures = 0;
	st->ops.current(st->ops.arg, st->sync_at_us);
	timer_arm(&st->lease, left_us > 0 ? (uint64_t)left_us / 1000 + 1 : 0);
	if (st->lost)
		log_info("state: %s is in reach", st->to->text);
	st->lost = false;
	note_trouble(st, "");
	answer(st, &st->known, st->covers);
	sync_pay(st);
	take_order(st);
	more = atomic_load(&st->asked) > st->covers;
	timer_arm(&st->poll, more ? LIMIT_MS_STATE_GAP : LIMIT_MS_STATE_POLL);
}

static void on_poll(void *arg)
{
	struct state *st = arg;

	if (st->phase == PHASE_CURRENT && !st->busy)
		sync_start(st);
}

static void on_lease(void *arg)
{
	struct state *st = arg;

	/* Why it was lost, and why it does not come back, may be two things: a restart, and another
	 * password. */
	log_error("state: %s has been out of reach for too long: no token is served until it is "
		  "back (at last: %s)",
		  st->to->text, st->trouble[0] ? st->trouble : "it does not answer");
	st->ops.expired(st->ops.arg);
}

/* Somebody asked for something. */
static void on_letter(void *arg)
{
	struct state *st = arg;

	if (atomic_load(&st->stopping)) {
		loop_stop(st->loop);
		return;
	}
	take_order(st);
	if (st->phase == PHASE_DOWN || st->phase == PHASE_LINK)
		answer(st, &st->unknown, atomic_load(&st->asked));
	else if (st->phase == PHASE_CURRENT && !st->busy && atomic_load(&st->asked) > st->covers)
		timer_arm(&st->poll, state_boot_us() - st->sync_at_us > LIMIT_MS_STATE_GAP * 1000LL
					     ? 0
					     : LIMIT_MS_STATE_GAP);
}

/* ---- birth and end ---- */

static int init_sync(struct state *st, struct err *e)
{
	pthread_condattr_t a;

	if (pthread_condattr_init(&a) != 0)
		return err_set(e, "out of memory");
	(void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	if (pthread_mutex_init(&st->lock, NULL) == 0) {
		if (pthread_cond_init(&st->moved, &a) == 0)
			st->has_lock = true;
		else
			pthread_mutex_destroy(&st->lock);
	}
	pthread_condattr_destroy(&a);
	return st->has_lock ? 0 : err_set(e, "a lock is not to be had");
}

int state_new(struct config *c, const struct state_ops *ops, struct state **ret, struct err *e)
{
	struct state *st = calloc(1, sizeof(*st));

	if (!st)
		return err_set(e, "out of memory");
	st->config = config_ref(c);
	st->to = c->state;
	st->ops = *ops;
	st->letter = (struct letter){.fn = on_letter, .arg = st};
	(void)snprintf(st->trouble, sizeof(st->trouble), "not connected yet");
	if (st->to->host.kind != HOST_NAME && !st->to->unix_path) {
		st->addrs[0] = st->to->host.addr;
		st->addrs_n = 1;
	}
	if (init_sync(st, e) < 0 || loop_new(&st->loop, e) < 0 ||
	    resolver_new(st->loop, c, &st->resolver, e) < 0) {
		state_free(st);
		return -1;
	}
	if (timer_init(&st->retry, st->loop, on_retry, st) < 0 ||
	    timer_init(&st->poll, st->loop, on_poll, st) < 0 ||
	    timer_init(&st->lease, st->loop, on_lease, st) < 0) {
		state_free(st);
		return err_set(e, "out of memory");
	}
	*ret = st;
	return 0;
}

static void *run(void *arg)
{
	struct state *st = arg;

	(void)pthread_setname_np(pthread_self(), "stile-state");
	on_retry(st);
	loop_run(st->loop);
	return NULL;
}

int state_start(struct state *st, struct err *e)
{
	if (thread_start(&st->thread, run, st, "thread of the shared state", e) < 0)
		return -1;
	st->started = true;
	return 0;
}

void state_stop(struct state *st)
{
	if (!st || !st->started)
		return;
	atomic_store(&st->stopping, true);
	loop_post(st->loop, &st->letter);
	pthread_join(st->thread, NULL);
	st->started = false;
	/* Alone again: what is owed now is told to nobody, and what became of the rest unknown. */
	if (st->pays)
		state_owe(st, &st->paying);
	if (st->under_way && st->under_way->kind == STATE_END)
		state_owe(st, &st->under_way->r);
	for (size_t i = 0; i < st->owed_n; i++)
		log_error("state: the end of sandbox %s could not be told of before this stile "
			  "ended (revoke it again)",
			  st->owed[i].name);
}

void state_free(struct state *st)
{
	if (!st)
		return;
	state_stop(st);
	link_cancel(st->link);
	resp_free(st->resp);
	timer_clear(&st->retry);
	timer_clear(&st->poll);
	timer_clear(&st->lease);
	resolver_free(st->resolver);
	if (st->loop)
		loop_free(st->loop);
	free(st->under_way);
	if (st->has_lock) {
		pthread_mutex_destroy(&st->lock);
		pthread_cond_destroy(&st->moved);
	}
	config_unref(st->config);
	free(st);
}
