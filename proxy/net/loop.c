/*
 * The event loop over libevent: one epoll_wait a turn, then the turn's end (the log's batch), then
 * the graveyard. Timers are lazy: moving a deadline further away or stopping a timer only writes a
 * number, since every request does both several times and the heap would be touched for each.
 */
#include "proxy/net/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/net/loop_internal.h"

#define TURN_END_MAX  4
#define LOOP_KEPT_MAX (2 * LIMIT_LISTENERS + 2)
#define SAY_US	      1000000 /* the same complaint again */

struct grave {
	struct grave *next;
	void *obj;
	void (*free_fn)(void *obj);
};

struct loop {
	struct loop_clock clock; /* at the beginning */
	/* owned */
	struct event_base *base;
	struct event *mail_ev;
	struct grave *graves;
	struct grave *spare_graves;
	struct grave reserve[LIMIT_GRAVES_RESERVED]; /* each a spare one at the turn's beginning */
	struct loop_buffers buffers;
	/* guarded by mail_lock */
	pthread_mutex_t mail_lock;
	struct letter *mail, **mail_tail; /* their owners' */
	/* plain */
	int mail_fd;
	bool stopped;
	struct {
		void (*fn)(void *arg);
		void *arg;
	} turn_end[TURN_END_MAX];
	size_t turn_end_n;
	struct timer retry; /* of what the kernel refused */
	bool was_refused;
	int64_t said_us;
	struct event *kept[LOOP_KEPT_MAX]; /* borrowed */
	size_t kept_n;
};

struct timer_impl {
	struct event ev;
	int64_t deadline_us;  /* when the owner wants to hear */
	int64_t scheduled_us; /* when libevent will call; 0: not in its heap */
};

/* ---- what the kernel refuses ---- */

static _Thread_local struct loop *running;

static void wake(struct loop *l)
{
	uint64_t one = 1;

	while (write(l->mail_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* libevent's way to tell that an epoll_ctl(2) failed: changes are made in batches, long after
 * event_add has returned. */
static void on_complaint(int severity, const char *text)
{
	struct loop *l = running;
	int64_t now;

	if (severity < EVENT_LOG_WARN)
		return;
	if (!l) {
		log_warn("event loop: %s", text);
		return;
	}
	l->was_refused = true;
	wake(l); /* out of the wait that comes now, and does not know of it */
	now = loop_now_us(l);
	if (l->said_us && now - l->said_us < SAY_US)
		return;
	l->said_us = now ? now : 1;
	log_warn("event loop: %s", text);
}

static void on_retry(void *arg)
{
	struct loop *l = arg;

	if (!l->was_refused)
		return;
	l->was_refused = false;
	/* If that is refused too, this is called again. */
	timer_arm(&l->retry, LIMIT_MS_ACCEPT_PAUSE);
	for (size_t i = 0; i < l->kept_n; i++)
		if (event_pending(l->kept[i], EV_READ, NULL)) {
			event_del(l->kept[i]);
			event_add(l->kept[i], NULL);
		}
}

void loop_keep(struct loop *l, struct event *ev)
{
	if (l->kept_n == LOOP_KEPT_MAX)
		abort();
	l->kept[l->kept_n++] = ev;
}

void loop_unkeep(struct loop *l, struct event *ev)
{
	for (size_t i = 0; i < l->kept_n; i++)
		if (l->kept[i] == ev) {
			l->kept[i] = l->kept[--l->kept_n];
			return;
		}
}

/* ---- letters ---- */

/* The oldest one; from now on it may be posted again. */
static struct letter *take_letter(struct loop *l)
{
	struct letter *m;

	pthread_mutex_lock(&l->mail_lock);
	m = l->mail;
	if (m) {
		l->mail = m->next;
		if (!l->mail)
			l->mail_tail = &l->mail;
		m->is_posted = false;
	}
	pthread_mutex_unlock(&l->mail_lock);
	return m;
}

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
	struct loop *l = arg;
	struct letter *m;
	uint64_t n;

	(void)what;
	while (read((int)fd, &n, sizeof(n)) < 0 && errno == EINTR)
		;
	while ((m = take_letter(l)))
		m->fn(m->arg);
}

static struct event_base *new_base(void)
{
	struct event_config *cfg = event_config_new();
	struct event_base *base;

	if (!cfg)
		return NULL;
	/* Interest that is added and dropped within one turn costs no epoll_ctl this way. No
	 * descriptor is ever duplicated, which is what the flag asks for. */
	event_config_set_flag(cfg, EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST | EVENT_BASE_FLAG_NOLOCK);
	base = event_base_new_with_config(cfg);
	event_config_free(cfg);
	return base;
}

int loop_new(struct loop **ret, struct err *e)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l)
		return err_set(e, "out of memory");
	pthread_mutex_init(&l->mail_lock, NULL);
	l->mail_tail = &l->mail;
	for (size_t i = 0; i < LIMIT_GRAVES_RESERVED; i++) {
		l->reserve[i].next = l->spare_graves;
		l->spare_graves = &l->reserve[i];
	}
	l->mail_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->mail_fd < 0) {
		err_sys(e, errno, "eventfd");
		goto fail;
	}
	event_set_log_callback(on_complaint);
	l->base = new_base();
	l->buffers.read = malloc(LOOP_READ_BYTES);
	l->buffers.gather = malloc(LOOP_GATHER_BYTES);
	if (l->base)
		l->mail_ev = event_new(l->base, l->mail_fd, EV_READ | EV_PERSIST, on_mail, l);
	if (!l->base || !l->buffers.read || !l->buffers.gather || !l->mail_ev ||
	    event_add(l->mail_ev, NULL) < 0 || timer_init(&l->retry, l, on_retry, l) < 0) {
		err_set(e, "the event loop could not be made");
		goto fail;
	}
	loop_keep(l, l->mail_ev);
	*ret = l;
	return 0;
fail:
	loop_free(l);
	return -1;
}

static void empty_graves(struct loop *l)
{
	/* A free function may bury again. */
	while (l->graves) {
		struct grave *g = l->graves;
		l->graves = g->next;
		g->free_fn(g->obj);
		g->next = l->spare_graves;
		l->spare_graves = g;
	}
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	empty_graves(l);
	while (l->spare_graves) {
		struct grave *g = l->spare_graves;
		l->spare_graves = g->next;
		if (g < l->reserve || g >= l->reserve + LIMIT_GRAVES_RESERVED)
			free(g);
	}
	for (size_t i = 0; i < l->buffers.spare_n; i++)
		free(l->buffers.spare[i]);
	timer_clear(&l->retry);
	if (l->mail_ev)
		event_free(l->mail_ev);
	if (l->base)
		event_base_free(l->base);
	if (l->mail_fd >= 0)
		close(l->mail_fd);
	free(l->buffers.read);
	free(l->buffers.gather);
	pthread_mutex_destroy(&l->mail_lock);
	free(l);
}

void loop_run(struct loop *l)
{
	bool is_first = true;

	running = l;
	while (!l->stopped) {
		l->clock.now_us = 0;
		/* The first turn does not wait: what has been refused by then is known behind it.
		 */
		if (event_base_loop(l->base, is_first ? EVLOOP_NONBLOCK : EVLOOP_ONCE) < 0)
			break;
		is_first = false;
		for (size_t i = 0; i < l->turn_end_n; i++)
			l->turn_end[i].fn(l->turn_end[i].arg);
		empty_graves(l);
		if (l->was_refused && !l->retry.armed)
			timer_arm(&l->retry, LIMIT_MS_ACCEPT_PAUSE);
	}
	running = NULL;
	l->stopped = false;
}

void loop_stop(struct loop *l)
{
	l->stopped = true;
	event_base_loopbreak(l->base);
}

struct event_base *loop_base(struct loop *l)
{
	return l->base;
}

struct loop_buffers *loop_buffers(struct loop *l)
{
	return &l->buffers;
}

ATTR_NOINLINE int64_t loop_clock_us(struct loop *l)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	l->clock.now_us = (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
	return l->clock.now_us;
}

void loop_bury(struct loop *l, void *obj, void (*free_fn)(void *obj))
{
	struct grave *g = l->spare_graves;

	if (g)
		l->spare_graves = g->next;
	else
		g = malloc(sizeof(*g));
	if (!g)
		return; /* more than are in reserve: leaked, not freed under a callback's feet */
	g->obj = obj;
	g->free_fn = free_fn;
	g->next = l->graves;
	l->graves = g;
}

void loop_on_turn_end(struct loop *l, void (*fn)(void *arg), void *arg)
{
	if (l->turn_end_n == TURN_END_MAX)
		abort();
	l->turn_end[l->turn_end_n].fn = fn;
	l->turn_end[l->turn_end_n++].arg = arg;
}

void loop_post(struct loop *l, struct letter *m)
{
	pthread_mutex_lock(&l->mail_lock);
	if (!m->is_posted) {
		m->is_posted = true;
		m->next = NULL;
		*l->mail_tail = m;
		l->mail_tail = &m->next;
	}
	pthread_mutex_unlock(&l->mail_lock);
	wake(l);
}

/* Apart, so that whoever only moves a deadline does not pay for it. */
static ATTR_NOINLINE void schedule(struct timer *t, struct timer_impl *ti, int64_t in_us)
{
	struct timeval tv = {.tv_sec = in_us / 1000000, .tv_usec = in_us % 1000000};

	ti->scheduled_us = loop_now_us(t->loop) + in_us;
	/* Memory for one more is out: then each turn looks at the clock, since a state without its
	 * timer would last for ever. */
	if (event_add(&ti->ev, &tv) < 0)
		event_active(&ti->ev, EV_TIMEOUT, 0);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct timer *t = arg;
	struct timer_impl *ti = t->impl;
	int64_t now = loop_clock_us(t->loop);

	(void)fd;
	(void)what;
	ti->scheduled_us = 0;
	if (!t->armed)
		return;
	if (now < ti->deadline_us) {
		schedule(t, ti, ti->deadline_us - now);
		return;
	}
	t->armed = false;
	t->fn(t->arg);
}

int timer_init(struct timer *t, struct loop *l, void (*fn)(void *arg), void *arg)
{
	/* Not calloc, which passes by glibc's cache of the thread. */
	struct timer_impl *ti = malloc(sizeof(*ti));

	*t = (struct timer){.loop = l, .fn = fn, .arg = arg, .impl = ti};
	if (!ti)
		return -1;
	*ti = (struct timer_impl){0};
	event_assign(&ti->ev, l->base, -1, 0, on_timer, t);
	return 0;
}

void timer_clear(struct timer *t)
{
	struct timer_impl *ti = t->impl;

	if (!ti)
		return;
	event_del(&ti->ev);
	free(ti);
	t->impl = NULL;
	t->armed = false;
}

void timer_arm(struct timer *t, uint64_t ms)
{
	struct timer_impl *ti = t->impl;
	int64_t in_us = (int64_t)ms * 1000;

	ti->deadline_us = loop_now_us(t->loop) + in_us;
	t->armed = true;
	if (!ti->scheduled_us || ti->deadline_us < ti->scheduled_us)
		schedule(t, ti, in_us);
}

void timer_stop(struct timer *t)
{
	t->armed = false;
}
