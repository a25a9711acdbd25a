/*
 * The worker: its birth, its thread, the waiting for log records, reload and drain as seen from its
 * own thread. See worker.h.
 */
#include "proxy/session/worker.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "logging/log.h"
#include "logging/thread.h"
#include "proxy/credentials/sigv4.h"
#include "proxy/session/audit.h"
#include "proxy/session/client.h"
#include "proxy/session/client_token.h"
#include "proxy/session/own_listener.h"
#include "proxy/session/stub_dns.h"
#include "proxy/session/tunnel.h"
#include "proxy/session/upstream.h"

/* ---- waiting for the log ---- */

static void unlink_waiter(struct worker *w, struct log_waiter *wa)
{
	if (wa->prev)
		wa->prev->next = wa->next;
	else
		w->waiters = wa->next;
	if (wa->next)
		wa->next->prev = wa->prev;
	else
		w->last_waiter = wa->prev;
	wa->next = wa->prev = NULL;
	wa->ticket = 0;
}

static void release_waiters(struct worker *w)
{
	uint64_t written = log_port_written(w->log);
	int64_t now = loop_now_us(w->loop);
	bool available = log_port_available(w->log);

	/* A waiter's fn may add or forget others: always start from the oldest. */
	while (w->waiters) {
		struct log_waiter *wa = w->waiters;
		bool done = wa->ticket <= written || log_port_await(w->log, wa->ticket);

		if (!done && available && now - wa->since_us < LIMIT_MS_LOG_WAIT * 1000LL)
			break;
		unlink_waiter(w, wa);
		wa->fn(wa->arg, done);
	}
	if (w->waiters)
		timer_arm(&w->log_timer,
			  LIMIT_MS_LOG_WAIT - (uint64_t)(now - w->waiters->since_us) / 1000);
	else
		timer_stop(&w->log_timer);
}

static void on_log_event(evutil_socket_t fd, short what, void *arg)
{
	struct worker *w = arg;

	(void)fd;
	(void)what;
	log_port_drain(w->log);
	release_waiters(w);
}

static void on_log_timer(void *arg)
{
	release_waiters(arg);
}

/* ---- the end of a turn ---- */

void worker_at_turn_end(struct worker *w, struct turn_task *t)
{
	if (t->queued)
		return;
	t->queued = true;
	TAILQ_INSERT_TAIL(&w->tasks, t, next);
}

void worker_turn_forget(struct worker *w, struct turn_task *t)
{
	if (!t->queued)
		return;
	t->queued = false;
	TAILQ_REMOVE(&w->tasks, t, next);
}

/* Ends: nothing is read from a socket here, so a task finds no more than what the turn brought. */
static void run_tasks(struct worker *w)
{
	struct turn_task *t;

	while ((t = TAILQ_FIRST(&w->tasks))) {
		worker_turn_forget(w, t);
		t->fn(t->arg);
	}
}

static void on_turn_end(void *arg)
{
	struct worker *w = arg;

	run_tasks(w);
	if (!log_port_write(w->log))
		return;
	release_waiters(w);
	run_tasks(w);
	/* What those had to say at once waits for its turn. */
	log_port_flush(w->log);
}

uint64_t worker_log(struct worker *w, const struct record *r, bool must)
{
	counts_note(&w->counts, r);
	return log_port_add(w->log, r, must);
}

bool worker_log_available(const struct worker *w)
{
	return log_port_available(w->log);
}

bool worker_log_wait(struct worker *w, struct log_waiter *wa, uint64_t ticket)
{
	if (log_port_await(w->log, ticket))
		return true;
	wa->ticket = ticket;
	wa->since_us = loop_now_us(w->loop);
	wa->next = NULL;
	wa->prev = w->last_waiter;
	if (w->last_waiter)
		w->last_waiter->next = wa;
	else
		w->waiters = wa;
	w->last_waiter = wa;
	/* A log that is down says nothing more until it works again: not to be waited for. */
	if (!log_port_available(w->log))
		timer_arm(&w->log_timer, 0);
	else if (!w->log_timer.armed)
		timer_arm(&w->log_timer, LIMIT_MS_LOG_WAIT);
	return false;
}

void worker_log_forget(struct worker *w, struct log_waiter *wa)
{
	if (wa->ticket)
		unlink_waiter(w, wa);
}

/* ---- listeners ---- */

static void on_accept(void *arg, int fd, const struct listener_peer *peer)
{
	client_accept(arg, fd, peer);
}

static void on_refused(void *arg, int fd, const struct listener_peer *peer, enum reason why)
{
	client_refuse(arg, fd, peer, why);
}

static int add_listeners(struct worker *w, const struct worker_options *o, struct err *e)
{
	w->listeners = calloc(o->sockets_n ? o->sockets_n : 1, sizeof(*w->listeners));
	if (!w->listeners)
		return err_set(e, "out of memory");
	for (size_t i = 0; i < o->sockets_n; i++) {
		struct worker_listener *wl = &w->listeners[i];
		const struct entrance *en = o->sockets[i].entrance;

		*wl = (struct worker_listener){.worker = w, .entrance = en, .fd = -1};
		if (en->kind == CONFIG_LISTEN_DNS
			    ? stub_dns_new(w, en, o->sockets[i].fd, &wl->dns, e) < 0
			    : listener_new(w->loop, o->sockets[i].fd, en->counts, on_accept,
					   on_refused, wl, &wl->listener, e) < 0)
			return -1;
		wl->is_elsewhere = !is_in_our_network(o->sockets[i].fd);
		w->listeners_n++;
	}
	for (size_t i = 0; i < o->sockets_n; i++)
		w->listeners[i].fd = o->sockets[i].fd;
	return 0;
}

static void stop_listening(struct worker *w)
{
	for (size_t i = 0; i < w->listeners_n; i++) {
		listener_free(w->listeners[i].listener);
		w->listeners[i].listener = NULL;
		stub_dns_free(w->listeners[i].dns);
		w->listeners[i].dns = NULL;
		if (w->listeners[i].fd >= 0)
			close(w->listeners[i].fd);
		w->listeners[i].fd = -1;
	}
}

/* ---- birth and thread ---- */

static void on_drain_timer(void *arg);
static void on_retired(void *arg);
static void sweep(void *arg);
static void look(void *arg);

static int make_parts(struct worker *w, const struct worker_options *o, struct err *e)
{
	if (loop_new(&w->loop, e) < 0)
		return -1;
	if (timer_init(&w->log_timer, w->loop, on_log_timer, w) < 0 ||
	    timer_init(&w->retire_timer, w->loop, on_retired, w) < 0 ||
	    timer_init(&w->token_timer, w->loop, sweep, w) < 0 ||
	    timer_init(&w->drain_timer, w->loop, on_drain_timer, w) < 0)
		return err_set(e, "out of memory");
	w->record_texts = audit_texts_new();
	if (!w->record_texts)
		return err_set(e, "out of memory");
	if (log_port_new(o->writer, &w->log, e) < 0 || own_addrs_new(&w->own_addrs, e) < 0 ||
	    pool_new(w->loop, LIMIT_POOL_IDLE, LIMIT_POOL_IDLE_PER_ORIGIN, LIMIT_MS_POOL_IDLE,
		     &w->pool, e) < 0 ||
	    share_new(w->loop, &w->share, e) < 0 ||
	    desk_new(w->loop, w->signer, o->leaves_fd, &w->desk, e) < 0 ||
	    resolver_new(w->loop, o->snapshot->config, &w->resolver, e) < 0)
		return -1;
	w->log_event = event_new(loop_base(w->loop), log_port_fd(w->log), EV_READ | EV_PERSIST,
				 on_log_event, w);
	if (!w->log_event || event_add(w->log_event, NULL) < 0)
		return err_set(e, "out of memory");
	loop_keep(w->loop, w->log_event);
	loop_on_turn_end(w->loop, on_turn_end, w);
	return add_listeners(w, o, e);
}

static void take_up(void *arg);
static void drain(void *arg);

int worker_new(const struct worker_options *o, struct worker **ret, struct err *e)
{
	struct worker *w = calloc(1, sizeof(*w));

	if (!w)
		return err_set(e, "out of memory");
	w->signer = o->signer;
	w->sandboxes = o->sandboxes;
	w->state = o->state;
	TAILQ_INIT(&w->askers);
	w->index = o->index;
	w->snapshot = snapshot_ref(o->snapshot);
	TAILQ_INIT(&w->tasks);
	w->take_up = (struct letter){.fn = take_up, .arg = w};
	w->drain = (struct letter){.fn = drain, .arg = w};
	w->sweep = (struct letter){.fn = sweep, .arg = w};
	w->look = (struct letter){.fn = look, .arg = w};
	if (make_parts(w, o, e) < 0) {
		worker_free(w);
		return -1;
	}
	*ret = w;
	return 0;
}

void worker_free(struct worker *w)
{
	if (!w)
		return;
	if (w->loop) {
		stop_listening(w);
		pool_free(w->pool);
		upstream_h2_end_all(w);
		share_free(w->share);
		desk_free(w->desk);
		resolver_free(w->resolver);
		resolver_free(w->retired);
		exchange_free_spares(w);
		timer_clear(&w->log_timer);
		timer_clear(&w->retire_timer);
		timer_clear(&w->token_timer);
		timer_clear(&w->drain_timer);
	}
	if (w->log_event) {
		loop_unkeep(w->loop, w->log_event);
		event_free(w->log_event);
	}
	log_port_free(w->log);
	audit_texts_free(w->record_texts);
	own_addrs_free(w->own_addrs);
	sigv4_free(w->sigv4);
	loop_free(w->loop);
	upstream_h1_free_spares(w);
	spare_texts_free(&w->spare_texts);
	snapshot_unref(w->snapshot);
	snapshot_unref(w->next);
	free(w->listeners);
	message_free_spares();
	free(w);
}

static void *run(void *arg)
{
	struct worker *w = arg;

	/* By the thread itself: for another one libc would write a file of /proc. */
	(void)pthread_setname_np(pthread_self(), "stile-worker");
	loop_run(w->loop);
	/* What the last turn wrote to the log goes out before the thread ends. */
	log_port_flush(w->log);
	message_free_spares();
	__atomic_store_n(&w->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

int worker_start(struct worker *w, struct err *e)
{
	return thread_start(&w->thread, run, w, "thread of a worker", e);
}

bool worker_has_ended(const struct worker *w)
{
	return __atomic_load_n(&w->ended, __ATOMIC_ACQUIRE);
}

void worker_join(struct worker *w)
{
	pthread_join(w->thread, NULL);
}

/* ---- reload ---- */

static void recheck_tunnels(struct worker *w)
{
	struct tunnel *t = w->tunnels;

	while (t) {
		struct tunnel *next = tunnel_next(t);

		tunnel_recheck(t, w->snapshot);
		t = next;
	}
}

static void recheck_relays(struct worker *w)
{
	struct exchange *x = w->relays;

	while (x) {
		struct exchange *next = exchange_next(x);

		exchange_recheck(x, w->snapshot);
		x = next;
	}
}

static bool same_words(char *const *a, size_t a_n, char *const *b, size_t b_n)
{
	if (a_n != b_n)
		return false;
	for (size_t i = 0; i < a_n; i++)
		if (strcmp(a[i], b[i]) != 0)
			return false;
	return true;
}

/* Would a resolver made from b answer as one made from a? */
static bool same_resolution(const struct config *a, const struct config *b)
{
	if (!same_words(a->dns_servers, a->dns_servers_n, b->dns_servers, b->dns_servers_n) ||
	    a->hosts_n != b->hosts_n)
		return false;
	for (size_t i = 0; i < a->hosts_n; i++) {
		const struct config_host *x = &a->hosts[i], *y = &b->hosts[i];

		if (!host_eq(&x->name, &y->name) || x->addrs_n != y->addrs_n)
			return false;
		for (size_t k = 0; k < x->addrs_n; k++)
			if (!ipaddr_eq(&x->addrs[k], &y->addrs[k]))
				return false;
	}
	return true;
}

static void on_retired(void *arg)
{
	struct worker *w = arg;

	resolver_free(w->retired);
	w->retired = NULL;
}

/* The old resolver stays until its questions have had their time: a request in flight ends under
 * what admitted it. */
static void change_resolver(struct worker *w, const struct config *c)
{
	struct resolver *fresh = NULL;
	struct err e = ERR_INIT;

	if (same_resolution(w->snapshot->config, c))
		return;
	if (resolver_new(w->loop, c, &fresh, &e) < 0) {
		log_error("worker %u keeps its old resolver: %s", w->index, e.text);
		return;
	}
	resolver_free(w->retired);
	w->retired = w->resolver;
	w->resolver = fresh;
	timer_arm(&w->retire_timer, w->snapshot->config->limits.dns_ms * 2);
}

static void take_up(void *arg)
{
	struct worker *w = arg;
	struct snapshot *s = __atomic_exchange_n(&w->next, NULL, __ATOMIC_ACQ_REL);

	if (!s)
		return; /* a letter that came late: the one before it took both up */
	change_resolver(w, s->config);
	snapshot_unref(w->snapshot);
	w->snapshot = s;
	audit_texts_forget(w->record_texts);
	/* Kept connections were judged under rules that may be gone. */
	pool_close_all(w->pool);
	upstream_h2_retire_all(w);
	recheck_tunnels(w);
	recheck_relays(w);
	__atomic_store_n(&w->taken_up, w->snapshot, __ATOMIC_RELEASE);
}

bool worker_has_taken_up(const struct worker *w, const struct snapshot *s)
{
	return __atomic_load_n(&w->taken_up, __ATOMIC_ACQUIRE) == s;
}

void worker_set_snapshot(struct worker *w, struct snapshot *s)
{
	/* One that was not taken up yet is passed over. */
	snapshot_unref(__atomic_exchange_n(&w->next, snapshot_ref(s), __ATOMIC_ACQ_REL));
	loop_post(w->loop, &w->take_up);
}

/* ---- tokens that end ---- */

/* A timer's and a letter's. */
static void sweep(void *arg)
{
	struct worker *w = arg;
	unsigned asked = __atomic_load_n(&w->sweep_asked, __ATOMIC_ACQUIRE);

	client_token_sweep(w);
	/* So that who asked may rely on it that their records are under way, too. */
	log_port_flush(w->log);
	__atomic_store_n(&w->sweep_done, asked, __ATOMIC_RELEASE);
}

static void look(void *arg)
{
	client_token_look(arg);
}

void worker_look_again(struct worker *w)
{
	loop_post(w->loop, &w->look);
}

unsigned worker_sweep_tokens(struct worker *w)
{
	unsigned asked = __atomic_add_fetch(&w->sweep_asked, 1, __ATOMIC_ACQ_REL);

	loop_post(w->loop, &w->sweep);
	return asked;
}

bool worker_has_swept(const struct worker *w, unsigned asked)
{
	return (int)(__atomic_load_n(&w->sweep_done, __ATOMIC_ACQUIRE) - asked) >= 0;
}

size_t worker_connections(const struct worker *w)
{
	return __atomic_load_n(&w->clients_n, __ATOMIC_RELAXED);
}

size_t worker_requests(const struct worker *w)
{
	return __atomic_load_n(&w->exchanges_n, __ATOMIC_RELAXED);
}

/* ---- drain ---- */

static void end_if_done(struct worker *w)
{
	if (w->draining && w->clients_n == 0)
		loop_stop(w->loop);
}

static void on_drain_timer(void *arg)
{
	struct worker *w = arg;
	struct client *c = w->clients;

	while (c) {
		struct client *next = c->next;

		client_close(c, REASON_SHUTTING_DOWN, "stile is shutting down");
		c = next;
	}
	end_if_done(w);
}

static void drain(void *arg)
{
	struct worker *w = arg;
	struct client *c = w->draining ? NULL : w->clients;
	uint64_t ms = __atomic_load_n(&w->drain_ms, __ATOMIC_ACQUIRE);
	int64_t end_us = loop_now_us(w->loop) + (int64_t)ms * 1000;

	if (!w->draining || end_us < w->drain_end_us) {
		w->drain_end_us = end_us;
		timer_arm(&w->drain_timer, ms);
	}
	w->draining = true;
	stop_listening(w);
	while (c) {
		struct client *next = c->next;

		client_drain(c);
		c = next;
	}
	end_if_done(w);
}

void worker_drain(struct worker *w, uint64_t drain_ms)
{
	__atomic_store_n(&w->drain_ms, drain_ms, __ATOMIC_RELEASE);
	loop_post(w->loop, &w->drain);
}

void worker_client_gone(struct worker *w)
{
	worker_count(&w->clients_n, -1);
	end_if_done(w);
}
