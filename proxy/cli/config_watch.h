/*
 * `reload: watch`: has the configuration, or a PEM file of `upstream.trust`, changed since it was
 * taken? By stat(2), as the files of credentials are, and not by inotify: a name may be a symbolic
 * link to a link that is swapped (which is how Kubernetes replaces what it mounts), a file may lie
 * where changes made elsewhere are not told, and inotify's instances are counted over all processes
 * of a user. The main thread's.
 */
#ifndef STILE_PROXY_CLI_CONFIG_WATCH_H
#define STILE_PROXY_CLI_CONFIG_WATCH_H

#include "policy/config.h"

/* What tells two states of files apart. */
struct config_signs {
	uint64_t file, trust;
};

struct config_watch {
	struct config *config; /* counted; whose files are looked at */
	/* plain */
	struct config_signs taken, last;
	int64_t next_ms;
};

/* c is what has just been read; if the file is another by now, the first look finds that. */
void config_watch_start(struct config_watch *w, struct config *c);
/* Before the file is read again, and before what it names is. */
void config_watch_note_file(struct config_watch *w);
/* Its text was good so far; c is what it says. The files that it names are looked at from now on,
 * whether or not the reload goes well: what fails is not tried again before something changes. */
void config_watch_note(struct config_watch *w, struct config *c);
/* Changed, and the same at two looks LIMIT_MS_CONFIG_LOOK apart: what somebody still writes is not
 * read. now_ms: CLOCK_MONOTONIC. As often as one likes; false where the configuration in force
 * does not say `watch`. */
bool config_watch_due(struct config_watch *w, const struct config *in_force, int64_t now_ms);
void config_watch_clear(struct config_watch *w);

#endif
