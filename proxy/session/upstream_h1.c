/*
 * One HTTP/1.1 connection to an origin as the upstream of one exchange; see upstream.h. A
 * connection that was left clean goes back to the pool.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "certs/trust.h"
#include "proxy/http/body.h"
#include "proxy/http/h1.h"
#include "proxy/session/h1_out.h"
#include "proxy/session/pull.h"
#include "proxy/session/upstream.h"

/* Memory of those that ended, which a worker keeps. Not where use after free is looked for. */
#define SPARES_MAX 32

struct upstream_h1 {
	struct upstream up;
	/* owned */
	struct stream *s;
	struct strbuf head; /* written, waiting for the first body bytes */
	struct body_reader body;
	/* borrowed */
	struct worker *worker;
	struct upstream_h1 *next; /* worker->h1_spares */
	void (*on_event)(void *arg);
	void *arg;
	/* plain */
	struct str method; /* in method_buf */
	struct h1_scan scan;
	struct upstream_place place; /* its key is the exchange's */
	bool reused;
	bool chunked; /* the request's body, as we write it */
	bool sent_end;
	bool answered;
	bool last;	 /* we said that no other request follows */
	bool keep;	 /* the answer allows another request */
	uint32_t idle_s; /* behind which the origin closes; 0: it does not say */
	bool got_end;
	bool relay; /* it has become another protocol's connection */
	bool failed;
	bool deaf; /* nothing that is sent arrives */
	/* What follows is not zeroed as a whole. */
	struct err tls_error; /* explained while OpenSSL's queue was still there */
	char method_buf[LIMIT_METHOD_BYTES];
};

static struct upstream_h1 *h1_of(const struct upstream *up)
{
	return CONTAINER_OF(up, struct upstream_h1, up);
}

static void on_stream(void *arg, unsigned events)
{
	struct upstream_h1 *u = arg;

	u->deaf |= (events & STREAM_ERROR) != 0;
	/* What was read up to a clean end is whole, even if what is written then meets nobody. */
	if ((events & STREAM_ERROR) && !stream_at_eof(u->s)) {
		u->failed = true;
		/* A late alert has its own words; an end without close_notify is just an end. */
		if (stream_error_is_tls(u->s) && !stream_was_cut(u->s))
			(void)trust_explain(stream_ssl(u->s), &u->tls_error);
	}
	if (stream_data(u->s).n > 0)
		u->answered = true;
	u->on_event(u->arg);
}

static const struct upstream_ops ops;

static struct upstream_h1 *take_memory(struct worker *w)
{
	struct upstream_h1 *u = w->h1_spares;

	if (!u)
		return malloc(sizeof(*u));
	w->h1_spares = u->next;
	w->h1_spares_n--;
	return u;
}

void upstream_h1_free_spares(struct worker *w)
{
	while (w->h1_spares) {
		struct upstream_h1 *u = w->h1_spares;

		w->h1_spares = u->next;
		free(u);
	}
	w->h1_spares_n = 0;
}

int upstream_h1_new(struct worker *w, struct stream *s, bool reused,
		    const struct upstream_place *place, void (*on_event)(void *arg), void *arg,
		    struct upstream **ret, struct err *e)
{
	struct upstream_h1 *u = take_memory(w);

	if (!u) {
		stream_close(s);
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	}
	memset(u, 0, offsetof(struct upstream_h1, tls_error));
	u->tls_error = ERR_INIT;
	u->up.ops = &ops;
	u->s = s;
	u->worker = w;
	u->place = *place;
	u->reused = reused;
	u->on_event = on_event;
	u->arg = arg;
	u->scan.response = true;
	upstream_note_tls(&u->up, s);
	strbuf_init(&u->head, LIMIT_HEAD_BYTES * 2);
	body_reader_init(&u->body, BODY_NONE, 0);
	stream_set_owner(s, on_stream, u);
	*ret = &u->up;
	return 0;
}

static void free_upstream(void *obj)
{
	struct upstream_h1 *u = obj;
	struct worker *w = u->worker;

	spare_text_wipe(&w->spare_texts, &u->head); /* it held the credential */
	body_reader_clear(&u->body);
	if (!HAS_ADDRESS_SANITIZER && w->h1_spares_n < SPARES_MAX) {
		u->next = w->h1_spares;
		w->h1_spares = u;
		w->h1_spares_n++;
	} else {
		free(u);
	}
}

static void u_close(struct upstream *up)
{
	struct upstream_h1 *u = h1_of(up);

	stream_close(u->s);
	loop_bury(u->worker->loop, u, free_upstream);
}

static void u_reset(struct upstream *up)
{
	struct upstream_h1 *u = h1_of(up);

	stream_reset(u->s);
	loop_bury(u->worker->loop, u, free_upstream);
}

/* A second less than the origin said, as its end and our request could meet on the way: a request
 * that must not be repeated would be lost by that. */
static uint64_t idle_ms(uint32_t said_s)
{
	return said_s > 1 ? 1000 * ((uint64_t)said_s - 1) : said_s * 500;
}

static void u_release(struct upstream *up)
{
	struct upstream_h1 *u = h1_of(up);
	struct stream *s = u->s;

	if (u->failed || !u->keep || !u->got_end || !u->sent_end)
		stream_close(s);
	else /* which looks whether it is quiet */
		pool_put(u->worker->pool, u->place.key, s, &u->place.addr, u->place.port,
			 idle_ms(u->idle_s));
	loop_bury(u->worker->loop, u, free_upstream);
}

static int u_send_head(struct upstream *up, const struct request *r, const struct injection *inj,
		       struct err *e)
{
	struct upstream_h1 *u = h1_of(up);

	if (r->method.n > sizeof(u->method_buf))
		return err_reason(e, REASON_INTERNAL_ERROR, "the method is too long");
	for (size_t i = 0; i < r->method.n; i++)
		u->method_buf[i] = r->method.p[i];
	u->method = str_from(u->method_buf, r->method.n);
	spare_text_lend(&u->worker->spare_texts, &u->head);
	if (h1_write_request(r, inj ? &inj->extra : NULL, inj ? strbuf_str(&inj->query) : STR_NONE,
			     &u->head) < 0)
		return err_reason(e, REASON_INTERNAL_ERROR, "the head has no room");
	u->chunked = r->body == BODY_CHUNKED;
	u->last = request_has_odd_body(r);
	return 0;
}

static size_t u_room(const struct upstream *up)
{
	const struct upstream_h1 *u = h1_of(up);

	return stream_room(u->s);
}

/* It may hold the credential. */
static void let_go_of_head(struct upstream_h1 *u)
{
	if (u->head.len > 0)
		spare_text_wipe(&u->worker->spare_texts, &u->head);
}

static void u_send_body(struct upstream *up, struct str data)
{
	struct upstream_h1 *u = h1_of(up);

	if (data.n == 0)
		return;
	h1_out_body(u->s, &u->head, u->chunked, data);
	let_go_of_head(u);
}

static void u_send_end(struct upstream *up, const struct fields *trailers)
{
	struct upstream_h1 *u = h1_of(up);

	u->sent_end = true;
	if (u->relay)
		stream_shutdown(u->s);
	if (!u->chunked)
		return;
	h1_out_end(u->s, &u->head, trailers);
	let_go_of_head(u);
}

static void u_flush(struct upstream *up)
{
	struct upstream_h1 *u = h1_of(up);

	if (u->head.len == 0)
		return;
	stream_write(u->s, strbuf_str(&u->head));
	let_go_of_head(u);
}

/* What to say of a connection that ended before the answer did. */
static int ended(struct upstream_h1 *u, struct err *e)
{
	if (u->tls_error.reason != REASON_NONE) {
		if (e)
			*e = u->tls_error;
		return -1;
	}
	return err_reason(e, REASON_UPSTREAM_CLOSED, "the origin closed the connection %s%s%s",
			  u->answered ? "in the middle of its answer" : "without an answer",
			  u->failed ? ": " : "", u->failed ? stream_error(u->s)->text : "");
}

static int u_read_head(struct upstream *up, struct response *ret, struct err *e)
{
	struct upstream_h1 *u = h1_of(up);
	struct str in = stream_data(u->s);
	size_t len = 0;
	int r = in.n > 0 ? h1_scan_head(&u->scan, in, LIMIT_HEAD_BYTES, &len, e) : 0;

	if (r < 0) {
		if (e)
			e->reason = REASON_UPSTREAM_MALFORMED;
		return -1;
	}
	if (r == 0)
		return u->failed || stream_at_eof(u->s) ? ended(u, e) : 0;
	response_init(ret);
	if (h1_parse_response(str_head(in, len), u->method, ret, e) < 0) {
		response_clear(ret);
		if (e)
			e->reason = REASON_UPSTREAM_MALFORMED;
		return -1;
	}
	stream_consume(u->s, len);
	u->scan = (struct h1_scan){.response = true};
	if (ret->status >= 200) {
		u->keep = ret->keep_alive && !u->last;
		u->idle_s = ret->idle_s;
		body_reader_clear(&u->body);
		body_reader_init(&u->body, ret->body, ret->length);
		u->body.padded_sizes = true;
		if (ret->body == BODY_NONE || (ret->body == BODY_LENGTH && ret->length == 0))
			u->got_end = true;
	}
	return 1;
}

static int u_pull(struct upstream *up, size_t max, void (*sink)(void *arg, struct str data),
		  void *arg, bool *ret_done, struct err *e)
{
	struct upstream_h1 *u = h1_of(up);

	if (u->got_end) {
		*ret_done = true;
		return 0;
	}
	if (pull_body(u->s, &u->body, &max, sink, arg, e) < 0) {
		if (e)
			e->reason = REASON_UPSTREAM_MALFORMED;
		return -1;
	}
	/* A WebSocket says its own end, and many close beneath it without TLS's. */
	if (!u->body.done && stream_data(u->s).n == 0 &&
	    ((stream_at_eof(u->s) && !u->failed) || (u->relay && stream_was_cut(u->s))) &&
	    body_eof(&u->body, NULL) == 0)
		u->body.done = true;
	u->got_end = u->body.done;
	*ret_done = u->got_end;
	if (!u->got_end && (u->failed || stream_at_eof(u->s)) && max >= PULL_MIN_ROOM)
		return ended(u, e);
	return 0;
}

static void u_relay(struct upstream *up)
{
	struct upstream_h1 *u = h1_of(up);

	u->relay = true;
	u->keep = false;
	u->got_end = false;
	body_reader_clear(&u->body);
	body_reader_init(&u->body, BODY_CLOSE, 0);
}

static bool u_is_drained(const struct upstream *up)
{
	const struct upstream_h1 *u = h1_of(up);

	return u->deaf || stream_pending(u->s) == 0;
}

static const struct fields *u_trailers(const struct upstream *up)
{
	const struct upstream_h1 *u = h1_of(up);

	return &u->body.trailers;
}

static bool u_answered(const struct upstream *up)
{
	const struct upstream_h1 *u = h1_of(up);

	return u->answered;
}

static bool u_reused(const struct upstream *up)
{
	const struct upstream_h1 *u = h1_of(up);

	return u->reused;
}

static bool u_is_quiet(const struct upstream *up)
{
	const struct upstream_h1 *u = h1_of(up);

	return !u->failed && !u->answered && !stream_at_eof(u->s) && stream_data(u->s).n == 0;
}

/* Of a connection that just ends nobody can say. */
static bool u_unprocessed(const struct upstream *up)
{
	(void)up;
	return false;
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
