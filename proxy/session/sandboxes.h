/*
 * The sandboxes that are told apart by a token: made, looked up, listed, revoked. A token is 256
 * random bits, shown once, and of it nothing but its SHA-256 is kept.
 *
 * In memory, gone with the process; or a mirror of what several stiles share (shared.h), which is
 * good for as long as it is known to be current. Safe for threads: the one lock of session/, held
 * for a look-up or a walk over all, never over a system call or somebody else's code.
 */
#ifndef STILE_PROXY_SESSION_SANDBOXES_H
#define STILE_PROXY_SESSION_SANDBOXES_H

#include <stdbool.h>
#include <stdint.h>

#include "logging/err.h"
#include "logging/str.h"
#include "proxy/state/record.h"

#define SANDBOX_NAME_MAX     65
#define SANDBOX_ID_LEN	     16
#define SANDBOX_TOKEN_PREFIX "stile_"
#define SANDBOX_TOKEN_LEN    (sizeof(SANDBOX_TOKEN_PREFIX) - 1 + 43) /* base64url of 32 bytes */

struct sandboxes; /* all of them */
struct sandbox;	  /* one, immutable but for its counters and its end; counted */

int sandboxes_new(struct sandboxes **ret, struct err *e) ATTR_NODISCARD;
/* References to single ones may outlive it. NULL is accepted. */
void sandboxes_free(struct sandboxes *all);

struct sandbox_options {
	/* borrowed */
	struct str name; /* empty: made up */
	const char *policy;
	const char *listener; /* where its token is good, and nowhere else */
	/* plain */
	uint64_t ttl_ms; /* LIMIT_MS_SANDBOX_LEAST to LIMIT_MS_SANDBOX_MOST */
};

/* The token, a secret, goes into token; *ret is a reference. -1: the name or the life is none, one
 * of that name lives, or there is no room. */
int sandboxes_add(struct sandboxes *all, const struct sandbox_options *o,
		  char token[SANDBOX_TOKEN_LEN + 1], struct sandbox **ret,
		  struct err *e) ATTR_NODISCARD;
/* A token, and what is kept of it, by whom ever; nothing is added here. */
int sandboxes_draft(const struct sandboxes *all, const struct sandbox_options *o,
		    char token[SANDBOX_TOKEN_LEN + 1], struct state_record *ret,
		    struct err *e) ATTR_NODISCARD;
/* A reference to the one of this token, which may have ended (sandbox_end); NULL: none. The time
 * that it takes says nothing of any token: they are found by their hash. */
struct sandbox *sandboxes_find(struct sandboxes *all, struct str token);
/* Ends the one of that id, or else the living one of that name; *ret is a reference. Whoever holds
 * it sees that from here on; connections are the workers' to close. */
int sandboxes_revoke(struct sandboxes *all, struct str id_or_name, struct sandbox **ret,
		     struct err *e) ATTR_NODISCARD;
/* Those that live, oldest first; none when memory is out. */
void sandboxes_each(struct sandboxes *all, void (*fn)(void *arg, const struct sandbox *s),
		    void *arg);
size_t sandboxes_n(struct sandboxes *all); /* living ones */
/* Those that have ended since they were made and that nobody was told of yet, each once in its
 * life; one that sandboxes_revoke has ended is its caller's to tell of. Costs next to nothing while
 * there are none. */
void sandboxes_each_ended(struct sandboxes *all, void (*fn)(void *arg, const struct sandbox *s),
			  void *arg);

/* ---- as a mirror ---- */

/* At its birth: what is here is good until sandboxes_hold says otherwise, and not yet at all. */
void sandboxes_share(struct sandboxes *all);
/* CLOCK_BOOTTIME, in microseconds. */
void sandboxes_hold(struct sandboxes *all, int64_t until_us);
/* May anything be served by it? Always, where it is no mirror. */
bool sandboxes_are_current(const struct sandboxes *all);
/* Makes r one of them, or ends it if it has been revoked. One that is here and differs is ended;
 * one that has ended here never lives again. True: something has ended. -1: there is no room. */
int sandboxes_put(struct sandboxes *all, const struct state_record *r, bool *ret_ended,
		  struct err *e) ATTR_NODISCARD;
/* Ends the one of that digest, if it is here. True: it lived. */
bool sandboxes_gone(struct sandboxes *all, const unsigned char digest[STATE_DIGEST_BYTES]);
/* Between the two, all that lives is put; what was not has ended. True: something has. */
void sandboxes_begin(struct sandboxes *all);
bool sandboxes_whole(struct sandboxes *all);
/* The living one of that id or name, as it is kept. -1: there is none. */
int sandboxes_record(struct sandboxes *all, struct str id_or_name, struct state_record *ret,
		     struct err *e) ATTR_NODISCARD;
/* A reference to the one of that digest; NULL: none. tell: its end is the caller's to tell of. */
struct sandbox *sandboxes_by_digest(struct sandboxes *all,
				    const unsigned char digest[STATE_DIGEST_BYTES], bool tell);

/* ---- one of them ---- */

struct sandbox *sandbox_ref(struct sandbox *s);
void sandbox_unref(struct sandbox *s); /* NULL is accepted */

/* REASON_NONE while it lives; else token_expired or token_revoked. */
enum reason sandbox_end(const struct sandbox *s);
/* In the words of an answer and a record. */
const char *sandbox_end_text(enum reason why);
/* Until its end, by a clock that goes on while the machine sleeps and that nobody can set. */
int64_t sandbox_left_us(const struct sandbox *s);

/* A connection of its own begins, and ends. */
void sandbox_enter(struct sandbox *s);
void sandbox_leave(struct sandbox *s);
/* It asked for something. */
void sandbox_seen(struct sandbox *s);

/* All borrowed. */
const char *sandbox_id(const struct sandbox *s);
const char *sandbox_name(const struct sandbox *s);
const char *sandbox_policy(const struct sandbox *s);
const char *sandbox_listener(const struct sandbox *s);
/* What its connections to origins are found by: another one's is never the same, not even when it
 * has the name of one that has ended, and no listener's name is. */
const char *sandbox_key(const struct sandbox *s);

struct sandbox_times {
	int64_t created_us, ends_us; /* since 1970, for people to read */
	int64_t seen_us;	     /* 0: never */
	uint64_t connections;	     /* open now */
};
/* From any thread. */
struct sandbox_times sandbox_times(const struct sandbox *s);

#endif
