/*
 * Which names of a tree are wanted: patterns of segments, followed name by name while the tree is
 * walked, so that no folder is opened in which nothing could match.
 *
 * A pattern is relative; within a segment `*`, `?` and `[...]` are those of fnmatch(3); `**` alone
 * is any number of whole segments, none included. A name with a leading dot matches only where the
 * pattern spells the dot.
 */
#ifndef STILE_PROXY_EXPORT_GLOB_H
#define STILE_PROXY_EXPORT_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "logging/err.h"

#define GLOB_SEGMENTS_MAX 31

struct glob; /* one pattern, compiled */

/* How far a pattern has come on the way to one name: a bit for each segment that could be next, and
 * the bit behind the last for a match. */
typedef uint32_t glob_state;

int glob_new(const char *pattern, struct glob **ret, struct err *e) ATTR_NODISCARD;
void glob_free(struct glob *g); /* NULL is accepted */
const char *glob_text(const struct glob *g);

glob_state glob_start(const struct glob *g);
/* After one more name. *ret_exact, if not NULL: it was taken by a segment without wildcards. */
glob_state glob_next(const struct glob *g, glob_state at, const char *name, bool *ret_exact);
bool glob_matches(const struct glob *g, glob_state at);
/* Could something below match? */
bool glob_goes_on(const struct glob *g, glob_state at);

#endif
