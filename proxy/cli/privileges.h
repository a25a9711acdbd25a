/*
 * What the daemon gives up once its sockets are open.
 */
#ifndef STILE_PROXY_CLI_PRIVILEGES_H
#define STILE_PROXY_CLI_PRIVILEGES_H

#include "logging/err.h"

/* No core dumps and no ptrace by the same user: the process holds secrets. Call it first. */
void privileges_guard_memory(void);
/* Drops the bounding set and sets no-new-privileges: what is never needed, so call it before any
 * thread starts. Both are a thread's own, and later ones inherit them. */
int privileges_limit(struct err *e) ATTR_NODISCARD;
/* Becomes `user` (NULL: stays who it is) and drops every capability of the calling thread; threads
 * that start later have none either. */
int privileges_drop(const char *user, struct err *e) ATTR_NODISCARD;

/* Could this process become `user`? For a start that says so once, before there are others. */
int privileges_check(const char *user, struct err *e) ATTR_NODISCARD;
/* The ids of a user by name. */
int privileges_find(const char *user, unsigned *ret_uid, unsigned *ret_gid,
		    struct err *e) ATTR_NODISCARD;

#endif
