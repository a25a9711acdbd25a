/*
 * A bound UDP socket that answers each datagram at once or not at all. What is in them is the
 * owner's business.
 */
#ifndef STILE_PROXY_NET_DATAGRAMS_H
#define STILE_PROXY_NET_DATAGRAMS_H

#include "logging/str.h"
#include "proxy/net/listener.h"

/* Opens the UDP socket that stands beside a configured listener's of TCP, at that port:
 * non-blocking, cloexec, with reuseport also SO_REUSEPORT; in c->netns if it has one. */
int datagrams_open(const struct config_listener *c, uint16_t port, bool reuseport, int *ret_fd,
		   struct err *e) ATTR_NODISCARD;

struct datagrams; /* one socket on one loop */

/* fd is borrowed: the caller closes it after datagrams_free. on_datagram writes the answer to out
 * and returns its length, 0 for none; it goes out from the address that was asked, and is lost if
 * the kernel does not take it at once. One that is longer than LIMIT_DATAGRAM_BYTES comes as an
 * empty one. At most LIMIT_DATAGRAM_BATCH are read in a turn. */
int datagrams_new(struct loop *l, int fd,
		  size_t (*on_datagram)(void *arg, struct str in, const struct listener_peer *from,
					uint8_t *out, size_t room),
		  void *arg, struct datagrams **ret, struct err *e) ATTR_NODISCARD;
void datagrams_free(struct datagrams *d); /* NULL is accepted */
/* What comes meanwhile waits in the kernel, as far as its buffer goes, and then is dropped there.
 * Both may be called from on_datagram. */
void datagrams_pause(struct datagrams *d);
void datagrams_resume(struct datagrams *d);

#endif
