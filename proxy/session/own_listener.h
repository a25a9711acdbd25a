/*
 * Whether an address leads back into stile. Called by whoever is about to dial one.
 */
#ifndef STILE_PROXY_SESSION_OWN_LISTENER_H
#define STILE_PROXY_SESSION_OWN_LISTENER_H

#include "proxy/session/worker.h"

/* Is it one of our own listeners, or an address that was made up for a name? No range of a rule
 * opens those: through itself stile would lead from one listener to another, and from one policy to
 * another. `own` are this host's addresses. The kernel is asked only where an address leads back
 * here, which a rule has to have opened. */
bool is_own_listener(const struct worker *w, const struct ipaddr *a, uint16_t port,
		     const struct ipaddr *own, size_t own_n);

/* The sockets of `stile run`, and those with a `netns`, listen in another network, where nothing
 * that is dialled here arrives. A kernel that cannot tell (before 5.14) says yes. */
bool is_in_our_network(int fd);

/* Is it the state that stiles share? Who can write there makes tokens, so no rule opens it. While
 * its name has not been found yet, everything at its port is. */
bool is_shared_state(const struct worker *w, const struct ipaddr *a, uint16_t port,
		     const struct ipaddr *own, size_t own_n);

#endif
