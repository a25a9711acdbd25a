/*
 * The one idiom for failure: a function returns 0 or -1 and, on -1, has filled its last argument.
 * An err is plain data on the caller's stack; nothing in it needs freeing. A NULL err is allowed
 * and means that the caller does not want the text.
 */
#ifndef STILE_LOGGING_ERR_H
#define STILE_LOGGING_ERR_H

#include "logging/attrs.h"
#include "logging/reason.h"

#define ERR_TEXT_MAX 512

struct err {
	enum reason reason;	 /* REASON_NONE when the failure is not one that a client is told */
	int sys_errno;		 /* 0 unless a system call failed */
	char text[ERR_TEXT_MAX]; /* for people; never holds a secret; control bytes are escaped */
};

/* Nothing yet. Of the text the terminator alone is written: there is one on the stack of most
 * functions that can fail, and few do. */
#define ERR_INIT err_none()
static inline struct err err_none(void)
{
	struct err e;

	e.reason = REASON_NONE;
	e.sys_errno = 0;
	e.text[0] = '\0';
	return e;
}

/* Each fills *e (if not NULL) and returns -1, so that `return err_set(e, ...)` reads as one line.
 */
int err_set(struct err *e, const char *fmt, ...) ATTR_PRINTF(2, 3);
int err_reason(struct err *e, enum reason reason, const char *fmt, ...) ATTR_PRINTF(3, 4);
/* Appends `: strerror(sys_errno)`; errno is passed in because what runs between may change it. */
int err_sys(struct err *e, int sys_errno, const char *fmt, ...) ATTR_PRINTF(3, 4);
/* Puts `fmt: ` in front of what e already says, and keeps its reason. */
int err_wrap(struct err *e, const char *fmt, ...) ATTR_PRINTF(2, 3);
/* Appends ` (what_to_do)` to what e says; nothing for NULL. */
int err_hint(struct err *e, const char *what_to_do);

#endif
