/*
 * Accepts: who called, whether there is room, and what to do when there is none. It reads and
 * writes nothing on a connection. Opening is listener_open.c's, counting listener_counts.c's.
 */
#include "proxy/net/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/net/fd_reserve.h"
#include "proxy/net/listener_counts.h"

#define SAY_US 60000000 /* out of descriptors is said once a minute */

/* A refused connection still lives until its answer is out; those may use up half of the reserve
 * and then are closed without an answer. */
#define KEEP_FDS_REFUSED (LIMIT_DESCRIPTOR_RESERVE / 2)

struct listener {
	/* owned */
	struct event ev;
	struct timer pause;
	/* counted */
	struct listener_counts *counts;
	/* borrowed */
	struct loop *loop;
	void (*on_accept)(void *arg, int fd, const struct listener_peer *peer);
	void (*on_refused)(void *arg, int fd, const struct listener_peer *peer, enum reason why);
	void *arg;
	/* plain */
	int fd; /* borrowed as well */
	bool is_dead;
	int64_t said_us; /* 0: never */
};

/* ---- who called ---- */

static void peer_inet(const struct sockaddr_in *in, struct listener_peer *p)
{
	p->addr.family = 4;
	memcpy(p->addr.b, &in->sin_addr, 4);
	p->port = ntohs(in->sin_port);
}

/* A socket that somebody else opened may serve both families: then IPv4 comes mapped. */
static void peer_inet6(const struct sockaddr_in6 *in6, struct listener_peer *p)
{
	p->port = ntohs(in6->sin6_port);
	if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		p->addr.family = 4;
		memcpy(p->addr.b, in6->sin6_addr.s6_addr + 12, 4);
		return;
	}
	p->addr.family = 6;
	memcpy(p->addr.b, &in6->sin6_addr, 16);
}

void listener_peer_read(int fd, const struct sockaddr_storage *sa, struct listener_peer *p)
{
	struct ucred cred = {.uid = (uid_t)-1};
	socklen_t n = sizeof(cred);
	char addr[IPADDR_TEXT_MAX];

	*p = (struct listener_peer){.uid = (unsigned)-1};
	if (sa->ss_family == AF_INET)
		peer_inet((const struct sockaddr_in *)sa, p);
	else if (sa->ss_family == AF_INET6)
		peer_inet6((const struct sockaddr_in6 *)sa, p);
	if (p->addr.family != 0) {
		ipaddr_format(&p->addr, addr);
		snprintf(p->text, sizeof(p->text), p->addr.family == 6 ? "[%s]:%u" : "%s:%u", addr,
			 p->port);
		return;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0) {
		p->uid = (unsigned)cred.uid;
		p->pid = (unsigned)cred.pid;
	}
	snprintf(p->text, sizeof(p->text), "unix:uid=%u,pid=%u", p->uid, p->pid);
}

/* ---- room ---- */

static void say_full(struct listener *li, int sys_errno)
{
	int64_t now = loop_now_us(li->loop);
	char buf[128];

	if (li->said_us && now - li->said_us < SAY_US)
		return;
	li->said_us = now ? now : 1;
	log_warn("accepting pauses: %s (raise the limit of open files, or lower "
		 "limits.connections)",
		 strerror_r(sys_errno, buf, sizeof(buf)));
}

static void pause_accepting(struct listener *li, int sys_errno)
{
	say_full(li, sys_errno);
	event_del(&li->ev);
	timer_arm(&li->pause, LIMIT_MS_ACCEPT_PAUSE);
}

static void on_pause_over(void *arg)
{
	struct listener *li = arg;

	event_add(&li->ev, NULL);
}

/* Hands one connection to the owner. False when accepting has paused. */
static bool take(struct listener *li, int fd, const struct sockaddr_storage *sa)
{
	struct listener_peer peer;
	enum reason why;

	if (fd_reserve_has(fd, KEEP_FDS_REFUSED)) {
		close(fd);
		pause_accepting(li, EMFILE);
		return false;
	}
	listener_peer_read(fd, sa, &peer);
	if (fd_reserve_has(fd, LIMIT_DESCRIPTOR_RESERVE)) {
		say_full(li, EMFILE);
		why = REASON_OVERLOADED;
	} else {
		why = listener_counts_enter(li->counts, &peer);
	}
	if (why == REASON_NONE)
		li->on_accept(li->arg, fd, &peer);
	else
		li->on_refused(li->arg, fd, &peer, why);
	return true;
}

/* ---- accepting ---- */

/* accept(2) also reports what befell the new connection before it was taken (a reset, an ICMP
 * error, a firewall): that is over, the next may be fine. */
static bool is_of_connection(int sys_errno)
{
	switch (sys_errno) {
	case EINTR:
	case ECONNABORTED:
	case EPROTO:
	case EPERM:
	case ENETDOWN:
	case ENOPROTOOPT:
	case EHOSTDOWN:
	case ENONET:
	case EHOSTUNREACH:
	case EOPNOTSUPP:
	case ENETUNREACH: return true;
	default: return false;
	}
}

static void on_readable(evutil_socket_t sock, short what, void *arg)
{
	struct listener *li = arg;

	(void)sock;
	(void)what;
	/* Bounded, so that the connections already here have their turn. The owner may free the
	 * listener from its callback. */
	for (int i = 0; i < LIMIT_ACCEPT_BATCH && !li->is_dead; i++) {
		struct sockaddr_storage sa = {0};
		socklen_t n = sizeof(sa);
		int fd = accept4(li->fd, (struct sockaddr *)&sa, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			if (!take(li, fd, &sa))
				return;
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			return;
		} else if (!is_of_connection(errno)) {
			/* EMFILE, ENFILE, ENOBUFS, ENOMEM; anything else would come again at
			 * once, too. */
			pause_accepting(li, errno);
			return;
		}
	}
}

int listener_new(struct loop *l, int fd, struct listener_counts *counts,
		 void (*on_accept)(void *arg, int fd, const struct listener_peer *peer),
		 void (*on_refused)(void *arg, int fd, const struct listener_peer *peer,
				    enum reason why),
		 void *arg, struct listener **ret, struct err *e)
{
	struct listener *li = calloc(1, sizeof(*li));
	int on = 1;

	if (!li || timer_init(&li->pause, l, on_pause_over, li) < 0) {
		free(li);
		return err_set(e, "out of memory");
	}
	li->loop = l;
	li->fd = fd;
	li->on_accept = on_accept;
	li->on_refused = on_refused;
	li->arg = arg;
	fd_reserve_refresh();
	/* For a socket that somebody else opened. Accepted ones inherit it, which saves a call for
	 * each. On a Unix socket it fails, and nothing is lost. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	event_assign(&li->ev, loop_base(l), fd, EV_READ | EV_PERSIST, on_readable, li);
	if (event_add(&li->ev, NULL) < 0) {
		timer_clear(&li->pause);
		free(li);
		return err_set(e, "the event loop takes no listener");
	}
	loop_keep(l, &li->ev);
	li->counts = listener_counts_ref(counts);
	*ret = li;
	return 0;
}

static void free_listener(void *obj)
{
	struct listener *li = obj;

	listener_counts_unref(li->counts);
	free(li);
}

void listener_free(struct listener *li)
{
	if (!li || li->is_dead)
		return;
	li->is_dead = true;
	loop_unkeep(li->loop, &li->ev);
	event_del(&li->ev);
	timer_clear(&li->pause);
	loop_bury(li->loop, li, free_listener);
}
