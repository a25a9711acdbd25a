/*
 * Sockets without a kernel: two queues of bytes and what either side did to the connection. The
 * linker's --wrap sends the socket calls of stream.c, pool.c and client_deny.c here; other
 * descriptors go on to the real calls.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/replay/fake.h"

struct fake_socket *fake_sockets;

static int last_fd = FAKE_FD;

ssize_t __real_recv(int fd, void *p, size_t n, int flags);
ssize_t __real_send(int fd, const void *p, size_t n, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
int __real_shutdown(int fd, int how);
int __real_setsockopt(int fd, int level, int name, const void *v, socklen_t n);
int __real_close(int fd);
ssize_t __wrap_recv(int fd, void *p, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *p, size_t n, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
int __wrap_shutdown(int fd, int how);
int __wrap_setsockopt(int fd, int level, int name, const void *v, socklen_t n);
int __wrap_close(int fd);

struct fake_socket *fake_socket_new(bool upstream)
{
	struct fake_socket *k = fake_calloc(sizeof(*k));
	struct fake_socket **at = &fake_sockets;

	k->fd = ++last_fd;
	k->upstream = upstream;
	k->window = SIZE_MAX;
	k->packet = SIZE_MAX;
	while (*at)
		at = &(*at)->next;
	*at = k;
	return k;
}

struct fake_socket *fake_socket_of(int fd)
{
	for (struct fake_socket *k = fake_sockets; k; k = k->next)
		if (k->fd == fd && !k->closed)
			return k;
	return NULL;
}

size_t fake_sockets_open(void)
{
	size_t n = 0;

	for (struct fake_socket *k = fake_sockets; k; k = k->next)
		n += k->closed ? 0 : 1;
	return n;
}

void fake_sockets_end(void)
{
	if (fake_sockets_open() > 0)
		fake_fault("%zu descriptors were never closed", fake_sockets_open());
	while (fake_sockets) {
		struct fake_socket *k = fake_sockets;

		fake_sockets = k->next;
		bytes_clear(&k->in);
		bytes_clear(&k->out);
		fake_free(k);
	}
	last_fd = FAKE_FD;
}

/* "GET /x HTTP/1.1": the path, where a head begins; nothing otherwise. */
static struct str head_path(struct str data)
{
	ptrdiff_t line = str_find(data, '\r');
	struct str first = line > 0 ? str_head(data, (size_t)line) : STR_NONE;
	ptrdiff_t from = str_find(first, ' ');
	struct str rest = from > 0 ? str_skip(first, (size_t)from + 1) : STR_NONE;
	ptrdiff_t to = str_find(rest, ' ');

	if (to <= 0 || rest.p[0] != '/' || !str_eq(str_skip(rest, (size_t)to + 1), STR("HTTP/1.1")))
		return STR_NONE;
	rest.n = (size_t)to;
	to = str_find(rest, '?');
	return to >= 0 ? str_head(rest, (size_t)to) : rest;
}

/* One alert of TLS, encrypted or not: the close of a kept connection says goodbye. */
static bool is_alert(struct str data)
{
	return data.n >= 7 && data.n <= 31 && (data.p[0] == 0x15 || data.p[0] == 0x17) &&
	       data.p[1] == 3;
}

size_t fake_socket_put(struct fake_socket *k, const char *p, size_t n)
{
	struct str path = head_path(str_from(p, n));

	if (n > k->window)
		n = k->window;
	if (n == 0)
		return 0;
	if (k->fin)
		fake_fault("bytes were written behind a half-close");
	if (k->upstream && !is_alert(str_from(p, n)) && fake_log_open_starts(STR_NONE) == 0)
		fake_fault("bytes went upstream while no start record was written");
	if (k->upstream && path.n > 0 && fake_log_open_starts(path) == 0)
		fake_fault("the head of %.*s went upstream before its start record", STR_FMT(path));
	if (k->window != SIZE_MAX)
		k->window -= n;
	bytes_add(&k->out, p, n);
	k->out_total += n;
	return n;
}

void fake_socket_close(struct fake_socket *k, bool reset)
{
	k->closed = true;
	k->reset = reset;
	k->fin = true;
}

/* ---- the calls ---- */

/* The kernel tells of a reset once, whichever call asks first. False: now, with errno. */
static bool told_of_reset(struct fake_socket *k)
{
	bool before = k->reset_told;

	k->reset_told = true;
	errno = ECONNRESET;
	return before;
}

ssize_t __wrap_recv(int fd, void *p, size_t n, int flags)
{
	struct fake_socket *k;

	if (fd < FAKE_FD)
		return __real_recv(fd, p, n, flags);
	k = fake_socket_of(fd);
	if (!k) {
		fake_fault("a read from a closed descriptor");
		errno = EBADF;
		return -1;
	}
	if (k->in.n == 0 && k->in_reset)
		return told_of_reset(k) ? 0 : -1;
	if (k->in.n == 0) {
		errno = EAGAIN;
		return k->in_eof ? 0 : -1;
	}
	if (n > k->in.n)
		n = k->in.n;
	if (n > k->packet)
		n = k->packet;
	memcpy(p, k->in.p, n);
	if (!(flags & MSG_PEEK))
		bytes_drop(&k->in, n);
	return (ssize_t)n;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct fake_socket *k;
	struct bytes all = {0};
	size_t n;

	if (fd < FAKE_FD)
		return __real_sendmsg(fd, m, flags);
	k = fake_socket_of(fd);
	if (!k) {
		fake_fault("a write to a closed descriptor");
		errno = EBADF;
		return -1;
	}
	if (k->in_reset || k->fin) {
		if (!k->in_reset || told_of_reset(k))
			errno = EPIPE;
		return -1;
	}
	for (size_t i = 0; i < m->msg_iovlen; i++)
		bytes_add(&all, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
	n = fake_socket_put(k, all.p, all.n);
	if (n == 0 && all.n > 0)
		errno = EAGAIN;
	bytes_clear(&all);
	return n > 0 ? (ssize_t)n : -1;
}

ssize_t __wrap_send(int fd, const void *p, size_t n, int flags)
{
	struct iovec v = {.iov_base = (void *)(uintptr_t)p, .iov_len = n};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

	return fd < FAKE_FD ? __real_send(fd, p, n, flags) : __wrap_sendmsg(fd, &m, flags);
}

int __wrap_shutdown(int fd, int how)
{
	struct fake_socket *k = fake_socket_of(fd);

	if (fd < FAKE_FD)
		return __real_shutdown(fd, how);
	if (k && how != SHUT_RD)
		k->fin = true;
	return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *v, socklen_t n)
{
	struct fake_socket *k = fake_socket_of(fd);

	if (fd < FAKE_FD)
		return __real_setsockopt(fd, level, name, v, n);
	if (k && level == SOL_SOCKET && name == SO_LINGER)
		k->hard = true;
	return 0;
}

int __wrap_close(int fd)
{
	struct fake_socket *k;

	if (fd < FAKE_FD)
		return __real_close(fd);
	k = fake_socket_of(fd);
	if (!k) {
		fake_fault("a descriptor was closed twice");
		errno = EBADF;
		return -1;
	}
	/* As the kernel does: unread bytes make the close a reset. */
	fake_socket_close(k, k->hard || k->in.n > 0);
	return 0;
}
