/*
 * What the ports (port.c, the workers' side) and the writer's thread (writer.c) share: the queue of
 * chunks and the state of both sides. Nobody else includes it.
 *
 * A chunk is the lines of one port between two flushes. It is handed over whole, never copied, and
 * comes back empty for the port's next lines.
 */
#ifndef STILE_LOGGING_QUEUE_H
#define STILE_LOGGING_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>

#include "logging/sink.h"
#include "logging/writer.h"

struct log_port;

struct chunk {
	/* owned */
	struct strbuf text;
	/* borrowed: lives as long as its in_flight is not 0 */
	struct log_port *port;
	/* plain */
	uint64_t last_ticket;
	struct chunk *next;
};

struct chunk_list {
	struct chunk *head, *tail;
};

struct log_port {
	/* owned by the worker's thread */
	struct chunk *filling; /* NULL until the first line */
	struct chunk *reserve; /* empty, with memory: for ends when there is no other */
	bool is_tight;	       /* it was needed, and there is no new one yet */
	uint64_t given;	       /* the last ticket handed out */

	/* under the writer's lock */
	struct chunk *spare; /* came back empty */
	unsigned spare_count;
	unsigned in_flight; /* chunks handed over and not yet back */
	bool is_closed;	    /* the worker let go: who brings in_flight to 0 frees the port */
	struct log_port *next;

	/* the writer's thread's own */
	bool is_awaited; /* a mark that somebody waits for moved: to be told */

	/* shared without a lock */
	_Atomic uint64_t written;
	_Atomic uint64_t awaited; /* the lowest ticket that somebody waits for; then reached */
	atomic_bool signalled;	  /* the eventfd was written and not drained since */

	/* borrowed */
	struct log_writer *writer;
	/* plain */
	int fd;
};

struct log_writer {
	pthread_t thread;
	bool is_started;
	pthread_mutex_t lock;
	pthread_cond_t wake;

	/* under the lock */
	struct chunk_list waiting;
	struct log_port *ports;
	bool is_sleeping;
	bool is_lent; /* a port's thread writes in the place of the sleeping one: what is the
			 thread's own is that one's meanwhile */
	bool reopen_wanted;
	unsigned reopens; /* that were asked for */
	bool has_next;
	struct sink next; /* owned until the thread takes it */
	enum log_wait next_wait;
	bool is_stopping;
	int64_t stop_at_ms;

	/* shared without a lock */
	_Atomic size_t queued;	/* bytes in all batches and chunks */
	_Atomic size_t untaken; /* lines that found no room, and were not told yet */
	atomic_bool available;
	atomic_uint reopens_done; /* of `reopens`, whatever came of them */
	_Atomic int wait;

	/* the thread's own */
	unsigned reopens_taken;
	struct sink sink;
	struct chunk_list writing; /* taken from waiting, in order */
	size_t offset;		   /* bytes of the first of them that are written */
	struct chunk_list done;	   /* written, not yet on the disk (wait: synced) or not yet told */
	bool is_failing;	   /* the last try failed; the next one is at retry_at_ms */
	bool is_gone;		   /* the open file is deleted: nothing may be written to it */
	bool move_is_said;
	int64_t retry_at_ms;
	int64_t look_at_ms;  /* when to look again whether the path still names the open file */
	int64_t moved_on_ms; /* when bytes were last taken, or the first of them came */
	int64_t lend_at_ms;  /* not lent before: the disk was slow */
};

void chunk_list_push(struct chunk_list *l, struct chunk *c);
struct chunk *chunk_list_pop(struct chunk_list *l); /* NULL when empty */
void chunk_free(struct chunk *c);		    /* NULL is accepted */

/* The writer's side: */

/* Under the lock, with work in `waiting` and nothing before it: may the caller write it, at once
 * and without waiting for a disk that is slow? True: writer_write_lent must follow, without the
 * lock. */
bool writer_lend(struct log_writer *w);
/* Writes what there is, marks it, gives the chunks back and the thread its own. p, whose caller
 * looks at its mark itself, is not signalled. False: it is not all written, and the thread goes on.
 */
bool writer_write_lent(struct log_writer *w, const struct log_port *p);
void port_signal(struct log_port *p);
/* Gives a written chunk back to its port; frees a port that nobody holds any more. Under the lock.
 */
void port_return_chunk(struct chunk *c);

#endif
