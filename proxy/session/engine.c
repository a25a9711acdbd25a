/*
 * The proxy as a whole; see engine.h. Everything here runs on the main thread; workers hear of it
 * through their mailboxes.
 */
#include "proxy/session/engine.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "logging/log.h"
#include "logging/writer.h"
#include "proxy/keeper/files.h"
#include "proxy/net/datagrams.h"
#include "proxy/net/name_map.h"
#include "proxy/session/shared.h"
#include "proxy/session/worker.h"

#define TAKE_UP_LOOKS 5000
#define PORT_TRIES    16 /* for one that is free for TCP and UDP */

struct engine {
	/* owned */
	struct signer *signer;
	struct log_writer *writer;
	struct log_port *log; /* the main thread's own */
	struct entrance *entrances;
	struct worker **workers;
	struct sandboxes *sandboxes;
	struct shared *shared; /* NULL: they are this process's own */
	struct worker_socket
		*sockets;	     /* workers_n rows of sockets_n, until the workers take them */
	uint16_t *ports;	     /* one an entrance, as the rest */
	struct listener_path *paths; /* of the Unix listeners */
	char *sandbox;
	char *log_to;
	/* counted */
	struct ca *ca;
	struct snapshot *snapshot;
	/* borrowed */
	struct keeper *keeper;
	/* plain */
	size_t entrances_n;
	size_t sockets_n;
	size_t workers_n;
	bool started;
	bool tell;
	bool draining;
	int64_t started_us;   /* CLOCK_BOOTTIME */
	struct counts counts; /* of the records that no worker writes */
};

/* ---- records of the process itself ---- */

/* The ticket of its last line. */
static uint64_t write_event(struct engine *g, enum record_event event, const char *error,
			    const char *detail)
{
	uint64_t ticket = 0;

	for (size_t i = 0; i < g->snapshot->config->policies_n; i++) {
		const struct policy *p = g->snapshot->config->policies[i];
		struct record r = {.event = event};
		struct strbuf rules;

		r.ms = (struct record_ms){RECORD_MS_NONE, RECORD_MS_NONE, RECORD_MS_NONE,
					  RECORD_MS_NONE, RECORD_MS_NONE};
		strbuf_init(&rules, 4096);
		if (event == RECORD_POLICY_LOAD) {
			strbuf_addf(&rules, "%zu rule%s", policy_rules_n(p),
				    policy_rules_n(p) == 1 ? "" : "s");
			r.error_detail = strbuf_str(&rules);
		}
		if (event == RECORD_POLICY_LOAD || event == RECORD_POLICY_REJECT) {
			r.policy = str_from_c(policy_name(p));
			r.policy_version = str_from_c(policy_version(p));
		}
		if (error)
			r.error = str_from_c(error);
		if (detail)
			r.error_detail = str_from_c(detail);
		r.sandbox = str_from_c(g->sandbox);
		counts_note(&g->counts, &r);
		ticket = log_port_add(g->log, &r, true);
		strbuf_clear(&rules);
		if (event != RECORD_POLICY_LOAD)
			break; /* one for the process, not one a policy */
	}
	log_port_flush(g->log);
	return ticket;
}

static bool wait_for_log(struct engine *g, uint64_t ticket);

/* Its ticket, or 0. client: empty when nobody asked for it. */
static uint64_t write_sandbox(struct engine *g, const struct sandbox *s, struct str client)
{
	enum reason why = sandbox_end(s);
	struct record r = {
		.event = why == REASON_NONE ? RECORD_SANDBOX_NEW : RECORD_SANDBOX_END,
		.id = str_from_c(sandbox_id(s)),
		.sandbox = str_from_c(sandbox_name(s)),
		.client = client,
		.listener = str_from_c(sandbox_listener(s)),
		.policy = str_from_c(sandbox_policy(s)),
		.reason = why,
	};
	time_t ends = (time_t)(sandbox_times(s).ends_us / 1000000);
	char text[64];
	struct tm tm;

	r.ms = (struct record_ms){RECORD_MS_NONE, RECORD_MS_NONE, RECORD_MS_NONE, RECORD_MS_NONE,
				  RECORD_MS_NONE};
	if (why == REASON_NONE && gmtime_r(&ends, &tm) &&
	    strftime(text, sizeof(text), "good until %Y-%m-%dT%H:%M:%SZ", &tm) > 0)
		r.error_detail = str_from_c(text);
	counts_note(&g->counts, &r);
	return log_port_add(g->log, &r, true);
}

int engine_record_sandbox(struct engine *g, const struct sandbox *s, unsigned uid, struct err *e)
{
	char client[32];
	uint64_t ticket;

	(void)snprintf(client, sizeof(client), "admin:uid=%u", uid);
	ticket = write_sandbox(g, s, str_from_c(client));
	log_port_flush(g->log);
	if (ticket && wait_for_log(g, ticket))
		return 0;
	return err_reason(e, REASON_LOG_UNAVAILABLE, "its record cannot be written to the log");
}

static void record_ended(void *arg, const struct sandbox *s)
{
	struct engine *g = arg;

	log_info("sandbox %s (%s): %s", sandbox_name(s), sandbox_id(s),
		 sandbox_end_text(sandbox_end(s)));
	(void)write_sandbox(g, s, STR_NONE);
}

int engine_add_sandbox(struct engine *g, const struct sandbox_options *o, char *token,
		       struct sandbox **ret, struct err *e)
{
	return g->shared ? shared_add(g->shared, o, token, ret, e)
			 : sandboxes_add(g->sandboxes, o, token, ret, e);
}

int engine_revoke_sandbox(struct engine *g, struct str id_or_name, struct sandbox **ret,
			  struct err *e)
{
	return g->shared ? shared_revoke(g->shared, id_or_name, ret, e)
			 : sandboxes_revoke(g->sandboxes, id_or_name, ret, e);
}

void engine_refresh_sandboxes(struct engine *g)
{
	if (g->shared)
		(void)!state_sync(shared_state(g->shared), NULL);
}

void engine_look(struct engine *g)
{
	sandboxes_each_ended(g->sandboxes, record_ended, g);
	log_port_flush(g->log);
}

static int64_t clock_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- birth ---- */

size_t engine_workers(const struct config *c)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	size_t n = c->limits.workers ? (size_t)c->limits.workers : (size_t)(cores > 0 ? cores : 1);

	return n > LIMIT_WORKERS ? LIMIT_WORKERS : n;
}

/* Of sockets that somebody else opened there is one entrance a kind. */
static const char *const ready_names[] = {
	[CONFIG_LISTEN_PROXY] = "run",
	[CONFIG_LISTEN_TRANSPARENT] = "run-transparent",
	[CONFIG_LISTEN_DNS] = "run-dns",
};

/* l: NULL for the i-th kind of sockets that somebody else opened. */
static int set_entrance(struct engine *g, size_t i, const struct config_listener *l,
			const struct engine_options *o)
{
	struct entrance *en = &g->entrances[i];
	const char *policy = l ? l->policy_name : o->policy_name;

	en->kind = l ? l->kind : (enum config_listener_kind)i;
	en->tokens = l ? l->tokens : CONFIG_TOKENS_NONE;
	en->name = strdup(l ? l->name : ready_names[i]);
	en->policy_name = policy ? strdup(policy) : NULL;
	en->sandbox = g->sandbox;
	en->explain = o->explain;
	en->names_v6 = l ? l->addr.family == 6 : o->names_v6;
	en->counts =
		en->kind == CONFIG_LISTEN_DNS
			? listener_counts_new(LIMIT_DNS_CONNECTIONS, LIMIT_DNS_CONNECTIONS_PER_ADDR)
			: listener_counts_new(o->config->limits.connections,
					      o->config->limits.connections_per_address);
	return en->name && !en->policy_name == !policy && en->counts ? 0 : -1;
}

/* Names are a policy's, whichever of its entrances gave or is dialled at their addresses. */
static int set_names(struct engine *g, size_t i, const struct engine_options *o, struct err *e)
{
	struct entrance *en = &g->entrances[i];

	if (en->kind == CONFIG_LISTEN_PROXY)
		return 0;
	if (o->names)
		en->names = name_map_ref(o->names);
	for (size_t k = 0; k < i && !en->names; k++) {
		const struct entrance *other = &g->entrances[k];

		if (other->names && strcmp(other->policy_name ? other->policy_name : "",
					   en->policy_name ? en->policy_name : "") == 0)
			en->names = name_map_ref(other->names);
	}
	return en->names ? 0 : name_map_new(&en->names, e);
}

/* The n-th worker's own of those that somebody else opened. */
static int share_ready(struct engine *g, const struct engine_options *o, size_t n, struct err *e)
{
	struct worker_socket *row = g->sockets + n * g->sockets_n;

	for (size_t i = 0; i < g->sockets_n; i++) {
		row[i].entrance = &g->entrances[o->sockets[i].kind];
		row[i].fd = n > 0 ? dup(g->sockets[i].fd) : o->sockets[i].fd;
		if (row[i].fd < 0)
			return err_sys(e, errno, "listening socket");
	}
	return 0;
}

static int wrap_place(const struct engine *g, const struct config_listener *c, struct err *e)
{
	return err_wrap(e, "%s:%u:%u", g->snapshot->config->file, c->at.line, c->at.col);
}

/* TCP gets one a worker (SO_REUSEPORT); a Unix path, or a socket from outside or in another
 * namespace, exists once and is shared by duplicates of it: the kernel wakes whoever is ready. */
static int open_listener(struct engine *g, const struct config_listener *c, size_t n, size_t i,
			 struct err *e)
{
	int *fd = &g->sockets[n * g->sockets_n + i].fd;
	struct config_listener at = *c;

	if (n > 0 && (c->unix_path || c->netns)) {
		*fd = dup(g->sockets[i].fd);
		return *fd < 0 ? err_sys(e, errno, "listening socket") : 0;
	}
	/* Port 0: the first worker's socket finds one, the others join it. */
	at.port = n > 0 ? g->ports[i] : c->port;
	if (n == 0 && g->workers_n > 1 && listener_check_free(c, e) < 0)
		return wrap_place(g, c, e);
	if (listener_open(&at, g->workers_n > 1, fd, &g->ports[i], e) < 0)
		return wrap_place(g, c, e);
	if (c->unix_path)
		listener_path_note(c->unix_path, &g->paths[i]);
	return 0;
}

static int open_datagrams(struct engine *g, const struct config_listener *c, size_t n,
			  uint16_t port, size_t udp, struct err *e)
{
	int *fd = &g->sockets[n * g->sockets_n + udp].fd;

	if (n == 0 || !c->netns)
		return datagrams_open(c, port, g->workers_n > 1, fd, e);
	*fd = dup(g->sockets[udp].fd);
	return *fd < 0 ? err_sys(e, errno, "listening socket") : 0;
}

/* Questions come over TCP and UDP at one port, whose number may still have to be found. */
static int open_dns(struct engine *g, const struct config_listener *c, size_t n, size_t i,
		    size_t udp, struct err *e)
{
	struct worker_socket *row = g->sockets + n * g->sockets_n;
	int tries = n == 0 && c->port == 0 ? PORT_TRIES : 1;

	while (tries-- > 0) {
		if (open_listener(g, c, n, i, e) < 0)
			return -1;
		if (open_datagrams(g, c, n, g->ports[i], udp, e) == 0)
			return 0;
		close(row[i].fd);
		row[i].fd = -1;
	}
	return wrap_place(g, c, e);
}

/* The n-th worker's sockets: one a listener, and those of UDP behind them. */
static int open_for_worker(struct engine *g, const struct engine_options *o, size_t n,
			   struct err *e)
{
	struct worker_socket *row = g->sockets + n * g->sockets_n;
	size_t udp = g->entrances_n;

	for (size_t i = 0; i < g->entrances_n; i++) {
		const struct config_listener *c = &o->config->listeners[i];

		row[i].entrance = &g->entrances[i];
		if (c->kind == CONFIG_LISTEN_DNS) {
			row[udp].entrance = &g->entrances[i];
			if (open_dns(g, c, n, i, udp++, e) < 0)
				return -1;
		} else if (open_listener(g, c, n, i, e) < 0) {
			return -1;
		}
	}
	return 0;
}

static size_t count_sockets(const struct config *c)
{
	size_t n = c->listeners_n;

	for (size_t i = 0; i < c->listeners_n; i++)
		n += c->listeners[i].kind == CONFIG_LISTEN_DNS;
	return n;
}

static int make_entrances(struct engine *g, const struct engine_options *o, struct err *e)
{
	const struct config *c = o->config;
	bool ready = o->sockets_n > 0;

	g->entrances_n = ready ? ARRAY_LEN(ready_names) : c->listeners_n;
	g->sockets_n = ready ? o->sockets_n : count_sockets(c);
	if (g->entrances_n == 0)
		return err_set(e, "no listener: add `listen:` to %s", c->file);
	g->entrances = calloc(g->entrances_n, sizeof(*g->entrances));
	g->ports = calloc(g->entrances_n, sizeof(*g->ports));
	g->paths = calloc(g->entrances_n, sizeof(*g->paths));
	g->sockets = calloc(g->workers_n * g->sockets_n, sizeof(*g->sockets));
	if (!g->entrances || !g->ports || !g->paths || !g->sockets)
		return err_set(e, "out of memory");
	for (size_t i = 0; i < g->workers_n * g->sockets_n; i++)
		g->sockets[i].fd = -1;
	for (size_t i = 0; i < g->entrances_n; i++)
		if (set_entrance(g, i, ready ? NULL : &c->listeners[i], o) < 0)
			return err_set(e, "out of memory");
	for (size_t i = 0; i < g->entrances_n; i++)
		if (set_names(g, i, o, e) < 0)
			return -1;
	return 0;
}

static int open_entrances(struct engine *g, const struct engine_options *o, struct err *e)
{
	if (make_entrances(g, o, e) < 0)
		return -1;
	for (size_t n = 0; n < g->workers_n; n++)
		if ((o->sockets_n > 0 ? share_ready : open_for_worker)(g, o, n, e) < 0)
			return -1;
	return 0;
}

static int make_workers(struct engine *g, struct err *e)
{
	g->workers = calloc(g->workers_n, sizeof(*g->workers));
	if (!g->workers)
		return err_set(e, "out of memory");
	for (size_t n = 0; n < g->workers_n; n++) {
		struct worker_socket *row = g->sockets + n * g->sockets_n;
		struct worker_options wo = {
			.signer = g->signer,
			.writer = g->writer,
			.snapshot = g->snapshot,
			.sandboxes = g->sandboxes,
			.state = g->shared ? shared_state(g->shared) : NULL,
			.sockets = row,
			.sockets_n = g->sockets_n,
			.leaves_fd = keeper_leaves_fd(g->keeper, n),
			.index = (unsigned)n,
		};

		if (worker_new(&wo, &g->workers[n], e) < 0)
			return -1;
		for (size_t i = 0; i < g->sockets_n; i++)
			row[i].fd = -1;
	}
	return 0;
}

static enum log_wait log_wait_of(const struct config *c)
{
	switch (c->log_wait) {
	case CONFIG_WAIT_WRITTEN: return LOG_WAIT_WRITTEN;
	case CONFIG_WAIT_SYNCED: return LOG_WAIT_SYNCED;
	case CONFIG_WAIT_NONE: return LOG_WAIT_NONE;
	}
	return LOG_WAIT_WRITTEN;
}

static const char *log_to_of(const struct engine *g, const struct config *c)
{
	if (g->log_to)
		return g->log_to;
	return c->log_to ? c->log_to : "stdout";
}

/* As many descriptors as the system lets us have: each connection needs two. */
static void raise_descriptors(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &r);
	}
}

/* Of a daemon: a run has no tokens. */
static int open_shared(struct engine *g, const struct engine_options *o, struct err *e)
{
	if (!o->config->state || o->sockets_n > 0)
		return 0;
	return shared_new(g->snapshot, g->sandboxes, &g->shared, e);
}

/* An admin may well name one file twice: each line would be added to it. */
static int check_log(const char *to, const struct config *c, struct err *e)
{
	struct stat st;
	const char *what;

	if (strcmp(to, "stdout") == 0 || str_starts(str_from_c(to), STR("syslog:")) ||
	    stat(to, &st) != 0)
		return 0;
	what = files_spoilt_by_log(c, &st);
	if (!what)
		return 0;
	return err_set(e,
		       "the log %s is %s under another name, and each line would be added to it "
		       "(name another file)",
		       to, what);
}

int engine_new(const struct engine_options *o, struct engine **ret, struct err *e)
{
	struct engine *g = calloc(1, sizeof(*g));

	if (!g)
		return err_set(e, "out of memory");
	raise_descriptors();
	g->tell = o->tell;
	g->ca = ca_ref(o->ca);
	g->keeper = o->keeper;
	g->sandbox = o->sandbox ? strdup(o->sandbox) : NULL;
	g->log_to = o->log_to ? strdup(o->log_to) : NULL;
	/* Without them the records would go elsewhere, or name nobody. */
	if ((o->sandbox && !g->sandbox) || (o->log_to && !g->log_to)) {
		engine_free(g);
		return err_set(e, "out of memory");
	}
	g->workers_n = engine_workers(o->config);
	if (sandboxes_new(&g->sandboxes, e) < 0 ||
	    snapshot_new(o->config, g->keeper, &g->snapshot, e) < 0 ||
	    (o->tell && placeholders_write(g->snapshot->placeholders, o->config, e) < 0) ||
	    signer_new_remote(g->ca, LIMIT_LEAF_CACHE, &g->signer, e) < 0 ||
	    keeper_give_key(g->keeper, g->signer, e) < 0 ||
	    check_log(log_to_of(g, o->config), o->config, e) < 0 ||
	    log_writer_open(log_to_of(g, o->config), log_wait_of(o->config), &g->writer, e) < 0 ||
	    log_port_new(g->writer, &g->log, e) < 0 || open_entrances(g, o, e) < 0 ||
	    open_shared(g, o, e) < 0 || make_workers(g, e) < 0) {
		engine_free(g);
		return -1;
	}
	*ret = g;
	return 0;
}

int engine_give_log(struct engine *g, unsigned uid, unsigned gid, struct err *e)
{
	return log_writer_give(g->writer, uid, gid, e);
}

/* The first lines stand in the log before the first connection is accepted; if the log cannot be
 * written the workers refuse by themselves, so this only waits a while. True: it is written. */
static bool wait_for_log(struct engine *g, uint64_t ticket)
{
	struct pollfd p = {.fd = log_port_fd(g->log), .events = POLLIN};

	while (!log_port_await(g->log, ticket)) {
		if (!log_port_available(g->log) || poll(&p, 1, LIMIT_MS_LOG_RETRY) <= 0)
			return false;
		log_port_drain(g->log);
	}
	return true;
}

/* Whoever is told to stop stops: a source that does not answer is not waited for. The signals are
 * blocked, and taken where they are looked for. */
static bool is_told_to_stop(void)
{
	sigset_t set;

	return sigpending(&set) == 0 &&
	       (sigismember(&set, SIGTERM) == 1 || sigismember(&set, SIGINT) == 1);
}

int engine_start(struct engine *g, struct err *e)
{
	if (log_writer_start(g->writer, e) < 0 || keeper_attend(g->keeper, e) < 0)
		return -1;
	credential_store_await(g->snapshot->credentials, is_told_to_stop);
	(void)write_event(g, RECORD_PROXY_START, NULL, keeper_weakness(g->keeper));
	(void)wait_for_log(g, write_event(g, RECORD_POLICY_LOAD, NULL, NULL));
	for (size_t n = 0; n < g->workers_n; n++)
		if (worker_start(g->workers[n], e) < 0) {
			/* Those that run are drained by the caller's engine_stop. */
			for (size_t k = n; k < g->workers_n; k++) {
				worker_free(g->workers[k]);
				g->workers[k] = NULL;
			}
			g->workers_n = n;
			g->started = n > 0;
			return -1;
		}
	g->started = true;
	g->started_us = clock_us();
	return g->shared ? shared_start(g->shared, g->workers, g->workers_n, e) : 0;
}

uint16_t engine_port(const struct engine *g, size_t i)
{
	return i < g->entrances_n ? g->ports[i] : 0;
}

/* ---- reload ---- */

static bool same_listener(const struct config_listener *a, const struct config_listener *b)
{
	if (!a->unix_path != !b->unix_path || strcmp(a->name, b->name) != 0 || a->kind != b->kind ||
	    a->tokens != b->tokens || !a->policy_name != !b->policy_name ||
	    (a->policy_name && strcmp(a->policy_name, b->policy_name) != 0))
		return false;
	if (a->unix_path)
		return strcmp(a->unix_path, b->unix_path) == 0;
	if (!a->netns != !b->netns || (a->netns && strcmp(a->netns, b->netns) != 0))
		return false;
	return ipaddr_eq(&a->addr, &b->addr) && a->port == b->port;
}

/* Its credential may change. */
static bool same_state(const struct config_state *a, const struct config_state *b)
{
	if (!a || !b)
		return a == b;
	return strcmp(a->text, b->text) == 0 && strcmp(a->prefix, b->prefix) == 0 &&
	       !a->credential == !b->credential && a->grace_ms == b->grace_ms;
}

static int check_reload(const struct config *old, const struct config *c, struct err *e)
{
	bool same = old->listeners_n == c->listeners_n;

	for (size_t i = 0; same && i < c->listeners_n; i++)
		same = same_listener(&old->listeners[i], &c->listeners[i]);
	if (!same)
		return err_set(e, "%s: `listen:` has changed (restart stile to change listeners)",
			       c->file);
	if (!old->admin_path != !c->admin_path ||
	    (old->admin_path && strcmp(old->admin_path, c->admin_path) != 0))
		return err_set(e, "%s: `admin` has changed (restart stile)", c->file);
	if (!same_state(old->state, c->state))
		return err_set(e, "%s: `state` has changed (restart stile)", c->file);
	if (!old->metrics != !c->metrics ||
	    (old->metrics && (!ipaddr_eq(&old->metrics->addr, &c->metrics->addr) ||
			      old->metrics->port != c->metrics->port)))
		return err_set(e, "%s: `metrics` has changed (restart stile)", c->file);
	if (old->limits.workers != c->limits.workers)
		return err_set(e, "%s: `limits: workers` has changed (restart stile)", c->file);
	return 0;
}

void engine_reject(struct engine *g, const char *why)
{
	(void)write_event(g, RECORD_POLICY_REJECT, NULL, why);
}

/* A log that stays where it is was opened anew before this (engine_reopen_log). Where that failed
 * the old file stays in use, and that is no reason to keep an old policy. */
static int change_log(struct engine *g, const struct config *c, struct err *e)
{
	const struct config *old = g->snapshot->config;

	if (log_wait_of(old) == log_wait_of(c) && strcmp(log_to_of(g, old), log_to_of(g, c)) == 0)
		return 0;
	return log_writer_retarget(g->writer, log_to_of(g, c), log_wait_of(c), e);
}

/* Until every worker judges by s, so that whoever reads of the reload may rely on it. A worker is
 * never busy for longer than one turn of its loop; the bound is for what cannot be. */
static void wait_for_workers(const struct engine *g, const struct snapshot *s)
{
	struct timespec pause = {.tv_nsec = 200000};

	for (size_t n = 0; n < g->workers_n; n++)
		for (int i = 0; i < TAKE_UP_LOOKS && !worker_has_taken_up(g->workers[n], s); i++)
			nanosleep(&pause, NULL);
}

void engine_enforce_tokens(struct engine *g)
{
	struct timespec pause = {.tv_nsec = 200000};
	unsigned asked[LIMIT_WORKERS];

	for (size_t n = 0; g->started && n < g->workers_n; n++)
		asked[n] = worker_sweep_tokens(g->workers[n]);
	for (size_t n = 0; g->started && n < g->workers_n; n++)
		for (int i = 0; i < TAKE_UP_LOOKS && !worker_has_swept(g->workers[n], asked[n]) &&
				!worker_has_ended(g->workers[n]);
		     i++)
			nanosleep(&pause, NULL);
}

/* Before any worker judges by it: what it admits, the keeper must admit. What only the old one does
 * gets no leaf from here on. */
static int commit(struct engine *g, const struct snapshot *fresh, struct err *e)
{
	credential_store_await(fresh->credentials, is_told_to_stop);
	return keeper_commit(g->keeper, e);
}

int engine_reload(struct engine *g, struct config *c, struct err *e)
{
	struct snapshot *fresh = NULL;
	struct err why = ERR_INIT;

	if (check_reload(g->snapshot->config, c, &why) < 0 ||
	    snapshot_new(c, g->keeper, &fresh, &why) < 0 ||
	    (g->tell && placeholders_write(fresh->placeholders, c, &why) < 0) ||
	    change_log(g, c, &why) < 0 || commit(g, fresh, &why) < 0) {
		keeper_abort(g->keeper);
		snapshot_unref(fresh);
		engine_reject(g, why.text);
		if (e)
			*e = why;
		return -1;
	}
	credential_store_carry(fresh->credentials, g->snapshot->credentials);
	snapshot_unref(g->snapshot);
	g->snapshot = fresh;
	if (g->shared)
		shared_set_snapshot(g->shared, fresh);
	for (size_t n = 0; n < g->workers_n; n++)
		worker_set_snapshot(g->workers[n], fresh);
	wait_for_workers(g, fresh);
	(void)write_event(g, RECORD_POLICY_LOAD, NULL, NULL);
	return 0;
}

void engine_reopen_log(struct engine *g)
{
	log_writer_reopen(g->writer);
}

void engine_await_log(struct engine *g)
{
	log_writer_await_reopen(g->writer);
}

bool engine_is_whole(const struct engine *g)
{
	return !keeper_is_gone(g->keeper);
}

/* ---- for who asks how it is ---- */

struct sandboxes *engine_sandboxes(struct engine *g)
{
	return g->sandboxes;
}

const struct snapshot *engine_snapshot(const struct engine *g)
{
	return g->snapshot;
}

void engine_measure(const struct engine *g, struct engine_measures *ret)
{
	*ret = (struct engine_measures){
		.up_us = g->started ? clock_us() - g->started_us : 0,
		.log_available = log_port_available(g->log),
		.log_to = log_to_of(g, g->snapshot->config),
		.draining = g->draining,
		.workers = g->workers_n,
		.tokens_served = sandboxes_are_current(g->sandboxes),
	};
	if (g->shared) {
		ret->state_at = g->snapshot->config->state->text;
		ret->state_up = state_is_up(shared_state(g->shared), ret->state_why,
					    sizeof(ret->state_why));
	}
	for (size_t n = 0; n < g->workers_n; n++) {
		ret->connections += worker_connections(g->workers[n]);
		ret->requests += worker_requests(g->workers[n]);
	}
}

void engine_count(const struct engine *g, struct counts *sum)
{
	counts_add(sum, &g->counts);
	for (size_t n = 0; n < g->workers_n; n++)
		counts_add(sum, &g->workers[n]->counts);
}

/* ---- the end ---- */

/* A reload changes no listener, so the paths are those of the start. */
static void remove_paths(struct engine *g)
{
	const struct config *c = g->snapshot ? g->snapshot->config : NULL;

	for (size_t i = 0; g->paths && c && i < g->entrances_n && i < c->listeners_n; i++)
		if (c->listeners[i].unix_path)
			listener_path_remove(c->listeners[i].unix_path, &g->paths[i]);
}

void engine_drain(struct engine *g, uint64_t drain_ms)
{
	remove_paths(g);
	g->draining = true;
	for (size_t n = 0; g->started && n < g->workers_n; n++)
		worker_drain(g->workers[n], drain_ms);
}

bool engine_is_drained(const struct engine *g)
{
	for (size_t n = 0; g->started && n < g->workers_n; n++)
		if (!worker_has_ended(g->workers[n]))
			return false;
	return true;
}

void engine_stop(struct engine *g, uint64_t drain_ms)
{
	if (!g || !g->started)
		return;
	engine_drain(g, drain_ms);
	for (size_t n = 0; n < g->workers_n; n++)
		worker_join(g->workers[n]);
	shared_stop(g->shared);
	g->started = false;
	(void)write_event(g, RECORD_PROXY_STOP, NULL, NULL);
}

void engine_free(struct engine *g)
{
	if (!g)
		return;
	engine_stop(g, 0);
	remove_paths(g);
	shared_stop(g->shared);
	for (size_t n = 0; g->workers && n < g->workers_n; n++)
		worker_free(g->workers[n]);
	for (size_t i = 0; g->sockets && i < g->workers_n * g->sockets_n; i++)
		if (g->sockets[i].fd >= 0)
			close(g->sockets[i].fd);
	log_port_free(g->log);
	log_writer_free(g->writer, LIMIT_MS_LOG_WAIT);
	for (size_t i = 0; g->entrances && i < g->entrances_n; i++) {
		free(g->entrances[i].name);
		free(g->entrances[i].policy_name);
		listener_counts_unref(g->entrances[i].counts);
		name_map_unref(g->entrances[i].names);
	}
	shared_free(g->shared);
	sandboxes_free(g->sandboxes);
	signer_free(g->signer);
	snapshot_unref(g->snapshot);
	ca_unref(g->ca);
	free(g->entrances);
	free(g->ports);
	free(g->paths);
	free(g->sockets);
	free(g->workers);
	free(g->sandbox);
	free(g->log_to);
	free(g);
}
