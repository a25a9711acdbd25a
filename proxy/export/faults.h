/*
 * All that is wrong with an export, a line each, so that one run tells everything.
 */
#ifndef STILE_PROXY_EXPORT_FAULTS_H
#define STILE_PROXY_EXPORT_FAULTS_H

#include <stddef.h>

#include "logging/strbuf.h"

struct export_faults {
	struct strbuf lines; /* owned: "PATH: what is wrong" each, safe for a terminal */
	size_t n;	     /* of all; the first LIMIT_EXPORT_FAULTS have lines */
};

void export_faults_init(struct export_faults *f);
void export_faults_clear(struct export_faults *f);
void export_fault(struct export_faults *f, const char *path, const char *fmt, ...)
	ATTR_PRINTF(3, 4);

#endif
