/*
 * Closes the file system. First what stays visible is held by descriptors, as mounts that hang
 * nowhere; then all is made read-only and the folders of our own are put over the others; then what
 * was held is put back into them. Nothing can be taken away again: the command has no privilege in
 * this mount namespace, and can have none of its own.
 *
 * Not bubblewrap, which does the same: it would need a second user namespace, as it refuses to run
 * with the capabilities of pid 1, and would stand as one process more between stile and the
 * command, with its own ideas of signals and of the exit status.
 */
#include "proxy/sandbox/boundary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mount.h>
#include <sys/stat.h>

#include "logging/limits.h"
#include "proxy/sandbox/env.h"
#include "proxy/sandbox/namespace.h"

#define NEW_DEV SANDBOX_DIR "/.dev"
static int failed(const char *what, const char *path, struct err *e)
{
	int sys_errno = errno;

	err_sys(e, sys_errno, "cannot %s %s in the sandbox", what, path);
	if (sys_errno == EPERM || sys_errno == EACCES)
		namespace_explain(sys_errno, e);
	return -1;
}

/* ---- what is held ---- */

/* The mount at path, with all that is mounted below it, as it is seen now. -1: it is not there. */
static int hold(const char *path, bool read_only)
{
	struct mount_attr a = {.attr_set = MOUNT_ATTR_NOSUID |
					   (read_only ? (uint64_t)MOUNT_ATTR_RDONLY : 0)};
	int fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);

	if (fd >= 0 && mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &a, sizeof(a)) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The folders on the way, and the last name as what fd is: a folder, or a file. What is there
 * already stays. */
static int make_place(const char *path, bool is_dir, struct err *e)
{
	char *copy = strdup(path);
	int rc = copy ? 0 : err_set(e, "out of memory"), fd;

	for (char *s = copy ? strchr(copy + 1, '/') : NULL; s && rc == 0; s = strchr(s + 1, '/')) {
		*s = '\0';
		if (mkdir(copy, 0755) != 0 && errno != EEXIST && errno != EROFS)
			rc = failed("make", copy, e);
		*s = '/';
	}
	if (rc == 0 && access(path, F_OK) != 0) {
		fd = is_dir ? mkdir(path, 0755) : open(path, O_CREAT | O_CLOEXEC, 0444);
		if (fd < 0 && errno != EEXIST)
			rc = failed("make", path, e);
		if (fd > 0)
			close(fd);
	}
	free(copy);
	return rc;
}

/* Takes fd over; -1 is nothing. */
static int put_back(int fd, const char *path, struct err *e)
{
	struct stat st;
	int rc = 0;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) != 0)
		rc = failed("look at", path, e);
	if (rc == 0)
		rc = make_place(path, S_ISDIR(st.st_mode), e);
	if (rc == 0 && move_mount(fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) != 0)
		rc = failed("put back", path, e);
	close(fd);
	return rc;
}

/* ---- folders of our own ---- */

static int own_folder(const char *path, const char *mode, struct err *e)
{
	char options[64];

	snprintf(options, sizeof(options), "size=%d%%,nr_inodes=%d,mode=%s",
		 LIMIT_RUN_TMPFS_PERCENT, LIMIT_RUN_TMPFS_INODES, mode);
	if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options) != 0 && errno != ENOENT)
		return failed("mount", path, e);
	return 0;
}

static int make_node(const char *name, const char *from, struct err *e)
{
	char path[sizeof(NEW_DEV) + 32];
	int fd;

	snprintf(path, sizeof(path), NEW_DEV "/%s", name);
	fd = open(path, O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return failed("make", path, e);
	close(fd);
	return mount(from, path, NULL, MS_BIND, NULL) == 0 ? 0 : failed("put back", from, e);
}

static int make_link(const char *target, const char *name, struct err *e)
{
	char path[sizeof(NEW_DEV) + 32];

	snprintf(path, sizeof(path), NEW_DEV "/%s", name);
	return symlink(target, path) == 0 ? 0 : failed("make", path, e);
}

/* The terminal that the command is started on, under the one name that is the same everywhere; the
 * user's other terminals are not to be had. */
static int keep_terminal(struct err *e)
{
	char path[64];

	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (isatty(fd) && ttyname_r(fd, path, sizeof(path)) == 0)
			return make_node("console", path, e);
	return 0;
}

static int make_dev(struct err *e)
{
	static const char *const nodes[] = {"null", "zero", "full", "random", "urandom", "tty"};
	char from[32];

	if (mount("tmpfs", NEW_DEV, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k") != 0)
		return failed("mount", NEW_DEV, e);
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
		snprintf(from, sizeof(from), "/dev/%s", nodes[i]);
		if (make_node(nodes[i], from, e) != 0)
			return -1;
	}
	if (keep_terminal(e) != 0 || make_link("/proc/self/fd", "fd", e) != 0 ||
	    make_link("/proc/self/fd/0", "stdin", e) != 0 ||
	    make_link("/proc/self/fd/1", "stdout", e) != 0 ||
	    make_link("/proc/self/fd/2", "stderr", e) != 0 || make_link("pts/ptmx", "ptmx", e) != 0)
		return -1;
	if (mkdir(NEW_DEV "/pts", 0755) != 0 || mkdir(NEW_DEV "/shm", 01777) != 0 ||
	    mount("devpts", NEW_DEV "/pts", "devpts", MS_NOSUID | MS_NOEXEC,
		  "newinstance,ptmxmode=0666,mode=0620") != 0)
		return failed("mount", NEW_DEV "/pts", e);
	return own_folder(NEW_DEV "/shm", "1777", e);
}

/* The folder itself, of which the mount points are, is closed once all are in it. */
static int place_dev(struct err *e)
{
	struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY};

	if (mount(NEW_DEV, "/dev", NULL, MS_MOVE, NULL) != 0)
		return failed("mount", "/dev", e);
	if (mount_setattr(AT_FDCWD, "/dev", 0, &a, sizeof(a)) != 0)
		return failed("make read-only", "/dev", e);
	return 0;
}

/* ---- the kernel's ---- */

/* What of /proc steers the machine and not a process. */
static int close_proc(struct err *e)
{
	static const char *const fixed[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq",
					    "/proc/bus", "/proc/fs"};
	static const char *const hidden[] = {"/proc/kcore",	  "/proc/keys",
					     "/proc/kmsg",	  "/proc/latency_stats",
					     "/proc/timer_list",  "/proc/timer_stats",
					     "/proc/sched_debug", "/proc/acpi",
					     "/proc/scsi"};
	struct mount_attr a = {.attr_clr = MOUNT_ATTR_RDONLY};

	/* Each takes over that the mount is read-only, of which /proc itself is then relieved. */
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		if (mount(fixed[i], fixed[i], NULL, MS_BIND | MS_REC, NULL) != 0 && errno != ENOENT)
			return failed("make read-only", fixed[i], e);
	for (size_t i = 0; i < ARRAY_LEN(hidden); i++)
		if (files_cover(hidden[i], e) != 0)
			return -1;
	if (mount_setattr(AT_FDCWD, "/proc", 0, &a, sizeof(a)) != 0)
		return failed("open", "/proc", e);
	return 0;
}

/* A /sys that shows the sandbox's own network and no control groups, where the kernel gives one. */
static int close_sys(struct err *e)
{
	if (mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL) !=
		    0 &&
	    errno != EPERM && errno != EBUSY && errno != ENOENT)
		return failed("mount", "/sys", e);
	return files_cover("/sys/firmware", e);
}

/* ---- all of it ---- */

/* A project's secrets in the folders above the one that is worked in. */
static int cover_above(const char *workspace, struct err *e)
{
	char path[4096];
	int rc = 0;

	for (size_t n = strlen(workspace); n > 0 && rc == 0;) {
		while (n > 0 && workspace[n - 1] != '/')
			n--;
		if (n == 0)
			break;
		if (snprintf(path, sizeof(path), "%.*s.env", (int)n, workspace) < (int)sizeof(path))
			rc = files_cover(path, e);
		n--;
	}
	return rc;
}

static int make_own_folders(const struct files_plan *p, struct err *e)
{
	if (own_folder("/tmp", "1777", e) != 0 || own_folder("/var/tmp", "1777", e) != 0)
		return -1;
	for (size_t i = 0; i < p->homes_n; i++)
		/* Below /tmp it has just gone. */
		if (make_place(p->homes[i], true, e) != 0 ||
		    own_folder(p->homes[i], "0700", e) != 0)
			return -1;
	return 0;
}

static int put_all_back(const struct files_plan *p, const int *shown, int workspace, struct err *e)
{
	for (size_t i = 0; i < p->shown_n; i++)
		if (put_back(shown[i], p->shown[i], e) != 0)
			return -1;
	return put_back(workspace, p->workspace, e);
}

/* On failure the process ends, and with it what is held. */
int boundary_close(const struct files_plan *p, struct err *e)
{
	struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};
	int *shown = calloc(p->shown_n + 1, sizeof(*shown));
	int workspace = p->no_workspace ? -1 : hold(p->workspace, false), rc = -1;

	if (!shown)
		return err_set(e, "out of memory");
	for (size_t i = 0; i < p->shown_n; i++)
		shown[i] = hold(p->shown[i], true);
	if (workspace < 0 && !p->no_workspace)
		failed("keep", p->workspace, e);
	else if (mkdir(NEW_DEV, 0755) != 0)
		failed("make", NEW_DEV, e);
	else if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &a, sizeof(a)) != 0)
		failed("make read-only", "/", e);
	else if (close_proc(e) == 0 && close_sys(e) == 0 && make_own_folders(p, e) == 0 &&
		 put_all_back(p, shown, workspace, e) == 0 && make_dev(e) == 0 && place_dev(e) == 0)
		rc = p->no_workspace ? 0 : cover_above(p->workspace, e);
	free(shown);
	return rc;
}
