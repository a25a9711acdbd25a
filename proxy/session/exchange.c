/*
 * One request from head to record; see exchange.h. It speaks to the client through downstream_ops,
 * to the origin through upstream.h, and finds the way there with route.h.
 */
#include "proxy/session/exchange_internal.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "logging/log.h"
#include "proxy/session/audit.h"
#include "proxy/session/caller_memo.h"

static void on_timer(void *arg);
static void on_judged(void *arg, const struct err *e);
static void on_connected(void *arg, struct stream *s, const struct err *e);
static void on_recorded(void *arg, bool written);
static void on_upstream(void *arg);

const struct config_limits *exchange_limits(const struct exchange *x)
{
	return &x->snapshot->config->limits;
}

/* How long the request may still take. */
static uint64_t request_left_ms(const struct exchange *x)
{
	uint64_t life = exchange_limits(x)->request_life_ms;
	uint64_t lived = (uint64_t)(loop_now_us(x->worker->loop) - x->begun_us) / 1000;

	return lived < life ? life - lived : 0;
}

/* What is waited for, but no longer than the whole may take. */
void exchange_arm(struct exchange *x, uint64_t ms)
{
	uint64_t left = request_left_ms(x);

	timer_arm(&x->timer, ms < left ? ms : left);
}

/* Memory of exchanges that a worker keeps, with their timers. Not where use after free is looked
 * for. */
#define SPARES_MAX 32

#define TO(s) (1u << EXCHANGE_##s)

/* The only assignment to the state: which move is legal, and the timer of each state. */
void exchange_goto(struct exchange *x, enum exchange_state to)
{
	static const unsigned legal[] = {
		[EXCHANGE_DECIDE] = TO(HOLD) | TO(RESOLVE) | TO(RECORD) | TO(REFUSE) | TO(DONE),
		[EXCHANGE_HOLD] = TO(RESOLVE) | TO(RECORD) | TO(REFUSE) | TO(DONE),
		[EXCHANGE_RESOLVE] = TO(RECORD) | TO(DIAL) | TO(REFUSE) | TO(DONE),
		[EXCHANGE_RECORD] = TO(DIAL) | TO(ANSWER) | TO(RESOLVE) | TO(REFUSE) | TO(DONE),
		[EXCHANGE_DIAL] = TO(ANSWER) | TO(DONE),
		[EXCHANGE_ANSWER] = TO(BODY) | TO(RELAY) | TO(RESOLVE) | TO(DONE),
		[EXCHANGE_BODY] = TO(DONE),
		[EXCHANGE_RELAY] = TO(DONE),
		[EXCHANGE_REFUSE] = TO(DONE),
		[EXCHANGE_DONE] = 0,
	};
	static const char *const names[] = {"decide", "hold", "resolve", "record", "dial",
					    "answer", "body", "relay",	 "refuse", "done"};

	if (!(legal[x->state] & 1u << to)) {
		log_error("exchange %s: no way from %s to %s", x->id, names[x->state], names[to]);
		abort();
	}
	log_debug("exchange %s: %s -> %s", x->id, names[x->state], names[to]);
	x->state = to;
	switch (to) {
	case EXCHANGE_HOLD: exchange_arm(x, exchange_limits(x)->body_idle_ms); break;
	case EXCHANGE_DECIDE:
	case EXCHANGE_RESOLVE: /* the resolver's own time limit */
	case EXCHANGE_RECORD:  /* the worker's, for all waiters */
	case EXCHANGE_DIAL:    /* the route's */
	case EXCHANGE_REFUSE:
	case EXCHANGE_DONE: timer_stop(&x->timer); break;
	case EXCHANGE_ANSWER: exchange_arm(x, exchange_limits(x)->first_byte_ms); break;
	case EXCHANGE_BODY: exchange_arm(x, exchange_limits(x)->body_idle_ms); break;
	case EXCHANGE_RELAY: exchange_relay_arm(x); break;
	}
}

/* ---- records ---- */

static void fill(struct exchange *x, struct record *r, struct audit_mem *m, enum record_event event)
{
	audit_init(r, m, event);
	r->id = str_from(x->id, RECORD_ID_LEN);
	audit_caller(r, x->caller, &x->identity);
	audit_request(r, x->request);
	if (x->request->websocket)
		r->scheme = str_from_c(scheme_word(exchange_question(x).scheme));
	audit_decided(r, m, x->snapshot == x->worker->snapshot ? x->worker->record_texts : NULL,
		      x->identity.policy, x->rule);
	audit_upstream(r, x->worker->record_texts, &x->addr, x->request->url.port, x->via);
	/* One that the client did not ask for by its placeholder goes nowhere. */
	if (x->unasked)
		r->credential = STR_NONE;
	r->credential_stripped = x->stripped;
}

static uint64_t record_start(struct exchange *x)
{
	struct record r;
	struct audit_mem m;

	fill(x, &r, &m, RECORD_REQUEST_START);
	audit_decision(&r, true, REASON_NONE);
	r.keep = &x->same;
	x->same_addr = x->addr;
	x->same_via = x->via;
	return worker_log(x->worker, &r, false);
}

/* What the start has said already is not put together again. */
static void fill_end(struct exchange *x, struct record *r, struct audit_mem *m)
{
	if (x->same.n == 0) {
		fill(x, r, m, RECORD_REQUEST_END);
		return;
	}
	audit_init(r, m, RECORD_REQUEST_END);
	r->same = &x->same;
	audit_tls(r, x->caller);
	r->same_upstream =
		memcmp(&x->addr, &x->same_addr, sizeof(x->addr)) == 0 && x->via == x->same_via;
	if (!r->same_upstream)
		audit_upstream(r, x->worker->record_texts, &x->addr, x->request->url.port, x->via);
}

static uint64_t record_last(struct exchange *x)
{
	struct record r;
	struct audit_mem m;

	if (x->recorded)
		fill_end(x, &r, &m);
	else
		fill(x, &r, &m, RECORD_REQUEST_DENY);
	r.status = x->status;
	x->ms.dns_us = x->route.dns_us;
	x->ms.connect_us = x->route.connect_us;
	x->ms.tls_us = x->route.tls_us;
	x->ms.total_us = loop_clock_us(x->worker->loop) - x->begun_us;
	r.ms = x->ms;
	r.has_ms = true;
	if (x->recorded) {
		audit_decision(&r, true, REASON_NONE);
		r.has_bytes = true;
		r.bytes_out = x->bytes_out;
		r.bytes_in = x->bytes_in;
		r.redacted = exchange_redact_count(x);
		r.upstream_tls_version = x->up_tls_version;
		r.upstream_tls_alpn = x->up_tls_alpn;
		audit_error(&r, &x->error);
	} else {
		audit_decision(&r, false, x->error.reason);
		r.error_detail = str_from_c(x->error.text);
	}
	x->closed = true;
	return worker_log(x->worker, &r, x->recorded);
}

/* ---- the end ---- */

/* A real value may stand in it. */
void exchange_forget_sent(struct exchange *x)
{
	if (!x->sent.data && !x->sent.overflowed)
		return;
	if (x->swaps_body)
		strbuf_wipe(&x->sent);
	else
		strbuf_clear(&x->sent);
}

static void free_exchange(void *obj)
{
	struct exchange *x = obj;

	snapshot_unref(x->snapshot);
	client_cert_unref(x->cert);
	injection_clear(&x->injection);
	exchange_redact_free(x);
	exchange_sign_end(x);
	exchange_forget_sent(x);
	exchange_search_clear(x);
	pool_key_unref(x->pool_key);
	if (!HAS_ADDRESS_SANITIZER && x->worker->spares_n < SPARES_MAX) {
		x->next = x->worker->spares;
		x->worker->spares = x;
		x->worker->spares_n++;
	} else {
		timer_clear(&x->timer);
		free(x);
	}
}

/* The one exit: detaches everything, writes the last record if it is not written yet, gives the
 * upstream back or closes it, and tells the downstream (if it is still there). */
void exchange_finish(struct exchange *x, enum exchange_outcome how)
{
	struct downstream *d = x->down;
	struct reply reply = {0};

	if (x->state == EXCHANGE_DONE)
		return;
	exchange_goto(x, EXCHANGE_DONE);
	exchange_redact_stop(x);
	worker_count(&x->worker->exchanges_n, -1);
	if (!x->closed)
		(void)record_last(x);
	worker_log_forget(x->worker, &x->waiter);
	share_leave(x->worker->share, &x->seat);
	share_end(x->worker->share, &x->seat, SHARE_END_NOBODY);
	/* What was dialled and verified under a snapshot that is gone is of no use to another one:
	 * its key may be the same, its trust or its fixed names need not be. */
	if (x->up && how == EXCHANGE_WHOLE && x->request_done && x->snapshot == x->worker->snapshot)
		upstream_release(x->up);
	else if (x->relayed && how == EXCHANGE_CUT)
		upstream_reset(x->up);
	else
		upstream_close(x->up);
	if (x->relayed)
		exchange_relay_leave(x);
	x->up = NULL;
	stream_close(x->connected);
	x->connected = NULL;
	route_clear(&x->route);
	x->down = NULL;
	if (how == EXCHANGE_REFUSED && d) {
		reply.reason = x->error.reason;
		reply.detail = str_from_c(x->error.text);
		reply.id = str_from(x->id, RECORD_ID_LEN);
		reply.accept = reply_accept(x->request);
		reply.head = str_eq(x->request->method, STR("HEAD"));
	}
	if (d)
		d->ops->finished(d, how, &reply);
	loop_bury(x->worker->loop, x, free_exchange);
}

/* A refusal before anything was sent: its record reaches the kernel before the client hears of it.
 * A log that cannot be written does not hold the answer back. */
static void refuse(struct exchange *x)
{
	uint64_t ticket = record_last(x);

	exchange_goto(x, EXCHANGE_REFUSE);
	if (!ticket || worker_log_wait(x->worker, &x->waiter, ticket))
		exchange_finish(x, EXCHANGE_REFUSED);
}

/* Ends with x->error: an answer of ours if none has begun. */
void exchange_fail(struct exchange *x)
{
	if (x->error.reason == REASON_NONE)
		x->error.reason = REASON_INTERNAL_ERROR;
	exchange_redact_error(x);
	if (!x->answer_begun)
		x->status = (unsigned)reason_status(x->error.reason);
	if (!x->recorded && x->down)
		refuse(x);
	else
		exchange_finish(x, x->answer_begun ? EXCHANGE_CUT : EXCHANGE_REFUSED);
}

void exchange_fail_with(struct exchange *x, const struct err *e)
{
	x->error = *e;
	exchange_fail(x);
}

void exchange_abandon(struct exchange *x, enum reason why, const char *detail)
{
	if (x->state == EXCHANGE_DONE)
		return;
	/* Whose WebSocket the origin has ended just leaves. */
	if (!x->answer_done)
		(void)err_reason(&x->error, why, "%s", detail);
	x->down = NULL;
	exchange_finish(x, EXCHANGE_CUT);
}

static void on_timer(void *arg)
{
	struct exchange *x = arg;

	if (x->state != EXCHANGE_RELAY && request_left_ms(x) == 0) {
		(void)err_reason(&x->error, REASON_REQUEST_LIFE,
				 "the request took longer than %llu ms",
				 (unsigned long long)exchange_limits(x)->request_life_ms);
		exchange_fail(x);
		return;
	}
	if (x->state == EXCHANGE_ANSWER && x->request->expect_continue && !x->continued &&
	    x->bytes_out == 0 && !x->request_done) {
		/* The origin does not answer the expectation: the client may go on (RFC 9110
		 * section 10.1.1), and the first byte's own time begins. */
		x->continued = true;
		x->down->ops->send_continue(x->down);
		exchange_arm(x, exchange_limits(x)->first_byte_ms);
		return;
	}
	if (x->state == EXCHANGE_DIAL) {
		/* Another one's dial takes too long. */
		share_leave(x->worker->share, &x->seat);
		exchange_drive(x);
		return;
	}
	if (x->state == EXCHANGE_RELAY) {
		if (!exchange_relay_timed_out(x))
			return;
	} else if (x->state == EXCHANGE_HOLD)
		(void)err_reason(&x->error, REASON_CLIENT_TIMEOUT,
				 "the request's body stopped coming");
	else if (!x->request_done && x->state == EXCHANGE_ANSWER && upstream_room(x->up) == 0)
		(void)err_reason(&x->error, REASON_UPSTREAM_TIMEOUT,
				 "the origin stopped taking the request's body");
	else if (!x->request_done && x->state == EXCHANGE_ANSWER)
		(void)err_reason(&x->error, REASON_CLIENT_TIMEOUT,
				 "the request's body stopped coming");
	else
		(void)err_reason(&x->error, REASON_UPSTREAM_TIMEOUT,
				 "the origin sent nothing for %llu ms",
				 (unsigned long long)(x->state == EXCHANGE_BODY
							      ? exchange_limits(x)->body_idle_ms
							      : exchange_limits(x)->first_byte_ms));
	exchange_fail(x);
}

/* ---- decide ---- */

static struct upstream_place place_of(const struct exchange *x)
{
	return (struct upstream_place){
		.key = x->pool_key,
		.addr = x->addr,
		.port = x->request->url.port,
		.keep = x->snapshot == x->worker->snapshot,
	};
}

/* A connection that is there already, or none: x->up. -1: memory is out. What becomes a WebSocket
 * gets one of its own, or a stream of its own where both sides speak HTTP/2: an origin need not,
 * and what its client asked for in HTTP/1.1 it gets so. */
static int take_kept(struct exchange *x, struct err *e)
{
	struct upstream_place place = place_of(x);

	if (!x->request->websocket)
		x->up = upstream_take(x->worker, &place, on_upstream, x, e);
	else if (x->request->version == HTTP_2)
		x->up = upstream_take_websocket(x->worker, &place, &x->h1_only, on_upstream, x, e);
	else
		x->h1_only = true;
	if (!x->up)
		return e->reason == REASON_NONE ? 0 : -1;
	x->addr = place.addr;
	x->via = config_parent_for(x->snapshot->config, x->route.host);
	if (x->via && config_parent_spares(x->via, &x->addr))
		x->via = NULL;
	return 0;
}

static void find_way(struct exchange *x)
{
	struct err e = ERR_INIT;

	if (take_kept(x, &e) < 0)
		exchange_fail_with(x, &e);
	else
		exchange_goto(x, x->up ? EXCHANGE_RECORD : EXCHANGE_RESOLVE);
}

static void decide(struct exchange *x)
{
	struct err e = ERR_INIT;

	if (exchange_decide(x, &e) < 0)
		exchange_fail_with(x, &e);
	else if (exchange_must_hold(x))
		exchange_goto(x, EXCHANGE_HOLD);
	else
		find_way(x);
}

/* ---- resolve, record, dial ---- */

/* True: go on to the next state now. */
static bool resolve(struct exchange *x)
{
	struct err e = ERR_INIT;
	int r;

	if (x->route.question)
		return false;
	x->route.rule = x->rule;
	r = route_resolve(&x->route, &e);
	if (r < 0)
		exchange_fail_with(x, &e);
	return r > 0;
}

static void resolved(struct exchange *x)
{
	/* A retry has its start record already. */
	x->via = x->route.via;
	exchange_goto(x, x->recorded ? EXCHANGE_DIAL : EXCHANGE_RECORD);
}

static void on_judged(void *arg, const struct err *e)
{
	struct exchange *x = arg;

	if (e) {
		exchange_fail_with(x, e);
		return;
	}
	resolved(x);
	exchange_drive(x);
}

/* The kept connection ended, or spoke unasked, while the record was written: what came is no answer
 * to this request, of which nothing is sent yet. */
static void leave_kept(struct exchange *x)
{
	upstream_close(x->up);
	x->up = NULL;
	exchange_goto(x, EXCHANGE_RESOLVE);
}

static void log_gone(struct exchange *x)
{
	(void)err_reason(&x->error, REASON_LOG_UNAVAILABLE, "the audit log cannot be written");
	exchange_fail(x);
}

/* Invariant 5: nothing goes upstream before this returned true. */
static bool record(struct exchange *x)
{
	uint64_t ticket;

	if (x->waiter.ticket)
		return false;
	if (x->recorded)
		return true;
	ticket = record_start(x);
	if (!ticket) {
		log_gone(x);
		return false;
	}
	x->recorded = true;
	return worker_log_wait(x->worker, &x->waiter, ticket);
}

static void on_recorded(void *arg, bool written)
{
	struct exchange *x = arg;

	if (x->state == EXCHANGE_REFUSE)
		exchange_finish(x, EXCHANGE_REFUSED);
	else if (written)
		exchange_drive(x);
	else
		log_gone(x);
}

static void on_share(void *arg)
{
	exchange_drive(arg);
}

/* Only what may end up as one stream among others waits for another's dial (share.h): not what is
 * sent again because a kept connection had ended, and nothing that another snapshot has judged. */
static bool may_share(const struct exchange *x)
{
	return x->request->url.scheme == SCHEME_HTTPS && !x->request->websocket &&
	       (!x->retried || x->refused) && x->snapshot == x->worker->snapshot;
}

/* 1: dial; 0: another one does, or there is a connection (x->up); -1: failed. */
static int take_turn(struct exchange *x, struct err *e)
{
	if (!may_share(x))
		return 1;
	if (x->seat.waits)
		return 0;
	if (take_kept(x, e) < 0)
		return -1;
	if (x->up)
		return 0;
	x->seat.fn = on_share;
	x->seat.arg = x;
	if (share_enter(x->worker->share, &x->seat, x->pool_key->hash))
		return 1;
	exchange_arm(x, share_left_ms(x->worker->share, &x->seat));
	return 0;
}

static bool dial(struct exchange *x)
{
	struct err e = ERR_INIT;
	int turn;

	if (x->connected)
		return true;
	if (route_is_connecting(&x->route))
		return false;
	turn = take_turn(x, &e);
	if (turn == 0)
		return x->up;
	timer_stop(&x->timer);
	x->route.h1_only = x->h1_only;
	x->route.cert = x->cert;
	if (turn < 0 || route_connect(&x->route, x->request->url.scheme == SCHEME_HTTPS,
				      x->identity.key, &e) < 0)
		exchange_fail_with(x, &e);
	return false;
}

static void on_connected(void *arg, struct stream *s, const struct err *e)
{
	struct exchange *x = arg;

	if (e) {
		share_end(x->worker->share, &x->seat, SHARE_END_OTHER);
		exchange_fail_with(x, e);
		return;
	}
	x->connected = s;
	x->addr = x->route.addr;
	exchange_drive(x);
}

/* What its TLS has settled on is told to those who wait for it. */
static void tell_turn(struct exchange *x)
{
	struct share *h = x->worker->share;
	bool h2 = str_eq(x->up->tls_alpn, STR("h2"));

	if (may_share(x))
		share_know(h, x->pool_key->hash, h2);
	share_end(h, &x->seat, h2 ? SHARE_END_H2 : SHARE_END_OTHER);
}

/* ---- relay ---- */

static void on_upstream(void *arg)
{
	exchange_drive(arg);
}

static bool begin(struct exchange *x)
{
	struct err e = ERR_INIT;
	const struct request *r = x->request;
	struct request as;

	if (!x->up) {
		struct upstream_place place = place_of(x);
		struct stream *s = x->connected;

		x->connected = NULL;
		if (upstream_open(x->worker, s, &place, on_upstream, x, &x->up, &e) < 0) {
			exchange_fail_with(x, &e);
			return false;
		}
		tell_turn(x);
	}
	x->up_tls_version = x->up->tls_version;
	x->up_tls_alpn = x->up->tls_alpn;
	if (x->injection.path.len > 0) {
		as = *r; /* its own words stay what the records say */
		as.url.path = strbuf_str(&x->injection.path);
		r = &as;
	}
	if ((x->signing && exchange_sign(x, r, &e) < 0) ||
	    upstream_send_head(x->up, r, x->injected ? &x->injection : NULL, &e) < 0) {
		exchange_fail_with(x, &e);
		return false;
	}
	x->sent_us = loop_now_us(x->worker->loop);
	exchange_goto(x, EXCHANGE_ANSWER);
	if (x->request->expect_continue)
		exchange_arm(x, LIMIT_MS_CONTINUE);
	return true;
}

/* ---- the driver ---- */

/* One step. True: another may be possible. */
static bool step(struct exchange *x)
{
	switch (x->state) {
	case EXCHANGE_DECIDE: decide(x); return true;
	case EXCHANGE_HOLD:
		if (!exchange_hold(x))
			return false;
		find_way(x);
		return true;
	case EXCHANGE_RESOLVE:
		if (!resolve(x))
			return false;
		resolved(x);
		return true;
	case EXCHANGE_RECORD:
		if (!record(x))
			return false;
		if (!x->up)
			exchange_goto(x, EXCHANGE_DIAL);
		else if (upstream_is_quiet(x->up))
			return begin(x);
		else
			leave_kept(x);
		return true;
	case EXCHANGE_DIAL: return dial(x) && begin(x);
	case EXCHANGE_ANSWER: {
		int got;

		if (exchange_pump_request(x) < 0)
			return false;
		got = exchange_read_heads(x);
		if (got == 1)
			exchange_goto(x, x->relayed ? EXCHANGE_RELAY : EXCHANGE_BODY);
		return got > 0;
	}
	case EXCHANGE_BODY:
		if (exchange_pump_request(x) == 0)
			(void)exchange_pump_answer(x);
		return false;
	case EXCHANGE_RELAY: exchange_relay_drive(x); return false;
	case EXCHANGE_REFUSE:
	case EXCHANGE_DONE: return false;
	}
	return false;
}

void exchange_drive(struct exchange *x)
{
	/* What a step calls may report back at once; the outer loop takes it up. */
	if (x->driving)
		return;
	x->driving = true;
	while (step(x))
		;
	x->driving = false;
}

/* Its timer stays armed for nothing (loop.c corrects it when it comes up): most requests end long
 * before, and the next one moves it again. */
static struct exchange *make_memory(struct worker *w)
{
	struct exchange *x = malloc(sizeof(*x));

	if (!x || timer_init(&x->timer, w->loop, on_timer, x) < 0) {
		free(x);
		return NULL;
	}
	injection_init(&x->injection);
	strbuf_init(&x->sent, LIMIT_H2_RETRY_BODY);
	return x;
}

static struct exchange *take_memory(struct worker *w)
{
	struct exchange *x = w->spares;

	if (!x)
		return make_memory(w);
	w->spares = x->next;
	w->spares_n--;
	return x;
}

void exchange_free_spares(struct worker *w)
{
	while (w->spares) {
		struct exchange *x = w->spares;

		w->spares = x->next;
		timer_clear(&x->timer);
		free(x);
	}
	w->spares_n = SPARES_MAX;
}

struct exchange *exchange_new(struct worker *w, struct downstream *d, struct caller *caller,
			      struct request *r)
{
	struct exchange *x = take_memory(w);

	if (!x)
		return NULL;
	memset((char *)x + offsetof(struct exchange, up), 0,
	       offsetof(struct exchange, identity) - offsetof(struct exchange, up));
	x->worker = w;
	x->down = d;
	x->caller = caller;
	x->request = r;
	x->snapshot = snapshot_ref(w->snapshot);
	x->identity = caller_identity(caller, x->snapshot);
	x->waiter.fn = on_recorded;
	x->waiter.arg = x;
	x->begun_us = loop_now_us(w->loop);
	x->ms = (struct record_ms){RECORD_MS_NONE, RECORD_MS_NONE, RECORD_MS_NONE, RECORD_MS_NONE,
				   RECORD_MS_NONE};
	x->error = ERR_INIT;
	x->same.n = 0;
	record_new_id(x->id);
	route_init(&x->route, w, x->snapshot, NULL, &r->url.host, r->url.port, x);
	x->route.on_judged = on_judged;
	x->route.on_connected = on_connected;
	worker_count(&w->exchanges_n, 1);
	return x;
}
