/*
 * A helper program that prints the secret. No shell; nothing on stdin; its stderr goes nowhere, as
 * it could hold what stdout does. It gets a process group, and that is killed as soon as the helper
 * has ended or its time is over, so that nothing of it stays. What it prints is bounded.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "logging/limits.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"
#include "proxy/credentials/token.h"
#include "proxy/net/watch.h"

struct exec {
	/* borrowed */
	const struct config_credential *c;
	struct loop *loop;
	/* owned, while a helper runs */
	struct secret *output;
	struct watch *readable, *exited;
	/* owned */
	char **argv; /* the texts are c's */
	struct timer timer;
	/* plain */
	source_result_fn *on_result;
	void *arg;
	pid_t pid; /* 0: none runs */
	int out, pidfd;
	size_t n;
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* The helper and all that it started. Its pid is not given to others before it was waited for. */
static void end_helper(struct exec *x, siginfo_t *ret)
{
	*ret = (siginfo_t){0};
	watch_free(x->readable);
	watch_free(x->exited);
	x->readable = x->exited = NULL;
	timer_stop(&x->timer);
	if (x->pid > 0) {
		(void)kill(-x->pid, SIGKILL);
		(void)kill(x->pid, SIGKILL);
		while (waitid(P_PID, (id_t)x->pid, ret, WEXITED) < 0 && errno == EINTR)
			;
	}
	x->pid = 0;
	close_fd(&x->out);
	close_fd(&x->pidfd);
}

static void finish(struct exec *x, struct secret *value, int64_t life_us, const struct err *why)
{
	secret_unref(x->output);
	x->output = NULL;
	x->on_result(x->arg, value, life_us, why);
}

static void give_up(struct exec *x, const char *what)
{
	struct err e = ERR_INIT;
	siginfo_t si;

	end_helper(x, &si);
	(void)err_reason(&e, REASON_CREDENTIAL_UNAVAILABLE, "%s", what);
	finish(x, NULL, 0, &e);
}

/* 1: there may be more; 0: no more for now, or its end; -1: too much. */
static int read_some(struct exec *x)
{
	ssize_t got = read(x->out, secret_room(x->output) + x->n, LIMIT_SOURCE_BYTES + 1 - x->n);

	if (got < 0)
		return errno == EINTR ? 1 : 0;
	x->n += (size_t)got;
	if (x->n > LIMIT_SOURCE_BYTES)
		return -1;
	if (got == 0) {
		/* Its end: not to be told again and again until the helper has ended too. */
		watch_free(x->readable);
		x->readable = NULL;
	}
	return got > 0;
}

static void on_readable(void *arg)
{
	struct exec *x = arg;

	if (read_some(x) < 0)
		give_up(x, "its helper printed too much");
}

static void on_exit_of_helper(void *arg)
{
	struct exec *x = arg;
	struct secret *value = NULL;
	struct err e = ERR_INIT;
	int64_t life_us = 0;
	siginfo_t si;
	int more;

	do
		more = read_some(x);
	while (more > 0);
	if (more < 0) {
		give_up(x, "its helper printed too much");
		return;
	}
	end_helper(x, &si);
	if (si.si_code != CLD_EXITED)
		(void)err_reason(&e, REASON_CREDENTIAL_UNAVAILABLE,
				 "its helper was ended by signal %d", si.si_status);
	else if (si.si_status != 0)
		(void)err_reason(&e, REASON_CREDENTIAL_UNAVAILABLE,
				 "its helper ended with status %d (run it by hand to see why)",
				 si.si_status);
	else if (token_parse(str_from(secret_room(x->output), x->n), &value, &life_us, &e) < 0)
		value = NULL;
	finish(x, value, life_us, &e);
}

static void on_timer(void *arg)
{
	give_up(arg, "its helper took too long");
}

/* ---- starting it ---- */

/* Signals as a program expects them, whatever this thread blocks; a process group of its own;
 * nothing open but the three. */
static int spawn(struct exec *x, int out, pid_t *ret)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	if (posix_spawn_file_actions_init(&files) != 0)
		return ENOMEM;
	if (posix_spawnattr_init(&attr) != 0) {
		posix_spawn_file_actions_destroy(&files);
		return ENOMEM;
	}
	rc = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
						     POSIX_SPAWN_SETSIGDEF);
	if (rc == 0)
		rc = posix_spawnattr_setsigmask(&attr, &none);
	if (rc == 0)
		rc = posix_spawnattr_setsigdefault(&attr, &all);
	if (rc == 0)
		rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY,
						      0);
	if (rc == 0)
		rc = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
	if (rc == 0)
		rc = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY,
						      0);
	if (rc == 0)
		rc = posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
	if (rc == 0)
		rc = posix_spawnp(ret, x->c->from, &files, &attr, x->argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return rc;
}

static int unavailable(struct err *e, int sys_errno, const char *what)
{
	(void)err_sys(e, sys_errno, "%s", what);
	if (e)
		e->reason = REASON_CREDENTIAL_UNAVAILABLE;
	return -1;
}

static int start(struct exec *x, struct err *e)
{
	int fds[2], rc;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return unavailable(e, errno, "its helper cannot be started");
	x->out = fds[0];
	rc = fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 ? errno : spawn(x, fds[1], &x->pid);
	close(fds[1]);
	if (rc != 0) {
		x->pid = 0;
		return unavailable(e, rc, "its helper cannot be started");
	}
	x->pidfd = pidfd_open(x->pid, 0);
	if (x->pidfd < 0)
		return unavailable(e, errno, "its helper cannot be watched");
	return 0;
}

static int exec_ask(void *self, struct err *e)
{
	struct exec *x = self;
	siginfo_t si;

	x->n = 0;
	x->output = secret_new(LIMIT_SOURCE_BYTES + 1);
	if (!x->output)
		return unavailable(e, ENOMEM, "its helper cannot be started");
	if (start(x, e) == 0 && watch_new(x->loop, x->out, on_readable, x, &x->readable, e) == 0 &&
	    watch_new(x->loop, x->pidfd, on_exit_of_helper, x, &x->exited, e) == 0) {
		timer_arm(&x->timer, x->c->timeout_ms);
		return 0;
	}
	end_helper(x, &si);
	secret_unref(x->output);
	x->output = NULL;
	return -1;
}

static void exec_close(void *self)
{
	struct exec *x = self;
	siginfo_t si;

	end_helper(x, &si);
	secret_unref(x->output);
	timer_clear(&x->timer);
	free(x->argv);
	free(x);
}

static int exec_open(const struct source_setting *s, void **ret, struct err *e)
{
	const struct config_credential *c = s->c;
	struct exec *x = calloc(1, sizeof(*x));

	if (!x)
		return unavailable(e, ENOMEM, "its helper cannot be started");
	*x = (struct exec){.c = c,
			   .loop = s->loop,
			   .on_result = s->on_result,
			   .arg = s->arg,
			   .out = -1,
			   .pidfd = -1};
	x->argv = calloc(c->args_n + 2, sizeof(*x->argv));
	if (!x->argv || timer_init(&x->timer, s->loop, on_timer, x) < 0) {
		free(x->argv);
		free(x);
		return unavailable(e, ENOMEM, "its helper cannot be started");
	}
	x->argv[0] = c->from;
	for (size_t i = 0; i < c->args_n; i++)
		x->argv[i + 1] = c->args[i];
	*ret = x;
	return 0;
}

const struct source_ops source_exec_ops = {.open = exec_open, .ask = exec_ask, .close = exec_close};
