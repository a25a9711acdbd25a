/*
 * See datagrams.h. A datagram is read with the address that it was sent to (IP_PKTINFO), so that a
 * socket of all addresses answers from the one that was asked: resolvers drop other answers.
 */
#include "proxy/net/datagrams.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "logging/limits.h"
#include "proxy/net/netns.h"

#define ANSWER_ROOM 512

struct datagrams {
	/* owned */
	struct event ev;
	/* borrowed */
	struct loop *loop;
	size_t (*on_datagram)(void *arg, struct str in, const struct listener_peer *from,
			      uint8_t *out, size_t room);
	void *arg;
	/* plain */
	int fd; /* borrowed as well */
	bool is_paused, is_dead;
};

/* Room for the control message of either family. */
union control {
	struct cmsghdr align;
	char v4[CMSG_SPACE(sizeof(struct in_pktinfo))];
	char v6[CMSG_SPACE(sizeof(struct in6_pktinfo))];
};

static socklen_t address_of(const struct ipaddr *a, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof(*ret));
	if (a->family == 4) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, a->b, 4);
		return sizeof(*in);
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	memcpy(&in6->sin6_addr, a->b, 16);
	return sizeof(*in6);
}

static int open_here(const struct config_listener *c, uint16_t port, bool reuseport, int *ret_fd,
		     struct err *e)
{
	int fd = socket(c->addr.family == 6 ? AF_INET6 : AF_INET,
			SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_storage sa;
	socklen_t n = address_of(&c->addr, port, &sa);
	int on = 1;

	if (fd < 0)
		return err_sys(e, errno, "listener %s: socket", c->name ? c->name : "");
	if ((reuseport && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0) ||
	    (c->addr.family == 6 &&
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0) ||
	    bind(fd, (struct sockaddr *)&sa, n) < 0) {
		err_sys(e, errno, "listener %s: UDP port %u", c->name ? c->name : "", port);
		close(fd);
		return -1;
	}
	*ret_fd = fd;
	return 0;
}

static int open_there(const void *arg, int *ret_fd, struct err *e)
{
	const struct config_listener *c = arg;

	return open_here(c, c->port, false, ret_fd, e);
}

int datagrams_open(const struct config_listener *c, uint16_t port, bool reuseport, int *ret_fd,
		   struct err *e)
{
	struct config_listener at = *c;

	at.port = port;
	return c->netns ? netns_open(c->netns, open_there, &at, ret_fd, e)
			: open_here(c, port, reuseport, ret_fd, e);
}

/* What was the destination becomes the source; by which interface, the kernel decides anew but for
 * link-local addresses. */
static void turn_round(struct msghdr *m)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);

	if (c && c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
		struct in_pktinfo p;

		memcpy(&p, CMSG_DATA(c), sizeof(p));
		p.ipi_ifindex = 0;
		memcpy(CMSG_DATA(c), &p, sizeof(p));
	} else if (c && c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
		struct in6_pktinfo p;

		memcpy(&p, CMSG_DATA(c), sizeof(p));
		if (!IN6_IS_ADDR_LINKLOCAL(&p.ipi6_addr))
			p.ipi6_ifindex = 0;
		memcpy(CMSG_DATA(c), &p, sizeof(p));
	} else {
		m->msg_control = NULL;
		m->msg_controllen = 0;
	}
}

/* False: there is none. */
static bool take(struct datagrams *d)
{
	char in[LIMIT_DATAGRAM_BYTES];
	uint8_t out[ANSWER_ROOM];
	union control control;
	struct sockaddr_storage sa = {0};
	struct iovec v = {in, sizeof(in)};
	struct msghdr m = {
		.msg_name = &sa,
		.msg_namelen = sizeof(sa),
		.msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct listener_peer from;
	ssize_t n = recvmsg(d->fd, &m, 0);

	/* An error of ICMP for an earlier answer is told here, too: that is over. */
	if (n < 0)
		return errno != EAGAIN && errno != EWOULDBLOCK;
	listener_peer_read(d->fd, &sa, &from);
	v = (struct iovec){out,
			   d->on_datagram(d->arg,
					  str_from(in, m.msg_flags & MSG_TRUNC ? 0 : (size_t)n),
					  &from, out, sizeof(out))};
	if (v.iov_len > 0) {
		turn_round(&m);
		m.msg_flags = 0;
		(void)!sendmsg(d->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	return true;
}

static void on_readable(evutil_socket_t sock, short what, void *arg)
{
	struct datagrams *d = arg;

	(void)sock;
	(void)what;
	/* Bounded, so that the connections have their turn. */
	for (int i = 0; i < LIMIT_DATAGRAM_BATCH && !d->is_dead && !d->is_paused; i++)
		if (!take(d))
			return;
}

int datagrams_new(struct loop *l, int fd,
		  size_t (*on_datagram)(void *arg, struct str in, const struct listener_peer *from,
					uint8_t *out, size_t room),
		  void *arg, struct datagrams **ret, struct err *e)
{
	struct datagrams *d = calloc(1, sizeof(*d));
	int on = 1;

	if (!d)
		return err_set(e, "out of memory");
	d->loop = l;
	d->fd = fd;
	d->on_datagram = on_datagram;
	d->arg = arg;
	/* One of them fails, as a socket has one family. */
	setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
	event_assign(&d->ev, loop_base(l), fd, EV_READ | EV_PERSIST, on_readable, d);
	if (event_add(&d->ev, NULL) < 0) {
		free(d);
		return err_set(e, "the event loop takes no socket");
	}
	loop_keep(l, &d->ev);
	*ret = d;
	return 0;
}

void datagrams_free(struct datagrams *d)
{
	if (!d || d->is_dead)
		return;
	d->is_dead = true;
	loop_unkeep(d->loop, &d->ev);
	event_del(&d->ev);
	loop_bury(d->loop, d, free);
}

void datagrams_pause(struct datagrams *d)
{
	d->is_paused = true;
	event_del(&d->ev);
}

void datagrams_resume(struct datagrams *d)
{
	if (!d->is_paused)
		return;
	d->is_paused = false;
	event_add(&d->ev, NULL);
}
