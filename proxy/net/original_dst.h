/*
 * Where a connection was meant to go, before it arrived here: at a transparent listener that is the
 * only thing that is known of its target.
 */
#ifndef STILE_PROXY_NET_ORIGINAL_DST_H
#define STILE_PROXY_NET_ORIGINAL_DST_H

#include "policy/ipaddr.h"

/* Of an accepted TCP connection: what the admin's redirection (REDIRECT, DNAT) changed, else the
 * address that it was accepted at. -1: the kernel cannot say. */
int original_dst(int fd, struct ipaddr *ret, uint16_t *ret_port) ATTR_NODISCARD;

#endif
