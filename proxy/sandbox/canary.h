/*
 * Proof, from inside, that there is no way out: tried before every command, because a kernel, a
 * container engine or a mistake of ours could have left one.
 */
#ifndef STILE_PROXY_SANDBOX_CANARY_H
#define STILE_PROXY_SANDBOX_CANARY_H

#include "logging/err.h"

/* 0: a TCP connection and a DNS query to addresses outside fail at once, over IPv4 and IPv6, no
 * interface but loopback is up and no route leads away from it. -1: one of them does not hold, or
 * could not be tried. */
int canary_check(struct err *e) ATTR_NODISCARD;

#endif
