/*
 * The pair of sockets between stile and the pid 1 that it made. Both ends stand still while they
 * wait; only the supervisor's poll decides when to read.
 */
#include "proxy/sandbox/channel.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/net/pass_fd.h"

int channel_pair(int ret_fds[2], struct err *e)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_fds) != 0)
		return err_sys(e, errno, "cannot make a pair of sockets");
	return 0;
}

int channel_send(int fd, const struct channel_msg *m, int pass_fd)
{
	const struct iovec v = {(void *)(uintptr_t)m, sizeof(*m)};

	return pass_fd_send(fd, &v, 1, pass_fd) == (ssize_t)sizeof(*m) ? 0 : -1;
}

int channel_recv(int fd, struct channel_msg *ret, int *ret_fd)
{
	struct channel_msg m;
	const struct iovec v = {&m, sizeof(m)};
	int got;

	if (pass_fd_recv(fd, &v, 1, &got) != (ssize_t)sizeof(m)) {
		if (got >= 0)
			close(got);
		return -1;
	}
	m.text[sizeof(m.text) - 1] = '\0';
	*ret = m;
	*ret_fd = got;
	return 0;
}
