/*
 * What the keeper does with a message: bytes in, an effect and perhaps an answer out. No socket and
 * no process, so that a test and a fuzzer can be the hostile proxy. server.c is around it.
 */
#ifndef STILE_PROXY_KEEPER_CORE_H
#define STILE_PROXY_KEEPER_CORE_H

#include "certs/ca.h"
#include "policy/config.h"
#include "proxy/credentials/broker.h"
#include "proxy/keeper/wire.h"

struct keeper_core;
struct helpers;

struct core_options {
	/* borrowed; outlive the core */
	const char *policy_name; /* `run`: the only one in force; NULL: those of the listeners */
	const char *log_to;	 /* NULL: the configuration's */
	struct broker *broker;	 /* NULL: no source that takes time */
	struct helpers *helpers; /* NULL: no program is started */
	bool reloads;		 /* may the configuration be read again? */
	/* counted by the core */
	struct config *config;
	struct ca *ca;
	/* CLOCK_MONOTONIC in microseconds; NULL: the real one */
	int64_t (*now_us)(void);
};

/* Which of the three kinds of sockets a message came by. */
enum core_channel { CORE_MAIN, CORE_FILES, CORE_LEAVES };

/* An answer, to the socket that the message came by. */
struct core_reply {
	enum wire_kind kind; /* 0: none */
	uint32_t id;
	struct strbuf body;   /* at most LIMIT_KEEPER_MESSAGE */
	struct secret *value; /* follows body; the caller's to unref; NULL: none */
	int fd;		      /* the caller's to close; -1: none */
};

int core_new(const struct core_options *o, struct keeper_core **ret, struct err *e) ATTR_NODISCARD;
void core_free(struct keeper_core *k); /* its stores first; the broker is the caller's */

/* Reads the sources of the configuration at hand before anybody asks: as who the process is now. */
int core_open(struct keeper_core *k, struct err *e) ATTR_NODISCARD;
/* -1: what came is no message that a proxy sends, and e says so: the keeper ends. A refusal is an
 * answer (WIRE_FAILED). reply->body is initialised and empty. */
int core_handle(struct keeper_core *k, enum core_channel ch, const struct wire_head *h,
		const char *body, struct core_reply *reply, struct err *e) ATTR_NODISCARD;

/* What the proxy does not know yet: fn is called for each credential that has news, until it
 * returns -1 (the socket is full); the rest waits for the next call. */
struct slot_state;
int core_push(struct keeper_core *k,
	      int (*fn)(void *arg, uint32_t store, size_t i, const struct slot_state *s),
	      void *arg);
/* Reads files that have changed, every LIMIT_MS_SECRET_REREAD however often it is called. *last:
 * when it did; 0 at first. */
void core_tick(struct keeper_core *k, int64_t *last);

#endif
