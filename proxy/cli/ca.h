/*
 * What the files of `stile ca` share.
 */
#ifndef STILE_PROXY_CLI_CA_H
#define STILE_PROXY_CLI_CA_H

#include "policy/config.h"

struct ca_flags {
	/* borrowed from argv; NULL: not given */
	const char *file;  /* -c */
	const char *to;	   /* -o */
	const char *dir;   /* --dir */
	const char *proxy; /* --proxy */
	/* plain */
	bool java, export;
};

int ca_bundle(const struct config *c, const struct ca_flags *f, struct err *e) ATTR_NODISCARD;
/* Prints the variables. c may be NULL when there is a --proxy. Returns the exit code. */
int ca_env(const struct config *c, const struct ca_flags *f);

#endif
