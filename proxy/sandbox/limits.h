/*
 * What the command and all that it starts may use: memory, processors, processes, the size of a
 * file. What each is enforced by is decided here; the control group itself is cgroup.h. A limit
 * that was asked for and cannot be enforced is no limit, so then there is no sandbox.
 */
#ifndef STILE_PROXY_SANDBOX_LIMITS_H
#define STILE_PROXY_SANDBOX_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "logging/err.h"
#include "logging/str.h"

struct sandbox_limits {
	/* plain; 0: none was asked for */
	uint64_t memory;    /* bytes, of all processes together, with what they write in memory */
	uint64_t file_size; /* bytes */
	uint32_t millicpus; /* 1000 is one processor's time */
	uint32_t pids; /* processes and threads; 0: LIMIT_RUN_PIDS, as far as that can be had */
	/* borrowed: as it was said, for messages */
	const char *memory_text, *cpus_text, *file_size_text;
};

/* A number of bytes, or one with K, M, G or T behind it (of 1024). -1: it is none, or 0. */
int limits_read_size(struct str s, uint64_t *ret) ATTR_NODISCARD;
/* `flag` (--memory, --cpus, --pids, --file-size) says `text`. -1: e names the flag and what it
 * takes. */
int limits_read(struct sandbox_limits *l, const char *flag, const char *text,
		struct err *e) ATTR_NODISCARD;

/* What bounds the number of processes without a control group. */
enum limits_pids {
	LIMITS_PIDS_NOT,     /* nothing on this kernel, for this user */
	LIMITS_PIDS_RLIMIT,  /* RLIMIT_NPROC, which counts in the sandbox's user namespace */
	LIMITS_PIDS_NUMBERS, /* kernel.pid_max of the sandbox's pid namespace */
};

/* The kernel's release as uname says it, and whether the user is root of the machine. */
enum limits_pids limits_pids_by(const char *release, bool is_root);
/* The same of this kernel and user. */
enum limits_pids limits_pids_here(void);

/* Whether that bounds as many as l says. */
bool limits_pids_suffice(const struct sandbox_limits *l);

/* How many processes and threads the command may have. */
uint32_t limits_pids_of(const struct sandbox_limits *l);

/* In pid 1 of the sandbox, alone and in its own /proc: bounds what it will start, and proves it.
 * -1: the bound does not hold. */
int limits_bound_pids(enum limits_pids by, uint32_t pids, struct err *e) ATTR_NODISCARD;
/* In the process that will be the command. */
int limits_bound_command(const struct sandbox_limits *l, struct err *e) ATTR_NODISCARD;

#endif
