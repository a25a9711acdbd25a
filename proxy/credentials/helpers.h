/*
 * The programs of `exec`, started by a process of its own. That one knows them out of the
 * configuration, which it reads itself, and is told which of them is wanted and nothing else: so
 * the keeper, from which it was split, needs no right to start anything, and who takes the keeper
 * over can have the helpers run that the file names, as it names them. It sees no value: what a
 * helper prints goes straight to who asked. The keeper's side is helpers.c, the process's
 * helpers_process.c.
 */
#ifndef STILE_PROXY_CREDENTIALS_HELPERS_H
#define STILE_PROXY_CREDENTIALS_HELPERS_H

#include <sys/types.h>

#include "policy/config.h"

struct helpers;

struct helpers_options {
	/* borrowed until helpers_start returns; that process has a copy */
	struct config *config;
	/* Becomes the user that the keeper will be. NULL: stays. */
	int (*become)(const char *user, struct err *e);
};

/* Makes the process: before the caller has threads or has read a secret. The variables of its
 * environment that the configuration names are wiped there. It ends with h, or with the caller. */
int helpers_start(const struct helpers_options *o, struct helpers **ret,
		  struct err *e) ATTR_NODISCARD;
/* Ends it with all that runs there, and waits until it has ended. Nobody asks any more. NULL is
 * accepted. */
void helpers_stop(struct helpers *h);
pid_t helpers_pid(const struct helpers *h);

/* Readable once that process has ended, -1 when that was seen: helpers_look then says so on
 * stderr. One thread's. */
int helpers_fd(const struct helpers *h);
void helpers_look(struct helpers *h);

/* It reads the configuration file again. 0: what it read has that version, and helpers_run may ask
 * for what is new in it; or it has ended, which is no reason against a reload. One thread's. */
int helpers_read(struct helpers *h, const char *version_hash, struct err *e) ATTR_NODISCARD;
/* What was read last is in force from now on, alone; or not at all. */
void helpers_commit(struct helpers *h);
void helpers_abort(struct helpers *h);

/* What comes over the socket of one run. */
enum helper_said {
	HELPER_STARTED = 1, /* a descriptor comes along: what it prints */
	/* each of these is the last; nothing of the helper is left behind */
	HELPER_EXITED,	 /* value: its status */
	HELPER_SIGNALED, /* value: the signal */
	HELPER_LATE,	 /* `timeout` was over */
	HELPER_FAILED,	 /* value: errno; it was not started */
	HELPER_UNKNOWN,	 /* no configuration in force names it */
	HELPER_TOO_MANY,
};
struct helper_message {
	int32_t said; /* enum helper_said */
	int32_t value;
};

/* Has c's helper started, from any thread and without waiting. *ret: the caller's, does not block:
 * helper_message come, one at a time. To close it ends the helper, and all that it started. -1:
 * REASON_CREDENTIAL_UNAVAILABLE. h may be NULL: nothing can be started. */
int helpers_run(struct helpers *h, const struct config_credential *c, int *ret,
		struct err *e) ATTR_NODISCARD;
/* 1: *m is filled, and *ret_fd is the caller's or -1; 0: the process has ended; -1: nothing yet. */
int helpers_hear(int fd, struct helper_message *m, int *ret_fd) ATTR_NODISCARD;

#endif
