/*
 * The host's own interface addresses: no request may reach the host itself through one, public or
 * not, unless a rule names it. Read from the kernel at most every two seconds, when asked.
 */
#ifndef STILE_PROXY_NET_OWN_ADDRS_H
#define STILE_PROXY_NET_OWN_ADDRS_H

#include "policy/ipaddr.h"
#include "proxy/net/loop.h"

struct own_addrs; /* one a worker */

int own_addrs_new(struct own_addrs **ret, struct err *e) ATTR_NODISCARD;
void own_addrs_free(struct own_addrs *o);
/* Borrowed until the next call. If the kernel cannot be asked the last list stays; never empty by
 * mistake: -1 when there never was one (fail closed). */
int own_addrs_get(struct own_addrs *o, int64_t now_us, const struct ipaddr **ret, size_t *ret_n,
		  struct err *e) ATTR_NODISCARD;

#endif
