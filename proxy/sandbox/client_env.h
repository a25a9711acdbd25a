/*
 * Which variables lead which client to the proxy and to the certificates: the one table of them,
 * for the environment of `stile run` (env.c) and for `stile ca env`. It sets nothing itself.
 */
#ifndef STILE_PROXY_SANDBOX_CLIENT_ENV_H
#define STILE_PROXY_SANDBOX_CLIENT_ENV_H

#include <stdint.h>

#include "logging/err.h"
#include "logging/str.h"

/* The names of the files in a folder of trust, as `stile run` and `stile ca bundle --dir` make it.
 */
#define CLIENT_BUNDLE	  "ca-bundle.pem"  /* the system's roots and the CA */
#define CLIENT_TRUSTSTORE "truststore.p12" /* the same, for Java */
#define CLIENT_CA	  "ca.pem"	   /* the CA alone */

/* The sandbox's or container's own loopback: its servers and tests keep working. */
#define CLIENT_NO_PROXY "localhost,127.0.0.1,::1"

struct client_env {
	/* borrowed */
	const char *dir;       /* where the client finds those files */
	const char *proxy_url; /* http://[user:password@]host:port */
	struct str proxy_host; /* of that url; an IPv6 address without brackets */
	/* plain */
	uint16_t proxy_port;
};

/* Calls put for each variable, once each; ends at the first that is not 0 and returns it. -1 also
 * when memory is out. */
int client_env_each(const struct client_env *c,
		    int (*put)(void *arg, const char *name, const char *value), void *arg);

#endif
