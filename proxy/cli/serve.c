/*
 * `stile serve`: the daemon. The order of its start is the order of serve_start below: nothing
 * listens before the configuration is whole, and no request is read before the privileges are gone.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "logging/log.h"
#include "proxy/cli/admin_server.h"
#include "proxy/cli/cli.h"
#include "proxy/cli/config_watch.h"
#include "proxy/cli/metrics.h"
#include "proxy/cli/notify.h"
#include "proxy/cli/privileges.h"
#include "proxy/keeper/keeper.h"
#include "proxy/net/listener.h"
#include "proxy/net/poll_again.h"
#include "proxy/session/engine.h"

#define TICK_MS	      500
#define DRAIN_LOOK_MS 20 /* has the last worker ended? */

struct serve {
	struct config *config;
	struct keeper *keeper;
	struct ca *ca; /* without its key */
	struct engine *engine;
	struct admin *admin;	 /* NULL: none */
	struct metrics *metrics; /* NULL: none */
	struct config_watch watch;
	int signals;
};

static int block_signals(struct err *e)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	/* Before any thread starts, so that all of them inherit it. */
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? err_sys(e, errno, "signalfd") : fd;
}

static void say_listening(const struct serve *s)
{
	for (size_t i = 0; i < s->config->listeners_n; i++) {
		const struct config_listener *l = &s->config->listeners[i];
		size_t rules = l->policy ? policy_rules_n(l->policy) : 0;
		struct strbuf b;

		strbuf_init(&b, 8192);
		listener_add_place(l, engine_port(s->engine, i), &b);
		strbuf_adds(&b, " (");
		if (l->kind != CONFIG_LISTEN_PROXY)
			strbuf_addf(&b, "%s, ", config_kind_word(l->kind));
		if (l->policy)
			strbuf_addf(&b, "policy %s, %zu rule%s)", l->policy_name, rules,
				    rules == 1 ? "" : "s");
		else
			strbuf_adds(&b, "a policy for each token)");
		log_info("listening on %s", strbuf_cstr(&b));
		strbuf_clear(&b);
	}
	if (s->metrics) {
		struct strbuf b;

		strbuf_init(&b, 128);
		listener_add_place(s->config->metrics, metrics_port(s->metrics), &b);
		log_info("metrics at http://%s/metrics", strbuf_cstr(&b));
		strbuf_clear(&b);
	}
}

/* Made by root, opened anew by somebody else at each reload; or asked on by who stile runs as. */
static int give_away(struct serve *s, struct err *e)
{
	unsigned uid = 0, gid = 0;

	if (!s->config->user)
		return 0;
	if (privileges_find(s->config->user, &uid, &gid, e) < 0)
		return -1;
	if (geteuid() == uid)
		return 0;
	return engine_give_log(s->engine, uid, gid, e) < 0 ? -1 : admin_give(s->admin, uid, gid, e);
}

/* Before this process has read a secret, or anything that somebody sent. */
static int start_keeper(struct serve *s, struct err *e)
{
	struct keeper_options o = {
		.config = s->config,
		.ca_dir = cli_ca_dir(s->config),
		.become = privileges_drop,
		.workers = engine_workers(s->config),
		.reloads = true,
	};

	return keeper_start(&o, &s->keeper, e);
}

static int serve_start(struct serve *s, struct err *e)
{
	struct engine_options o = {.config = s->config, .tell = true};

	privileges_guard_memory();
	if (privileges_check(s->config->user, e) < 0 || privileges_limit(e) < 0 ||
	    start_keeper(s, e) < 0)
		return -1;
	s->signals = block_signals(e);
	if (s->signals < 0 || keeper_await(s->keeper, &s->ca, e) < 0)
		return -1;
	o.ca = s->ca;
	o.keeper = s->keeper;
	if (engine_new(&o, &s->engine, e) < 0 || admin_open(s->config, &s->admin, e) < 0 ||
	    metrics_open(s->config, &s->metrics, e) < 0 || give_away(s, e) < 0 ||
	    privileges_drop(s->config->user, e) < 0 ||
	    keeper_confine(s->keeper, s->config, e) < 0 || engine_start(s->engine, e) < 0)
		return -1;
	say_listening(s);
	notify_send("READY=1");
	return 0;
}

/* As it was printed: that sorted them by their place. */
static void first_fault(const struct faults *f, struct strbuf *out)
{
	for (size_t i = 0; i < f->n; i++) {
		if (f->v[i].warning)
			continue;
		strbuf_adds(out, f->file);
		if (f->v[i].line > 0)
			strbuf_addf(out, ":%u:%u", f->v[i].line, f->v[i].col);
		strbuf_addf(out, ": %s", f->v[i].text);
		return;
	}
	strbuf_adds(out, "out of memory");
}

static void reject_broken(struct serve *s, struct faults *f)
{
	struct strbuf why;

	strbuf_init(&why, 2048);
	cli_print_faults(f);
	first_fault(f, &why);
	log_error("reload: %s is broken; the old policy stays", s->config->file);
	engine_reject(s->engine, strbuf_cstr(&why));
	strbuf_clear(&why);
}

/* The keeper reads the file, and both go by the very same bytes. 0, or -1 with the fault in f. */
static int read_again(struct serve *s, struct config **ret, struct faults *f)
{
	struct keeper_reading r = {0};
	struct config *c = NULL;
	struct err e = ERR_INIT;

	if (keeper_reload(s->keeper, &r, &e) < 0) {
		struct str why = str_from_c(e.text), file = str_from_c(s->config->file);

		/* Faults of the file say its name themselves. */
		if (str_starts(why, file) && str_starts(str_skip(why, file.n), STR(": ")))
			why = str_skip(why, file.n + 2);
		fault_add(f, 0, 0, "%.*s", STR_FMT(why));
		return -1;
	}
	if (config_load_text(s->config->file, str_from(r.text, r.n), &c, f) < 0)
		c = NULL;
	if (c && (!r.ok || strcmp(c->version_hash, r.version_hash) != 0)) {
		fault_add(f, 0, 0, "the keeper reads it otherwise than the proxy does");
		config_unref(c);
		c = NULL;
	}
	if (!c)
		keeper_abort(s->keeper);
	free(r.text);
	*ret = c;
	return c ? 0 : -1;
}

static void reload(struct serve *s)
{
	struct config *fresh = NULL;
	struct faults f;
	struct err e = ERR_INIT;

	notify_send("RELOADING=1");
	engine_reopen_log(s->engine);
	/* It is the keeper that opens the file. While that reads the configuration, which may take
	 * its time, every record, and so every request, would wait for it. */
	engine_await_log(s->engine);
	faults_init(&f, s->config->file);
	config_watch_note_file(&s->watch);
	if (read_again(s, &fresh, &f) < 0) {
		reject_broken(s, &f);
	} else {
		cli_print_faults(&f);
		config_watch_note(&s->watch, fresh);
		if (engine_reload(s->engine, fresh, &e) < 0) {
			log_error("reload: %s; the old policy stays", e.text);
			config_unref(fresh);
		} else {
			config_unref(s->config);
			s->config = fresh;
			log_info("reloaded %s", s->config->file);
		}
	}
	faults_clear(&f);
	notify_send("READY=1");
}

/* True: stop. */
static bool on_signal(struct serve *s)
{
	struct signalfd_siginfo si;

	while (read(s->signals, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		switch (si.ssi_signo) {
		case SIGHUP: reload(s); break;
		case SIGUSR1: engine_reopen_log(s->engine); break;
		default: return true;
		}
	}
	return false;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* 0: it was told to stop; 1: it cannot go on. */
static int serve_loop(struct serve *s)
{
	struct pollfd p[1 + ADMIN_FDS + METRICS_FDS] = {{.fd = s->signals, .events = POLLIN}};

	for (;;) {
		int wait_ms = TICK_MS;
		nfds_t admin_n = admin_poll(s->admin, p + 1, &wait_ms);
		nfds_t metrics_n = metrics_poll(s->metrics, p + 1 + admin_n, &wait_ms);
		int n = poll_calmly(p, 1 + admin_n + metrics_n, wait_ms);

		if (n > 0 && p[0].revents && on_signal(s))
			return 0;
		if (!engine_is_whole(s->engine))
			return 1;
		engine_look(s->engine);
		admin_turn(s->admin, p + 1, n > 0 ? admin_n : 0, s->engine);
		metrics_turn(s->metrics, p + 1 + admin_n, n > 0 ? metrics_n : 0, s->engine);
		if (config_watch_due(&s->watch, s->config, now_ms())) {
			log_info("%s has changed", s->config->file);
			reload(s);
		}
	}
}

/* Lets requests in flight end; a second signal ends them at once, with their records. */
static void serve_stop(struct serve *s)
{
	struct pollfd p = {.fd = s->signals, .events = POLLIN};
	uint64_t ms = s->config->limits.drain_ms;

	log_info("stopping: requests in flight have %llu ms", (unsigned long long)ms);
	notify_send("STOPPING=1");
	admin_free(s->admin); /* nobody is to be sent here any more */
	s->admin = NULL;
	metrics_free(s->metrics);
	s->metrics = NULL;
	engine_drain(s->engine, ms);
	while (!engine_is_drained(s->engine)) {
		struct signalfd_siginfo si;

		if (poll_calmly(&p, 1, DRAIN_LOOK_MS) <= 0)
			continue;
		while (read(s->signals, &si, sizeof(si)) == (ssize_t)sizeof(si))
			if (si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT)
				ms = 0;
		if (ms == 0)
			break;
	}
	engine_stop(s->engine, ms);
}

int cmd_serve(int argc, char **argv)
{
	static const struct option longs[] = {{0}};
	struct serve s = {.signals = -1};
	const char *file = NULL;
	struct err e = ERR_INIT;
	int opt, code = 0;

	while ((opt = cli_getopt(argc, argv, "+:c:", longs, NULL)) != -1) {
		if (opt != 'c')
			return cli_bad_flag("serve", opt, argv);
		file = optarg;
	}
	if (optind < argc)
		return cli_usage("serve", "what is `%s`? (a file goes behind -c)", argv[optind]);
	s.config = cli_load_config(file);
	if (!s.config)
		return EXIT_USAGE;
	config_watch_start(&s.watch, s.config);
	if (s.config->listeners_n == 0) {
		err_set(&e, "%s: nothing to listen on (add `listen: [{proxy: 127.0.0.1:3128}]`)",
			s.config->file);
		(void)cli_fail(&e);
		code = EXIT_USAGE;
	} else if (serve_start(&s, &e) < 0) {
		code = cli_fail(&e);
	} else if (serve_loop(&s) == 0) {
		serve_stop(&s);
	} else {
		/* Nothing could be done for a request in flight, so none is waited for. */
		log_error("stopping: without its keeper stile has neither certificates nor "
			  "credentials");
		notify_send("STOPPING=1");
		engine_stop(s.engine, 0);
		code = 1;
	}
	admin_free(s.admin);
	metrics_free(s.metrics);
	engine_free(s.engine);
	ca_unref(s.ca);
	keeper_stop(s.keeper);
	config_watch_clear(&s.watch);
	config_unref(s.config);
	if (s.signals >= 0)
		close(s.signals);
	return code;
}
