/*
 * What the log says about a run once it is over.
 */
#ifndef STILE_PROXY_SANDBOX_SUMMARY_H
#define STILE_PROXY_SANDBOX_SUMMARY_H

#include <stdint.h>
#include <sys/types.h>

struct log_mark {
	const char *path; /* borrowed; NULL: no file that could be read again */
	off_t at;
};

/* Where the log ends now. */
void log_mark_set(struct log_mark *m, const char *log_to);
/* How many refusals of `sandbox` were written since; 0 if the log cannot be read. */
uint64_t log_mark_refused(const struct log_mark *m, const char *sandbox);

#endif
