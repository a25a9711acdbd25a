/*
 * stile's main thread while a sandboxed command runs: passes signals on, keeps the terminal right,
 * gives the engine its turns.
 */
#ifndef STILE_PROXY_SANDBOX_SUPERVISE_H
#define STILE_PROXY_SANDBOX_SUPERVISE_H

#include <sys/types.h>

#include "proxy/session/engine.h"

struct supervisor {
	/* owned */
	int signals; /* signalfd; the signals are blocked in the whole process */
	int tty;     /* the controlling terminal; -1: none */
	/* plain */
	pid_t foreground; /* the terminal's foreground group at start */
	sigset_t outer;	  /* the mask that stile was started with */
};

/* Before the sandbox is made and before any thread. */
int supervisor_init(struct supervisor *s, struct err *e) ATTR_NODISCARD;
#define SUPERVISOR_TIMED_OUT 124

/* Until pid 1 of the sandbox (a child) has ended: its exit status, 128+signal if it was killed,
 * SUPERVISOR_TIMED_OUT when that was because timeout_s (0: none) was over: the command gets SIGTERM
 * then, and all of the sandbox SIGKILL after LIMIT_MS_RUN_GRACE. */
int supervisor_wait(struct supervisor *s, pid_t init, int channel, struct engine *g,
		    uint64_t timeout_s);
/* Gives the terminal back to whoever had it. */
void supervisor_clear(struct supervisor *s);

#endif
