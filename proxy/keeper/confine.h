/*
 * What the proxy gives up once it has all that it works with: every file (Landlock), and the system
 * calls by which a process reaches into others, starts programs, or widens its rights (seccomp).
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

/* The two halves. 1: this kernel has no Landlock. */
int confine_files(const struct config *c, struct err *e);
int confine_calls(struct err *e) ATTR_NODISCARD;

#endif
