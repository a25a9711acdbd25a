/*
 * What stile outside and pid 1 inside say to each other: small messages of one size over a
 * SOCK_SEQPACKET pair, some with a descriptor. Both ends are this program; the command never gets
 * one.
 */
#ifndef STILE_PROXY_SANDBOX_CHANNEL_H
#define STILE_PROXY_SANDBOX_CHANNEL_H

#include <stdint.h>

#include "logging/err.h"

enum channel_kind {
	/* from inside */
	CHANNEL_FAILED = 1, /* text: why there is no sandbox */
	CHANNEL_SOCKET,	    /* fd: a socket to serve; number: its kind (enum config_listener_kind);
			     * more: so many follow. The canary has sung */
	CHANNEL_READY,	    /* files and privileges are as they shall be */
	CHANNEL_STOPPED,    /* the command was stopped */
	/* from outside */
	CHANNEL_TRUST,	/* fd: the CA (number bytes), the bundle (more bytes), the trust store;
			 * text: OpenSSL's name hash */
	CHANNEL_GO,	/* start the command */
	CHANNEL_SIGNAL, /* number: for the command */
};

struct channel_msg {
	enum channel_kind kind;
	uint32_t number, more;
	char text[ERR_TEXT_MAX];
};

int channel_pair(int ret_fds[2], struct err *e) ATTR_NODISCARD;
/* pass_fd: -1 for none; it stays the caller's. */
int channel_send(int fd, const struct channel_msg *m, int pass_fd) ATTR_NODISCARD;
/* Waits for one. ret_fd: the descriptor that came with it, or -1. -1: the other end is gone (or
 * sends what it should not). */
int channel_recv(int fd, struct channel_msg *ret, int *ret_fd) ATTR_NODISCARD;

#endif
