/*
 * See client_h2.h. The driver reads, serves the streams that have news, and writes, until nothing
 * moves any more. Exchanges call back into the stream functions here; those only change queues, so
 * nothing nests.
 */
#include "proxy/session/client_h2.h"

#include <stdlib.h>
#include <string.h>

#include "logging/log.h"
#include "proxy/http/h2_conn.h"
#include "proxy/session/audit.h"
#include "proxy/session/h2_out.h"
#include "proxy/session/misuse.h"

struct client_h2 {
	/* owned */
	struct h2_conn *conn;
	/* borrowed */
	struct client *c;
	/* plain */
	struct turn_task kick; /* what became possible while an exchange was at work */
	size_t exchanges;      /* streams whose exchange runs */
	int64_t moved_us;      /* when the client last took bytes, or brought a request */
	bool driving;
	bool again;
	bool draining;
	bool ending; /* a GOAWAY of ours is on its way: what comes is not read */
};

/* One stream and its request. */
struct served {
	struct downstream down;
	/* owned */
	struct request request;
	struct fields trailers;
	struct exchange *exchange;
	/* borrowed */
	struct client_h2 *h;
	struct h2_stream *s;
	/* plain */
	struct log_waiter waiter;
	char id[RECORD_ID_LEN + 1];
	struct err refused; /* waits for its record */
	bool no_body;	    /* the answer's head ended the stream */
	bool relay;	    /* it has become a WebSocket */
	int64_t begun_us;
	int64_t finished_us; /* or when the client last took some of it */
	size_t waiting;	     /* of the answer, when that was looked at */
};

static const struct downstream_ops stream_ops;

static bool write_out(struct client_h2 *h);

static int64_t now_us(const struct client_h2 *h)
{
	return loop_now_us(h->c->worker->loop);
}

/* ---- the end of a stream ---- */

static void free_served(void *obj)
{
	struct served *v = obj;

	request_clear(&v->request);
	fields_clear(&v->trailers);
	free(v);
}

static void drop(struct served *v)
{
	struct client_h2 *h = v->h;

	worker_log_forget(h->c->worker, &v->waiter);
	if (v->s)
		h2_stream_free(v->s);
	v->s = NULL;
	loop_bury(h->c->worker->loop, v, free_served);
	if (h2_conn_streams(h->conn) == 0 && h->c->state == CLIENT_H2)
		timer_arm(&h->c->timer, client_h2_timer_ms(h));
}

/* ---- our own answers ---- */

static bool is_grpc(const struct request *q)
{
	const struct field *f = fields_get(&q->fields, STR("content-type"));

	return f && f->value.n >= 16 &&
	       str_eq_nocase(str_head(f->value, 16), STR("application/grpc"));
}

static void answer(struct served *v, const struct reply *reply)
{
	struct response r;
	struct h2_fields head = {0};
	struct reply out = *reply;
	struct strbuf body;
	int rc;

	out.grpc = is_grpc(&v->request);
	out.keep = true;
	strbuf_init(&body, 16384);
	rc = reply_response(&out, &r, &body);
	if (rc == 0)
		rc = h2_write_response(&r, &head);
	if (rc == 0)
		rc = h2_stream_respond(v->s, &head, body.len > 0);
	if (rc == 0 && body.len > 0) {
		rc = h2_stream_write(v->s, strbuf_str(&body));
		h2_stream_end(v->s, NULL);
	}
	if (rc < 0)
		h2_stream_cut(v->s);
	response_clear(&r);
	h2_fields_clear(&head);
	strbuf_clear(&body);
	v->finished_us = now_us(v->h);
}

static void say_refusal(struct served *v)
{
	struct reply reply = {
		.reason = v->refused.reason,
		.detail = str_from_c(v->refused.text),
		.id = str_from(v->id, RECORD_ID_LEN),
		.accept = reply_accept(&v->request),
		.head = str_eq(v->request.method, STR("HEAD")),
	};

	answer(v, &reply);
	if (v->s->closed)
		drop(v);
}

static void on_refusal_recorded(void *arg, bool written)
{
	struct served *v = arg;
	struct client *c = v->h->c;

	(void)written; /* a log that cannot be written does not hold the answer back */
	say_refusal(v);
	client_drive(c);
}

/* A request that never became an exchange. */
static void refuse(struct served *v, const struct err *e)
{
	struct client *c = v->h->c;
	uint64_t ticket;

	v->refused = *e;
	misuse_note(c->worker->snapshot, &v->request, &v->refused);
	record_new_id(v->id);
	ticket = client_record_denied(c, &v->request, v->id, &v->refused);
	v->waiter.fn = on_refusal_recorded;
	v->waiter.arg = v;
	if (!ticket || worker_log_wait(c->worker, &v->waiter, ticket))
		say_refusal(v);
}

/* ---- downstream: how an exchange sees a stream ---- */

static struct served *served_of(struct downstream *d)
{
	return CONTAINER_OF(d, struct served, down);
}

/* From outside the driver (an origin's bytes came) the frames leave at the end of the turn, with
 * those of the other streams; the exchange is at work, and what its stream may do is told then. */
static void kick(struct client_h2 *h)
{
	h->again = true;
	if (!h->driving)
		worker_at_turn_end(h->c->worker, &h->kick);
}

static void ds_flush(struct downstream *d)
{
	kick(served_of(d)->h);
}

static int ds_pull(struct downstream *d, size_t max, void (*sink)(void *arg, struct str data),
		   void *arg, bool *ret_done, struct err *e)
{
	struct served *v = served_of(d);
	struct h2_stream *s = v->s;
	struct str data;

	if (s->bad_length)
		return err_reason(e, REASON_MALFORMED_REQUEST, "DATA and Content-Length disagree");
	if (s->bad_sequence)
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "frames of a request in an order that means nothing");
	if (s->no_memory)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	/* What comes before the 200 waits in the stream's window, and is nobody's if none comes. */
	if (v->request.websocket && !v->relay) {
		*ret_done = true;
		return 0;
	}
	data = str_head(h2_stream_data(s), max);
	if (data.n > 0) {
		sink(arg, data);
		h2_stream_consume(s, data.n);
		ds_flush(d); /* the client may send on */
	}
	*ret_done = s->got_end && h2_stream_data(s).n == 0;
	if (!*ret_done && s->closed && h2_stream_data(s).n == 0)
		return err_reason(e, REASON_CLIENT_CLOSED, "the client's body was cut short");
	if (*ret_done && s->trailers && v->trailers.n == 0)
		return h2_read_trailers(s->trailers, &v->trailers, e);
	return 0;
}

static const struct fields *ds_trailers(struct downstream *d)
{
	return &served_of(d)->trailers;
}

static size_t ds_room(struct downstream *d)
{
	return h2_stream_room(served_of(d)->s);
}

static int ds_send_head(struct downstream *d, const struct response *r, bool more, struct err *e)
{
	struct served *v = served_of(d);
	struct h2_fields head;
	int rc;

	(void)more; /* a stream serves one request */
	if (h2_write_response(r, &head) < 0)
		return err_reason(e, REASON_UPSTREAM_MALFORMED, "the answer's head is too large");
	if (r->status == 101) {
		v->relay = true;
		h2_stream_connect(v->s);
		rc = h2_stream_respond(v->s, &head, true);
	} else if (r->status < 200) {
		rc = h2_stream_interim(v->s, &head);
	} else {
		v->no_body = r->body == BODY_NONE || (r->body == BODY_LENGTH && r->length == 0);
		rc = h2_stream_respond(v->s, &head, !v->no_body);
	}
	h2_fields_clear(&head);
	return rc == 0 ? 0 : err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
}

static void ds_send_body(struct downstream *d, struct str data)
{
	struct served *v = served_of(d);

	if (h2_stream_write(v->s, data) < 0)
		h2_stream_cut(v->s); /* memory is out: it must not look whole */
}

static void ds_send_end(struct downstream *d, const struct fields *trailers)
{
	struct served *v = served_of(d);
	struct h2_fields end = {0};

	if (v->no_body || v->s->out_cut)
		return;
	if (trailers && trailers->n > 0 && h2_write_trailers(trailers, &end) < 0) {
		h2_stream_cut(v->s);
		return;
	}
	h2_stream_end(v->s, &end);
}

static void ds_send_continue(struct downstream *d)
{
	struct response r = {.status = 100};
	struct err e;

	(void)ds_send_head(d, &r, false, &e);
}

static void ds_finished(struct downstream *d, enum exchange_outcome how, const struct reply *reply)
{
	struct served *v = served_of(d);
	struct client_h2 *h = v->h;

	v->exchange = NULL;
	h->exchanges--;
	v->finished_us = now_us(h);
	if (v->relay) /* its life was a tunnel's */
		v->begun_us = v->finished_us;
	switch (how) {
	case EXCHANGE_CUT: h2_stream_cut(v->s); break;
	case EXCHANGE_REFUSED: answer(v, reply); break;
	case EXCHANGE_WHOLE: break;
	}
	/* What the client still sends of its body is nobody's. */
	h2_stream_consume(v->s, h2_stream_data(v->s).n);
	if (v->s->closed)
		drop(v);
	kick(h);
}

static const struct downstream_ops stream_ops = {
	.pull = ds_pull,
	.trailers = ds_trailers,
	.room = ds_room,
	.send_head = ds_send_head,
	.send_body = ds_send_body,
	.send_end = ds_send_end,
	.send_continue = ds_send_continue,
	.flush = ds_flush,
	.finished = ds_finished,
};

/* ---- requests ---- */

static void abandon(struct served *v, enum reason why, const char *detail)
{
	struct exchange *x = v->exchange;

	v->exchange = NULL;
	v->h->exchanges--;
	exchange_abandon(x, why, detail);
	drop(v);
}

/* Memory for it is out: it is reset, and recorded with what is known of it: head, or nothing. s:
 * NULL: it is gone already. */
static void lose(struct client_h2 *h, struct h2_stream *s, struct h2_head *head)
{
	struct request q;
	struct err e = ERR_INIT;
	char id[RECORD_ID_LEN + 1];

	request_init(&q);
	if (head)
		(void)!h2_read_request(head, &h->c->where, &q, NULL);
	free(head);
	(void)err_reason(&e, REASON_OVERLOADED, "out of memory");
	record_new_id(id);
	(void)client_record_denied(h->c, &q, id, &e);
	client_request_came(h->c);
	request_clear(&q);
	h2_stream_free(s);
}

static void begin(struct client_h2 *h, struct h2_stream *s)
{
	struct h2_head *head = h2_stream_take_head(s);
	struct served *v = head ? calloc(1, sizeof(*v)) : NULL;
	struct err e = ERR_INIT;
	int rc;

	if (!head && !s->closed)
		return;
	if (!v) {
		lose(h, s, head);
		return;
	}
	v->down.ops = &stream_ops;
	v->h = h;
	v->s = s;
	s->owner = v;
	h->moved_us = v->begun_us = now_us(h);
	rc = h2_read_request(head, &h->c->where, &v->request, &e);
	free(head);
	client_request_came(h->c);
	if (rc < 0) {
		refuse(v, &e);
		return;
	}
	if (v->request.body == BODY_LENGTH)
		h2_stream_expect(s, v->request.length);
	h->exchanges++;
	v->exchange = exchange_new(h->c->worker, &v->down, &h->c->caller, &v->request);
	if (!v->exchange) {
		h->exchanges--;
		(void)err_reason(&e, REASON_OVERLOADED, "out of memory");
		refuse(v, &e);
		return;
	}
	if (s->closed && s->reset)
		abandon(v, REASON_CLIENT_CLOSED, "the client reset the stream");
	else
		exchange_drive(v->exchange);
}

static void serve(struct client_h2 *h, struct h2_stream *s)
{
	struct served *v = s->owner;

	if (!v) {
		begin(h, s);
		return;
	}
	if (s->closed && v->exchange && (s->reset || s->out_cut)) {
		abandon(v, REASON_CLIENT_CLOSED,
			s->by_peer ? "the client reset the stream" : "the stream was reset");
		return;
	}
	if (v->exchange) {
		exchange_drive(v->exchange); /* may end it, and v with it */
		return;
	}
	if (s->closed)
		drop(v);
	else
		h2_stream_consume(s, h2_stream_data(s).n);
}

/* ---- the driver ---- */

/* True: something went. */
static bool write_out(struct client_h2 *h)
{
	bool any = h2_out(h->conn, h->c->s);

	if (any)
		h->moved_us = now_us(h);
	return any;
}

/* The connection is at fault: each stream's record says so, or one of its own does. */
static void fault(struct client_h2 *h, const struct err *e)
{
	struct client *c = h->c;

	log_debug("client %s: %s", c->peer.text, e->text);
	h->ending = true;
	if (!client_h2_abandon(h, e->reason, e->text))
		client_record_fault(c, e);
	(void)write_out(h);
	client_end(c);
}

/* False: the client is closed, or on its way. */
static bool read_in(struct client_h2 *h)
{
	struct client *c = h->c;
	struct str in = stream_data(c->s);
	struct err e = ERR_INIT;
	int rc;

	/* While the client takes nothing, nothing is read from it either. */
	if (in.n == 0 || stream_room(c->s) == 0)
		return true;
	rc = h2_conn_recv(h->conn, in, now_us(h), &e);
	stream_consume(c->s, in.n);
	for (size_t lost = h2_conn_take_lost(h->conn); lost > 0; lost--)
		lose(h, NULL, NULL);
	/* Who asks, if only with half a head, has taken our certificate. */
	if (h2_conn_streams(h->conn) > 0)
		c->leaf_unproven = false;
	if (rc == 0)
		return true;
	fault(h, &e);
	return false;
}

static bool drive_once(struct client_h2 *h)
{
	struct h2_stream *s;
	struct err e = ERR_INIT;
	bool any = false;

	h->again = false;
	if (stream_data(h->c->s).n > 0)
		any = true;
	if (!read_in(h))
		return false;
	while ((s = h2_conn_ready(h->conn))) {
		any = true;
		serve(h, s);
		if (h->c->state != CLIENT_H2)
			return false;
	}
	any |= write_out(h);
	if (h2_conn_failed(h->conn, &e)) {
		fault(h, &e);
		return false;
	}
	return (any || h->again) && stream_room(h->c->s) > 0;
}

void client_h2_drive(struct client_h2 *h)
{
	struct client *c = h->c;
	bool had_streams = h2_conn_streams(h->conn) > 0;

	if (h->driving || h->ending)
		return;
	h->driving = true;
	while (drive_once(h))
		;
	h->driving = false;
	if (c->state != CLIENT_H2)
		return;
	if (stream_at_eof(c->s)) {
		client_left(c);
		return;
	}
	if (h2_conn_over(h->conn) ||
	    (h->draining && h2_conn_streams(h->conn) == 0 && !h2_conn_wants_send(h->conn))) {
		h->ending = true;
		client_end(c);
		return;
	}
	if (!had_streams && h2_conn_streams(h->conn) > 0)
		timer_arm(&c->timer, client_h2_timer_ms(h));
}

static void on_kick(void *arg)
{
	client_drive(arg);
}

struct client_h2 *client_h2_new(struct client *c)
{
	struct client_h2 *h = calloc(1, sizeof(*h));

	if (!h || h2_conn_new(true, &h->conn, NULL) < 0) {
		free(h);
		return NULL;
	}
	h->c = c;
	h->kick = (struct turn_task){.fn = on_kick, .arg = c};
	h->moved_us = now_us(h);
	return h;
}

/* ---- timers and the end ---- */

uint64_t client_h2_timer_ms(const struct client_h2 *h)
{
	if (h2_conn_streams(h->conn) > 0)
		return LIMIT_MS_H2_TICK;
	return h->c->served ? h->c->worker->snapshot->config->limits.client_idle_ms
			    : LIMIT_MS_FIRST_REQUEST;
}

/* Nobody takes the rest of its answer, or somebody does for longer than a request may last. */
static bool is_stalled(const struct served *v)
{
	int64_t now = now_us(v->h);
	uint64_t life = v->h->c->worker->snapshot->config->limits.request_life_ms;

	return !v->exchange && v->finished_us &&
	       (now - v->finished_us >= LIMIT_MS_H2_STALL * 1000LL ||
		(uint64_t)(now - v->begun_us) / 1000 >= life);
}

static void end_stalled(struct client_h2 *h)
{
	struct h2_stream *s = h2_conn_first(h->conn), *next;

	for (; s; s = next) {
		struct served *v = s->owner;

		next = h2_stream_next(s);
		if (v && v->waiting != s->out.end - s->out.start) {
			v->waiting = s->out.end - s->out.start;
			v->finished_us = v->exchange ? 0 : now_us(h);
		}
		if (!v || !is_stalled(v))
			continue;
		log_debug("client %s: stream %d: its answer is not taken", h->c->peer.text,
			  (int)s->id);
		drop(v);
	}
}

void client_h2_timer(struct client_h2 *h)
{
	struct client *c = h->c;
	int64_t since = h2_conn_head_since_us(h->conn);
	uint64_t head_ms = c->worker->snapshot->config->limits.head_ms;
	struct err e = ERR_INIT;

	if (since && now_us(h) - since > (int64_t)head_ms * 1000) {
		(void)err_reason(&e, REASON_CLIENT_TIMEOUT, "the head did not end within %llu ms",
				 (unsigned long long)head_ms);
		h2_conn_end(h->conn);
		fault(h, &e);
		return;
	}
	if (h2_conn_streams(h->conn) == 0) {
		h2_conn_end(h->conn);
		(void)write_out(h);
		if (!c->served) {
			client_close(c, REASON_CLIENT_TIMEOUT, "no request came");
			return;
		}
		h->ending = true;
		client_end(c);
		return;
	}
	if (stream_pending(c->s) > 0 && h->exchanges == 0 &&
	    now_us(h) - h->moved_us > LIMIT_MS_H2_STALL * 1000LL) {
		client_close(c, REASON_CLIENT_TIMEOUT, "the client takes nothing");
		return;
	}
	end_stalled(h);
	timer_arm(&c->timer, client_h2_timer_ms(h));
	client_drive(c);
}

void client_h2_drain(struct client_h2 *h)
{
	h->draining = true;
	h2_conn_goaway(h->conn);
	client_drive(h->c);
}

bool client_h2_abandon(struct client_h2 *h, enum reason why, const char *detail)
{
	struct h2_stream *s;
	struct err e = ERR_INIT;
	bool any = false;

	(void)err_reason(&e, why, "%s", detail);
	while ((s = h2_conn_first(h->conn))) {
		struct served *v = s->owner;

		if (!v) {
			/* A head that came, or was coming, and was not looked at. */
			any = true;
			client_record_fault(h->c, &e);
			h2_stream_free(s);
		} else if (v->exchange) {
			any = true;
			abandon(v, why, detail);
		} else {
			drop(v);
		}
	}
	worker_turn_forget(h->c->worker, &h->kick);
	return any;
}

void client_h2_free(struct client_h2 *h)
{
	if (!h)
		return;
	worker_turn_forget(h->c->worker, &h->kick);
	h2_conn_free(h->conn);
	free(h);
}
