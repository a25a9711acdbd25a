/*
 * The environment of a sandboxed command: empty but for an allowlist, what --env adds, and the
 * variables that lead clients to the proxy and make them trust its certificates.
 */
#ifndef STILE_PROXY_SANDBOX_ENV_H
#define STILE_PROXY_SANDBOX_ENV_H

#include <stdint.h>

#include "logging/err.h"
#include "policy/config.h"
#include "proxy/credentials/placeholder.h"
#include "proxy/sandbox/client_env.h"

/* Where the certificates lie inside (files.c puts them there). */
#define SANDBOX_DIR	    "/run/stile"
#define SANDBOX_BUNDLE	    SANDBOX_DIR "/" CLIENT_BUNDLE
#define SANDBOX_TRUSTSTORE  SANDBOX_DIR "/" CLIENT_TRUSTSTORE
#define SANDBOX_CA	    SANDBOX_DIR "/" CLIENT_CA
#define SANDBOX_RESOLV_CONF SANDBOX_DIR "/resolv.conf"
#define SANDBOX_HOSTS	    SANDBOX_DIR "/hosts"
/* Of each credential that has a placeholder with `file`, a file of its name. */
#define SANDBOX_PLACEHOLDERS SANDBOX_DIR "/placeholders"

struct env_options {
	/* borrowed */
	char *const *outer;	   /* NULL-terminated, as environ */
	const char *const *wanted; /* --env: NAME or NAME=VALUE */
	const struct config *config;
	const struct placeholders *placeholders; /* NULL: none */
	const char *workspace;			 /* becomes PWD */
	/* plain */
	size_t wanted_n;
	uint16_t proxy_port;
};

struct env {
	/* owned */
	char **v; /* NULL-terminated */
	/* plain */
	size_t n, cap;
};

/* Is each --env well-formed, and none of them the source of a credential, or the variable of a
 * placeholder? */
int env_check(const char *const *wanted, size_t wanted_n, const struct config *config,
	      struct err *e) ATTR_NODISCARD;
/* *ret is filled from nothing; env_clear in every case. */
int env_build(const struct env_options *o, struct env *ret, struct err *e) ATTR_NODISCARD;
void env_clear(struct env *v);

#endif
