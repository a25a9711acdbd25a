/*
 * Tells when a descriptor becomes readable: for what is neither a stream nor a listener, such as a
 * pipe or a process (pidfd_open(2)).
 */
#ifndef STILE_PROXY_NET_WATCH_H
#define STILE_PROXY_NET_WATCH_H

#include "proxy/net/loop.h"

struct watch;

/* Calls fn from the loop, never from inside this call, as long as fd is readable (or at its end).
 * fd stays the caller's and outlives the watch. -1: no memory. */
int watch_new(struct loop *l, int fd, void (*fn)(void *arg), void *arg, struct watch **ret,
	      struct err *e) ATTR_NODISCARD;
/* fn is not called any more. NULL is accepted; also from inside fn. */
void watch_free(struct watch *w);

#endif
