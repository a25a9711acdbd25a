/*
 * Makes the namespaces and what has to exist in them before the command: the identity, loopback,
 * the socket that stile listens on. Called by run.c, in the parent (namespace_fork) and in the
 * child (the rest). What may be in the way is explained in explain.c.
 */
#include "proxy/sandbox/namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define NAMESPACES                                                                                 \
	(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)

pid_t namespace_fork(struct err *e)
{
	/* The bare call, for glibc's fork takes no flags. All at once: the child is pid 1 at birth.
	 */
	long pid = syscall(SYS_clone, (unsigned long)NAMESPACES | SIGCHLD, NULL, NULL, NULL, 0UL);

	if (pid < 0) {
		int sys_errno = errno;

		err_sys(e, sys_errno, "cannot make the sandbox's namespaces");
		namespace_explain(sys_errno, e);
		return -1;
	}
	return (pid_t)pid;
}

static int write_proc(const char *path, const char *text, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return err_sys(e, errno, "cannot open %s", path);
	n = write(fd, text, strlen(text));
	if (n != (ssize_t)strlen(text)) {
		err_sys(e, errno, "cannot write %s", path);
		namespace_explain(e ? e->sys_errno : 0, e);
		close(fd);
		return -1;
	}
	close(fd);
	return 0;
}

int namespace_map_ids(uid_t uid, gid_t gid, struct err *e)
{
	char map[64];

	snprintf(map, sizeof(map), "%u %u 1", uid ? uid : NAMESPACE_NOT_ROOT, uid);
	if (write_proc("/proc/self/uid_map", map, e) != 0)
		return -1;
	/* The price of mapping a group without privileges (user_namespaces(7)). */
	if (write_proc("/proc/self/setgroups", "deny", e) != 0)
		return -1;
	snprintf(map, sizeof(map), "%u %u 1", gid ? gid : NAMESPACE_NOT_ROOT, gid);
	return write_proc("/proc/self/gid_map", map, e);
}

int namespace_loopback_up(struct err *e)
{
	struct ifreq r = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc = -1;

	if (fd < 0)
		return err_sys(e, errno, "cannot open a socket in the sandbox");
	if (ioctl(fd, SIOCGIFFLAGS, &r) != 0) {
		err_sys(e, errno, "the sandbox has no loopback");
		goto out;
	}
	r.ifr_flags = (short)(r.ifr_flags | IFF_UP);
	if (ioctl(fd, SIOCSIFFLAGS, &r) != 0) {
		err_sys(e, errno, "cannot bring the sandbox's loopback up");
		namespace_explain(e ? e->sys_errno : 0, e);
		goto out;
	}
	rc = 0;
out:
	close(fd);
	return rc;
}
