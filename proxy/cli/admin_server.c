/*
 * See admin_server.h.
 */
#include "proxy/cli/admin_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "logging/log.h"
#include "logging/opener.h"
#include "proxy/cli/admin_ops.h"
#include "proxy/net/listener.h"

struct admin_client {
	int fd; /* -1: free */
	unsigned uid;
	int64_t end_ms;
	size_t n; /* of in */
	bool answered;
	size_t sent;
	struct strbuf out;
	char in[LIMIT_ADMIN_REQUEST_BYTES];
};

struct admin {
	/* owned */
	char *path;
	int fd;
	struct listener_path at;
	/* plain */
	int64_t paused_ms; /* no descriptor was to be had: not before then */
	struct admin_client clients[LIMIT_ADMIN_CONNECTIONS];
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- the socket ---- */

int admin_open(const struct config *c, struct admin **ret, struct err *e)
{
	struct config_listener l = {.unix_path = c->admin_path, .unix_mode = 0600};
	uint16_t port;
	struct admin *a;

	*ret = NULL;
	if (!c->admin_path)
		return 0;
	a = calloc(1, sizeof(*a));
	if (a)
		a->path = strdup(c->admin_path);
	if (!a || !a->path) {
		free(a);
		return err_set(e, "out of memory");
	}
	for (size_t i = 0; i < ARRAY_LEN(a->clients); i++)
		a->clients[i].fd = -1;
	if (listener_open(&l, false, &a->fd, &port, e) < 0) {
		free(a->path);
		free(a);
		return err_wrap(e, "admin");
	}
	listener_path_note(a->path, &a->at);
	*ret = a;
	return 0;
}

int admin_give(struct admin *a, unsigned uid, unsigned gid, struct err *e)
{
	if (!a || lchown(a->path, uid, gid) == 0)
		return 0;
	return err_sys(e, errno, "admin: %s cannot be given to its user", a->path);
}

/* ---- one connection ---- */

static void drop(struct admin_client *c)
{
	close(c->fd);
	c->fd = -1;
	/* A token may have been in it. */
	strbuf_wipe(&c->out);
	OPENSSL_cleanse(c->in, c->n);
}

/* The number of a process's user namespace; 0 where it cannot be seen. By the opener: behind
 * Landlock no process may look into one that is not. */
static ino_t user_namespace(pid_t pid)
{
	char path[64];
	struct stat st;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	fd = opener_open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (fstat(fd, &st) != 0)
		st.st_ino = 0;
	close(fd);
	return st.st_ino;
}

/* A sandbox without root is a user namespace, within which a command has the user that made it: the
 * same as ours on a laptop. Into one that our user has made we can look, whatever capabilities are
 * left to us; what cannot be looked into is root outside. Pid 0 comes from outside of our
 * processes.
 */
static bool is_sandboxed(const struct ucred *peer)
{
	struct stat own;
	ino_t its;

	if (peer->pid <= 0 || stat("/proc/self/ns/user", &own) != 0)
		return false;
	its = user_namespace(peer->pid);
	return its ? its != own.st_ino : peer->uid != 0;
}

/* The kernel's word on who connected, whatever became of the path's mode. */
static bool may_ask(int fd, unsigned *ret_uid)
{
	struct ucred cred = {.uid = (uid_t)-1};
	socklen_t n = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
		return false;
	*ret_uid = (unsigned)cred.uid;
	return (cred.uid == 0 || cred.uid == geteuid()) && !is_sandboxed(&cred);
}

static struct admin_client *find_free(struct admin *a)
{
	for (size_t i = 0; i < ARRAY_LEN(a->clients); i++)
		if (a->clients[i].fd < 0)
			return &a->clients[i];
	return NULL;
}

/* Who comes beyond the bound waits in the kernel's queue. */
static void accept_some(struct admin *a)
{
	struct admin_client *c;

	for (int i = 0; i < LIMIT_ADMIN_CONNECTIONS && (c = find_free(a)); i++) {
		unsigned uid = 0;
		int fd = accept4(a->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno != EAGAIN)
				a->paused_ms = now_ms() + LIMIT_MS_ACCEPT_PAUSE;
			return;
		}
		if (!may_ask(fd, &uid)) {
			log_warn("admin: user %u was turned away", uid);
			close(fd);
			continue;
		}
		c->fd = fd;
		c->uid = uid;
		c->end_ms = now_ms() + LIMIT_MS_ADMIN;
		c->n = c->sent = 0;
		c->answered = false;
		strbuf_init(&c->out, LIMIT_ADMIN_ANSWER_BYTES);
	}
}

/* True: gone, or nothing more can be done now. */
static bool write_out(struct admin_client *c)
{
	struct str rest = str_skip(strbuf_str(&c->out), c->sent);
	ssize_t n = send(c->fd, rest.p, rest.n, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n > 0)
		c->sent += (size_t)n;
	if (n <= 0 || c->sent == c->out.len) {
		drop(c);
		return true;
	}
	return false;
}

static void answer(struct admin_client *c, struct engine *g, size_t len)
{
	admin_answer(g, str_from(c->in, len), c->uid, &c->out);
	c->answered = true;
	while (!write_out(c))
		;
}

static void read_in(struct admin_client *c, struct engine *g)
{
	ssize_t n = recv(c->fd, c->in + c->n, sizeof(c->in) - c->n, MSG_DONTWAIT);
	const char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		drop(c);
		return;
	}
	end = memchr(c->in + c->n, '\n', (size_t)n);
	c->n += (size_t)n;
	if (end)
		answer(c, g, (size_t)(end - c->in));
	else if (c->n == sizeof(c->in))
		drop(c);
}

/* ---- the loop's side ---- */

nfds_t admin_poll(const struct admin *a, struct pollfd *v)
{
	nfds_t n = 0;
	bool room = false;

	for (size_t i = 0; a && i < ARRAY_LEN(a->clients); i++) {
		const struct admin_client *c = &a->clients[i];

		room |= c->fd < 0;
		if (c->fd >= 0)
			v[n++] = (struct pollfd){.fd = c->fd,
						 .events = c->answered ? POLLOUT : POLLIN};
	}
	if (room && now_ms() >= a->paused_ms)
		v[n++] = (struct pollfd){.fd = a->fd, .events = POLLIN};
	return n;
}

static void serve(struct admin *a, int fd, struct engine *g)
{
	if (fd == a->fd) {
		accept_some(a);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(a->clients); i++) {
		struct admin_client *c = &a->clients[i];

		if (c->fd != fd)
			continue;
		if (!c->answered)
			read_in(c, g);
		else
			while (!write_out(c))
				;
		return;
	}
}

void admin_turn(struct admin *a, const struct pollfd *v, nfds_t n, struct engine *g)
{
	if (!a)
		return;
	for (nfds_t i = 0; i < n; i++)
		if (v[i].revents)
			serve(a, v[i].fd, g);
	for (size_t i = 0; i < ARRAY_LEN(a->clients); i++)
		if (a->clients[i].fd >= 0 && now_ms() >= a->clients[i].end_ms)
			drop(&a->clients[i]);
}

void admin_free(struct admin *a)
{
	if (!a)
		return;
	listener_path_remove(a->path, &a->at);
	for (size_t i = 0; i < ARRAY_LEN(a->clients); i++)
		if (a->clients[i].fd >= 0)
			drop(&a->clients[i]);
	close(a->fd);
	free(a->path);
	free(a);
}
