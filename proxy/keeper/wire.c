/*
 * See wire.h. Both ends are one program, so numbers go as they are; what a hostile end may choose
 * is every byte of them.
 */
#include "proxy/keeper/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/net/pass_fd.h"

#define PARTS_MAX 3

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
	size_t all = 0, v_n = 1;

	for (size_t i = 0; i < parts_n && i < PARTS_MAX; i++) {
		v[v_n++] = (struct iovec){(void *)(uintptr_t)parts[i].p, parts[i].n};
		all += parts[i].n;
	}
	if (all > LIMIT_KEEPER_MESSAGE) {
		errno = EMSGSIZE;
		return -1;
	}
	head.n = (uint32_t)all;
	return pass_fd_send(fd, v, v_n, pass_fd) < 0 ? -1 : 0;
}

int wire_recv(int fd, struct wire_msg *m)
{
	const struct iovec v[2] = {{&m->head, sizeof(m->head)}, {m->body, LIMIT_KEEPER_MESSAGE}};
	ssize_t n = pass_fd_recv(fd, v, 2, &m->fd);

	if (n <= 0)
		return (int)n;
	if (wire_check(&m->head, (size_t)n))
		return 1;
	if (m->fd >= 0)
		close(m->fd);
	m->fd = -1;
	errno = EPROTO;
	return -1;
}
