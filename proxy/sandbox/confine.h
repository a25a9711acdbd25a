/*
 * Takes privileges from pid 1 of the sandbox, and so from everything it starts, for good.
 */
#ifndef STILE_PROXY_SANDBOX_CONFINE_H
#define STILE_PROXY_SANDBOX_CONFINE_H

#include "logging/err.h"

/* No capability now and none after any exec, also for uid 0; no set-user-id program takes effect.
 */
int confine_drop_privileges(struct err *e) ATTR_NODISCARD;
/* The system call filter: what README.md lists. */
int confine_filter_calls(struct err *e) ATTR_NODISCARD;

#endif
