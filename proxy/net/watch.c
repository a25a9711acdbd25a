/*
 * One read event; see watch.h.
 */
#include "proxy/net/watch.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdlib.h>

struct watch {
	struct event ev;
	/* borrowed */
	struct loop *loop;
	/* plain */
	void (*fn)(void *arg);
	void *arg;
};

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct watch *w = arg;

	(void)fd;
	(void)what;
	w->fn(w->arg);
}

int watch_new(struct loop *l, int fd, void (*fn)(void *arg), void *arg, struct watch **ret,
	      struct err *e)
{
	struct watch *w = calloc(1, sizeof(*w));

	if (!w)
		return err_set(e, "out of memory");
	*w = (struct watch){.loop = l, .fn = fn, .arg = arg};
	if (event_assign(&w->ev, loop_base(l), fd, EV_READ | EV_PERSIST, on_readable, w) < 0 ||
	    event_add(&w->ev, NULL) < 0) {
		free(w);
		return err_set(e, "out of memory");
	}
	*ret = w;
	return 0;
}

void watch_free(struct watch *w)
{
	if (!w)
		return;
	event_del(&w->ev);
	loop_bury(w->loop, w, free);
}
