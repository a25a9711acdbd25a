/*
 * What of the file system the command must not see or change: credentials, the CA's folder, the
 * policy, the log, the sockets of other programs. Planned outside, carried out in the run's own
 * mount namespace, where boundary.c then closes what is left.
 */
#ifndef STILE_PROXY_SANDBOX_FILES_H
#define STILE_PROXY_SANDBOX_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "logging/err.h"
#include "policy/config.h"
#include "proxy/credentials/placeholder.h"

#define FILES_HOMES_MAX 2 /* $HOME, and the one of the list of users */

/* The stronger one comes later. */
enum files_how {
	FILES_PIN, /* a folder that cannot be renamed: something else could be put in its place */
	FILES_FREEZE, /* a file that can be read, not changed */
	FILES_HIDE,   /* an empty file or folder that cannot be opened lies over it */
};

struct files_item {
	char *path; /* owned; absolute, without symbolic links */
	enum files_how how;
};

/* A file of the sandbox's own (env.h, SANDBOX_PLACEHOLDERS). */
struct files_text {
	/* borrowed, from the configuration and the placeholders */
	const char *name;
	struct str text;
};

struct files_plan {
	/* owned */
	struct files_item *v;
	struct files_text *texts;
	char *workspace;	      /* absolute; where the command starts, and may write */
	char *homes[FILES_HOMES_MAX]; /* empty ones of our own lie over them */
	char **shown;		      /* what stays visible within those and /tmp, read-only */
	/* plain */
	size_t n, cap, texts_n, homes_n, shown_n;
	bool no_workspace; /* `workspace` is a place to start in, no more */
	bool home_is_open; /* the workspace is a home, or above one */
};

struct files_options {
	/* borrowed */
	const struct config *config;
	const struct placeholders *placeholders; /* NULL: none */
	const char *config_file;		 /* NULL: none was read */
	const char *log_dir;			 /* hidden as a whole; NULL: none */
	const char *log_file;			 /* NULL: none; need not exist yet */
	const char *workspace;			 /* NULL: none */
	const char *command;			 /* stays visible when it is a path */
	const char *const *hide, *const *show;	 /* as the user said */
	size_t hide_n, show_n;
};

/* Outside, before the sandbox is made. files_plan_clear in every case. */
int files_plan_make(const struct files_options *o, struct files_plan *ret,
		    struct err *e) ATTR_NODISCARD;
void files_plan_clear(struct files_plan *p);

/* Inside, as pid 1 with its capabilities: nothing that is mounted from here on is seen outside. An
 * own /proc, so that no process of outside shows. */
int files_enter(struct err *e) ATTR_NODISCARD;
/* The certificates: one file that holds, one behind the other, the CA's PEM, the bundle of PEM, and
 * the trust store. */
struct files_trust {
	/* borrowed */
	const char *ca_hash; /* OpenSSL's, of the subject's name */
	/* plain */
	int fd;
	size_t ca_len, bundle_len; /* the rest is the trust store */
};

/* Inside: an empty file or folder that cannot be opened lies over path, if it is there and a
 * folder, a file, a socket or a pipe. */
int files_cover(const char *path, struct err *e) ATTR_NODISCARD;
/* Inside: a file of our own that all can read, in /run, with the folders on the way to it. */
int files_write(const char *path, struct str text, struct err *e) ATTR_NODISCARD;
/* Inside: the stub DNS is the only name server, and no list of hosts of outside is read. */
int files_cover_resolver(struct err *e) ATTR_NODISCARD;
/* Inside: puts the certificates where env.h says, and carries the plan out. Leaves the process in
 * the workspace. */
int files_arrange(const struct files_plan *p, const struct files_trust *t,
		  struct err *e) ATTR_NODISCARD;

#endif
