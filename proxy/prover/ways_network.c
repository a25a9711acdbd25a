/*
 * Ways through the network: routes, names, neighbours, other protocols and families. The addresses
 * are those for documentation (RFC 5737, RFC 3849), which nobody has: whether there is a route says
 * the kernel without a packet. Real packets go to what --reach names, to link-local addresses, to
 * the network's own first address, and to the name servers that are set up here.
 */
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <resolv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>

#include "logging/attrs.h"
#include "logging/limits.h"
#include "logging/str.h"
#include "proxy/prover/way.h"

#define NOWHERE4    "192.0.2.1"
#define NOWHERE6    "2001:db8::1"
#define ADDRESS_MAX 64
#define SERVERS_MAX 16

static socklen_t size_of(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static int reach(const struct sockaddr_storage *a, int type)
{
	return way_connect((const struct sockaddr *)a, size_of(a), type, LIMIT_MS_PROVER_CONNECT);
}

static bool answers(int result, int err)
{
	return result == 0 || err == ECONNREFUSED;
}

/* Loopback, and what stile's own stub DNS gives out (RFC 2544's range; the same in a ULA). */
static bool is_inside(const struct sockaddr_storage *a)
{
	static const unsigned char made_up6[8] = {0xfd, 0x73, 0x74, 0x69, 0x6c, 0x65};
	const struct in6_addr *a6 = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;

	if (a->ss_family == AF_INET) {
		uint32_t n = ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr);

		return n >> 24 == 127 || (n & 0xfffe0000) == 0xc6120000;
	}
	return IN6_IS_ADDR_LOOPBACK(a6) || memcmp(a6->s6_addr, made_up6, sizeof(made_up6)) == 0;
}

/* ---- straight ---- */

static void try_straight(const struct prover_options *o, struct finding *f, int family,
			 const char *nowhere)
{
	char text[ADDRESS_MAX];
	struct sockaddr_storage a;
	size_t tried = 0;

	(void)way_parse(nowhere, 443, &a);
	for (size_t i = 0; i < o->reach_n; i++) {
		if (o->reach[i].ss_family != family)
			continue;
		tried++;
		way_address(&o->reach[i], text, sizeof(text));
		if (reach(&o->reach[i], SOCK_STREAM) == 0)
			finding_set(f, WAY_OPEN, "connected to %s", text);
		else
			finding_set(f, WAY_SHUT, "%s: %s", text, strerror(errno));
	}
	if (reach(&a, SOCK_DGRAM) != 0)
		finding_set(f, WAY_SHUT, "%s: %s", nowhere, strerror(errno));
	else if (tried == 0)
		finding_set(f, WAY_UNSURE, "there is a route (say --reach with a server outside)");
}

static void try_ipv4(const struct prover_options *o, struct finding *f)
{
	try_straight(o, f, AF_INET, NOWHERE4);
}

static void try_ipv6(const struct prover_options *o, struct finding *f)
{
	try_straight(o, f, AF_INET6, NOWHERE6);
}

/* A datagram nobody answers says nothing, so a name server's port is asked at --reach too. */
static void try_metadata(const struct prover_options *o, struct finding *f)
{
	static const char *const known[] = {"169.254.169.254", "169.254.170.2", "169.254.170.23",
					    "100.100.100.200", "fd00:ec2::254", "fe80::a9fe:a9fe"};
	struct sockaddr_storage a;

	(void)o;
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		(void)way_parse(known[i], 80, &a);
		if (answers(reach(&a, SOCK_STREAM), errno))
			finding_set(f, WAY_OPEN, "%s answers", known[i]);
		else
			finding_set(f, WAY_SHUT, "%s: %s", known[i], strerror(errno));
	}
}

/* ---- who is beside us ---- */

static const unsigned short host_ports[] = {22, 53, 80, 443, 2375, 2376, 6443, 8080};

static void ask_host(struct sockaddr_storage *a, const char *name, struct finding *f)
{
	for (size_t i = 0; i < ARRAY_LEN(host_ports); i++) {
		char text[ADDRESS_MAX];
		int r;

		if (a->ss_family == AF_INET)
			((struct sockaddr_in *)(void *)a)->sin_port = htons(host_ports[i]);
		else
			((struct sockaddr_in6 *)(void *)a)->sin6_port = htons(host_ports[i]);
		r = way_connect((struct sockaddr *)a, size_of(a), SOCK_STREAM, 500);
		way_address(a, text, sizeof(text));
		if (answers(r, errno)) {
			finding_set(f, WAY_OPEN, "%s (%s) answers", name, text);
			return;
		}
		finding_set(f, WAY_SHUT, "%s (%s): %s", name, text, strerror(errno));
		if (errno == ENETUNREACH || errno == EHOSTUNREACH || errno == EACCES)
			return;
	}
}

static void try_alias(const struct prover_options *o, struct finding *f)
{
	static const char *const known[] = {"host.docker.internal",	"gateway.docker.internal",
					    "host.containers.internal", "host.lima.internal",
					    "host.minikube.internal",	"kubernetes.default.svc",
					    "metadata.google.internal"};
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};

	(void)o;
	(void)setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		struct addrinfo *list = NULL;

		if (getaddrinfo(known[i], NULL, &hints, &list) != 0)
			continue;
		for (struct addrinfo *one = list; one; one = one->ai_next) {
			struct sockaddr_storage a = {0};

			memcpy(&a, one->ai_addr, one->ai_addrlen);
			if (!is_inside(&a))
				ask_host(&a, known[i], f);
		}
		freeaddrinfo(list);
	}
	finding_set(f, WAY_SHUT, "none of their names is known here");
}

/* The first address of each network that we are in: a bridge's, which is the host itself. */
static size_t first_addresses(struct sockaddr_storage *ret, size_t max)
{
	struct ifaddrs *list = NULL;
	size_t n = 0;

	if (getifaddrs(&list) != 0)
		return 0;
	for (struct ifaddrs *i = list; i && n < max; i = i->ifa_next) {
		struct sockaddr_in a, mask;

		if (!i->ifa_addr || !i->ifa_netmask || i->ifa_addr->sa_family != AF_INET)
			continue;
		memcpy(&a, i->ifa_addr, sizeof(a));
		memcpy(&mask, i->ifa_netmask, sizeof(mask));
		a.sin_addr.s_addr = (a.sin_addr.s_addr & mask.sin_addr.s_addr) | htonl(1);
		memset(&ret[n], 0, sizeof(ret[n]));
		memcpy(&ret[n], &a, sizeof(a));
		n += !is_inside(&ret[n]);
	}
	freeifaddrs(list);
	return n;
}

static void try_host(const struct prover_options *o, struct finding *f)
{
	struct sockaddr_storage a[SERVERS_MAX];
	size_t n = first_addresses(a, SERVERS_MAX);

	(void)o;
	for (size_t i = 0; i < n; i++)
		ask_host(&a[i], "the network's first address", f);
	if (n == 0)
		finding_set(f, WAY_NONE, "no network but loopback");
}

/* ---- names ---- */

static size_t name_servers(struct sockaddr_storage *ret, size_t max)
{
	static const char *const usual[] = {"127.0.0.1", "127.0.0.11", "127.0.0.53", "::1"};
	char text[16384], *rest = text, *line;
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(usual) && n < max; i++)
		n += way_parse(usual[i], 53, &ret[n]) == 0;
	if (way_read("/etc/resolv.conf", text, sizeof(text)) > 0)
		while ((line = strsep(&rest, "\n")) && n < max) {
			char *word = strsep(&line, " \t");

			if (strcmp(word, "nameserver") != 0 || !line)
				continue;
			line += strspn(line, " \t");
			line[strcspn(line, " \t%")] = '\0';
			n += way_parse(line, 53, &ret[n]) == 0;
		}
	n += first_addresses(ret + n, max - n);
	for (size_t i = 0; i < n; i++)
		if (ret[i].ss_family == AF_INET)
			((struct sockaddr_in *)(void *)&ret[i])->sin_port = htons(53);
	return n;
}

/* One exchange. The answer's length; -1 with errno. */
static int exchange(const struct sockaddr_storage *to, int type, const unsigned char *q, int q_n,
		    unsigned char *answer, int max)
{
	int fd = socket(to->ss_family, type | SOCK_CLOEXEC, 0), n = -1, err;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	const unsigned char len[2] = {(unsigned char)(q_n >> 8), (unsigned char)q_n};
	const struct timeval limit = {.tv_sec = LIMIT_MS_PROVER_CONNECT / 1000};
	bool tcp = type == SOCK_STREAM;

	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (const struct sockaddr *)to, size_of(to)) == 0 &&
	    (!tcp || send(fd, len, 2, MSG_NOSIGNAL | MSG_MORE) == 2) &&
	    send(fd, q, (size_t)q_n, MSG_NOSIGNAL) == q_n) {
		errno = ETIMEDOUT;
		if (poll(&p, 1, LIMIT_MS_PROVER_CONNECT) > 0)
			n = (int)recv(fd, answer, (size_t)max, 0);
		if (n == 0)
			errno = ECONNRESET;
		if (tcp && n > 2)
			memmove(answer, answer + 2, (size_t)(n -= 2));
	}
	err = errno;
	close(fd);
	errno = err;
	return n > 0 ? n : -1;
}

/* The first address that is not stile's own: somebody outside was asked. */
static bool names_somebody(const unsigned char *answer, int n, char *out, size_t size)
{
	ns_msg m;
	ns_rr rr;

	if (ns_initparse(answer, n, &m) != 0 || ns_msg_getflag(m, ns_f_rcode) != ns_r_noerror)
		return false;
	for (int i = 0; i < ns_msg_count(m, ns_s_an); i++) {
		struct sockaddr_storage a;

		if (ns_parserr(&m, ns_s_an, i, &rr) != 0 || ns_rr_type(rr) != ns_t_a ||
		    ns_rr_rdlen(rr) != 4)
			continue;
		inet_ntop(AF_INET, ns_rr_rdata(rr), out, (socklen_t)size);
		if (way_parse(out, 0, &a) == 0 && !is_inside(&a))
			return true;
	}
	return false;
}

static void try_dns(const struct prover_options *o, struct finding *f, int type)
{
	struct sockaddr_storage servers[SERVERS_MAX + PROVER_REACH_MAX];
	size_t n = name_servers(servers, SERVERS_MAX);
	unsigned char q[512], answer[4096];
	struct __res_state state = {0};
	int q_n;

	for (size_t i = 0; i < o->reach_n; i++) {
		servers[n] = o->reach[i];
		if (servers[n].ss_family == AF_INET)
			((struct sockaddr_in *)(void *)&servers[n])->sin_port = htons(53);
		else
			((struct sockaddr_in6 *)(void *)&servers[n])->sin6_port = htons(53);
		n++;
	}
	(void)res_ninit(&state);
	q_n = res_nmkquery(&state, ns_o_query, o->resolve, ns_c_in, ns_t_a, NULL, 0, NULL, q,
			   sizeof(q));
	for (size_t i = 0; q_n > 0 && i < n; i++) {
		char server[ADDRESS_MAX], address[ADDRESS_MAX];
		int got = exchange(&servers[i], type, q, q_n, answer, sizeof(answer));

		way_address(&servers[i], server, sizeof(server));
		if (got > 0 && names_somebody(answer, got, address, sizeof(address)))
			finding_set(f, WAY_OPEN, "%s says that %s is %s", server, o->resolve,
				    address);
		else if (got > 0)
			finding_set(f, WAY_SHUT, "%s does not know %s", server, o->resolve);
		else
			finding_set(f, WAY_SHUT, "%s: %s", server, strerror(errno));
	}
	res_nclose(&state);
}

static void try_dns_udp(const struct prover_options *o, struct finding *f)
{
	try_dns(o, f, SOCK_DGRAM);
}

static void try_dns_tcp(const struct prover_options *o, struct finding *f)
{
	try_dns(o, f, SOCK_STREAM);
}

/* DNS within TLS or HTTPS: who can be connected to can be asked. */
static void try_dns_hidden(const struct prover_options *o, struct finding *f)
{
	static const unsigned short ports[] = {853, 443};
	struct sockaddr_storage servers[SERVERS_MAX];
	size_t n = name_servers(servers, SERVERS_MAX);

	(void)o;
	for (size_t i = 0; i < 2 * n; i++) {
		struct sockaddr_storage a = servers[i / 2];
		char text[ADDRESS_MAX];

		if (is_inside(&a))
			continue;
		if (a.ss_family == AF_INET)
			((struct sockaddr_in *)(void *)&a)->sin_port = htons(ports[i % 2]);
		else
			((struct sockaddr_in6 *)(void *)&a)->sin6_port = htons(ports[i % 2]);
		way_address(&a, text, sizeof(text));
		if (reach(&a, SOCK_STREAM) == 0)
			finding_set(f, WAY_OPEN, "connected to %s", text);
		else
			finding_set(f, WAY_SHUT, "%s: %s", text, strerror(errno));
	}
	finding_set(f, WAY_SHUT, "no name server but on loopback");
}

/* ---- other protocols ---- */

static bool echo(int fd, const struct sockaddr_storage *to, struct finding *f, const char *text)
{
	struct icmphdr h = {.type = ICMP_ECHO};
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (sendto(fd, &h, sizeof(h), MSG_DONTWAIT, (const struct sockaddr *)to, size_of(to)) < 0) {
		finding_set(f, WAY_SHUT, "%s: %s", text, strerror(errno));
		return false;
	}
	if (poll(&p, 1, LIMIT_MS_PROVER_CONNECT) > 0 && recv(fd, &h, sizeof(h), 0) >= 0)
		finding_set(f, WAY_OPEN, "%s answers", text);
	return true;
}

static void try_icmp(const struct prover_options *o, struct finding *f)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);
	struct sockaddr_storage a;
	char text[ADDRESS_MAX];
	bool sent, asked = false;

	if (fd < 0) {
		finding_set(f, WAY_SHUT, "no socket: %s", strerror(errno));
		return;
	}
	for (size_t i = 0; i < o->reach_n; i++)
		if (o->reach[i].ss_family == AF_INET) {
			way_address(&o->reach[i], text, sizeof(text));
			(void)echo(fd, &o->reach[i], f, text);
			asked = true;
		}
	(void)way_parse(NOWHERE4, 0, &a);
	sent = !asked && echo(fd, &a, f, NOWHERE4);
	if (sent)
		finding_set(f, WAY_UNSURE, "it can be sent (say --reach with a host outside)");
	finding_set(f, WAY_SHUT, "nobody answers");
	close(fd);
}

static void try_socket(struct finding *f, int family, int type, int protocol, const char *name)
{
	int fd = socket(family, type | SOCK_CLOEXEC, protocol);

	if (fd >= 0)
		finding_set(f, WAY_OPEN, "%s: a socket can be had", name);
	else
		finding_set(f, WAY_SHUT, "%s: %s", name, strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void try_raw(const struct prover_options *o, struct finding *f)
{
	(void)o;
	try_socket(f, AF_INET, SOCK_RAW, IPPROTO_RAW, "raw IPv4");
	try_socket(f, AF_INET6, SOCK_RAW, IPPROTO_RAW, "raw IPv6");
	try_socket(f, AF_INET, SOCK_RAW, IPPROTO_ICMP, "raw ICMP");
	try_socket(f, AF_PACKET, SOCK_RAW, 0, "packet");
	try_socket(f, AF_PACKET, SOCK_DGRAM, 0, "packet");
}

/* These know no network namespace, or lead into the hypervisor. */
static void try_families(const struct prover_options *o, struct finding *f)
{
	struct sockaddr_vm host = {.svm_family = AF_VSOCK,
				   .svm_cid = VMADDR_CID_HOST,
				   .svm_port = 22};

	(void)o;
	if (answers(way_connect((struct sockaddr *)&host, sizeof(host), SOCK_STREAM,
				LIMIT_MS_PROVER_CONNECT),
		    errno) ||
	    errno == ECONNRESET)
		finding_set(f, WAY_OPEN, "vsock: the hypervisor answers");
	else
		finding_set(f, WAY_SHUT, "vsock: %s", strerror(errno));
	try_socket(f, AF_BLUETOOTH, SOCK_RAW, 1, "bluetooth");
	try_socket(f, AF_TIPC, SOCK_SEQPACKET, 0, "TIPC");
	try_socket(f, AF_RDS, SOCK_SEQPACKET, 0, "RDS");
	try_socket(f, AF_QIPCRTR, SOCK_DGRAM, 0, "QRTR");
	try_socket(f, AF_CAN, SOCK_RAW, 1, "CAN");
}

const struct way ways_network[] = {
	{"ipv4", "an IPv4 address, not by the proxy", try_ipv4},
	{"ipv6", "an IPv6 address, not by the proxy", try_ipv6},
	{"metadata", "link-local and metadata addresses", try_metadata},
	{"alias", "names that containers have for their host", try_alias},
	{"host", "the host's side of our networks", try_host},
	{"dns-udp", "a name looked up by UDP", try_dns_udp},
	{"dns-tcp", "a name looked up by TCP", try_dns_tcp},
	{"dns-hidden", "name servers' ports for TLS and HTTPS", try_dns_hidden},
	{"icmp", "an echo request", try_icmp},
	{"raw", "raw and packet sockets", try_raw},
	{"family", "vsock, Bluetooth and other families", try_families},
	{NULL, NULL, NULL},
};
