/*
 * Patterns as small automata. fnmatch(3) decides within a segment. Knows no file.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/export/glob.h"

struct glob {
	/* owned */
	char *text;
	char *cut; /* text again, with its segments' ends */
	/* plain */
	const char *segments[GLOB_SEGMENTS_MAX]; /* into cut; NULL: any number of names */
	size_t n;
};

static int add_segment(struct glob *g, const char *s, struct err *e)
{
	if (*s == '\0')
		return err_set(e, "%s: an empty segment (a pattern is relative, like out/*.txt)",
			       g->text);
	if (strcmp(s, ".") == 0 || strcmp(s, "..") == 0)
		return err_set(e,
			       "%s: . and .. lead elsewhere (a pattern stays below the workspace)",
			       g->text);
	if (strcmp(s, "**") != 0 && strstr(s, "**"))
		return err_set(e, "%s: ** stands for whole segments (write **/*.txt)", g->text);
	if (g->n == GLOB_SEGMENTS_MAX)
		return err_set(e, "%s: more than %d segments", g->text, GLOB_SEGMENTS_MAX);
	g->segments[g->n++] = strcmp(s, "**") == 0 ? NULL : s;
	return 0;
}

int glob_new(const char *pattern, struct glob **ret, struct err *e)
{
	struct glob *g = calloc(1, sizeof(*g));
	char *s, *rest;
	int r = -1;

	if (!g || !(g->text = strdup(pattern)) || !(g->cut = strdup(pattern))) {
		err_set(e, "out of memory");
		goto out;
	}
	for (rest = g->cut; (s = strsep(&rest, "/"));)
		if (add_segment(g, s, e) != 0)
			goto out;
	*ret = g;
	g = NULL;
	r = 0;
out:
	glob_free(g);
	return r;
}

void glob_free(struct glob *g)
{
	if (!g)
		return;
	free(g->cut);
	free(g->text);
	free(g);
}

const char *glob_text(const struct glob *g)
{
	return g->text;
}

/* `**` may stand for nothing, so what follows it could be next as well. */
static glob_state closed(const struct glob *g, glob_state at)
{
	for (size_t i = 0; i < g->n; i++)
		if ((at >> i & 1) && !g->segments[i])
			at |= (glob_state)1 << (i + 1);
	return at;
}

glob_state glob_start(const struct glob *g)
{
	return closed(g, 1);
}

glob_state glob_next(const struct glob *g, glob_state at, const char *name, bool *ret_exact)
{
	glob_state next = 0;
	bool exact = false;

	for (size_t i = 0; i < g->n; i++) {
		const char *s = g->segments[i];

		if (!(at >> i & 1))
			continue;
		if (!s && name[0] != '.') {
			next |= (glob_state)1 << i;
		} else if (s && fnmatch(s, name, FNM_PERIOD | FNM_NOESCAPE) == 0) {
			next |= (glob_state)1 << (i + 1);
			exact |= !strpbrk(s, "*?[");
		}
	}
	if (ret_exact)
		*ret_exact = exact;
	return closed(g, next);
}

bool glob_matches(const struct glob *g, glob_state at)
{
	return at >> g->n & 1;
}

bool glob_goes_on(const struct glob *g, glob_state at)
{
	return at & (((glob_state)1 << g->n) - 1);
}
