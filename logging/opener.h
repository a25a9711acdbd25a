/*
 * How this process opens the files that it reads and writes while it runs: the log, resolv.conf,
 * the hosts file, roots. It may have given up the right to open anything itself, and then somebody
 * else opens them for it (proxy/keeper/).
 */
#ifndef STILE_LOGGING_OPENER_H
#define STILE_LOGGING_OPENER_H

#include <stdbool.h>

/* open(2), or what opener_set put in its place. A file that is made gets mode 0640,
 * or 0644 where it is opened to read and write. -1 with errno.
 */
int opener_open(const char *path, int flags);
/* Is it open(2)? */
bool opener_is_own(void);
/* From now on, in all threads. NULL: open(2) again. */
void opener_set(int (*fn)(void *arg, const char *path, int flags), void *arg);

#endif
