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

/* Takes the variables that c names out of this process's environment, once, before threads start:
 * the values are kept for every later store of the process and wiped from the environment block. */
int credential_env_capture(const struct config *c, struct err *e) ATTR_NODISCARD;

/* Reads every file and variable once, and has b ask the rest, verifying endpoints by t (b outlives
 * the store; NULL for both will do where there is no such source). A source that cannot be read is
 * no failure here: its credential is unavailable until it can, and the operator's log says so
 * (never with the value). */
int credential_store_new(struct config *c, struct broker *b, struct trust *t,
			 struct credential_store **ret, struct err *e) ATTR_NODISCARD;
/* Waits until each source has given its first answer, good or bad, but not longer than
 * LIMIT_MS_SOURCES_FIRST for all. The broker runs. */
void credential_store_await(struct credential_store *s);
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
