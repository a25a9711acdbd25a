/*
 * A connected socket with two bounded buffers, over TCP or TLS alike. Its owner hears of events
 * through one callback, always from the loop and never from inside a call of this file; it reads
 * with stream_data/stream_consume and writes with stream_write. Back-pressure is in the buffers: a
 * stream whose input is not consumed stops reading, and stream_room says what a write may take.
 *
 * Memory: input that is consumed within the callback is never copied (it lies in the loop's one
 * read buffer); only what is left over gets a buffer of its own. A write is tried at once; only
 * what the kernel does not take is kept. So an idle stream holds no buffer.
 */
#ifndef STILE_PROXY_NET_STREAM_H
#define STILE_PROXY_NET_STREAM_H

#include <openssl/ssl.h>
#include <sys/uio.h>

#include "logging/err.h"
#include "logging/str.h"
#include "proxy/net/loop.h"

struct stream;

enum stream_event {
	STREAM_DATA = 1,	/* stream_data has grown */
	STREAM_EOF = 2,		/* the peer will send no more (FIN, or close_notify over TLS) */
	STREAM_DRAINED = 4,	/* all that was written is with the kernel, after some was not */
	STREAM_ERROR = 8,	/* reset, broken TLS, truncation, a write that failed after EOF: see
				   stream_error; nothing follows */
	STREAM_HANDSHAKED = 16, /* TLS is up */
};

/* Takes the descriptor over (non-blocking already), also on failure. */
int stream_new(struct loop *l, int fd, void (*on_event)(void *arg, unsigned events), void *arg,
	       struct stream **ret, struct err *e) ATTR_NODISCARD;
/* Hands the stream to another owner, e.g. the pool. */
void stream_set_owner(struct stream *s, void (*on_event)(void *arg, unsigned events), void *arg);
/* Closes at once: close_notify and what the kernel takes without waiting, then the descriptor;
 * the memory goes to the graveyard. No callback follows. NULL is accepted. */
void stream_close(struct stream *s);
/* The same with RST (SO_LINGER 0), so that the peer cannot take a cut message for a whole one. */
void stream_reset(struct stream *s);

/* From here on the bytes are TLS; takes ssl over. Input that is already buffered is fed to the
 * handshake, so a ClientHello may have been looked at before. The handshake starts now;
 * STREAM_HANDSHAKED or STREAM_ERROR follows. Where TLS is up already, this one runs within it (once
 * more and not deeper): to an origin through an https:// proxy. */
int stream_start_tls(struct stream *s, SSL *ssl, struct err *e) ATTR_NODISCARD;
SSL *stream_ssl(const struct stream *s); /* borrowed; NULL without TLS */

/* What has been received and not consumed; valid until the next call on this stream or the end of
 * the callback. */
struct str stream_data(const struct stream *s);
void stream_consume(struct stream *s, size_t n);
void stream_pause(struct stream *s);  /* stop reading; EOF and errors are not heard either */
void stream_resume(struct stream *s); /* read on; delivers STREAM_DATA again if input is buffered */
bool stream_at_eof(const struct stream *s);

/* Bytes that a write may take now without passing the buffer's bound. 0: wait for STREAM_DRAINED.
 */
size_t stream_room(const struct stream *s);
/* Puts s behind the n parts of v, if there is anything of it; how many there are then. v has room
 * for one more. */
static inline int stream_part(struct iovec *v, int n, struct str s)
{
	v[n] = (struct iovec){.iov_base = (void *)(uintptr_t)s.p, .iov_len = s.n};
	return n + (s.n > 0);
}
/* Writes all (the parts together must not exceed stream_room, except that LIMIT_HEAD_BYTES of slack
 * are always there for heads and framing). Never fails: an error comes as STREAM_ERROR later, and
 * what is written after it is dropped. */
void stream_writev(struct stream *s, const struct iovec *iov, int n);
void stream_write(struct stream *s, struct str data);
/* While corked, writes gather; uncorking sends them in one call. */
void stream_cork(struct stream *s);
void stream_uncork(struct stream *s);
size_t stream_pending(const struct stream *s); /* written, not yet with the kernel */
/* Half-close after what is pending: FIN, over TLS close_notify and FIN. */
void stream_shutdown(struct stream *s);

/* After STREAM_ERROR: what happened, for people; sys_errno for a reset. For TLS failures, the
 * caller asks certs/ with stream_ssl. */
const struct err *stream_error(const struct stream *s);
bool stream_error_is_tls(const struct stream *s);
/* The connection ended within TLS, by FIN or reset: no close_notify, so nobody can say whether it
 * was cut. */
bool stream_was_cut(const struct stream *s);

/* Plain bytes received and sent since birth (for TLS: within it). */
uint64_t stream_bytes_in(const struct stream *s);
uint64_t stream_bytes_out(const struct stream *s);
int stream_fd(const struct stream *s);
/* Gives the descriptor back for splicing: the stream must be plain TCP with nothing pending; the
 * rest of the stream is buried. Input that is buffered must have been consumed. -1 if it is TLS. */
int stream_detach(struct stream *s);

#endif
