/*
 * The canary. It dials documentation addresses (RFC 5737, RFC 3849), which belong to nobody: should
 * a packet leave after all, it reaches no one. Called by pid 1 of the sandbox, nowhere else.
 */
#include "proxy/sandbox/canary.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

struct probe {
	const char *what;
	int family, type;
	const char *addr;
	uint16_t port;
};

static const struct probe probes[] = {
	{"a TCP connection", AF_INET, SOCK_STREAM, "203.0.113.1", 443},
	{"a DNS query", AF_INET, SOCK_DGRAM, "203.0.113.53", 53},
	{"a TCP connection", AF_INET6, SOCK_STREAM, "2001:db8::1", 443},
	{"a DNS query", AF_INET6, SOCK_DGRAM, "2001:db8::53", 53},
};

/* A query for the root's name servers (RFC 1035 section 4.1), should anybody ever read it. */
static const unsigned char query[] = {0x73, 0x74, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1};

/* What a kernel says that has no way to send a packet. Anything else, a refusal by the other end
 * above all, means that one was sent or that we cannot tell. */
static bool is_no_way(int sys_errno)
{
	return sys_errno == ENETUNREACH || sys_errno == EHOSTUNREACH || sys_errno == ENETDOWN ||
	       sys_errno == EADDRNOTAVAIL;
}

static socklen_t probe_address(const struct probe *p, struct sockaddr_storage *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof(*ret));
	if (p->family == AF_INET) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(p->port);
		inet_pton(AF_INET, p->addr, &v4->sin_addr);
		return sizeof(*v4);
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(p->port);
	inet_pton(AF_INET6, p->addr, &v6->sin6_addr);
	return sizeof(*v6);
}

static int try_probe(const struct probe *p, struct err *e)
{
	int fd = socket(p->family, p->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_storage a;
	socklen_t len = probe_address(p, &a);
	ssize_t rc;
	int sys_errno;

	/* A kernel without IPv6 has no way out over it. */
	if (fd < 0 && p->family == AF_INET6 && errno == EAFNOSUPPORT)
		return 0;
	if (fd < 0)
		return err_sys(e, errno, "cannot try %s", p->what);
	if (p->type == SOCK_STREAM)
		rc = connect(fd, (struct sockaddr *)&a, len);
	else
		rc = sendto(fd, query, sizeof(query), 0, (struct sockaddr *)&a, len);
	sys_errno = errno;
	close(fd);
	if (rc < 0 && is_no_way(sys_errno))
		return 0;
	return err_set(e, "%s to %s port %u goes out of the sandbox (%s)", p->what, p->addr,
		       p->port, rc < 0 ? strerror(sys_errno) : "no error");
}

/* Some kernels put tunnel devices into every new namespace. They are harmless while they are down,
 * and nothing in the sandbox may bring them up. */
static int check_interfaces(struct err *e)
{
	struct if_nameindex *list = if_nameindex();
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc = 0;

	if (!list || fd < 0) {
		rc = err_sys(e, errno, "cannot list the sandbox's network interfaces");
		goto out;
	}
	for (const struct if_nameindex *i = list; i->if_name && rc == 0; i++) {
		struct ifreq r = {0};

		snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", i->if_name);
		if (strcmp(i->if_name, "lo") == 0)
			continue;
		if (ioctl(fd, SIOCGIFFLAGS, &r) != 0)
			rc = err_sys(e, errno, "cannot ask for the state of interface %s",
				     r.ifr_name);
		else if (r.ifr_flags & IFF_UP)
			rc = err_set(e, "the sandbox has a network interface beside loopback: %s",
				     r.ifr_name);
	}
out:
	if (fd >= 0)
		close(fd);
	if (list)
		if_freenameindex(list);
	return rc;
}

/* The device is the first column of the one table and the last of the other. */
static const char *device_of(char *line, bool first)
{
	char *end = line + strcspn(line, "\n");
	char *start;

	if (first) {
		line[strcspn(line, " \t")] = '\0';
		return line;
	}
	while (end > line && end[-1] == ' ')
		end--;
	*end = '\0';
	start = end;
	while (start > line && start[-1] != ' ')
		start--;
	return start;
}

static int check_routes(const char *path, bool device_first, struct err *e)
{
	char line[512];
	FILE *f = fopen(path, "re");
	int rc = 0;

	if (!f && errno == ENOENT && !device_first)
		return 0; /* no IPv6 */
	if (!f)
		return err_sys(e, errno, "cannot read %s in the sandbox", path);
	/* The IPv4 table has a heading and does not list loopback's own addresses. */
	if (device_first && !fgets(line, sizeof(line), f))
		rc = err_set(e, "%s in the sandbox is empty", path);
	while (rc == 0 && fgets(line, sizeof(line), f)) {
		const char *device = device_of(line, device_first);

		if (device_first || strcmp(device, "lo") != 0)
			rc = err_set(e, "the sandbox has a route by way of %s", device);
	}
	fclose(f);
	return rc;
}

int canary_check(struct err *e)
{
	if (check_interfaces(e) != 0 || check_routes("/proc/self/net/route", true, e) != 0 ||
	    check_routes("/proc/self/net/ipv6_route", false, e) != 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(probes); i++) {
		if (try_probe(&probes[i], e) != 0)
			return -1;
	}
	return 0;
}
