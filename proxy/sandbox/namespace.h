/*
 * The namespaces of a run: user, mount, pid, network, IPC and UTS, made without root. In the new
 * network there is nothing but loopback, so no way out has to be blocked.
 */
#ifndef STILE_PROXY_SANDBOX_NAMESPACE_H
#define STILE_PROXY_SANDBOX_NAMESPACE_H

#include <stdint.h>
#include <sys/types.h>

#include "logging/err.h"

/* Like fork: the child is pid 1 of its own namespaces. Before any thread is started. -1: no such
 * namespaces are to be had, and e names the kernel's setting that is in the way. */
pid_t namespace_fork(struct err *e);
#define NAMESPACE_NOT_ROOT 1000

/* In the child: the same user and group inside as outside, and no other; for root the inside has
 * another number, so that no program takes itself for root. */
int namespace_map_ids(uid_t uid, gid_t gid, struct err *e) ATTR_NODISCARD;
int namespace_loopback_up(struct err *e) ATTR_NODISCARD;

/* Adds to e what of the kernel's settings may be the cause of a refusal with sys_errno. Returns -1.
 */
int namespace_explain(int sys_errno, struct err *e);

#endif
