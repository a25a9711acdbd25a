/*
 * Happy eyeballs over addresses that have been judged: non-blocking connects, the next one 250 ms
 * after the last or at once when one fails, the first that is up wins. The result is always
 * delivered by an event, so dial_start never calls back. Called by session/ and nobody else.
 */
#include "proxy/net/dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "logging/limits.h"
#include "logging/strbuf.h"
#include "proxy/net/fd_reserve.h"

/* Half of what the listeners leave alone: connections that are in come before new ones. */
#define KEEP_FDS (LIMIT_DESCRIPTOR_RESERVE / 2)

enum attempt_state { ATTEMPT_NONE, ATTEMPT_OPEN, ATTEMPT_FAILED, ATTEMPT_UP };

struct attempt {
	/* owned */
	struct event ev;
	int fd; /* -1 unless ATTEMPT_OPEN or ATTEMPT_UP */
	/* borrowed */
	struct dial *dial;
	/* plain */
	struct ipaddr addr;
	enum attempt_state state;
	enum reason reason; /* ATTEMPT_FAILED */
	int sys_errno;
	const char *text; /* instead of sys_errno, static */
};

struct dial {
	/* owned */
	struct attempt attempts[LIMIT_DIAL_ATTEMPTS];
	struct event deliver_ev;
	struct timer delay, total;
	/* borrowed */
	struct loop *loop;
	void (*done)(void *arg, int fd, const struct ipaddr *addr, const struct err *e);
	void *arg;
	/* plain */
	size_t n;    /* attempts that there are addresses for */
	size_t next; /* the first that was not started */
	uint16_t port;
	bool is_settled;
};

static void close_attempt(struct attempt *a)
{
	if (a->fd < 0)
		return;
	event_del(&a->ev);
	close(a->fd);
	a->fd = -1;
}

/* ---- one attempt ---- */

static enum reason reason_of(const struct ipaddr *a, int sys_errno)
{
	switch (sys_errno) {
	case ECONNREFUSED:
	case ECONNABORTED: return REASON_CONNECT_REFUSED;
	/* A refusal is never told so: it was connected, and reset before anyone looked (EPIPE: and
	 * ended before that). */
	case ECONNRESET:
	case EPIPE: return REASON_UPSTREAM_CLOSED;
	case ETIMEDOUT: return REASON_CONNECT_TIMEOUT;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case ENOBUFS:
	case EAGAIN: return REASON_OVERLOADED;
	/* For IPv4 this means that every local port toward it is taken; for IPv6, mostly that the
	 * host has no address of its own. */
	case EADDRNOTAVAIL: return a->family == 4 ? REASON_OVERLOADED : REASON_CONNECT_UNREACHABLE;
	default: return REASON_CONNECT_UNREACHABLE;
	}
}

static void fail_attempt(struct attempt *a, int sys_errno, const char *text)
{
	close_attempt(a);
	a->state = ATTEMPT_FAILED;
	a->sys_errno = sys_errno;
	a->text = text;
	a->reason = reason_of(&a->addr, sys_errno);
}

/* 0.0.0.0 and ::, mapped or not: the kernel would take each for this host. */
static bool is_unspecified(const struct ipaddr *a)
{
	static const uint8_t zero[16], mapped[12] = {[10] = 0xff, 0xff};

	if (a->family == 4)
		return memcmp(a->b, zero, 4) == 0;
	return memcmp(a->b, zero, 16) == 0 ||
	       (memcmp(a->b, mapped, 12) == 0 && memcmp(a->b + 12, zero, 4) == 0);
}

static socklen_t to_sockaddr(const struct ipaddr *a, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

	memset(ret, 0, sizeof(*ret));
	if (a->family == 4) {
		memcpy(&in.sin_addr, a->b, 4);
		memcpy(ret, &in, sizeof(in));
		return sizeof(in);
	}
	memcpy(&in6.sin6_addr, a->b, 16);
	memcpy(ret, &in6, sizeof(in6));
	return sizeof(in6);
}

/* A connect to a port of this host that nobody listens on can meet itself when the kernel happens
 * to pick that port for this end (RFC 9293 section 3.5, simultaneous open). */
static bool is_self_connected(int fd, uint16_t port)
{
	struct sockaddr_storage here = {0}, there = {0};
	socklen_t here_n = sizeof(here), there_n = sizeof(there);
	in_port_t local;

	if (getsockname(fd, (struct sockaddr *)&here, &here_n) < 0)
		return false;
	/* The analyzer does not see that getsockname fills the part behind the family. */
	if (here.ss_family == AF_INET)
		local = ((struct sockaddr_in *)&here)->sin_port;
	else
		/* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign) */
		local = ((struct sockaddr_in6 *)&here)->sin6_port;
	if (local != htons(port) || getpeername(fd, (struct sockaddr *)&there, &there_n) < 0)
		return false;
	return here_n == there_n && memcmp(&here, &there, here_n) == 0;
}

/* What became of a connect that is over. */
static void finish_attempt(struct attempt *a)
{
	socklen_t n = sizeof(int);
	int error = 0;

	if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
		error = errno;
	if (error != 0)
		fail_attempt(a, error, NULL);
	else if (is_self_connected(a->fd, a->dial->port))
		fail_attempt(a, ECONNREFUSED, "connected to itself, so nobody listens there");
	else
		a->state = ATTEMPT_UP;
}

static void settle(struct dial *d)
{
	if (d->is_settled)
		return;
	d->is_settled = true;
	timer_stop(&d->delay);
	timer_stop(&d->total);
	event_active(&d->deliver_ev, EV_TIMEOUT, 0);
}

static void proceed(struct dial *d, bool start_next);

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct attempt *a = arg;

	(void)fd;
	(void)what;
	event_del(&a->ev);
	finish_attempt(a);
	proceed(a->dial, a->state == ATTEMPT_FAILED);
}

static void start_attempt(struct attempt *a)
{
	struct sockaddr_storage sa;
	socklen_t n = to_sockaddr(&a->addr, a->dial->port, &sa);
	int on = 1, rc;

	if (is_unspecified(&a->addr) || a->dial->port == 0) {
		fail_attempt(a, EHOSTUNREACH, "not an address that can be connected to");
		return;
	}
	a->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	if (a->fd < 0) {
		/* A kernel without IPv6 says EAFNOSUPPORT. */
		fail_attempt(a, errno, NULL);
		return;
	}
	event_assign(&a->ev, loop_base(a->dial->loop), a->fd, EV_WRITE | EV_PERSIST, on_writable,
		     a);
	if (fd_reserve_has(a->fd, KEEP_FDS)) {
		fail_attempt(a, EMFILE, NULL);
		return;
	}
	setsockopt(a->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	do
		rc = connect(a->fd, (struct sockaddr *)&sa, n);
	while (rc < 0 && errno == EINTR);
	if (rc == 0) {
		finish_attempt(a);
	} else if (errno == EINPROGRESS || errno == EALREADY) {
		a->state = ATTEMPT_OPEN;
		event_add(&a->ev, NULL);
	} else {
		fail_attempt(a, errno, NULL);
	}
}

/* ---- all attempts ---- */

static bool any_in(const struct dial *d, enum attempt_state state)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->attempts[i].state == state)
			return true;
	return false;
}

/* Starts the next attempt when it is due, and more as long as they fail at once. Settles when one
 * is up or none is left. */
static void proceed(struct dial *d, bool start_next)
{
	while (!d->is_settled && start_next && d->next < d->n && !any_in(d, ATTEMPT_UP)) {
		struct attempt *a = &d->attempts[d->next++];

		start_attempt(a);
		start_next = a->state == ATTEMPT_FAILED;
		if (d->next < d->n)
			timer_arm(&d->delay, LIMIT_MS_ATTEMPT_DELAY);
	}
	if (any_in(d, ATTEMPT_UP) || (d->next == d->n && !any_in(d, ATTEMPT_OPEN)))
		settle(d);
}

static void on_delay(void *arg)
{
	proceed(arg, true);
}

static void on_total(void *arg)
{
	struct dial *d = arg;

	settle(d);
}

/* ---- the result ---- */

static int rank(enum reason r)
{
	switch ((int)r) {
	case REASON_OVERLOADED: return 4;
	case REASON_UPSTREAM_CLOSED: return 3;
	case REASON_CONNECT_REFUSED: return 2;
	case REASON_CONNECT_TIMEOUT: return 1;
	default: return 0;
	}
}

/* Names what happened at each address; those that the time did not reach are counted. */
static void explain(struct dial *d, struct err *e)
{
	enum reason why = REASON_CONNECT_UNREACHABLE;
	char text[ERR_TEXT_MAX], addr[IPADDR_TEXT_MAX], buf[128];
	struct strbuf b;
	int sys_errno = 0;

	strbuf_init_fixed(&b, text, sizeof(text));
	for (size_t i = 0; i < d->next; i++) {
		struct attempt *a = &d->attempts[i];

		if (a->state == ATTEMPT_OPEN)
			fail_attempt(a, ETIMEDOUT, "no answer in time");
		if (i == 0 || rank(a->reason) > rank(why)) {
			why = a->reason;
			sys_errno = a->sys_errno;
		}
		ipaddr_format(&a->addr, addr);
		strbuf_addf(&b, a->addr.family == 6 ? "%s[%s]:%u: %s" : "%s%s:%u: %s",
			    i ? "; " : "", addr, d->port,
			    a->text ? a->text : strerror_r(a->sys_errno, buf, sizeof(buf)));
	}
	if (d->next < d->n)
		strbuf_addf(&b, "; %zu more not tried in time", d->n - d->next);
	if (d->n == 0)
		strbuf_adds(&b, "no address to connect to");
	err_reason(e, why, "%s", strbuf_cstr(&b));
	e->sys_errno = sys_errno;
}

static void free_dial(void *obj)
{
	free(obj);
}

/* Closes whatever is still open and lets go of the memory after this turn. */
static void bury(struct dial *d)
{
	for (size_t i = 0; i < d->n; i++)
		close_attempt(&d->attempts[i]);
	timer_clear(&d->delay);
	timer_clear(&d->total);
	event_del(&d->deliver_ev);
	d->is_settled = true;
	loop_bury(d->loop, d, free_dial);
}

static void on_deliver(evutil_socket_t sock, short what, void *arg)
{
	struct dial *d = arg;
	struct err e = ERR_INIT;

	(void)sock;
	(void)what;
	for (size_t i = 0; i < d->n; i++) {
		struct attempt *a = &d->attempts[i];
		int fd = a->fd;

		if (a->state != ATTEMPT_UP)
			continue;
		event_del(&a->ev);
		a->fd = -1;
		bury(d);
		d->done(d->arg, fd, &a->addr, NULL);
		return;
	}
	explain(d, &e);
	bury(d);
	d->done(d->arg, -1, NULL, &e);
}

int dial_start(struct loop *l, const struct ipaddr *addrs, size_t addrs_n, uint16_t port,
	       uint64_t timeout_ms,
	       void (*done)(void *arg, int fd, const struct ipaddr *addr, const struct err *e),
	       void *arg, struct dial **ret, struct err *e)
{
	struct dial *d = calloc(1, sizeof(*d));

	if (!d)
		return err_reason(e, REASON_OVERLOADED, "out of memory");
	d->loop = l;
	d->done = done;
	d->arg = arg;
	d->port = port;
	d->n = addrs_n < LIMIT_DIAL_ATTEMPTS ? addrs_n : LIMIT_DIAL_ATTEMPTS;
	for (size_t i = 0; i < d->n; i++) {
		d->attempts[i].dial = d;
		d->attempts[i].addr = addrs[i];
		d->attempts[i].fd = -1;
	}
	if (timer_init(&d->delay, l, on_delay, d) < 0 ||
	    timer_init(&d->total, l, on_total, d) < 0) {
		timer_clear(&d->delay);
		free(d);
		return err_reason(e, REASON_OVERLOADED, "out of memory");
	}
	event_assign(&d->deliver_ev, loop_base(l), -1, 0, on_deliver, d);
	timer_arm(&d->total, timeout_ms);
	proceed(d, true);
	*ret = d;
	return 0;
}

void dial_cancel(struct dial *d)
{
	if (d)
		bury(d);
}
