/*
 * Opens the socket of a configured listener. A Unix path is the delicate one: the leftover of a
 * dead process is replaced, a living socket and any other file are left alone, and the mode is in
 * place before the first connect can succeed; at a clean end it goes, if it is ours still.
 */
#include "proxy/net/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "logging/log.h"
#include "proxy/net/netns.h"

/* What to do about it, for who starts stile. NULL: nothing that is known. */
static const char *advice(int error, const struct config_listener *c)
{
	switch (error) {
	case EADDRINUSE:
		return "another program has that port, perhaps another stile: end it, or choose "
		       "another port";
	case EADDRNOTAVAIL: return "no interface here has that address: choose another one";
	case EACCES:
		if (c->unix_path)
			return "its folder is not writable for this user: choose another one";
		return "a port below 1024 is root's, or needs CAP_NET_BIND_SERVICE";
	case ENOENT: return c->unix_path ? "make its folder first" : NULL;
	default: return NULL;
	}
}

static int cannot(const struct config_listener *c, int error, const char *text, struct err *e)
{
	if (c->unix_path)
		err_sys(e, error, "listen on %s", text);
	else
		err_sys(e, error, "listen on %s port %u", text, c->port);
	return err_hint(e, advice(error, c));
}

static int open_tcp(const struct config_listener *c, bool reuseport, int fd, struct err *e)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(c->port)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(c->port)};
	bool v6 = c->addr.family == 6;
	char text[IPADDR_TEXT_MAX];
	int on = 1;

	memcpy(&in.sin_addr, c->addr.b, 4);
	memcpy(&in6.sin6_addr, c->addr.b, 16);
	ipaddr_format(&c->addr, text);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* inherited by what comes */
	if (v6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0)
		return err_sys(e, errno, "listen on [%s]:%u: IPV6_V6ONLY", text, c->port);
	if (reuseport && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0)
		return err_sys(e, errno, "listen on %s port %u: SO_REUSEPORT", text, c->port);
	if ((v6 ? bind(fd, (struct sockaddr *)&in6, sizeof(in6))
		: bind(fd, (struct sockaddr *)&in, sizeof(in))) < 0)
		return cannot(c, errno, text, e);
	return 0;
}

/* Is the path free, or taken by a socket that nobody listens on any more? */
static int clear_path(const char *path, const struct sockaddr_un *sa, struct err *e)
{
	struct stat st;
	int fd, rc, error;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "listen on %s", path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(e,
			       "listen on %s: there is a file that is no socket (move it away, or "
			       "choose another path)",
			       path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(e, errno, "listen on %s: socket", path);
	rc = connect(fd, (const struct sockaddr *)sa, sizeof(*sa));
	error = errno;
	close(fd);
	/* EAGAIN is a full backlog, EACCES somebody else's: both are alive. Only a refusal is not.
	 */
	if (rc < 0 && error == ECONNREFUSED) {
		if (unlink(path) < 0 && errno != ENOENT)
			return err_sys(e, errno, "listen on %s: the old socket stays", path);
		return 0;
	}
	if (rc < 0 && error == ENOENT)
		return 0;
	if (rc < 0 && error != EAGAIN)
		return err_sys(e, error, "listen on %s: cannot tell whether it is in use", path);
	return err_set(e, "listen on %s: another process listens there", path);
}

static int open_unix(const struct config_listener *c, int fd, struct err *e)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	mode_t mode = (mode_t)(c->unix_mode & 0777);
	size_t n = strlen(c->unix_path);

	if (n == 0 || n >= sizeof(sa.sun_path))
		return err_set(e, "listen on %s: a socket path has 1 to %zu bytes", c->unix_path,
			       sizeof(sa.sun_path) - 1);
	memcpy(sa.sun_path, c->unix_path, n + 1);
	if (clear_path(c->unix_path, &sa, e) < 0)
		return -1;
	/* bind() takes the mode of the unbound socket, less the umask: never wider than wanted,
	 * even for a moment. chmod() then puts back what the umask took; until listen(), nobody
	 * gets in. */
	if (fchmod(fd, mode) < 0)
		return err_sys(e, errno, "listen on %s: mode", c->unix_path);
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return cannot(c, errno, c->unix_path, e);
	if (chmod(c->unix_path, mode) < 0) {
		err_sys(e, errno, "listen on %s: mode %04o", c->unix_path, (unsigned)mode);
		unlink(c->unix_path);
		return -1;
	}
	return 0;
}

void listener_path_note(const char *path, struct listener_path *ret)
{
	struct stat st;

	*ret = (struct listener_path){0};
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		*ret = (struct listener_path){st.st_dev, st.st_ino};
}

void listener_path_remove(const char *path, struct listener_path *p)
{
	struct listener_path now;

	if (p->ino == 0)
		return;
	listener_path_note(path, &now);
	/* The folder may not be ours to write any more; the next start replaces what stays. */
	if (now.dev == p->dev && now.ino == p->ino && unlink(path) < 0)
		log_debug("%s stays: %s", path, strerror(errno));
	p->ino = 0;
}

/* 0 for a Unix socket. */
static int port_of(int fd, uint16_t *ret)
{
	struct sockaddr_storage sa = {0};
	socklen_t n = sizeof(sa);

	if (getsockname(fd, (struct sockaddr *)&sa, &n) < 0)
		return -1;
	*ret = 0;
	if (sa.ss_family == AF_INET)
		*ret = ntohs(((struct sockaddr_in *)&sa)->sin_port);
	else if (sa.ss_family == AF_INET6)
		*ret = ntohs(((struct sockaddr_in6 *)&sa)->sin6_port);
	return 0;
}

int listener_check_free(const struct config_listener *c, struct err *e)
{
	int fd, rc;

	/* One socket serves all workers in another namespace: it is its own check. */
	if (c->unix_path || c->netns || c->port == 0)
		return 0;
	fd = socket(c->addr.family == 6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(e, errno, "listener %s: socket", c->name ? c->name : "");
	rc = open_tcp(c, false, fd, e);
	close(fd);
	return rc;
}

static int open_here(const struct config_listener *c, bool reuseport, int *ret_fd,
		     uint16_t *ret_port, struct err *e)
{
	int family = c->unix_path ? AF_UNIX : c->addr.family == 6 ? AF_INET6 : AF_INET;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_sys(e, errno, "listener %s: socket", c->name ? c->name : "");
	if ((c->unix_path ? open_unix(c, fd, e) : open_tcp(c, reuseport, fd, e)) < 0)
		goto fail;
	if (listen(fd, SOMAXCONN) < 0) {
		err_sys(e, errno, "listener %s: listen", c->name ? c->name : "");
		if (c->unix_path)
			unlink(c->unix_path);
		goto fail;
	}
	/* Not known, the port could not be told, and the next worker would join another one. */
	if (port_of(fd, ret_port) < 0) {
		err_sys(e, errno, "listener %s: its port", c->name ? c->name : "");
		if (c->unix_path)
			unlink(c->unix_path);
		goto fail;
	}
	*ret_fd = fd;
	return 0;
fail:
	close(fd);
	return -1;
}

static int open_there(const void *arg, int *ret_fd, struct err *e)
{
	uint16_t port;

	return open_here(arg, false, ret_fd, &port, e);
}

int listener_open(const struct config_listener *c, bool reuseport, int *ret_fd, uint16_t *ret_port,
		  struct err *e)
{
	if (!c->netns)
		return open_here(c, reuseport, ret_fd, ret_port, e);
	if (netns_open(c->netns, open_there, c, ret_fd, e) < 0)
		return -1;
	if (port_of(*ret_fd, ret_port) == 0)
		return 0;
	err_sys(e, errno, "listener %s: its port", c->name ? c->name : "");
	close(*ret_fd);
	return -1;
}

void listener_add_place(const struct config_listener *c, uint16_t port, struct strbuf *out)
{
	char addr[IPADDR_TEXT_MAX];

	if (c->unix_path) {
		strbuf_addf(out, "unix:%s", c->unix_path);
		return;
	}
	ipaddr_format(&c->addr, addr);
	strbuf_addf(out, c->addr.family == 6 ? "[%s]:%u" : "%s:%u", addr, port);
	if (c->netns)
		strbuf_addf(out, " in %s", c->netns);
}
