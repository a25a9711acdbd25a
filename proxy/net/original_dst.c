/*
 * See original_dst.h. The options are of netfilter's connection tracking; without it, or for a
 * connection that it does not know, they fail and the socket's own address is the answer.
 */
#include "proxy/net/original_dst.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define ORIGINAL_DST 80 /* SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST of linux/netfilter */

/* A socket may serve both families: then IPv4 comes mapped. */
static int to_ipaddr(const struct sockaddr_storage *ss, struct ipaddr *ret, uint16_t *ret_port)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;

	*ret = (struct ipaddr){0};
	if (ss->ss_family == AF_INET) {
		memcpy(&in, ss, sizeof(in));
		ret->family = 4;
		memcpy(ret->b, &in.sin_addr, 4);
		*ret_port = ntohs(in.sin_port);
		return 0;
	}
	if (ss->ss_family != AF_INET6)
		return -1;
	memcpy(&in6, ss, sizeof(in6));
	*ret_port = ntohs(in6.sin6_port);
	ret->family = IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr) ? 4 : 6;
	if (ret->family == 4)
		memcpy(ret->b, in6.sin6_addr.s6_addr + 12, 4);
	else
		memcpy(ret->b, in6.sin6_addr.s6_addr, 16);
	return 0;
}

int original_dst(int fd, struct ipaddr *ret, uint16_t *ret_port)
{
	struct sockaddr_storage ss = {0};
	socklen_t n = sizeof(ss);
	int level;

	if (getsockname(fd, (struct sockaddr *)&ss, &n) < 0 || to_ipaddr(&ss, ret, ret_port) < 0)
		return -1;
	level = ret->family == 4 ? IPPROTO_IP : IPPROTO_IPV6;
	n = sizeof(ss);
	if (getsockopt(fd, level, ORIGINAL_DST, &ss, &n) < 0)
		return 0;
	return to_ipaddr(&ss, ret, ret_port);
}
