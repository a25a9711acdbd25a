/*
 * A process that is confined as the proxy is, and then tries.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "logging/str.h"
#include "proxy/keeper/confine.h"

static struct {
	char dir[64], secret[96], key[96], config_file[96];
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

static int set_up(void **state)
{
	char text[512];
	struct faults f;

	(void)state;
	(void)snprintf(fx.dir, sizeof(fx.dir), "/tmp/stile-confine-XXXXXX");
	if (!mkdtemp(fx.dir))
		return -1;
	(void)snprintf(fx.secret, sizeof(fx.secret), "%s/secret", fx.dir);
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
	return rmdir(fx.dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_file_can_be_opened),
		cmocka_unit_test(test_no_call_reaches_out),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
