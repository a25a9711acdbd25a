/*
 * Listening sockets: opening them, accepting, the bounds on connections, and the pause when
 * descriptors run out. What to do with a connection is the owner's business.
 */
#ifndef STILE_PROXY_NET_LISTENER_H
#define STILE_PROXY_NET_LISTENER_H

#include "policy/config.h"
#include "proxy/net/loop.h"

/* Opens the socket of a configured listener: non-blocking, cloexec, SO_REUSEADDR, with reuseport
 * also SO_REUSEPORT, IPV6_V6ONLY, backlog SOMAXCONN; in c->netns if
 * it has one (before there are threads). A Unix path: a socket left behind by a dead
 * process is replaced, a living one or another kind of file is an error; the mode is set before
 * anybody can connect. *ret_port is the port it got. */
int listener_open(const struct config_listener *c, bool reuseport, int *ret_fd, uint16_t *ret_port,
		  struct err *e) ATTR_NODISCARD;

/* "127.0.0.1:3128", "unix:/path", "[::1]:3128 in /run/netns/agent1". */
void listener_add_place(const struct config_listener *c, uint16_t port, struct strbuf *out);

/* Which file the path of a Unix listener is: noted behind listener_open, and removed with it at a
 * clean end if it is that file still. Both while the socket is open: until then no other file gets
 * its number, and nobody takes it for the leftover of a dead process. */
struct listener_path {
	uint64_t dev, ino; /* ino 0: none */
};
void listener_path_note(const char *path, struct listener_path *ret);
void listener_path_remove(const char *path, struct listener_path *p); /* once; then p is none */

/* Before the first of several sockets of one address: SO_REUSEPORT lets in every process of the
 * same user, a second stile too, which would then take half of the connections. A bind without it,
 * given up at once, tells whether somebody is there. */
int listener_check_free(const struct config_listener *c, struct err *e) ATTR_NODISCARD;

struct listener_peer {
	struct ipaddr addr; /* family 0 for a Unix socket */
	uint16_t port;
	unsigned uid, pid; /* Unix: SO_PEERCRED */
	char text[64];	   /* "127.0.0.1:40312", "[::1]:1", "unix:uid=1000,pid=7" */
};
/* sa: of accept or recvfrom on fd; without one, whoever is at the other end of a Unix socket. */
struct sockaddr_storage;
void listener_peer_read(int fd, const struct sockaddr_storage *sa, struct listener_peer *ret);

/* Counts of one listener over all workers, shared: connections and connections per address (IPv6:
 * per /64; Unix peers count in the total only), with a lock a shard of addresses. One a configured
 * listener; counted. */
struct listener_counts;
struct listener_counts *listener_counts_new(uint64_t max, uint64_t max_per_addr);
struct listener_counts *listener_counts_ref(struct listener_counts *c);
void listener_counts_unref(struct listener_counts *c);
/* What accept took is given back with this when the connection ends. */
void listener_counts_leave(struct listener_counts *c, const struct listener_peer *peer);

struct listener; /* one socket on one loop */

/* fd is borrowed: the caller closes it after listener_free. on_accept owns the connection's fd
 * (non-blocking, cloexec, TCP_NODELAY). A connection over a bound is answered with a bare 503 or
 * 429 head by on_refused (fd owned by it too), so that it can be recorded. Out of descriptors:
 * accept pauses for LIMIT_MS_ACCEPT_PAUSE, and the operator's log says it once a minute. */
int listener_new(struct loop *l, int fd, struct listener_counts *counts,
		 void (*on_accept)(void *arg, int fd, const struct listener_peer *peer),
		 void (*on_refused)(void *arg, int fd, const struct listener_peer *peer,
				    enum reason why),
		 void *arg, struct listener **ret, struct err *e) ATTR_NODISCARD;
void listener_free(struct listener *li); /* stops accepting */

#endif
