/*
 * What the main thread answers beside its other work: a few connections to one listening socket,
 * each with one question and one answer. Driven by a poll; nothing here blocks, and each connection
 * is bounded in bytes, in time and in number. What is asked, and by whom, is its owner's business:
 * admin_server.c and metrics.c.
 */
#ifndef STILE_PROXY_CLI_ONESHOT_H
#define STILE_PROXY_CLI_ONESHOT_H

#include <poll.h>

#include "logging/attrs.h"
#include "logging/err.h"
#include "logging/str.h"
#include "logging/strbuf.h"

struct oneshot_kind {
	/* Who comes beyond them waits in the kernel's queue until one is done, or has asked nothing
	 * for LIMIT_MS_ONESHOT_SILENT: it is hung up on, the oldest first. */
	size_t clients;
	size_t question_bytes; /* a longer one is hung up on */
	size_t answer_bytes;
	uint64_t life_ms; /* of a connection */
	/* Behind each batch of connections, as many as there is room for, none is taken for so
	 * long: who floods gets no more of the thread than that. */
	uint64_t pause_ms;
	/* Who is it, and may they ask? NULL: everybody may. */
	bool (*may_ask)(int fd, unsigned *ret_uid);
	/* All that came so far. 1: `out` has the answer; 0: there is more to come; -1: hang up. arg
	 * is oneshot_turn's. */
	int (*on_bytes)(void *arg, struct str in, unsigned uid, struct strbuf *out);
};

struct oneshot;

/* On fd, which listens; it is owned from now on, but stays the caller's when this fails. `kind` is
 * borrowed for good. */
int oneshot_new(int fd, const struct oneshot_kind *kind, struct oneshot **ret,
		struct err *e) ATTR_NODISCARD;
/* What to poll for, in v of kind->clients + 1; how many. *wait_ms, how long the poll may take, is
 * lowered where that is too long. o: NULL is accepted, here and below. */
nfds_t oneshot_poll(struct oneshot *o, struct pollfd *v, int *wait_ms);
/* Behind the poll of those, and at least every half second: goes as far as can be gone now. */
void oneshot_turn(struct oneshot *o, const struct pollfd *v, nfds_t n, void *arg);
void oneshot_free(struct oneshot *o);

#endif
