/*
 * How often what was recorded: numbers by event and reason, and bytes. No host, no name and no
 * secret has a place in it. Each worker counts for itself, and the main thread for its own records;
 * who wants the sum reads them all, from any thread, and they only grow.
 */
#ifndef STILE_PROXY_SESSION_COUNTS_H
#define STILE_PROXY_SESSION_COUNTS_H

#include "logging/record.h"

/* Plain data; zero at birth. Written by one thread. */
struct counts {
	uint64_t events[RECORD_EVENTS];
	uint64_t requests_denied[REASON_COUNT]; /* request.deny by its reason */
	uint64_t tunnels_denied[REASON_COUNT];	/* tunnel.deny */
	uint64_t failed[REASON_COUNT];		/* request.end and tunnel.end by their error */
	uint64_t bytes_out, bytes_in;		/* of bodies and tunnels that have ended */
};

/* Counts r, as it goes to the log. On the thread of c. */
void counts_note(struct counts *c, const struct record *r);
/* While its thread goes on counting. */
void counts_add(struct counts *sum, const struct counts *c);

#endif
