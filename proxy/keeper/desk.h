/*
 * Where a worker asks for leaves: out of the signer's cache at once, else signed by the keeper and
 * told later. Questions for the same host are one question. A worker's own: no lock.
 */
#ifndef STILE_PROXY_KEEPER_DESK_H
#define STILE_PROXY_KEEPER_DESK_H

#include <sys/queue.h>

#include "certs/signer.h"
#include "policy/hostname.h"
#include "proxy/net/loop.h"

struct desk;
struct desk_job;

/* Embedded in its owner; zero at birth. */
struct desk_ask {
	TAILQ_ENTRY(desk_ask) next;
	struct desk_job *job; /* NULL: not waiting */
	/* As signer_get's done. */
	void (*done)(void *arg, struct leaf *leaf, const struct err *e);
	void *arg;
};

/* fd: keeper_leaves_fd, borrowed; -1 where s signs by itself. */
int desk_new(struct loop *l, struct signer *s, int fd, struct desk **ret,
	     struct err *e) ATTR_NODISCARD;
void desk_free(struct desk *d); /* who still waits is not told. NULL is accepted */

/* Calls done once: before it returns, or later from the loop unless desk_forget comes before. */
void desk_get(struct desk *d, const struct host *h, uint16_t port, struct desk_ask *a,
	      void (*done)(void *arg, struct leaf *leaf, const struct err *e), void *arg);
void desk_forget(struct desk *d, struct desk_ask *a);

#endif
