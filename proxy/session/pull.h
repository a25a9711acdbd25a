/*
 * Moves body bytes out of a stream's input: finds the data within the framing and gives it to a
 * sink, as much as the sink has room for. Shared by both sides of an exchange.
 */
#ifndef STILE_PROXY_SESSION_PULL_H
#define STILE_PROXY_SESSION_PULL_H

#include "proxy/http/body.h"
#include "proxy/net/stream.h"

/* Below this a sink counts as full: a chunk line or a trailer section must fit in one look. */
#define PULL_MIN_ROOM 32768

/* Reads at most *max bytes of framing and data and lowers *max by what it read; nothing at all when
 * *max is below PULL_MIN_ROOM. -1: the
 * framing is broken. */
int pull_body(struct stream *s, struct body_reader *b, size_t *max,
	      void (*sink)(void *arg, struct str data), void *arg, struct err *e) ATTR_NODISCARD;

#endif
