/*
 * One target of the audit log. Each call is one or two system calls and keeps nothing that was
 * handed to it. It never blocks for long on a pipe: it polls first and then writes what a pipe
 * takes at once. writer.c calls it, from its thread.
 */
#include "logging/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <syslog.h>
#include <unistd.h>

#include "logging/limits.h"
#include "logging/opener.h"

static const struct {
	const char *name;
	int facility;
} facilities[] = {
	{"auth", LOG_AUTH},	{"authpriv", LOG_AUTHPRIV}, {"daemon", LOG_DAEMON},
	{"user", LOG_USER},	{"local0", LOG_LOCAL0},	    {"local1", LOG_LOCAL1},
	{"local2", LOG_LOCAL2}, {"local3", LOG_LOCAL3},	    {"local4", LOG_LOCAL4},
	{"local5", LOG_LOCAL5}, {"local6", LOG_LOCAL6},	    {"local7", LOG_LOCAL7},
};

static int facility_of(const char *name, int *ret, struct err *e)
{
	if (!name[0])
		name = "local0";
	for (size_t i = 0; i < ARRAY_LEN(facilities); i++)
		if (strcmp(name, facilities[i].name) == 0) {
			*ret = facilities[i].facility;
			return 0;
		}
	return err_set(e,
		       "no syslog facility is called '%s' (auth, authpriv, daemon, user, "
		       "local0 to local7)",
		       name);
}

/* Do writes to fd go into the page cache of this machine, and no further? Not so where a server or
 * another process stands behind the file, or where one cannot see what does (overlays). */
static bool is_local(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	switch ((unsigned long)fs.f_type) {
	case EXT4_SUPER_MAGIC: /* and its forebears */
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case TMPFS_MAGIC: return true;
	default: return false;
	}
}

/* What kind of thing fd is decides how it is written to and watched. */
static int learn_fd(struct sink *s, int fd, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "%s", s->path ? s->path : "stdout");
	s->is_regular = S_ISREG(st.st_mode);
	s->has_poll = S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || isatty(fd);
	s->is_quick = s->is_regular && is_local(fd);
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	s->is_begun = s->is_regular && st.st_size == 0;
	return 0;
}

static int open_file(struct sink *s, int *ret_fd, struct err *e)
{
	/* O_NONBLOCK: a named pipe without a reader must not hang the start. */
	int fd = opener_open(s->path,
			     O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0) {
		int error = errno;

		err_sys(e, error, "%s: cannot open the log", s->path);
		return err_hint(e, error == ENOENT   ? "make its folder first"
				   : error == EACCES ? "name another file in `log: {to: FILE}`"
				   : error == EISDIR ? "name a file in it"
						     : NULL);
	}
	*ret_fd = fd;
	return 0;
}

static int open_syslog(struct sink *s, int *ret_fd, struct err *e)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd;

	if (strlen(s->path) >= sizeof(addr.sun_path))
		return err_set(e, "%s: too long for a socket's path", s->path);
	memcpy(addr.sun_path, s->path, strlen(s->path) + 1);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, errno, "cannot make a socket for the log");
	if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0) {
		err_sys(e, errno, "%s: cannot reach syslog", s->path);
		close(fd);
		return -1;
	}
	*ret_fd = fd;
	return 0;
}

/* Opens what kind and path say; nothing of *s changes on failure. */
static int open_target(struct sink *s, struct err *e)
{
	int fd = -1;

	switch (s->kind) {
	case SINK_STDOUT:
		/* main.c put something in its place, to which nothing can be written. */
		if ((fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) == O_RDONLY)
			return err_set(e, "standard output is closed (write `log: {to: FILE}`)");
		return learn_fd(s, STDOUT_FILENO, e);
	case SINK_FILE:
		if (open_file(s, &fd, e) < 0)
			return -1;
		break;
	case SINK_SYSLOG:
		if (open_syslog(s, &fd, e) < 0)
			return -1;
		break;
	}
	if (learn_fd(s, fd, e) < 0) {
		close(fd);
		return -1;
	}
	s->fd = fd;
	return 0;
}

/* Gives s its path and opens it. */
static int start(struct sink *s, struct str path, struct err *e)
{
	if (s->kind != SINK_STDOUT) {
		s->path = str_dup(path);
		if (!s->path)
			return err_set(e, "out of memory");
	}
	if (open_target(s, e) < 0) {
		sink_close(s);
		return -1;
	}
	return 0;
}

int sink_open(struct sink *s, const char *to, struct err *e)
{
	struct str target = str_from_c(to);

	*s = (struct sink){.fd = -1, .kind = SINK_FILE};
	if (target.n == 0)
		return err_set(e, "the log's target is empty (stdout, a file, or syslog:)");
	if (str_eq(target, STR("stdout"))) {
		s->kind = SINK_STDOUT;
	} else if (str_starts(target, STR("syslog:"))) {
		s->kind = SINK_SYSLOG;
		if (facility_of(to + strlen("syslog:"), &s->facility, e) < 0)
			return -1;
		target = STR(SINK_SYSLOG_PATH);
	}
	return start(s, target, e);
}

int sink_open_again(const struct sink *s, struct sink *ret, struct err *e)
{
	*ret = (struct sink){.fd = -1, .kind = s->kind, .facility = s->facility};
	return start(ret, str_from_c(s->path), e);
}

int sink_give(const struct sink *s, unsigned uid, unsigned gid)
{
	return s->is_regular && s->kind == SINK_FILE ? fchown(s->fd, uid, gid) : 0;
}

const char *sink_name(const struct sink *s)
{
	return s->kind == SINK_STDOUT ? "stdout" : s->path;
}

void sink_close(struct sink *s)
{
	if (s->fd >= 0)
		close(s->fd);
	free(s->path);
	s->fd = -1;
	s->path = NULL;
}

static int wait_writable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int n = poll(&p, 1, timeout_ms);

	if (n == 0)
		errno = EAGAIN;
	return n > 0 ? 0 : -1;
}

/* Standard output may be shared with others, so it is not made non-blocking. A pipe that polls as
 * writable takes PIPE_BUF bytes without blocking, pipe(7); more is not given to it. */
static ssize_t write_stream(int fd, const struct iovec *iov, int timeout_ms)
{
	size_t n = iov->iov_len < PIPE_BUF ? iov->iov_len : PIPE_BUF;

	if (wait_writable(fd, timeout_ms) < 0)
		return -1;
	return write(fd, iov->iov_base, n);
}

static int send_line(struct sink *s, struct str line, int timeout_ms)
{
	char head[32];
	int n = snprintf(head, sizeof(head), "<%d>stile: ", s->facility | LOG_INFO);
	struct iovec parts[2] = {{head, (size_t)n}, {(void *)(uintptr_t)line.p, line.n}};
	struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 2};

	for (int attempt = 0; attempt < 2; attempt++) {
		if (s->fd >= 0 && sendmsg(s->fd, &msg, MSG_NOSIGNAL) >= 0)
			return 0;
		if (s->fd >= 0 && (errno == EAGAIN || errno == ENOBUFS)) {
			if (wait_writable(s->fd, timeout_ms) < 0)
				return -1;
			continue;
		}
		/* The daemon was restarted: its socket is another one now. */
		if (s->fd >= 0)
			close(s->fd);
		s->fd = -1;
		if (open_syslog(s, &s->fd, NULL) < 0) {
			errno = ECONNREFUSED;
			return -1;
		}
	}
	return -1;
}

static ssize_t write_syslog(struct sink *s, const struct iovec *iov, int timeout_ms)
{
	struct str rest = str_from(iov->iov_base, iov->iov_len);

	while (rest.n) {
		struct str behind = rest;
		struct str line = str_split(&behind, '\n');

		if (send_line(s, line, timeout_ms) < 0)
			break;
		rest = behind;
	}
	return rest.n < iov->iov_len ? (ssize_t)(iov->iov_len - rest.n) : -1;
}

/* Does the file end in half a line? No, where that cannot be seen. */
static bool ends_in_half_a_line(const struct sink *s)
{
	int reader = opener_open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char last = '\n';
	struct stat st;

	if (reader < 0)
		return false;
	if (fstat(reader, &st) == 0 && st.st_dev == s->dev && st.st_ino == s->ino && st.st_size > 0)
		(void)!pread(reader, &last, 1, st.st_size - 1);
	close(reader);
	return last != '\n';
}

/* A program that was killed may have left half a line; the first new one must not continue it. Not
 * before the first write: on a full disk the file may be opened anew while a line of our own stands
 * half in it, and the rest of that one is yet to come. */
static int end_last_line(struct sink *s)
{
	if (s->kind == SINK_FILE && s->is_regular && ends_in_half_a_line(s) &&
	    write(s->fd, "\n", 1) != 1)
		return -1;
	s->is_begun = true;
	return 0;
}

ssize_t sink_write(struct sink *s, const struct iovec *iov, int count, int timeout_ms)
{
	int fd = s->kind == SINK_STDOUT ? STDOUT_FILENO : s->fd;

	if (s->kind == SINK_SYSLOG)
		return write_syslog(s, iov, timeout_ms);
	if (s->has_poll)
		return write_stream(fd, iov, timeout_ms);
	if (!s->is_begun && end_last_line(s) < 0)
		return -1;
	return writev(fd, iov, count);
}

ssize_t sink_write_quick(struct sink *s, const struct iovec *iov, int count)
{
	int fd = s->kind == SINK_STDOUT ? STDOUT_FILENO : s->fd;
	ssize_t n;

	if (s->may_wait)
		return writev(fd, iov, count);
	n = pwritev2(fd, iov, count, -1, RWF_NOWAIT);
	if (n >= 0 || (errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS))
		return n;
	s->may_wait = true;
	return writev(fd, iov, count);
}

int sink_sync(const struct sink *s)
{
	int fd = s->kind == SINK_STDOUT ? STDOUT_FILENO : s->fd;

	return s->is_regular ? fdatasync(fd) : 0;
}

enum sink_state sink_state(const struct sink *s)
{
	struct stat named, open_one;

	if (s->kind != SINK_FILE || !s->is_regular)
		return SINK_SAME;
	if (fstat(s->fd, &open_one) < 0 || open_one.st_nlink == 0)
		return SINK_GONE;
	if (stat(s->path, &named) < 0)
		return errno == ENOENT || errno == ENOTDIR ? SINK_MOVED : SINK_SAME;
	return named.st_dev == s->dev && named.st_ino == s->ino ? SINK_SAME : SINK_MOVED;
}

int sink_unwrite(const struct sink *s, size_t bytes)
{
	struct stat st;
	off_t at;

	if (!s->is_regular || s->kind != SINK_FILE || fstat(s->fd, &st) < 0)
		return -1;
	/* After a write in append mode the offset is the end of what was written. */
	at = lseek(s->fd, 0, SEEK_CUR);
	if (at != st.st_size || (uintmax_t)at < bytes)
		return -1;
	return ftruncate(s->fd, at - (off_t)bytes);
}
