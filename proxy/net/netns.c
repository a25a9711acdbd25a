/*
 * See netns.h. A child, since a process that has entered a namespace may not get back.
 */
#include "proxy/net/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proxy/net/pass_fd.h"

static int enter(int ns, const char *file, struct err *e)
{
	if (setns(ns, CLONE_NEWNET) == 0)
		return 0;
	if (errno == EPERM)
		return err_set(
			e,
			"entering %s needs CAP_SYS_ADMIN (start stile as root; `user:` is who "
			"it is afterwards)",
			file);
	if (errno == EINVAL)
		return err_set(e, "%s is no network namespace (such as /run/netns/NAME)", file);
	return err_sys(e, errno, "%s: cannot be entered", file);
}

/* Says what became of it: a descriptor, or a text. */
ATTR_NORETURN static void child(int channel, int ns, const char *file,
				int (*open_in)(const void *arg, int *ret_fd, struct err *e),
				const void *arg)
{
	struct err e = {0}; /* all of its text is sent */
	struct iovec v = {e.text, ERR_TEXT_MAX};
	int fd = -1;

	if (enter(ns, file, &e) == 0 && open_in(arg, &fd, &e) < 0)
		fd = -1;
	_exit(pass_fd_send(channel, &v, 1, fd) == (ssize_t)ERR_TEXT_MAX ? 0 : 1);
}

static int ask_child(int channels[2], int ns, const char *file,
		     int (*open_in)(const void *arg, int *ret_fd, struct err *e), const void *arg,
		     int *ret_fd, struct err *e)
{
	char text[ERR_TEXT_MAX] = "";
	struct iovec v = {text, sizeof(text)};
	pid_t pid = fork();
	ssize_t n;
	int fd = -1;

	if (pid == 0)
		child(channels[1], ns, file, open_in, arg);
	close(channels[1]);
	channels[1] = -1;
	if (pid < 0)
		return err_sys(e, errno, "no process to enter %s with", file);
	n = pass_fd_recv(channels[0], &v, 1, &fd);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	text[sizeof(text) - 1] = '\0';
	if (n == (ssize_t)sizeof(text) && fd >= 0) {
		*ret_fd = fd;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	return err_set(e, "%s", text[0] ? text : "the process that was to open it has ended");
}

int netns_open(const char *file, int (*open_in)(const void *arg, int *ret_fd, struct err *e),
	       const void *arg, int *ret_fd, struct err *e)
{
	/* Not to wait, should it be a pipe. */
	int ns = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK), channels[2] = {-1, -1};
	int rc = -1;

	if (ns < 0)
		return err_sys(e, errno, "%s", file);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels) < 0)
		err_sys(e, errno, "cannot make a pair of sockets");
	else
		rc = ask_child(channels, ns, file, open_in, arg, ret_fd, e);
	for (int i = 0; i < 2; i++)
		if (channels[i] >= 0)
			close(channels[i]);
	close(ns);
	return rc;
}
