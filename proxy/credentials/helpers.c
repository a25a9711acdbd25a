/*
 * See helpers.h. This is the keeper's side: the birth of the process, its end, what is asked of it.
 */
#include "proxy/credentials/helpers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "logging/strbuf.h"
#include "proxy/credentials/helpers_internal.h"
#include "proxy/net/pass_fd.h"
#include "proxy/net/poll_again.h"

#define GONE "the process that starts helpers has ended: restart stile"

struct helpers {
	int fd; /* until the end: another thread may be asking */
	pid_t pid;
	uint32_t serial;
	bool is_gone; /* atomic */
};

static int unavailable(struct err *e, const char *why)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its helper cannot be started (%s)",
			  why);
}

/* ---- birth and end ---- */

int helpers_start(const struct helpers_options *o, struct helpers **ret, struct err *e)
{
	struct helpers *h = calloc(1, sizeof(*h));
	int fds[2];

	if (!h)
		return err_set(e, "out of memory");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
		free(h);
		return err_sys(e, errno, "cannot make a pair of sockets");
	}
	(void)fflush(NULL);
	h->pid = fork();
	if (h->pid == 0) {
		close(fds[0]);
		free(h);
		helpers_main(o, fds[1]);
	}
	close(fds[1]);
	h->fd = fds[0];
	if (h->pid < 0) {
		close(h->fd);
		free(h);
		return err_sys(e, errno, "cannot make the process that starts helpers");
	}
	*ret = h;
	return 0;
}

void helpers_stop(struct helpers *h)
{
	if (!h)
		return;
	close(h->fd);
	while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(h);
}

pid_t helpers_pid(const struct helpers *h)
{
	return h->pid;
}

static bool is_gone(const struct helpers *h)
{
	return __atomic_load_n(&h->is_gone, __ATOMIC_ACQUIRE);
}

int helpers_fd(const struct helpers *h)
{
	return is_gone(h) ? -1 : h->fd;
}

static void lose(struct helpers *h)
{
	if (__atomic_exchange_n(&h->is_gone, true, __ATOMIC_ACQ_REL))
		return;
	log_error("the process that starts helpers has ended: credentials of `exec` are not "
		  "renewed any more (restart stile)");
}

/* 1: an answer; 0: nothing there now; -1: there will be none. */
static int hear_reading(struct helpers *h, struct helpers_reading *r)
{
	struct iovec v = {r, sizeof(*r)};
	ssize_t n;
	int fd;

	n = pass_fd_recv(h->fd, &v, 1, &fd);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n == (ssize_t)sizeof(*r) && fd < 0)
		return 1;
	if (n > 0 && fd >= 0)
		close(fd);
	return -1;
}

void helpers_look(struct helpers *h)
{
	struct helpers_reading late; /* that nobody waited for any more */

	if (!is_gone(h) && hear_reading(h, &late) < 0)
		lose(h);
}

/* ---- what is asked ---- */

static int say(struct helpers *h, const struct helpers_ask *a, int fd)
{
	struct iovec v = {(void *)(uintptr_t)a, sizeof(*a)};

	if (is_gone(h)) {
		errno = EPIPE;
		return -1;
	}
	return pass_fd_send(h->fd, &v, 1, fd) < 0 ? -1 : 0;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* 1: *r is the answer to the question of that serial; 0: none in time; -1: there will be none. */
static int await(struct helpers *h, struct helpers_reading *r)
{
	int64_t until = now_ms() + LIMIT_MS_HELPERS_READ, left;

	while ((left = until - now_ms()) > 0) {
		struct pollfd p = {.fd = h->fd, .events = POLLIN};
		int rc;

		if (poll_calmly(&p, 1, (int)left) <= 0)
			continue;
		rc = hear_reading(h, r);
		if (rc < 0)
			return -1;
		if (rc > 0 && r->serial == h->serial)
			return 1;
	}
	return 0;
}

int helpers_read(struct helpers *h, const char *version_hash, struct err *e)
{
	struct helpers_ask a = {.kind = HELPERS_READ, .serial = ++h->serial};
	struct helpers_reading r = {0};
	int rc;

	if (is_gone(h))
		return 0;
	rc = say(h, &a, -1) < 0 ? (errno == EAGAIN ? 0 : -1) : await(h, &r);
	if (rc < 0) {
		lose(h);
		return 0;
	}
	if (rc == 0)
		return err_set(e, "the process that starts helpers does not answer");
	if (!r.ok || strncmp(r.version_hash, version_hash, sizeof(r.version_hash)) != 0)
		return err_set(e, "it changed while it was read (reload again)");
	return 0;
}

void helpers_commit(struct helpers *h)
{
	const struct helpers_ask a = {.kind = HELPERS_COMMIT};

	/* If that does not fit, the old one stays beside the new one until the next. */
	(void)say(h, &a, -1);
}

void helpers_abort(struct helpers *h)
{
	const struct helpers_ask a = {.kind = HELPERS_ABORT};

	(void)say(h, &a, -1);
}

int helpers_digest(const struct config_credential *c, unsigned char ret[HELPERS_DIGEST])
{
	struct strbuf b;
	int rc = -1;

	strbuf_init(&b, LIMIT_CONFIG_BYTES);
	strbuf_addf(&b, "%zu:%s %zu:%s %llu", strlen(c->name), c->name, strlen(c->from), c->from,
		    (unsigned long long)c->timeout_ms);
	for (size_t i = 0; i < c->args_n; i++)
		strbuf_addf(&b, " %zu:%s", strlen(c->args[i]), c->args[i]);
	if (!b.overflowed && EVP_Digest(strbuf_cstr(&b), b.len, ret, NULL, EVP_sha256(), NULL) == 1)
		rc = 0;
	strbuf_clear(&b);
	return rc;
}

int helpers_run(struct helpers *h, const struct config_credential *c, int *ret, struct err *e)
{
	struct helpers_ask a = {.kind = HELPERS_RUN};
	int fds[2], rc;

	if (!h || is_gone(h))
		return unavailable(e, GONE);
	if (helpers_digest(c, a.digest) < 0)
		return unavailable(e, "out of memory");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
		return unavailable(e, "no socket is to be had");
	rc = say(h, &a, fds[1]);
	close(fds[1]);
	if (rc < 0) {
		close(fds[0]);
		return unavailable(e, errno == EAGAIN ? "too much is asked for at once" : GONE);
	}
	*ret = fds[0];
	return 0;
}

int helpers_hear(int fd, struct helper_message *m, int *ret_fd)
{
	struct iovec v = {m, sizeof(*m)};
	ssize_t n = pass_fd_recv(fd, &v, 1, ret_fd);

	if (n == (ssize_t)sizeof(*m))
		return 1;
	if (n > 0 && *ret_fd >= 0)
		close(*ret_fd);
	return n < 0 && errno == EAGAIN ? -1 : 0;
}
