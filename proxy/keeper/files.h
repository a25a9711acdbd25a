/*
 * The files that the proxy may have opened for it: by name, out of a short list that the
 * configuration and this program make. Never one that is a source of a credential or the CA's key.
 */
#ifndef STILE_PROXY_KEEPER_FILES_H
#define STILE_PROXY_KEEPER_FILES_H

#include <sys/stat.h>

#include "policy/config.h"

struct files_scope {
	const struct config *config, *next; /* in force; to come, or NULL */
	const char *log_to;		    /* NULL: the configuration's */
};

/* A descriptor, or -1 with errno: EACCES for what is not on the list. how: of wire.h; the log is
 * appended to, the files of placeholders are changed. */
int files_open(const struct files_scope *s, const char *path, uint32_t how);

/* What of the configuration the file st is, if a line of a log would spoil it: under whatever name,
 * since load.c compares names alone. NULL: nothing. */
const char *files_spoilt_by_log(const struct config *c, const struct stat *st);

#endif
