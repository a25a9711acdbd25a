/*
 * One way out: a name, and what tries it. Each is tried in a process of its own, so that one that
 * hangs, crashes or is killed by a filter is one line of the table and no more.
 */
#ifndef STILE_PROXY_PROVER_WAY_H
#define STILE_PROXY_PROVER_WAY_H

#include "proxy/prover/prover.h"

enum way_state {
	WAY_NONE,   /* not there at all: nothing to be tried */
	WAY_SHUT,   /* tried, and it leads nowhere */
	WAY_UNSURE, /* it may be open: nobody answered, and nobody said no */
	WAY_OPEN,
};

/* What was found. The worst of several findings stays, with its text. */
struct finding {
	enum way_state state;
	char text[400];
};

struct way {
	const char *name; /* one word, for --but */
	const char *what; /* for people */
	void (*try)(const struct prover_options *o, struct finding *f);
};

/* Ends with a NULL name, each. */
extern const struct way ways_network[], ways_sockets[], ways_processes[], ways_kernel[],
	ways_files[];

/* The worst state stands: a better one changes nothing, nor does a second text of the same. */
void finding_set(struct finding *f, enum way_state state, const char *fmt, ...) ATTR_PRINTF(3, 4);
/* A call that must fail: result as the kernel gave it, -1 with errno. What fails for its arguments
 * alone was reached. */
void finding_call(struct finding *f, long result, const char *name);
/* Like connect(2), to the end, at most ms. 0; or -1 with errno, ETIMEDOUT where nobody answers. */
int way_connect(const struct sockaddr *to, socklen_t len, int type, int ms);
/* "192.0.2.1:443" */
const char *way_address(const struct sockaddr_storage *a, char *out, size_t size);
int way_parse(const char *address, unsigned port, struct sockaddr_storage *ret);
/* Calls fn for each process of /proc. */
void way_each_process(void (*fn)(int pid, void *arg), void *arg);
/* The start of a file; -1 with errno. The rest of buf is zero. */
long way_read(const char *path, char *buf, size_t size);

#endif
