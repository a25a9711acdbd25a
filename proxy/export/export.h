/*
 * What a sandbox leaves behind is as untrusted as the sandbox: only what is named comes out, as
 * plain files under plain names, all of it or nothing, with a list of hashes.
 */
#ifndef STILE_PROXY_EXPORT_EXPORT_H
#define STILE_PROXY_EXPORT_EXPORT_H

#include <stdint.h>

#include "logging/err.h"
#include "proxy/export/faults.h"

struct export_options {
	/* borrowed */
	const char *from; /* the workspace */
	const char *to;	  /* a folder that does not exist yet, outside of it */
	const char *const *patterns;
	size_t patterns_n;
	/* plain; 0: the limit of limits.h */
	size_t files_max;
	uint64_t bytes_max; /* of all files */
};

struct export_result {
	size_t files;
	uint64_t bytes;
};

/* 0: `to` is there, whole, with SHA256SUMS in it. -1: it is not; why is in f where files are at
 * fault (f->n > 0), else in e. SIGINT, SIGTERM and SIGHUP take effect when it has tidied up. */
int export_run(const struct export_options *o, struct export_result *ret, struct export_faults *f,
	       struct err *e) ATTR_NODISCARD;

#endif
