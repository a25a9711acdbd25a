/*
 * Whether an address leads back into stile. Called by whoever is about to dial one.
 */
#ifndef STILE_PROXY_SESSION_OWN_LISTENER_H
#define STILE_PROXY_SESSION_OWN_LISTENER_H

#include "proxy/session/worker.h"

/* Is it one of our own listeners? No range of a rule opens those: through itself stile would lead
 * from one listener to another, and from one policy to another. `own` are this host's addresses.
 * The kernel is asked only where an address leads back here, which a rule has to have opened. */
bool is_own_listener(const struct worker *w, const struct ipaddr *a, uint16_t port,
		     const struct ipaddr *own, size_t own_n);

#endif
