/*
 * The client connection: its states, its heads, its birth and its end; see client.h, and
 * client_drive below. What is refused is client_deny.c's, what an exchange sees of it
 * client_h1.c's.
 */
#include "proxy/session/client.h"

#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/session/caller_memo.h"
#include "proxy/session/client_h2.h"
#include "proxy/session/client_token.h"

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

void client_close(struct client *c, enum reason why, const char *detail)
{
	/* As in client_h1.c: an answer that ends with the connection must not end here. */
	bool cut = c->exchange && c->until_close;

	if (c->state == CLIENT_CLOSED)
		return;
	client_record_unfinished(c, why, detail);
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
void client_end(struct client *c)
{
	if (c->state == CLIENT_CLOSED)
		return;
	client_goto(c, CLIENT_LINGER);
	stream_shutdown(c->s);
	stream_resume(c->s);
	client_drive(c);
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
		client_end(c);
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
		client_deny_head(c, &e);
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
	case CLIENT_REFUSE: client_deny_timer(c); return;
	case CLIENT_ACCEPTED:
	case CLIENT_EXCHANGE:
	case CLIENT_TUNNEL:
	case CLIENT_CLOSED: return;
	}
}

/* ---- requests ---- */

void client_request_came(struct client *c)
{
	c->served = true;
	c->leaf_unproven = false;
	if (c->connect)
		c->connect->pending = false;
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
		client_deny_head(c, &e);
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
		client_deny_head(c, e);
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
		client_deny_head(c, &e);
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
		client_deny_head(c, &e);
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
		bool is_broken = stream_error_is_tls(c->s) && !stream_was_cut(c->s);

		if (c->state == CLIENT_TLS || c->leaf_unproven || is_broken)
			intercept_failed(c);
		else
			client_close(c, REASON_CLIENT_CLOSED, "the client reset the connection");
		return;
	}
	if (events & STREAM_HANDSHAKED)
		intercept_handshaked(c);
	client_drive(c);
}

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
	c->down.ops = &client_h1_ops;
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
