/*
 * Who connects for whom. Of several requests that want a connection of one key at the same time,
 * one dials and the others wait for what its TLS settles on: if that is HTTP/2, all take streams of
 * that one connection, else each dials for itself at once. What was settled on is remembered for a
 * while, so that nobody waits for an origin of HTTP/1.1 but at the first contact, and then not for
 * long (LIMIT_MS_SHARE_UNKNOWN, LIMIT_MS_SHARE).
 *
 * It makes and holds no connection, and a key is a hash here: whoever was woken looks for a
 * connection of its own whole key, so two keys of one hash cost time and share nothing.
 */
#ifndef STILE_PROXY_SESSION_SHARE_H
#define STILE_PROXY_SESSION_SHARE_H

#include <sys/queue.h>

#include "logging/str.h"
#include "proxy/net/loop.h"

struct share; /* one a worker */

enum share_end {
	SHARE_END_H2,	  /* there is a connection for many */
	SHARE_END_OTHER,  /* there is one for the dialler alone, or none: the others dial too */
	SHARE_END_NOBODY, /* the dialler left: another one takes its place */
};

/* Embedded in whoever wants a connection. */
struct share_seat {
	TAILQ_ENTRY(share_seat) next;
	uint64_t hash;
	int64_t since_us; /* since when it has waited; 0: it never has */
	bool dials, waits, woken;
	bool alone; /* it waits no more: it dials for itself */
	/* From the loop: the wait is over, look again. */
	void (*fn)(void *arg);
	void *arg;
};

int share_new(struct loop *l, struct share **ret, struct err *e) ATTR_NODISCARD;
void share_free(struct share *h); /* nobody sits any more; NULL is accepted */

/* seat (fn and arg are set) wants a connection of that hash (pool_key's). True: dial, and call
 * share_end. False: fn will be called. */
bool share_enter(struct share *h, struct share_seat *seat, uint64_t hash);
/* The dial that seat was told to make has ended. Of a seat that does not dial it does nothing. */
void share_end(struct share *h, struct share_seat *seat, enum share_end how);
/* What a TLS handshake with an origin of that hash has settled on. */
void share_know(struct share *h, uint64_t hash, bool h2);
/* Does not wait any more; fn is not called. */
void share_leave(struct share *h, struct share_seat *seat);
/* How long a seat that waits may still do so. */
uint64_t share_left_ms(const struct share *h, const struct share_seat *seat);

#endif
