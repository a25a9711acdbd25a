/*
 * The stream's inside, shared by stream.c (sockets and buffers) and stream_tls.c (the same bytes
 * through OpenSSL). Nobody else includes it.
 */
#ifndef STILE_PROXY_NET_STREAM_INTERNAL_H
#define STILE_PROXY_NET_STREAM_INTERNAL_H

#include <event2/event.h>
#include <event2/event_struct.h>

#include "proxy/net/loop_internal.h"
#include "proxy/net/stream.h"

struct stream {
	/* owned */
	SSL *ssl;
	SSL *outer; /* TLS within TLS: ssl's bytes go through this one; NULL: through the socket */
	unsigned char *in;  /* when lent: the loop's read buffer, not owned */
	unsigned char *pre; /* bytes that came before TLS began, for the handshake */
	unsigned char *out; /* what the kernel did not take; for TLS, records */
	struct err *error;
	struct event ev_read, ev_write;
	/* Woken by us, not by the socket. An event of its own, since libevent forgets to register
	 * an event that is added while it is active. */
	struct event ev_again;
	/* borrowed */
	struct loop *loop;
	void (*on_event)(void *arg, unsigned events);
	void *arg;
	/* plain */
	int fd;
	size_t in_start, in_end, in_cap;
	size_t pre_start, pre_end;
	size_t out_start, out_end, out_cap;
	uint64_t bytes_in, bytes_out;
	int64_t burst_at_us; /* when TLS last wrote: an idle flow starts with small records again */
	uint32_t burst_bytes;
	uint32_t turn_bytes;	/* read in this callback and not data, so far */
	int64_t messages_at_us; /* when the bucket of TLS's own messages is full again */
	size_t last_bytes; /* of plaintext: a record with all of them ends a write; 0: none does */
	bool in_lent;
	bool paused;
	bool reading, writing; /* the events are with libevent */
	bool eof;
	bool failed;	   /* STREAM_ERROR was or will be delivered; nothing is read or written */
	bool write_failed; /* writes are dropped; what the peer sent before may still be read */
	bool write_reset;  /* and it was a reset, which the read side does not hear of again */
	bool error_is_tls;
	bool handshaking;
	bool tls_up;
	uint8_t tls_refused; /* why we end it, see stream_tls.c; 0: we do not */
	bool tls_more;	     /* OpenSSL may hold bytes that it has not been asked for */
	bool socket_empty;   /* the last read was short: no second one to hear EAGAIN */
	bool socket_eof;     /* or reset */
	bool took_less;	     /* the kernel, of the last write of records: not tried again at once */
	bool corked;
	bool kept; /* something was left over by a write: STREAM_DRAINED is owed */
	bool shut_wanted, shut_done;
	bool again; /* deliver STREAM_DATA without reading (resumed, or TLS holds bytes) */
	bool in_callback;
	bool dead;
};

#define STREAM_IN_MAX LIMIT_STREAM_IN_BYTES
/* Beyond stream_room there is always space for one head or chunk line, and TLS's own bytes. */
#define STREAM_OUT_SLACK (LIMIT_HEAD_BYTES + 32768)

/* Appends to out for the kernel. -1: memory or bound (the stream has then failed). */
int stream_out_add(struct stream *s, const void *p, size_t n);
/* The same for what ends a write: with what is in out it is given to the kernel at once, and kept
 * is only what that does not take. */
int stream_out_last(struct stream *s, const void *p, size_t n);
/* Gives the kernel what it takes of out. */
void stream_flush(struct stream *s);
void stream_fail_sys(struct stream *s, int sys_errno, const char *what);
void stream_fail_text(struct stream *s, const char *what);
/* Room of `in` for the next read; moves leftovers to an owned buffer when needed. NULL: none. */
unsigned char *stream_in_space(struct stream *s, size_t *ret_n);
void stream_schedule(
	struct stream *s); /* a callback from the loop, without waiting for the socket */

/* stream_tls.c; each returns the events that it makes due. */
unsigned stream_tls_handshake(struct stream *s);
unsigned stream_tls_read(struct stream *s);
void stream_tls_writev(struct stream *s, const struct iovec *iov, int n);
void stream_tls_close_notify(struct stream *s);
bool stream_tls_has_pending(const struct stream *s);

#endif
