/*
 * A control group (version 2) for one sandbox. It lies within the group that stile was started in,
 * or beside it where that loosens no limit of that one. Nothing else of the machine's groups is
 * changed, but that the machine's root group hands controllers on that it did not. A process of its
 * own removes it, also when stile is killed.
 */
#ifndef STILE_PROXY_SANDBOX_CGROUP_H
#define STILE_PROXY_SANDBOX_CGROUP_H

#include <sys/types.h>

#include "proxy/sandbox/limits.h"

#define CGROUP_PATH_MAX 4096

struct cgroup_place {
	char parent[CGROUP_PATH_MAX]; /* the folder that gets a group */
	bool moves_self; /* stile has to leave it first: a group with processes has no groups with
			    limits */
};

/* Where a group with these limits can be made. mount: where the groups of version 2 are; own: the
 * group of process pid, as /proc/self/cgroup has it. Only reads. -1: nowhere, and e says why. */
int cgroup_choose(const char *mount, const char *own, pid_t pid, const struct sandbox_limits *l,
		  struct cgroup_place *ret, struct err *e) ATTR_NODISCARD;

struct cgroup;

/* Makes one with these limits. Before there is another process of stile's, since it may move this
 * one. -1: there is none to be had, and e names the flag that needs one and what to do. */
int cgroup_new(const struct sandbox_limits *l, struct cgroup **ret, struct err *e) ATTR_NODISCARD;
/* pid and what it will start are in it from here on. */
int cgroup_enter(const struct cgroup *g, pid_t pid, struct err *e) ATTR_NODISCARD;
/* In a copy of this process (fork): lets go of it. NULL is accepted. */
void cgroup_leave(struct cgroup *g);
/* Tells on stderr which of its limits was reached. NULL is accepted. */
void cgroup_tell(const struct cgroup *g);
/* Its processes are killed and it is removed. NULL is accepted. */
void cgroup_free(struct cgroup *g);

#endif
