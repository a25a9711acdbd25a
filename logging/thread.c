/*
 * A thread that no signal interrupts. Its mask is set before it is born: afterwards would be too
 * late for one that comes at once.
 */
#include "logging/thread.h"

#include <signal.h>

int thread_start(pthread_t *ret_thread, void *(*fn)(void *), void *arg, const char *what,
		 struct err *e)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	sigdelset(&all, SIGSYS);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(ret_thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc == 0 ? 0 : err_sys(e, rc, "%s", what);
}
