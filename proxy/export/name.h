/*
 * Names that mean the same to everyone who reads them: on other file systems, in a shell, in a
 * list.
 */
#ifndef STILE_PROXY_EXPORT_NAME_H
#define STILE_PROXY_EXPORT_NAME_H

#include "proxy/export/walk.h"

#define EXPORT_MANIFEST "SHA256SUMS"

/* One segment of a path. -1: what is wrong with it, without the name itself. */
int name_check(const char *name, struct err *e) ATTR_NODISCARD;
/* The whole path folded: two paths with the same result are one file where case or the composition
 * of letters does not count. The caller frees it; NULL: memory is out. */
char *name_fold(const char *path);
/* Each segment of each path, and that no two paths, nor the folders on the way, fold to one. What
 * is wrong is in f. -1: memory is out. */
int names_check(const struct found *l, struct export_faults *f, struct err *e) ATTR_NODISCARD;

#endif
