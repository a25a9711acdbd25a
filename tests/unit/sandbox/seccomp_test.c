/*
 * The filters, call by call: what the defaults of container runtimes refuse is refused, and what
 * programs live on is not. Each call in a child, with arguments that change nothing.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proxy/sandbox/confine.h"

/* errno of the call within the filters, 0 when it succeeds. */
static int ask(long number, const long *a)
{
	int status, pid = fork();

	if (pid == 0) {
		struct confine_filter *filter = NULL;
		struct err e = ERR_INIT;

		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
		    confine_filter_make(&filter, &e) != 0 || confine_filter_calls(filter, &e) != 0)
			_exit(255);
		errno = 0;
		if (syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) >= 0)
			_exit(0);
		_exit(errno);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_not_equal(WEXITSTATUS(status), 255);
	return WEXITSTATUS(status);
}

static void test_refused(void **state)
{
	static const char *const names[] = {"acct",
					    "add_key",
					    "bpf",
					    "clock_adjtime",
					    "clock_settime",
					    "create_module",
					    "delete_module",
					    "fanotify_init",
					    "finit_module",
					    "fsconfig",
					    "fsmount",
					    "fsopen",
					    "fspick",
					    "get_kernel_syms",
					    "get_mempolicy",
					    "init_module",
					    "io_uring_enter",
					    "io_uring_register",
					    "io_uring_setup",
					    "ioperm",
					    "iopl",
					    "kcmp",
					    "kexec_file_load",
					    "kexec_load",
					    "keyctl",
					    "lookup_dcookie",
					    "mbind",
					    "migrate_pages",
					    "mount",
					    "mount_setattr",
					    "move_mount",
					    "move_pages",
					    "nfsservctl",
					    "open_by_handle_at",
					    "open_tree",
					    "perf_event_open",
					    "pidfd_getfd",
					    "pivot_root",
					    "process_madvise",
					    "query_module",
					    "quotactl",
					    "quotactl_fd",
					    "reboot",
					    "request_key",
					    "set_mempolicy",
					    "setns",
					    "settimeofday",
					    "swapoff",
					    "swapon",
					    "sysfs",
					    "syslog",
					    "umount2",
					    "unshare",
					    "uselib",
					    "userfaultfd",
					    "ustat",
					    "vhangup",
					    "_sysctl",
					    "clone3"};
	static const long bad[6] = {-1, -1, -1, -1, -1, -1};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		int number = seccomp_syscall_resolve_name(names[i]), got;

		if (number < 0)
			continue; /* not on this architecture */
		got = ask(number, bad);
		if (got != EPERM && got != ENOSYS)
			fail_msg("%s: %s", names[i], strerror(got));
	}
	/* Calls of the future. */
	assert_int_equal(ask(1020, bad), ENOSYS);
}

static void test_by_argument(void **state)
{
	static const unsigned long flags[] = {CLONE_NEWNS,    CLONE_NEWUSER, CLONE_NEWPID,
					      CLONE_NEWNET,   CLONE_NEWIPC,  CLONE_NEWUTS,
					      CLONE_NEWCGROUP};

	(void)state;
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		const long a[6] = {(long)(flags[i] | SIGCHLD)},
			   with[6] = {(long)(flags[i] | CLONE_FS)};

		assert_int_equal(ask(SYS_clone, a), EPERM);
		assert_int_equal(ask(SYS_clone, with), EPERM);
	}
	for (int family = 0; family < 50; family++) {
		const long a[6] = {family, SOCK_DGRAM, 0};
		int got = ask(SYS_socket, a);

		if (family == AF_UNIX || family == AF_INET)
			assert_int_equal(got, 0);
		else if (family > 0 && family != AF_INET6 && family != AF_NETLINK &&
			 family != AF_PACKET)
			assert_int_equal(got, EAFNOSUPPORT);
	}
	/* With bits that the kernel does not look at. */
	assert_int_equal(ask(SYS_socket,
			     (const long[6]){(long)(0x100000000 | AF_VSOCK), SOCK_STREAM, 0}),
			 EAFNOSUPPORT);
	assert_int_equal(ask(SYS_ioctl, (const long[6]){0, 0x5412, 0}), EPERM);
	assert_int_equal(ask(SYS_ioctl, (const long[6]){0, (long)0x100005412, 0}), EPERM);
	assert_int_equal(ask(SYS_personality, (const long[6]){0xffffffff}), 0);
	assert_int_equal(ask(SYS_personality, (const long[6]){0}), 0);
	assert_int_not_equal(ask(SYS_personality, (const long[6]){0x0040000}), 0);
	assert_int_not_equal(ask(SYS_personality, (const long[6]){(long)0x100000000}), 0);
}

/* What fails here for its arguments has been let through. */
static void test_let_through(void **state)
{
	static const char *const names[] = {"read",
					    "write",
					    "openat",
					    "openat2",
					    "close",
					    "close_range",
					    "mmap",
					    "mprotect",
					    "epoll_create1",
					    "eventfd2",
					    "pipe2",
					    "execveat",
					    "wait4",
					    "clock_gettime",
					    "getrandom",
					    "memfd_create",
					    "statx",
					    "renameat2",
					    "copy_file_range",
					    "inotify_init1",
					    "prctl",
					    "seccomp",
					    "landlock_create_ruleset",
					    "ptrace",
					    "process_vm_readv",
					    "splice",
					    "sendmmsg",
					    "recvmmsg",
					    "timerfd_create",
					    "pidfd_open",
					    "rseq",
					    "membarrier",
					    "sched_setaffinity",
					    "faccessat2",
					    "setsid",
					    "flock",
					    "fallocate"};
	static const long bad[6] = {-1, -1, -1, -1, -1, -1};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		int number = seccomp_syscall_resolve_name(names[i]), got;

		assert_true(number >= 0);
		got = ask(number, bad);
		if (got == ENOSYS)
			fail_msg("%s: refused", names[i]);
	}
	assert_int_equal(ask(SYS_getpid, bad), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_by_argument),
		cmocka_unit_test(test_let_through),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
