/*
 * The proxy as a whole: workers, listeners, the log writer, the current configuration. `serve` and
 * `run` both drive it, from the main thread, with this interface alone.
 */
#ifndef STILE_PROXY_SESSION_ENGINE_H
#define STILE_PROXY_SESSION_ENGINE_H

#include <stdbool.h>

#include "logging/err.h"
#include "policy/config.h"
#include "proxy/keeper/keeper.h"

struct engine;
struct name_map;

/* A socket that somebody else opened (made inside a namespace): listening, or of UDP. */
struct engine_socket {
	enum config_listener_kind kind;
	int fd;
};

struct engine_options {
	/* borrowed until engine_new returns */
	struct config *config; /* the engine takes its own reference */
	struct ca *ca;	       /* likewise; of keeper_await */
	struct keeper *keeper; /* outlives the engine; it was made for engine_workers(config) */
	const char *sandbox;   /* `sandbox` of every record; NULL: left to identity.c */
	const char *log_to;    /* NULL: config's, or stdout */
	/* Used instead of the configuration's listeners; none: open those. Their descriptors are
	 * taken over. */
	const struct engine_socket *sockets;
	size_t sockets_n;
	const char *policy_name; /* with sockets */
	struct name_map *names;	 /* with sockets; NULL: a new one. The engine takes a reference. */
	bool names_v6;		 /* with sockets: see struct entrance */
	bool explain;		 /* what `deny:` is when the configuration does not say */
	bool tell;		 /* write placeholders to their files, at a reload too */
};

/* How many workers a configuration asks for. */
size_t engine_workers(const struct config *c);
/* Opens the log, the trust store, the listeners; reads the credentials; starts nothing yet:
 * privileges may be dropped between this and engine_start. */
int engine_new(const struct engine_options *o, struct engine **ret, struct err *e) ATTR_NODISCARD;
/* Makes the log file the user's that the process is about to become. Before engine_start. */
int engine_give_log(struct engine *g, unsigned uid, unsigned gid, struct err *e) ATTR_NODISCARD;
/* Starts the log's thread and the workers, writes proxy.start and policy.load. */
int engine_start(struct engine *g, struct err *e) ATTR_NODISCARD;
/* The port that the i-th listener got; 0 for a Unix socket or beyond the last. */
uint16_t engine_port(const struct engine *g, size_t i);

/* c: what keeper_reload read; the keeper is told whether it is in force, either way. Atomic: on 0
 * every later request is judged by c, requests in flight end under the policy that
 * admitted them, tunnels that c no longer admits are closed; policy.load is written. On -1 nothing
 * has changed and policy.reject is written. Listeners cannot be changed by a reload: a difference
 * is a failure that says "restart". */
int engine_reload(struct engine *g, struct config *c, struct err *e) ATTR_NODISCARD;
/* Records a reload that already failed at reading the file; `why` is the first fault. */
void engine_reject(struct engine *g, const char *why);
void engine_reopen_log(struct engine *g);
/* Until that is done, within a bound. */
void engine_await_log(struct engine *g);
/* Whose token was revoked loses its connections: they are closed, and their
 * records with the log, when this returns.
 * A token that ends by itself is the workers' own business. */
void engine_enforce_tokens(struct engine *g);
struct sandboxes;
struct sandbox;
/* The record that user uid has made s, or ended it. -1: it cannot be written. */
int engine_record_sandbox(struct engine *g, const struct sandbox *s, unsigned uid,
			  struct err *e) ATTR_NODISCARD;
struct sandbox_options;
/* As sandboxes_add and sandboxes_revoke; with `state` at every stile that shares it. -1 of the
 * second with *ret: it has ended here at least. */
int engine_add_sandbox(struct engine *g, const struct sandbox_options *o, char *token,
		       struct sandbox **ret, struct err *e) ATTR_NODISCARD;
int engine_revoke_sandbox(struct engine *g, struct str id_or_name, struct sandbox **ret,
			  struct err *e) ATTR_NODISCARD;
/* Asks the shared state for what is new there, so far as it is in reach. */
void engine_refresh_sandboxes(struct engine *g);
/* Writes the records of tokens that have ended by themselves. Of the main thread, every 500 ms. */
void engine_look(struct engine *g);
struct sandboxes *engine_sandboxes(struct engine *g); /* borrowed */
/* What new requests are judged by; borrowed until the next reload. */
struct snapshot;
const struct snapshot *engine_snapshot(const struct engine *g);

struct counts;

struct engine_measures {
	/* borrowed */
	const char *log_to;
	/* plain */
	int64_t up_us;
	size_t workers, connections, requests; /* the last two: open now */
	bool log_available;
	const char *state_at; /* NULL: none is shared */
	bool state_up;	      /* in reach; without, what is known holds for a while: */
	bool tokens_served;
	char state_why[256];
	bool draining;
};
/* On the main thread. What *ret borrows stays until the next reload. */
void engine_measure(const struct engine *g, struct engine_measures *ret);
/* Adds what has been counted so far to *sum. */
void engine_count(const struct engine *g, struct counts *sum);

/* False: its keeper has ended, and so must it. To be asked on the main thread every 500 ms. */
bool engine_is_whole(const struct engine *g);
/* Begins the end and returns: no more connections, drain_ms for what is in flight. Called again, it
 * only shortens the time that is left. */
void engine_drain(struct engine *g, uint64_t drain_ms);
/* All workers have ended: engine_stop will not wait. */
bool engine_is_drained(const struct engine *g);
/* Stops accepting at once, lets what is in flight end for at most drain_ms, then closes the rest
 * (recorded), joins the workers, writes proxy.stop, closes the log. NULL is accepted. */
void engine_stop(struct engine *g, uint64_t drain_ms);
void engine_free(struct engine *g);

#endif
