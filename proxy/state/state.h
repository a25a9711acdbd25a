/*
 * The state that several stiles share, in Redis or what speaks as it does: the tokens of sandboxes
 * and their ends. **Start reading here.** A thread of its own keeps all of it mirrored in memory,
 * through `ops`, so that no worker ever waits for a look-up; it asks four times a second what has
 * changed, which is one short command while nothing has. README.md says what lies there.
 *
 * The mirror is good for `grace` from the moment at which its last question was sent: who reads it
 * goes by state_ops.current, and serves nothing by it beyond that.
 */
#ifndef STILE_PROXY_STATE_STATE_H
#define STILE_PROXY_STATE_STATE_H

#include <openssl/ssl.h>

#include "logging/strbuf.h"
#include "policy/config.h"
#include "proxy/state/record.h"

struct state;

/* All on the state's thread. */
struct state_ops {
	/* What is shown to it; an empty password: nothing. */
	int (*login)(void *arg, struct strbuf *user, struct strbuf *password, struct err *e);
	int (*tls)(void *arg, SSL **ret, struct err *e);
	/* All that lives follows by put; what was not put when whole is called has ended. */
	void (*begin)(void *arg);
	void (*put)(void *arg, const struct state_record *r);
	void (*gone)(void *arg, const unsigned char digest[STATE_DIGEST_BYTES]);
	void (*whole)(void *arg);
	/* The mirror is what lay there at as_of (CLOCK_BOOTTIME, microseconds) or later. */
	void (*current)(void *arg, int64_t as_of_us);
	/* Somebody who waits for a ticket has an answer. */
	void (*answered)(void *arg);
	/* `grace` is over. */
	void (*expired)(void *arg);
	void *arg;
};

/* c has a `state`; a reference is taken. Nothing is connected to yet. */
int state_new(struct config *c, const struct state_ops *ops, struct state **ret,
	      struct err *e) ATTR_NODISCARD;
int state_start(struct state *st, struct err *e) ATTR_NODISCARD;
void state_stop(struct state *st); /* joins its thread; NULL is accepted, and one not started */
void state_free(struct state *st); /* after state_stop; NULL is accepted */

/* ---- from any thread ---- */

/* Is there anything that is not known here yet? The ticket, for state_answer. However many ask, it
 * is one command at a time. */
uint64_t state_ask(struct state *st);
enum state_answer { STATE_PENDING, STATE_KNOWN, STATE_UNKNOWN };
/* STATE_KNOWN: what lay there when it was asked is in the mirror. STATE_UNKNOWN: it is out of
 * reach.
 */
enum state_answer state_answer(struct state *st, uint64_t ticket);
/* Where it is, or was since the start; ret has LIMIT_STATE_ADDRESSES. False: not known yet. */
bool state_addresses(struct state *st, struct ipaddr *ret, size_t *ret_n);
uint16_t state_port(const struct state *st); /* 0: a Unix socket */
/* Reachable now? why: what is wrong, for people; cut to n. */
bool state_is_up(struct state *st, char *why, size_t n);

/* ---- from the main thread; these wait, for LIMIT_MS_STATE_ORDER at most ---- */

/* The mirror holds what lay there when this was called. */
int state_sync(struct state *st, struct err *e) ATTR_NODISCARD;
/* r, which must be new, lies there and has been put. -1: it does not, or nobody knows, and then it
 * is ended there as soon as can be. */
int state_add(struct state *st, const struct state_record *r, struct err *e) ATTR_NODISCARD;
/* r has ended there and has been put. -1: not yet, but it will be as soon as can be. */
int state_end(struct state *st, const struct state_record *r, struct err *e) ATTR_NODISCARD;

#endif
