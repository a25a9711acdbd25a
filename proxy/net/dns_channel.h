/*
 * One c-ares channel on the loop: sends a question for A or for AAAA, hears the answer. It keeps
 * nothing, joins nothing and reads no hosts file; resolve.c does. No other file includes <ares.h>.
 */
#ifndef STILE_PROXY_NET_DNS_CHANNEL_H
#define STILE_PROXY_NET_DNS_CHANNEL_H

#include "logging/limits.h"
#include "policy/ipaddr.h"
#include "proxy/net/loop.h"

enum dns_family { DNS_V6, DNS_V4, DNS_FAMILIES };

enum dns_status {
	DNS_FOUND,	   /* at least one address */
	DNS_NO_NAME,	   /* NXDOMAIN */
	DNS_NO_ADDRESS,	   /* the name is there, without an address of this family */
	DNS_SERVER_FAILED, /* an answer that is none */
	DNS_NO_SERVER,	   /* none could be reached, or all said SERVFAIL or REFUSED */
	DNS_TIMED_OUT,
	DNS_BROKEN, /* memory is out, or the channel was freed */
};

struct dns_answer {
	enum dns_status status;
	uint32_t ttl_secs; /* DNS_FOUND: the smallest of the answer, CNAMEs included */
	size_t n;
	struct ipaddr addrs[LIMIT_DNS_ADDRESSES]; /* in the server's order, each once */
};

struct dns_channel;

/* servers: "127.0.0.1:53", "[::1]:53", "192.0.2.1" (port 53); none: those of the file resolv_conf.
 * One question lasts timeout_ms at most, all its tries together, when there is one server. Whatever
 * the environment or resolv.conf say about search domains, aliases, tries and order is not read. */
int dns_channel_new(struct loop *l, char *const *servers, size_t servers_n, const char *resolv_conf,
		    uint64_t timeout_ms, struct dns_channel **ret, struct err *e) ATTR_NODISCARD;
/* Calls back what is still open, with DNS_BROKEN. Not from inside a callback. */
void dns_channel_free(struct dns_channel *c);
/* done is called exactly once, possibly from inside this call; the answer lives as long as it. */
void dns_channel_ask(struct dns_channel *c, const char *name, enum dns_family f,
		     void (*done)(void *arg, const struct dns_answer *a), void *arg);
/* Questions that were not yet answered (the one that is being answered does not count). */
size_t dns_channel_open(const struct dns_channel *c);

#endif
