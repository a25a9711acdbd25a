/*
 * The flow of `stile run` **start reading here**: secrets out of the environment, the sandbox made
 * and proved empty, the engine started on the socket that was made inside, and only then the
 * command. Called by cli/run.c.
 */
#include "proxy/sandbox/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/keeper/keeper.h"
#include "proxy/sandbox/channel.h"
#include "proxy/sandbox/command.h"
#include "proxy/sandbox/doors.h"
#include "proxy/sandbox/env.h"
#include "proxy/sandbox/files.h"
#include "proxy/sandbox/handout.h"
#include "proxy/sandbox/init.h"
#include "proxy/sandbox/namespace.h"
#include "proxy/sandbox/summary.h"
#include "proxy/sandbox/supervise.h"

#define DRAIN_MS 500 /* who asked is gone: only what is on its way to the log and the origins */

struct run {
	/* owned */
	struct supervisor supervisor;
	struct env env;
	struct files_plan files;
	struct placeholders *placeholders;
	char **argv;
	int channel, inner; /* our end and pid 1's */
	struct name_map *names;
	struct engine_socket sockets[DOORS_SOCKETS_MAX]; /* until the engine takes them over */
	struct keeper *keeper;
	struct ca *ca; /* without its key */
	struct engine *engine;
	struct handout *handout;
	/* plain */
	pid_t init;
	size_t sockets_n;
	bool names_v6;
	struct doors doors;
	struct log_mark log;
	uint64_t refused;
	/* borrowed */
	const struct sandbox_options *o;
};

static void free_argv(char **argv)
{
	for (char **p = argv; p && *p; p++)
		free(*p);
	free(argv);
}

/* The command's arguments, apart from the memory that pid 1 wipes. */
static char **copy_argv(char *const *argv)
{
	size_t n = 0;
	char **copy;

	while (argv[n])
		n++;
	copy = calloc(n + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < n; i++) {
		copy[i] = strdup(argv[i]);
		if (!copy[i]) {
			free_argv(copy);
			return NULL;
		}
	}
	return copy;
}

/* All that can be known and refused before there is a second process. */
/* Whether the log goes to a file, which the command must not reach: whatever is not one of the
 * writer's other targets is a path, however it begins. */
static bool is_file(const char *log_to)
{
	return strcmp(log_to, "stdout") != 0 && strncmp(log_to, "syslog:", 7) != 0;
}

static int start_keeper(struct run *r, struct err *e)
{
	struct keeper_options o = {
		.config = r->o->config,
		.policy_name = r->o->policy_name,
		.log_to = r->o->log_to,
		.workers = engine_workers(r->o->config),
	};

	return keeper_start(&o, &r->keeper, e);
}

static int prepare(struct run *r, struct err *e)
{
	const struct sandbox_options *o = r->o;
	struct env_options env = {
		.outer = environ,
		.wanted = o->env_wanted,
		.wanted_n = o->env_wanted_n,
		.config = o->config,
		.proxy_port = SANDBOX_PROXY_PORT,
	};
	struct files_options files = {
		.config = o->config,
		.config_file = o->config_file,
		.log_dir = o->log_dir,
		.log_file = is_file(o->log_to) ? o->log_to : NULL,
		.workspace = o->workspace,
		.command = o->argv[0],
		.hide = o->hide,
		.hide_n = o->hide_n,
		.show = o->show,
		.show_n = o->show_n,
	};

	/* Before any secret is read: no core dump, and no other process of this user looks in. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		return err_sys(e, errno, "cannot protect the memory of stile");
	/* Before there is another process: what is copied into that holds no secret any more. */
	if (start_keeper(r, e) != 0 || supervisor_init(&r->supervisor, e) != 0 ||
	    placeholders_new(o->config, &r->placeholders, e) != 0)
		return -1;
	files.placeholders = r->placeholders;
	env.placeholders = r->placeholders;
	if (files_plan_make(&files, &r->files, e) != 0)
		return -1;
	if (name_map_new(&r->names, e) != 0)
		return -1;
	doors_plan(config_policy(o->config, o->policy_name), r->names, &r->doors);
	env.workspace = r->files.workspace;
	if (env_build(&env, &r->env, e) != 0)
		return -1;
	r->argv = copy_argv(o->argv);
	return r->argv ? 0 : err_set(e, "out of memory");
}

static int start_sandbox(struct run *r, struct err *e)
{
	struct init_options in = {
		.argv = r->argv,
		.envp = r->env.v,
		.files = &r->files,
		.doors = &r->doors,
		.args = r->o->args,
		.args_len = r->o->args_len,
		.mask = &r->supervisor.outer,
		.uid = geteuid(),
		.gid = getegid(),
		.proxy_port = SANDBOX_PROXY_PORT,
		.limits = r->o->limits,
		.pids_by = limits_pids_here(),
		.pids_needed = r->o->limits->pids && !r->o->cgroup,
	};
	int fds[2];

	if (channel_pair(fds, e) != 0)
		return -1;
	r->channel = fds[0];
	in.channel = fds[1];
	r->init = namespace_fork(e);
	if (r->init == 0) {
		close(fds[0]);
		keeper_leave(r->keeper);
		cgroup_leave(r->o->cgroup);
		init_main(&in);
	}
	close(fds[1]);
	if (r->init < 0)
		return -1;
	/* The command is started later, when it is told to. */
	return r->o->cgroup ? cgroup_enter(r->o->cgroup, r->init, e) : 0;
}

/* The message that is due, or why there is no sandbox. */
static int expect(struct run *r, enum channel_kind kind, struct channel_msg *m, int *ret_fd,
		  struct err *e)
{
	if (channel_recv(r->channel, m, ret_fd) != 0)
		return err_set(e, "the sandbox's first process ended unexpectedly");
	if (m->kind == CHANNEL_FAILED)
		return err_set(e, "%s", m->text);
	if (m->kind != kind)
		return err_set(e, "the sandbox's first process is confused");
	return 0;
}

static bool is_ipv6(int fd)
{
	int family = 0;
	socklen_t n = sizeof(family);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &n) == 0 && family == AF_INET6;
}

/* All sockets that were made inside. */
static int expect_sockets(struct run *r, struct err *e)
{
	struct channel_msg m;
	int fd;

	do {
		if (expect(r, CHANNEL_SOCKET, &m, &fd, e) != 0)
			return -1;
		if (fd < 0 || r->sockets_n == DOORS_SOCKETS_MAX || m.number > CONFIG_LISTEN_DNS) {
			if (fd >= 0)
				close(fd);
			return err_set(e, "the sandbox's first process is confused");
		}
		r->names_v6 = r->names_v6 || is_ipv6(fd);
		r->sockets[r->sockets_n++] =
			(struct engine_socket){(enum config_listener_kind)m.number, fd};
	} while (m.more > 0);
	return 0;
}

/* The engine and the inside get ready side by side: both wait for each other at two points alone.
 */
static int start_engine(struct run *r, struct err *e)
{
	struct engine_options eo = {
		.config = r->o->config,
		.sandbox = r->o->id,
		.log_to = r->o->log_to,
		.policy_name = r->o->policy_name,
		.explain = true,
	};
	struct channel_msg go = {.kind = CHANNEL_GO}, ready;
	int none = -1;

	if (keeper_await(r->keeper, &r->ca, e) != 0 || expect_sockets(r, e) != 0)
		return -1;
	eo.ca = r->ca;
	eo.keeper = r->keeper;
	eo.sockets = r->sockets;
	eo.sockets_n = r->sockets_n;
	eo.names = r->names;
	eo.names_v6 = r->names_v6;
	log_mark_set(&r->log, r->o->log_to);
	r->handout = handout_begin(r->ca);
	if (!r->handout)
		return err_set(e, "out of memory");
	r->sockets_n = 0; /* the engine's, also if it fails */
	/* The log's file must exist before the inside can cover it. */
	if (engine_new(&eo, &r->engine, e) != 0 || handout_send(r->handout, r->channel, e) != 0 ||
	    keeper_confine(r->keeper, r->o->config, e) != 0 || engine_start(r->engine, e) != 0 ||
	    expect(r, CHANNEL_READY, &ready, &none, e) != 0)
		return -1;
	if (none >= 0)
		close(none);
	handout_free(r->handout);
	r->handout = NULL;
	return channel_send(r->channel, &go, -1) == 0
		       ? 0
		       : err_set(e, "the sandbox's first process ended unexpectedly");
}

static void run_clear(struct run *r)
{
	if (r->init > 0) {
		kill(r->init, SIGKILL);
		waitpid(r->init, NULL, 0);
	}
	engine_stop(r->engine, DRAIN_MS);
	engine_free(r->engine);
	if (r->engine)
		r->refused = log_mark_refused(&r->log, r->o->id);
	handout_free(r->handout);
	ca_unref(r->ca);
	keeper_stop(r->keeper);
	if (r->channel >= 0)
		close(r->channel);
	for (size_t i = 0; i < r->sockets_n; i++)
		close(r->sockets[i].fd);
	name_map_unref(r->names);
	supervisor_clear(&r->supervisor);
	env_clear(&r->env);
	files_plan_clear(&r->files);
	placeholders_free(r->placeholders);
	free_argv(r->argv);
}

/* Which of them the command has come up against, as far as the kernel says it. */
static void tell_limits(const struct sandbox_options *o, int status)
{
	cgroup_tell(o->cgroup);
	if (o->limits->file_size && status == 128 + SIGXFSZ)
		log_error("the command was ended: it reached --file-size %s",
			  o->limits->file_size_text);
}

int sandbox_run(const struct sandbox_options *o, struct sandbox_outcome *ret, struct err *e)
{
	struct run r = {.o = o, .channel = -1};
	int rc = -1;

	r.supervisor = (struct supervisor){.signals = -1, .tty = -1};
	if (prepare(&r, e) != 0 || start_sandbox(&r, e) != 0)
		goto out;
	signal(SIGPIPE, SIG_IGN);
	if (strcmp(o->log_to, "stdout") != 0)
		command_let_go_of_terminal();
	if (start_engine(&r, e) != 0)
		goto out;
	ret->status = supervisor_wait(&r.supervisor, r.init, r.channel, r.engine, o->timeout_s);
	r.init = 0;
	rc = 0;
	tell_limits(o, ret->status);
out:
	run_clear(&r);
	if (rc == 0)
		ret->refused = r.refused;
	return rc;
}
