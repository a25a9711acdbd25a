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
/* Until pid 1 of the sandbox (a child) has ended: its exit status, 128+signal if it was killed. */
int supervisor_wait(struct supervisor *s, pid_t init, int channel, struct engine *g);
/* Gives the terminal back to whoever had it. */
void supervisor_clear(struct supervisor *s);

#endif
