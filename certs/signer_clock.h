/*
 * For tests only: a signer that reads another clock, to see a leaf grow old in no time. What TLS
 * itself reads is not affected.
 */
#ifndef STILE_CERTS_SIGNER_CLOCK_H
#define STILE_CERTS_SIGNER_CLOCK_H

#include <time.h>

#include "certs/signer.h"

/* Before the signer is shared with other threads. */
void signer_set_clock(struct signer *s, time_t (*now)(void));

#endif
