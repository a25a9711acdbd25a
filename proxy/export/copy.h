/*
 * One file out of a hostile tree into a folder of ours: opened without following anything, judged
 * by what was opened, copied byte by byte under a bound, with its hash.
 */
#ifndef STILE_PROXY_EXPORT_COPY_H
#define STILE_PROXY_EXPORT_COPY_H

#include <stdint.h>

#include <openssl/sha.h>

#include "logging/err.h"
#include "proxy/export/faults.h"

struct copied {
	uint64_t bytes;
	unsigned char sha256[SHA256_DIGEST_LENGTH];
};

/* Is stopped between two reads when a signal that ends the process is pending (the caller has
 * blocked it). */
bool copy_interrupted(void);
/* path: relative, below both. bytes_max: more is a fault. 0 with *ret filled, or 1: what is wrong
 * is in f (part of the file may be there). -1: the target cannot be written, or a signal came. */
int copy_file(int from_root, int to_root, const char *path, uint64_t bytes_max, struct copied *ret,
	      struct export_faults *f, struct err *e) ATTR_NODISCARD;

#endif
