/*
 * What the proxy and the keeper give up once they have all that they work with: files (Landlock),
 * and the system calls by which a process reaches into others, starts programs, or widens its
 * rights (seccomp).
 */
#ifndef STILE_PROXY_KEEPER_CONFINE_H
#define STILE_PROXY_KEEPER_CONFINE_H

#include <stdbool.h>

#include "logging/err.h"
#include "policy/config.h"

/* For the calling thread and those that start later: call it before there are others. *ret_weak:
 * NULL, or static text that says what this kernel does not do. -1: what it does do could not be
 * had.
 */
int confine_proxy(const struct config *c, const char **ret_weak, struct err *e) ATTR_NODISCARD;

/* The same of the keeper, once it is who it will be and before it asks anybody. It opens what a
 * configuration names, so its files are bounded only where that is never read again; log_to: as in
 * keeper.h. A call that it may not make is told on stderr, and ends it. */
int confine_keeper(const struct config *c, const char *log_to, bool reloads,
		   struct err *e) ATTR_NODISCARD;

/* The two halves of either. 1: this kernel has no Landlock. */
int confine_files(const struct config *c, struct err *e);
int confine_calls(struct err *e) ATTR_NODISCARD;
int confine_keeper_files(const struct config *c, const char *log_to, struct err *e);
int confine_keeper_calls(struct err *e) ATTR_NODISCARD;
/* The status with which a process ends that made such a call. */
#define CONFINE_ENDED 159

#endif
