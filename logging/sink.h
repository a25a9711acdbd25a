/*
 * Where the lines of the audit log go: standard output, a file, or the syslog socket. It opens,
 * writes, notices that its file is gone, and opens anew. It knows nothing of threads, queues and
 * lines in flight: writer.c, its only caller, does.
 */
#ifndef STILE_LOGGING_SINK_H
#define STILE_LOGGING_SINK_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "logging/attrs.h"
#include "logging/err.h"

#define SINK_SYSLOG_PATH "/dev/log"

enum sink_kind { SINK_STDOUT, SINK_FILE, SINK_SYSLOG };

/* What has become of the file that is open. */
enum sink_state {
	SINK_SAME,  /* still what the path names; always so for stdout and syslog */
	SINK_MOVED, /* the path names something else or nothing; what is written is still kept */
	SINK_GONE,  /* deleted: what is written now is lost */
};

struct sink {
	/* owned */
	char *path; /* NULL for stdout */
	int fd;	    /* -1: none, or stdout's that is not ours to close */
	/* plain */
	enum sink_kind kind;
	int facility;  /* syslog */
	bool is_begun; /* it is known how the file ends: it was empty, or ours is the last line */
	bool is_regular;
	bool has_poll; /* a pipe, a socket or a terminal: it may not take bytes at once */
	bool is_quick; /* a file in the page cache of this machine: sink_write_quick may be asked */
	bool may_wait; /* and its file system cannot be asked not to wait */
	dev_t dev;
	ino_t ino;
};

/* `to` as for log_writer_new. On -1 nothing is open. */
int sink_open(struct sink *s, const char *to, struct err *e) ATTR_NODISCARD;
void sink_close(struct sink *s);
/* The same target once more, for a rotation: *ret is open beside s. On -1 nothing is. */
int sink_open_again(const struct sink *s, struct sink *ret, struct err *e) ATTR_NODISCARD;
/* Changes the owner of a regular file; 0 where there is none. -1 with errno. */
int sink_give(const struct sink *s, unsigned uid, unsigned gid);
/* What to call it in a message. */
const char *sink_name(const struct sink *s);

/* Writes from the start of iov; syslog takes whole lines only. Waits at most timeout_ms for a pipe
 * that is full. Half a line that stands at the end of a file when the first write comes is ended.
 * The bytes taken (> 0), or -1 with errno (EAGAIN: not within that time). */
ssize_t sink_write(struct sink *s, const struct iovec *iov, int count, int timeout_ms);
/* Of a sink that is_quick and is_begun: the same, but nothing is waited for that the kernel knows
 * to be waited for
 * (-1 with EAGAIN). Where the file system does not know (ext4, tmpfs), it is an ordinary write. */
ssize_t sink_write_quick(struct sink *s, const struct iovec *iov, int count);
/* fdatasync; 0 where there is no disk behind. -1 with errno. */
int sink_sync(const struct sink *s);
enum sink_state sink_state(const struct sink *s);
/* Takes back the last `bytes` written to a regular file, if nobody wrote behind them. */
int sink_unwrite(const struct sink *s, size_t bytes);

#endif
