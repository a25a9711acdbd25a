/*
 * The credentials of one configuration, by name. Files and variables are read by the main thread,
 * which calls credential_store_poll; what takes time is asked by the broker's thread (broker.h).
 * Workers only take references to what is there, so nothing slow ever blocks one.
 */
#ifndef STILE_PROXY_CREDENTIALS_STORE_H
#define STILE_PROXY_CREDENTIALS_STORE_H

#include "certs/trust.h"
#include "logging/err.h"
#include "logging/str.h"
#include "policy/config.h"

struct broker;
struct credential_store; /* counted, shared by threads */
struct secret;		 /* counted, immutable; wiped when the last reference goes */

/* Wipes the variables that c names out of this process's environment without keeping them. Before
 * threads start. */
void credential_env_forget(const struct config *c);
/* Wipes all others too, but for a few that hold no secret and are looked at later: what a helper
 * may need is in the environment of who starts it. */
void credential_env_reduce(void);
/* Takes the variables that c names out of this process's environment, once, before threads start:
 * the values are kept for every later store of the process and wiped from the environment block. */
int credential_env_capture(const struct config *c, struct err *e) ATTR_NODISCARD;

/* Reads every file and variable once, and has b ask the rest, verifying endpoints by t (b outlives
 * the store; NULL for both will do where there is no such source). A source that cannot be read is
 * no failure here: its credential is unavailable until it can, and the operator's log says so
 * (never with the value). */
int credential_store_new(struct config *c, struct broker *b, struct trust *t,
			 struct credential_store **ret, struct err *e) ATTR_NODISCARD;
/* Only those of which wanted[i] is set, by their place in c; the others are never read, and not
 * available. */
int credential_store_new_of(struct config *c, const bool *wanted, struct broker *b, struct trust *t,
			    struct credential_store **ret, struct err *e) ATTR_NODISCARD;
/* Who fills a store that has no sources of its own (proxy/keeper/). */
struct credential_feed {
	/* A value has ended although it was to be renewed before. From any thread. */
	void (*nudge)(void *arg, uint32_t id, size_t i);
	/* A token of a key that is there and not here (`jwt`). From any thread; does not take long.
	 */
	int (*mint)(void *arg, uint32_t id, size_t i, struct str sandbox, struct secret **ret,
		    struct err *e);
	void *arg;
	uint32_t id; /* of the store, to whoever fills it */
};
/* A store into which what is wanted is put. */
int credential_store_new_fed(struct config *c, const bool *wanted, const struct credential_feed *f,
			     struct credential_store **ret, struct err *e) ATTR_NODISCARD;
/* Puts what a source has given elsewhere. value: taken over, NULL: none; life_us as in slot.h;
 * next_us: until it is asked again, below 0: not known; why: the last reading failed, with a value
 * that is there all the same, or without. */
void credential_store_put(struct credential_store *s, size_t i, struct secret *value,
			  int64_t life_us, int64_t next_us, const struct err *why);
/* Whoever filled it is gone: no value is handed out any more. */
void credential_store_lose(struct credential_store *s, const struct err *why);
struct slot;
/* Borrowed; NULL: not wanted. */
struct slot *credential_store_slot(struct credential_store *s, size_t i);
void credential_store_nudge(struct credential_store *s, size_t i);
/* Is the value of i's slot a key, of which tokens are made? It does not leave this process. */
bool credential_store_is_key(const struct credential_store *s, size_t i);
/* Such a token, for a feed's mint. */
int credential_store_mint(struct credential_store *s, size_t i, struct str sandbox,
			  struct secret **ret, struct err *e) ATTR_NODISCARD;

/* Is p that of a listener of c, or could it be that of a sandbox that shows a token there? Where
 * `policy` is given: is it the one of that name? */
bool policy_is_in_force(const struct config *c, const struct policy *p, const char *policy);
/* Which credentials of c can be asked for at all: those that a rule names of a policy in force
 * (that of a listener, or `policy` alone where it is given), and that of upstream.proxy. ret has
 * room for all of c. */
void credentials_wanted(const struct config *c, const char *policy, bool *ret);

/* Waits until each source has given its first answer, good or bad, but not longer than
 * LIMIT_MS_SOURCES_FIRST for all, nor once is_over, which is asked every now and then, says so. The
 * broker runs. */
void credential_store_await(struct credential_store *s, bool (*is_over)(void));
struct credential_store *credential_store_ref(struct credential_store *s);
void credential_store_unref(struct credential_store *s);
/* Reads again what has changed (device, inode, size, mtime of the file). Main thread, every
 * LIMIT_MS_SECRET_REREAD. */
void credential_store_poll(struct credential_store *s);

/* A reference to the current value, which the caller gives back. sandbox: whose request it is for;
 * empty where that is unknown, and then a value of each sandbox's own is not to be had. -1:
 * REASON_CREDENTIAL_UNAVAILABLE with the name and why (missing, empty, unreadable, holds a control
 * character, too large). */
int credential_get(struct credential_store *s, const char *name, struct str sandbox,
		   struct secret **ret, struct err *e) ATTR_NODISCARD;
/* The same of a credential `as: mtls`: what is shown in the handshake. */
struct client_cert;
int credential_get_cert(struct credential_store *s, const char *name, struct client_cert **ret,
			struct err *e) ATTR_NODISCARD;
/* How each is, in the order of their names: c, and what slot.h says of it. */
struct slot_status;
void credential_store_each(struct credential_store *s,
			   void (*fn)(void *arg, const struct config_credential *c,
				      const struct slot_status *st),
			   void *arg);
/* s takes the place of `old`: what is counted goes on. */
void credential_store_carry(struct credential_store *s, struct credential_store *old);
struct str secret_value(const struct secret *s);
/* What finds it in an answer (redact.h), as long as s; NULL: it is too short to be looked for. */
const struct redactor *secret_redactor(const struct secret *s);
struct secret *secret_ref(struct secret *s);
void secret_unref(struct secret *s); /* NULL is accepted */

#endif
