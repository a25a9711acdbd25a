/*
 * The group of a run: made, filled, read, removed. Once it runs, stile itself opens no files any
 * more (keeper_confine), so what it needs of the group it has open, and the process that removes it
 * is made beforehand. That one sees stile's end by a pipe, however it ended.
 */
#include "proxy/sandbox/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <linux/magic.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "logging/limits.h"
#include "logging/log.h"

#define CPU_PERIOD_US 100000
#define PATH_BYTES    (CGROUP_PATH_MAX + 64)

static const char *const controllers[] = {"memory", "cpu", "pids"};

struct cgroup {
	/* owned */
	struct cgroup_place place;
	char dir[PATH_BYTES];  /* the sandbox's */
	char self[PATH_BYTES]; /* stile's own while it runs; empty: it was not moved */
	int procs, memory_events, pids_events;
	int remover_fd; /* closed: it is time */
	pid_t remover;
	/* plain */
	bool enabled[ARRAY_LEN(controllers)]; /* in the parent, by us */
	/* borrowed */
	const struct sandbox_limits *limits;
};

static int open_in(const char *dir, const char *name, int flags)
{
	char path[PATH_BYTES + 64];

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return open(path, flags | O_CLOEXEC);
}

/* Leaves errno. */
static int write_in(const char *dir, const char *name, const char *text)
{
	int fd = open_in(dir, name, O_WRONLY), rc = -1, sys_errno;

	if (fd < 0)
		return -1;
	if (write(fd, text, strlen(text)) == (ssize_t)strlen(text))
		rc = 0;
	sys_errno = errno;
	close(fd);
	errno = sys_errno;
	return rc;
}

static int write_number(const char *dir, const char *name, uint64_t n, struct err *e)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
	return write_in(dir, name, text) == 0 ? 0
					      : err_sys(e, errno, "cannot write %s/%s", dir, name);
}

/* ---- where ---- */

static int find_mount(const char **ret, struct err *e)
{
	static const char *const known[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
	struct statfs s;

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (statfs(known[i], &s) == 0 && s.f_type == CGROUP2_SUPER_MAGIC) {
			*ret = known[i];
			return 0;
		}
	return err_set(e, "this system has no control groups of version 2");
}

static int find_own(char *out, size_t size, struct err *e)
{
	char text[8192], *at;
	int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return err_sys(e, errno, "cannot read /proc/self/cgroup");
	text[n] = '\0';
	at = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
	if (!at)
		return err_set(e, "stile is in no control group of version 2");
	at = strchr(at, '/');
	if (!at || strcspn(at, "\n") >= size)
		return err_set(e, "stile's own control group has no name here");
	snprintf(out, size, "%.*s", (int)strcspn(at, "\n"), at);
	return 0;
}

static int choose(const struct sandbox_limits *l, struct cgroup_place *ret, struct err *e)
{
	const char *mount = NULL;
	char own[CGROUP_PATH_MAX / 2];

	return find_mount(&mount, e) == 0 && find_own(own, sizeof(own), e) == 0
		       ? cgroup_choose(mount, own, getpid(), l, ret, e)
		       : -1;
}

/* ---- making it ---- */

static int make_group(const char *parent, const char *kind, uint32_t number, char *out,
		      struct err *e)
{
	snprintf(out, PATH_BYTES, "%s/stile-%s-%08x", parent, kind, number);
	if (mkdir(out, 0755) == 0)
		return 0;
	err_sys(e, errno, "cannot make %s", out);
	out[0] = '\0'; /* what is not ours is not removed */
	return -1;
}

static int step_aside(struct cgroup *g, uint32_t number, struct err *e)
{
	if (!g->place.moves_self)
		return 0;
	return make_group(g->place.parent, "self", number, g->self, e) == 0
		       ? write_number(g->self, "cgroup.procs", (uint64_t)getpid(), e)
		       : -1;
}

static bool wants(const struct sandbox_limits *l, size_t controller)
{
	return controller == 0 ? l->memory > 0 : controller == 1 ? l->millicpus > 0 : true;
}

/* What is given to all groups below already stays so at the end. */
static int enable(struct cgroup *g, struct err *e)
{
	char now[512] = " ", word[32];
	int fd = open_in(g->place.parent, "cgroup.subtree_control", O_RDONLY);
	ssize_t n = fd >= 0 ? read(fd, now + 1, sizeof(now) - 2) : -1;

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return err_sys(e, errno, "cannot read %s/cgroup.subtree_control", g->place.parent);
	now[n > 0 && now[n] == '\n' ? n : n + 1] = ' ';
	for (size_t i = 0; i < ARRAY_LEN(controllers); i++) {
		snprintf(word, sizeof(word), " %s ", controllers[i]);
		if (!wants(g->limits, i) || strstr(now, word))
			continue;
		snprintf(word, sizeof(word), "+%s", controllers[i]);
		if (write_in(g->place.parent, "cgroup.subtree_control", word) != 0)
			return err_sys(e, errno, "cannot have `%s` for groups below %s",
				       controllers[i], g->place.parent);
		/* The root's stay: another run may rely on them by now. */
		g->enabled[i] = g->place.moves_self;
	}
	return 0;
}

static int set_limits(const struct cgroup *g, struct err *e)
{
	const struct sandbox_limits *l = g->limits;
	char text[64];

	if (l->memory && (write_number(g->dir, "memory.max", l->memory, e) != 0 ||
			  write_number(g->dir, "memory.oom.group", 1, e) != 0))
		return -1;
	/* Not there: the kernel counts no swap. */
	if (l->memory && write_in(g->dir, "memory.swap.max", "0") != 0 && errno != ENOENT)
		return err_sys(e, errno, "cannot write %s/memory.swap.max", g->dir);
	snprintf(text, sizeof(text), "%llu %d",
		 (unsigned long long)l->millicpus * CPU_PERIOD_US / 1000, CPU_PERIOD_US);
	if (l->millicpus && write_in(g->dir, "cpu.max", text) != 0)
		return err_sys(e, errno, "cannot write %s/cpu.max", g->dir);
	/* Pid 1 of the sandbox is stile's. */
	return write_number(g->dir, "pids.max", limits_pids_of(l) + 1, e);
}

static int open_files(struct cgroup *g, struct err *e)
{
	g->procs = open_in(g->dir, "cgroup.procs", O_WRONLY);
	g->pids_events = open_in(g->dir, "pids.events", O_RDONLY);
	g->memory_events = g->limits->memory ? open_in(g->dir, "memory.events", O_RDONLY) : -1;
	if (g->procs < 0 || g->pids_events < 0 || (g->limits->memory && g->memory_events < 0))
		return err_sys(e, errno, "cannot open the files of %s", g->dir);
	return 0;
}

/* ---- removing it ---- */

static void wait_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

static void remove_group(const char *dir)
{
	for (int ms = 0; rmdir(dir) != 0 && errno == EBUSY && ms < LIMIT_MS_RUN_CGROUP; ms += 10)
		wait_ms(10);
}

/* All that is in from goes to to. */
static void move_all(const char *from, const char *to)
{
	FILE *f;
	char line[32];
	int fd = open_in(from, "cgroup.procs", O_RDONLY);

	f = fd >= 0 ? fdopen(fd, "r") : NULL;
	if (!f)
		return;
	while (fgets(line, sizeof(line), f))
		(void)write_in(to, "cgroup.procs", line);
	(void)fclose(f);
}

static void remove_all(const struct cgroup *g)
{
	char word[32];

	if (g->dir[0]) {
		(void)write_in(g->dir, "cgroup.kill", "1"); /* since 5.14 */
		remove_group(g->dir);
	}
	/* A group that gives controllers to groups below has no processes of its own. */
	for (size_t i = 0; i < ARRAY_LEN(controllers); i++) {
		snprintf(word, sizeof(word), "-%s", controllers[i]);
		if (g->enabled[i])
			(void)write_in(g->place.parent, "cgroup.subtree_control", word);
	}
	if (g->self[0]) {
		move_all(g->self, g->place.parent);
		remove_group(g->self);
	}
}

/* A session of its own: what is sent to stile's process group is not for this one. */
ATTR_NORETURN static void remover_main(const struct cgroup *g, int fd)
{
	sigset_t all;
	char c;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)setsid();
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	(void)prctl(PR_SET_NAME, "stile-cgroup", 0, 0, 0);
	for (char **p = environ; *p; p++)
		explicit_bzero(*p, strlen(*p));
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	for (int i = 0; null >= 0 && i <= STDERR_FILENO; i++)
		dup2(null, i);
	if (dup2(fd, STDERR_FILENO + 1) < 0 || close_range(STDERR_FILENO + 2, ~0U, 0) != 0)
		_exit(1);
	while (read(STDERR_FILENO + 1, &c, 1) != 0)
		;
	remove_all(g);
	_exit(0);
}

static int start_remover(struct cgroup *g, struct err *e)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) != 0)
		return err_sys(e, errno, "no pipe");
	g->remover = fork();
	if (g->remover == 0) {
		close(fds[1]);
		remover_main(g, fds[0]);
	}
	close(fds[0]);
	if (g->remover < 0) {
		int sys_errno = errno;

		close(fds[1]);
		return err_sys(e, sys_errno, "no process");
	}
	g->remover_fd = fds[1];
	return 0;
}

/* ---- the whole ---- */

static const char *flag_of(const struct sandbox_limits *l)
{
	return l->memory ? "--memory" : l->millicpus ? "--cpus" : "--pids";
}

/* What asked for it, and what helps. */
static int explain(const struct sandbox_limits *l, struct err *e)
{
	const struct err why = *e;
	bool systemd = access("/run/systemd/system", F_OK) == 0;

	return err_set(e, "%s needs a control group: %s (%s%s%s)", flag_of(l), why.text,
		       systemd ? "say: systemd-run " : "",
		       !systemd		? "bound what stile runs in instead, as its container"
		       : geteuid() == 0 ? ""
					: "--user ",
		       systemd ? "--scope -qp Delegate=yes stile run ..." : "");
}

int cgroup_new(const struct sandbox_limits *l, struct cgroup **ret, struct err *e)
{
	struct cgroup *g = calloc(1, sizeof(*g));
	struct err why = ERR_INIT;
	uint32_t number;

	if (!g)
		return err_set(e, "out of memory");
	*g = (struct cgroup){.limits = l, .procs = -1, .memory_events = -1, .pids_events = -1};
	g->remover_fd = -1;
	if (choose(l, &g->place, &why) != 0) {
		free(g);
		explain(l, &why);
		return err_set(e, "%s", why.text);
	}
	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number)) {
		free(g);
		return err_set(e, "no random numbers");
	}
	if (step_aside(g, number, e) != 0 || enable(g, e) != 0 ||
	    make_group(g->place.parent, "run", number, g->dir, e) != 0 || set_limits(g, e) != 0 ||
	    open_files(g, e) != 0 || start_remover(g, e) != 0) {
		cgroup_free(g);
		return err_wrap(e, "%s", flag_of(l));
	}
	*ret = g;
	return 0;
}

int cgroup_enter(const struct cgroup *g, pid_t pid, struct err *e)
{
	char text[32];

	snprintf(text, sizeof(text), "%d", pid);
	return write(g->procs, text, strlen(text)) > 0
		       ? 0
		       : err_sys(e, errno, "cannot put the sandbox into %s", g->dir);
}

void cgroup_leave(struct cgroup *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < 4; i++) {
		int *fd = i == 0   ? &g->procs
			  : i == 1 ? &g->memory_events
			  : i == 2 ? &g->pids_events
				   : &g->remover_fd;

		if (*fd >= 0)
			close(*fd);
		*fd = -1;
	}
}

/* The number behind a word of such a file. */
static uint64_t count_of(int fd, const char *word)
{
	char text[512] = "\n", key[32];
	ssize_t n = fd >= 0 ? pread(fd, text + 1, sizeof(text) - 2, 0) : -1;
	const char *at;

	if (n <= 0)
		return 0;
	text[n + 1] = '\0';
	snprintf(key, sizeof(key), "\n%s ", word);
	at = strstr(text, key);
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

void cgroup_tell(const struct cgroup *g)
{
	uint64_t refused;

	if (!g)
		return;
	refused = count_of(g->pids_events, "max");
	if (count_of(g->memory_events, "oom_kill") > 0) {
		/* The second: it was chosen when a group around ours, or the machine, was full. */
		if (count_of(g->memory_events, "oom") > 0)
			log_error("the command was killed: it reached --memory %s (oom_kill)",
				  g->limits->memory_text);
		else
			log_error("the command was killed: no memory was left outside of its own "
				  "limit (oom_kill)");
	}
	if (refused > 0)
		log_error("the command reached %s%u processes and threads: %llu more were refused",
			  g->limits->pids ? "--pids " : "its limit of ", limits_pids_of(g->limits),
			  (unsigned long long)refused);
}

void cgroup_free(struct cgroup *g)
{
	if (!g)
		return;
	if (g->remover <= 0)
		remove_all(g);
	cgroup_leave(g); /* which the other one waits for */
	while (g->remover > 0 && waitpid(g->remover, NULL, 0) < 0 && errno == EINTR)
		;
	free(g);
}
