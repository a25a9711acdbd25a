/*
 * Placeholders: made-up values that the sandbox holds in place of credentials. Each is made once in
 * the life of the process, from the operating system's random numbers, in the shape of the value if
 * that is at hand, and stays the same across reloads.
 */
#ifndef STILE_PROXY_CREDENTIALS_PLACEHOLDER_H
#define STILE_PROXY_CREDENTIALS_PLACEHOLDER_H

#include "logging/strbuf.h"
#include "policy/config.h"
#include "proxy/credentials/needles.h"

/* Those of one configuration, and those that an earlier one of this process had handed out.
 * Immutable once made. */
struct placeholders;

/* Makes those that are missing, reading files and variables (behind credential_env_capture) for
 * their shape, never asking a source that takes time. *ret is NULL when there is none at all.
 * Thread-safe. */
int placeholders_new(const struct config *c, struct placeholders **ret,
		     struct err *e) ATTR_NODISCARD;
/* Another process has the sources (proxy/keeper/): it makes the text of c from now on. Before there
 * are threads. */
void placeholders_made_by(int (*fn)(void *arg, const struct config_credential *c,
				    struct strbuf *out, struct err *e),
			  void *arg);
/* Such a text, made here: reads the value of c for its shape if it is at hand. */
int placeholder_make(const struct config_credential *c, struct strbuf *out,
		     struct err *e) ATTR_NODISCARD;
void placeholders_free(struct placeholders *p); /* NULL is accepted */
/* For all of them, also those whose credential is gone. */
const struct needles *placeholders_needles(const struct placeholders *p);
/* The place among the needles of the credential of that name, for a caller in that sandbox (today
 * all of them get the same). False: it has none. */
bool placeholders_find(const struct placeholders *p, struct str sandbox, const char *credential,
		       size_t *ret);
/* Whose it is; for messages. */
const char *placeholders_name(const struct placeholders *p, size_t which);

/* For `serve`: each into the file that its `file` says, readable by all. A file that holds it
 * already is left alone. */
int placeholders_write(const struct placeholders *p, const struct config *c,
		       struct err *e) ATTR_NODISCARD;

/* A made-up value that looks like `value` (STR_NONE: not known), as far as that is no secret: its
 * well-known prefix, its length up to LIMIT_PLACEHOLDER_BYTES, the kinds of its characters, dots
 * and colons. */
int placeholder_shape(const struct config_placeholder *how, struct str value, struct strbuf *out,
		      struct err *e) ATTR_NODISCARD;

#endif
