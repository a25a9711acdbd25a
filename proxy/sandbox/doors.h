/*
 * The sockets of a run by which stile carries programs that know no proxy: where the stub DNS is
 * asked, and where connections to the addresses that it gives arrive. Planned outside, opened
 * inside, served outside.
 */
#ifndef STILE_PROXY_SANDBOX_DOORS_H
#define STILE_PROXY_SANDBOX_DOORS_H

#include "logging/limits.h"
#include "policy/config.h"
#include "policy/policy.h"
#include "proxy/net/name_map.h"
#include "proxy/session/engine.h"

/* Of each door two sockets, two kinds of them for the DNS of either family, and the proxy's. */
#define DOORS_SOCKETS_MAX (2 * LIMIT_RUN_DOORS + 5)

/* A port, at every address or at those of one name. */
struct door {
	struct ipaddr v4, v6; /* family 0: every address */
	uint16_t port;
};

struct doors {
	struct door v[LIMIT_RUN_DOORS];
	size_t n;
};

/* 80, 443 and what the allow rules of p name (p may be NULL: none): a port below 1024, which the
 * command cannot listen on anyway, at every address; another one at the addresses of the names that
 * go with it, which are kept in names, so that the command can still listen on 127.0.0.1 and ::1
 * there; only where such a port goes with a pattern of names, at every address. Ranges wider than
 * LIMIT_RUN_PORT_RANGE, and what is more than LIMIT_RUN_DOORS, have none. */
void doors_plan(const struct policy *p, struct name_map *names, struct doors *ret);

/* Inside, with capabilities and loopback up: makes the made-up addresses this namespace's own, and
 * opens the proxy's socket, those of the DNS and the doors, as far as the kernel knows IPv6.
 * Their number; -1: none, and e. */
int doors_open(const struct doors *d, uint16_t proxy_port,
	       struct engine_socket ret[DOORS_SOCKETS_MAX], struct err *e) ATTR_NODISCARD;

#endif
