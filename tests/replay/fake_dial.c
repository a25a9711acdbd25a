/*
 * dial.h with the outcome from the test. A dial that nobody ends runs into its time limit. None may
 * begin while no start record stands in the log.
 */
#include "proxy/net/dial.h"

#include <stdio.h>
#include <stdlib.h>

#include "logging/limits.h"
#include "tests/replay/fake.h"

struct dial {
	struct dial *next; /* oldest first */
	struct timer timer;
	struct ipaddr addrs[LIMIT_DNS_ADDRESSES];
	size_t n;
	uint16_t port;
	void (*done)(void *arg, int fd, const struct ipaddr *addr, const struct err *e);
	void *arg;
	bool finished;
	enum fake_dialled how;
};

struct fake_dials fake_dials;

static struct dial *dials;

static void drop(struct dial *d)
{
	struct dial **at = &dials;

	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	timer_clear(&d->timer);
	free(d);
}

static void tell(struct dial *d, int fd, const struct err *e)
{
	struct ipaddr addr = d->addrs[0];
	void (*done)(void *, int, const struct ipaddr *, const struct err *) = d->done;
	void *arg = d->arg;

	drop(d);
	done(arg, fd, &addr, e);
}

static void on_timeout(void *arg)
{
	struct dial *d = arg;
	struct err e = ERR_INIT;

	if (d->finished)
		return;
	(void)err_reason(&e, REASON_CONNECT_TIMEOUT, "no connection in time");
	tell(d, -1, &e);
}

static void end(void *arg)
{
	struct dial *d = arg;
	struct fake_socket *k;
	struct err e = ERR_INIT;

	switch (d->how) {
	case DIALLED:
		k = fake_socket_new(true);
		k->addr = d->addrs[0];
		k->port = d->port;
		tell(d, k->fd, NULL);
		return;
	case DIAL_REFUSED:
		(void)err_reason(&e, REASON_CONNECT_REFUSED, "connection refused");
		break;
	case DIAL_UNREACHABLE: (void)err_reason(&e, REASON_CONNECT_UNREACHABLE, "no route"); break;
	}
	tell(d, -1, &e);
}

int dial_start(struct loop *l, const struct ipaddr *addrs, size_t addrs_n, uint16_t port,
	       uint64_t timeout_ms,
	       void (*done)(void *arg, int fd, const struct ipaddr *addr, const struct err *e),
	       void *arg, struct dial **ret, struct err *e)
{
	struct dial *d = calloc(1, sizeof(*d));
	struct dial **at = &dials;

	if (!d || timer_init(&d->timer, l, on_timeout, d) < 0) {
		free(d);
		return err_set(e, "out of memory");
	}
	if (fake_log_open_starts(STR_NONE) == 0)
		fake_fault("a connection was begun while no start record was written");
	if (addrs_n == 0 || addrs_n > LIMIT_DNS_ADDRESSES)
		fake_fault("a dial to %zu addresses", addrs_n);
	for (d->n = 0; d->n < addrs_n && d->n < LIMIT_DNS_ADDRESSES; d->n++)
		d->addrs[d->n] = addrs[d->n];
	d->port = port;
	d->done = done;
	d->arg = arg;
	while (*at)
		at = &(*at)->next;
	*at = d;
	timer_arm(&d->timer, timeout_ms);
	*ret = d;
	if (fake_dials.automatic)
		(void)fake_dial_finish(DIALLED);
	return 0;
}

void dial_cancel(struct dial *d)
{
	if (!d)
		return;
	fake_forget(end, d);
	drop(d);
}

/* ---- the test's side ---- */

static struct dial *pending(void)
{
	struct dial *d = dials;

	while (d && d->finished)
		d = d->next;
	return d;
}

bool fake_dial_finish(enum fake_dialled how)
{
	struct dial *d = pending();

	if (!d)
		return false;
	d->finished = true;
	d->how = how;
	fake_later(end, d);
	return true;
}

const char *fake_dial_pending(void)
{
	static char text[512];
	struct dial *d = pending();
	size_t n = 0;

	if (!d)
		return NULL;
	text[0] = '\0';
	for (size_t i = 0; i < d->n && n + 64 < sizeof(text); i++) {
		char addr[IPADDR_TEXT_MAX];

		ipaddr_format(&d->addrs[i], addr);
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s:%u", i ? " " : "", addr,
				      d->port);
	}
	return text;
}

size_t fake_dial_count(void)
{
	size_t n = 0;

	for (struct dial *d = dials; d; d = d->next)
		n++;
	return n;
}
