/*
 * Plans and opens the sockets of a run; see doors.h. Called by run.c outside (the plan) and by pid
 * 1 inside (the rest), before the command and before its privileges are gone.
 */
#include "proxy/sandbox/doors.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/sandbox/namespace.h"
#include "proxy/sandbox/run.h"

#define DNS_PORT	53
#define FIRST_OPEN_PORT 1024 /* net.ipv4.ip_unprivileged_port_start of a new namespace */
#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif

/* ---- the plan ---- */

static bool has_port(const struct doors *d, uint16_t port)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].port == port && d->v[i].v4.family == 0)
			return true;
	return false;
}

static void add_port(struct doors *d, uint16_t port)
{
	if (!has_port(d, port) && d->n < LIMIT_RUN_DOORS)
		d->v[d->n++] = (struct door){.port = port};
}

static void add_name(struct doors *d, struct name_map *names, const struct host *name,
		     uint16_t port)
{
	struct door door = {.port = port};

	if (has_port(d, port) || d->n == LIMIT_RUN_DOORS ||
	    name_map_keep(names, name, &door.v4, &door.v6, NULL) != 0)
		return;
	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].port == port && ipaddr_eq(&d->v[i].v4, &door.v4))
			return;
	d->v[d->n++] = door;
}

/* Does the port stand open at the addresses of names alone? Two ports are taken at 127.0.0.1. */
static bool is_of_names(uint16_t port)
{
	return port >= FIRST_OPEN_PORT || port == DNS_PORT || port == SANDBOX_PROXY_PORT;
}

static void add_target(struct doors *d, struct name_map *names, const struct target *t,
		       bool by_name)
{
	bool is_name = t->host_kind == TARGET_HOST_EXACT;

	if (t->port_last - t->port_first >= LIMIT_RUN_PORT_RANGE ||
	    (is_name && t->host.kind != HOST_NAME))
		return;
	for (unsigned port = t->port_first; port <= t->port_last; port++) {
		if (by_name && is_name && is_of_names((uint16_t)port))
			add_name(d, names, &t->host, (uint16_t)port);
		else if (!by_name && port != DNS_PORT && port != SANDBOX_PROXY_PORT &&
			 !(is_name && is_of_names((uint16_t)port)))
			add_port(d, (uint16_t)port);
	}
}

void doors_plan(const struct policy *p, struct name_map *names, struct doors *ret)
{
	*ret = (struct doors){0};
	add_port(ret, 443);
	add_port(ret, 80);
	/* Every address first: a port that is open there needs no other door. */
	for (int by_name = 0; p && by_name < 2; by_name++)
		for (size_t i = 0; i < policy_rules_n(p); i++) {
			const struct rule *r = policy_rule(p, i);

			for (size_t k = 0; r->effect == RULE_ALLOW && k < r->targets_n; k++)
				add_target(ret, names, &r->targets[k], by_name != 0);
		}
}

/* ---- the addresses ---- */

struct request {
	struct nlmsghdr h;
	union {
		struct rtmsg route;
		struct ifaddrmsg addr;
	} of;
	char attrs[128];
};

static void add_attr(struct request *q, unsigned short type, const void *data, size_t n)
{
	struct rtattr *a = (struct rtattr *)((char *)q + NLMSG_ALIGN(q->h.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (unsigned short)RTA_LENGTH(n);
	memcpy(RTA_DATA(a), data, n);
	q->h.nlmsg_len = NLMSG_ALIGN(q->h.nlmsg_len) + (unsigned)RTA_ALIGN(a->rta_len);
}

/* 0, or the error that the kernel answers. */
static int ask_kernel(const struct request *q)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char rest[256];
	} answer = {0};
	int rc;

	if (fd < 0)
		return errno;
	if (send(fd, q, q->h.nlmsg_len, 0) < 0 || recv(fd, &answer, sizeof(answer), 0) < 0)
		rc = errno;
	else
		rc = answer.h.nlmsg_type == NLMSG_ERROR ? -answer.e.error : EPROTO;
	close(fd);
	return rc;
}

/* Every address of the range is this host's, and who connects to one does so from loopback. */
static int add_route(const char *range_text, struct err *e)
{
	static const struct ipaddr from4 = {4, {127, 0, 0, 1}}, from6 = {6, {[15] = 1}};
	struct iprange range;
	struct request q = {
		.h = {.nlmsg_len = NLMSG_LENGTH(sizeof(q.of.route)),
		      .nlmsg_type = RTM_NEWROUTE,
		      .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK},
		.of.route = {.rtm_table = RT_TABLE_LOCAL,
			     .rtm_protocol = RTPROT_STATIC,
			     .rtm_scope = RT_SCOPE_HOST,
			     .rtm_type = RTN_LOCAL},
	};
	unsigned lo = if_nametoindex("lo");
	size_t n;

	if (iprange_parse(str_from_c(range_text), &range, e) < 0)
		return -1;
	n = range.base.family == 4 ? 4 : 16;
	q.of.route.rtm_family = n == 4 ? AF_INET : AF_INET6;
	q.of.route.rtm_dst_len = range.bits;
	add_attr(&q, RTA_DST, range.base.b, n);
	add_attr(&q, RTA_PREFSRC, n == 4 ? from4.b : from6.b, n);
	add_attr(&q, RTA_OIF, &lo, sizeof(lo));
	errno = ask_kernel(&q);
	return errno ? err_sys(e, errno, "cannot give the sandbox the addresses %s", range_text)
		     : 0;
}

/* An address of those ranges that no name has, on the interface itself: programs that want
 * addresses of families that the host has (AI_ADDRCONFIG of getaddrinfo(3)) do not count 127.0.0.1
 * and ::1. */
static int add_address(bool v4, struct err *e)
{
	static const uint8_t a4[4] = {198, 19, 255, 255};
	static const uint8_t a6[16] = {0xfd, 0x73, 0x74, 0x69, 0x6c, 0x65, [15] = 1};
	struct request q = {
		.h = {.nlmsg_len = NLMSG_LENGTH(sizeof(q.of.addr)),
		      .nlmsg_type = RTM_NEWADDR,
		      .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK},
		.of.addr = {.ifa_family = v4 ? AF_INET : AF_INET6,
			    .ifa_prefixlen = v4 ? 32 : 128,
			    .ifa_flags = v4 ? IFA_F_PERMANENT : IFA_F_PERMANENT | IFA_F_NODAD,
			    .ifa_index = if_nametoindex("lo")},
	};

	add_attr(&q, IFA_LOCAL, v4 ? a4 : a6, v4 ? sizeof(a4) : sizeof(a6));
	add_attr(&q, IFA_ADDRESS, v4 ? a4 : a6, v4 ? sizeof(a4) : sizeof(a6));
	errno = ask_kernel(&q);
	return errno ? err_sys(e, errno, "cannot give the sandbox an IPv%d address", v4 ? 4 : 6)
		     : 0;
}

/* ---- the sockets ---- */

static int open_socket(int type, const struct ipaddr *a, uint16_t port, int *ret_fd, struct err *e)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	bool v4 = a->family == 4;
	char text[IPADDR_TEXT_MAX];
	int on = 1;
	int fd = socket(v4 ? AF_INET : AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return err_sys(e, errno, "cannot open a socket in the sandbox");
	memcpy(&in.sin_addr, a->b, 4);
	memcpy(&in6.sin6_addr, a->b, 16);
	/* Of a local range of IPv6 no single address is on an interface. */
	if (!v4 && (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0 ||
		    setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &on, sizeof(on)) != 0))
		goto fail;
	if ((v4 ? bind(fd, (struct sockaddr *)&in, sizeof(in))
		: bind(fd, (struct sockaddr *)&in6, sizeof(in6))) != 0 ||
	    (type == SOCK_STREAM && listen(fd, SOMAXCONN) != 0))
		goto fail;
	*ret_fd = fd;
	return 0;
fail:
	ipaddr_format(a, text);
	err_sys(e, errno, "cannot listen on %s port %u in the sandbox", text, port);
	close(fd);
	return -1;
}

struct opening {
	struct engine_socket *v;
	int n;
};

static int add_socket(struct opening *o, enum config_listener_kind kind, int type,
		      const struct ipaddr *a, uint16_t port, struct err *e)
{
	int fd = -1;

	if (open_socket(type, a, port, &fd, e) != 0)
		return -1;
	o->v[o->n++] = (struct engine_socket){kind, fd};
	return 0;
}

static int add_family(struct opening *o, const struct doors *d, bool v4, struct err *e)
{
	const struct ipaddr loopback =
		v4 ? (struct ipaddr){4, {127, 0, 0, 1}} : (struct ipaddr){6, {[15] = 1}};
	const struct ipaddr any = {.family = v4 ? 4 : 6};

	if (add_route(v4 ? NAME_MAP_V4 : NAME_MAP_V6, e) != 0 || add_address(v4, e) != 0 ||
	    add_socket(o, CONFIG_LISTEN_DNS, SOCK_DGRAM, &loopback, DNS_PORT, e) != 0 ||
	    add_socket(o, CONFIG_LISTEN_DNS, SOCK_STREAM, &loopback, DNS_PORT, e) != 0)
		return -1;
	for (size_t i = 0; i < d->n; i++) {
		const struct door *door = &d->v[i];
		const struct ipaddr *a = door->v4.family == 0 ? &any : v4 ? &door->v4 : &door->v6;

		if (add_socket(o, CONFIG_LISTEN_TRANSPARENT, SOCK_STREAM, a, door->port, e) != 0)
			return -1;
	}
	return 0;
}

/* ::1 is there when the kernel has IPv6 and it is not switched off. */
static bool has_ipv6(void)
{
	const struct sockaddr_in6 one = {.sin6_family = AF_INET6,
					 .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&one, sizeof(one)) == 0;

	if (fd >= 0)
		close(fd);
	return has;
}

int doors_open(const struct doors *d, uint16_t proxy_port,
	       struct engine_socket ret[DOORS_SOCKETS_MAX], struct err *e)
{
	static const struct ipaddr loopback = {4, {127, 0, 0, 1}};
	struct opening o = {.v = ret};

	if (add_socket(&o, CONFIG_LISTEN_PROXY, SOCK_STREAM, &loopback, proxy_port, e) == 0 &&
	    add_family(&o, d, true, e) == 0 && (!has_ipv6() || add_family(&o, d, false, e) == 0))
		return o.n;
	while (o.n > 0)
		close(o.v[--o.n].fd);
	return -1;
}
