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

bool is_in_our_network(int fd)
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

static bool stays_here(int fd, const struct ipaddr *a)
{
	struct sockaddr_storage ss = {0};
	socklen_t len = sizeof(ss);
	struct ipaddr from = {.family = a->family};

	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		return true;
	if (a->family == 4)
		memcpy(from.b, &((const struct sockaddr_in *)&ss)->sin_addr, 4);
	else
		memcpy(from.b, &((const struct sockaddr_in6 *)&ss)->sin6_addr, 16);
	return ipaddr_eq(&from, a) || is_here(&from, NULL, 0);
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

/* Whole ranges may be routed to this host without being addresses of its interfaces. What is sent
 * there has that address itself as its source, or one of loopback. Nothing is sent. */
static bool is_routed_here(const struct ipaddr *a, uint16_t port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	bool v6 = a->family == 6, here;
	int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return true; /* who cannot tell says yes */
	memcpy(&in.sin_addr, a->b, 4);
	memcpy(&in6.sin6_addr, a->b, 16);
	/* Where no way leads there, nothing leads back here. */
	here = (v6 ? connect(fd, (struct sockaddr *)&in6, sizeof(in6))
		   : connect(fd, (struct sockaddr *)&in, sizeof(in))) == 0 &&
	       stays_here(fd, a);
	close(fd);
	return here;
}

bool is_own_listener(const struct worker *w, const struct ipaddr *a, uint16_t port,
		     const struct ipaddr *own, size_t own_n)
{
	struct ipaddr v4 = *a;
	bool here;

	(void)ipaddr_embedded_v4(a, 0, &v4);
	here = is_here(a, own, own_n) || is_here(&v4, own, own_n);
	for (size_t i = 0; i < w->listeners_n; i++) {
		const struct worker_listener *wl = &w->listeners[i];

		if (wl->entrance->names && (name_map_is_made_up(a) || name_map_is_made_up(&v4)))
			return true;
		if (wl->is_elsewhere || (!here && wl->entrance->kind != CONFIG_LISTEN_TRANSPARENT))
			continue;
		if ((listens_at(wl->fd, a, port) || listens_at(wl->fd, &v4, port)) &&
		    (here || is_routed_here(a, port) || is_routed_here(&v4, port)))
			return true;
	}
	return false;
}

bool is_shared_state(const struct worker *w, const struct ipaddr *a, uint16_t port,
		     const struct ipaddr *own, size_t own_n)
{
	struct ipaddr at[LIMIT_STATE_ADDRESSES], v4 = *a;
	size_t n = 0;
	bool here;

	if (!w->state || port != state_port(w->state))
		return false;
	if (!state_addresses(w->state, at, &n))
		return true;
	(void)ipaddr_embedded_v4(a, 0, &v4);
	here = is_here(a, own, own_n) || is_here(&v4, own, own_n);
	for (size_t i = 0; i < n; i++)
		if (ipaddr_eq(&at[i], a) || ipaddr_eq(&at[i], &v4) ||
		    (here && is_here(&at[i], own, own_n)))
			return true;
	return false;
}
