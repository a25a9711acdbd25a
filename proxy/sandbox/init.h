/*
 * What happens inside the sandbox before the command and beside it: pid 1.
 */
#ifndef STILE_PROXY_SANDBOX_INIT_H
#define STILE_PROXY_SANDBOX_INIT_H

#include <signal.h>
#include <stdint.h>

#include "logging/attrs.h"
#include "proxy/sandbox/doors.h"
#include "proxy/sandbox/files.h"
#include "proxy/sandbox/limits.h"

struct init_options {
	/* borrowed */
	char *const *argv; /* the command; NULL-terminated */
	char *const *envp;
	const struct files_plan *files;
	const struct sandbox_limits *limits;
	const struct doors *doors;
	char *args; /* memory of stile's own arguments, wiped: they show in /proc/1/cmdline */
	size_t args_len;
	const sigset_t *mask; /* the signal mask the command gets */
	/* plain */
	int channel;
	uid_t uid;
	gid_t gid;
	uint16_t proxy_port;
	enum limits_pids pids_by;
	bool pids_needed; /* without that bound there is no sandbox */
};

/* Runs in the child of namespace_fork. Ends with the command's status, 128+signal if one killed it,
 * 125 if there is no sandbox (told over the channel). */
ATTR_NORETURN void init_main(const struct init_options *o);

#endif
