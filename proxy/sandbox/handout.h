/*
 * The certificates that clients inside are to trust, as files: the run's CA, the system's roots
 * with it as PEM, the same for Java. They are gathered on a thread beside the engine's start, which
 * they do not need and which does not need them.
 */
#ifndef STILE_PROXY_SANDBOX_HANDOUT_H
#define STILE_PROXY_SANDBOX_HANDOUT_H

#include "certs/ca.h"
#include "logging/err.h"

struct handout;

/* Begins to gather; ca is counted. After the last fork, as there is a thread from here on. NULL:
 * out of memory. */
struct handout *handout_begin(struct ca *ca);
/* Waits for it and sends it over the channel to pid 1. No thread is left. */
int handout_send(struct handout *h, int channel, struct err *e) ATTR_NODISCARD;
/* Waits as well. NULL is accepted. */
void handout_free(struct handout *h);

#endif
