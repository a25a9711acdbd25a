/*
 * Copying. The file may change under our hands: what counts is what its descriptor says, before and
 * after. Nothing but bytes is taken along: no owner, mode, time, attribute or hole.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <openssl/evp.h>

#include "logging/limits.h"
#include "proxy/export/copy.h"

#define PIECE 65536

bool copy_interrupted(void)
{
	sigset_t pending;

	return sigpending(&pending) == 0 &&
	       (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
		sigismember(&pending, SIGHUP) == 1);
}

/* Each segment of path is looked up below root, on its file system, through no link. */
static int open_below(int root, const char *path, uint64_t flags)
{
	const struct open_how how = {
		.flags = flags | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
			   RESOLVE_NO_XDEV,
	};

	return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

/* Is path, looked up anew, the one name of the file that st tells of? A file outside whose second
 * name was here when it was opened, and gone when its names were counted, has one too. Asked more
 * than once, as a name may come back as fast as it goes. */
static bool is_only_name(int root, const char *path, const struct stat *st)
{
	char folder[LIMIT_EXPORT_PATH + 1] = ".";
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	bool is = true;
	int fd;

	if (slash) {
		memcpy(folder, path, (size_t)(slash - path));
		folder[slash - path] = '\0';
	}
	fd = open_below(root, folder, O_PATH | O_DIRECTORY);
	if (fd < 0)
		return false;
	for (int i = 0; i < 3 && is; i++) {
		struct stat now = {0};

		is = fstatat(fd, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_nlink == 1 &&
		     now.st_dev == st->st_dev && now.st_ino == st->st_ino;
	}
	close(fd);
	return is;
}

/* 0, or 1: not to leave. */
static int judge(int fd, const char *path, uint64_t bytes_max, struct stat *ret,
		 struct export_faults *f)
{
	struct stat st;
	off_t hole;

	if (fstat(fd, &st) != 0) {
		export_fault(f, path, "%s", strerror(errno));
		return 1;
	}
	if (!S_ISREG(st.st_mode)) {
		export_fault(f, path, "is no regular file");
		return 1;
	}
	if (st.st_nlink != 1) {
		export_fault(f, path, "has got another name (a hard link) meanwhile");
		return 1;
	}
	if ((uint64_t)st.st_size > bytes_max) {
		export_fault(f, path,
			     "is %jd bytes, with %ju left of what may be exported (--max-bytes)",
			     (intmax_t)st.st_size, (uintmax_t)bytes_max);
		return 1;
	}
	hole = lseek(fd, 0, SEEK_HOLE);
	if (hole >= 0 && hole < st.st_size) {
		export_fault(f, path, "is sparse: its size is more than what is in it");
		return 1;
	}
	*ret = st;
	return lseek(fd, 0, SEEK_SET) == 0 ? 0 : 1;
}

/* The folders on the way, made where they are not there yet. The tree is ours alone. */
static int make_folders(int root, const char *path, struct err *e)
{
	char folder[LIMIT_EXPORT_PATH + 1];

	for (const char *s = strchr(path, '/'); s; s = strchr(s + 1, '/')) {
		memcpy(folder, path, (size_t)(s - path));
		folder[s - path] = '\0';
		if (mkdirat(root, folder, 0755) != 0 && errno != EEXIST)
			return err_sys(e, errno, "making %s", folder);
	}
	return 0;
}

static int write_all(int fd, const unsigned char *p, size_t n, struct err *e)
{
	while (n > 0) {
		ssize_t w = write(fd, p, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return err_sys(e, errno, "writing");
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

/* Up to size bytes and one beyond, to see that there is none. 0, 1: reading failed or the size is
 * another, -1. */
static int copy_bytes(int in, int out, uint64_t size, EVP_MD_CTX *md, struct err *e)
{
	unsigned char *buf = malloc(PIECE);
	uint64_t done = 0;
	int r = buf ? 0 : err_set(e, "out of memory");

	while (r == 0) {
		ssize_t n = read(in, buf, PIECE);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || (uint64_t)n > size - done)
			r = 1;
		else if (n == 0)
			break;
		else if (copy_interrupted())
			r = err_set(e, "interrupted");
		else if (EVP_DigestUpdate(md, buf, (size_t)n) != 1)
			r = err_set(e, "SHA-256 failed");
		else
			r = write_all(out, buf, (size_t)n, e);
		done += r == 0 ? (uint64_t)n : 0;
	}
	free(buf);
	return r == 0 && done != size ? 1 : r;
}

static int copy_opened(int in, int out, const struct stat *st, struct copied *ret, struct err *e)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	struct stat after;
	int r;

	if (!md || EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1) {
		EVP_MD_CTX_free(md);
		return err_set(e, "SHA-256 is not to be had");
	}
	r = copy_bytes(in, out, (uint64_t)st->st_size, md, e);
	if (r == 0 && EVP_DigestFinal_ex(md, ret->sha256, NULL) != 1)
		r = err_set(e, "SHA-256 failed");
	if (r == 0 && (fstat(in, &after) != 0 || after.st_size != st->st_size ||
		       after.st_mtim.tv_sec != st->st_mtim.tv_sec ||
		       after.st_mtim.tv_nsec != st->st_mtim.tv_nsec || after.st_nlink != 1))
		r = 1;
	EVP_MD_CTX_free(md);
	ret->bytes = (uint64_t)st->st_size;
	return r;
}

int copy_file(int from_root, int to_root, const char *path, uint64_t bytes_max, struct copied *ret,
	      struct export_faults *f, struct err *e)
{
	int in = open_below(from_root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY), out = -1, r;
	struct stat st;

	if (in < 0) {
		export_fault(f, path, "cannot be opened: %s", strerror(errno));
		return 1;
	}
	r = judge(in, path, bytes_max, &st, f);
	if (r == 0 && !is_only_name(from_root, path, &st)) {
		export_fault(f, path, "is not what it was a moment ago");
		r = 1;
	}
	if (r == 0)
		r = make_folders(to_root, path, e);
	if (r == 0) {
		out = openat(to_root, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			     0644);
		if (out < 0)
			r = err_sys(e, errno, "making a copy");
	}
	if (r == 0) {
		r = copy_opened(in, out, &st, ret, e);
		if (r == 0 && !is_only_name(from_root, path, &st))
			r = 1;
		if (r == 1)
			export_fault(f, path, "changed while it was copied");
	}
	if (out >= 0 && close(out) != 0 && r == 0)
		r = err_sys(e, errno, "writing");
	close(in);
	return r;
}
