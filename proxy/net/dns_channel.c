/*
 * Drives c-ares by the loop's events and one timer, and turns what it says into a struct
 * dns_answer. Everything that c-ares would take from the environment (RES_OPTIONS, LOCALDOMAIN,
 * HOSTALIASES, CARES_HOSTS) is overridden: what a name means must not depend on who started stile.
 */
#include "proxy/net/dns_channel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#define CARES_NO_DEPRECATED /* newer headers warn of what 1.18 has no other name for */
#include <ares.h>

#include "logging/opener.h"
#include "logging/str.h"
#include "logging/strbuf.h"

#define TRIES	       3
#define TRIES_SUM      7 /* each try takes twice as long as the one before: 1 + 2 + 4 */
#define TRY_MS_MAX     2000
#define EDNS_BYTES     1232 /* what passes everywhere without fragments (DNS flag day 2020) */
#define SERVERS_MAX    16
#define UDP_REUSES     64 /* questions on one source port, where c-ares can be told */
#define DEFAULT_PORT   53
#define CONF_BYTES_MAX 65536

struct sock {
	/* owned */
	struct event ev;
	/* borrowed */
	struct dns_channel *channel;
	struct sock *next;
	/* plain */
	int fd;
};

struct dns_channel {
	/* owned */
	ares_channel ares;
	struct sock *socks;
	struct timer timer;
	/* borrowed */
	struct loop *loop;
	/* plain */
	size_t open;
};

struct ask {
	/* borrowed */
	struct dns_channel *channel;
	void (*done)(void *arg, const struct dns_answer *a);
	void *arg;
	/* plain */
	enum dns_family family;
};

/* ---- sockets and time ---- */

static void arm(struct dns_channel *c)
{
	struct timeval tv, *next = ares_timeout(c->ares, NULL, &tv);

	if (!next)
		timer_stop(&c->timer);
	else
		/* Rounded up: a millisecond too early would find nothing to do, again and again. */
		timer_arm(&c->timer,
			  (uint64_t)next->tv_sec * 1000 + (uint64_t)next->tv_usec / 1000 + 1);
}

static void on_timer(void *arg)
{
	struct dns_channel *c = arg;

	ares_process_fd(c->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	arm(c);
}

static void on_socket(evutil_socket_t fd, short what, void *arg)
{
	struct sock *s = arg;
	struct dns_channel *c = s->channel; /* s may be buried by what follows */

	ares_process_fd(c->ares, what & EV_READ ? fd : ARES_SOCKET_BAD,
			what & EV_WRITE ? fd : ARES_SOCKET_BAD);
	arm(c);
}

/* c-ares says what it wants to hear of a socket; neither: it is about to close it. */
static void on_interest(void *arg, ares_socket_t fd, int readable, int writable)
{
	struct dns_channel *c = arg;
	struct sock **at = &c->socks, *s;
	short what = (short)((readable ? EV_READ : 0) | (writable ? EV_WRITE : 0) | EV_PERSIST);

	while (*at && (*at)->fd != fd)
		at = &(*at)->next;
	s = *at;
	if (s)
		event_del(&s->ev);
	if (!readable && !writable) {
		if (s) {
			*at = s->next;
			loop_bury(c->loop, s, free);
		}
		return;
	}
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return; /* the question times out */
		s->channel = c;
		s->fd = fd;
		s->next = c->socks;
		c->socks = s;
	}
	event_assign(&s->ev, loop_base(c->loop), fd, what, on_socket, s);
	event_add(&s->ev, NULL);
}

/* ---- making a channel ---- */

/* One server as c-ares reads it in every version, "192.0.2.1:53" or "[2001:db8::1]:53"; what is
 * no plain address with a port is refused rather than left to c-ares to understand. */
static int add_server(struct strbuf *out, const char *text, struct err *e)
{
	struct str s = str_from_c(text), host = s, port = STR_NONE;
	char addr[IPADDR_TEXT_MAX];
	uint64_t n = DEFAULT_PORT;
	struct ipaddr a;

	if (s.n > 0 && s.p[0] == '[') {
		ptrdiff_t end = str_find(s, ']');

		if (end < 0)
			goto bad;
		host = str_from(s.p + 1, (size_t)end - 1);
		port = str_skip(s, (size_t)end + 1);
		if (port.n > 0 && port.p[0] != ':')
			goto bad;
	} else if (ipaddr_parse(s, &a) < 0) {
		ptrdiff_t colon = str_find(s, ':');

		if (colon < 0)
			goto bad;
		host = str_head(s, (size_t)colon);
		port = str_skip(s, (size_t)colon);
	}
	if (ipaddr_parse(host, &a) < 0 ||
	    (port.n > 0 && (str_to_u64(str_skip(port, 1), &n) < 0 || n == 0 || n > 65535)))
		goto bad;
	ipaddr_format(&a, addr);
	strbuf_addf(out, a.family == 6 ? "%s[%s]:%u" : "%s%s:%u", out->len ? "," : "", addr,
		    (unsigned)n);
	return 0;
bad:
	return err_set(e, "DNS server \"%s\": not an address with a port, such as 192.0.2.1:53",
		       text);
}

static int set_servers(struct dns_channel *c, char *const *servers, size_t n, struct err *e)
{
	struct strbuf csv;
	int rc = -1;

	if (n == 0)
		return 0;
	strbuf_init(&csv, SERVERS_MAX * 64);
	for (size_t i = 0; i < n && i < SERVERS_MAX; i++)
		if (add_server(&csv, servers[i], e) < 0)
			goto out;
	rc = ares_set_servers_ports_csv(c->ares, strbuf_cstr(&csv));
	if (rc != ARES_SUCCESS) {
		err_set(e, "DNS servers %s: %s", strbuf_cstr(&csv), ares_strerror(rc));
		rc = -1;
	}
out:
	strbuf_clear(&csv);
	return rc;
}

static void init_library(void)
{
	ares_library_init(ARES_LIB_INIT_ALL);
}

/* c-ares opens the file by its name, which this process may not be able to: a copy that has another
 * one. -1: as it was. */
static int copy_conf(const char *resolv_conf, char *path, size_t size)
{
	int from = opener_open(resolv_conf, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int to = from < 0 ? -1 : memfd_create("stile-resolv", MFD_CLOEXEC);
	char part[4096];
	size_t all = 0;
	ssize_t n;

	while (to >= 0 && all < CONF_BYTES_MAX && (n = read(from, part, sizeof(part))) > 0) {
		if (write(to, part, (size_t)n) != n)
			break;
		all += (size_t)n;
	}
	if (from >= 0)
		close(from);
	if (to >= 0)
		snprintf(path, size, "/proc/self/fd/%d", to);
	return to;
}

static int init_ares(struct dns_channel *c, const char *resolv_conf, uint64_t timeout_ms)
{
	int copy = -1, rc;

	char lookups[] = "b"; /* DNS alone: the hosts file is read before, for both families */
	char path[4096];
	uint64_t try_ms = timeout_ms / TRIES_SUM;
	struct ares_options o = {
		.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_EDNS,
		.timeout = (int)(try_ms > TRY_MS_MAX ? TRY_MS_MAX
				 : try_ms < 50	     ? 50
						     : try_ms),
		.tries = TRIES,
		.ndots = 0,
		.ndomains = 0,
		.lookups = lookups,
		.ednspsz = EDNS_BYTES,
		.sock_state_cb = on_interest,
		.sock_state_cb_data = c,
	};
	int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_NDOTS |
		   ARES_OPT_DOMAINS | ARES_OPT_LOOKUPS | ARES_OPT_EDNSPSZ | ARES_OPT_NOROTATE |
		   ARES_OPT_SOCK_STATE_CB;

#ifdef ARES_OPT_UDP_MAX_QUERIES
	o.udp_max_queries = UDP_REUSES;
	mask |= ARES_OPT_UDP_MAX_QUERIES;
#endif
#ifdef ARES_OPT_QUERY_CACHE
	o.qcache_max_ttl = 0; /* resolve.c has its own, and a TTL of 0 means 0 */
	mask |= ARES_OPT_QUERY_CACHE;
#endif
	if (resolv_conf && strlen(resolv_conf) < sizeof(path)) {
		memcpy(path, resolv_conf, strlen(resolv_conf) + 1);
		o.resolvconf_path = path;
		mask |= ARES_OPT_RESOLVCONF;
		if (!opener_is_own())
			copy = copy_conf(resolv_conf, path, sizeof(path));
	}
	rc = ares_init_options(&c->ares, &o, mask);
	if (copy >= 0)
		close(copy);
	return rc;
}

int dns_channel_new(struct loop *l, char *const *servers, size_t servers_n, const char *resolv_conf,
		    uint64_t timeout_ms, struct dns_channel **ret, struct err *e)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct dns_channel *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return err_set(e, "out of memory");
	c->loop = l;
	pthread_once(&once, init_library);
	if (timer_init(&c->timer, l, on_timer, c) < 0) {
		free(c);
		return err_set(e, "out of memory");
	}
	rc = init_ares(c, resolv_conf, timeout_ms);
	if (rc != ARES_SUCCESS) {
		c->ares = NULL;
		dns_channel_free(c);
		return err_set(e, "the DNS client cannot start: %s", ares_strerror(rc));
	}
	if (set_servers(c, servers, servers_n, e) < 0) {
		dns_channel_free(c);
		return -1;
	}
	*ret = c;
	return 0;
}

void dns_channel_free(struct dns_channel *c)
{
	if (!c)
		return;
	if (c->ares)
		ares_destroy(c->ares);
	/* c-ares tells of each socket before it closes it; this is for one that it forgot. */
	while (c->socks)
		on_interest(c, c->socks->fd, 0, 0);
	timer_clear(&c->timer);
	free(c);
}

size_t dns_channel_open(const struct dns_channel *c)
{
	return c->open;
}

/* ---- asking ---- */

static enum dns_status to_status(int rc)
{
	switch (rc) {
	case ARES_SUCCESS: return DNS_NO_ADDRESS; /* until an address is found in it */
	case ARES_ENOTFOUND: return DNS_NO_NAME;
	case ARES_ENODATA: return DNS_NO_ADDRESS;
	case ARES_ETIMEOUT: return DNS_TIMED_OUT;
	case ARES_ESERVFAIL:
	case ARES_EREFUSED:
	case ARES_ENOTIMP: /* 1.18 calls all of these ECONNREFUSED, once every try has met one */
	case ARES_ECONNREFUSED: return DNS_NO_SERVER;
	case ARES_ENOMEM:
	case ARES_ECANCELLED:
	case ARES_EDESTRUCTION: return DNS_BROKEN;
	default: return DNS_SERVER_FAILED;
	}
}

static bool node_addr(const struct ares_addrinfo_node *n, enum dns_family f, struct ipaddr *ret)
{
	*ret = (struct ipaddr){0};
	if (f == DNS_V4 && n->ai_family == AF_INET) {
		struct sockaddr_in in;

		memcpy(&in, n->ai_addr, sizeof(in));
		ret->family = 4;
		memcpy(ret->b, &in.sin_addr, 4);
		return true;
	}
	if (f == DNS_V6 && n->ai_family == AF_INET6) {
		struct sockaddr_in6 in6;

		memcpy(&in6, n->ai_addr, sizeof(in6));
		ret->family = 6;
		memcpy(ret->b, &in6.sin6_addr, 16);
		return true;
	}
	return false;
}

/* A repeated address would cost an attempt and tell nothing. */
static void add_addr(struct dns_answer *a, const struct ipaddr *addr)
{
	for (size_t i = 0; i < a->n; i++)
		if (ipaddr_eq(&a->addrs[i], addr))
			return;
	a->addrs[a->n++] = *addr;
	a->status = DNS_FOUND;
}

static void min_ttl(struct dns_answer *a, int ttl)
{
	/* RFC 2181 section 8: with the top bit set it is 0. */
	uint32_t secs = ttl < 0 ? 0 : (uint32_t)ttl;

	if (secs < a->ttl_secs)
		a->ttl_secs = secs;
}

static void read_answer(const struct ares_addrinfo *res, enum dns_family f, struct dns_answer *a)
{
	a->ttl_secs = UINT32_MAX;
	for (const struct ares_addrinfo_node *n = res->nodes; n; n = n->ai_next) {
		struct ipaddr addr;

		if (a->n == LIMIT_DNS_ADDRESSES)
			break;
		if (!node_addr(n, f, &addr))
			continue;
		add_addr(a, &addr);
		min_ttl(a, n->ai_ttl);
	}
	for (const struct ares_addrinfo_cname *n = res->cnames; n; n = n->next)
		min_ttl(a, n->ttl);
}

static void on_answer(void *arg, int rc, int timeouts, struct ares_addrinfo *res)
{
	struct ask *q = arg;
	struct dns_answer a = {.status = to_status(rc)};

	(void)timeouts;
	if (rc == ARES_SUCCESS && res)
		read_answer(res, q->family, &a);
	if (res)
		ares_freeaddrinfo(res);
	q->channel->open--;
	q->done(q->arg, &a);
	free(q);
}

void dns_channel_ask(struct dns_channel *c, const char *name, enum dns_family f,
		     void (*done)(void *arg, const struct dns_answer *a), void *arg)
{
	struct ares_addrinfo_hints hints = {
		.ai_flags = ARES_AI_NOSORT,
		.ai_family = f == DNS_V4 ? AF_INET : AF_INET6,
		.ai_socktype = SOCK_STREAM,
	};
	struct ask *q = calloc(1, sizeof(*q));

	if (!q) {
		struct dns_answer a = {.status = DNS_BROKEN};

		done(arg, &a);
		return;
	}
	q->channel = c;
	q->done = done;
	q->arg = arg;
	q->family = f;
	c->open++;
	ares_getaddrinfo(c->ares, name, NULL, &hints, on_answer, q);
	arm(c);
}
