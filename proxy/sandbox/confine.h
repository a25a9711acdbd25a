/*
 * Takes privileges from pid 1 of the sandbox, and so from everything it starts, for good.
 */
#ifndef STILE_PROXY_SANDBOX_CONFINE_H
#define STILE_PROXY_SANDBOX_CONFINE_H

#include "logging/err.h"

/* No capability now and none after any exec, also for uid 0; no set-user-id program takes effect.
 */
int confine_drop_privileges(struct err *e) ATTR_NODISCARD;
/* The system call filter, which README.md describes: made, which takes a while, */
struct confine_filter;
int confine_filter_make(struct confine_filter **ret, struct err *e) ATTR_NODISCARD;
/* and put in force for this process and all that it starts, behind the above. Frees f. */
int confine_filter_calls(struct confine_filter *f, struct err *e) ATTR_NODISCARD;

#endif
