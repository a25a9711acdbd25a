/*
 * The inside of an HTTP/2 connection, shared by h2_conn.c (what comes, and the connection) and
 * h2_stream.c (streams, their queues, and what goes). Nobody else includes it.
 */
#ifndef STILE_PROXY_HTTP_H2_INTERNAL_H
#define STILE_PROXY_HTTP_H2_INTERNAL_H

#include <nghttp2/nghttp2.h>

#include "proxy/http/h2_conn.h"
#include "proxy/http/h2_flood.h"

TAILQ_HEAD(streams, h2_stream);

struct h2_conn {
	/* owned */
	nghttp2_session *session;
	void *queue_room; /* until nghttp2 takes it */
	struct streams all, ready;
	/* plain */
	bool server;
	bool ended; /* nothing more is read */
	bool got_settings;
	bool failed; /* a GOAWAY that says why was sent, or memory is out */
	size_t n;
	size_t out_total; /* bytes that wait in all streams */
	size_t lost;	  /* see h2_conn_take_lost */
	int32_t last_id;  /* the newest that the peer opened */
	int64_t now_us, head_since_us;
	struct h2_flood flood;
	struct h2_frames frames;
	struct err fault;
};

/* h2_conn.c */
/* Of a call of nghttp2 whose other failures than that of memory mean that the stream is over. */
void h2_conn_said(struct h2_conn *c, int rc);
void h2_conn_reset_stream(struct h2_conn *c, int32_t id, uint32_t code);

/* h2_stream.c */
static inline size_t h2_queued(const struct h2_queue *q)
{
	return q->end - q->start;
}
int h2_queue_add(struct h2_queue *q, const void *p, size_t n) ATTR_NODISCARD;
struct h2_stream *h2_stream_add(struct h2_conn *c, int32_t id); /* NULL: memory is out */
struct h2_stream *h2_stream_of(nghttp2_session *session, int32_t id);
void h2_stream_news(struct h2_stream *s);     /* h2_conn_ready gives it */
void h2_stream_drop_out(struct h2_stream *s); /* what waits to be sent */
void h2_head_free(struct h2_head *h);	      /* NULL is accepted */

#endif
