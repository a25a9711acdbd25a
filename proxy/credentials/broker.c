/*
 * See broker.h. A kept slot walks through five states on the broker's loop: new, asking its source,
 * resting until the value is to be renewed (or until another try), leaving (the source gives back
 * what it holds elsewhere, for a bounded time), ending. Taking and giving back are counted under
 * the lock; the source itself is touched on the loop alone.
 */
#include "proxy/credentials/broker.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "logging/limits.h"
#include "logging/thread.h"
#include "proxy/credentials/fetch.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"
#include "proxy/http/message.h"

enum kept_state { KEPT_NEW, KEPT_ASKING, KEPT_RESTING, KEPT_LEAVING, KEPT_ENDING };

struct kept {
	/* owned */
	char *key; /* what the source is, so that a reload finds it again */
	size_t key_n;
	struct source *source; /* NULL until asked first */
	struct fetcher *fetcher;
	struct timer timer; /* RESTING: ask again; LEAVING: end */
	struct letter begin, end, nudge;
	/* counted */
	struct config *config;
	struct slot *slot;
	/* borrowed */
	struct broker *broker;
	const struct config_credential *c; /* config's */
	struct kept *next;		   /* broker->kept */
	/* under the broker's lock */
	unsigned users;
	struct config *way;  /* counted: how endpoints are found from the next question on */
	struct trust *trust; /* counted: and verified */
	/* the loop's */
	enum kept_state state;
	unsigned failures; /* since a value came */
	bool timer_ready;
};

struct broker {
	pthread_mutex_t lock;
	/* owned */
	struct loop *loop;
	struct kept *kept; /* those that end included, under the lock */
	/* borrowed */
	struct helpers *helpers;
	/* plain */
	struct letter stop;
	pthread_t thread;
	bool started;
	bool stopping; /* the loop's: it ends with the last of them */
};

bool broker_keeps(const struct config_credential *c)
{
	return source_ops_of(c) != NULL;
}

/* ---- when to ask again ---- */

/* Between a and b, so that many proxies that started together do not ask together. */
static uint64_t between(uint64_t a, uint64_t b)
{
	uint32_t r = 0;

	if (b <= a || getrandom(&r, sizeof(r), GRND_NONBLOCK) != (ssize_t)sizeof(r))
		return a;
	return a + r % (b - a + 1);
}

/* Some 50 to 65 % into a life, but not earlier than LIMIT_MS_CREDENTIAL_EARLY before its end: a
 * source that is slow, or down for a while, costs nothing. */
static uint64_t renewal_ms(int64_t life_us)
{
	uint64_t life = (uint64_t)life_us / 1000;
	uint64_t from = life * 50 / 100, to = life * 65 / 100;

	if (life - from > LIMIT_MS_CREDENTIAL_EARLY) {
		from = life - LIMIT_MS_CREDENTIAL_EARLY;
		to = life - LIMIT_MS_CREDENTIAL_EARLY / 2;
	}
	from = between(from, to);
	return from < LIMIT_MS_CREDENTIAL_RETRY / 10 ? LIMIT_MS_CREDENTIAL_RETRY / 10 : from;
}

/* 1 s, 2 s, 4 s, ... up to a minute, each with up to a quarter more. */
static uint64_t retry_ms(unsigned failures)
{
	uint64_t ms = LIMIT_MS_CREDENTIAL_RETRY_MOST;

	if (failures < 7 && (uint64_t)LIMIT_MS_CREDENTIAL_RETRY << (failures - 1) < ms)
		ms = (uint64_t)LIMIT_MS_CREDENTIAL_RETRY << (failures - 1);
	return between(ms, ms + ms / 4);
}

/* ---- asking ---- */

static void kept_goto(struct kept *k, enum kept_state to)
{
	static const unsigned legal[] = {
		[KEPT_NEW] = 1U << KEPT_ASKING | 1U << KEPT_ENDING,
		[KEPT_ASKING] = 1U << KEPT_RESTING | 1U << KEPT_LEAVING | 1U << KEPT_ENDING,
		[KEPT_RESTING] = 1U << KEPT_ASKING | 1U << KEPT_LEAVING | 1U << KEPT_ENDING,
		[KEPT_LEAVING] = 1U << KEPT_ENDING,
		[KEPT_ENDING] = 0,
	};

	if (!(legal[k->state] & 1U << to))
		abort();
	k->state = to;
}

static void rest(struct kept *k, uint64_t ms)
{
	timer_arm(&k->timer, ms);
	slot_expect(k->slot, (int64_t)ms * 1000);
}

static void fail(struct kept *k, const struct err *e)
{
	slot_put(k->slot, NULL, 0, true, e);
	k->failures++;
	kept_goto(k, KEPT_RESTING);
	rest(k, retry_ms(k->failures));
}

/* The value's life: what the source says, and no longer than `ttl`. -1: nobody said how long. */
static int life_of(const struct kept *k, int64_t said_us, int64_t *ret, struct err *e)
{
	int64_t ttl_us = (int64_t)k->c->ttl_ms * 1000;

	if (said_us < 0)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "what its source gave has ended already (is the clock right?)");
	if (said_us == 0 && ttl_us == 0)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "its source does not say when it ends (add `ttl`)");
	*ret = said_us == 0 || (ttl_us != 0 && ttl_us < said_us) ? ttl_us : said_us;
	if (*ret > LIMIT_MS_CREDENTIAL_LIFE * 1000LL)
		*ret = LIMIT_MS_CREDENTIAL_LIFE * 1000LL;
	return 0;
}

/* value is ours. */
static void on_result(void *arg, struct secret *value, int64_t said_us, const struct err *why)
{
	struct kept *k = arg;
	struct err e = ERR_INIT;
	int64_t life_us = 0;

	if (!value) {
		fail(k, why);
	} else if (secret_check_as(k->c, value, &e) < 0 || life_of(k, said_us, &life_us, &e) < 0) {
		secret_unref(value);
		fail(k, &e);
	} else {
		slot_put(k->slot, value, life_us, true, NULL);
		k->failures = 0;
		kept_goto(k, KEPT_RESTING);
		rest(k, renewal_ms(life_us));
	}
}

/* What the last reload left. */
static int prepare(struct kept *k, struct err *e)
{
	struct config *way;
	struct trust *trust;
	int rc;

	pthread_mutex_lock(&k->broker->lock);
	way = config_ref(k->way);
	trust = k->trust ? trust_ref(k->trust) : NULL;
	pthread_mutex_unlock(&k->broker->lock);
	rc = k->fetcher ? 0 : fetcher_new(k->broker->loop, &k->fetcher, e);
	if (rc == 0)
		rc = fetcher_use(k->fetcher, way, trust, e);
	trust_unref(trust);
	config_unref(way);
	if (rc == 0 && !k->source) {
		struct source_setting s = {.c = k->c,
					   .loop = k->broker->loop,
					   .fetcher = k->fetcher,
					   .helpers = k->broker->helpers,
					   .on_result = on_result,
					   .arg = k};

		rc = source_open(&s, &k->source, e);
	}
	return rc;
}

static void ask(struct kept *k)
{
	struct err e = ERR_INIT;

	kept_goto(k, KEPT_ASKING);
	if (prepare(k, &e) < 0 || source_ask(k->source, &e) < 0) {
		e.reason = REASON_CREDENTIAL_UNAVAILABLE;
		fail(k, &e);
	}
}

static void end(struct kept *k);

static void on_timer(void *arg)
{
	struct kept *k = arg;

	if (k->state == KEPT_RESTING)
		ask(k);
	else if (k->state == KEPT_LEAVING)
		end(k);
}

static void on_begin(void *arg)
{
	struct kept *k = arg;
	struct err e = ERR_INIT;

	if (k->state != KEPT_NEW)
		return;
	if (timer_init(&k->timer, k->broker->loop, on_timer, k) < 0) {
		(void)err_reason(&e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
		slot_put(k->slot, NULL, 0, false, &e);
		return;
	}
	k->timer_ready = true;
	ask(k);
}

static void on_nudge(void *arg)
{
	struct kept *k = arg;

	if (k->state == KEPT_RESTING && k->failures == 0 && !slot_holds(k->slot))
		ask(k);
}

static void kept_free(void *arg)
{
	struct kept *k = arg;

	if (k->timer_ready)
		timer_clear(&k->timer);
	slot_unref(k->slot);
	trust_unref(k->trust);
	config_unref(k->way);
	config_unref(k->config);
	free(k->key);
	free(k);
}

static void unlink_kept(struct broker *b, struct kept *k)
{
	struct kept **at = &b->kept;

	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
}

/* At the stop: nobody is leaving any more. */
static void stop_if_last(struct broker *b)
{
	bool last = true;

	if (!b->stopping)
		return;
	pthread_mutex_lock(&b->lock);
	for (const struct kept *k = b->kept; k; k = k->next)
		last &= k->state != KEPT_LEAVING;
	pthread_mutex_unlock(&b->lock);
	if (last)
		loop_stop(b->loop);
}

static void end(struct kept *k)
{
	struct broker *b = k->broker;

	kept_goto(k, KEPT_ENDING);
	source_close(k->source);
	fetcher_free(k->fetcher);
	pthread_mutex_lock(&b->lock);
	unlink_kept(b, k);
	pthread_mutex_unlock(&b->lock);
	loop_bury(b->loop, k, kept_free);
	stop_if_last(b);
}

static void on_farewell(void *arg)
{
	struct kept *k = arg;

	if (k->state == KEPT_LEAVING)
		end(k);
}

static void on_end(void *arg)
{
	struct kept *k = arg;

	if (k->state == KEPT_NEW || !source_farewell(k->source, on_farewell, k)) {
		end(k);
		return;
	}
	kept_goto(k, KEPT_LEAVING);
	timer_arm(&k->timer, LIMIT_MS_SOURCE_FAREWELL);
}

/* ---- taking ---- */

/* Everything of the definition that the value depends on. Each part with its length, so that no two
 * definitions look alike. */
static int make_key(struct kept *k)
{
	const struct config_credential *c = k->c;
	struct strbuf b;

	strbuf_init(&b, LIMIT_CONFIG_BYTES);
	/* A certificate is read out of a value when that comes. */
	strbuf_addf(&b, "%d %d %zu:%s %zu:%s %llu %llu", (int)c->source,
		    c->as == CREDENTIAL_AS_MTLS, strlen(c->name), c->name, strlen(c->from), c->from,
		    (unsigned long long)c->timeout_ms, (unsigned long long)c->ttl_ms);
	for (size_t i = 0; i < c->args_n; i++)
		strbuf_addf(&b, " %zu:%s", strlen(c->args[i]), c->args[i]);
	for (size_t i = 0; i < c->params_n; i++)
		strbuf_addf(&b, " %d %d %zu:%s", (int)c->params[i].key, (int)c->params[i].kind,
			    strlen(c->params[i].text), c->params[i].text);
	for (size_t i = 0; i < c->ranges_n; i++) {
		char text[IPADDR_TEXT_MAX];

		ipaddr_format(&c->ranges[i].base, text);
		strbuf_addf(&b, " %s/%u", text, c->ranges[i].bits);
	}
	k->key_n = b.len;
	k->key = strbuf_take(&b);
	strbuf_clear(&b);
	return k->key ? 0 : -1;
}

static struct kept *kept_new(struct broker *b, struct config *config, size_t i, struct trust *t)
{
	struct kept *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->broker = b;
	k->config = config_ref(config);
	k->way = config_ref(config);
	k->trust = t ? trust_ref(t) : NULL;
	k->c = &config->credentials[i];
	k->users = 1;
	k->begin = (struct letter){.fn = on_begin, .arg = k};
	k->end = (struct letter){.fn = on_end, .arg = k};
	k->nudge = (struct letter){.fn = on_nudge, .arg = k};
	k->slot = slot_new(k->c);
	if (!k->slot || make_key(k) < 0) {
		kept_free(k);
		return NULL;
	}
	return k;
}

/* Under the lock. */
static void swap_ways(struct kept *a, struct kept *b)
{
	struct config *way = a->way;
	struct trust *trust = a->trust;

	a->way = b->way;
	a->trust = b->trust;
	b->way = way;
	b->trust = trust;
}

int broker_take(struct broker *b, struct config *config, size_t i, struct trust *t,
		struct kept **ret, struct err *e)
{
	struct kept *made = kept_new(b, config, i, t), *k;

	if (!made)
		return err_set(e, "out of memory");
	pthread_mutex_lock(&b->lock);
	for (k = b->kept; k; k = k->next)
		if (k->users > 0 && k->key_n == made->key_n &&
		    memcmp(k->key, made->key, k->key_n) == 0)
			break;
	if (k) {
		k->users++;
		swap_ways(k, made);
	} else {
		made->next = b->kept;
		b->kept = made;
	}
	pthread_mutex_unlock(&b->lock);
	if (k)
		kept_free(made);
	else
		loop_post(b->loop, &made->begin);
	*ret = k ? k : made;
	return 0;
}

struct slot *kept_slot(const struct kept *k)
{
	return k->slot;
}

void broker_give_back(struct broker *b, struct kept *k)
{
	bool last;

	pthread_mutex_lock(&b->lock);
	last = --k->users == 0;
	pthread_mutex_unlock(&b->lock);
	/* Nobody takes it up again, so it is there until the letter has come. */
	if (last)
		loop_post(b->loop, &k->end);
}

void broker_nudge(struct kept *k)
{
	loop_post(k->broker->loop, &k->nudge);
}

/* ---- the thread ---- */

static void on_stop(void *arg)
{
	struct broker *b = arg;

	/* Everything was given back before, so the letter of each has come; those that leave have
	 * their timers. */
	b->stopping = true;
	stop_if_last(b);
}

static void *run(void *arg)
{
	struct broker *b = arg;

	loop_run(b->loop);
	message_free_spares();
	return NULL;
}

int broker_new(struct helpers *h, struct broker **ret, struct err *e)
{
	struct broker *b = calloc(1, sizeof(*b));

	if (!b || pthread_mutex_init(&b->lock, NULL) != 0) {
		free(b);
		return err_set(e, "out of memory");
	}
	if (loop_new(&b->loop, e) < 0) {
		pthread_mutex_destroy(&b->lock);
		free(b);
		return -1;
	}
	b->helpers = h;
	b->stop = (struct letter){.fn = on_stop, .arg = b};
	*ret = b;
	return 0;
}

int broker_start(struct broker *b, struct err *e)
{
	if (thread_start(&b->thread, run, b, "thread of the credentials", e) < 0)
		return -1;
	b->started = true;
	return 0;
}

void broker_free(struct broker *b)
{
	if (!b)
		return;
	if (b->started) {
		loop_post(b->loop, &b->stop);
		pthread_join(b->thread, NULL);
	}
	/* Those whose last letter the loop did not come to. */
	while (b->kept) {
		struct kept *k = b->kept;

		b->kept = k->next;
		source_close(k->source);
		fetcher_free(k->fetcher);
		kept_free(k);
	}
	loop_free(b->loop);
	pthread_mutex_destroy(&b->lock);
	free(b);
}
