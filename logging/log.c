/*
 * The operator's log on stderr. One line is built on the stack and goes out in one write(2). It
 * keeps nothing, waits for nothing and allocates nothing: a line that stderr does not take is
 * dropped.
 */
#include "logging/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "logging/utf8.h"

#define LINE_MAX_BYTES 4096 /* PIPE_BUF on Linux: up to here a write to a pipe is not torn */

int log_level_now = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	__atomic_store_n(&log_level_now, (int)level, __ATOMIC_RELAXED);
}

enum log_level log_get_level(void)
{
	return (enum log_level)__atomic_load_n(&log_level_now, __ATOMIC_RELAXED);
}

static void put_line(const char *fmt, va_list ap)
{
	static const char prefix[] = "stile: ";
	char raw[2048];
	char line[LINE_MAX_BYTES];
	size_t len = sizeof(prefix) - 1;
	int saved = errno;
	ssize_t n;

	if (vsnprintf(raw, sizeof(raw), fmt, ap) < 0)
		return;
	for (size_t i = 0; i < len; i++)
		line[i] = prefix[i];
	len += utf8_escape(str_from_c(raw), line + len, sizeof(line) - len - 1);
	line[len++] = '\n';
	do
		n = write(STDERR_FILENO, line, len);
	while (n < 0 && errno == EINTR);
	errno = saved;
}

#define LEVEL_FUNCTION(name, level)                                                                \
	void name(const char *fmt, ...)                                                            \
	{                                                                                          \
		va_list ap;                                                                        \
                                                                                                   \
		if ((level) > log_get_level())                                                     \
			return;                                                                    \
		va_start(ap, fmt);                                                                 \
		put_line(fmt, ap);                                                                 \
		va_end(ap);                                                                        \
	}

LEVEL_FUNCTION(log_error, LOG_LEVEL_ERROR)
LEVEL_FUNCTION(log_warn, LOG_LEVEL_WARN)
LEVEL_FUNCTION(log_info, LOG_LEVEL_INFO)
LEVEL_FUNCTION(log_debug_line, LOG_LEVEL_DEBUG)
