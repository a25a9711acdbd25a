/*
 * See wire.h. Both ends are one program, so numbers go as they are; what a hostile end may choose
 * is every byte of them.
 */
#include "proxy/keeper/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PARTS_MAX 3

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(sizeof(int))];
};

int wire_pair(int ret_fds[2], struct err *e)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_fds) != 0)
		return err_sys(e, errno, "cannot make a pair of sockets");
	return 0;
}

bool wire_check(const struct wire_head *h, size_t n)
{
	return n >= sizeof(*h) && h->version == WIRE_VERSION && h->n <= LIMIT_KEEPER_MESSAGE &&
	       h->n == n - sizeof(*h);
}

int wire_send(int fd, enum wire_kind kind, uint32_t id, const struct str *parts, size_t parts_n,
	      int pass_fd)
{
	struct wire_head head = {.version = WIRE_VERSION, .kind = kind, .id = id};
	struct iovec v[1 + PARTS_MAX] = {{&head, sizeof(head)}};
	union control c = {0};
	struct msghdr h = {.msg_iov = v, .msg_iovlen = 1};
	size_t all = 0;
	ssize_t n;

	for (size_t i = 0; i < parts_n && i < PARTS_MAX; i++) {
		v[h.msg_iovlen++] = (struct iovec){(void *)(uintptr_t)parts[i].p, parts[i].n};
		all += parts[i].n;
	}
	if (all > LIMIT_KEEPER_MESSAGE) {
		errno = EMSGSIZE;
		return -1;
	}
	head.n = (uint32_t)all;
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
	return n < 0 ? -1 : 0;
}

static int fd_of(struct msghdr *h)
{
	struct cmsghdr *cm = CMSG_FIRSTHDR(h);
	int fd = -1;

	if (cm && cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS &&
	    cm->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(cm), sizeof(int));
	return fd;
}

int wire_recv(int fd, struct wire_msg *m)
{
	struct iovec v[2] = {{&m->head, sizeof(m->head)}, {m->body, LIMIT_KEEPER_MESSAGE}};
	union control c = {0};
	struct msghdr h = {.msg_iov = v,
			   .msg_iovlen = 2,
			   .msg_control = c.room,
			   .msg_controllen = sizeof(c.room)};
	ssize_t n;

	m->fd = -1;
	do
		n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return (int)n;
	m->fd = fd_of(&h);
	/* The kernel drops what does not fit, descriptors as well as bytes, and says so. */
	if (!(h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && wire_check(&m->head, (size_t)n))
		return 1;
	if (m->fd >= 0)
		close(m->fd);
	m->fd = -1;
	errno = EPROTO;
	return -1;
}
