/*
 * A process that is confined as the proxy is, or as the keeper is, and then tries.
 */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "logging/str.h"
#include "proxy/keeper/confine_internal.h"

static struct {
	char dir[64], secret[96], key[96], config_file[96], log[96];
	struct config *config;
} fx;

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* Runs fn in a process of its own, which has called confine first. The place where it was not
 * right, 0: nowhere. */
static int in_child(int (*confine)(void), int (*fn)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		int rc = confine();

		_exit(rc > 0 ? 77 : rc < 0 ? 99 : fn());
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int no_new_privileges(void)
{
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static int confine_both(void)
{
	struct err e = ERR_INIT;
	int rc;

	if (no_new_privileges() != 0)
		return -1;
	rc = confine_files(fx.config, &e);
	return rc != 0 ? rc : confine_calls(&e);
}

static bool refused(const char *path, int flags)
{
	int fd = open(path, flags, 0600);

	if (fd >= 0)
		close(fd);
	return fd < 0 && errno == EACCES;
}

static int try_files(void)
{
	char path[128];
	int fd;

	if (!refused(fx.secret, O_RDONLY) || !refused(fx.key, O_RDONLY))
		return 1;
	if (!refused(fx.secret, O_WRONLY | O_TRUNC) || !refused(fx.config_file, O_RDWR))
		return 2;
	(void)snprintf(path, sizeof(path), "%s/new", fx.dir);
	if (!refused(path, O_WRONLY | O_CREAT))
		return 3;
	(void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)getppid());
	if (!refused(path, O_RDONLY) || !refused("/proc/self/environ", O_RDONLY))
		return 4;
	(void)snprintf(path, sizeof(path), "/proc/self/root/%s", fx.secret);
	if (!refused(path, O_RDONLY) || !refused("/etc/passwd", O_RDONLY) ||
	    !refused(fx.dir, O_RDONLY | O_DIRECTORY))
		return 5;
	(void)snprintf(path, sizeof(path), "%s/link", fx.dir);
	if (link(fx.secret, path) == 0 || rename(fx.secret, path) == 0 || unlink(fx.secret) == 0 ||
	    symlink(fx.secret, path) == 0)
		return 6;
	/* What it works with: memory that has a name in /proc. */
	fd = memfd_create("test", MFD_CLOEXEC);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return fd < 0 || open(path, O_RDONLY) < 0 ? 7 : 0;
}

static void *nothing(void *arg)
{
	return arg;
}

static bool perm(long rc)
{
	return rc == -1 && errno == EPERM;
}

static int try_calls(void)
{
	char byte;
	struct iovec here = {&byte, 1}, there = {&byte, 1};
	char *const argv[] = {(char[]){"true"}, NULL};
	pthread_t t;
	pid_t pid;

	if (!perm(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL)))
		return 1;
	if (!perm(process_vm_readv(getppid(), &here, 1, &there, 1, 0)))
		return 2;
	if (!perm(execve("/bin/true", argv, NULL)) ||
	    !perm(syscall(SYS_execveat, -1, "/bin/true", argv, NULL, 0)))
		return 3;
	pid = fork();
	if (pid == 0)
		_exit(0);
	if (pid > 0 || errno != EPERM)
		return 4;
	if (!perm(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)))
		return 5;
	if (!perm(mount("none", "/mnt", "tmpfs", 0, NULL)) ||
	    !perm(syscall(SYS_unshare, 0x10000000)) || !perm(chroot("/")))
		return 6;
	if (!perm(syscall(SYS_keyctl, 0, 0)) || !perm(syscall(SYS_bpf, 0, NULL, 0)) ||
	    !perm(syscall(SYS_io_uring_setup, 1, NULL)) || !perm(syscall(SYS_userfaultfd, 0)) ||
	    !perm(syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0)) ||
	    !perm(syscall(SYS_pidfd_getfd, -1, 0, 0)) ||
	    !perm(syscall(SYS_open_by_handle_at, -1, NULL, 0)))
		return 7;
	/* Threads go on being made. */
	return pthread_create(&t, NULL, nothing, NULL) != 0 || pthread_join(t, NULL) != 0 ? 8 : 0;
}

static int confine_calls_alone(void)
{
	struct err e = ERR_INIT;

	return no_new_privileges() != 0 ? -1 : confine_calls(&e);
}

static void test_no_file_can_be_opened(void **state)
{
	int rc = in_child(confine_both, try_files);

	(void)state;
	if (rc == 77)
		skip(); /* no Landlock here */
	assert_int_equal(rc, 0);
}

static void test_no_call_reaches_out(void **state)
{
	(void)state;
	assert_int_equal(in_child(confine_calls_alone, try_calls), 0);
}

/* ---- the keeper ---- */

/* What a call of that number comes to in a process that is confined as the keeper is: 0: it goes
 * on. Else the status that it ended with; said: what was on stderr. */
static int call_as_keeper(long number, const long *a, char *said, size_t said_n)
{
	struct err e = ERR_INIT;
	int fds[2], status;
	ssize_t got = 0, n = 0;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		if (dup2(fds[1], STDERR_FILENO) < 0 || no_new_privileges() != 0 ||
		    confine_keeper_calls(&e) < 0)
			_exit(99);
		(void)syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
		_exit(0);
	}
	assert_true(pid > 0);
	close(fds[1]);
	while ((size_t)n + 1 < said_n && (got = read(fds[0], said + n, said_n - 1 - (size_t)n)) > 0)
		n += got;
	said[n] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void ends(long number, const char *name, const long *a)
{
	char said[512], wanted[64];

	(void)snprintf(wanted, sizeof(wanted), "`%s`", name);
	if (call_as_keeper(number, a, said, sizeof(said)) != CONFINE_ENDED)
		fail_msg("%s does not end it", name);
	if (!strstr(said, wanted))
		fail_msg("%s is told as: %s", name, said);
}

static void test_the_keeper_ends_with_a_forbidden_call(void **state)
{
	static const long bad[6] = {-1, -1, -1, -1, -1, -1};
	/* By their names, so that the table of the filter is not asked about itself. */
	static const char *const names[] = {"execve",
					    "execveat",
					    "fork",
					    "vfork",
					    "ptrace",
					    "process_vm_readv",
					    "process_vm_writev",
					    "pidfd_getfd",
					    "kcmp",
					    "kill",
					    "tkill",
					    "pidfd_send_signal",
					    "rt_sigqueueinfo",
					    "rt_tgsigqueueinfo",
					    "mount",
					    "umount2",
					    "pivot_root",
					    "chroot",
					    "fsopen",
					    "fsmount",
					    "fsconfig",
					    "fspick",
					    "move_mount",
					    "open_tree",
					    "mount_setattr",
					    "unshare",
					    "setns",
					    "setuid",
					    "setgid",
					    "setreuid",
					    "setregid",
					    "setresuid",
					    "setresgid",
					    "setfsuid",
					    "setfsgid",
					    "setgroups",
					    "capset",
					    "keyctl",
					    "add_key",
					    "request_key",
					    "io_uring_setup",
					    "io_uring_enter",
					    "io_uring_register",
					    "userfaultfd",
					    "bpf",
					    "perf_event_open",
					    "open_by_handle_at",
					    "name_to_handle_at",
					    "fanotify_init",
					    "kexec_load",
					    "init_module",
					    "finit_module",
					    "delete_module",
					    "reboot",
					    "mknod",
					    "mknodat",
					    "listen",
					    "accept",
					    "accept4",
					    "rename",
					    "renameat",
					    "renameat2",
					    "link",
					    "linkat",
					    "symlink",
					    "symlinkat",
					    "unlink",
					    "unlinkat",
					    "mkdir",
					    "mkdirat",
					    "rmdir",
					    "chmod",
					    "fchmod",
					    "fchmodat",
					    "chown",
					    "fchown",
					    "lchown",
					    "fchownat",
					    "truncate",
					    "setxattr",
					    "shmget",
					    "shmat",
					    "msgget",
					    "semget",
					    "mq_open",
					    "settimeofday",
					    "clock_settime",
					    "adjtimex",
					    "clock_adjtime",
					    "personality",
					    "modify_ldt",
					    "vmsplice"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		int number = seccomp_syscall_resolve_name(names[i]);

		if (number >= 0)
			ends(number, names[i], bad);
	}
}

static void test_the_keeper_ends_with_a_forbidden_argument(void **state)
{
	static const unsigned long spaces[] = {CLONE_NEWNS,
					       CLONE_NEWUSER,
					       CLONE_NEWPID,
					       CLONE_NEWNET,
					       CLONE_NEWIPC,
					       CLONE_NEWUTS,
					       0};
	static const int types[] = {SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET, 6 /* DCCP */, 10, 15};
	char said[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(spaces); i++)
		ends(SYS_clone, "clone", (const long[6]){(long)(spaces[i] | SIGCHLD)});
	for (int family = 0; family < 50; family++) {
		const long a[6] = {family, SOCK_STREAM, 0};

		if (family == AF_INET || family == AF_INET6 || family == AF_NETLINK)
			assert_int_equal(call_as_keeper(SYS_socket, a, said, sizeof(said)), 0);
		else
			ends(SYS_socket, "socket", a);
	}
	/* With bits that the kernel does not look at. */
	ends(SYS_socket, "socket", (const long[6]){0x100000000 | AF_UNIX, SOCK_STREAM, 0});
	ends(SYS_socket, "socket", (const long[6]){0x100000000 | AF_VSOCK, SOCK_STREAM, 0});
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		ends(SYS_socket, "socket", (const long[6]){AF_INET, types[i], 0});
		ends(SYS_socket, "socket",
		     (const long[6]){AF_INET6, types[i] | SOCK_CLOEXEC | SOCK_NONBLOCK, 0});
	}
	ends(SYS_socket, "socket", (const long[6]){AF_NETLINK, SOCK_RAW, 9 /* NETLINK_AUDIT */});
	ends(SYS_socketpair, "socketpair", (const long[6]){AF_INET, SOCK_STREAM, 0});
	ends(SYS_prctl, "prctl", (const long[6]){PR_SET_DUMPABLE, 1});
	ends(SYS_prctl, "prctl", (const long[6]){0x100000000 | PR_SET_DUMPABLE, 1});
	ends(SYS_ioctl, "ioctl", (const long[6]){0, TIOCSTI});
	ends(SYS_rt_sigaction, "rt_sigaction", (const long[6]){SIGSYS, 0, 0, 8});
}

#ifdef __x86_64__
static void test_the_keeper_ends_with_another_form(void **state)
{
	char said[512];

	(void)state;
	/* x32: the same calls under other numbers. */
	assert_int_equal(call_as_keeper(0x40000000 + 520, (const long[6]){0}, said, sizeof(said)),
			 CONFINE_ENDED);
	assert_non_null(strstr(said, "of another form"));
}
#endif

static void *call_blocked(void *arg)
{
	(void)syscall(SYS_setuid, -1);
	return arg;
}

/* As the broker's thread: it has all signals blocked but the one that tells. */
static int try_from_a_thread(void)
{
	sigset_t all;
	pthread_t t;

	sigfillset(&all);
	sigdelset(&all, SIGSYS);
	(void)pthread_sigmask(SIG_SETMASK, &all, NULL);
	return pthread_create(&t, NULL, call_blocked, NULL) != 0 || pthread_join(t, NULL) != 0;
}

static int confine_keeper_calls_alone(void)
{
	struct err e = ERR_INIT;
	int null = open("/dev/null", O_WRONLY);

	return no_new_privileges() != 0 || dup2(null, STDERR_FILENO) < 0 ? -1
									 : confine_keeper_calls(&e);
}

static void test_the_keeper_ends_from_a_thread(void **state)
{
	(void)state;
	assert_int_equal(in_child(confine_keeper_calls_alone, try_from_a_thread), CONFINE_ENDED);
}

/* What it lives on. */
static int try_what_the_keeper_does(void)
{
	struct ifaddrs *all = NULL;
	int pair[2], fd;
	pthread_t t;

	if (getifaddrs(&all) != 0)
		return 1;
	freeifaddrs(all);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return 2;
	if (socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) < 0 ||
	    socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) < 0)
		return 3;
	fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) != 0 || mlock(&fd, sizeof(fd)) != 0)
		return 4;
	if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
		return 5;
	return pthread_create(&t, NULL, nothing, NULL) != 0 || pthread_join(t, NULL) != 0 ? 6 : 0;
}

static void test_the_keeper_goes_on(void **state)
{
	(void)state;
	assert_int_equal(in_child(confine_keeper_calls_alone, try_what_the_keeper_does), 0);
}

static int confine_keeper_files_alone(void)
{
	struct err e = ERR_INIT;

	return no_new_privileges() != 0 ? -1 : confine_keeper_files(fx.config, fx.log, &e);
}

/* Sources, the log, what is the system's; nothing else of whose user it is. */
static int try_files_of_the_keeper(void)
{
	char path[128];

	if (open(fx.secret, O_RDONLY) < 0 || open(fx.log, O_WRONLY | O_APPEND | O_CREAT, 0600) < 0)
		return 1;
	if (open("/etc/hosts", O_RDONLY) < 0 && errno == EACCES)
		return 2;
	if (!refused(fx.config_file, O_RDONLY) || !refused(fx.config_file, O_WRONLY) ||
	    !refused(fx.key, O_RDONLY))
		return 3;
	if (!refused(fx.secret, O_WRONLY))
		return 4;
	(void)snprintf(path, sizeof(path), "%s/new", fx.dir);
	if (!refused(path, O_WRONLY | O_CREAT) || !refused(fx.dir, O_RDONLY | O_DIRECTORY))
		return 5;
	if (!refused("/proc/self/environ", O_RDONLY) || !refused("/", O_RDONLY | O_DIRECTORY))
		return 6;
	return 0;
}

/* A log that is no file gives no right to the folder that stile was started in. */
static int confine_without_log(void)
{
	struct err e = ERR_INIT;

	return chdir(fx.dir) != 0 || no_new_privileges() != 0
		       ? -1
		       : confine_keeper_files(fx.config, "stdout", &e);
}

static int try_where_it_was_started(void)
{
	return refused("new", O_WRONLY | O_CREAT) && refused(fx.log, O_WRONLY | O_CREAT) ? 0 : 1;
}

static void test_the_keeper_opens_its_files_alone(void **state)
{
	int rc = in_child(confine_keeper_files_alone, try_files_of_the_keeper);

	(void)state;
	if (rc == 77)
		skip(); /* no Landlock here */
	assert_int_equal(rc, 0);
	assert_int_equal(in_child(confine_without_log, try_where_it_was_started), 0);
}

static int set_up(void **state)
{
	char text[512];
	struct faults f;

	(void)state;
	(void)snprintf(fx.dir, sizeof(fx.dir), "/tmp/stile-confine-XXXXXX");
	if (!mkdtemp(fx.dir))
		return -1;
	(void)snprintf(fx.secret, sizeof(fx.secret), "%s/sources", fx.dir);
	(void)snprintf(fx.log, sizeof(fx.log), "%s/log", fx.dir);
	if (mkdir(fx.secret, 0700) != 0 || mkdir(fx.log, 0700) != 0)
		return -1;
	(void)snprintf(fx.secret, sizeof(fx.secret), "%s/sources/secret", fx.dir);
	(void)snprintf(fx.log, sizeof(fx.log), "%s/log/run.jsonl", fx.dir);
	(void)snprintf(fx.key, sizeof(fx.key), "%s/ca.key", fx.dir);
	(void)snprintf(fx.config_file, sizeof(fx.config_file), "%s/stile.yaml", fx.dir);
	write_file(fx.secret, "a value");
	write_file(fx.key, "a key");
	(void)snprintf(text, sizeof(text),
		       "version: 1\n"
		       "listen: [{proxy: '127.0.0.1:0'}]\n"
		       "credentials: {c: {from: {file: %s}, as: bearer}}\n"
		       "policies: {default: {rules: [{allow: a.test, credential: c}]}}\n",
		       fx.secret);
	write_file(fx.config_file, text);
	faults_init(&f, fx.config_file);
	if (config_load_file(fx.config_file, &fx.config, &f) < 0)
		return -1;
	faults_clear(&f);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	config_unref(fx.config);
	(void)unlink(fx.secret);
	(void)unlink(fx.key);
	(void)unlink(fx.config_file);
	(void)unlink(fx.log);
	*strrchr(fx.secret, '/') = '\0';
	*strrchr(fx.log, '/') = '\0';
	return rmdir(fx.secret) == 0 && rmdir(fx.log) == 0 ? rmdir(fx.dir) : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_file_can_be_opened),
		cmocka_unit_test(test_no_call_reaches_out),
		cmocka_unit_test(test_the_keeper_ends_with_a_forbidden_call),
		cmocka_unit_test(test_the_keeper_ends_with_a_forbidden_argument),
#ifdef __x86_64__
		cmocka_unit_test(test_the_keeper_ends_with_another_form),
#endif
		cmocka_unit_test(test_the_keeper_ends_from_a_thread),
		cmocka_unit_test(test_the_keeper_goes_on),
		cmocka_unit_test(test_the_keeper_opens_its_files_alone),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
