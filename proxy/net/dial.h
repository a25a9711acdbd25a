/*
 * Connects to one of several judged addresses: attempts 250 ms apart that overlap (RFC 8305 section
 * 5), the first to connect wins, the others are closed. It knows no names: what it is given has
 * been judged, and nothing else is dialled.
 */
#ifndef STILE_PROXY_NET_DIAL_H
#define STILE_PROXY_NET_DIAL_H

#include "policy/ipaddr.h"
#include "proxy/net/loop.h"

struct dial;

/* done is called once, from the loop and never from inside this call: fd >= 0 (non-blocking,
 * cloexec, TCP_NODELAY; the callee owns it) with the address that it goes to, or -1 with the ranked
 * error of all attempts: REASON_UPSTREAM_CLOSED (it was up, and was reset before anyone looked)
 * before REASON_CONNECT_REFUSED before REASON_CONNECT_TIMEOUT before REASON_CONNECT_UNREACHABLE,
 * the text naming each address tried, REASON_OVERLOADED when descriptors are out. -1 when memory is
 * out (done is not called). */
int dial_start(struct loop *l, const struct ipaddr *addrs, size_t addrs_n, uint16_t port,
	       uint64_t timeout_ms,
	       void (*done)(void *arg, int fd, const struct ipaddr *addr, const struct err *e),
	       void *arg, struct dial **ret, struct err *e) ATTR_NODISCARD;
void dial_cancel(struct dial *d); /* done is not called; NULL is accepted */

#endif
