/*
 * The writer thread of the audit log. Workers hand lines to it through a port each; it writes them
 * with one writev for all that is waiting (group commit) and tells each port how far it came. A
 * line is never cut, doubled or lost while the program lives: what the disk refuses stays queued,
 * up to LIMIT_LOG_QUEUE_BYTES, and is tried again until it is written.
 *
 * A ticket is a number that grows with each line of a port. A line with ticket t has been handed
 * to the kernel (wait: written) or to the disk (wait: synced) when log_port_written() >= t.
 */
#ifndef STILE_LOGGING_WRITER_H
#define STILE_LOGGING_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "logging/err.h"
#include "logging/record.h"

enum log_wait { LOG_WAIT_WRITTEN, LOG_WAIT_SYNCED, LOG_WAIT_NONE };

struct log_writer;
struct log_port;

/* Opens `to` ("stdout", a file's path, "syslog:" or "syslog:FACILITY") and starts the thread. A
 * file is opened O_APPEND|O_CLOEXEC, created 0640. On 0 the caller owns *ret. */
int log_writer_new(const char *to, enum log_wait wait, struct log_writer **ret,
		   struct err *e) ATTR_NODISCARD;
/* The same in two steps, for a process that gives up privileges in between: a thread keeps the
 * capabilities that it was born with. */
int log_writer_open(const char *to, enum log_wait wait, struct log_writer **ret,
		    struct err *e) ATTR_NODISCARD;
int log_writer_start(struct log_writer *w, struct err *e) ATTR_NODISCARD;
/* Makes the log file somebody else's, so that it can be opened anew after a change of user. Nothing
 * happens when the target is no regular file. Between the two steps. */
int log_writer_give(struct log_writer *w, unsigned uid, unsigned gid, struct err *e) ATTR_NODISCARD;
/* Writes what is queued (waiting at most drain_ms for a full disk), stops the thread, closes. All
 * ports must have been freed before. NULL is accepted. */
void log_writer_free(struct log_writer *w, int drain_ms);
/* Asks the thread to open the path anew before it writes the next line (logrotate). Lines queued
 * before the call may go to either file; none is lost. If opening fails the old file stays in use
 * and an error goes to the operator's log. Async-signal-unsafe; call it from the main thread. */
void log_writer_reopen(struct log_writer *w);
/* Until that is done, or half a second: the thread may be held up by a disk. The same thread as
 * log_writer_reopen. */
void log_writer_await_reopen(struct log_writer *w);
/* Changes target and wait for a reload; the old target stays on failure. */
int log_writer_retarget(struct log_writer *w, const char *to, enum log_wait wait, struct err *e);

/* One port belongs to one thread, which alone calls the functions below. The eventfd of the port
 * becomes readable when a ticket is written that somebody waits for (log_port_await), and when the
 * state changed. */
int log_port_new(struct log_writer *w, struct log_port **ret, struct err *e) ATTR_NODISCARD;
void log_port_free(struct log_port *p); /* flushes first; NULL is accepted */
int log_port_fd(const struct log_port *p);
/* Formats r into the port's batch: no lock, no system call. The ticket, or 0 if the line could not
 * be taken (queue full or memory out). `must` lines (ends of what was started) are taken even
 * past the queue's bound. */
uint64_t log_port_add(struct log_port *p, const struct record *r, bool must);
/* Hands the batch to the thread; nothing happens when it is empty. */
void log_port_flush(struct log_port *p);
/* The same once a loop turn, and without the thread where it sleeps and the target takes bytes at
 * once: true, the batch is written, and nothing else will tell the caller so. */
bool log_port_write(struct log_port *p);
/* True: the line with this ticket is written. Else the eventfd tells when it is. It tells of the
 * lowest ticket asked for; when that is written the next one must be asked for again. */
bool log_port_await(struct log_port *p, uint64_t ticket) ATTR_NODISCARD;
/* Reads the eventfd; call it when the fd is readable. */
void log_port_drain(struct log_port *p);
/* The highest ticket that is written (see above; with LOG_WAIT_NONE: the highest one given). */
uint64_t log_port_written(const struct log_port *p);
/* False while the target refuses lines (disk full, target vanished) or the queue is full: then a
 * new request is refused with log_unavailable. */
bool log_port_available(const struct log_port *p);

#endif
