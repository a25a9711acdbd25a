/*
 * The keeper, as the proxy sees it: a process of its own that holds the CA's key and the sources of
 * credentials. **Start reading here.** What it does with a message is core.h.
 */
#ifndef STILE_PROXY_KEEPER_KEEPER_H
#define STILE_PROXY_KEEPER_KEEPER_H

#include "certs/ca.h"
#include "certs/signer.h"
#include "policy/config.h"
#include "proxy/credentials/store.h"

struct keeper; /* the main thread's, but where it says otherwise */

struct keeper_options {
	/* borrowed; for the keeper's whole life, which has a copy of this process's memory */
	struct config *config;
	const char *ca_dir;	 /* NULL: a CA that lives in its memory */
	const char *policy_name; /* the only policy in force; NULL: those of the listeners */
	const char *log_to;	 /* NULL: the configuration's */
	/* Becomes the user that the proxy will be; in the keeper, once all is read. NULL: stays. */
	int (*become)(const char *user, struct err *e);
	/* plain */
	size_t workers; /* at most LIMIT_WORKERS */
	bool reloads;	/* the configuration is a file that may be read again */
};

/* Makes the keeper. Before this process has threads, has read a secret, or listens. It takes the
 * variables that the configuration names along; here they are wiped. Whatever happens to this
 * process, the keeper ends with it. */
int keeper_start(const struct keeper_options *o, struct keeper **ret, struct err *e) ATTR_NODISCARD;
/* Waits until it has its CA and its sources. *ret: the CA without its key. */
int keeper_await(struct keeper *k, struct ca **ret, struct err *e) ATTR_NODISCARD;
/* Starts the thread that hears what the keeper says by itself. Before, it is heard while something
 * is asked. After privileges are dropped. */
int keeper_attend(struct keeper *k, struct err *e) ATTR_NODISCARD;
/* Ends it and waits until it has ended its sources, LIMIT_MS_KEEPER_STOP at most. Nobody uses k
 * any more, nor a store of it. NULL is accepted. */
void keeper_stop(struct keeper *k);
/* It ended by itself: nothing can be had from it any more. From any thread. */
bool keeper_is_gone(const struct keeper *k);
pid_t keeper_pid(const struct keeper *k);
/* In a copy of this process (fork): lets go of the keeper, which is not that one's. */
void keeper_leave(struct keeper *k);

/* From whose public key it makes leaves; once. */
int keeper_give_key(struct keeper *k, const struct signer *s, struct err *e) ATTR_NODISCARD;
/* The n-th worker's socket, for its desk (desk.h). Borrowed. */
int keeper_leaves_fd(const struct keeper *k, size_t n);

/* A store for c, which is the configuration that keeper_start or keeper_reload went by. */
int keeper_store(struct keeper *k, struct config *c, struct credential_store **ret,
		 struct err *e) ATTR_NODISCARD;

/* The keeper has read the configuration file again. */
struct keeper_reading {
	char *text; /* owned: free */
	size_t n;
	bool ok; /* it has no faults, as the keeper sees it */
	char version_hash[20];
};
/* Until keeper_commit the old configuration stays in force; keeper_abort: it stays for good. */
int keeper_reload(struct keeper *k, struct keeper_reading *ret, struct err *e) ATTR_NODISCARD;
int keeper_commit(struct keeper *k, struct err *e) ATTR_NODISCARD;
void keeper_abort(struct keeper *k);

/* From here on this process has nothing in its environment that could be a secret, opens no file
 * itself (until keeper_stop every opener_open asks the
 * keeper), starts no program, and reaches into no other process: confine.h. Of threads, those that
 * start later; so call it before there are any, and once nothing else has to be opened. */
int keeper_confine(struct keeper *k, const struct config *c, struct err *e) ATTR_NODISCARD;
/* What this system does not do of that, for the record; NULL: it does all. */
const char *keeper_weakness(const struct keeper *k);

#endif
