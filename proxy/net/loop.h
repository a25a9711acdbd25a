/*
 * One event loop, one thread: timers, the graveyard, work for the end of a turn, and a mailbox
 * that other threads may post to. Everything above net/ sees time and events through this file and
 * stream.h alone, so a test can put a fake clock and a fake network in their place.
 */
#ifndef STILE_PROXY_NET_LOOP_H
#define STILE_PROXY_NET_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "logging/err.h"

struct event_base;
struct loop;

int loop_new(struct loop **ret, struct err *e) ATTR_NODISCARD;
void loop_free(struct loop *l); /* empties the graveyard; everything on it must be gone before */
/* Runs until loop_stop. */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);		      /* on the loop's own thread */
struct event_base *loop_base(struct loop *l); /* for net/ only */

/* For an event without which its owner would be deaf for good: when the kernel refuses an interest
 * (epoll_ctl(2): no memory, too many watches), those that are kept and wait are registered anew
 * until it takes them. A connection that is refused ends by its timer. Dropping one that is not
 * kept does nothing. At most 2 * LIMIT_LISTENERS + 2. */
struct event;
void loop_keep(struct loop *l, struct event *ev);
void loop_unkeep(struct loop *l, struct event *ev);

/* CLOCK_MONOTONIC in microseconds, read now. */
int64_t loop_clock_us(struct loop *l);
/* How a loop begins, so that its clock is looked at without a call. */
struct loop_clock {
	int64_t now_us; /* 0: stale */
};
/* The same, read once a turn and cached. */
static inline int64_t loop_now_us(struct loop *l)
{
	const struct loop_clock *c = (const struct loop_clock *)(const void *)l;

	return c->now_us ? c->now_us : loop_clock_us(l);
}

/* Frees obj with free_fn after the current turn: nothing is freed inside a callback. */
void loop_bury(struct loop *l, void *obj, void (*free_fn)(void *obj));
/* Called at the end of each turn in which something happened, in the order of registration; for the
 * batch of log records. At most four. */
void loop_on_turn_end(struct loop *l, void (*fn)(void *arg), void *arg);

/* What another thread may ask of a loop. Embedded in its owner, so that asking takes no memory and
 * cannot fail. Fill fn and arg, the rest is 0. */
struct letter {
	void (*fn)(void *arg);
	void *arg;
	/* the loop's */
	struct letter *next;
	bool is_posted;
};
/* Calls m's fn on the loop's thread, soon. From any thread. While m is on its way, to post it again
 * changes nothing: fn does what is wanted by the time that it runs. m outlives the loop. */
void loop_post(struct loop *l, struct letter *m);

/* A one-shot timer, embedded in its owner. */
struct timer {
	struct loop *loop; /* borrowed */
	void (*fn)(void *arg);
	void *arg;
	void *impl; /* owned */
	bool armed;
};
/* fn is called on the loop's thread, once for each arming. */
int timer_init(struct timer *t, struct loop *l, void (*fn)(void *arg), void *arg) ATTR_NODISCARD;
void timer_clear(struct timer *t);	      /* stops it; accepts a zeroed timer */
void timer_arm(struct timer *t, uint64_t ms); /* again: moves the deadline */
void timer_stop(struct timer *t);

#endif
