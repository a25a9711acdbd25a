/*
 * What state.c and sync.c share.
 */
#ifndef STILE_PROXY_STATE_INTERNAL_H
#define STILE_PROXY_STATE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "logging/limits.h"
#include "proxy/state/link.h"
#include "proxy/state/state.h"

#define EPOCH_LEN 32

enum state_phase {
	PHASE_DOWN,    /* waits to try again */
	PHASE_LINK,    /* connects */
	PHASE_LOAD,    /* reads all of it */
	PHASE_CURRENT, /* asks what has changed */
};

enum state_order_kind { STATE_ADD, STATE_END };

struct state_order {
	enum state_order_kind kind;
	struct state_record r;
	struct err e;
	int rc;
	bool sent; /* it may have been done, whatever is heard */
	bool done, abandoned;
};

struct state {
	/* owned */
	struct loop *loop;
	struct resolver *resolver;
	struct link *link;
	struct resp *resp;
	struct timer retry, poll, lease;
	/* counted */
	struct config *config;
	/* borrowed from it */
	const struct config_state *to;
	/* plain: the thread's own */
	struct state_ops ops;
	enum state_phase phase;
	bool busy;   /* a question is under way */
	bool reload; /* all of it, whatever the version says */
	bool lost;   /* the operator has been told */
	bool complained;
	unsigned failures;
	unsigned seeds; /* tries to give it an epoch */
	char epoch[EPOCH_LEN + 1];
	uint64_t counter; /* `version` when the last question was asked */
	uint64_t asked_counter;
	uint64_t floor;	 /* changes up to this one may have been forgotten */
	uint64_t cursor; /* changes up to this one are in the mirror */
	uint64_t page_last;
	size_t page_n, loaded;
	unsigned char page[LIMIT_STATE_PAGE][STATE_DIGEST_BYTES];
	int64_t sync_at_us;
	int64_t primary_at_us; /* it was no replica then; 0: not asked on this connection */
	uint64_t covers; /* the tickets that the question under way, or the last one, answers */
	bool pays;
	struct state_record paying; /* its end is being told of */
	/* for all threads */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool has_lock, started;
	struct letter letter;
	atomic_bool stopping;
	_Atomic uint64_t asked, known, unknown; /* tickets */
	/* under the lock */
	struct state_order *order;     /* of the main thread, until it is taken */
	struct state_order *under_way; /* owned */
	struct state_record owed[LIMIT_STATE_OWED];
	size_t owed_n;
	struct ipaddr addrs[LIMIT_STATE_ADDRESSES];
	size_t addrs_n;
	char trouble[256]; /* empty: in reach */
};

int64_t state_boot_us(void);
/* The connection is of no use any more. */
void state_down(struct state *st, const struct err *why);
/* The mirror is current. */
void state_synced(struct state *st);
void state_order_done(struct state *st, struct state_order *o, int rc, const struct err *why);
void state_owe(struct state *st, const struct state_record *r);

/* ---- sync.c ---- */

/* Asks what has changed, or for all of it; ends in state_synced or state_down. */
void sync_start(struct state *st);
int sync_order(struct state *st, struct state_order *o, struct err *e) ATTR_NODISCARD;
/* Tells of an end that is owed, if there is one. */
void sync_pay(struct state *st);

#endif
