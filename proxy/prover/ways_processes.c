/*
 * Ways by other processes: those in sight that are not of this sandbox, and what any of them tells.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "logging/attrs.h"
#include "proxy/prover/way.h"

#define ENVIRON_MAX (1 << 20)

struct look {
	struct finding *f;
	struct stat root;
	char *text;
	size_t foreign;
};

static void path_of(char *out, size_t size, int pid, const char *what)
{
	snprintf(out, size, "/proc/%d/%s", pid, what);
}

/* Is it in other namespaces than we are, or does not tell? */
static bool is_foreign(int pid)
{
	static const char *const kinds[] = {"ns/mnt", "ns/net", "ns/user", "ns/pid", "ns/ipc"};

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		char path[64], own[64], ours[128] = "", theirs[128] = "";

		path_of(path, sizeof(path), pid, kinds[i]);
		snprintf(own, sizeof(own), "/proc/self/%s", kinds[i]);
		if (readlink(own, ours, sizeof(ours) - 1) < 0)
			continue;
		if (readlink(path, theirs, sizeof(theirs) - 1) < 0 || strcmp(ours, theirs) != 0)
			return true;
	}
	return false;
}

/* ---- another root ---- */

static void look_at_root(int pid, void *arg)
{
	static const char *const links[] = {"root", "cwd"};
	struct look *l = arg;

	for (size_t i = 0; i < ARRAY_LEN(links); i++) {
		char path[64];
		struct stat st;
		int fd;

		path_of(path, sizeof(path), pid, links[i]);
		fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			finding_set(l->f, WAY_SHUT, "%s: %s", path, strerror(errno));
		else if (i == 0 && fstat(fd, &st) == 0 &&
			 (st.st_dev != l->root.st_dev || st.st_ino != l->root.st_ino))
			finding_set(l->f, WAY_OPEN, "%s is another root", path);
		else if (i == 1 && is_foreign(pid))
			finding_set(l->f, WAY_OPEN, "%s leads out", path);
		if (fd >= 0)
			close(fd);
	}
}

static void try_root(const struct prover_options *o, struct finding *f)
{
	struct look l = {.f = f};

	(void)o;
	if (stat("/", &l.root) != 0)
		return;
	way_each_process(look_at_root, &l);
	finding_set(f, WAY_SHUT, "all processes in sight have our own");
}

/* ---- another process's memory ---- */

static void look_at_memory(int pid, void *arg)
{
	static const char *const files[] = {"mem", "environ", "maps", "fd/0"};
	struct look *l = arg;

	if (!is_foreign(pid))
		return;
	l->foreign++;
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		char path[64], byte;
		int fd;

		path_of(path, sizeof(path), pid, files[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd < 0)
			finding_set(l->f, WAY_SHUT, "%s: %s", path, strerror(errno));
		else if (i == 0 || i == 3 || read(fd, &byte, 1) == 1)
			finding_set(l->f, WAY_OPEN, "%s can be read", path);
		if (fd >= 0)
			close(fd);
	}
}

static void try_memory(const struct prover_options *o, struct finding *f)
{
	struct look l = {.f = f};

	(void)o;
	way_each_process(look_at_memory, &l);
	if (l.foreign == 0)
		finding_set(f, WAY_NONE, "no process in sight but the sandbox's own");
}

static void trace(int pid, void *arg)
{
	struct look *l = arg;

	if (!is_foreign(pid))
		return;
	l->foreign++;
	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0) {
		finding_set(l->f, WAY_SHUT, "process %d: %s", pid, strerror(errno));
		return;
	}
	finding_set(l->f, WAY_OPEN, "process %d can be traced", pid); /* it goes on when we end */
}

static void try_trace(const struct prover_options *o, struct finding *f)
{
	struct look l = {.f = f};

	(void)o;
	way_each_process(trace, &l);
	if (l.foreign == 0)
		finding_set(f, WAY_NONE, "no process in sight but the sandbox's own");
}

/* ---- what is in environments ---- */

/* Names as people give them to what they would not tell. */
static bool is_telling(const char *name, size_t n)
{
	static const char *const words[] = {"TOKEN",  "SECRET",	    "PASSWORD",
					    "PASSWD", "CREDENTIAL", "API_KEY",
					    "APIKEY", "ACCESS_KEY", "PRIVATE_KEY"};
	char upper[256];

	if (n >= sizeof(upper))
		n = sizeof(upper) - 1;
	for (size_t i = 0; i < n; i++)
		upper[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 32 : name[i]);
	upper[n] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (strstr(upper, words[i]))
			return true;
	return false;
}

static void look_at_environ(int pid, void *arg)
{
	struct look *l = arg;
	char path[64];
	long n;

	path_of(path, sizeof(path), pid, "environ");
	n = way_read(path, l->text, ENVIRON_MAX);
	for (const char *v = l->text, *end = v + (n > 0 ? n : 0); v < end; v += strlen(v) + 1) {
		size_t name = strcspn(v, "=");

		if (v[name] == '=' && v[name + 1] != '\0' && is_telling(v, name))
			finding_set(l->f, WAY_OPEN, "process %d has %.*s", pid, (int)name, v);
	}
}

static void try_environ(const struct prover_options *o, struct finding *f)
{
	struct look l = {.f = f, .text = malloc(ENVIRON_MAX)};

	(void)o;
	if (l.text)
		way_each_process(look_at_environ, &l);
	free(l.text);
	finding_set(f, WAY_SHUT, "no variable in sight is named like a secret");
}

const struct way ways_processes[] = {
	{"root", "the root folder of another process", try_root},
	{"memory", "memory and descriptors of other processes", try_memory},
	{"ptrace", "tracing another process", try_trace},
	{"environ", "secrets in environments", try_environ},
	{NULL, NULL, NULL},
};
