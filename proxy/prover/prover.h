/*
 * `stile doctor --escape`: tries the known ways out of a sandbox, from inside, and says of each
 * what came of it. It reads and asks, but changes nothing, and what it could open it closes again.
 */
#ifndef STILE_PROXY_PROVER_PROVER_H
#define STILE_PROXY_PROVER_PROVER_H

#include <stdio.h>

#include <sys/socket.h>

#include "logging/err.h"

#define PROVER_REACH_MAX 16

struct prover_options {
	/* Addresses at which somebody listens outside: proofs where packets are dropped, not
	 * refused. */
	struct sockaddr_storage reach[PROVER_REACH_MAX];
	size_t reach_n;
	/* borrowed */
	const char *workspace;	 /* where the sandbox may write; NULL: the current folder */
	const char *resolve;	 /* a name that is known outside, and that no rule admits */
	const char *const *only; /* these ways; ends with NULL; none: all */
	const char *const *but;	 /* ways that may be open here, the same */
	bool json;
};

/* ADDRESS:PORT, [ADDRESS]:PORT. */
int prover_add_reach(struct prover_options *o, const char *text, struct err *e) ATTR_NODISCARD;
/* Is there a way of that name? */
bool prover_knows(const char *way);
/* A line for each way, to out. The exit code: 0, none is open; 1, one is or may be. */
int prover_run(const struct prover_options *o, FILE *out);

#endif
