/*
 * One sandboxed command, from the configuration to its exit status.
 */
#ifndef STILE_PROXY_SANDBOX_RUN_H
#define STILE_PROXY_SANDBOX_RUN_H

#include "logging/err.h"
#include "policy/config.h"
#include "proxy/sandbox/cgroup.h"
#include "proxy/sandbox/limits.h"

#define SANDBOX_PROXY_PORT	  3128
#define SANDBOX_STATUS_NO_SANDBOX 125

struct sandbox_options {
	/* borrowed */
	const char *id; /* `sandbox` of every record */
	struct config *config;
	const char *config_file; /* NULL: none was read */
	const char *policy_name;
	const char *log_to;    /* "stdout", a file, "syslog:..." */
	const char *log_dir;   /* hidden from the command; NULL: none */
	const char *workspace; /* where the command starts, and may write; NULL: none */
	const char *const *hide, *const *show; /* paths */
	const char *const *env_wanted;	       /* --env, checked by env_check */
	char *const *argv;		       /* the command; NULL-terminated */
	const struct sandbox_limits *limits;
	struct cgroup *cgroup; /* with those limits; NULL: none */
	char *args;	       /* stile's own arguments, wiped inside (/proc/1/cmdline) */
	/* plain */
	size_t env_wanted_n, args_len, hide_n, show_n;
	uint64_t timeout_s; /* 0: none */
};

struct sandbox_outcome {
	int status;	  /* for exit */
	uint64_t refused; /* requests and tunnels, as far as the log is a file */
};

/* 0 with the outcome when the command was started, whatever became of it; -1: there was no sandbox
 * and the command did not run. No thread may exist yet. Signals stay blocked in this process. */
int sandbox_run(const struct sandbox_options *o, struct sandbox_outcome *ret,
		struct err *e) ATTR_NODISCARD;

#endif
