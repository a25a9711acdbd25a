/*
 * The fake network under the real proxy/session: sockets that are queues of bytes, a clock that
 * stands still until it is told, names that are answered when the test says so, a disk that can be
 * full. One of each a process, so everything hangs on one global. The product's own stream.c,
 * stream_tls.c, pool.c and logging/port.c run on top of it.
 */
#ifndef STILE_TESTS_REPLAY_FAKE_H
#define STILE_TESTS_REPLAY_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "logging/attrs.h"
#include "logging/str.h"
#include "policy/ipaddr.h"

/* ---- memory: fake_alloc.c ---- */

/* What the fakes and the driver allocate is not the product's and never fails. */
struct fake_memory {
	long count;   /* allocations of the product since fake_memory_begin */
	long fail_at; /* that one fails; 0: none */
	bool fail_on; /* and all that follow, too */
	long live;    /* allocated and not freed */
	size_t bytes; /* of all of those */
	unsigned paused;
};
extern struct fake_memory fake_memory;
void *fake_calloc(size_t n);
void fake_free(void *p);

struct bytes {
	char *p;
	size_t n, cap;
};
void bytes_add(struct bytes *b, const void *p, size_t n);
void bytes_drop(struct bytes *b, size_t n); /* from the front */
void bytes_clear(struct bytes *b);
struct str bytes_str(const struct bytes *b);

/* ---- the whole ---- */

void fake_begin(void);
/* What is left over is a fault; everything is freed. */
void fake_end(void);
/* Notes that something does not hold; the first one stays. */
void fake_fault(const char *fmt, ...) ATTR_PRINTF(1, 2);
const char *fake_fault_text(void); /* NULL: none */

/* ---- time and events: fake_loop.c ---- */

struct loop;
extern struct fake_loop_state {
	int64_t now_us;
	bool stopped;	   /* loop_stop was called */
	bool newest_first; /* the order of events within a turn */
	size_t timers;	   /* that exist */
	size_t timers_armed;
	unsigned long turns;
	bool busy; /* something happened in this turn */
} fake_loop;

bool fake_turn(void);	     /* true: something happened */
void fake_settle(void);	     /* turns until nothing happens any more; a fault when it never ends */
void fake_clock(int64_t us); /* fires what is due on the way, in order */
/* A callback from the loop, in the next turn; what the other fakes use. */
void fake_later(void (*fn)(void *arg), void *arg);
void fake_forget(void (*fn)(void *arg), void *arg);
void fake_loop_end(void);
/* Called once a turn, before the events: the splices' bytes. True: some moved. */
bool fake_splices_turn(void);

/* ---- sockets: fake_socket.c ---- */

#define FAKE_FD 1000000

struct fake_socket {
	struct fake_socket *next; /* oldest first */
	int fd;
	bool upstream;
	struct bytes in, out; /* as the proxy sees it */
	bool in_eof, in_reset;
	bool reset_told;
	bool fin, reset, closed; /* what the proxy did */
	bool hard;		 /* a close would be a reset */
	size_t window;		 /* how many bytes of `out` the kernel takes */
	size_t packet;		 /* a read returns at most so many bytes */
	uint64_t out_total;
	struct ipaddr addr;
	uint16_t port;
};
extern struct fake_socket *fake_sockets;
struct fake_socket *fake_socket_new(bool upstream);
struct fake_socket *fake_socket_of(int fd); /* NULL: none, or closed */
size_t fake_sockets_open(void);
/* The kernel's write and read, for the splice. */
size_t fake_socket_put(struct fake_socket *k, const char *p, size_t n);
void fake_socket_close(struct fake_socket *k, bool reset);
void fake_sockets_end(void);

/* ---- names and connections: fake_resolve.c, fake_dial.c, fake_splice.c, fake_listener.c ---- */

extern struct fake_names {
	bool automatic; /* every name is 5.6.7.8 */
} fake_names;
/* False: nobody asks for that name. n == 0: no such name. Only the oldest question is answered. */
bool fake_resolve_answer(const char *name, const struct ipaddr *addrs, size_t n);
/* Answered at once from here on. */
void fake_resolve_cache(const char *name, const struct ipaddr *addr);
const char *fake_resolve_pending(void); /* the oldest name asked for, or NULL */
size_t fake_resolve_count(void);
void fake_resolve_end(void);

enum fake_dialled { DIALLED, DIAL_REFUSED, DIAL_UNREACHABLE };
extern struct fake_dials {
	bool automatic; /* every connection succeeds */
} fake_dials;
bool fake_dial_finish(enum fake_dialled how); /* the oldest; false: none is pending */
/* "5.6.7.8:80 ..." of the oldest, or NULL. */
const char *fake_dial_pending(void);
size_t fake_dial_count(void);
size_t fake_splice_count(void);

/* A connection from 192.0.2.N at the i-th listener. NULL: refused or not listening. */
/* Where those who connect from now on meant to go: what original_dst.h says of them. */
void fake_meant(const struct ipaddr *a, uint16_t port);
struct fake_socket *fake_accept(size_t i, unsigned n);

/* ---- the log: fake_log.c ---- */

struct log_writer;
enum fake_log_mode { LOG_WRITES, LOG_HOLDS, LOG_FAILS };

struct fake_line {
	char *text;
	char event[24], id[24];
	char *path;
	bool written;
	bool read; /* by the scenario */
};

extern struct fake_log {
	enum fake_log_mode mode;
	long fail_at; /* the disk is full before that line; 0: never */
	struct fake_line *lines;
	size_t n, written;
	size_t requests; /* starts and denials; of the last run, once it has ended */
	size_t streams;	 /* the same, of HTTP/2 alone */
	bool troubled;
} fake_log;
/* Whether a port may write in the thread's place. */
extern bool fake_log_is_lent;
struct log_writer *fake_log_begin(void);
void fake_log_set(enum fake_log_mode mode);
void fake_log_full(bool full); /* the queue has no room */
bool fake_log_took_all(void);  /* and was never held, full or failing */
bool fake_log_write(void);     /* what the thread would do; true: something was written */
/* Written starts without an end. path: only those of that path, and tunnels, inside which anything
 * goes (STR_NONE: any). */
size_t fake_log_open_starts(struct str path);
/* The value of a key as it stands in the line ("" if it is not there). */
void fake_line_value(const struct fake_line *l, const char *key, char *ret, size_t size);
/* Each id: a deny, or a start and an end. */
void fake_log_balance(void);
void fake_log_end(void);

/* Moves between states that were seen, as the debug log says them: "client idle -> head". */
extern struct fake_moves {
	char names[256][48];
	unsigned long counts[256];
	size_t n;
	bool trace;
} fake_moves;

#endif
