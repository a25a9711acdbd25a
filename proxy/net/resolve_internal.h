/*
 * For the tests of resolve.c alone: files of their own instead of the system's, and no waiting.
 */
#ifndef STILE_PROXY_NET_RESOLVE_INTERNAL_H
#define STILE_PROXY_NET_RESOLVE_INTERNAL_H

#include "proxy/net/resolve.h"

/* The paths are borrowed and must outlive it. */
int resolver_new_at(struct loop *l, const struct config *c, const char *resolv_conf,
		    const char *hosts, struct resolver **ret, struct err *e) ATTR_NODISCARD;
/* The next question looks at resolv.conf, however short ago it was looked at. */
void resolver_look_again(struct resolver *r);

#endif
