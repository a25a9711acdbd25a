/*
 * A relay between two streams of which one holds TLS, so that splice.h cannot move its bytes. The
 * same ends, the same back-pressure: what one side does not take, the other stops sending.
 */
#ifndef STILE_PROXY_NET_STREAM_RELAY_H
#define STILE_PROXY_NET_STREAM_RELAY_H

#include "proxy/net/splice.h"
#include "proxy/net/stream.h"

struct stream_relay;

/* Takes both streams over, also on failure; what they have buffered is moved as well. done is
 * called once, from the loop, as by splice_start; a TLS side that ends without close_notify counts
 * as reset. */
int stream_relay_start(struct loop *l, struct stream *a, struct stream *b, uint64_t idle_ms,
		       void (*done)(void *arg, enum splice_end how), void *arg,
		       struct stream_relay **ret, struct err *e) ATTR_NODISCARD;
/* Closes both (RST when `reset`) without calling done. NULL is accepted. */
void stream_relay_cancel(struct stream_relay *r, bool reset);
uint64_t stream_relay_bytes_a_to_b(const struct stream_relay *r);
uint64_t stream_relay_bytes_b_to_a(const struct stream_relay *r);

#endif
