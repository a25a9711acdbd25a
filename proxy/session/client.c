/*
 * The client connection; see client.h, and client_drive below.
 */
#include "proxy/session/client.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "certs/clientfail.h"
#include "logging/log.h"
#include "proxy/session/audit.h"
#include "proxy/session/caller_memo.h"
#include "proxy/session/client_h2.h"
#include "proxy/session/misuse.h"
#include "proxy/session/client_token.h"
#include "proxy/session/identity.h"
#include "proxy/session/pull.h"
#include "proxy/session/transparent.h"

static const struct downstream_ops client_ops;

static void on_timer(void *arg);
static void refuse_unknown(struct client *c, const struct err *e);

static const struct config_limits *limits(const struct client *c)
{
	return &c->worker->snapshot->config->limits;
}

/* ---- state ---- */

#define TO(s) (1u << CLIENT_##s)

void client_goto(struct client *c, enum client_state to)
{
	static const unsigned legal[] = {
		[CLIENT_ACCEPTED] = TO(IDLE) | TO(PEEK) | TO(TUNNEL) | TO(REFUSE) | TO(CLOSED),
		[CLIENT_IDLE] = TO(HEAD) | TO(LINGER) | TO(CLOSED),
		[CLIENT_TOKEN] = TO(HEAD) | TO(CLOSED),
		[CLIENT_HEAD] = TO(TOKEN) | TO(IDLE) | TO(EXCHANGE) | TO(PEEK) | TO(TUNNEL) |
				TO(REFUSE) | TO(LINGER) | TO(CLOSED),
		[CLIENT_EXCHANGE] = TO(IDLE) | TO(REFUSE) | TO(LINGER) | TO(CLOSED),
		[CLIENT_PEEK] =
			TO(LEAF) | TO(TUNNEL) | TO(IDLE) | TO(REFUSE) | TO(LINGER) | TO(CLOSED),
		[CLIENT_LEAF] = TO(TLS) | TO(CLOSED) | TO(LINGER),
		[CLIENT_TLS] = TO(IDLE) | TO(H2) | TO(CLOSED),
		[CLIENT_H2] = TO(LINGER) | TO(CLOSED),
		[CLIENT_TUNNEL] = TO(LINGER) | TO(CLOSED),
		[CLIENT_REFUSE] = TO(LINGER) | TO(CLOSED),
		[CLIENT_LINGER] = TO(CLOSED),
		[CLIENT_CLOSED] = 0,
	};
	static const char *const names[] = {"accepted", "idle",	  "head",  "token", "exchange",
					    "peek",	"leaf",	  "tls",   "h2",    "tunnel",
					    "refuse",	"linger", "closed"};

	if (!(legal[c->state] & 1u << to)) {
		log_error("client %s: no way from %s to %s", c->peer.text, names[c->state],
			  names[to]);
		abort();
	}
	log_debug("client %s: %s -> %s", c->peer.text, names[c->state], names[to]);
	if (c->state == CLIENT_TOKEN)
		TAILQ_REMOVE(&c->worker->askers, c, asker);
	c->state = to;
	switch (to) {
	case CLIENT_IDLE:
		timer_arm(&c->timer,
			  c->served ? limits(c)->client_idle_ms : LIMIT_MS_FIRST_REQUEST);
		break;
	case CLIENT_HEAD: timer_arm(&c->timer, limits(c)->head_ms); break;
	case CLIENT_TOKEN:
		TAILQ_INSERT_TAIL(&c->worker->askers, c, asker);
		timer_arm(&c->timer, LIMIT_MS_STATE_ASK);
		break;
	case CLIENT_PEEK: timer_arm(&c->timer, limits(c)->peek_ms); break;
	case CLIENT_LEAF:
	case CLIENT_TLS: timer_arm(&c->timer, LIMIT_MS_CLIENT_TLS); break;
	case CLIENT_H2: timer_arm(&c->timer, client_h2_timer_ms(c->h2)); break;
	case CLIENT_LINGER: timer_arm(&c->timer, LIMIT_MS_LINGER); break;
	case CLIENT_EXCHANGE: /* the exchange's timers */
	case CLIENT_TUNNEL:   /* the tunnel's */
	case CLIENT_REFUSE:   /* the worker's, for all that wait for the log; or its own (refuse) */
	case CLIENT_ACCEPTED:
	case CLIENT_CLOSED: timer_stop(&c->timer); break;
	}
}

/* As much of a head as came, for the record of one that never became a request. */
static void note_partial_head(struct client *c)
{
	struct str in = str_head(stream_data(c->s), LIMIT_HEAD_BYTES);

	if (c->request.method.n == 0 && c->request.raw_target.n == 0 && in.n > 0)
		(void)!h1_parse_request(in, &c->where, &c->request, NULL);
}

/* ---- records of what never became an exchange or a tunnel ---- */

/* q: of a request.deny. */
static uint64_t record_refused(struct client *c, enum record_event event, const char *id,
			       enum scheme scheme, const struct request *q, const struct err *e)
{
	struct snapshot *s = c->worker->snapshot;
	struct identity who = identity_of(&c->caller, s);
	struct record r;
	struct audit_mem m;

	audit_init(&r, &m, event);
	r.id = str_from(id, RECORD_ID_LEN);
	audit_caller(&r, &c->caller, &who);
	audit_policy(&r, who.policy);
	if (event == RECORD_TUNNEL_DENY) {
		audit_target(&r, scheme, &c->connect->host, c->connect->port);
		audit_rule(&r, &m, c->connect->may.deny);
		r.status = c->state == CLIENT_HEAD ? (unsigned)reason_status(e->reason) : 0;
	} else {
		audit_request(&r, q);
		if (c->where.in_tunnel && r.host.n == 0) {
			r.scheme = str_from_c(scheme_word(c->where.scheme));
			r.host = host_str(&c->where.host);
			r.port = c->where.port;
		}
		r.status = (unsigned)reason_status(e->reason);
	}
	audit_decision(&r, false, e->reason);
	r.error_detail = str_from_c(e->text);
	return worker_log(c->worker, &r, false);
}

static uint64_t record_denied(struct client *c, enum record_event event, const char *id,
			      enum scheme scheme, const struct err *e)
{
	if (event == RECORD_REQUEST_DENY)
		note_partial_head(c);
	return record_refused(c, event, id, scheme, &c->request, e);
}

uint64_t client_record_denied(struct client *c, const struct request *q, const char *id,
			      const struct err *e)
{
	return record_refused(c, RECORD_REQUEST_DENY, id, SCHEME_NONE, q, e);
}

void client_record_fault(struct client *c, const struct err *e)
{
	struct request none;
	char id[RECORD_ID_LEN + 1];

	request_init(&none);
	record_new_id(id);
	(void)client_record_denied(c, &none, id, e);
	if (c->connect)
		c->connect->pending = false;
}

void client_request_came(struct client *c)
{
	c->served = true;
	c->leaf_unproven = false;
	if (c->connect)
		c->connect->pending = false;
}

/* ---- the end ---- */

static void drop_connect(struct client *c)
{
	if (!c->connect)
		return;
	snapshot_unref(c->connect->snapshot);
	free(c->connect);
	c->connect = NULL;
}

static void free_client(void *obj)
{
	struct client *c = obj;

	request_clear(&c->request);
	body_reader_clear(&c->body);
	strbuf_clear(&c->head);
	client_h2_free(c->h2);
	free(c->refusal);
	free(c->tls_sni);
	drop_connect(c);
	sandbox_unref(c->caller.sandbox);
	caller_memo_free(c->caller.memo);
	free(c);
}

static void unlink_client(struct client *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		c->worker->clients = c->next;
	if (c->next)
		c->next->prev = c->prev;
}

/* The record of what this close leaves unfinished, if anything. */
static void record_unfinished(struct client *c, enum reason why, const char *detail)
{
	char id[RECORD_ID_LEN + 1];
	struct err e = ERR_INIT;

	(void)err_reason(&e, why == REASON_NONE ? REASON_CLIENT_CLOSED : why, "%s",
			 detail ? detail : "the client closed the connection");
	if (c->exchange) {
		exchange_abandon(c->exchange, e.reason, e.text);
		c->exchange = NULL;
	} else if (c->tunnel) {
		tunnel_close(c->tunnel, e.reason, e.text);
		c->tunnel = NULL;
	} else if (c->h2) {
		(void)client_h2_abandon(c->h2, e.reason, e.text);
	} else if (c->state == CLIENT_HEAD || c->state == CLIENT_TOKEN) {
		record_new_id(id);
		(void)record_denied(c, RECORD_REQUEST_DENY, id, SCHEME_NONE, &e);
		if (c->connect)
			c->connect->pending = false;
	}
	if (c->connect && c->connect->pending) {
		c->connect->pending = false;
		if (!c->connect->may.allow)
			connect_denial(c, &e);
		(void)record_denied(c, RECORD_TUNNEL_DENY, c->connect->id, SCHEME_NONE, &e);
	}
}

void client_close(struct client *c, enum reason why, const char *detail)
{
	/* As in ds_finished: an answer that ends with the connection must not end here. */
	bool cut = c->exchange && c->until_close;

	if (c->state == CLIENT_CLOSED)
		return;
	record_unfinished(c, why, detail);
	client_goto(c, CLIENT_CLOSED);
	/* NULL once a tunnel took it */
	if (cut)
		stream_reset(c->s);
	else
		stream_close(c->s);
	c->s = NULL;
	timer_clear(&c->timer);
	worker_log_forget(c->worker, &c->waiter);
	desk_forget(c->worker->desk, &c->leaf);
	unlink_client(c);
	listener_counts_leave(c->caller.entrance->counts, &c->peer);
	client_token_leave(c);
	loop_bury(c->worker->loop, c, free_client);
	worker_client_gone(c->worker);
}

/* Half-closes after what is pending; what the client still sends is dropped, so that no reset
 * destroys the answer on its way. */
static void linger(struct client *c)
{
	if (c->state == CLIENT_CLOSED)
		return;
	client_goto(c, CLIENT_LINGER);
	stream_shutdown(c->s);
	stream_resume(c->s);
	client_drive(c);
}

void client_end(struct client *c)
{
	linger(c);
}

/* Whoever sends more than is dropped is held up until the timer, not cut off: a client whose writes
 * fail gives up before it has read the answer. */
static void linger_on(struct client *c)
{
	c->lingered += stream_data(c->s).n;
	stream_consume(c->s, stream_data(c->s).n);
	if (stream_at_eof(c->s))
		client_close(c, REASON_NONE, NULL);
	else if (c->lingered > LIMIT_LINGER_BYTES)
		stream_pause(c->s);
}

void client_answer(struct client *c, const struct reply *r, bool keep)
{
	struct reply out = *r;
	struct strbuf b;

	strbuf_init(&b, 16384);
	out.keep = keep;
	reply_write(&out, &b);
	stream_write(c->s, strbuf_str(&b));
	strbuf_clear(&b);
	if (!keep)
		linger(c);
}

static void answer_error(struct client *c, const struct err *e, const char *id, bool keep)
{
	struct reply r = {
		.reason = e->reason,
		.detail = str_from_c(e->text),
		.id = str_from(id, RECORD_ID_LEN),
		.accept = reply_accept(&c->request),
		.head = str_eq(c->request.method, STR("HEAD")),
	};

	client_answer(c, &r, keep);
}

static void say_refusal(struct client *c)
{
	struct client_refusal *r = c->refusal;

	c->refusal = NULL;
	if (r->answer)
		answer_error(c, &r->e, r->id, false);
	else
		linger(c);
	free(r);
}

static void on_refusal_recorded(void *arg, bool written)
{
	struct client *c = arg;

	(void)written; /* a log that cannot be written does not hold the answer back */
	c->refusal->recorded = true;
	if (!c->refusal->held)
		say_refusal(c);
}

/* The record of a refusal reaches the kernel before the client hears of it. */
static void refuse(struct client *c, const struct err *e, const char *id, bool answer,
		   uint64_t ticket)
{
	c->refusal = calloc(1, sizeof(*c->refusal));
	if (!c->refusal) {
		client_close(c, REASON_NONE, NULL);
		return;
	}
	c->refusal->e = *e;
	c->refusal->answer = answer;
	c->refusal->held = c->hold_ms > 0;
	memcpy(c->refusal->id, id, sizeof(c->refusal->id));
	client_goto(c, CLIENT_REFUSE);
	if (c->hold_ms > 0)
		timer_arm(&c->timer, c->hold_ms);
	c->waiter.fn = on_refusal_recorded;
	c->waiter.arg = c;
	if (!ticket || worker_log_wait(c->worker, &c->waiter, ticket))
		on_refusal_recorded(c, true);
}

void client_deny_connect(struct client *c, enum scheme scheme, const struct err *e, bool answer)
{
	uint64_t ticket = record_denied(c, RECORD_TUNNEL_DENY, c->connect->id, scheme, e);

	c->connect->pending = false;
	refuse(c, e, c->connect->id, answer, ticket);
}

/* A head that could not be read: refuse, and never guess where the next request begins. */
static void refuse_head(struct client *c, const struct err *e)
{
	char id[RECORD_ID_LEN + 1];
	struct err why = *e;
	uint64_t ticket;

	misuse_note(c->worker->snapshot, &c->request, &why);
	record_new_id(id);
	if (c->connect)
		c->connect->pending = false;
	ticket = record_denied(c, RECORD_REQUEST_DENY, id, SCHEME_NONE, &why);
	refuse(c, &why, id, true, ticket);
}

/* The time of a refusal that is held back is over. */
static void let_refusal_go(struct client *c)
{
	c->refusal->held = false;
	if (c->refusal->recorded)
		say_refusal(c);
}

static void on_timer(void *arg)
{
	struct client *c = arg;
	struct err e = ERR_INIT;

	switch (c->state) {
	case CLIENT_IDLE: client_close(c, REASON_CLIENT_TIMEOUT, "no request came"); return;
	case CLIENT_HEAD:
		(void)err_reason(&e, REASON_CLIENT_TIMEOUT, "the head did not end within %llu ms",
				 (unsigned long long)limits(c)->head_ms);
		refuse_head(c, &e);
		return;
	case CLIENT_TOKEN:
		client_goto(c, CLIENT_HEAD);
		c->asked = 0;
		(void)err_reason(&e, REASON_STATE_UNAVAILABLE,
				 "the shared state did not say in time whose token it is");
		refuse_unknown(c, &e);
		return;
	case CLIENT_PEEK:
		client_close(c, REASON_CLIENT_TIMEOUT, "nothing that could be judged came");
		return;
	case CLIENT_LEAF:
	case CLIENT_TLS:
		client_close(c, REASON_CLIENT_TIMEOUT, "the TLS handshake did not end in time");
		return;
	case CLIENT_H2: client_h2_timer(c->h2); return;
	case CLIENT_LINGER: client_close(c, REASON_NONE, NULL); return;
	case CLIENT_REFUSE: let_refusal_go(c); return;
	case CLIENT_ACCEPTED:
	case CLIENT_EXCHANGE:
	case CLIENT_TUNNEL:
	case CLIENT_CLOSED: return;
	}
}

/* ---- requests ---- */

static void next_request(struct client *c)
{
	request_clear(&c->request);
	body_reader_clear(&c->body);
	c->scan = (struct h1_scan){0};
}

static void start_exchange(struct client *c)
{
	struct request *q = &c->request;

	if (c->connect)
		c->connect->pending = false; /* the request inside speaks for it from here on */
	c->keep = q->keep_alive && !c->worker->draining;
	body_reader_init(&c->body, q->body, q->length);
	client_goto(c, CLIENT_EXCHANGE);
	c->exchange = exchange_new(c->worker, &c->down, &c->caller, q);
	if (!c->exchange) {
		struct err e = ERR_INIT;

		(void)err_reason(&e, REASON_OVERLOADED, "out of memory");
		refuse_head(c, &e);
		return;
	}
	exchange_drive(c->exchange);
}

/* Who is calling is not known, or may not call any more. */
static void refuse_unknown(struct client *c, const struct err *e)
{
	if (c->request.form == TARGET_AUTHORITY)
		connect_refuse(c, e);
	else
		refuse_head(c, e);
}

/* The head is whole, in CLIENT_HEAD. */
static void serve_head(struct client *c)
{
	struct err e = ERR_INIT;
	/* Within a tunnel the token of its CONNECT holds, and the field is not ours. */
	int known = c->where.in_tunnel ? 0 : client_identify(c, &c->hold_ms, &e);

	if (known > 0)
		client_goto(c, CLIENT_TOKEN);
	else if (known < 0)
		refuse_unknown(c, &e);
	else if (c->request.form == TARGET_AUTHORITY)
		connect_start(c);
	else
		start_exchange(c);
}

/* True: there is an answer. */
static bool look_for_token(struct client *c)
{
	if (state_answer(c->worker->state, c->asked) == STATE_PENDING)
		return false;
	client_goto(c, CLIENT_HEAD);
	serve_head(c);
	return true;
}

/* Empty lines behind a request's body or before the next one (RFC 9112 section 2.2): nothing has
 * begun yet. */
static bool is_blank(struct str in)
{
	if (in.n > 2 * LIMIT_EMPTY_LINES)
		return false;
	for (size_t i = 0; i < in.n; i++)
		if (in.p[i] != (i % 2 ? '\n' : '\r'))
			return false;
	return true;
}

/* True: a head was taken and something began. */
static bool read_head(struct client *c)
{
	struct str in = stream_data(c->s);
	struct err e = ERR_INIT;
	size_t len = 0;
	int r;

	if (c->state == CLIENT_IDLE && is_blank(in))
		return false;
	if (c->state == CLIENT_IDLE) {
		client_goto(c, CLIENT_HEAD);
		c->served = true;
		c->leaf_unproven = false;
	}
	r = h1_scan_head(&c->scan, in, limits(c)->head_bytes, &len, &e);
	if (r == 0)
		return false;
	/* As far as it was read, for the record. */
	if (r > 0)
		r = h1_parse_request(str_head(in, len), &c->where, &c->request, &e);
	if (r < 0) {
		if (!c->where.in_tunnel)
			client_identify_quietly(c);
		refuse_head(c, &e);
		return true;
	}
	stream_consume(c->s, len);
	c->scan = (struct h1_scan){0};
	serve_head(c);
	return true;
}

void client_left(struct client *c)
{
	client_close(c, REASON_CLIENT_CLOSED,
		     c->leaf_unproven ? "the client closed the connection without a request (some "
					"do so when they do not trust the CA: `stile ca bundle`)"
				      : NULL);
}

/* The client says no more. Whoever stopped in the middle of a head may still be listening. */
static void end_of_input(struct client *c)
{
	struct err e = ERR_INIT;

	if (c->state == CLIENT_HEAD) {
		(void)err_reason(&e, REASON_CLIENT_CLOSED,
				 "the client closed the connection in the middle of a head");
		refuse_head(c, &e);
		return;
	}
	client_left(c);
}

/* One step. True: another may be possible. */
static bool step(struct client *c)
{
	switch (c->state) {
	case CLIENT_IDLE:
	case CLIENT_HEAD:
		if (read_head(c))
			return true;
		if (stream_at_eof(c->s))
			end_of_input(c);
		return false;
	case CLIENT_TOKEN: return look_for_token(c);
	case CLIENT_EXCHANGE:
		if (c->exchange)
			exchange_drive(c->exchange);
		return c->state != CLIENT_EXCHANGE;
	case CLIENT_PEEK: {
		connect_peek(c);
		if (c->state == CLIENT_PEEK && stream_at_eof(c->s))
			client_close(c, REASON_CLIENT_CLOSED, NULL);
		return c->state != CLIENT_PEEK;
	}
	case CLIENT_H2: client_h2_drive(c->h2); return c->state != CLIENT_H2;
	case CLIENT_LINGER: linger_on(c); return false;
	case CLIENT_ACCEPTED:
	case CLIENT_LEAF:
	case CLIENT_TLS:
	case CLIENT_TUNNEL:
	case CLIENT_REFUSE:
	case CLIENT_CLOSED: return false;
	}
	return false;
}

void client_drive(struct client *c)
{
	/* What a step calls may lead back here; the outer loop takes it up, so a pipeline of many
	 * requests does not nest. */
	if (c->driving)
		return;
	c->driving = true;
	while (c->state != CLIENT_CLOSED && step(c))
		;
	c->driving = false;
}

static void on_stream(void *arg, unsigned events)
{
	struct client *c = arg;

	if (events & STREAM_ERROR) {
		if (c->state == CLIENT_TLS || c->leaf_unproven)
			intercept_failed(c);
		else
			client_close(c, REASON_CLIENT_CLOSED, "the client reset the connection");
		return;
	}
	if (events & STREAM_HANDSHAKED)
		intercept_handshaked(c);
	client_drive(c);
}

/* ---- downstream: how an exchange sees an HTTP/1 client ---- */

static struct client *client_of(struct downstream *d)
{
	return CONTAINER_OF(d, struct client, down);
}

static int ds_pull(struct downstream *d, size_t max, void (*sink)(void *arg, struct str data),
		   void *arg, bool *ret_done, struct err *e)
{
	struct client *c = client_of(d);

	if (pull_body(c->s, &c->body, &max, sink, arg, e) < 0)
		return -1;
	if (c->upgraded && stream_at_eof(c->s) && stream_data(c->s).n == 0)
		(void)!body_eof(&c->body, NULL);
	*ret_done = c->body.done;
	if (!c->body.done && stream_at_eof(c->s) && max >= PULL_MIN_ROOM)
		return err_reason(e, REASON_CLIENT_CLOSED, "the client's body was cut short");
	return 0;
}

static const struct fields *ds_trailers(struct downstream *d)
{
	return &client_of(d)->body.trailers;
}

static size_t ds_room(struct downstream *d)
{
	return stream_room(client_of(d)->s);
}

static int ds_send_head(struct downstream *d, const struct response *r, bool more, struct err *e)
{
	struct client *c = client_of(d);
	struct response out = *r;
	bool final = r->status >= 200;

	if (r->status == 101) {
		c->upgraded = true;
		c->until_close = true;
		c->keep = false;
		body_reader_clear(&c->body);
		body_reader_init(&c->body, BODY_CLOSE, 0);
	} else if (final) {
		c->keep = c->keep && !more && !c->worker->draining;
		/* What ends with the origin's connection gets an end of its own here, so that a cut
		 * cannot pass for one. */
		if (out.body == BODY_CLOSE)
			out.body = BODY_CHUNKED;
		c->chunked = out.body == BODY_CHUNKED && c->request.version == HTTP_11;
		c->until_close = out.body == BODY_CHUNKED && !c->chunked;
		if (c->until_close)
			c->keep = false;
	} else if (c->request.version != HTTP_11) {
		return 0; /* HTTP/1.0 knows no interim answers (RFC 9110 section 15.2) */
	}
	spare_text_lend(&c->worker->spare_texts, &c->head);
	if (h1_write_response(&out, c->request.version, c->keep, &c->head) < 0)
		return err_reason(e, REASON_UPSTREAM_MALFORMED, "the answer's head is too large");
	return 0;
}

static ATTR_INLINE void send_parts(struct client *c, struct str a, struct str b, struct str z)
{
	struct iovec v[4];
	int n = stream_part(v, 0, strbuf_str(&c->head));

	n = stream_part(v, n, a);
	n = stream_part(v, n, b);
	n = stream_part(v, n, z);
	if (n > 0)
		stream_writev(c->s, v, n);
	spare_text_return(&c->worker->spare_texts, &c->head);
}

static void ds_send_body(struct downstream *d, struct str data)
{
	struct client *c = client_of(d);
	char size[BODY_CHUNK_HEAD_MAX];

	if (data.n == 0)
		return;
	if (c->chunked)
		send_parts(c, str_from(size, body_chunk_head(data.n, size)), data, STR("\r\n"));
	else
		send_parts(c, data, STR_NONE, STR_NONE);
}

static void ds_send_end(struct downstream *d, const struct fields *trailers)
{
	struct client *c = client_of(d);
	struct strbuf end;

	if (c->upgraded)
		stream_shutdown(c->s);
	if (!c->chunked)
		return;
	strbuf_init(&end, LIMIT_TRAILER_BYTES * 2);
	body_chunk_end(trailers, &end);
	send_parts(c, strbuf_str(&end), STR_NONE, STR_NONE);
	strbuf_clear(&end);
}

static void ds_send_continue(struct downstream *d)
{
	struct client *c = client_of(d);

	if (c->request.version == HTTP_11)
		stream_write(c->s, reply_continue());
}

static void ds_flush(struct downstream *d)
{
	struct client *c = client_of(d);

	if (c->head.len > 0)
		send_parts(c, STR_NONE, STR_NONE, STR_NONE);
}

static void ds_finished(struct downstream *d, enum exchange_outcome how, const struct reply *reply)
{
	struct client *c = client_of(d);
	/* A body that was not read to its end leaves no place where a next request could begin. */
	bool keep = c->keep && c->body.done && !c->worker->draining;

	c->exchange = NULL;
	switch (how) {
	case EXCHANGE_CUT:
		/* A missing end of the framing says it; an answer that ends with the connection
		 * (HTTP/1.0) needs a reset, or it would pass for a whole one. */
		if (c->until_close) {
			stream_reset(c->s);
			c->s = NULL;
		}
		client_close(c, REASON_NONE, NULL);
		return;
	case EXCHANGE_REFUSED:
		strbuf_clear(&c->head);
		client_answer(c, reply, keep);
		if (!keep)
			return;
		break;
	case EXCHANGE_WHOLE:
		if (!keep) {
			linger(c);
			return;
		}
		break;
	}
	next_request(c);
	client_goto(c, CLIENT_IDLE);
	if (stream_data(c->s).n > 0 || stream_at_eof(c->s))
		client_drive(c);
}

static const struct downstream_ops client_ops = {
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

/* ---- birth ---- */

void client_accept(struct worker_listener *wl, int fd, const struct listener_peer *peer)
{
	struct worker *w = wl->worker;
	struct client *c = calloc(1, sizeof(*c));
	struct err e = ERR_INIT;

	if (!c)
		goto fail;
	c->worker = w;
	c->peer = *peer;
	c->down.ops = &client_ops;
	c->caller = (struct caller){
		.entrance = wl->entrance,
		.client = str_from_c(c->peer.text),
		.http = STR("1.1"),
	};
	request_init(&c->request);
	body_reader_init(&c->body, BODY_NONE, 0);
	strbuf_init(&c->head, LIMIT_HEAD_BYTES * 2);
	if (timer_init(&c->timer, w->loop, on_timer, c) < 0)
		goto fail;
	if (stream_new(w->loop, fd, on_stream, c, &c->s, &e) < 0) {
		fd = -1;
		goto fail;
	}
	c->next = w->clients;
	if (c->next)
		c->next->prev = c;
	w->clients = c;
	worker_count(&w->clients_n, 1);
	if (wl->entrance->kind == CONFIG_LISTEN_TRANSPARENT)
		connect_transparent(c);
	else
		client_goto(c, CLIENT_IDLE);
	return;
fail:
	if (fd >= 0)
		close(fd);
	if (c) {
		timer_clear(&c->timer);
		free_client(c);
	}
	listener_counts_leave(wl->entrance->counts, peer);
}

/* One try: a client that does not take it loses the answer, not we the descriptor. */
static void send_once(int fd, const struct reply *reply)
{
	struct strbuf b;

	strbuf_init(&b, 4096);
	reply_write(reply, &b);
	(void)!send(fd, b.data ? b.data : "", b.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	strbuf_clear(&b);
}

void client_refuse(struct worker_listener *wl, int fd, const struct listener_peer *peer,
		   enum reason why)
{
	struct caller caller = {.entrance = wl->entrance, .client = str_from_c(peer->text)};
	struct identity who = identity_of(&caller, wl->worker->snapshot);
	bool transparent = wl->entrance->kind == CONFIG_LISTEN_TRANSPARENT;
	char id[RECORD_ID_LEN + 1];
	struct host host;
	uint16_t port;
	struct record r;
	struct audit_mem m;
	struct reply reply = {.reason = why, .detail = STR("too many connections")};

	record_new_id(id);
	reply.id = str_from(id, RECORD_ID_LEN);
	audit_init(&r, &m, transparent ? RECORD_TUNNEL_DENY : RECORD_REQUEST_DENY);
	r.id = reply.id;
	audit_caller(&r, &caller, &who);
	audit_policy(&r, who.policy);
	if (transparent) {
		(void)transparent_target(wl->entrance, fd, &host, &port);
		audit_target(&r, SCHEME_NONE, &host, port);
	}
	audit_decision(&r, false, why);
	r.status = transparent ? 0 : (unsigned)reason_status(why);
	r.error_detail = reply.detail;
	(void)worker_log(wl->worker, &r, false);
	/* Whoever knows of no proxy waits for no answer of one. */
	if (!transparent)
		send_once(fd, &reply);
	shutdown(fd, SHUT_WR);
	close(fd);
}

void client_drain(struct client *c)
{
	c->keep = false;
	if (c->state == CLIENT_IDLE)
		client_close(c, REASON_NONE, NULL);
	else if (c->state == CLIENT_H2)
		client_h2_drain(c->h2);
	else if (c->state == CLIENT_PEEK && stream_data(c->s).n == 0)
		client_close(c, REASON_SHUTTING_DOWN, "stile is shutting down, and nothing came");
}
