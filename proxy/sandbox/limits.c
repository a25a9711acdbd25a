/*
 * Limits as they are written, and those that the kernel has for a process and a namespace. Memory
 * and processors of all processes together are a control group's to bound (cgroup.c): RLIMIT_AS and
 * RLIMIT_DATA are each process's own, so that a command which forks has many times as much.
 */
#include "proxy/sandbox/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "logging/limits.h"

/* The least that kernel.pid_max can be is a little above the numbers that the kernel keeps. */
#define PID_MAX_LEAST 302

/* ---- as they are written ---- */

int limits_read_size(struct str s, uint64_t *ret)
{
	static const char units[] = "KMGT";
	uint64_t n;
	unsigned shift = 0;

	for (unsigned i = 0; s.n > 0 && units[i]; i++)
		if (s.p[s.n - 1] == units[i])
			shift = 10 * (i + 1);
	if (str_to_u64(str_head(s, s.n - (shift ? 1 : 0)), &n) != 0 || n == 0 ||
	    n > (uint64_t)INT64_MAX >> shift)
		return -1;
	*ret = n << shift;
	return 0;
}

/* 2, 0.5, 1.25: digits, and at most three behind one dot. */
static int read_cpus(struct str s, uint32_t *ret)
{
	const char *dot = s.n > 0 ? memchr(s.p, '.', s.n) : NULL;
	struct str whole = dot ? str_head(s, (size_t)(dot - s.p)) : s;
	struct str part = dot ? str_skip(s, whole.n + 1) : STR_NONE;
	uint64_t n, thousandths = 0;

	if (str_to_u64(whole, &n) != 0 || n > LIMIT_RUN_CPUS || (dot && part.n == 0) || part.n > 3)
		return -1;
	if (dot && str_to_u64(part, &thousandths) != 0)
		return -1;
	for (size_t i = part.n; i < 3; i++)
		thousandths *= 10;
	n = n * 1000 + thousandths;
	if (n < LIMIT_RUN_MILLICPUS_LEAST)
		return -1;
	*ret = (uint32_t)n;
	return 0;
}

int limits_read(struct sandbox_limits *l, const char *flag, const char *text, struct err *e)
{
	struct str s = str_from_c(text);
	uint64_t n;

	if (strcmp(flag, "--memory") == 0) {
		if (limits_read_size(s, &n) != 0 || n < LIMIT_RUN_MEMORY_LEAST)
			return err_set(e, "--memory takes a size like 512M or 2G, of 16M at least");
		l->memory = n;
		l->memory_text = text;
	} else if (strcmp(flag, "--file-size") == 0) {
		if (limits_read_size(s, &n) != 0)
			return err_set(e, "--file-size takes a size like 512M or 2G");
		l->file_size = n;
		l->file_size_text = text;
	} else if (strcmp(flag, "--cpus") == 0) {
		if (read_cpus(s, &l->millicpus) != 0)
			return err_set(e, "--cpus takes a number like 2 or 0.5, of 0.01 at least");
		l->cpus_text = text;
	} else {
		if (str_to_u64(s, &n) != 0 || n == 0 || n > LIMIT_RUN_PIDS_MOST)
			return err_set(e, "--pids takes a number from 1 to %u",
				       (unsigned)LIMIT_RUN_PIDS_MOST);
		l->pids = (uint32_t)n;
	}
	return 0;
}

uint32_t limits_pids_of(const struct sandbox_limits *l)
{
	return l->pids ? l->pids : LIMIT_RUN_PIDS;
}

/* ---- how many processes ---- */

static bool is_at_least(const char *release, unsigned long major, unsigned long minor)
{
	char *end;
	unsigned long a = strtoul(release, &end, 10), b;

	if (end == release || *end != '.')
		return false;
	b = strtoul(end + 1, NULL, 10);
	return a > major || (a == major && b >= minor);
}

enum limits_pids limits_pids_by(const char *release, bool is_root)
{
	/* Before 5.14 RLIMIT_NPROC counts all that the user has running anywhere; and it is never
	 * asked of the machine's root. */
	if (!is_root)
		return is_at_least(release, 5, 14) ? LIMITS_PIDS_RLIMIT : LIMITS_PIDS_NOT;
	/* Before 6.14 kernel.pid_max is the machine's, which root would change. */
	return is_at_least(release, 6, 14) ? LIMITS_PIDS_NUMBERS : LIMITS_PIDS_NOT;
}

/* Root here may be another user outside, to whom RLIMIT_NPROC does apply. */
static bool is_root_of_machine(void)
{
	unsigned long inside = 1, outside = 1;
	char line[64] = "", *next;
	int fd;
	ssize_t n;

	if (geteuid() != 0)
		return false;
	fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
	n = fd >= 0 ? read(fd, line, sizeof(line) - 1) : -1;
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return true;
	inside = strtoul(line, &next, 10);
	outside = strtoul(next, NULL, 10);
	return inside == 0 && outside == 0;
}

enum limits_pids limits_pids_here(void)
{
	struct utsname u;

	return uname(&u) == 0 ? limits_pids_by(u.release, is_root_of_machine()) : LIMITS_PIDS_NOT;
}

bool limits_pids_suffice(const struct sandbox_limits *l)
{
	switch (limits_pids_here()) {
	case LIMITS_PIDS_RLIMIT: return true;
	case LIMITS_PIDS_NUMBERS: return limits_pids_of(l) + 2 >= PID_MAX_LEAST;
	case LIMITS_PIDS_NOT: break;
	}
	return false;
}

/* The numbers of processes from 1 to below that. Only the namespace's own /proc is written to. */
static int bound_numbers(uint32_t pids, struct err *e)
{
	static const char path[] = "/proc/sys/kernel/pid_max";
	char text[16], back[16] = "";
	int fd, rc = -1;

	if (pids + 2 < PID_MAX_LEAST)
		return err_set(e, "fewer than %d processes need a control group",
			       PID_MAX_LEAST - 2);
	snprintf(text, sizeof(text), "%u\n", pids + 2);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "cannot open %s in the sandbox", path);
	if (write(fd, text, strlen(text)) < 0)
		err_sys(e, errno, "cannot write %s in the sandbox", path);
	else if (pread(fd, back, sizeof(back) - 1, 0) < 0 || strcmp(text, back) != 0)
		err_set(e, "%s does not keep what is written to it", path);
	else
		rc = 0;
	close(fd);
	return rc;
}

/* With room for one, which is this process, there must not be a second. */
static int prove_rlimit(struct err *e)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return errno == EAGAIN ? 0 : err_sys(e, errno, "cannot try a process");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return err_set(e, "RLIMIT_NPROC is not enforced here");
}

static int bound_rlimit(uint32_t pids, struct err *e)
{
	struct rlimit r, one;

	if (getrlimit(RLIMIT_NPROC, &r) != 0)
		return err_sys(e, errno, "cannot read RLIMIT_NPROC");
	/* Pid 1 is counted, and the command's own limit may be lower than ours. */
	if (r.rlim_max > pids + 1)
		r.rlim_max = pids + 1;
	if (r.rlim_cur > r.rlim_max)
		r.rlim_cur = r.rlim_max;
	one = (struct rlimit){1, r.rlim_max};
	if (setrlimit(RLIMIT_NPROC, &one) != 0)
		return err_sys(e, errno, "cannot set RLIMIT_NPROC");
	if (prove_rlimit(e) != 0)
		return -1;
	return setrlimit(RLIMIT_NPROC, &r) == 0 ? 0 : err_sys(e, errno, "cannot set RLIMIT_NPROC");
}

int limits_bound_pids(enum limits_pids by, uint32_t pids, struct err *e)
{
	switch (by) {
	case LIMITS_PIDS_RLIMIT: return bound_rlimit(pids, e);
	case LIMITS_PIDS_NUMBERS: return bound_numbers(pids, e);
	case LIMITS_PIDS_NOT: break;
	}
	return err_set(e, "this kernel cannot count the processes of a sandbox");
}

/* ---- the command's own ---- */

/* Lowers both, raises neither. */
static int lower(int what, uint64_t most, const char *name, struct err *e)
{
	struct rlimit r;

	if (getrlimit((__rlimit_resource_t)what, &r) != 0)
		return err_sys(e, errno, "cannot read %s", name);
	if (r.rlim_max > most)
		r.rlim_max = most;
	if (r.rlim_cur > r.rlim_max)
		r.rlim_cur = r.rlim_max;
	return setrlimit((__rlimit_resource_t)what, &r) == 0
		       ? 0
		       : err_sys(e, errno, "cannot set %s", name);
}

int limits_bound_command(const struct sandbox_limits *l, struct err *e)
{
	if (lower(RLIMIT_CORE, 0, "RLIMIT_CORE", e) != 0 ||
	    lower(RLIMIT_NOFILE, LIMIT_RUN_DESCRIPTORS, "RLIMIT_NOFILE", e) != 0)
		return -1;
	return l->file_size == 0 ? 0 : lower(RLIMIT_FSIZE, l->file_size, "RLIMIT_FSIZE", e);
}
