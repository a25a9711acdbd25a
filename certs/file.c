/*
 * One open, one stat of what was opened, one buffer of the right size: a key is never copied about
 * by a growing buffer. Called by what reads PEM here.
 */
#include "certs/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "logging/opener.h"

/* Fills t from fd. One byte more than the stated size is asked for, to notice a file that grows. */
static int read_all(int fd, size_t size, struct file_text *t, const char *name, struct err *e)
{
	t->p = OPENSSL_malloc(size + 1);
	if (!t->p)
		return err_set(e, "%s: out of memory", name);
	t->n = 0;
	while (t->n <= size) {
		ssize_t got = read(fd, t->p + t->n, size + 1 - t->n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_sys(e, errno, "%s: cannot read it", name);
		if (got == 0)
			return 0;
		t->n += (size_t)got;
	}
	return err_set(e, "%s: it changed while it was read", name);
}

int file_read(int dir_fd, const char *name, size_t max, struct file_text *ret, struct err *e)
{
	/* Not to hang on a FIFO of that name. */
	int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	int fd = dir_fd == AT_FDCWD ? opener_open(name, flags) : openat(dir_fd, name, flags);
	struct file_text t = {0};
	struct stat st;
	int rc = -1;

	if (fd < 0)
		return err_sys(e, errno, "%s: cannot open it", name);
	if (fstat(fd, &st) != 0) {
		err_sys(e, errno, "%s: cannot stat it", name);
		goto out;
	}
	if (!S_ISREG(st.st_mode)) {
		err_set(e, "%s: not a regular file", name);
		goto out;
	}
	if (st.st_size < 0 || (size_t)st.st_size > max) {
		err_set(e, "%s: larger than %zu bytes", name, max);
		goto out;
	}
	if (read_all(fd, (size_t)st.st_size, &t, name, e) != 0) {
		t.n = (size_t)st.st_size + 1;
		file_text_wipe(&t);
		goto out;
	}
	t.mode = st.st_mode;
	t.uid = st.st_uid;
	*ret = t;
	rc = 0;
out:
	close(fd);
	return rc;
}

void file_text_wipe(struct file_text *t)
{
	OPENSSL_clear_free(t->p, t->n);
	t->p = NULL;
	t->n = 0;
}

int file_no_passphrase(char *buf, int size, int rwflag, void *arg)
{
	(void)buf;
	(void)size;
	(void)rwflag;
	(void)arg;
	return -1;
}
