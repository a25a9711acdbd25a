/*
 * An opaque relay between two plain TCP sockets with splice(2) through pooled pipes: the bytes
 * never enter the process. Half-closes are passed on; a slow side stops the other. For streams that
 * hold TLS or buffered bytes, tunnel.c relays through stream.h instead. Where no pipe is to be had
 * the bytes are copied. The process must ignore SIGPIPE, which splice(2) raises and no flag
 * prevents.
 */
#ifndef STILE_PROXY_NET_SPLICE_H
#define STILE_PROXY_NET_SPLICE_H

#include "logging/err.h"
#include "proxy/net/loop.h"

struct splice;

enum splice_end { SPLICE_DONE, SPLICE_RESET_A, SPLICE_RESET_B, SPLICE_IDLE, SPLICE_FAILED };

/* Takes both descriptors over, also on failure. done is called once, from the loop: both directions
 * ended, one side was reset (a: first argument's side), or no byte moved for idle_ms. The
 * descriptors are closed then (a reset is passed on as a reset). */
int splice_start(struct loop *l, int fd_a, int fd_b, uint64_t idle_ms,
		 void (*done)(void *arg, enum splice_end how), void *arg, struct splice **ret,
		 struct err *e) ATTR_NODISCARD;
/* Closes both (RST when `reset`) without calling done. NULL is accepted. */
void splice_cancel(struct splice *s, bool reset);
uint64_t splice_bytes_a_to_b(const struct splice *s);
uint64_t splice_bytes_b_to_a(const struct splice *s);

#endif
