/*
 * Runs one program of `stile doctor`, bounded in time and in what it may say.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/wait.h>

#include "proxy/cli/doctor.h"
#include "proxy/net/poll_again.h"

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

ATTR_NORETURN static void become(const char *const *argv, const char *const *env, const char *dir,
				 int out)
{
	int null = open("/dev/null", O_RDONLY);

	setpgid(0, 0);
	(void)signal(SIGPIPE, SIG_DFL);
	for (const char *const *v = env; v && *v; v++) {
		char *copy = strdup(*v);

		if (!copy || putenv(copy) != 0)
			_exit(127);
	}
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
	    dup2(out, STDERR_FILENO) < 0 || chdir(dir) != 0)
		_exit(127);
	closefrom(STDERR_FILENO + 1);
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	_exit(127);
}

/* Until it closes its end or the time is up. True: in time. */
static bool gather(int fd, int64_t until, struct strbuf *out)
{
	char buf[4096];

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = until - now_ms();
		ssize_t n;

		if (left <= 0)
			return false;
		if (poll_calmly(&p, 1, (int)left) <= 0)
			continue;
		n = read(fd, buf, sizeof(buf));
		if (n == 0 || (n < 0 && errno != EINTR))
			return true;
		if (n > 0)
			strbuf_add(out, str_from(buf, (size_t)n));
	}
}

static int status_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int doctor_run(const char *const *argv, const char *const *env, const char *dir,
	       unsigned timeout_ms, struct strbuf *out, struct doctor_run *ret, struct err *e)
{
	int fds[2], status = 0;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return err_sys(e, errno, "no pipe");
	pid = fork();
	if (pid == 0)
		become(argv, env, dir, fds[1]);
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return err_sys(e, errno, "no process");
	}
	setpgid(pid, pid); /* both do: who comes first */
	ret->timed_out = !gather(fds[0], now_ms() + timeout_ms, out);
	close(fds[0]);
	if (ret->timed_out)
		kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	kill(-pid, SIGKILL);
	ret->status = status_of(status);
	return 0;
}
