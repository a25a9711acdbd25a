/*
 * Ways by the kernel: privileges, namespaces, and calls with which sandboxes have been left before.
 * Arguments are such that nothing is changed where a call is let through; that it got as far as
 * looking at them is the finding.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "logging/attrs.h"
#include "proxy/prover/way.h"

#define TIOCLINUX_CALL 0x541c

/* ---- what we are ---- */

/* "Name:\tVALUE" of /proc/self/status; NULL: no such line. */
static const char *status_of(const char *status, const char *name)
{
	const char *s = strstr(status, name);

	return s ? s + strlen(name) + strspn(s + strlen(name), ": \t") : NULL;
}

static void try_privileges(const struct prover_options *o, struct finding *f)
{
	static const char *const sets[] = {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"};
	char status[8192];

	(void)o;
	if (way_read("/proc/self/status", status, sizeof(status)) < 0) {
		finding_set(f, WAY_UNSURE, "/proc/self/status: %s", strerror(errno));
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
		const char *v = status_of(status, sets[i]);

		if (v && v[strspn(v, "0")] != '\n')
			finding_set(f, WAY_OPEN, "%s is %.16s", sets[i], v);
	}
	finding_set(f, WAY_SHUT, "no capability, and none to be had");
}

static void try_new_privileges(const struct prover_options *o, struct finding *f)
{
	char status[8192];
	const char *v;

	(void)o;
	v = way_read("/proc/self/status", status, sizeof(status)) > 0
		    ? status_of(status, "NoNewPrivs")
		    : NULL;
	if (!v)
		finding_set(f, WAY_UNSURE, "the kernel does not say");
	else if (*v == '1')
		finding_set(f, WAY_SHUT, "no_new_privs is set");
	else
		finding_set(f, WAY_OPEN, "no_new_privs is not set: set-uid programs work");
}

static void try_filter(const struct prover_options *o, struct finding *f)
{
	char status[8192];
	const char *v;

	(void)o;
	v = way_read("/proc/self/status", status, sizeof(status)) > 0 ? status_of(status, "Seccomp")
								      : NULL;
	if (v && *v == '2')
		finding_set(f, WAY_SHUT, "a filter is there");
	else
		finding_set(f, WAY_OPEN, "no seccomp filter");
}

static void try_uid(const struct prover_options *o, struct finding *f)
{
	(void)o;
	if (geteuid() == 0)
		finding_set(f, WAY_OPEN, "this is uid 0");
	else
		finding_set(f, WAY_SHUT, "uid %u", (unsigned)geteuid());
}

/* ---- namespaces and mounts ---- */

static void try_user_namespace(const struct prover_options *o, struct finding *f)
{
	long pid;

	(void)o;
	pid = syscall(SYS_clone, (long)(CLONE_NEWUSER | SIGCHLD), 0L, 0L, 0L, 0L);
	if (pid == 0)
		_exit(0);
	finding_call(f, pid, "clone");
	finding_call(f, unshare(CLONE_NEWUSER), "unshare");
}

static void try_namespaces(const struct prover_options *o, struct finding *f)
{
	static const struct {
		int flag;
		const char *name;
	} kinds[] = {{CLONE_NEWNS, "mnt"},  {CLONE_NEWNET, "net"}, {CLONE_NEWPID, "pid"},
		     {CLONE_NEWIPC, "ipc"}, {CLONE_NEWUTS, "uts"}, {CLONE_NEWCGROUP, "cgroup"}};

	(void)o;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		char path[64];
		int fd;

		finding_call(f, unshare(kinds[i].flag), "unshare");
		snprintf(path, sizeof(path), "/proc/1/ns/%s", kinds[i].name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			finding_call(f, setns(fd, kinds[i].flag), "setns");
		if (fd >= 0)
			close(fd);
	}
}

static void try_mount(const struct prover_options *o, struct finding *f)
{
	/* Where mounts can be made at all, ours are to be seen by nobody and end with us. */
	bool alone = unshare(CLONE_NEWNS) == 0;
	int r;

	(void)o;
	if (alone && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
		finding_set(f, WAY_OPEN, "a mount namespace of our own can be had");
		return;
	}
	r = mount("none", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, NULL);
	finding_call(f, r, "mount");
	if (r == 0)
		(void)umount2("/tmp", MNT_DETACH);
	finding_call(f, syscall(SYS_fsopen, "tmpfs", 0L), "fsopen");
	finding_call(f, syscall(SYS_open_tree, -100L, "/", 1L), "open_tree");
	finding_call(f, syscall(SYS_pivot_root, "/nowhere", "/nowhere"), "pivot_root");
	finding_call(f, chroot("/"), "chroot");
}

/* ---- calls ---- */

struct call {
	const char *name;
	long number;
	long a[6];
};

static void try_calls_of(struct finding *f, const struct call *calls, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const long *a = calls[i].a;

		finding_call(f, syscall(calls[i].number, a[0], a[1], a[2], a[3], a[4], a[5]),
			     calls[i].name);
	}
}

static void try_io_uring(const struct prover_options *o, struct finding *f)
{
	static const struct call calls[] = {{"io_uring_setup", SYS_io_uring_setup, {0}},
					    {"io_uring_enter", SYS_io_uring_enter, {-1}},
					    {"io_uring_register", SYS_io_uring_register, {-1}}};

	(void)o;
	try_calls_of(f, calls, ARRAY_LEN(calls));
}

static void try_keyring(const struct prover_options *o, struct finding *f)
{
	/* KEYCTL_GET_KEYRING_ID of the session's keyring, without making one. */
	static const struct call calls[] = {{"keyctl", SYS_keyctl, {0, -3, 0}},
					    {"add_key", SYS_add_key, {0, 0, 0, 0, -2}},
					    {"request_key", SYS_request_key, {0, 0, 0, 0}}};

	(void)o;
	try_calls_of(f, calls, ARRAY_LEN(calls));
}

/* What neither a program nor a compiler wants, and kernels have been broken by. */
static void try_calls(const struct prover_options *o, struct finding *f)
{
	static const struct call calls[] = {
		{"bpf", SYS_bpf, {-1}},
		{"perf_event_open", SYS_perf_event_open, {0, -1, -1, -1, 0}},
		{"userfaultfd", SYS_userfaultfd, {0}},
		{"kexec_load", SYS_kexec_load, {0, 0, 0, -1}},
		{"kexec_file_load", SYS_kexec_file_load, {-1, -1}},
		{"init_module", SYS_init_module, {0}},
		{"finit_module", SYS_finit_module, {-1}},
		{"delete_module", SYS_delete_module, {0}},
		{"open_by_handle_at", SYS_open_by_handle_at, {-1}},
		{"reboot", SYS_reboot, {0}},
		{"swapon", SYS_swapon, {0}},
		{"swapoff", SYS_swapoff, {0}},
		{"acct", SYS_acct, {1}},
		{"quotactl", SYS_quotactl, {-1}},
		{"syslog", SYS_syslog, {10}},
		{"fanotify_init", SYS_fanotify_init, {-1}},
		{"lookup_dcookie", SYS_lookup_dcookie, {0}},
		{"settimeofday", SYS_settimeofday, {1}},
		{"clock_settime", SYS_clock_settime, {0, 1}},
		{"mount_setattr", SYS_mount_setattr, {-1}},
		{"move_mount", SYS_move_mount, {-1}},
		{"fspick", SYS_fspick, {-1}},
		{"personality", SYS_personality, {0x0040000}}, /* ADDR_NO_RANDOMIZE */
		{"nfsservctl", SYS_nfsservctl, {0}},
#ifdef SYS_iopl
		{"iopl", SYS_iopl, {3}},
		{"ioperm", SYS_ioperm, {0x3f8, 1, 1}},
#endif
	};

	(void)o;
	try_calls_of(f, calls, ARRAY_LEN(calls));
}

/* Typing into the terminal that outlives us. */
static void try_terminal(const struct prover_options *o, struct finding *f)
{
	static const unsigned long requests[] = {TIOCSTI, TIOCLINUX_CALL};
	int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

	(void)o;
	if (fd < 0) {
		finding_set(f, WAY_NONE, "no terminal");
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		long r = ioctl(fd, requests[i], NULL);

		/* EIO: the kernel's own switch; ENOTTY: not that kind of terminal. */
		if (r != 0 && (errno == EIO || errno == ENOTTY))
			finding_set(f, WAY_SHUT, "%s", strerror(errno));
		else
			finding_call(f, r, i ? "TIOCLINUX" : "TIOCSTI");
	}
	close(fd);
}

const struct way ways_kernel[] = {
	{"uid", "being root", try_uid},
	{"privilege", "capabilities", try_privileges},
	{"setuid", "privileges by set-uid programs", try_new_privileges},
	{"filter", "system calls without a filter", try_filter},
	{"userns", "a user namespace of our own", try_user_namespace},
	{"namespace", "other namespaces", try_namespaces},
	{"mount", "mounts, another root", try_mount},
	{"io_uring", "io_uring", try_io_uring},
	{"keyring", "the kernel's keyrings", try_keyring},
	{"calls", "calls that kernels have been broken by", try_calls},
	{"terminal", "typing into the terminal", try_terminal},
	{NULL, NULL, NULL},
};
