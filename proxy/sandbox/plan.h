/*
 * What the files that make the plan share.
 */
#ifndef STILE_PROXY_SANDBOX_PLAN_H
#define STILE_PROXY_SANDBOX_PLAN_H

#include "proxy/sandbox/files.h"

/* -1: memory is out. */
int plan_add(struct files_plan *p, const char *path, enum files_how how) ATTR_NODISCARD;
bool plan_is_at_or_below(const char *path, const char *dir);
/* Which homes are replaced by empty ones, what of them stays visible, and the usual places of
 * secrets elsewhere. */
int plan_homes(struct files_plan *p, const struct files_options *o) ATTR_NODISCARD;

#endif
