/*
 * Ways by Unix sockets and by descriptors: what somebody left open.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>
#include <sys/un.h>

#include "logging/attrs.h"
#include "logging/limits.h"
#include "logging/str.h"
#include "proxy/prover/way.h"

#define TABLE_MAX (1 << 20)

static int connect_to(const char *path, bool abstract, int type)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	size_t n = strlen(path);

	if (n >= sizeof(a.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(a.sun_path, path, n);
	if (abstract)
		a.sun_path[0] = '\0';
	return way_connect((struct sockaddr *)&a,
			   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + !abstract),
			   type, LIMIT_MS_PROVER_CONNECT);
}

static void ask_path(struct finding *f, const char *path, bool abstract)
{
	if (connect_to(path, abstract, SOCK_STREAM) == 0 ||
	    (errno == EPROTOTYPE && (connect_to(path, abstract, SOCK_DGRAM) == 0 ||
				     connect_to(path, abstract, SOCK_SEQPACKET) == 0)))
		finding_set(f, WAY_OPEN, "connected to %s", path);
	else if (errno != ENOENT && errno != ENOTDIR)
		finding_set(f, WAY_SHUT, "%s: %s", path, strerror(errno));
}

/* Those of this network namespace are listed. */
static void try_abstract(const struct prover_options *o, struct finding *f)
{
	char *table = malloc(TABLE_MAX), *rest = table, *line;

	(void)o;
	if (table && way_read("/proc/net/unix", table, TABLE_MAX) >= 0)
		while ((line = strsep(&rest, "\n"))) {
			char *name = strchr(line, '@');

			if (name && name[-1] == ' ')
				ask_path(f, name, true);
		}
	free(table);
	finding_set(f, WAY_SHUT, "there is none");
}

static void try_paths(const struct prover_options *o, struct finding *f)
{
	static const char *const known[] = {"/run/docker.sock",
					    "/var/run/docker.sock",
					    "/run/podman/podman.sock",
					    "/run/containerd/containerd.sock",
					    "/run/crio/crio.sock",
					    "/run/k3s/containerd/containerd.sock",
					    "/run/buildkit/buildkitd.sock",
					    "/run/dbus/system_bus_socket",
					    "/run/systemd/private",
					    "/run/systemd/journal/stdout",
					    "/run/systemd/notify",
					    "/run/snapd.socket",
					    "/run/lxd/unix.socket",
					    "/var/lib/lxd/unix.socket",
					    "/run/libvirt/libvirt-sock",
					    "/run/udev/control",
					    "/run/stile/admin.sock",
					    "/run/rpcbind.sock",
					    "/run/acpid.socket",
					    "/run/nscd/socket",
					    "/tmp/.X11-unix/X0",
					    "/tmp/.X11-unix/X1"};
	static const char *const of_user[] = {"bus",
					      "docker.sock",
					      "podman/podman.sock",
					      "keyring/ssh",
					      "keyring/control",
					      "gnupg/S.gpg-agent",
					      "gnupg/S.gpg-agent.ssh",
					      "wayland-0",
					      "pipewire-0",
					      "systemd/private",
					      "ssh-agent.socket"};
	static const char *const named[] = {"SSH_AUTH_SOCK",  "DOCKER_HOST",
					    "CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS",
					    "GPG_AGENT_INFO", "NOTIFY_SOCKET",
					    "LISTEN_FDNAMES"};
	char path[256];

	(void)o;
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		ask_path(f, known[i], false);
	for (size_t i = 0; i < ARRAY_LEN(of_user); i++) {
		snprintf(path, sizeof(path), "/run/user/%u/%s", (unsigned)getuid(), of_user[i]);
		ask_path(f, path, false);
	}
	for (size_t i = 0; i < ARRAY_LEN(named); i++) {
		const char *v = getenv(named[i]);

		v = v ? strchr(v, '/') : NULL; /* behind unix://, unix:path= */
		if (v && v[1] == '/')
			v = strchr(v + 2, '/');
		if (!v)
			continue;
		snprintf(path, sizeof(path), "%.*s", (int)strcspn(v, ",;:"), v);
		ask_path(f, path, false);
	}
	finding_set(f, WAY_SHUT, "none of the usual ones is there");
}

/* A folder is a way by openat(2) even as one of the standard three. */
static void try_descriptors(const struct prover_options *o, struct finding *f)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *entry;
	uint64_t fd;

	(void)o;
	while (d && (entry = readdir(d))) {
		char path[64], target[256] = "";
		struct stat st;
		ssize_t n;

		if (str_to_u64(str_from_c(entry->d_name), &fd) != 0 || (int)fd == dirfd(d))
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", (int)fd);
		n = readlink(path, target, sizeof(target) - 1);
		if (n < 0 || fstat((int)fd, &st) != 0 || S_ISFIFO(st.st_mode))
			continue; /* a pipe ends at whoever made it; ours to the parent is one */
		if (S_ISDIR(st.st_mode))
			finding_set(f, WAY_OPEN, "descriptor %d is the folder %s", (int)fd, target);
		else if (fd > STDERR_FILENO)
			finding_set(f, WAY_OPEN, "descriptor %d was handed on: %s", (int)fd,
				    target);
	}
	if (d)
		closedir(d);
	finding_set(f, WAY_SHUT, "none but the standard three");
}

const struct way ways_sockets[] = {
	{"abstract", "abstract Unix sockets", try_abstract},
	{"unix", "sockets of daemons, agents and desktops", try_paths},
	{"descriptor", "descriptors that were handed on", try_descriptors},
	{NULL, NULL, NULL},
};
