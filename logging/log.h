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

/* "stile: text\n" */
void log_error(const char *fmt, ...) ATTR_PRINTF(1, 2);
void log_warn(const char *fmt, ...) ATTR_PRINTF(1, 2);
void log_info(const char *fmt, ...) ATTR_PRINTF(1, 2);
void log_debug(const char *fmt, ...) ATTR_PRINTF(1, 2);

#endif
