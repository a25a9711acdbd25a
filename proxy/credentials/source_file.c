/*
 * A secret in a file. Whoever changes it may write in place or rename a new file over it, also
 * behind a symbolic link, so the file is told by what stat finds at the end of the path. Read by
 * the main thread alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "logging/limits.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"

/* Clocks of file systems tick slowly: a second write within the same tick leaves size and mtime as
 * they are. A file that was this young when it was read is read again. */
#define SETTLED_AFTER_NS 2000000000LL

static int64_t ns_of(const struct timespec *t)
{
	return (int64_t)t->tv_sec * 1000000000LL + t->tv_nsec;
}

static void mark_set(struct source_mark *m, const struct stat *st)
{
	struct timespec now;
	int64_t age;

	clock_gettime(CLOCK_REALTIME, &now);
	age = ns_of(&now) - ns_of(&st->st_ctim);
	*m = (struct source_mark){
		.set = true,
		.settled = age > SETTLED_AFTER_NS,
		.dev = st->st_dev,
		.ino = st->st_ino,
		.size = st->st_size,
		.mtime = st->st_mtim,
		.ctime = st->st_ctim,
		.mode = st->st_mode,
	};
}

static bool mark_differs(const struct source_mark *m, const struct stat *st)
{
	return !m->set || m->dev != st->st_dev || m->ino != st->st_ino || m->size != st->st_size ||
	       ns_of(&m->mtime) != ns_of(&st->st_mtim) || ns_of(&m->ctime) != ns_of(&st->st_ctim);
}

bool source_file_changed(const char *path, const struct source_mark *mark)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return true;
	return !mark->settled || mark_differs(mark, &st);
}

static int unavailable(struct err *e, int sys_errno, const char *what)
{
	if (!sys_errno)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "%s", what);
	err_sys(e, sys_errno, "%s", what);
	if (e)
		e->reason = REASON_CREDENTIAL_UNAVAILABLE;
	return -1;
}

static int read_all(int fd, struct secret *s, size_t room, struct err *e)
{
	char *p = secret_room(s);
	size_t n = 0;

	while (n < room) {
		ssize_t got = read(fd, p + n, room - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return unavailable(e, errno, "its file cannot be read");
		if (got == 0)
			break;
		n += (size_t)got;
	}
	/* One trailing newline is an editor's, not the secret's. */
	if (n > 0 && p[n - 1] == '\n') {
		n--;
		if (n > 0 && p[n - 1] == '\r')
			n--;
	}
	secret_trim(s, n);
	return n > 0 ? 0 : unavailable(e, 0, "it is empty");
}

/* A file that is being written is not read halfway: what was stat'ed before must still be true. */
static int read_steady(int fd, struct source_mark *mark, struct secret **ret, struct err *e)
{
	struct secret *s;
	struct stat before, after;
	size_t room;

	if (fstat(fd, &before) != 0)
		return unavailable(e, errno, "its file cannot be read");
	if (!S_ISREG(before.st_mode))
		return unavailable(e, 0, "its file is not a regular file");
	mark_set(mark, &before);
	/* A newline may stand behind a secret of the largest size. */
	if (before.st_size > LIMIT_SECRET_BYTES + 2)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "it is larger than %d bytes",
				  LIMIT_SECRET_BYTES);
	room = (size_t)before.st_size;
	s = secret_new(room + 1);
	if (!s)
		return unavailable(e, 0, "out of memory");
	if (read_all(fd, s, room, e) != 0)
		goto fail;
	if (fstat(fd, &after) != 0 || mark_differs(mark, &after)) {
		mark->settled = false;
		unavailable(e, 0, "its file changed while it was read");
		goto fail;
	}
	*ret = s;
	return 0;
fail:
	secret_unref(s);
	return -1;
}

int source_file_read_lines(const char *path, struct source_mark *mark, struct secret **ret,
			   struct err *e)
{
	/* O_NONBLOCK: a FIFO of that name must not hold up the main thread. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	int rc;

	*mark = (struct source_mark){0};
	if (fd < 0)
		return unavailable(e, errno, "its file cannot be opened");
	rc = read_steady(fd, mark, ret, e);
	close(fd);
	return rc;
}

int source_file_read(const char *path, struct source_mark *mark, struct secret **ret, struct err *e)
{
	struct secret *s = NULL;

	if (source_file_read_lines(path, mark, &s, e) < 0)
		return -1;
	if (secret_check(s, e) < 0) {
		secret_unref(s);
		return -1;
	}
	*ret = s;
	return 0;
}
