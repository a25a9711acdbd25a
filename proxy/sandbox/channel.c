/*
 * The pair of sockets between stile and the pid 1 that it made. Both ends stand still while they
 * wait; only the supervisor's poll decides when to read.
 */
#include "proxy/sandbox/channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int channel_pair(int ret_fds[2], struct err *e)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_fds) != 0)
		return err_sys(e, errno, "cannot make a pair of sockets");
	return 0;
}

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(sizeof(int))];
};

int channel_send(int fd, const struct channel_msg *m, int pass_fd)
{
	union control c = {0};
	struct iovec v = {(void *)(uintptr_t)m, sizeof(*m)};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
	ssize_t n;

	if (pass_fd >= 0) {
		struct cmsghdr *cm;

		h.msg_control = c.room;
		h.msg_controllen = sizeof(c.room);
		cm = CMSG_FIRSTHDR(&h);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &pass_fd, sizeof(int));
	}
	do
		n = sendmsg(fd, &h, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(*m) ? 0 : -1;
}

int channel_recv(int fd, struct channel_msg *ret, int *ret_fd)
{
	union control c = {0};
	struct channel_msg m;
	struct iovec v = {&m, sizeof(m)};
	struct msghdr h = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = c.room,
			   .msg_controllen = sizeof(c.room)};
	struct cmsghdr *cm;
	int got = -1;
	ssize_t n;

	do
		n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	cm = n > 0 ? CMSG_FIRSTHDR(&h) : NULL;
	if (cm && cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS &&
	    cm->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&got, CMSG_DATA(cm), sizeof(int));
	if (n != (ssize_t)sizeof(m)) {
		if (got >= 0)
			close(got);
		return -1;
	}
	m.text[sizeof(m.text) - 1] = '\0';
	*ret = m;
	*ret_fd = got;
	return 0;
}
