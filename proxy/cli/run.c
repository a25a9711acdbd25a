/*
 * `stile run`: reads the command line and the configuration, decides where the log goes, and hands
 * over to proxy/sandbox/run.c. It makes no process and no socket itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "logging/strbuf.h"
#include "policy/config.h"
#include "proxy/cli/cli.h"
#include "proxy/cli/export.h"
#include "proxy/sandbox/env.h"
#include "proxy/sandbox/run.h"

#define PATH_BYTES 4096

struct words {
	const char **v; /* owned; the words are argv's */
	size_t n;
};

struct options {
	const char *config_file, *policy, *workspace, *log;
	const char *export_to;
	uint64_t timeout_s;
	struct sandbox_limits limits;
	struct words allow, env, exports, hide, show;
};

static int word_add(struct words *w, const char *word)
{
	const char **grown = realloc(w->v, (w->n + 1) * sizeof(*grown));

	if (!grown)
		return -1;
	w->v = grown;
	w->v[w->n++] = word;
	return 0;
}

/* What is hidden or shown has to be there: a name that is wrong would hide nothing. Nor would the
 * root: what the command cannot do without is put back in any case. */
static int path_add(struct words *w, const char *flag, const char *path, int *ret_status)
{
	struct stat root, there;

	if (stat(path, &there) < 0 || stat("/", &root) < 0)
		log_error("%s %s: %s", flag, path, strerror(errno));
	else if (there.st_dev == root.st_dev && there.st_ino == root.st_ino)
		log_error("%s %s: that is everything (name the folders that are meant)", flag,
			  path);
	else
		return word_add(w, path);
	*ret_status = EXIT_USAGE;
	return -1;
}

/* Seconds, or a number with s, m or h behind it. */
static int read_timeout(const char *text, uint64_t *ret, int *ret_status)
{
	struct str s = str_from_c(text);
	char unit = s.n ? s.p[s.n - 1] : '\0';
	uint64_t by = unit == 'h' ? 3600 : unit == 'm' ? 60 : 1, n;

	if (unit == 's' || unit == 'm' || unit == 'h')
		s.n--;
	if (str_to_u64(s, &n) == 0 && n > 0 && n <= LIMIT_RUN_TIMEOUT_S / by) {
		*ret = n * by;
		return 0;
	}
	*ret_status = cli_usage("run", "--timeout takes seconds, or a time like 30m or 2h");
	return -1;
}

static int limit_add(struct sandbox_limits *l, const char *flag, const char *text, int *ret_status)
{
	struct err e = ERR_INIT;

	if (limits_read(l, flag, text, &e) == 0)
		return 0;
	*ret_status = cli_usage("run", "%s", e.text);
	return -1;
}

enum {
	OPT_ALLOW = 256,
	OPT_POLICY,
	OPT_WORKSPACE,
	OPT_ENV,
	OPT_LOG,
	OPT_EXPORT,
	OPT_TO,
	OPT_HIDE,
	OPT_SHOW,
	OPT_TIMEOUT,
	OPT_MEMORY,
	OPT_CPUS,
	OPT_PIDS,
	OPT_FILE_SIZE
};
static const struct option known[] = {
	{"config", required_argument, NULL, 'c'},
	{"allow", required_argument, NULL, OPT_ALLOW},
	{"policy", required_argument, NULL, OPT_POLICY},
	{"workspace", required_argument, NULL, OPT_WORKSPACE},
	{"env", required_argument, NULL, OPT_ENV},
	{"log", required_argument, NULL, OPT_LOG},
	{"export", required_argument, NULL, OPT_EXPORT},
	{"to", required_argument, NULL, OPT_TO},
	{"hide", required_argument, NULL, OPT_HIDE},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"memory", required_argument, NULL, OPT_MEMORY},
	{"cpus", required_argument, NULL, OPT_CPUS},
	{"pids", required_argument, NULL, OPT_PIDS},
	{"file-size", required_argument, NULL, OPT_FILE_SIZE},
	{"show", required_argument, NULL, OPT_SHOW},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* What goes together. 0, or what to exit with. */
static int check_options(const struct options *o, bool has_command)
{
	if ((o->exports.n > 0) != (o->export_to != NULL))
		return cli_usage("run", "--export and --to go together");
	if (o->exports.n > 0 && o->workspace && strcmp(o->workspace, "none") == 0)
		return cli_usage("run", "--export needs a workspace");
	return has_command ? 0 : cli_usage("run", "which command?");
}

/* 0: optind is the command; otherwise *ret_status is what to exit with. */
static int read_options(int argc, char **argv, struct options *o, int *ret_status)
{
	char *help[] = {(char[]){"help"}, (char[]){"run"}, NULL};
	int c, rc = 0;

	*ret_status = 1;
	optind = 0; /* glibc: start anew, whatever was parsed before */
	while (rc == 0 && (c = cli_getopt(argc, argv, "+:c:h", known, NULL)) != -1) {
		switch (c) {
		case 'c': o->config_file = optarg; break;
		case OPT_ALLOW: rc = word_add(&o->allow, optarg); break;
		case OPT_POLICY: o->policy = optarg; break;
		case OPT_WORKSPACE: o->workspace = optarg; break;
		case OPT_ENV: rc = word_add(&o->env, optarg); break;
		case OPT_LOG: o->log = optarg; break;
		case OPT_EXPORT: rc = word_add(&o->exports, optarg); break;
		case OPT_TO: o->export_to = optarg; break;
		case OPT_TIMEOUT: rc = read_timeout(optarg, &o->timeout_s, ret_status); break;
		case OPT_HIDE: rc = path_add(&o->hide, "--hide", optarg, ret_status); break;
		case OPT_SHOW: rc = path_add(&o->show, "--show", optarg, ret_status); break;
		case OPT_MEMORY: rc = limit_add(&o->limits, "--memory", optarg, ret_status); break;
		case OPT_CPUS: rc = limit_add(&o->limits, "--cpus", optarg, ret_status); break;
		case OPT_PIDS: rc = limit_add(&o->limits, "--pids", optarg, ret_status); break;
		case OPT_FILE_SIZE:
			rc = limit_add(&o->limits, "--file-size", optarg, ret_status);
			break;
		case 'h': *ret_status = cmd_help(2, help); return -1;
		default: *ret_status = cli_bad_flag("run", c, argv); return -1;
		}
	}
	if (rc != 0) {
		if (*ret_status != EXIT_USAGE)
			log_error("out of memory");
		return -1;
	}
	*ret_status = check_options(o, optind < argc);
	return *ret_status == 0 ? 0 : -1;
}

/* The file if there is one, the --allow rules on top. NULL: told on stderr. */
static struct config *read_config(const struct options *o)
{
	struct config *c = NULL, *with = NULL;
	struct faults f;
	int rc = 0;

	faults_init(&f, o->config_file ? o->config_file : "--allow");
	if (o->config_file)
		rc = config_load_file(o->config_file, &c, &f);
	if (rc == 0 && (!c || o->allow.n > 0)) {
		/* The file is read once more, with all its warnings. */
		faults_clear(&f);
		faults_init(&f, o->config_file ? o->config_file : "--allow");
		rc = config_with_allows(c, c ? o->policy : NULL, o->allow.v, o->allow.n, &with, &f);
		config_unref(c);
		c = rc == 0 ? with : NULL;
	}
	cli_print_faults(&f);
	faults_clear(&f);
	if (rc != 0)
		return NULL;
	if (!o->config_file && o->allow.n == 0)
		log_info("no configuration and no --allow: everything is refused");
	return c;
}

static const char *choose_policy(const struct config *c, const char *wanted)
{
	struct strbuf names;

	if (wanted && config_policy(c, wanted))
		return wanted;
	if (!wanted && c->policies_n == 1)
		return policy_name(c->policies[0]);
	if (!wanted && config_policy(c, "default"))
		return "default";
	strbuf_init(&names, 65536);
	cli_add_policies(c, &names);
	if (wanted)
		log_error("--policy %s: the configuration has no such policy (it has: %s)", wanted,
			  strbuf_cstr(&names));
	else
		log_error(
			"the configuration has %zu policies and none is \"default\" (say --policy "
			"NAME: %s)",
			c->policies_n, strbuf_cstr(&names));
	strbuf_clear(&names);
	return NULL;
}

static int make_dirs(char *path)
{
	for (char *s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
		int rc;

		*s = '\0';
		rc = mkdir(path, 0700);
		*s = '/';
		if (rc != 0 && errno != EEXIST)
			return -1;
	}
	return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -1;
}

/* The folder of the logs of runs without a `log:`. Made only when one goes there. -1: there is no
 * place for it. */
static int state_dir(char *out, size_t size, bool make)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	struct strbuf b;

	strbuf_init_fixed(&b, out, size);
	if (state && state[0] == '/')
		strbuf_addf(&b, "%s/stile", state);
	else if (home && home[0] == '/')
		strbuf_addf(&b, "%s/.local/state/stile", home);
	if (b.overflowed || b.len == 0)
		return -1;
	return make ? make_dirs(out) : 0;
}

/* A slip of the hand: records behind the lines of a policy, or of a secret, would spoil it. */
static int check_no_other_file(const char *path)
{
	struct stat st;
	char first = '{';
	int fd;

	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return 0;
	if (read(fd, &first, 1) == 1 && first != '{')
		log_error(
			"--log %s: that file is no log, and would be written to (name another one)",
			path);
	close(fd);
	return first == '{' ? 0 : -1;
}

/* stdout is the command's: a configuration that writes its log there, as one for `serve` may, gets
 * a file here. */
static int choose_log(const struct options *o, struct sandbox_options *so, char *dir, char *file)
{
	const char *to = o->log ? o->log : so->config->log_to;
	bool own = !to || (!o->log && strcmp(to, "stdout") == 0);
	struct strbuf b;

	if (state_dir(dir, PATH_BYTES, own) == 0)
		so->log_dir = dir;
	strbuf_init_fixed(&b, file, PATH_BYTES);
	if (!own) {
		/* A file is told from the other targets by its first character, to be hidden. */
		if (to[0] && to[0] != '/' && strcmp(to, "stdout") != 0 &&
		    strncmp(to, "syslog:", 7) != 0)
			strbuf_addf(&b, "./%s", to);
		so->log_to = b.len > 0 ? file : to;
		return b.overflowed || (o->log && check_no_other_file(so->log_to) != 0) ? -1 : 0;
	}
	strbuf_addf(&b, "%s/%s.jsonl", dir, so->id);
	if (!so->log_dir || b.overflowed) {
		log_error("no folder for the log of this run: %s%s%s (say --log FILE)",
			  dir[0] ? dir : "HOME is not set", dir[0] ? ": " : "",
			  dir[0] ? strerror(errno) : "");
		return -1;
	}
	so->log_to = file;
	return 0;
}

static int make_id(char *out, size_t size)
{
	uint32_t n;

	if (getrandom(&n, sizeof(n), 0) != (ssize_t)sizeof(n)) {
		log_error("no random numbers");
		return -1;
	}
	snprintf(out, size, "run-%08x", n);
	return 0;
}

/* A process of its own, made before this one gives up the right to open files: it waits, and copies
 * when it is told to. */
struct exporter {
	pid_t pid; /* 0: there is nothing to export */
	int fd;	   /* a byte is the word to go, the end the word to leave it */
};

static int export_when_told(const struct options *o, int fd)
{
	const struct export_options x = {.from = o->workspace ? o->workspace : ".",
					 .to = o->export_to,
					 .patterns = o->exports.v,
					 .patterns_n = o->exports.n};
	char go;

	if (read(fd, &go, 1) != 1)
		return 0;
	return cli_export(&x, stderr) == 0 ? 0 : SANDBOX_STATUS_NO_SANDBOX;
}

static int exporter_start(struct exporter *x, const struct options *o)
{
	int fds[2];

	*x = (struct exporter){.fd = -1};
	if (o->exports.n == 0)
		return 0;
	if (pipe2(fds, O_CLOEXEC) != 0) {
		log_error("no pipe: %s", strerror(errno));
		return -1;
	}
	x->pid = fork();
	if (x->pid == 0) {
		close(fds[1]);
		_exit(export_when_told(o, fds[0]));
	}
	close(fds[0]);
	x->fd = fds[1];
	if (x->pid < 0) {
		log_error("no process: %s", strerror(errno));
		close(x->fd);
		return -1;
	}
	return 0;
}

/* The command has ended with status, and all of its processes are gone, so nothing changes the
 * workspace any more. */
static int exporter_end(struct exporter *x, int status)
{
	int got = 0;

	if (x->pid <= 0)
		return status;
	if (status == 0 && write(x->fd, "", 1) != 1) {
		log_error("nothing was exported: its process has ended");
		status = SANDBOX_STATUS_NO_SANDBOX;
	}
	close(x->fd);
	while (waitpid(x->pid, &got, 0) < 0)
		if (errno != EINTR)
			return SANDBOX_STATUS_NO_SANDBOX;
	if (status != 0)
		return status;
	return WIFEXITED(got) ? WEXITSTATUS(got) : SANDBOX_STATUS_NO_SANDBOX;
}

/* so is this function's own copy: what it points to ends with the function. */
static int run_with(const struct options *o, struct sandbox_options given)
{
	struct sandbox_options *so = &given;
	struct sandbox_outcome outcome;
	char id[32], dir[PATH_BYTES], file[PATH_BYTES];
	struct err e = ERR_INIT;

	if (env_check(o->env.v, o->env.n, so->config, &e) != 0) {
		log_error("%s", e.text);
		return EXIT_USAGE;
	}
	so->policy_name = choose_policy(so->config, o->policy);
	if (!so->policy_name)
		return EXIT_USAGE;
	so->id = id;
	if (make_id(id, sizeof(id)) != 0 || choose_log(o, so, dir, file) != 0)
		return SANDBOX_STATUS_NO_SANDBOX;
	if (sandbox_run(so, &outcome, &e) != 0) {
		log_error("no sandbox: %s", e.text);
		return SANDBOX_STATUS_NO_SANDBOX;
	}
	if (outcome.refused > 0)
		log_info("%llu request%s refused: `stile log --decision deny %s`",
			 (unsigned long long)outcome.refused,
			 outcome.refused == 1 ? " was" : "s were", so->log_to);
	return outcome.status;
}

/* With a control group where what was asked for needs one; never unasked. */
static int run_limited(const struct options *o, struct sandbox_options so)
{
	const struct sandbox_limits *l = &o->limits;
	bool needs = l->memory || l->millicpus || (l->pids && !limits_pids_suffice(l));
	struct exporter exporter;
	struct err e = ERR_INIT;
	int status = SANDBOX_STATUS_NO_SANDBOX;

	so.limits = l;
	if (needs && cgroup_new(l, &so.cgroup, &e) != 0) {
		log_error("no sandbox: %s", e.text);
		return status;
	}
	if (exporter_start(&exporter, o) == 0)
		status = exporter_end(&exporter, run_with(o, so));
	cgroup_free(so.cgroup);
	return status;
}

int cmd_run(int argc, char **argv)
{
	struct options o = {0};
	struct sandbox_options so = {0};
	int status;

	if (read_options(argc, argv, &o, &status) != 0)
		goto out;
	status = EXIT_USAGE;
	o.config_file = cli_find_config(o.config_file);
	so.config = read_config(&o);
	if (!so.config)
		goto out;
	so.config_file = o.config_file;
	so.workspace = !o.workspace ? "." : strcmp(o.workspace, "none") == 0 ? NULL : o.workspace;
	so.timeout_s = o.timeout_s;
	so.hide = o.hide.v;
	so.hide_n = o.hide.n;
	so.show = o.show.v;
	so.show_n = o.show.n;
	so.env_wanted = o.env.v;
	so.env_wanted_n = o.env.n;
	so.argv = argv + optind;
	so.args = argv[0];
	so.args_len = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]);
	status = run_limited(&o, so);
	config_unref(so.config);
out:
	free(o.allow.v);
	free(o.env.v);
	free(o.exports.v);
	free(o.hide.v);
	free(o.show.v);
	return status;
}
