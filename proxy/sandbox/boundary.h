/*
 * The file system as the command finds it: read-only but for the workspace, with folders of its
 * own, in memory, where programs expect to write, a /dev with what all programs need, and without
 * the rest of the user's home.
 */
#ifndef STILE_PROXY_SANDBOX_BOUNDARY_H
#define STILE_PROXY_SANDBOX_BOUNDARY_H

#include "proxy/sandbox/files.h"

/* Inside, as pid 1 with its capabilities, when all that lies in the workspace has been covered. */
int boundary_close(const struct files_plan *p, struct err *e) ATTR_NODISCARD;

#endif
