/*
 * The process that starts helpers; see helpers.h. One thread, which waits for whom it was split
 * from, for each helper's end and for its time to be over. It takes the keeper for hostile: of what
 * that says it believes which of its own entries is meant. A helper has no shell, nothing on stdin,
 * no stderr (which could hold what stdout does), no other descriptor, and a process group that is
 * killed as soon as the helper has ended, or its time is over, or nobody wants it any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/credentials/helpers_internal.h"
#include "proxy/credentials/store.h"
#include "proxy/net/pass_fd.h"
#include "proxy/net/poll_again.h"

struct command {
	unsigned char digest[HELPERS_DIGEST];
	char **argv; /* owned; the texts are the configuration's */
	uint64_t timeout_ms;
};

/* What one configuration allows to be run. */
struct table {
	/* counted */
	struct config *config; /* NULL: there is none */
	/* owned */
	struct command *commands;
	/* plain */
	size_t n;
};

struct run {
	pid_t pid;
	int pidfd;
	int fd; /* of who wants it */
	int64_t until_ms;
};

struct process {
	struct table now, next;
	struct run runs[LIMIT_HELPERS];
	struct pollfd polls[1 + 2 * LIMIT_HELPERS]; /* the keeper; of each run its end, its asker */
	size_t n;
	int fd;
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- what may be run ---- */

static void table_clear(struct table *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->commands[i].argv);
	free(t->commands);
	config_unref(t->config);
	*t = (struct table){0};
}

static int command_init(struct command *x, const struct config_credential *c)
{
	x->timeout_ms = c->timeout_ms;
	x->argv = calloc(c->args_n + 2, sizeof(*x->argv));
	if (!x->argv || helpers_digest(c, x->digest) < 0)
		return -1;
	x->argv[0] = c->from;
	for (size_t i = 0; i < c->args_n; i++)
		x->argv[i + 1] = c->args[i];
	return 0;
}

/* Takes a count of c. */
static int table_set(struct table *t, struct config *c)
{
	table_clear(t);
	t->commands = calloc(c->credentials_n ? c->credentials_n : 1, sizeof(*t->commands));
	if (!t->commands)
		return -1;
	t->config = config_ref(c);
	for (size_t i = 0; i < c->credentials_n; i++) {
		if (c->credentials[i].source != CREDENTIAL_FROM_EXEC)
			continue;
		if (command_init(&t->commands[t->n++], &c->credentials[i]) < 0) {
			table_clear(t);
			return -1;
		}
	}
	return 0;
}

static const struct command *find(const struct process *p, const unsigned char *digest)
{
	const struct table *all[] = {&p->now, &p->next};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		for (size_t n = 0; n < all[i]->n; n++)
			if (memcmp(all[i]->commands[n].digest, digest, HELPERS_DIGEST) == 0)
				return &all[i]->commands[n];
	return NULL;
}

/* The file by the name that this process has known from the start. Its faults are the keeper's to
 * tell. */
static void read_again(struct process *p, uint32_t serial)
{
	struct helpers_reading said = {.serial = serial};
	struct iovec v = {&said, sizeof(said)};
	const char *file = p->now.config->file;
	struct config *fresh = NULL;
	char *text = NULL;
	struct faults f;
	size_t n = 0;

	table_clear(&p->next);
	faults_init(&f, file);
	if (config_read_file(file, &text, &n, &f) == 0 &&
	    config_load_text(file, str_from(text, n), &fresh, &f) == 0 &&
	    table_set(&p->next, fresh) == 0) {
		said.ok = 1;
		memcpy(said.version_hash, fresh->version_hash, sizeof(fresh->version_hash));
	}
	config_unref(fresh);
	free(text);
	faults_clear(&f);
	(void)pass_fd_send(p->fd, &v, 1, -1);
}

/* ---- one run ---- */

static void tell(int fd, enum helper_said said, int value, int pass_fd)
{
	struct helper_message m = {.said = said, .value = value};
	struct iovec v = {&m, sizeof(m)};

	(void)pass_fd_send(fd, &v, 1, pass_fd);
}

/* The helper and all that it started. Its pid is not given to others before it was waited for. */
static void reap(struct run *r, siginfo_t *ret)
{
	*ret = (siginfo_t){0};
	(void)kill(-r->pid, SIGKILL);
	(void)kill(r->pid, SIGKILL);
	while (waitid(P_PID, (id_t)r->pid, ret, WEXITED) < 0 && errno == EINTR)
		;
	close(r->pidfd);
}

/* said: 0: nobody listens; HELPER_LATE; HELPER_EXITED: as it was. */
static void end_run(struct process *p, size_t i, enum helper_said said)
{
	struct run *r = &p->runs[i];
	siginfo_t si;

	reap(r, &si);
	if (said == HELPER_EXITED && si.si_code != CLD_EXITED)
		said = HELPER_SIGNALED;
	if (said)
		tell(r->fd, said, said == HELPER_LATE ? 0 : si.si_status, -1);
	close(r->fd);
	p->runs[i] = p->runs[--p->n];
}

static int set_files(posix_spawn_file_actions_t *files, int out)
{
	int rc = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

	if (rc == 0)
		rc = posix_spawn_file_actions_adddup2(files, out, STDOUT_FILENO);
	if (rc == 0)
		rc = posix_spawn_file_actions_addopen(files, STDERR_FILENO, "/dev/null", O_WRONLY,
						      0);
	if (rc == 0)
		rc = posix_spawn_file_actions_addclosefrom_np(files, STDERR_FILENO + 1);
	return rc;
}

/* Signals as a program expects them, a process group of its own. */
static int set_attributes(posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
						    POSIX_SPAWN_SETSIGDEF);
	if (rc == 0)
		rc = posix_spawnattr_setsigmask(attr, &none);
	if (rc == 0)
		rc = posix_spawnattr_setsigdefault(attr, &all);
	return rc;
}

/* 0, or errno. */
static int spawn(const struct command *c, int out, pid_t *ret)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	int rc;

	if (posix_spawn_file_actions_init(&files) != 0)
		return ENOMEM;
	if (posix_spawnattr_init(&attr) != 0) {
		posix_spawn_file_actions_destroy(&files);
		return ENOMEM;
	}
	rc = set_files(&files, out);
	if (rc == 0)
		rc = set_attributes(&attr);
	if (rc == 0)
		rc = posix_spawnp(ret, c->argv[0], &files, &attr, c->argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return rc;
}

/* 0, or errno; fd is the run's from then on. */
static int begin_run(struct process *p, const struct command *c, int fd)
{
	struct run r = {.fd = fd, .until_ms = now_ms() + (int64_t)c->timeout_ms};
	int out[2], rc;

	if (pipe2(out, O_CLOEXEC) < 0)
		return errno;
	rc = spawn(c, out[1], &r.pid);
	close(out[1]);
	if (rc == 0) {
		r.pidfd = pidfd_open(r.pid, 0);
		if (r.pidfd < 0) {
			siginfo_t si;

			rc = errno;
			reap(&r, &si);
		} else {
			tell(fd, HELPER_STARTED, 0, out[0]);
			p->runs[p->n++] = r;
		}
	}
	close(out[0]);
	return rc;
}

static void on_run(struct process *p, const unsigned char *digest, int fd)
{
	const struct command *c = find(p, digest);
	int rc = 0;

	(void)fcntl(fd, F_SETFL, O_NONBLOCK);
	if (!c) {
		tell(fd, HELPER_UNKNOWN, 0, -1);
	} else if (p->n == LIMIT_HELPERS) {
		tell(fd, HELPER_TOO_MANY, 0, -1);
	} else {
		rc = begin_run(p, c, fd);
		if (rc == 0)
			return;
		tell(fd, HELPER_FAILED, rc, -1);
	}
	close(fd);
}

/* ---- the keeper ---- */

/* -1: it has ended, or is none of ours. */
static int on_ask(struct process *p)
{
	struct helpers_ask a;
	struct iovec v = {&a, sizeof(a)};
	int fd;
	ssize_t n = pass_fd_recv(p->fd, &v, 1, &fd);

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n != (ssize_t)sizeof(a) || (fd != -1) != (a.kind == HELPERS_RUN))
		return -1;
	if (fd == PASS_FD_LOST)
		return 0; /* closed with the message: whoever waits at its other end hears that */
	switch (a.kind) {
	case HELPERS_RUN: on_run(p, a.digest, fd); return 0;
	case HELPERS_READ: read_again(p, a.serial); return 0;
	case HELPERS_COMMIT:
		if (!p->next.config)
			return -1;
		table_clear(&p->now);
		p->now = p->next;
		p->next = (struct table){0};
		return 0;
	case HELPERS_ABORT: table_clear(&p->next); return 0;
	default: return -1;
	}
}

/* From the last on, as one that ends gives its place to the last. */
static void turn_runs(struct process *p)
{
	int64_t now = now_ms();

	for (size_t i = p->n; i-- > 0;) {
		const struct pollfd *end = &p->polls[1 + 2 * i];

		if (end[1].revents)
			end_run(p, i, 0);
		else if (end[0].revents)
			end_run(p, i, HELPER_EXITED);
		else if (now >= p->runs[i].until_ms)
			end_run(p, i, HELPER_LATE);
	}
}

/* How long nothing has to be done by itself; -1: as long as may be. */
static int fill_polls(struct process *p)
{
	int64_t now = now_ms(), least = -1;

	p->polls[0] = (struct pollfd){.fd = p->fd, .events = POLLIN};
	for (size_t i = 0; i < p->n; i++) {
		const struct run *r = &p->runs[i];
		int64_t left = r->until_ms > now ? r->until_ms - now : 0;

		p->polls[1 + 2 * i] = (struct pollfd){.fd = r->pidfd, .events = POLLIN};
		p->polls[2 + 2 * i] = (struct pollfd){.fd = r->fd, .events = POLLIN};
		if (least < 0 || left < least)
			least = left;
	}
	return least > INT32_MAX ? INT32_MAX : (int)least;
}

static void serve(struct process *p)
{
	unsigned failures = 0;

	for (;;) {
		int ms = fill_polls(p);
		int n = poll(p->polls, (nfds_t)(1 + 2 * p->n), ms);

		if (n < 0 && !poll_again(&failures))
			return;
		if (n < 0)
			continue;
		failures = 0;
		turn_runs(p);
		if (p->polls[0].revents && on_ask(p) < 0)
			return;
	}
}

/* Nothing of what its maker had open stays, but for stderr. */
static int keep(int fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
		return -1;
	if (fd > STDERR_FILENO + 1)
		(void)close_range(STDERR_FILENO + 1, (unsigned)fd - 1, 0);
	(void)close_range((unsigned)fd + 1, ~0U, 0);
	return 0;
}

void helpers_main(const struct helpers_options *o, int fd)
{
	struct process *p = calloc(1, sizeof(*p));
	struct err e = ERR_INIT;
	int code = 1;

	credential_env_forget(o->config);
	(void)prctl(PR_SET_NAME, "stile-helpers", 0, 0, 0);
	(void)signal(SIGCHLD, SIG_DFL);
	if (!p || keep(fd) < 0 || table_set(&p->now, o->config) < 0) {
		log_error("the process that starts helpers: out of memory");
	} else if (o->become && o->become(o->config->user, &e) < 0) {
		log_error("the process that starts helpers: %s", e.text);
	} else {
		p->fd = fd;
		serve(p);
		while (p->n > 0)
			end_run(p, p->n - 1, 0);
		code = 0;
	}
	if (p) {
		table_clear(&p->next);
		table_clear(&p->now);
	}
	free(p);
	exit(code);
}
