/*
 * Which folder of the control groups may get one of ours. A user's shell lies in a group that
 * systemd made for the terminal, with others in it, and a group with processes of its own can have
 * none below it that has limits; so the choice is the root's, that of a stile which is alone in its
 * group (a container, a scope that is delegated), or the place beside the own group, if leaving
 * that one gets the command nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proxy/sandbox/cgroup.h"

struct needs {
	const char *v[3]; /* the kernel's names of controllers */
	size_t n;
};

static struct needs needs_of(const struct sandbox_limits *l)
{
	struct needs w = {.n = 0};

	if (l->memory)
		w.v[w.n++] = "memory";
	if (l->millicpus)
		w.v[w.n++] = "cpu";
	w.v[w.n++] = "pids";
	return w;
}

/* The start of a file, as text. -1: it is not there. */
static int read_text(const char *dir, const char *name, char *out, size_t size)
{
	char path[CGROUP_PATH_MAX + 64];
	ssize_t n;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, out, size - 1);
	close(fd);
	if (n < 0)
		return -1;
	out[n] = '\0';
	return 0;
}

static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = text; (at = strstr(at, word)); at += n)
		if ((at == text || at[-1] == ' ') &&
		    (at[n] == '\0' || at[n] == ' ' || at[n] == '\n'))
			return true;
	return false;
}

/* The first controller that is needed and not named in that file; NULL: all are. */
static const char *lacks(const char *dir, const char *file, const struct needs *w)
{
	char text[512];

	if (read_text(dir, file, text, sizeof(text)) != 0)
		return w->v[0];
	for (size_t i = 0; i < w->n; i++)
		if (!has_word(text, w->v[i]))
			return w->v[i];
	return NULL;
}

static bool may_write(const char *dir, const char *name)
{
	char path[CGROUP_PATH_MAX + 64];

	return snprintf(path, sizeof(path), "%s%s", dir, name) < (int)sizeof(path) &&
	       access(path, W_OK) == 0;
}

static bool may_make_in(const char *dir)
{
	return may_write(dir, "") && may_write(dir, "/cgroup.procs") &&
	       may_write(dir, "/cgroup.subtree_control");
}

/* Of all groups, the machine's root alone has no type. */
static bool is_root_group(const char *dir)
{
	char text[64];

	return read_text(dir, "cgroup.type", text, sizeof(text)) != 0 &&
	       read_text(dir, "cgroup.procs", text, sizeof(text)) == 0;
}

static bool is_alone(const char *dir, pid_t pid)
{
	char text[64], own[32];

	snprintf(own, sizeof(own), "%d\n", pid);
	return read_text(dir, "cgroup.procs", text, sizeof(text)) == 0 && strcmp(text, own) == 0;
}

/* A limit that is not set, or not less than ours: `max`, or a number. */
static bool is_no_less(const char *dir, const char *file, uint64_t ours)
{
	char text[64];

	if (read_text(dir, file, text, sizeof(text)) != 0 || strncmp(text, "max", 3) == 0)
		return true;
	return ours > 0 && strtoull(text, NULL, 10) >= ours;
}

/* Out of the own group the command has all that it would have within, and no more. */
static bool loosens_nothing(const char *own, const struct sandbox_limits *l)
{
	return is_no_less(own, "memory.max", l->memory) &&
	       is_no_less(own, "memory.high", l->memory) &&
	       is_no_less(own, "memory.swap.max", l->memory ? 1 : 0) &&
	       is_no_less(own, "cpu.max", 0) && is_no_less(own, "pids.max", limits_pids_of(l) + 1);
}

/* Not a name that leads elsewhere: in another namespace's view the path begins with `/..`. */
static int own_folder(const char *mount, const char *own, char *out, size_t size)
{
	int n;

	if (own[0] != '/' || strncmp(own, "/..", 3) == 0)
		return -1;
	n = snprintf(out, size, "%s%s", mount, strcmp(own, "/") == 0 ? "" : own);
	return n > 0 && (size_t)n < size ? 0 : -1;
}

static int take(const char *parent, bool moves_self, struct cgroup_place *ret)
{
	snprintf(ret->parent, sizeof(ret->parent), "%s", parent);
	ret->moves_self = moves_self;
	return 0;
}

int cgroup_choose(const char *mount, const char *own, pid_t pid, const struct sandbox_limits *l,
		  struct cgroup_place *ret, struct err *e)
{
	const struct needs w = needs_of(l);
	char dir[CGROUP_PATH_MAX], *slash;
	const char *lacking;

	if (own_folder(mount, own, dir, sizeof(dir)) != 0)
		return err_set(e, "stile's own control group cannot be seen from here");
	lacking = lacks(mount, "cgroup.controllers", &w);
	if (lacking)
		return err_set(e, "%s has no controller `%s`", mount, lacking);
	lacking = lacks(dir, "cgroup.controllers", &w);
	if (is_root_group(dir))
		return may_make_in(dir) ? take(dir, false, ret)
					: err_set(e, "only root may make control groups here");
	if (!lacking && may_make_in(dir) && is_alone(dir, pid))
		return take(dir, true, ret);
	if (strcmp(own, "/") == 0)
		return err_set(e, "stile's own control group %s",
			       !may_make_in(dir) ? "may not be written to"
						 : "has other processes in it");
	if (lacking && w.n > 1)
		return err_set(e, "stile's own control group has no controller `%s`", lacking);
	if (!loosens_nothing(dir, l))
		return err_set(e, "stile's own control group has limits that the command would "
				  "leave");
	slash = strrchr(dir, '/');
	*slash = '\0';
	if (!may_make_in(dir))
		return err_set(e, "the control group above stile's own may not be written to");
	lacking = lacks(dir, "cgroup.subtree_control", &w);
	if (lacking)
		return err_set(e, "the control group above stile's own gives no `%s`", lacking);
	return take(dir, false, ret);
}
