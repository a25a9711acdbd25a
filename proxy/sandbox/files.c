/*
 * Carries out what plan.c decided, in the run's own mount namespace: own /proc, own /run, covers
 * over secrets, the bundle over the system's list of roots. Called by pid 1 while it still has its
 * capabilities; a program in the sandbox can neither see under a mount nor take it away.
 */
#include "proxy/sandbox/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mount.h>
#include <sys/stat.h>

#include "proxy/sandbox/boundary.h"
#include "proxy/sandbox/env.h"
#include "proxy/sandbox/namespace.h"

#define EMPTY_FILE SANDBOX_DIR "/.hidden-file"
#define EMPTY_DIR  SANDBOX_DIR "/.hidden-folder"

/* Programs that know no variable read one of these: GnuTLS (wget), Go, libcurl's defaults. */
static const char *const system_bundles[] = {
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
};

/* Sockets of a display, by which the user's keyboard could be played. */
static const char *const display_dirs[] = {"/tmp/.X11-unix", "/tmp/.ICE-unix"};

/* Some systems keep their programs behind these links. */
static const char *const kept_links[] = {"/run/current-system", "/run/booted-system",
					 "/run/opengl-driver"};

static int mount_failed(const char *what, const char *path, struct err *e)
{
	int sys_errno = errno;

	err_sys(e, sys_errno, "cannot %s %s in the sandbox", what, path);
	if (sys_errno == EPERM || sys_errno == EACCES)
		namespace_explain(sys_errno, e);
	return -1;
}

int files_enter(struct err *e)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return mount_failed("keep to itself", "/", e);
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0)
		return 0;
	if (errno != EPERM)
		return mount_failed("mount", "/proc", e);
	/* The kernel gives a /proc only where the present one is whole (mount_namespaces(7)). */
	return err_set(e,
		       "cannot mount /proc in the sandbox: parts of it are covered, as in a "
		       "container (start that with unmasked paths, or run \"stile serve\" beside "
		       "it)");
}

static int write_file(const char *path, const char *p, size_t n, mode_t mode, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return err_sys(e, errno, "cannot make %s in the sandbox", path);
	while (n > 0) {
		ssize_t done = write(fd, p, n);

		if (done < 0) {
			err_sys(e, errno, "cannot write %s in the sandbox", path);
			close(fd);
			return -1;
		}
		p += done;
		n -= (size_t)done;
	}
	fchmod(fd, mode);
	close(fd);
	return 0;
}

static char *read_whole(int fd, size_t *ret_n)
{
	struct stat st;
	size_t n = 0;
	char *p;

	if (fstat(fd, &st) != 0 || st.st_size <= 0 || lseek(fd, 0, SEEK_SET) != 0)
		return NULL;
	p = malloc((size_t)st.st_size);
	while (p && n < (size_t)st.st_size) {
		ssize_t got = read(fd, p + n, (size_t)st.st_size - n);

		if (got <= 0) {
			free(p);
			return NULL;
		}
		n += (size_t)got;
	}
	*ret_n = n;
	return p;
}

static int write_trust(const struct files_trust *t, struct err *e)
{
	char link[sizeof(SANDBOX_DIR) + 32];
	size_t n = 0;
	char *p = read_whole(t->fd, &n);
	size_t pem_len = t->ca_len + t->bundle_len;
	int rc = -1;

	if (!p || pem_len >= n) {
		err_set(e, "the bundle of certificates did not reach the sandbox");
		goto out;
	}
	if (write_file(SANDBOX_CA, p, t->ca_len, 0444, e) != 0 ||
	    write_file(SANDBOX_BUNDLE, p + t->ca_len, t->bundle_len, 0444, e) != 0 ||
	    write_file(SANDBOX_TRUSTSTORE, p + pem_len, n - pem_len, 0444, e) != 0)
		goto out;
	/* For those that look into SSL_CERT_DIR alone. */
	snprintf(link, sizeof(link), SANDBOX_DIR "/%.16s.0", t->ca_hash);
	if (symlink("ca.pem", link) != 0)
		err_sys(e, errno, "cannot make %s in the sandbox", link);
	else
		rc = 0;
out:
	free(p);
	return rc;
}

/* An own, empty /run: the sockets of the system's and the user's daemons are in there, and so are
 * most secrets of containers. */
static int make_run(struct err *e)
{
	char targets[ARRAY_LEN(kept_links)][256];

	for (size_t i = 0; i < ARRAY_LEN(kept_links); i++) {
		ssize_t n = readlink(kept_links[i], targets[i], sizeof(targets[i]) - 1);

		targets[i][n > 0 ? n : 0] = '\0';
	}
	if (mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64m") != 0)
		return mount_failed("mount", "/run", e);
	for (size_t i = 0; i < ARRAY_LEN(kept_links); i++) {
		if (targets[i][0] && symlink(targets[i], kept_links[i]) != 0)
			return err_sys(e, errno, "cannot make %s in the sandbox", kept_links[i]);
	}
	if (mkdir(SANDBOX_DIR, 0755) != 0 || mkdir(EMPTY_DIR, 0000) != 0)
		return err_sys(e, errno, "cannot make %s in the sandbox", SANDBOX_DIR);
	return write_file(EMPTY_FILE, "", 0, 0000, e);
}

static int make_parents(const char *path, struct err *e)
{
	char *copy = strdup(path);
	int rc = copy ? 0 : err_set(e, "out of memory");

	for (char *s = copy ? strchr(copy + 1, '/') : NULL; s && rc == 0; s = strchr(s + 1, '/')) {
		*s = '\0';
		if (mkdir(copy, 0755) != 0 && errno != EEXIST)
			rc = err_sys(e, errno, "cannot make %s in the sandbox", copy);
		*s = '/';
	}
	free(copy);
	return rc;
}

int files_write(const char *path, struct str text, struct err *e)
{
	return make_parents(path, e) != 0 ? -1 : write_file(path, text.p, text.n, 0444, e);
}

/* A workspace below /run is put back at its place; fd was opened before /run was covered. */
static int restore_workspace(const char *path, int fd, struct err *e)
{
	char from[64];

	if (strncmp(path, "/run/", 5) != 0)
		return 0;
	snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
	if (make_parents(path, e) != 0)
		return -1;
	if (mkdir(path, 0755) != 0 && errno != EEXIST)
		return err_sys(e, errno, "cannot make %s in the sandbox", path);
	return mount(from, path, NULL, MS_BIND | MS_REC, NULL) == 0
		       ? 0
		       : mount_failed("restore", path, e);
}

/* A mount point cannot be renamed. With what is mounted below it, which the kernel would not let
 * go. */
static int pin(const char *path, struct err *e)
{
	return mount(path, path, NULL, MS_BIND | MS_REC, NULL) == 0 ? 0
								    : mount_failed("pin", path, e);
}

static int freeze(const char *path, struct err *e)
{
	struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY};

	if (mount(path, path, NULL, MS_BIND, NULL) != 0 ||
	    mount_setattr(AT_FDCWD, path, 0, &a, sizeof(a)) != 0)
		return mount_failed("make read-only", path, e);
	return 0;
}

int files_cover(const char *path, struct err *e)
{
	struct stat st;
	bool is_dir;

	/* Covered with its folder already, or it never was. Its real path is in the plan as well.
	 */
	if (lstat(path, &st) != 0 || S_ISLNK(st.st_mode))
		return 0;
	/* /dev/null as a log file is the others' too. */
	is_dir = S_ISDIR(st.st_mode);
	if (!is_dir && !S_ISREG(st.st_mode) && !S_ISSOCK(st.st_mode) && !S_ISFIFO(st.st_mode))
		return 0;
	return mount(is_dir ? EMPTY_DIR : EMPTY_FILE, path, NULL, MS_BIND, NULL) == 0
		       ? 0
		       : mount_failed("hide", path, e);
}

static int carry_out_one(const struct files_item *it, struct err *e)
{
	/* Gone with the old /run, or it never was. */
	if (it->how != FILES_HIDE && access(it->path, F_OK) != 0)
		return 0;
	switch (it->how) {
	case FILES_PIN: return pin(it->path, e);
	case FILES_FREEZE: return freeze(it->path, e);
	case FILES_HIDE: return files_cover(it->path, e);
	}
	return 0;
}

static int carry_out(const struct files_plan *p, struct err *e)
{
	for (int how = FILES_PIN; how <= FILES_HIDE; how++) {
		for (size_t i = 0; i < p->n; i++) {
			if ((int)p->v[i].how == how && carry_out_one(&p->v[i], e) != 0)
				return -1;
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(display_dirs); i++) {
		if (files_cover(display_dirs[i], e) != 0)
			return -1;
	}
	return 0;
}

static int cover_system_bundles(struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(system_bundles); i++) {
		struct stat st;

		/* A link leads to where one of the others lies, or to a file that mount finds. */
		if (stat(system_bundles[i], &st) != 0 || !S_ISREG(st.st_mode))
			continue;
		if (mount(SANDBOX_BUNDLE, system_bundles[i], NULL, MS_BIND, NULL) != 0)
			return mount_failed("put the certificates over", system_bundles[i], e);
	}
	return 0;
}

static int write_texts(const struct files_plan *p, struct err *e)
{
	char path[sizeof(SANDBOX_PLACEHOLDERS) + 80];

	if (p->texts_n > 0 && mkdir(SANDBOX_PLACEHOLDERS, 0755) != 0)
		return err_sys(e, errno, "cannot make %s in the sandbox", SANDBOX_PLACEHOLDERS);
	for (size_t i = 0; i < p->texts_n; i++) {
		const struct files_text *t = &p->texts[i];

		snprintf(path, sizeof(path), SANDBOX_PLACEHOLDERS "/%s", t->name);
		if (write_file(path, t->text.p, t->text.n, 0444, e) != 0)
			return -1;
	}
	return 0;
}

int files_arrange(const struct files_plan *p, const struct files_trust *t, struct err *e)
{
	int workspace_fd = open(p->workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int rc = -1;

	if (workspace_fd < 0 && !p->no_workspace)
		return err_sys(e, errno, "%s: cannot be the workspace", p->workspace);
	if (make_run(e) != 0 || write_trust(t, e) != 0 || write_texts(p, e) != 0 ||
	    restore_workspace(p->workspace, workspace_fd, e) != 0 || carry_out(p, e) != 0 ||
	    cover_system_bundles(e) != 0 || files_cover_resolver(e) != 0 ||
	    boundary_close(p, e) != 0)
		goto out;
	if (chdir(p->workspace) != 0) {
		err_sys(e, errno, "%s: cannot be the workspace", p->workspace);
		goto out;
	}
	rc = 0;
out:
	if (workspace_fd >= 0)
		close(workspace_fd);
	return rc;
}
