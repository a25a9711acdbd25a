/*
 * See own_listener.h.
 */
#include "proxy/session/own_listener.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

static bool network_of(int fd, uint64_t *ret)
{
	socklen_t n = sizeof(*ret);

	return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, ret, &n) == 0;
}

/* The socket of `stile run` listens in the sandbox's network, where nothing that is dialled here
 * arrives. A kernel that cannot tell (before 5.14) says yes. */
static bool is_in_our_network(int fd)
{
	int here = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint64_t theirs, ours;
	bool same = true;

	if (here >= 0 && network_of(fd, &theirs) && network_of(here, &ours))
		same = theirs == ours;
	if (here >= 0)
		close(here);
	return same;
}

/* Does fd listen where a connection to a would arrive? */
static bool listens_at(int fd, const struct ipaddr *a, uint16_t port)
{
	static const uint8_t any[16];
	struct sockaddr_storage ss = {0};
	socklen_t len = sizeof(ss);
	const void *at;
	uint16_t bound;
	size_t n;

	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		return false;
	if (ss.ss_family == AF_INET) {
		at = &((const struct sockaddr_in *)&ss)->sin_addr;
		bound = ntohs(((const struct sockaddr_in *)&ss)->sin_port);
		n = 4;
	} else if (ss.ss_family == AF_INET6) {
		at = &((const struct sockaddr_in6 *)&ss)->sin6_addr;
		bound = ntohs(((const struct sockaddr_in6 *)&ss)->sin6_port);
		n = 16;
	} else {
		return false;
	}
	return bound == port && (memcmp(at, any, n) == 0 ||
				 (n == (a->family == 4 ? 4 : 16) && memcmp(at, a->b, n) == 0));
}

/* Does a lead back to this host? */
static bool is_here(const struct ipaddr *a, const struct ipaddr *own, size_t own_n)
{
	static const uint8_t zero[15];

	if (a->family == 4 ? a->b[0] == 127 || a->b[0] == 0
			   : memcmp(a->b, zero, sizeof(zero)) == 0 && a->b[15] <= 1)
		return true;
	for (size_t i = 0; i < own_n; i++)
		if (ipaddr_eq(a, &own[i]))
			return true;
	return false;
}

bool is_own_listener(const struct worker *w, const struct ipaddr *a, uint16_t port,
		     const struct ipaddr *own, size_t own_n)
{
	struct ipaddr v4 = *a;

	(void)ipaddr_embedded_v4(a, 0, &v4);
	if (!is_here(a, own, own_n) && !is_here(&v4, own, own_n))
		return false;
	for (size_t i = 0; i < w->listeners_n; i++)
		if ((listens_at(w->listeners[i].fd, a, port) ||
		     listens_at(w->listeners[i].fd, &v4, port)) &&
		    is_in_our_network(w->listeners[i].fd))
			return true;
	return false;
}
