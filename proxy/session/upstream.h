/*
 * One request's way to an origin and back, as an exchange uses it: writes a request, reads its
 * answer. The wire's details (framing, chunking, streams) end here: upstream_h1.c is a connection
 * of HTTP/1.1, upstream_h2.c a stream of HTTP/2. What is finished goes back to where it may serve
 * another request, when both sides left it clean.
 */
#ifndef STILE_PROXY_SESSION_UPSTREAM_H
#define STILE_PROXY_SESSION_UPSTREAM_H

#include "proxy/credentials/inject.h"
#include "proxy/http/message.h"
#include "proxy/session/worker.h"

struct upstream;

/* One wire format. Each function is described where it is called through, below. */
struct upstream_ops {
	void (*release)(struct upstream *u);
	void (*close)(struct upstream *u);
	int (*send_head)(struct upstream *u, const struct request *r, const struct injection *inj,
			 struct err *e);
	size_t (*room)(const struct upstream *u);
	void (*send_body)(struct upstream *u, struct str data);
	void (*send_end)(struct upstream *u, const struct fields *trailers);
	void (*flush)(struct upstream *u);
	int (*read_head)(struct upstream *u, struct response *ret, struct err *e);
	int (*pull)(struct upstream *u, size_t max, void (*sink)(void *arg, struct str data),
		    void *arg, bool *ret_done, struct err *e);
	const struct fields *(*trailers)(const struct upstream *u);
	bool (*answered)(const struct upstream *u);
	bool (*reused)(const struct upstream *u);
	bool (*is_quiet)(const struct upstream *u);
	void (*relay)(struct upstream *u);
	bool (*is_drained)(const struct upstream *u);
	void (*reset)(struct upstream *u);
	bool (*unprocessed)(const struct upstream *u);
};

struct upstream {
	const struct upstream_ops *ops;
	/* Of its connection: static text; empty in clear, or if the origin chose none. */
	struct str tls_version, tls_alpn;
};

/* What a kept connection is found by again, and where it leads. */
struct upstream_place {
	struct pool_key *key; /* borrowed; everything under which the connection was judged */
	struct ipaddr addr;
	uint16_t port;
	bool keep; /* what is opened may serve others: it was judged under the current snapshot */
};

/* A kept connection for place->key, or NULL; fills place->addr. on_event: something can be read,
 * written, or went wrong. NULL with a reason in e: memory is out. */
struct upstream *upstream_take(struct worker *w, struct upstream_place *place,
			       void (*on_event)(void *arg), void *arg, struct err *e);
/* The same for a WebSocket, which HTTP/2 alone keeps a connection for. *ret_h1_only: there is one,
 * whose origin has said that it takes none there. */
struct upstream *upstream_take_websocket(struct worker *w, struct upstream_place *place,
					 bool *ret_h1_only, void (*on_event)(void *arg), void *arg,
					 struct err *e);
/* Over a stream that was just connected; takes s over, also on failure. */
int upstream_open(struct worker *w, struct stream *s, const struct upstream_place *place,
		  void (*on_event)(void *arg), void *arg, struct upstream **ret,
		  struct err *e) ATTR_NODISCARD;

/* The exchange went well: what it used is kept if it may serve another request. */
static inline void upstream_release(struct upstream *u)
{
	u->ops->release(u);
}

/* Ends it, whatever its state. NULL is accepted. */
static inline void upstream_close(struct upstream *u)
{
	if (u)
		u->ops->close(u);
}

/* Writes the head (with the first body bytes, if they follow before upstream_flush). */
static inline int upstream_send_head(struct upstream *u, const struct request *r,
				     const struct injection *inj, struct err *e)
{
	return u->ops->send_head(u, r, inj, e);
}

static inline size_t upstream_room(const struct upstream *u)
{
	return u->ops->room(u);
}

static inline void upstream_send_body(struct upstream *u, struct str data)
{
	u->ops->send_body(u, data);
}

/* trailers: NULL when there are none to be sent. */
static inline void upstream_send_end(struct upstream *u, const struct fields *trailers)
{
	u->ops->send_end(u, trailers);
}

static inline void upstream_flush(struct upstream *u)
{
	u->ops->flush(u);
}

/* The next head, interim or final. 1: *ret filled (response_clear it); 0: not yet; -1: malformed,
 * or the connection ended (REASON_UPSTREAM_CLOSED), or TLS failed late (certificate wanted). */
static inline int upstream_read_head(struct upstream *u, struct response *ret, struct err *e)
{
	return u->ops->read_head(u, ret, e);
}

/* Gives body data to sink, at most max bytes. 0: as much as there was; *ret_done when the body is
 * whole. -1: cut or broken. */
static inline int upstream_pull(struct upstream *u, size_t max,
				void (*sink)(void *arg, struct str data), void *arg, bool *ret_done,
				struct err *e)
{
	return u->ops->pull(u, max, sink, arg, ret_done, e);
}

static inline const struct fields *upstream_trailers(const struct upstream *u)
{
	return u->ops->trailers(u);
}

/* The origin has sent at least one byte of this answer. */
static inline bool upstream_answered(const struct upstream *u)
{
	return u->ops->answered(u);
}

static inline bool upstream_reused(const struct upstream *u)
{
	return u->ops->reused(u);
}

/* Before the head is sent: nothing came and nothing ended, so what comes will be the answer. */
static inline bool upstream_is_quiet(const struct upstream *u)
{
	return u->ops->is_quiet(u);
}

/* After a 101: what is sent and pulled from here on are bytes of the other protocol, and
 * upstream_send_end ends one way alone. */
static inline void upstream_relay(struct upstream *u)
{
	u->ops->relay(u);
}

/* All that was sent has left: upstream_release and upstream_close drop what has not. on_event tells
 * of it. */
static inline bool upstream_is_drained(const struct upstream *u)
{
	return u->ops->is_drained(u);
}

/* As upstream_close, but the origin cannot take the end for a clean one. */
static inline void upstream_reset(struct upstream *u)
{
	if (u)
		u->ops->reset(u);
}

/* The origin said that it did not look at the request (RFC 9113 section 8.7), or got none: a
 * WebSocket is asked for over HTTP/2 only once its SETTINGS have said that it takes one. */
static inline bool upstream_unprocessed(const struct upstream *u)
{
	return u->ops->unprocessed(u);
}

/* After a reload: what is open takes no other request, and ends with its last one. */
void upstream_h2_retire_all(struct worker *w);
void upstream_h2_end_all(struct worker *w); /* no exchange is left */

/* upstream.c, for those that make one: fills tls_version and tls_alpn. */
void upstream_note_tls(struct upstream *u, const struct stream *s);
/* upstream_h2.c, for upstream.c alone; open takes s over, also on failure. ret_h1_only: NULL where
 * no WebSocket is asked for. */
struct upstream *upstream_h2_take(struct worker *w, struct upstream_place *place, bool *ret_h1_only,
				  void (*on_event)(void *arg), void *arg, struct err *e);
int upstream_h2_open(struct worker *w, struct stream *s, const struct upstream_place *place,
		     void (*on_event)(void *arg), void *arg, struct upstream **ret,
		     struct err *e) ATTR_NODISCARD;
/* For the worker's end, behind its loop's. */
void upstream_h1_free_spares(struct worker *w);
/* upstream_h1.c, for upstream.c alone; takes s over, also on failure. */
int upstream_h1_new(struct worker *w, struct stream *s, bool reused,
		    const struct upstream_place *place, void (*on_event)(void *arg), void *arg,
		    struct upstream **ret, struct err *e) ATTR_NODISCARD;

#endif
