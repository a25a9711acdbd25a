/*
 * Hosts: a DNS name, an IPv4 or an IPv6 address, each in its one spelling. Names are lower-case
 * A-labels without a trailing dot (RFC 1035 section 2.3.4, RFC 3986 section 3.2.2, underscores
 * admitted); an address in any other spelling (octal, hexadecimal, short, decimal) is refused,
 * never read. It resolves nothing.
 */
#ifndef STILE_POLICY_HOSTNAME_H
#define STILE_POLICY_HOSTNAME_H

#include "logging/err.h"
#include "logging/limits.h"
#include "policy/ipaddr.h"

enum host_kind { HOST_NONE, HOST_NAME, HOST_IPV4, HOST_IPV6 };

struct host {
	enum host_kind kind;
	uint8_t len;
	struct ipaddr addr; /* HOST_IPV4 and HOST_IPV6 only */
	/* Canonical text, terminated: the name, or the address without brackets. Last, so that the
	 * rest can be emptied without it. */
	char text[LIMIT_HOST_BYTES + 1];
};

/* No host. */
static inline void host_empty(struct host *h)
{
	memset(h, 0, offsetof(struct host, text));
	h->text[0] = '\0';
}

/* *ret as h, of which only the text that there is. */
static inline void host_copy(const struct host *h, struct host *ret)
{
	memcpy(ret, h, offsetof(struct host, text) + h->len + 1);
}

/* Reads the host of a request or a rule; an IPv6 address stands in brackets. 0, or -1 with
 * REASON_MALFORMED_REQUEST (not a host at all) or REASON_AMBIGUOUS_URL (a host that other readers
 * would take for something else: 0x7f.1, 127.1, a name whose last label is numeric). */
int host_parse(struct str in, struct host *ret, struct err *e) ATTR_NODISCARD;
/* The same of a host as it nearly always is, a name or an IPv4 address. False: it is another, and
 * *ret is as it was. */
bool host_parse_common(struct str in, struct host *ret);
/* From an address, e.g. of a transparent connection. */
void host_from_ipaddr(const struct ipaddr *a, struct host *ret);
bool host_eq(const struct host *a, const struct host *b);
static inline struct str host_str(const struct host *h)
{
	return str_from(h->text, h->len);
}
/* As in a URL: brackets around IPv6. */
void host_add_url(const struct host *h, struct strbuf *out);
#define HOST_PORT_ROOM (LIMIT_HOST_BYTES + sizeof("[]:65535"))
/* The same with a port, in mem: for messages. */
const char *host_port(const struct host *h, unsigned port, char mem[HOST_PORT_ROOM]);

#endif
