/*
 * Everything a request is judged and carried by, as one immutable object: the configuration, the
 * trust store made from it, its credentials. A reload makes a new snapshot; whoever holds a
 * reference goes on under the old one.
 */
#ifndef STILE_PROXY_SESSION_SNAPSHOT_H
#define STILE_PROXY_SESSION_SNAPSHOT_H

#include "certs/trust.h"
#include "policy/config.h"
#include "proxy/credentials/placeholder.h"
#include "proxy/keeper/keeper.h"

struct snapshot {
	/* owned */
	struct placeholders *placeholders; /* NULL: there are none */
	/* counted */
	struct config *config;
	struct trust *trust;
	struct credential_store *credentials;
	/* plain */
	uint64_t number; /* of this one alone, unlike its address */
	int refs;	 /* atomic */
};

/* Takes its own reference to config. k: who keeps its credentials; NULL: nobody, they are read
 * here. -1: the trust files or the credentials could not be loaded. */
int snapshot_new(struct config *config, struct keeper *k, struct snapshot **ret,
		 struct err *e) ATTR_NODISCARD;
struct snapshot *snapshot_ref(struct snapshot *s);
void snapshot_unref(struct snapshot *s); /* NULL is accepted; thread-safe */

#endif
