/*
 * The admin socket of `stile serve`: a Unix socket for root and the user that stile runs as, on
 * which the CLI asks how the proxy is and makes tokens of sandboxes. One connection, one line of
 * JSON, one line back. Driven by the main thread's poll; nothing here blocks, and each connection
 * is bounded in bytes, in time and in number. What a request means is admin_ops.h's.
 */
#ifndef STILE_PROXY_CLI_ADMIN_SERVER_H
#define STILE_PROXY_CLI_ADMIN_SERVER_H

#include <poll.h>

#include "logging/limits.h"
#include "policy/config.h"
#include "proxy/session/engine.h"

#define ADMIN_FDS (LIMIT_ADMIN_CONNECTIONS + 1)

struct admin;

/* Opens c->admin_path, mode 0600; *ret is NULL, and the result 0, where there is none. */
int admin_open(const struct config *c, struct admin **ret, struct err *e) ATTR_NODISCARD;
/* The socket was made by root and stile goes on as this user: it is theirs, too. */
int admin_give(struct admin *a, unsigned uid, unsigned gid, struct err *e) ATTR_NODISCARD;
/* What to poll for, in v of ADMIN_FDS, and for how long at most; how many. a: NULL is accepted,
 * here and below. */
nfds_t admin_poll(struct admin *a, struct pollfd *v, int *wait_ms);
/* Behind the poll of those, and at least every half second: goes as far as can be gone now. */
void admin_turn(struct admin *a, const struct pollfd *v, nfds_t n, struct engine *g);
void admin_free(struct admin *a); /* and takes the socket's path away */

#endif
