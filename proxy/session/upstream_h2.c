/*
 * One stream of an HTTP/2 connection to an origin as the upstream of one exchange; see upstream.h.
 * The connection is shared by exchanges of one key alone: one origin, policy, rule and sandbox. It
 * stays while it has streams, and for a while after the last.
 */
#include <stdlib.h>
#include <string.h>

#include "certs/trust.h"
#include "logging/log.h"
#include "proxy/http/h2_conn.h"
#include "proxy/session/h2_out.h"
#include "proxy/session/upstream.h"

struct origin_h2 {
	/* owned */
	struct stream *s;
	struct h2_conn *conn;
	struct timer timer; /* how long it may be idle */
	/* counted */
	struct pool_key *key;
	/* borrowed */
	struct worker *worker;
	struct origin_h2 *next, *prev;		   /* worker->origins */
	struct origin_h2 *chain_next, *chain_prev; /* worker->origins_by */
	struct upstream_h2 *waiting;		   /* WebSockets, for the origin's SETTINGS */
	/* plain */
	int64_t refused_us;    /* when it last refused a stream */
	struct turn_task kick; /* what became possible while an exchange was at work */
	struct ipaddr addr;
	uint16_t port;
	struct err error;  /* why it ended */
	uint64_t requests; /* so far */
	size_t handles;	   /* upstreams that use it; each stream has one */
	bool retired;	   /* takes no other request */
	bool ended;
	bool driving, again;
	bool gone; /* buried */
};

struct upstream_h2 {
	struct upstream up;
	/* owned */
	struct fields trailers;
	struct h2_fields head; /* while it waits */
	/* borrowed */
	struct origin_h2 *o;
	struct upstream_h2 *next; /* o->waiting */
	struct h2_stream *s;	  /* NULL before the head is sent */
	void (*on_event)(void *arg);
	void *arg;
	/* plain */
	char method_buf[LIMIT_METHOD_BYTES];
	struct str method;
	bool reused;
	bool body;    /* of the request */
	bool relay;   /* it has become a WebSocket */
	bool final;   /* the final head was read */
	bool no_body; /* of the answer */
	bool got_end;
};

static const struct upstream_ops ops;
static bool u_unprocessed(const struct upstream *up);

static struct upstream_h2 *h2_of(const struct upstream *up)
{
	return CONTAINER_OF(up, struct upstream_h2, up);
}

/* ---- the connection ---- */

/* The origin's fault, unless it is ours. */
static void blame_origin(struct err *e)
{
	if (e->reason != REASON_INTERNAL_ERROR)
		e->reason = REASON_UPSTREAM_MALFORMED;
}

static void free_origin(void *obj)
{
	struct origin_h2 *o = obj;

	h2_conn_free(o->conn);
	pool_key_unref(o->key);
	free(o);
}

static struct origin_h2 **chain(struct worker *w, const struct pool_key *key)
{
	return &w->origins_by[key->hash & (ORIGIN_CHAINS - 1)];
}

static void link_origin(struct worker *w, struct origin_h2 *o)
{
	struct origin_h2 **at = chain(w, o->key);

	w->origins_n++;
	o->next = w->origins;
	if (o->next)
		o->next->prev = o;
	w->origins = o;
	o->chain_next = *at;
	if (o->chain_next)
		o->chain_next->chain_prev = o;
	*at = o;
}

static void unlink_origin(struct origin_h2 *o)
{
	struct worker *w = o->worker;

	w->origins_n--;
	if (o->prev)
		o->prev->next = o->next;
	else
		w->origins = o->next;
	if (o->next)
		o->next->prev = o->prev;
	if (o->chain_prev)
		o->chain_prev->chain_next = o->chain_next;
	else
		*chain(w, o->key) = o->chain_next;
	if (o->chain_next)
		o->chain_next->chain_prev = o->chain_prev;
}

static void end_origin(struct origin_h2 *o)
{
	if (o->gone)
		return;
	o->gone = o->ended = true;
	unlink_origin(o);
	stream_close(o->s);
	o->s = NULL;
	timer_clear(&o->timer);
	worker_turn_forget(o->worker, &o->kick);
	loop_bury(o->worker->loop, o, free_origin);
}

static bool write_out(struct origin_h2 *o)
{
	return o->s && h2_out(o->conn, o->s);
}

static void tell(struct upstream_h2 *u)
{
	u->on_event(u->arg);
}

/* The origin's SETTINGS are there, or none will come. */
static void wake_waiting(struct origin_h2 *o)
{
	struct upstream_h2 *u;

	while ((u = o->waiting)) {
		o->waiting = u->next;
		tell(u);
	}
}

/* No further byte comes: each exchange that waits for one hears so. */
static void fail_origin(struct origin_h2 *o, const struct err *e)
{
	struct h2_stream *s;

	if (o->ended)
		return;
	o->ended = o->retired = true;
	o->error = *e;
	log_debug("origin %s: %s", o->key->text, e->text);
	/* A stream that ended just now has not been told of yet. */
	while ((s = h2_conn_ready(o->conn)))
		if (s->owner)
			tell(s->owner);
	for (;;) {
		/* What hears of it lets go of its stream; the next one is then the first. */
		for (s = h2_conn_first(o->conn); s; s = h2_stream_next(s)) {
			struct upstream_h2 *u = s->owner;

			if (u && !s->closed) {
				s->closed = s->reset = true;
				tell(u);
				break;
			}
		}
		if (!s)
			break;
	}
	wake_waiting(o);
	if (o->handles == 0)
		end_origin(o);
}

static void idle_or_end(struct origin_h2 *o)
{
	if (o->gone || o->handles > 0)
		return;
	if (o->ended || o->retired || h2_conn_over(o->conn)) {
		if (!o->ended) {
			(void)write_out(o); /* resets, which a GOAWAY would leave behind */
			h2_conn_end(o->conn);
			(void)write_out(o);
		}
		end_origin(o);
	} else if (!o->timer.armed) {
		timer_arm(&o->timer, LIMIT_MS_POOL_IDLE);
	}
}

static bool drive_once(struct origin_h2 *o)
{
	struct str in = stream_data(o->s);
	struct err e = ERR_INIT;
	struct h2_stream *s;
	bool any = in.n > 0;

	o->again = false;
	if (in.n > 0 && stream_room(o->s) > 0) {
		int rc = h2_conn_recv(o->conn, in, loop_now_us(o->worker->loop), &e);

		stream_consume(o->s, in.n);
		if (rc < 0) {
			(void)write_out(o);
			blame_origin(&e);
			fail_origin(o, &e);
			return false;
		}
	}
	if (o->waiting && h2_conn_takes_connect(o->conn) >= 0)
		wake_waiting(o);
	while (!o->ended && (s = h2_conn_ready(o->conn))) {
		struct upstream_h2 *u = s->owner;

		any = true;
		if (u)
			tell(u);
		if (o->ended)
			return false;
	}
	if (o->ended)
		return false;
	any |= write_out(o);
	if (h2_conn_failed(o->conn, &e)) {
		blame_origin(&e);
		fail_origin(o, &e);
		return false;
	}
	return (any || o->again) && stream_room(o->s) > 0;
}

static void drive(struct origin_h2 *o)
{
	struct err e = ERR_INIT;

	if (o->driving || o->ended)
		return;
	o->driving = true;
	while (drive_once(o))
		;
	o->driving = false;
	if (!o->ended && stream_at_eof(o->s)) {
		(void)err_reason(&e, REASON_UPSTREAM_CLOSED, "the origin closed the connection");
		fail_origin(o, &e);
	}
	idle_or_end(o);
}

static void on_stream(void *arg, unsigned events)
{
	struct origin_h2 *o = arg;
	struct err e = ERR_INIT;

	drive(o);
	if (!(events & STREAM_ERROR) || o->ended)
		return;
	(void)err_reason(&e, REASON_UPSTREAM_CLOSED, "the origin closed the connection: %s",
			 stream_error(o->s)->text);
	if (stream_error_is_tls(o->s) && !stream_was_cut(o->s))
		(void)trust_explain(stream_ssl(o->s), &e);
	fail_origin(o, &e);
}

static void on_kick(void *arg)
{
	drive(arg);
}

/* Idle for too long. */
static void on_timer(void *arg)
{
	struct origin_h2 *o = arg;

	o->retired = true;
	idle_or_end(o);
}

/* After an exchange changed something, from wherever it was called: the frames leave at the end of
 * the turn, with those of the other streams. */
static void touched(struct origin_h2 *o)
{
	o->again = true;
	if (!o->driving && !o->ended)
		worker_at_turn_end(o->worker, &o->kick);
}

/* Over the bound the oldest that nobody uses goes. */
static void make_room(struct worker *w)
{
	struct origin_h2 *oldest = NULL;

	if (w->origins_n < LIMIT_POOL_IDLE)
		return;
	for (struct origin_h2 *o = w->origins; o; o = o->next)
		if (o->handles == 0 && !o->driving)
			oldest = o;
	if (oldest) {
		oldest->retired = true;
		idle_or_end(oldest);
	}
}

static struct origin_h2 *new_origin(struct worker *w, struct stream *s,
				    const struct upstream_place *place, struct err *e)
{
	struct origin_h2 *o = calloc(1, sizeof(*o));

	if (!o || h2_conn_new(false, &o->conn, e) < 0 ||
	    timer_init(&o->timer, w->loop, on_timer, o) < 0) {
		if (o) {
			timer_clear(&o->timer);
			free_origin(o);
		}
		stream_close(s);
		(void)err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
		return NULL;
	}
	o->worker = w;
	o->key = pool_key_ref(place->key);
	o->kick = (struct turn_task){.fn = on_kick, .arg = o};
	o->s = s;
	o->addr = place->addr;
	o->port = place->port;
	o->retired = !place->keep;
	make_room(w);
	link_origin(w, o);
	stream_set_owner(s, on_stream, o);
	return o;
}

/* What was refused a moment ago is not tried there again at once (RFC 9113 section 8.7). */
static bool has_room(const struct origin_h2 *o)
{
	return !o->ended && !o->retired &&
	       (!o->refused_us ||
		loop_now_us(o->worker->loop) - o->refused_us > LIMIT_MS_H2_REFUSED * 1000LL) &&
	       h2_conn_has_room(o->conn, o->handles);
}

static struct origin_h2 *find(struct worker *w, const struct pool_key *key)
{
	for (struct origin_h2 *o = *chain(w, key); o; o = o->chain_next)
		if (pool_key_eq(o->key, key) && has_room(o))
			return o;
	return NULL;
}

void upstream_h2_retire_all(struct worker *w)
{
	struct origin_h2 *o = w->origins;

	while (o) {
		struct origin_h2 *next = o->next;

		o->retired = true;
		if (!o->driving)
			idle_or_end(o);
		o = next;
	}
}

void upstream_h2_end_all(struct worker *w)
{
	while (w->origins)
		end_origin(w->origins);
}

/* ---- birth and end of a stream's handle ---- */

static struct upstream *new_handle(struct origin_h2 *o, void (*on_event)(void *arg), void *arg,
				   struct err *e)
{
	struct upstream_h2 *u = calloc(1, sizeof(*u));

	if (!u) {
		(void)err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
		return NULL;
	}
	u->up.ops = &ops;
	upstream_note_tls(&u->up, o->s);
	u->o = o;
	u->on_event = on_event;
	u->arg = arg;
	u->reused = o->requests > 0;
	o->handles++;
	return &u->up;
}

struct upstream *upstream_h2_take(struct worker *w, struct upstream_place *place, bool *ret_h1_only,
				  void (*on_event)(void *arg), void *arg, struct err *e)
{
	struct origin_h2 *o = find(w, place->key);

	if (!o)
		return NULL;
	if (ret_h1_only && h2_conn_takes_connect(o->conn) == 0) {
		*ret_h1_only = true;
		return NULL;
	}
	place->addr = o->addr;
	return new_handle(o, on_event, arg, e);
}

int upstream_h2_open(struct worker *w, struct stream *s, const struct upstream_place *place,
		     void (*on_event)(void *arg), void *arg, struct upstream **ret, struct err *e)
{
	/* Another exchange was quicker: one connection is enough for both. */
	struct origin_h2 *o = place->keep ? find(w, place->key) : NULL;

	if (o && ipaddr_eq(&o->addr, &place->addr))
		stream_close(s);
	else
		o = new_origin(w, s, place, e);
	if (!o)
		return -1;
	*ret = new_handle(o, on_event, arg, e);
	if (!*ret) {
		idle_or_end(o);
		return -1;
	}
	return 0;
}

static void free_handle(void *obj)
{
	struct upstream_h2 *u = obj;

	fields_clear(&u->trailers);
	h2_fields_clear(&u->head);
	free(u);
}

static void let_go(struct upstream_h2 *u)
{
	struct origin_h2 *o = u->o;

	if (u->s && u_unprocessed(&u->up))
		o->refused_us = loop_now_us(o->worker->loop);
	h2_stream_free(u->s);
	u->s = NULL;
	for (struct upstream_h2 **at = &o->waiting; *at; at = &(*at)->next)
		if (*at == u) {
			*at = u->next;
			break;
		}
	o->handles--;
	loop_bury(o->worker->loop, u, free_handle);
	touched(o);
	if (!o->driving)
		idle_or_end(o);
}

static void u_close(struct upstream *up)
{
	let_go(h2_of(up));
}

static void u_release(struct upstream *up)
{
	let_go(h2_of(up));
}

/* A stream that was not whole is reset anyway. */
static void u_reset(struct upstream *up)
{
	let_go(h2_of(up));
}

static void u_relay(struct upstream *up)
{
	struct upstream_h2 *u = h2_of(up);

	u->relay = true;
	h2_stream_connect(u->s);
}

static bool u_is_drained(const struct upstream *up)
{
	struct upstream_h2 *u = h2_of(up);

	return !u->s || u->s->closed || u->s->out_sent || u->o->ended;
}

/* ---- the request ---- */

static int gone(const struct upstream_h2 *u, struct err *e)
{
	const struct origin_h2 *o = u->o;

	if (u->s && u->s->bad_length)
		return err_reason(e, REASON_UPSTREAM_MALFORMED, "DATA and Content-Length disagree");
	if (u->s && u->s->bad_sequence)
		return err_reason(e, REASON_UPSTREAM_MALFORMED,
				  "frames of an answer in an order that means nothing");
	if (u->s && u->s->no_memory)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	if (o->error.reason != REASON_NONE) {
		if (e)
			*e = o->error;
		return -1;
	}
	return err_reason(e, REASON_UPSTREAM_CLOSED, "the origin reset the stream (error %u) %s",
			  u->s ? u->s->reset_code : 0,
			  u->s && u->s->got_any ? "in the middle of its answer"
						: "without an answer");
}

static int open_stream(struct upstream_h2 *u, const struct h2_fields *head, bool body,
		       struct err *e)
{
	u->s = h2_stream_open(u->o->conn, head, body);
	if (!u->s)
		return err_reason(e, REASON_UPSTREAM_CLOSED, "the origin takes no stream");
	u->s->owner = u;
	u->o->requests++;
	timer_stop(&u->o->timer);
	return 0;
}

/* A WebSocket is asked for once the origin has said that it takes one (RFC 8441 section 3). Until
 * then, and if it does not, nothing is sent: u_read_head sees to it. */
static void hold_websocket(struct upstream_h2 *u, const struct h2_fields *head)
{
	u->method = STR("CONNECT");
	u->head = *head;
	timer_stop(&u->o->timer);
	if (h2_conn_takes_connect(u->o->conn) >= 0)
		return;
	u->next = u->o->waiting;
	u->o->waiting = u;
}

/* 1: it is asked for; 0: not yet; -1: it will not be. */
static int ask_websocket(struct upstream_h2 *u, struct err *e)
{
	int takes = h2_conn_takes_connect(u->o->conn);

	if (u->o->ended)
		return gone(u, e);
	if (takes < 0)
		return 0;
	if (takes == 0)
		return err_reason(e, REASON_UPSTREAM_CLOSED,
				  "the origin takes no WebSocket over HTTP/2");
	if (open_stream(u, &u->head, true, e) < 0)
		return -1;
	h2_fields_clear(&u->head);
	touched(u->o);
	return 1;
}

static int u_send_head(struct upstream *up, const struct request *r, const struct injection *inj,
		       struct err *e)
{
	struct upstream_h2 *u = h2_of(up);
	struct origin_h2 *o = u->o;
	struct h2_fields head;
	int rc;

	if (r->method.n > sizeof(u->method_buf))
		return err_reason(e, REASON_INTERNAL_ERROR, "the method is too long");
	memcpy(u->method_buf, r->method.p, r->method.n);
	u->method = str_from(u->method_buf, r->method.n);
	if (o->ended)
		return err_reason(e, REASON_UPSTREAM_CLOSED, "the origin closed the connection");
	if (h2_write_request(r, inj ? &inj->extra : NULL, inj ? strbuf_str(&inj->query) : STR_NONE,
			     &head) < 0)
		return err_reason(e, REASON_INTERNAL_ERROR, "the head has no room");
	if (r->websocket) {
		hold_websocket(u, &head);
		return 0;
	}
	u->body = r->body == BODY_CHUNKED || (r->body == BODY_LENGTH && r->length > 0);
	rc = open_stream(u, &head, u->body, e);
	h2_fields_clear(&head);
	return rc;
}

static size_t u_room(const struct upstream *up)
{
	struct upstream_h2 *u = h2_of(up);

	return u->s && !u->s->closed ? h2_stream_room(u->s) : 0;
}

static void u_send_body(struct upstream *up, struct str data)
{
	struct upstream_h2 *u = h2_of(up);

	if (u->s && h2_stream_write(u->s, data) < 0)
		h2_stream_cut(u->s);
}

static void u_send_end(struct upstream *up, const struct fields *trailers)
{
	struct upstream_h2 *u = h2_of(up);
	struct h2_fields end = {0};

	if (!u->s || (!u->body && !u->relay) || u->s->closed || u->s->out_cut)
		return;
	if (trailers && trailers->n > 0 && h2_write_trailers(trailers, &end) < 0)
		h2_stream_cut(u->s);
	else
		h2_stream_end(u->s, &end);
}

static void u_flush(struct upstream *up)
{
	touched(h2_of(up)->o);
}

/* ---- the answer ---- */

static int u_read_head(struct upstream *up, struct response *ret, struct err *e)
{
	struct upstream_h2 *u = h2_of(up);
	struct h2_head *head;
	int rc;

	if (!u->s && u->head.n > 0) {
		rc = ask_websocket(u, e);
		if (rc <= 0)
			return rc;
	}
	if (!u->s)
		return gone(u, e);
	if (u->s->bad_sequence)
		return gone(u, e);
	head = h2_stream_take_head(u->s);
	if (!head)
		return u->s->closed || u->o->ended ? gone(u, e) : 0;
	rc = h2_read_response(head, u->method, ret, e);
	free(head);
	if (rc < 0) {
		response_clear(ret);
		return -1;
	}
	if (ret->status >= 200) {
		u->final = true;
		u->no_body = ret->body == BODY_NONE;
		if (ret->body == BODY_LENGTH)
			h2_stream_expect(u->s, ret->length);
	}
	return 1;
}

static int u_pull(struct upstream *up, size_t max, void (*sink)(void *arg, struct str data),
		  void *arg, bool *ret_done, struct err *e)
{
	struct upstream_h2 *u = h2_of(up);
	struct h2_stream *s = u->s;
	struct str data;

	if (u->got_end || u->no_body) {
		*ret_done = true;
		return 0;
	}
	if (!s || s->bad_length || s->bad_sequence || s->no_memory)
		return gone(u, e);
	data = str_head(h2_stream_data(s), max);
	if (data.n > 0) {
		sink(arg, data);
		h2_stream_consume(s, data.n);
		touched(u->o); /* the origin may send on */
	}
	if (h2_stream_data(s).n > 0)
		return 0;
	if (!s->got_end)
		return s->closed || u->o->ended ? gone(u, e) : 0;
	if (s->trailers && h2_read_trailers(s->trailers, &u->trailers, e) < 0) {
		if (e)
			e->reason = REASON_UPSTREAM_MALFORMED;
		return -1;
	}
	*ret_done = u->got_end = true;
	return 0;
}

static const struct fields *u_trailers(const struct upstream *up)
{
	return &h2_of(up)->trailers;
}

static bool u_answered(const struct upstream *up)
{
	struct upstream_h2 *u = h2_of(up);

	return u->s && u->s->got_any;
}

static bool u_reused(const struct upstream *up)
{
	return h2_of(up)->reused;
}

static bool u_is_quiet(const struct upstream *up)
{
	struct origin_h2 *o = h2_of(up)->o;

	return !o->ended && !o->retired && h2_conn_has_room(o->conn, h2_conn_streams(o->conn));
}

/* RFC 9113 section 8.7: REFUSED_STREAM, or beyond the last stream of a GOAWAY; or nothing was sent.
 */
static bool u_unprocessed(const struct upstream *up)
{
	struct upstream_h2 *u = h2_of(up);

	return !u->s || (u->s->reset && !u->s->got_any && u->s->reset_code == H2_REFUSED_STREAM);
}

static const struct upstream_ops ops = {
	.release = u_release,
	.close = u_close,
	.send_head = u_send_head,
	.room = u_room,
	.send_body = u_send_body,
	.send_end = u_send_end,
	.flush = u_flush,
	.read_head = u_read_head,
	.pull = u_pull,
	.trailers = u_trailers,
	.answered = u_answered,
	.reused = u_reused,
	.is_quiet = u_is_quiet,
	.relay = u_relay,
	.is_drained = u_is_drained,
	.reset = u_reset,
	.unprocessed = u_unprocessed,
};
