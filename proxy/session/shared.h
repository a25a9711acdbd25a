/*
 * Tokens that several stiles share: the mirror in sandboxes.h, filled by proxy/state/, with the
 * current snapshot's password and trust, and the workers told of what has ended. Of the engine.
 */
#ifndef STILE_PROXY_SESSION_SHARED_H
#define STILE_PROXY_SESSION_SHARED_H

#include "proxy/session/sandboxes.h"
#include "proxy/session/worker.h"
#include "proxy/state/state.h"

struct shared;

/* s: its configuration has a `state`. all: outlives it, and is a mirror from here on. */
int shared_new(struct snapshot *s, struct sandboxes *all, struct shared **ret,
	       struct err *e) ATTR_NODISCARD;
struct state *shared_state(struct shared *sh); /* borrowed */
/* workers: n of them, which run, until shared_stop. */
int shared_start(struct shared *sh, struct worker **workers, size_t n,
		 struct err *e) ATTR_NODISCARD;
void shared_set_snapshot(struct shared *sh, struct snapshot *s);
void shared_stop(struct shared *sh); /* NULL is accepted */
void shared_free(struct shared *sh); /* likewise */

/* As sandboxes_add and sandboxes_revoke: it is so at every stile that shares them, or will be
 * within LIMIT_MS_STATE_POLL, when this returns 0. -1 of the second: it has ended here at least, if
 * *ret is set. Of the main thread. */
int shared_add(struct shared *sh, const struct sandbox_options *o,
	       char token[SANDBOX_TOKEN_LEN + 1], struct sandbox **ret,
	       struct err *e) ATTR_NODISCARD;
int shared_revoke(struct shared *sh, struct str id_or_name, struct sandbox **ret,
		  struct err *e) ATTR_NODISCARD;

#endif
