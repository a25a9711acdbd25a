/*
 * One HTTP/2 connection as bytes in and bytes out (RFC 9113 with nghttp2), either side of it:
 * frames, HPACK, flow control, streams with their bounded queues, and the bounds on what a peer can
 * make us do. It has no socket, no timer and no opinion about a request. Its owner feeds it, takes
 * the streams that have news from h2_conn_ready, and sends what h2_conn_send gives: nothing is
 * called back, so a stream may be freed at any time.
 *
 * A peer may send on only as its bytes are taken (h2_stream_consume): what waits in a stream is
 * bounded by its window, what waits in all by the connection's.
 */
#ifndef STILE_PROXY_HTTP_H2_CONN_H
#define STILE_PROXY_HTTP_H2_CONN_H

#include <sys/queue.h>

#include "proxy/http/h2.h"

#define H2_REFUSED_STREAM 7 /* section 7: not processed, may be sent again */

struct h2_conn;

/* Bytes in a row, bounded by whoever adds; no memory while empty. */
struct h2_queue {
	char *mem;
	size_t start, end, cap;
	bool wiped; /* before it is freed: to an origin a credential may go within a body */
};

struct h2_stream {
	/* owned */
	struct h2_head *heads;	  /* whole sections that were not taken yet, oldest first */
	struct h2_head *arriving; /* a section of which frames are still to come */
	struct h2_head *trailers;
	struct h2_queue in, out;
	struct h2_fields end; /* trailers to be sent */
	/* borrowed */
	struct h2_conn *conn;
	void *owner; /* the owner's own */
	TAILQ_ENTRY(h2_stream) all, next;
	/* plain */
	int32_t id;
	unsigned heads_n;
	uint32_t reset_code;  /* of RST_STREAM or GOAWAY */
	uint64_t in_expected; /* Content-Length; h2_stream_expect */
	uint64_t in_total;
	uint64_t in_late;	/* that came after all of the answer was sent */
	uint64_t interim_bytes; /* of heads, unfolded */
	bool expects;
	bool is_ready;
	bool got_any;	   /* a frame of it came */
	bool got_final;	   /* client: a final head came; server: the head */
	bool got_end;	   /* END_STREAM came: after what waits in `in` there is no more */
	bool bad_length;   /* DATA and Content-Length disagree: `in` must not pass for a body */
	bool bad_sequence; /* a section where none may stand */
	bool connected;	   /* it is a tunnel (section 8.5) */
	bool no_memory;	   /* some of `in` is lost: it must not pass for a body */
	bool closed;	   /* both sides, or reset */
	bool reset;	   /* closed before its end */
	bool by_peer;	   /* it was the peer that reset it */
	bool out_wanted;   /* the owner found no room and waits */
	bool out_done;	   /* h2_stream_end was called */
	bool out_cut;	   /* reset it once `out` is sent */
	bool out_sent;	   /* END_STREAM is sent */
};

int h2_conn_new(bool server, struct h2_conn **ret, struct err *e) ATTR_NODISCARD;
void h2_conn_free(struct h2_conn *c); /* with all its streams; NULL is accepted */

/* Takes all of `in`. -1: the connection is at fault or abused (e: MALFORMED_REQUEST, RATE_LIMITED,
 * HEAD_TOO_LARGE, INTERNAL_ERROR): send what is left, a GOAWAY, and close. */
int h2_conn_recv(struct h2_conn *c, struct str in, int64_t now_us, struct err *e) ATTR_NODISCARD;
/* The next bytes to be sent, valid until the next call; empty: none. */
struct str h2_conn_send(struct h2_conn *c);
/* The GOAWAY that ends it for a fault of the peer's was given to be sent, or memory is out and it
 * can say nothing more; e says which. */
bool h2_conn_failed(const struct h2_conn *c, struct err *e);
bool h2_conn_wants_send(struct h2_conn *c);
/* A stream with news, each once; NULL: none. On a server's new stream `owner` is NULL. */
struct h2_stream *h2_conn_ready(struct h2_conn *c);
bool h2_conn_has_news(const struct h2_conn *c);	    /* h2_conn_ready would give one */
struct h2_stream *h2_conn_first(struct h2_conn *c); /* all streams, oldest first */
struct h2_stream *h2_stream_next(struct h2_stream *s);
size_t h2_conn_streams(const struct h2_conn *c);
/* Server: how many streams were reset since the last call as there was no memory for them. */
size_t h2_conn_take_lost(struct h2_conn *c);
/* No stream that is not known yet; those that are go on (section 6.8). */
void h2_conn_goaway(struct h2_conn *c);
/* Ends it with GOAWAY(NO_ERROR). */
void h2_conn_end(struct h2_conn *c);
bool h2_conn_over(struct h2_conn *c); /* nothing more to read and to send */
/* Client: the peer takes another stream beside that many. */
bool h2_conn_has_room(struct h2_conn *c, size_t in_use);
/* Client: does the peer take extended CONNECT (RFC 8441 section 3)? 1, 0, or -1 while its SETTINGS
 * have not come. */
int h2_conn_takes_connect(struct h2_conn *c);
/* Since when a field section is arriving; 0: none is. */
int64_t h2_conn_head_since_us(const struct h2_conn *c);

/* Client: opens a stream with this head; body: one follows. NULL: memory, or the connection is
 * over. */
struct h2_stream *h2_stream_open(struct h2_conn *c, const struct h2_fields *head, bool body);
/* Server: an interim head, or the final one. */
int h2_stream_interim(struct h2_stream *s, const struct h2_fields *head) ATTR_NODISCARD;
int h2_stream_respond(struct h2_stream *s, const struct h2_fields *head, bool body) ATTR_NODISCARD;
/* The oldest section that was not taken; the caller clears and frees it. NULL: none. */
struct h2_head *h2_stream_take_head(struct h2_stream *s);
/* How much DATA there will be, when that was said. */
void h2_stream_expect(struct h2_stream *s, uint64_t n);
struct str h2_stream_data(const struct h2_stream *s);
/* Takes n bytes; the peer may send as many more. */
void h2_stream_consume(struct h2_stream *s, size_t n);
size_t h2_stream_room(struct h2_stream *s); /* what h2_stream_write may take now */
int h2_stream_write(struct h2_stream *s, struct str data) ATTR_NODISCARD;
/* From its 200 on, a CONNECT's stream is a tunnel: nothing but DATA may come, each way ends by
 * itself, and a reset is CANCEL, as RST is in TCP (section 8.5). */
void h2_stream_connect(struct h2_stream *s);
/* The body is whole; trailers (may be NULL) are taken over. */
void h2_stream_end(struct h2_stream *s, struct h2_fields *trailers);
/* Resets the stream, once what was written is sent. */
void h2_stream_cut(struct h2_stream *s);
/* Forgets the stream; if it is still open it is reset. */
void h2_stream_free(struct h2_stream *s);

#endif
