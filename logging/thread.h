/*
 * How every thread of stile is started. The log's writer, the workers, the broker, the keeper's
 * client and the shared state call it.
 */
#ifndef STILE_LOGGING_THREAD_H
#define STILE_LOGGING_THREAD_H

#include <pthread.h>

#include "logging/attrs.h"
#include "logging/err.h"

/* Starts fn(arg) in *ret_thread, which the caller joins. All signals are blocked there, since they
 * are the main thread's; but SIGSYS, by which a call is told that a filter does not let through
 * (proxy/keeper/confine.h). `what` names it in the error: "thread of the keeper". */
int thread_start(pthread_t *ret_thread, void *(*fn)(void *), void *arg, const char *what,
		 struct err *e) ATTR_NODISCARD;

#endif
