/*
 * The flow: patterns, walk, names, copies into a folder beside the target, the list of hashes, and
 * one rename at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "logging/limits.h"
#include "proxy/export/copy.h"
#include "proxy/export/export.h"
#include "proxy/export/name.h"
#include "proxy/export/walk.h"

struct export
{
	/* owned */
	struct glob *globs[LIMIT_EXPORT_PATTERNS];
	struct found found;
	char *temporary;	/* the folder that becomes the target */
	struct strbuf manifest; /* as sha256sum(1) reads it */
	int from_fd, to_fd;
	/* plain */
	size_t globs_n;
	bool made; /* temporary is there */
};

static int compile(struct export *x, const struct export_options *o, struct err *e)
{
	if (o->patterns_n == 0 || o->patterns_n > LIMIT_EXPORT_PATTERNS)
		return err_set(e, "name 1 to %d patterns", LIMIT_EXPORT_PATTERNS);
	for (; x->globs_n < o->patterns_n; x->globs_n++)
		if (glob_new(o->patterns[x->globs_n], &x->globs[x->globs_n], e) != 0)
			return -1;
	return 0;
}

/* The sandbox could move what lies in its own workspace while we write there. */
static int check_outside(int from_fd, const char *to_parent, struct err *e)
{
	int fd = open(to_parent, O_PATH | O_DIRECTORY | O_CLOEXEC), r = 0;
	struct stat root = {0}, at = {0}, above = {0};

	if (fd < 0)
		return err_sys(e, errno, "%s", to_parent);
	if (fstat(from_fd, &root) != 0 || fstat(fd, &at) != 0)
		r = err_sys(e, errno, "%s", to_parent);
	while (r == 0) {
		int up;

		if (at.st_dev == root.st_dev && at.st_ino == root.st_ino) {
			r = err_set(e,
				    "the target is within the workspace (name a folder outside)");
			break;
		}
		up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (up < 0 || fstat(up, &above) != 0) {
			r = err_sys(e, errno, "%s", to_parent);
			if (up >= 0)
				close(up);
			break;
		}
		close(fd);
		fd = up;
		if (above.st_dev == at.st_dev && above.st_ino == at.st_ino)
			break; /* the root */
		at = above;
	}
	close(fd);
	return r;
}

/* "DIR/.NAME.XXXXXX" for DIR/NAME. DIR is the caller's to free; NULL on failure. */
static char *name_temporary(struct export *x, const char *to, struct err *e)
{
	size_t n = strlen(to);
	const char *slash;
	struct strbuf b;
	char *parent;

	while (n > 1 && to[n - 1] == '/')
		n--;
	if (n == 0 || (n == 1 && to[0] == '/')) {
		err_set(e, "no folder of that name can be made");
		return NULL;
	}
	slash = memrchr(to, '/', n);
	parent = slash ? strndup(to, slash == to ? 1 : (size_t)(slash - to)) : strdup(".");
	if (!parent) {
		err_set(e, "out of memory");
		return NULL;
	}
	strbuf_init(&b, 65536);
	strbuf_addf(&b, "%s/.", parent);
	strbuf_add(&b,
		   str_from(slash ? slash + 1 : to, n - (slash ? (size_t)(slash + 1 - to) : 0)));
	strbuf_adds(&b, ".XXXXXX");
	x->temporary = strbuf_take(&b);
	strbuf_clear(&b);
	if (!x->temporary) {
		err_set(e, "out of memory");
		free(parent);
		return NULL;
	}
	return parent;
}

static int open_both(struct export *x, const struct export_options *o, struct err *e)
{
	char *parent;
	struct stat st;
	int r;

	x->from_fd = open(o->from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (x->from_fd < 0)
		return err_sys(e, errno, "%s", o->from);
	if (lstat(o->to, &st) == 0)
		return err_set(e, "%s: is there already (name a folder that is not)", o->to);
	parent = name_temporary(x, o->to, e);
	if (!parent)
		return -1;
	r = check_outside(x->from_fd, parent, e);
	free(parent);
	return r;
}

static int make_temporary(struct export *x, const struct export_options *o, struct err *e)
{
	if (!mkdtemp(x->temporary))
		return err_sys(e, errno, "%s", o->to);
	x->made = true;
	x->to_fd = open(x->temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (x->to_fd < 0 || fchmod(x->to_fd, 0755) != 0)
		return err_sys(e, errno, "%s", o->to);
	return 0;
}

static void note(struct export *x, const struct copied *c, const char *path)
{
	for (size_t i = 0; i < sizeof(c->sha256); i++)
		strbuf_addf(&x->manifest, "%02x", c->sha256[i]);
	strbuf_addf(&x->manifest, "  %s\n", path);
}

/* Goes on after a fault, to tell all of them, but not after a limit. */
static int copy_all(struct export *x, const struct export_options *o, struct export_result *ret,
		    struct export_faults *f, struct err *e)
{
	uint64_t left = o->bytes_max ? o->bytes_max : LIMIT_EXPORT_BYTES;

	for (size_t i = 0; i < x->found.n; i++) {
		struct copied c = {0};

		if (copy_interrupted())
			return err_set(e, "interrupted");
		if (copy_file(x->from_fd, x->to_fd, x->found.paths[i], left, &c, f, e) < 0)
			return -1;
		if (f->n >= LIMIT_EXPORT_FAULTS)
			break;
		left -= c.bytes;
		ret->bytes += c.bytes;
		ret->files++;
		note(x, &c, x->found.paths[i]);
	}
	return f->n > 0 ? -1 : 0;
}

static int write_manifest(struct export *x, struct err *e)
{
	struct str rest = strbuf_str(&x->manifest);
	int fd = openat(x->to_fd, EXPORT_MANIFEST, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	ssize_t n = 0;

	if (x->manifest.overflowed)
		errno = EFBIG;
	if (fd < 0 || x->manifest.overflowed)
		goto fail;
	while (rest.n > 0 && (n = write(fd, rest.p, rest.n)) >= 0)
		rest = str_skip(rest, (size_t)n);
	if (n < 0 || close(fd) != 0 || syncfs(x->to_fd) != 0)
		goto fail;
	return 0;
fail:
	return err_sys(e, errno, "writing " EXPORT_MANIFEST);
}

static int on_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	(void)st, (void)kind, (void)where;
	return remove(path);
}

static void export_clear(struct export *x)
{
	for (size_t i = 0; i < x->globs_n; i++)
		glob_free(x->globs[i]);
	found_clear(&x->found);
	strbuf_clear(&x->manifest);
	if (x->from_fd >= 0)
		close(x->from_fd);
	if (x->to_fd >= 0)
		close(x->to_fd);
	if (x->made)
		(void)nftw(x->temporary, on_entry, 8, FTW_DEPTH | FTW_PHYS);
	free(x->temporary);
}

int export_run(const struct export_options *o, struct export_result *ret, struct export_faults *f,
	       struct err *e)
{
	struct export x = {.from_fd = -1, .to_fd = -1};
	sigset_t ending, before;
	int r = -1;

	*ret = (struct export_result){0};
	strbuf_init(&x.manifest, SIZE_MAX / 2);
	sigemptyset(&ending);
	sigaddset(&ending, SIGINT);
	sigaddset(&ending, SIGTERM);
	sigaddset(&ending, SIGHUP);
	(void)pthread_sigmask(SIG_BLOCK, &ending, &before);
	if (compile(&x, o, e) != 0 || open_both(&x, o, e) != 0 ||
	    walk_tree(x.from_fd, x.globs, x.globs_n,
		      o->files_max ? o->files_max : LIMIT_EXPORT_FILES, &x.found, f, e) != 0 ||
	    names_check(&x.found, f, e) != 0 || f->n > 0)
		goto out;
	if (make_temporary(&x, o, e) != 0 || copy_all(&x, o, ret, f, e) != 0 ||
	    write_manifest(&x, e) != 0)
		goto out;
	if (renameat2(AT_FDCWD, x.temporary, AT_FDCWD, o->to, RENAME_NOREPLACE) != 0) {
		err_sys(e, errno, "%s", o->to);
		goto out;
	}
	x.made = false;
	r = 0;
out:
	export_clear(&x);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}
