/*
 * The listener's own side of its counts: taking a place. Giving it back is in listener.h. No other
 * file includes it.
 */
#ifndef STILE_PROXY_NET_LISTENER_COUNTS_H
#define STILE_PROXY_NET_LISTENER_COUNTS_H

#include "proxy/net/listener.h"

/* REASON_NONE: one more is counted. REASON_OVERLOADED (the total) or REASON_RATE_LIMITED (this
 * address): nothing is. A Unix peer has no address and counts in the total only. */
enum reason listener_counts_enter(struct listener_counts *c, const struct listener_peer *peer);

#endif
