/*
 * One worker thread and what it owns: a loop, a resolver, a pool, a port to the log, the current
 * snapshot, and all connections it accepted. A connection belongs to one worker for life, so
 * nothing in session/ takes a lock but sandboxes.c, for a look-up.
 */
#ifndef STILE_PROXY_SESSION_WORKER_H
#define STILE_PROXY_SESSION_WORKER_H

#include <pthread.h>
#include <sys/queue.h>

#include "logging/writer.h"
#include "proxy/keeper/desk.h"
#include "proxy/net/listener.h"
#include "proxy/net/loop.h"
#include "proxy/net/name_map.h"
#include "proxy/net/own_addrs.h"
#include "proxy/net/pool.h"
#include "proxy/net/resolve.h"
#include "proxy/session/counts.h"
#include "proxy/session/sandboxes.h"
#include "proxy/session/share.h"
#include "proxy/session/snapshot.h"
#include "proxy/session/spare_text.h"
#include "proxy/state/state.h"

#define ORIGIN_CHAINS 512 /* a power of two */

struct client;
struct exchange;
struct tunnel;
struct upstream_h1;
struct origin_h2;
struct sigv4;
struct stub_dns;
struct name_map;

/* A configured way in, of one socket or some; made by the engine, shared by the workers, unchanged
 * while they run. */
struct entrance {
	/* owned by the engine */
	char *name;
	char *policy_name; /* NULL: a token's alone */
	struct listener_counts *counts;
	/* counted: what the stub DNS gives, and transparent connections bring back; one map a
	 * policy. NULL for CONFIG_LISTEN_PROXY. */
	struct name_map *names;
	/* borrowed: for identity.c; NULL: named after the listener */
	const char *sandbox;
	/* plain */
	enum config_listener_kind kind;
	enum config_tokens tokens;
	bool explain;  /* where the configuration does not say it */
	bool names_v6; /* the stub DNS gives IPv6 addresses, too */
};

/* One socket of a worker's own, and what it belongs to. */
struct worker_socket {
	const struct entrance *entrance;
	int fd;
};

struct worker_listener {
	struct worker *worker;
	const struct entrance *entrance;
	/* owned: one of the first two */
	struct listener *listener;
	struct stub_dns *dns;
	int fd;
	bool is_elsewhere; /* in another network than ours */
};

/* Somebody who waits for a line to reach the kernel. Embedded in its owner. */
struct log_waiter {
	struct log_waiter *next, *prev;
	uint64_t ticket; /* 0: not waiting */
	int64_t since_us;
	/* From the loop. written: go on; else the log is not to be had. */
	void (*fn)(void *arg, bool written);
	void *arg;
};

/* What is done once at the end of a turn, however often it was asked for meanwhile: many streams
 * share a connection, and what they have to say leaves in one write. Embedded in its owner. */
struct turn_task {
	TAILQ_ENTRY(turn_task) next;
	bool queued;
	void (*fn)(void *arg); /* may ask for others, and for itself */
	void *arg;
};

/* Wrong tokens of one place, or of some that share this, within a second (client_token.c). */
struct token_guesses {
	int64_t since_us;
	unsigned n;
};

struct worker {
	/* owned */
	struct loop *loop;
	struct resolver *resolver;
	struct resolver *retired; /* of before the reload, while its questions end */
	struct pool *pool;
	struct share *share;
	struct desk *desk;
	struct own_addrs *own_addrs;
	struct log_port *log;
	struct audit_texts *record_texts;
	struct sigv4 *sigv4;	   /* NULL until a request is signed */
	struct snapshot *snapshot; /* counted */
	struct snapshot *next;	   /* counted; atomic: to be taken up */
	struct worker_listener *listeners;
	struct event *log_event;
	struct timer log_timer;
	struct timer drain_timer;
	struct timer retire_timer;
	struct timer token_timer; /* the next end of a token, or a look at all */
	struct client *clients;	  /* all, newest first */
	struct tunnel *tunnels;
	struct exchange *spares; /* memory and timers, of those that ended */
	struct upstream_h1 *h1_spares;
	struct spare_texts spare_texts;
	struct exchange *relays;   /* that have become WebSockets */
	struct origin_h2 *origins; /* HTTP/2 connections to origins, newest first */
	struct origin_h2 *origins_by[ORIGIN_CHAINS]; /* the same by their keys' hashes */
	struct log_waiter *waiters, *last_waiter;    /* oldest first */
	TAILQ_HEAD(client_askers, client) askers;    /* whose tokens are asked for (CLIENT_TOKEN) */
	TAILQ_HEAD(, turn_task) tasks;		     /* oldest first */
	/* borrowed from the engine */
	struct signer *signer;
	struct sandboxes *sandboxes; /* NULL: no entrance takes tokens */
	struct state *state;	     /* NULL: these are this process's own */
	/* plain */
	struct token_guesses guesses[64];
	struct counts counts; /* of its records; read by the main thread */
	size_t listeners_n;
	size_t clients_n;
	size_t spares_n;
	size_t h1_spares_n;
	size_t origins_n;
	size_t held_bytes; /* of bodies that are held to be signed */
	pthread_t thread;
	bool draining;
	bool ended;			 /* atomic */
	const struct snapshot *taken_up; /* atomic; only compared */
	struct letter take_up, drain, sweep, look;
	unsigned sweep_asked, sweep_done; /* atomic: counted by the main thread; how far it got */
	size_t exchanges_n;
	uint64_t drain_ms; /* atomic: what worker_drain asked for last */
	int64_t drain_end_us;
	int64_t token_due_us;	    /* when token_timer is armed */
	int64_t explained_since_us; /* the second in which so many were explained (connect.c) */
	unsigned explained_n;
	unsigned index;
};

struct worker_options {
	struct signer *signer;
	struct log_writer *writer;
	struct snapshot *snapshot;
	struct sandboxes *sandboxes;
	struct state *state;		     /* or NULL */
	const struct worker_socket *sockets; /* taken over on success */
	size_t sockets_n;
	int leaves_fd; /* see desk_new */
	unsigned index;
};

/* Borrows all but the snapshot, which is counted, and the sockets; nothing is accepted yet. */
int worker_new(const struct worker_options *o, struct worker **ret, struct err *e) ATTR_NODISCARD;
/* Its thread, which worker_join waits for. */
int worker_start(struct worker *w, struct err *e) ATTR_NODISCARD;
/* From the main thread: the worker takes s up (its own reference) and closes tunnels that s no
 * longer admits. */
void worker_set_snapshot(struct worker *w, struct snapshot *s);
bool worker_has_taken_up(const struct worker *w, const struct snapshot *s);
/* From any thread: what belongs to a token that has ended is closed; the result is what
 * worker_has_swept asks for, to know that it has been. */
unsigned worker_sweep_tokens(struct worker *w);
bool worker_has_swept(const struct worker *w, unsigned asked);
/* From any thread: what was asked of the shared state has an answer. */
void worker_look_again(struct worker *w);
/* From any thread: how many connections and requests are open now. */
size_t worker_connections(const struct worker *w);
size_t worker_requests(const struct worker *w);
/* From the main thread: no more connections; ends when all are gone or after drain_ms. Again: only
 * moves that moment nearer. */
void worker_drain(struct worker *w, uint64_t drain_ms);
bool worker_has_ended(const struct worker *w); /* from the main thread */
void worker_join(struct worker *w);
void worker_free(struct worker *w); /* after worker_join, or if it was never started */

/* On the worker's own thread: */

/* Hands a record over. The ticket, or 0: the log cannot take it. */
uint64_t worker_log(struct worker *w, const struct record *r, bool must);
bool worker_log_available(const struct worker *w);
/* True: the line is written already, go on. False: wa->fn will be called. */
bool worker_log_wait(struct worker *w, struct log_waiter *wa, uint64_t ticket);
void worker_log_forget(struct worker *w, struct log_waiter *wa);
/* Calls t->fn behind all events of this turn, before its records go to the log. */
void worker_at_turn_end(struct worker *w, struct turn_task *t);
void worker_turn_forget(struct worker *w, struct turn_task *t);
/* A client is gone; the last one ends a drain. */
void worker_client_gone(struct worker *w);
/* What another thread may read: only the worker's own writes it. */
static inline void worker_count(size_t *n, int by)
{
	__atomic_store_n(n, *n + (size_t)by, __ATOMIC_RELAXED);
}

#endif
