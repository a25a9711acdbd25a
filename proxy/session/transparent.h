/*
 * The target of a connection that knows no proxy: the name that its address was made up for.
 */
#ifndef STILE_PROXY_SESSION_TRANSPARENT_H
#define STILE_PROXY_SESSION_TRANSPARENT_H

#include "proxy/session/worker.h"

/* Where did the client of fd, which en accepted, mean to go? The host is a name, or the address
 * itself where that was not made up. NULL; or why no rule can admit it, with the address as the
 * host. */
const char *transparent_target(const struct entrance *en, int fd, struct host *ret,
			       uint16_t *ret_port);

#endif
