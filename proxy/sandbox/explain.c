/*
 * Why a kernel refuses namespaces: it says EPERM or ENOSPC and no more, so the settings that are
 * known to cause it are read and named, with what to do. It decides nothing; nothing it finds lets
 * a command run without its sandbox.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "logging/str.h"
#include "proxy/sandbox/namespace.h"

struct setting {
	const char *path;
	const char *blocks; /* the value that is in the way */
	const char *advice;
};

static const struct setting settings[] = {
	{"/proc/sys/user/max_user_namespaces", "0",
	 "user.max_user_namespaces is 0 (sysctl -w user.max_user_namespaces=15000)"},
	{"/proc/sys/user/max_net_namespaces", "0",
	 "user.max_net_namespaces is 0 (sysctl -w user.max_net_namespaces=15000)"},
	{"/proc/sys/user/max_pid_namespaces", "0",
	 "user.max_pid_namespaces is 0 (sysctl -w user.max_pid_namespaces=15000)"},
	{"/proc/sys/user/max_mnt_namespaces", "0",
	 "user.max_mnt_namespaces is 0 (sysctl -w user.max_mnt_namespaces=15000)"},
	{"/proc/sys/kernel/unprivileged_userns_clone", "0",
	 "kernel.unprivileged_userns_clone is 0 (sysctl -w kernel.unprivileged_userns_clone=1)"},
	{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
	 "kernel.apparmor_restrict_unprivileged_userns is 1 (give stile an AppArmor profile with "
	 "\"userns,\", or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0)"},
};

/* The start of a small file, without its newline. -1: it cannot be read. */
static int read_start(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, buf, size - 1);
	close(fd);
	if (n < 0)
		return -1;
	if (n > 0 && buf[n - 1] == '\n')
		n--;
	buf[n] = '\0';
	return 0;
}

/* Is a system call filter in force, as container engines set one? */
static bool has_seccomp(void)
{
	char buf[4096];
	const char *line;

	if (read_start("/proc/self/status", buf, sizeof(buf)) != 0)
		return false;
	line = strstr(buf, "\nSeccomp:\t");
	return line && line[strlen("\nSeccomp:\t")] == '2';
}

int namespace_explain(int sys_errno, struct err *e)
{
	struct err was;
	char value[32];

	if (!e)
		return -1;
	was = *e;
	for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
		if (read_start(settings[i].path, value, sizeof(value)) != 0 ||
		    strcmp(value, settings[i].blocks) != 0)
			continue;
		return err_set(e, "%s: %s", was.text, settings[i].advice);
	}
	if (sys_errno == ENOSPC || sys_errno == EUSERS)
		return err_set(
			e,
			"%s: too many namespaces are in use, or nested (user.max_*_namespaces "
			"in /proc/sys/user)",
			was.text);
	if (sys_errno == EINVAL || sys_errno == ENOSYS)
		return err_set(e, "%s: the kernel was built without them (CONFIG_USER_NS)",
			       was.text);
	if (sys_errno != EPERM && sys_errno != EACCES)
		return -1;
	if (has_seccomp())
		return err_set(e,
			       "%s: a seccomp filter is in force, as in a container (let it call "
			       "clone with CLONE_NEWUSER, or run \"stile serve\" beside it)",
			       was.text);
	return err_set(e, "%s: within another sandbox or a chroot, or a security module forbids it",
		       was.text);
}
