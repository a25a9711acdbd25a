/*
 * HTTP/2 towards the client of an inspected connection: an exchange for each stream, over the
 * connection that client.c accepted and intercept.c opened. What a stream does wrong is answered
 * and recorded on that stream; what the connection does wrong ends it.
 */
#ifndef STILE_PROXY_SESSION_CLIENT_H2_H
#define STILE_PROXY_SESSION_CLIENT_H2_H

#include "proxy/session/client.h"

struct client_h2;

/* ALPN has chosen h2. NULL: memory is out. */
struct client_h2 *client_h2_new(struct client *c);
/* In CLIENT_H2 alone: goes as far as both sides allow. It may close the client. */
void client_h2_drive(struct client_h2 *h);
/* The timer of CLIENT_H2. */
void client_h2_timer(struct client_h2 *h);
uint64_t client_h2_timer_ms(const struct client_h2 *h);
/* No further stream; the connection ends with the last one. */
void client_h2_drain(struct client_h2 *h);
/* The connection ends: what is unfinished gets its record with that. True: there was something. */
bool client_h2_abandon(struct client_h2 *h, enum reason why, const char *detail);
void client_h2_free(struct client_h2 *h); /* abandoned already; NULL is accepted */

#endif
