/*
 * What confine.c (the proxy) and confine_keeper.c share.
 */
#ifndef STILE_PROXY_KEEPER_CONFINE_INTERNAL_H
#define STILE_PROXY_KEEPER_CONFINE_INTERNAL_H

#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>

#include "proxy/keeper/confine.h"

/* linux/landlock.h, of which not all systems have a recent one. */
#define LANDLOCK_EXECUTE     (1ULL << 0)
#define LANDLOCK_WRITE	     (1ULL << 1)
#define LANDLOCK_READ	     (1ULL << 2)
#define LANDLOCK_READ_DIR    (1ULL << 3)
#define LANDLOCK_REMOVE_FILE (1ULL << 5)
#define LANDLOCK_MAKE_REG    (1ULL << 8)
#define LANDLOCK_TRUNCATE    (1ULL << 14)
#define LANDLOCK_OF_FILES    (LANDLOCK_EXECUTE | LANDLOCK_WRITE | LANDLOCK_READ | LANDLOCK_TRUNCATE)

#define CONFINE_LOW32  0xffffffffULL
#define TIOCLINUX_CALL 0x541c

/* Sanitizers read /proc, and stop their process by ptrace from a process of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONFINE_IS_SANITIZED true
#else
#define CONFINE_IS_SANITIZED false
#endif

struct confine_call {
	int number;
	const char *name;
};

#define CONFINE_CALL(call)                                                                         \
	{                                                                                          \
		SCMP_SYS(call), #call                                                              \
	}

/* What neither of the two may do. */
extern const struct confine_call confine_forbidden[];
extern const size_t confine_forbidden_n;
/* Adds those, processes and the like with that action. 0, or -errno. */
int confine_add_calls(scmp_filter_ctx ctx, uint32_t action);

/* Takes all rights on files from the calling thread but for what fill gives back. 1: this kernel
 * has no Landlock. */
int confine_with(int (*fill)(int ruleset, void *arg, struct err *e), void *arg, struct err *e);
/* Gives back rights on path and all below it; what is not there needs no rule. */
int confine_allow(int ruleset, const char *path, uint64_t rights, struct err *e) ATTR_NODISCARD;
int confine_allow_folder_of(int ruleset, const char *path, uint64_t rights,
			    struct err *e) ATTR_NODISCARD;

#endif
