/*
 * Ways by files: what can be written that outlives the sandbox or steers the kernel, what can be
 * read that is somebody's secret, and devices.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "logging/attrs.h"
#include "logging/strbuf.h"
#include "proxy/prover/way.h"

/* ---- writing ---- */

static bool is_within(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* In memory, so that it ends with the sandbox. */
static bool is_fleeting(const char *path)
{
	struct statfs s;

	return statfs(path, &s) == 0 && (s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC);
}

static void write_in(struct finding *f, const char *folder, const char *workspace)
{
	char real[PATH_MAX];
	int fd;

	if (!realpath(folder, real) || is_within(real, workspace))
		return;
	fd = open(real, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) &&
	    access(real, W_OK) == 0)
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* no such files there, but others */
	if (fd < 0)
		finding_set(f, WAY_SHUT, "%s: %s", real, strerror(errno));
	else if (is_fleeting(real))
		finding_set(f, WAY_SHUT, "%s: in memory only", real);
	else
		finding_set(f, WAY_OPEN, "files can be made in %s", real);
	if (fd >= 0)
		close(fd);
}

static void try_write(const struct prover_options *o, struct finding *f)
{
	static const char *const known[] = {
		"/",	 "/etc",  "/usr",     "/usr/bin",	 "/usr/local/bin", "/bin",
		"/lib",	 "/var",  "/var/lib", "/var/spool/cron", "/opt",	   "/srv",
		"/boot", "/root", "/home",    "/var/tmp",	 "/tmp",	   "/dev/shm"};
	const struct passwd *user = getpwuid(getuid());
	const char *home = getenv("HOME"), *path = getenv("PATH");
	char workspace[PATH_MAX], *copy = path ? strdup(path) : NULL, *rest = copy, *folder;

	if (!realpath(o->workspace ? o->workspace : ".", workspace))
		snprintf(workspace, sizeof(workspace), "?");
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		write_in(f, known[i], workspace);
	if (home)
		write_in(f, home, workspace);
	if (user)
		write_in(f, user->pw_dir, workspace);
	while (rest && (folder = strsep(&rest, ":")))
		write_in(f, folder, workspace);
	free(copy);
}

/* Opened for writing, never written. */
static void try_kernel_files(const struct prover_options *o, struct finding *f)
{
	static const char *const known[] = {"/proc/sys/kernel/core_pattern",
					    "/proc/sys/kernel/modprobe",
					    "/proc/sys/vm/overcommit_memory",
					    "/proc/sys/net/ipv4/ip_forward",
					    "/proc/sysrq-trigger",
					    "/sys/kernel/uevent_helper",
					    "/proc/sys/fs/binfmt_misc/register",
					    "/sys/fs/cgroup/release_agent",
					    "/sys/fs/cgroup/cgroup.procs",

					    "/sys/power/state",
					    "/proc/irq/default_smp_affinity"};

	(void)o;
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		int fd = open(known[i], O_WRONLY | O_CLOEXEC | O_NONBLOCK);

		if (fd >= 0)
			finding_set(f, WAY_OPEN, "%s can be written", known[i]);
		else if (errno != ENOENT)
			finding_set(f, WAY_SHUT, "%s: %s", known[i], strerror(errno));
		if (fd >= 0)
			close(fd);
	}
	finding_set(f, WAY_SHUT, "none of them is there");
}

/* ---- reading ---- */

static bool has_entries(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *entry;
	bool found = false;

	while (d && !found && (entry = readdir(d)))
		found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	if (d)
		closedir(d);
	return found;
}

static void read_secret(struct finding *f, const char *path, const char *workspace)
{
	char real[PATH_MAX], byte[2];
	struct stat st;

	if (!realpath(path, real) || stat(real, &st) != 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			finding_set(f, WAY_SHUT, "%s: %s", path, strerror(errno));
		return;
	}
	if (is_within(real, workspace))
		return;
	if (S_ISDIR(st.st_mode) ? has_entries(real) : way_read(real, byte, sizeof(byte)) > 0)
		finding_set(f, WAY_OPEN, "%s can be read", path);
	else
		finding_set(f, WAY_SHUT, "%s: nothing in it, or not for us", path);
}

static void try_secrets(const struct prover_options *o, struct finding *f)
{
	static const char *const of_home[] = {".ssh",
					      ".aws",
					      ".azure",
					      ".config/gcloud",
					      ".config/gh",
					      ".docker",
					      ".kube",
					      ".gnupg",
					      ".netrc",
					      ".git-credentials",
					      ".npmrc",
					      ".pypirc",
					      ".cargo/credentials.toml",
					      ".config/hub",
					      ".terraform.d",
					      ".vault-token",
					      ".password-store",
					      ".env",
					      ".local/share/keyrings",
					      ".mozilla",
					      ".config/google-chrome",
					      ".config/chromium",
					      ".bash_history",
					      ".zsh_history",
					      ".python_history",
					      ".psql_history",
					      ".pgpass",
					      ".my.cnf"};
	static const char *const known[] = {"/etc/shadow",
					    "/etc/gshadow",
					    "/etc/sudoers",
					    "/etc/ssh/ssh_host_ed25519_key",
					    "/run/secrets",
					    "/var/run/secrets/kubernetes.io/serviceaccount/token",
					    "/etc/kubernetes/admin.conf",
					    "/var/lib/kubelet/pki",
					    "/var/lib/stile/ca/ca.key",
					    "/proc/kcore",
					    "/proc/kmsg",
					    "/sys/firmware/dmi/tables/DMI",
					    "/dev/mem"};
	const struct passwd *user = getpwuid(getuid());
	const char *homes[] = {getenv("HOME"), user ? user->pw_dir : NULL, "/root"};
	char workspace[PATH_MAX], path[PATH_MAX];
	struct strbuf b;

	if (!realpath(o->workspace ? o->workspace : ".", workspace))
		snprintf(workspace, sizeof(workspace), "?");
	for (size_t h = 0; h < ARRAY_LEN(homes); h++)
		for (size_t i = 0; homes[h] && i < ARRAY_LEN(of_home); i++) {
			snprintf(path, sizeof(path), "%s/%s", homes[h], of_home[i]);
			read_secret(f, path, workspace);
		}
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		read_secret(f, known[i], workspace);
	/* The folders above the workspace: a project's secrets, one level too high. */
	for (char *slash = strrchr(workspace, '/'); slash; slash = strrchr(workspace, '/')) {
		*slash = '\0';
		strbuf_init_fixed(&b, path, sizeof(path));
		strbuf_addf(&b, "%s/.env", workspace);
		read_secret(f, path, "?");
	}
	finding_set(f, WAY_SHUT, "none of the usual places is there");
}

/* ---- devices ---- */

static bool is_harmless(const char *name)
{
	static const char *const known[] = {"null", "zero",  "full",   "random", "urandom", "tty",
					    "ptmx", "stdin", "stdout", "stderr", "console", "fd",
					    "core", "pts",   "shm",    "mqueue", "log"};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (strcmp(name, known[i]) == 0)
			return true;
	return false;
}

static void open_devices(struct finding *f, const char *folder, int depth)
{
	DIR *d = opendir(folder);
	struct dirent *entry;

	while (d && (entry = readdir(d))) {
		char path[PATH_MAX];
		struct stat st;
		int fd;

		if (entry->d_name[0] == '.' || is_harmless(entry->d_name))
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		if (lstat(path, &st) != 0)
			continue;
		if (S_ISDIR(st.st_mode) && depth < 3)
			open_devices(f, path, depth + 1);
		if (!S_ISBLK(st.st_mode) && !S_ISCHR(st.st_mode))
			continue;
		fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd >= 0)
			finding_set(f, WAY_OPEN, "%s can be opened", path);
		else
			finding_set(f, WAY_SHUT, "%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
	}
	if (d)
		closedir(d);
}

static void try_devices(const struct prover_options *o, struct finding *f)
{
	char path[PATH_MAX];
	int fd;

	open_devices(f, "/dev", 0);
	/* The numbers of /dev/mem, in case a node of our own works. */
	snprintf(path, sizeof(path), "%s/stile-prover-%d", o->workspace ? o->workspace : ".",
		 (int)getpid());
	if (mknod(path, S_IFCHR | 0600, 0x0101) == 0) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			finding_set(f, WAY_OPEN, "a device node of our own works");
		if (fd >= 0)
			close(fd);
		(void)unlink(path);
	}
	finding_set(f, WAY_SHUT, "none but those that all programs need");
}

const struct way ways_files[] = {
	{"write", "files outside the workspace", try_write},
	{"kernel", "files that steer the kernel", try_kernel_files},
	{"secret", "the usual places of secrets", try_secrets},
	{"device", "devices", try_devices},
	{NULL, NULL, NULL},
};
