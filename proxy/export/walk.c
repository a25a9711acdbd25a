/*
 * The walk. It is a recursion bounded by LIMIT_EXPORT_DEPTH, each level with the folder's
 * descriptor and how far each pattern has come.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "logging/limits.h"
#include "proxy/export/walk.h"

struct walk {
	/* borrowed */
	struct glob *const *patterns;
	struct found *found;
	struct export_faults *faults;
	struct err *e;
	/* plain */
	size_t patterns_n, files_max, seen;
	bool hit[LIMIT_EXPORT_PATTERNS];
	dev_t dev;
	char path[LIMIT_EXPORT_PATH + 1]; /* of the folder or entry at hand; "" is the root */
};

struct level {
	glob_state at[LIMIT_EXPORT_PATTERNS];
};

/* What the patterns say of one name. */
struct verdict {
	bool wanted;  /* one matches */
	bool goes_on; /* one may match something below */
	bool named;   /* one names just this: without wildcards in its last place */
	bool led;     /* one leads here by more than `**` */
};

static struct verdict judge(struct walk *w, const struct level *l, const char *name,
			    struct level *ret)
{
	struct verdict v = {0};

	for (size_t i = 0; i < w->patterns_n; i++) {
		bool exact;

		ret->at[i] = glob_next(w->patterns[i], l->at[i], name, &exact);
		v.goes_on |= glob_goes_on(w->patterns[i], ret->at[i]);
		v.led |= exact;
		if (glob_matches(w->patterns[i], ret->at[i])) {
			v.wanted = true;
			v.named |= exact && !glob_goes_on(w->patterns[i], ret->at[i]);
		}
	}
	return v;
}

static void note_hits(struct walk *w, const struct level *l)
{
	for (size_t i = 0; i < w->patterns_n; i++)
		w->hit[i] |= glob_matches(w->patterns[i], l->at[i]);
}

static const char *kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFLNK: return "a symbolic link";
	case S_IFIFO: return "a pipe";
	case S_IFSOCK: return "a socket";
	case S_IFBLK:
	case S_IFCHR: return "a device";
	default: return "no regular file";
	}
}

static int add_found(struct walk *w)
{
	struct found *l = w->found;
	char **grown;

	if (l->n == w->files_max) {
		export_fault(w->faults, w->path,
			     "more than %zu files (a narrower pattern, or --max-files)",
			     w->files_max);
		return 1;
	}
	if ((l->n & (l->n - 1)) == 0) { /* room for twice as many at each power of two */
		grown = realloc(l->paths, (l->n ? l->n * 2 : 1) * sizeof(*grown));
		if (!grown)
			return err_set(w->e, "out of memory");
		l->paths = grown;
	}
	l->paths[l->n] = strdup(w->path);
	if (!l->paths[l->n])
		return err_set(w->e, "out of memory");
	l->n++;
	return 0;
}

static int walk_folder(struct walk *w, int fd, const struct level *l, size_t depth);

static int enter(struct walk *w, int folder, const char *name, const struct level *l, size_t depth)
{
	int fd;

	if (depth == LIMIT_EXPORT_DEPTH) {
		export_fault(w->faults, w->path, "more than %d folders deep", LIMIT_EXPORT_DEPTH);
		return 0;
	}
	fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		export_fault(w->faults, w->path, "cannot be opened: %s", strerror(errno));
		return 0;
	}
	return walk_folder(w, fd, l, depth + 1);
}

/* 0, 1 to stop early with the fault noted, or -1. */
static int take_entry(struct walk *w, int folder, const char *name, const struct level *l,
		      size_t depth)
{
	struct level next;
	struct verdict v = judge(w, l, name, &next);
	struct stat st;

	if (!v.wanted && !v.goes_on)
		return 0;
	if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return 0; /* gone meanwhile: what is missed is told by the patterns without a match
			   */
	if (S_ISDIR(st.st_mode)) {
		if (v.named)
			export_fault(w->faults, w->path, "is a folder (write %s/** for all in it)",
				     w->path);
		else if (st.st_dev != w->dev && v.goes_on)
			export_fault(w->faults, w->path, "is another file system");
		else if (v.goes_on)
			return enter(w, folder, name, &next, depth);
		return 0;
	}
	if (!v.wanted) {
		if (S_ISLNK(st.st_mode) && v.led)
			export_fault(w->faults, w->path,
				     "is a symbolic link, and none is followed");
		return 0;
	}
	note_hits(w, &next);
	if (!S_ISREG(st.st_mode)) {
		export_fault(w->faults, w->path, "is %s", kind_of(st.st_mode));
		return 0;
	}
	/* Another name may be outside, and lead to what the sandbox itself could not read. */
	if (st.st_nlink != 1) {
		export_fault(w->faults, w->path, "has %ju names (hard links; make a copy of it)",
			     (uintmax_t)st.st_nlink);
		return 0;
	}
	return add_found(w);
}

/* Takes fd over. */
static int walk_folder(struct walk *w, int fd, const struct level *l, size_t depth)
{
	size_t base = strlen(w->path);
	DIR *d = fdopendir(fd);
	struct dirent *entry;
	int r = 0;

	if (!d) {
		err_sys(w->e, errno, "reading a folder");
		close(fd);
		return -1;
	}
	while (r == 0 && (entry = readdir(d))) {
		const char *name = entry->d_name;
		struct strbuf b;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			continue;
		strbuf_init_fixed(&b, w->path + base, sizeof(w->path) - base);
		strbuf_addf(&b, "%s%s", base ? "/" : "", name);
		if (++w->seen > LIMIT_EXPORT_SEEN) {
			export_fault(w->faults, w->path,
				     "more than %d names to look at (a narrower pattern)",
				     LIMIT_EXPORT_SEEN);
			r = 1;
		} else if (b.overflowed) {
			w->path[base] = '\0';
			export_fault(w->faults, w->path, "a path within is longer than %d bytes",
				     LIMIT_EXPORT_PATH);
		} else {
			r = take_entry(w, dirfd(d), name, l, depth);
		}
	}
	w->path[base] = '\0';
	closedir(d);
	return r;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int walk_tree(int root_fd, struct glob *const *patterns, size_t patterns_n, size_t files_max,
	      struct found *ret, struct export_faults *f, struct err *e)
{
	struct walk w = {.patterns = patterns,
			 .patterns_n = patterns_n,
			 .files_max = files_max,
			 .found = ret,
			 .faults = f,
			 .e = e};
	struct level start = {{0}};
	struct stat st;
	int fd, r;

	*ret = (struct found){0};
	if (fstat(root_fd, &st) != 0 ||
	    (fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		return err_sys(e, errno, "reading the workspace");
	w.dev = st.st_dev;
	for (size_t i = 0; i < patterns_n; i++)
		start.at[i] = glob_start(patterns[i]);
	r = walk_folder(&w, fd, &start, 0);
	if (r < 0)
		return -1;
	for (size_t i = 0; i < patterns_n; i++)
		if (r == 0 && !w.hit[i])
			export_fault(f, glob_text(patterns[i]), "nothing matches");
	if (ret->n)
		qsort(ret->paths, ret->n, sizeof(*ret->paths), compare);
	return 0;
}

void found_clear(struct found *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->paths[i]);
	free(l->paths);
	*l = (struct found){0};
}
