/*
 * The sources of secrets, for store.c: one function a kind. Another kind is another file and one
 * more line in the store's table.
 */
#ifndef STILE_PROXY_CREDENTIALS_SOURCE_H
#define STILE_PROXY_CREDENTIALS_SOURCE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "proxy/credentials/store.h"

/* What the file was like when it was last read. */
struct source_mark {
	bool set;
	bool settled; /* last changed long before it was read: see source_file.c */
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime, ctime;
	mode_t mode;
};

/* Has `path` changed since mark, or could it have? Does not open it. */
bool source_file_changed(const char *path, const struct source_mark *mark);
/* Reads the file. *mark is set on success and on failure alike. -1: REASON_CREDENTIAL_UNAVAILABLE
 * and what is wrong, without the path, as a client may see it. */
int source_file_read(const char *path, struct source_mark *mark, struct secret **ret,
		     struct err *e) ATTR_NODISCARD;

/* A reference to what credential_env_capture took. */
int source_env_read(const char *name, struct secret **ret, struct err *e) ATTR_NODISCARD;

#endif
