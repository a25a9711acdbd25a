/*
 * The current value of one credential, as its source last gave it: filled by one thread, read by
 * all. A value may have an end, after which it is not handed out.
 */
#ifndef STILE_PROXY_CREDENTIALS_SLOT_H
#define STILE_PROXY_CREDENTIALS_SLOT_H

#include "certs/client_cert.h"
#include "proxy/credentials/store.h"

struct slot; /* counted; safe for threads */

/* c: borrowed, for messages. NULL when memory is out. */
struct slot *slot_new(const struct config_credential *c);
struct slot *slot_ref(struct slot *s);
/* True when that was the last reference, and s is gone. */
bool slot_unref(struct slot *s);

/* The outcome of a reading. value: taken over; NULL: there is none, because of *why. life_us: how
 * long it holds from now on, 0: without an end. A value that was there stays until its own end when
 * `keep` is set. What goes into a handshake must be a certificate with its key, or is none, and
 * ends when it expires. Says on stderr what changed, never with a value. */
void slot_put(struct slot *s, struct secret *value, int64_t life_us, bool keep,
	      const struct err *why);
/* A reference to the value; -1: REASON_CREDENTIAL_UNAVAILABLE, without the credential's name. */
int slot_get(struct slot *s, struct secret **ret, struct err *e) ATTR_NODISCARD;
/* Of a credential `as: mtls`: the certificate that the value is. */
int slot_get_cert(struct slot *s, struct client_cert **ret, struct err *e) ATTR_NODISCARD;
/* Waits until something was put at all, at most ms. */
bool slot_await(struct slot *s, uint64_t ms);
/* What a slot holds, for who passes it on to another process. */
struct slot_state {
	struct secret *value;	/* counted; NULL: there is none */
	int64_t life_us;	/* of value, from now on; 0: without an end */
	int64_t next_us;	/* until it is asked again; -1: not known */
	char why[ERR_TEXT_MAX]; /* why the last reading gave none; "": it gave one */
	uint64_t version; /* grows with each reading that gave something else; 0: there was none */
};
/* From any thread; the caller gives ret->value back. */
void slot_read(struct slot *s, struct slot_state *ret);
/* fn is called behind each slot_put of this process, on the thread that put; from then on slots say
 * nothing on stderr, since somebody else does. Once, before there are threads. */
void slot_tell(void (*fn)(void *arg), void *arg);
/* Is there a value that has not ended? */
bool slot_holds(struct slot *s);

/* Of the value at hand and its source, without the value. Times are from now on or until now; -1:
 * there is none, or it is not known. */
struct slot_status {
	bool holds;		/* there is a value that has not ended */
	bool tried;		/* the source has answered at all */
	int64_t age_us;		/* since it gave the value */
	int64_t left_us;	/* until the value ends */
	int64_t next_us;	/* until the source is asked again */
	int64_t unused_us;	/* since the last use */
	uint64_t uses;		/* how often the value was handed out for a request */
	char why[ERR_TEXT_MAX]; /* what is wrong, as a client may see it; empty: nothing */
};
/* From any thread. */
void slot_status(struct slot *s, struct slot_status *ret);
/* The source is asked again in so long: for slot_status alone. */
void slot_expect(struct slot *s, int64_t in_us);
/* Goes on with the counts of `from`, which came before it. */
void slot_carry(struct slot *s, struct slot *from);

#endif
