/*
 * A socket in another network namespace. Nothing else of stile enters that: what is accepted there
 * is served, and goes out, from stile's own.
 */
#ifndef STILE_PROXY_NET_NETNS_H
#define STILE_PROXY_NET_NETNS_H

#include "logging/err.h"

/* open is called in a child in the namespace of `file` (/run/netns/NAME, /proc/PID/ns/net), and its
 * descriptor is the result. Before there are threads; needs CAP_SYS_ADMIN. */
int netns_open(const char *file, int (*open_in)(const void *arg, int *ret_fd, struct err *e),
	       const void *arg, int *ret_fd, struct err *e) ATTR_NODISCARD;

#endif
