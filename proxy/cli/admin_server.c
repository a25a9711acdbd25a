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
#include <unistd.h>

#include "logging/log.h"
#include "logging/opener.h"
#include "proxy/cli/admin_ops.h"
#include "proxy/cli/oneshot.h"
#include "proxy/net/listener.h"

struct admin {
	/* owned */
	char *path;
	struct oneshot *server;
	/* plain */
	struct listener_path at;
};

/* ---- who may ask ---- */

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
	if ((cred.uid == 0 || cred.uid == geteuid()) && !is_sandboxed(&cred))
		return true;
	log_warn("admin: user %u was turned away", *ret_uid);
	return false;
}

static int on_bytes(void *arg, struct str in, unsigned uid, struct strbuf *out)
{
	ptrdiff_t end = str_find(in, '\n');

	if (end < 0)
		return 0;
	admin_answer(arg, str_head(in, (size_t)end), uid, out);
	return 1;
}

static const struct oneshot_kind kind = {
	.clients = LIMIT_ADMIN_CONNECTIONS,
	.question_bytes = LIMIT_ADMIN_REQUEST_BYTES,
	.answer_bytes = LIMIT_ADMIN_ANSWER_BYTES,
	.life_ms = LIMIT_MS_ADMIN,
	.may_ask = may_ask,
	.on_bytes = on_bytes,
};

/* ---- the socket ---- */

int admin_open(const struct config *c, struct admin **ret, struct err *e)
{
	struct config_listener l = {.unix_path = c->admin_path, .unix_mode = 0600};
	struct admin *a;
	uint16_t port;
	int fd;

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
	if (listener_open(&l, false, &fd, &port, e) < 0)
		goto fail;
	listener_path_note(a->path, &a->at);
	if (oneshot_new(fd, &kind, &a->server, e) < 0) {
		listener_path_remove(a->path, &a->at);
		close(fd);
		goto fail;
	}
	*ret = a;
	return 0;
fail:
	free(a->path);
	free(a);
	return err_wrap(e, "admin");
}

int admin_give(struct admin *a, unsigned uid, unsigned gid, struct err *e)
{
	if (!a || lchown(a->path, uid, gid) == 0)
		return 0;
	return err_sys(e, errno, "admin: %s cannot be given to its user", a->path);
}

nfds_t admin_poll(struct admin *a, struct pollfd *v, int *wait_ms)
{
	return a ? oneshot_poll(a->server, v, wait_ms) : 0;
}

void admin_turn(struct admin *a, const struct pollfd *v, nfds_t n, struct engine *g)
{
	if (a)
		oneshot_turn(a->server, v, n, g);
}

void admin_free(struct admin *a)
{
	if (!a)
		return;
	listener_path_remove(a->path, &a->at);
	oneshot_free(a->server);
	free(a->path);
	free(a);
}
