/*
 * What the daemon gives up once its sockets are open.
 */
#ifndef STILE_PROXY_CLI_PRIVILEGES_H
#define STILE_PROXY_CLI_PRIVILEGES_H

#include "logging/err.h"

/* No core dumps and no ptrace by the same user: the process holds secrets. Call it first. */
void privileges_guard_memory(void);
/* Becomes `user` (NULL: stays who it is), drops every capability and the bounding set, and sets
 * no-new-privileges. Call it before threads start: ids and capabilities are a thread's own. */
int privileges_drop(const char *user, struct err *e) ATTR_NODISCARD;

#endif
