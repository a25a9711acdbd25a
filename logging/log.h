/*
 * The operator's log: short lines on stderr for whoever runs stile. It is not the audit record
 * (record.h). Every line is one write(2), so lines of several threads do not mix; bytes that could
 * move a terminal's cursor are escaped. Never give it a secret.
 */
#ifndef STILE_LOGGING_LOG_H
#define STILE_LOGGING_LOG_H

#include "logging/attrs.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level); /* default: LOG_LEVEL_INFO */
enum log_level log_get_level(void);
extern int log_level_now; /* atomic; for what follows alone */

/* "stile: text\n" */
void log_error(const char *fmt, ...) ATTR_PRINTF(1, 2);
void log_warn(const char *fmt, ...) ATTR_PRINTF(1, 2);
void log_info(const char *fmt, ...) ATTR_PRINTF(1, 2);
void log_debug_line(const char *fmt, ...) ATTR_PRINTF(1, 2);
/* Each change of a state says so: what is not asked for costs a look at the level, no call. */
#define log_debug(...)                                                                             \
	do {                                                                                       \
		if (__builtin_expect(__atomic_load_n(&log_level_now, __ATOMIC_RELAXED) >=          \
					     LOG_LEVEL_DEBUG,                                      \
				     0))                                                           \
			log_debug_line(__VA_ARGS__);                                               \
	} while (0)

#endif
