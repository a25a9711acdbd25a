/*
 * Finds what is wanted in a tree that somebody hostile has filled, and may be changing still. No
 * link is followed and no other file system entered. What is found here is a list of names; what
 * they are is judged once more when they are opened (copy.h).
 */
#ifndef STILE_PROXY_EXPORT_WALK_H
#define STILE_PROXY_EXPORT_WALK_H

#include "proxy/export/faults.h"
#include "proxy/export/glob.h"

struct found {
	/* owned */
	char **paths; /* relative, in memcmp order, each once */
	size_t n;
};

/* root_fd: the tree, borrowed. What may not leave is in f. -1: the tree cannot be read, or memory
 * is out. found_clear in every case. */
int walk_tree(int root_fd, struct glob *const *patterns, size_t patterns_n, size_t files_max,
	      struct found *ret, struct export_faults *f, struct err *e) ATTR_NODISCARD;
void found_clear(struct found *l);

#endif
