/*
 * Fills a struct err. The text is escaped here, once, so that no caller has to ask whether what it
 * quotes came off the wire. It logs nothing and ends nothing. Every layer calls it.
 */
#include "logging/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "logging/utf8.h"

/* The arguments may point into e->text, so the text is built beside it and copied last. */
static void put_text(struct err *e, const char *fmt, va_list ap, const char *tail)
{
	char raw[ERR_TEXT_MAX];
	int n = vsnprintf(raw, sizeof(raw), fmt, ap);
	size_t len = n < 0 ? 0 : (size_t)n;

	if (len >= sizeof(raw))
		len = sizeof(raw) - 1;
	if (tail)
		snprintf(raw + len, sizeof(raw) - len, ": %s", tail);
	/* A text that vsnprintf cut may end in half a character, which comes out escaped. */
	utf8_escape(str_from_c(raw), e->text, sizeof(e->text));
}

int err_set(struct err *e, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return -1;
	va_start(ap, fmt);
	put_text(e, fmt, ap, NULL);
	va_end(ap);
	e->reason = REASON_NONE;
	e->sys_errno = 0;
	return -1;
}

int err_reason(struct err *e, enum reason reason, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return -1;
	va_start(ap, fmt);
	put_text(e, fmt, ap, NULL);
	va_end(ap);
	e->reason = reason;
	e->sys_errno = 0;
	return -1;
}

int err_sys(struct err *e, int sys_errno, const char *fmt, ...)
{
	char buf[128];
	va_list ap;

	if (!e)
		return -1;
	va_start(ap, fmt);
	put_text(e, fmt, ap, strerror_r(sys_errno, buf, sizeof(buf)));
	va_end(ap);
	e->reason = REASON_NONE;
	e->sys_errno = sys_errno;
	return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char old[ERR_TEXT_MAX];
	va_list ap;

	if (!e)
		return -1;
	memcpy(old, e->text, sizeof(old));
	old[sizeof(old) - 1] = '\0';
	va_start(ap, fmt);
	put_text(e, fmt, ap, old);
	va_end(ap);
	return -1;
}

int err_hint(struct err *e, const char *what_to_do)
{
	size_t n;

	if (!e || !what_to_do)
		return -1;
	n = strlen(e->text);
	if (n + strlen(what_to_do) + sizeof(" ()") <= sizeof(e->text))
		(void)snprintf(e->text + n, sizeof(e->text) - n, " (%s)", what_to_do);
	return -1;
}
