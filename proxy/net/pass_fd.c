/*
 * See pass_fd.h. The kernel drops what does not fit, descriptors as well as bytes, and says so.
 */
#include "proxy/net/pass_fd.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(sizeof(int))];
};

ssize_t pass_fd_send(int fd, const struct iovec *v, size_t v_n, int pass_fd)
{
	union control c = {0};
	struct msghdr h = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = v_n};
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
	return n;
}

ssize_t pass_fd_recv(int fd, const struct iovec *v, size_t v_n, int *ret_fd)
{
	union control c = {0};
	struct msghdr h = {.msg_iov = (struct iovec *)(uintptr_t)v,
			   .msg_iovlen = v_n,
			   .msg_control = c.room,
			   /* Not what its padding adds: a second descriptor would fit there. */
			   .msg_controllen = CMSG_LEN(sizeof(int))};
	struct cmsghdr *cm;
	int got = -1;
	ssize_t n;

	do
		n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	*ret_fd = -1;
	if (n <= 0)
		return n;
	cm = CMSG_FIRSTHDR(&h);
	if (cm && cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS &&
	    cm->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&got, CMSG_DATA(cm), sizeof(int));
	if ((h.msg_flags & MSG_TRUNC) || ((h.msg_flags & MSG_CTRUNC) && got >= 0)) {
		if (got >= 0)
			close(got);
		errno = EPROTO;
		return -1;
	}
	*ret_fd = (h.msg_flags & MSG_CTRUNC) ? PASS_FD_LOST : got;
	return n;
}
