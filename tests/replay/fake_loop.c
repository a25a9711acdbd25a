/*
 * loop.h over a clock that the test moves, and the few calls of libevent that stream.c and worker.c
 * make, over the fake sockets. The order within a turn is the real one's: letters, sockets, what
 * was woken meanwhile, the turn's end, the graveyard. The buffer that streams share is made anew
 * after every callback, so that a slice that outlives its callback is seen by the sanitizer.
 */
#include <event2/event.h>
#include <event2/event_struct.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/net/loop_internal.h"
#include "tests/replay/fake.h"

#define EVENTS_MAX     512
#define LETTERS_MAX    512
#define SETTLE_TURNS   20000
#define TURN_ENDS_MAX  4
#define EVENT_ADDED    0x1
#define EVENT_IS_AWAKE 0x2

struct later {
	void (*fn)(void *arg);
	void *arg;
};

struct grave {
	struct grave *next;
	void *obj;
	void (*free_fn)(void *obj);
};

struct deadline { /* a timer's inside */
	struct deadline *next;
	struct timer *timer;
	int64_t at_us;
};

struct loop {
	struct loop_clock clock; /* always stale: fake_loop.now_us counts */
	struct loop_buffers buffers;
	struct grave *graves;
	struct {
		void (*fn)(void *arg);
		void *arg;
	} turn_end[TURN_ENDS_MAX];
	size_t turn_end_n;
};

struct fake_loop_state fake_loop;

static struct loop *the_loop;
static struct deadline *deadlines;
static struct event *events[EVENTS_MAX]; /* added, oldest first */
static size_t events_n;
static struct event *awake[EVENTS_MAX];
static size_t awake_n;
static struct later letters[LETTERS_MAX];
static size_t letters_n;
static char fault[512];

/* ---- faults ---- */

void fake_fault(const char *fmt, ...)
{
	va_list ap;

	if (fault[0])
		return;
	va_start(ap, fmt);
	vsnprintf(fault, sizeof(fault), fmt, ap);
	va_end(ap);
}

const char *fake_fault_text(void)
{
	return fault[0] ? fault : NULL;
}

/* ---- letters ---- */

void fake_later(void (*fn)(void *arg), void *arg)
{
	if (letters_n == LETTERS_MAX)
		abort();
	letters[letters_n++] = (struct later){fn, arg};
}

void fake_forget(void (*fn)(void *arg), void *arg)
{
	for (size_t i = 0; i < letters_n; i++)
		if (letters[i].fn == fn && letters[i].arg == arg)
			letters[i].fn = NULL;
}

void loop_post(struct loop *l, struct letter *m)
{
	(void)l;
	fake_later(m->fn, m->arg);
}

void loop_keep(struct loop *l, struct event *ev)
{
	(void)l;
	(void)ev;
}

void loop_unkeep(struct loop *l, struct event *ev)
{
	(void)l;
	(void)ev;
}

/* ---- libevent ---- */

int event_assign(struct event *ev, struct event_base *base, evutil_socket_t fd, short what,
		 event_callback_fn fn, void *arg)
{
	memset(ev, 0, sizeof(*ev));
	ev->ev_base = base;
	ev->ev_fd = fd;
	ev->ev_events = what;
	ev->ev_evcallback.evcb_cb_union.evcb_callback = fn;
	ev->ev_evcallback.evcb_arg = arg;
	return 0;
}

struct event *event_new(struct event_base *base, evutil_socket_t fd, short what,
			event_callback_fn fn, void *arg)
{
	struct event *ev = malloc(sizeof(*ev));

	if (ev)
		event_assign(ev, base, fd, what, fn, arg);
	return ev;
}

int event_add(struct event *ev, const struct timeval *tv)
{
	if (tv)
		abort(); /* time is loop.h's */
	if (ev->ev_evcallback.evcb_flags & EVENT_ADDED)
		return 0;
	if (events_n == EVENTS_MAX)
		abort();
	ev->ev_evcallback.evcb_flags |= EVENT_ADDED;
	events[events_n++] = ev;
	return 0;
}

static void take_out(struct event **v, size_t *n, const struct event *ev)
{
	size_t k = 0;

	for (size_t i = 0; i < *n; i++)
		if (v[i] != ev)
			v[k++] = v[i];
	*n = k;
}

int event_del(struct event *ev)
{
	take_out(events, &events_n, ev);
	take_out(awake, &awake_n, ev);
	ev->ev_evcallback.evcb_flags = 0;
	return 0;
}

void event_active(struct event *ev, int what, short ncalls)
{
	(void)ncalls;
	ev->ev_res = (short)what;
	if (ev->ev_evcallback.evcb_flags & EVENT_IS_AWAKE)
		return;
	if (awake_n == EVENTS_MAX)
		abort();
	ev->ev_evcallback.evcb_flags |= EVENT_IS_AWAKE;
	awake[awake_n++] = ev;
}

void event_free(struct event *ev)
{
	event_del(ev);
	free(ev);
}

/* ---- one turn ---- */

static void renew_buffers(struct loop *l)
{
	fake_free(l->buffers.read);
	l->buffers.read = fake_calloc(LOOP_READ_BYTES);
}

static void call(struct event *ev, short what)
{
	fake_loop.busy = true;
	ev->ev_evcallback.evcb_cb_union.evcb_callback(ev->ev_fd, what, ev->ev_evcallback.evcb_arg);
	renew_buffers(the_loop);
}

static bool is_ready(const struct event *ev)
{
	struct fake_socket *k = fake_socket_of(ev->ev_fd);
	struct pollfd p = {.fd = ev->ev_fd, .events = POLLIN};

	if (ev->ev_fd < FAKE_FD)
		return poll(&p, 1, 0) > 0;
	if (!k)
		return false;
	if (ev->ev_events & EV_READ)
		return k->in.n > 0 || k->in_eof || k->in_reset;
	return k->window > 0 || k->in_reset;
}

static void run_letters(void)
{
	struct later now[LETTERS_MAX];
	size_t n = letters_n;

	memcpy(now, letters, n * sizeof(*now));
	for (size_t i = 0; i < n; i++) {
		/* An earlier one may have taken this one back. */
		struct later still = letters[i];

		if (!still.fn)
			continue;
		letters[i].fn = NULL;
		fake_loop.busy = true;
		still.fn(still.arg);
		renew_buffers(the_loop);
	}
	memmove(letters, letters + n, (letters_n - n) * sizeof(*letters));
	letters_n -= n;
}

static void run_events(void)
{
	struct event *ready[EVENTS_MAX];
	size_t n = 0;

	for (size_t i = 0; i < events_n; i++)
		if (is_ready(events[i]))
			ready[n++] = events[i];
	for (size_t i = 0; i < n; i++) {
		struct event *ev = ready[fake_loop.newest_first ? n - 1 - i : i];

		if (ev->ev_evcallback.evcb_flags & EVENT_ADDED)
			call(ev, ev->ev_events & (EV_READ | EV_WRITE));
	}
	while (awake_n > 0) {
		struct event *ev = awake[0];

		take_out(awake, &awake_n, ev);
		ev->ev_evcallback.evcb_flags &= (short)~EVENT_IS_AWAKE;
		call(ev, ev->ev_res);
	}
}

static void end_turn(struct loop *l)
{
	for (size_t i = 0; i < l->turn_end_n; i++)
		l->turn_end[i].fn(l->turn_end[i].arg);
	while (l->graves) {
		struct grave *g = l->graves;

		l->graves = g->next;
		g->free_fn(g->obj);
		fake_free(g);
	}
}

static struct deadline *earliest(int64_t until_us)
{
	struct deadline *best = NULL;

	for (struct deadline *d = deadlines; d; d = d->next)
		if (d->timer->armed && d->at_us <= until_us && (!best || d->at_us < best->at_us))
			best = d;
	return best;
}

/* What was armed for now. */
static void run_due(void)
{
	struct deadline *d = earliest(fake_loop.now_us);

	if (!d)
		return;
	fake_loop.busy = true;
	d->timer->armed = false;
	d->timer->fn(d->timer->arg);
}

bool fake_turn(void)
{
	if (!the_loop)
		return false;
	fake_loop.busy = false;
	fake_loop.turns++;
	run_letters();
	run_due();
	if (fake_splices_turn())
		fake_loop.busy = true;
	run_events();
	end_turn(the_loop);
	if (fake_log_write())
		fake_loop.busy = true;
	return fake_loop.busy;
}

void fake_settle(void)
{
	unsigned n = 0;

	while (fake_turn())
		if (++n > SETTLE_TURNS) {
			fake_fault("the loop spins: %d turns without an end", SETTLE_TURNS);
			return;
		}
}

void fake_clock(int64_t us)
{
	int64_t until_us = fake_loop.now_us + us;
	struct deadline *d;
	unsigned n = 0;

	while (the_loop && (d = earliest(until_us)) && ++n < SETTLE_TURNS) {
		if (d->at_us > fake_loop.now_us)
			fake_loop.now_us = d->at_us;
		d->timer->armed = false;
		d->timer->fn(d->timer->arg);
		end_turn(the_loop);
		(void)fake_log_write();
		fake_settle();
	}
	if (n >= SETTLE_TURNS)
		fake_fault("a timer is armed again and again without the clock moving");
	fake_loop.now_us = until_us;
}

/* ---- loop.h ---- */

int loop_new(struct loop **ret, struct err *e)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l)
		return err_set(e, "out of memory");
	l->buffers.read = fake_calloc(LOOP_READ_BYTES);
	l->buffers.gather = fake_calloc(LOOP_GATHER_BYTES);
	the_loop = l;
	*ret = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	l->turn_end_n = 0;
	end_turn(l);
	for (size_t i = 0; i < l->buffers.spare_n; i++)
		free(l->buffers.spare[i]);
	fake_free(l->buffers.read);
	fake_free(l->buffers.gather);
	free(l);
	the_loop = NULL;
}

void loop_run(struct loop *l)
{
	(void)l;
	abort(); /* there is no thread here */
}

void loop_stop(struct loop *l)
{
	(void)l;
	fake_loop.stopped = true;
}

struct event_base *loop_base(struct loop *l)
{
	(void)l;
	return NULL;
}

struct loop_buffers *loop_buffers(struct loop *l)
{
	return &l->buffers;
}

int64_t loop_clock_us(struct loop *l)
{
	(void)l;
	return fake_loop.now_us;
}

void loop_bury(struct loop *l, void *obj, void (*free_fn)(void *obj))
{
	struct grave *g = fake_calloc(sizeof(*g));

	for (struct grave *o = l->graves; o; o = o->next)
		if (o->obj == obj)
			fake_fault("something is buried twice");
	*g = (struct grave){l->graves, obj, free_fn};
	l->graves = g;
}

void loop_on_turn_end(struct loop *l, void (*fn)(void *arg), void *arg)
{
	if (l->turn_end_n == TURN_ENDS_MAX)
		abort();
	l->turn_end[l->turn_end_n].fn = fn;
	l->turn_end[l->turn_end_n++].arg = arg;
}

int timer_init(struct timer *t, struct loop *l, void (*fn)(void *arg), void *arg)
{
	struct deadline *d = calloc(1, sizeof(*d));

	*t = (struct timer){.loop = l, .fn = fn, .arg = arg, .impl = d};
	if (!d)
		return -1;
	d->timer = t;
	d->next = deadlines;
	deadlines = d;
	fake_loop.timers++;
	return 0;
}

void timer_clear(struct timer *t)
{
	struct deadline *d = t->impl;
	struct deadline **at = &deadlines;

	if (!d)
		return;
	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	free(d);
	fake_loop.timers--;
	t->impl = NULL;
	t->armed = false;
}

void timer_arm(struct timer *t, uint64_t ms)
{
	struct deadline *d = t->impl;

	d->at_us = fake_loop.now_us + (int64_t)ms * 1000;
	t->armed = true;
}

void timer_stop(struct timer *t)
{
	t->armed = false;
}

/* ---- the whole ---- */

void fake_begin(void)
{
	fault[0] = '\0';
	fake_loop = (struct fake_loop_state){.now_us = 1000000};
	fake_names.automatic = fake_dials.automatic = false;
	fake_memory.count = 0;
	fake_memory.live = 0;
}

void fake_loop_end(void)
{
	if (fake_loop.timers > 0)
		fake_fault("%zu timers were never cleared", fake_loop.timers);
	if (events_n > 0)
		fake_fault("%zu events are still with the loop", events_n);
	deadlines = NULL;
	events_n = awake_n = letters_n = 0;
}

void fake_end(void)
{
	fake_resolve_end();
	if (fake_dial_count() > 0)
		fake_fault("%zu dials were never ended", fake_dial_count());
	if (fake_splice_count() > 0)
		fake_fault("%zu relays were never ended", fake_splice_count());
	fake_loop_end();
	fake_sockets_end();
	fake_log_end();
}
