/*
 * IP addresses and ranges: reading, writing, and the judgement of which addresses an upstream may
 * have. The tables of special-purpose addresses follow the IANA registries (RFC 6890 and its
 * updates) and the published metadata addresses of the clouds. No sockets.
 */
#ifndef STILE_POLICY_IPADDR_H
#define STILE_POLICY_IPADDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "logging/err.h"
#include "logging/str.h"
#include "logging/strbuf.h"

#define IPADDR_TEXT_MAX 46

struct ipaddr {
	uint8_t family; /* 4 or 6; 0: none */
	uint8_t b[16];	/* network order; IPv4 in the first four */
};

struct iprange {
	struct ipaddr base; /* host bits are zero */
	uint8_t bits;
};

/* Dotted decimal without leading zeros, or RFC 4291 section 2.2 text without zone. 0 or -1. */
int ipaddr_parse(struct str in, struct ipaddr *ret);
/* RFC 5952 for IPv6. Terminated. */
void ipaddr_format(const struct ipaddr *a, char ret[IPADDR_TEXT_MAX]);
bool ipaddr_eq(const struct ipaddr *a, const struct ipaddr *b);

/* "10.0.0.0/8", "fd00::/8", a bare address is /32 or /128; set host bits are a fault. */
int iprange_parse(struct str in, struct iprange *ret, struct err *e) ATTR_NODISCARD;
bool iprange_has(const struct iprange *r, const struct ipaddr *a);

/* The IPv4 address that an IPv6 address carries, if it does (mapped, compatible, translated, NAT64
 * well-known and local-use, 6to4, Teredo (client address, obfuscated), ISATAP). A form may carry
 * two (Teredo server and client): `which` counts from 0. False when there is none. */
bool ipaddr_embedded_v4(const struct ipaddr *a, unsigned which, struct ipaddr *ret);

/* Why an address is not a public one, in a few words ("loopback", "private", "link-local",
 * "cloud metadata", "carries 10.0.0.1 (private)"), or NULL for a globally reachable unicast
 * address. `buf` is room for the text. */
const char *ipaddr_special(const struct ipaddr *a, char *buf, size_t size);
/* A metadata address of a cloud: opened only by its exact address (/32, /128). */
bool ipaddr_is_metadata(const struct ipaddr *a);

/* May a connection go to `a`? Special addresses only if one of the ranges has them (metadata: only
 * a full-length range); for an embedding form both the IPv6 address itself and what it carries must
 * be admitted. `own` are the host's own interface addresses: those need a range too, even when they
 * are public. 0, or -1 with REASON_ADDRESS_DENIED and the why. */
int ipaddr_judge(const struct ipaddr *a, const struct iprange *ranges, size_t ranges_n,
		 const struct ipaddr *own, size_t own_n, struct err *e) ATTR_NODISCARD;

#endif
