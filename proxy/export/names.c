/*
 * The names of all that was found, beside each other.
 */
#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "proxy/export/name.h"

/* A path, or a folder on the way to one. */
struct place {
	/* owned */
	char *path, *folded;
};

struct places {
	struct place *v; /* owned */
	size_t n, room;
};

static int add_place(struct places *p, const char *path, size_t n, struct err *e)
{
	struct place one = {strndup(path, n), NULL};

	if (one.path)
		one.folded = name_fold(one.path);
	if (one.folded && p->n == p->room) {
		size_t room = p->room ? 2 * p->room : 64;
		struct place *grown = realloc(p->v, room * sizeof(*grown));

		if (grown) {
			p->v = grown;
			p->room = room;
		}
	}
	if (!one.folded || p->n == p->room) {
		free(one.path);
		free(one.folded);
		return err_set(e, "out of memory");
	}
	p->v[p->n++] = one;
	return 0;
}

/* How many bytes at the start of path are folders of `before` too, which stands in front of it in
 * the list. */
static size_t shared(const char *before, const char *path)
{
	size_t at = 0;

	for (size_t i = 0; before[i] && before[i] == path[i]; i++)
		if (path[i] == '/')
			at = i + 1;
	return at;
}

/* The part of path behind `from`, segment by segment. */
static int check_path(struct places *p, const char *path, size_t from, struct export_faults *f,
		      struct err *e)
{
	char name[LIMIT_EXPORT_PATH + 1];
	struct err why = ERR_INIT;

	while (path[from]) {
		size_t n = strcspn(path + from, "/");

		memcpy(name, path + from, n);
		name[n] = '\0';
		if (name_check(name, &why) != 0)
			export_fault(f, path, "%s", why.text);
		else if (add_place(p, path, from + n, e) != 0)
			return -1;
		from += n + (path[from + n] == '/');
	}
	return 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct place *)a)->folded, ((const struct place *)b)->folded);
}

static void find_clashes(struct places *p, struct export_faults *f)
{
	struct strbuf other;

	if (p->n)
		qsort(p->v, p->n, sizeof(*p->v), compare);
	for (size_t i = 0; i < p->n; i++) {
		if (strcmp(p->v[i].folded, "sha256sums") == 0)
			export_fault(f, p->v[i].path, "its name is kept for the manifest");
		if (i == 0 || strcmp(p->v[i - 1].folded, p->v[i].folded) != 0)
			continue;
		strbuf_init(&other, 4 * LIMIT_EXPORT_PATH);
		strbuf_add_printable(&other, str_from_c(p->v[i - 1].path));
		export_fault(f, p->v[i].path, "is the same as %s where case does not count",
			     strbuf_cstr(&other));
		strbuf_clear(&other);
	}
}

int names_check(const struct found *l, struct export_faults *f, struct err *e)
{
	struct places p = {0};
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->n; i++)
		r = check_path(&p, l->paths[i], i ? shared(l->paths[i - 1], l->paths[i]) : 0, f, e);
	if (r == 0)
		find_clashes(&p, f);
	for (size_t i = 0; i < p.n; i++) {
		free(p.v[i].path);
		free(p.v[i].folded);
	}
	free(p.v);
	return r;
}
