/*
 * One message with at most one descriptor beside it, between processes of stile's own (SCM_RIGHTS,
 * unix(7)).
 */
#ifndef STILE_PROXY_NET_PASS_FD_H
#define STILE_PROXY_NET_PASS_FD_H

#include <sys/types.h>
#include <sys/uio.h>

#include "logging/attrs.h"

/* A descriptor came, but this process has no room for one more: the message itself is whole. */
#define PASS_FD_LOST (-2)

/* As sendmsg(2), without SIGPIPE and EINTR. pass_fd: -1 for none; it stays the caller's. */
ssize_t pass_fd_send(int fd, const struct iovec *v, size_t v_n, int pass_fd);
/* As recvmsg(2), without EINTR. *ret_fd is the caller's to close, -1 for none, PASS_FD_LOST. A
 * message that did not fit, or that had more descriptors than one, is -1 with EPROTO, and none of
 * them is left open. */
ssize_t pass_fd_recv(int fd, const struct iovec *v, size_t v_n, int *ret_fd) ATTR_NODISCARD;

#endif
