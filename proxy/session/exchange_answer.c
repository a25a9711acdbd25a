/*
 * What an exchange hears from the origin: interim heads, the head, the body; and when, instead of
 * an answer, the request is sent once more. exchange.c calls it in its states ANSWER and BODY.
 */
#include "proxy/session/exchange_internal.h"

/* RFC 9110 section 9.2.2: only what is idempotent is sent twice, and only when the origin closed a
 * kept connection before it said anything and none of a body is gone; or, whatever it is, what the
 * origin says it did not look at (RFC 9113 section 8.7), if all of its body so far is still here.
 */
static bool may_retry(const struct exchange *x, const struct err *e)
{
	if (e->reason != REASON_UPSTREAM_CLOSED || x->retried || x->interims > 0)
		return false;
	if (upstream_unprocessed(x->up))
		return x->bytes_out == x->sent.len;
	return x->bytes_out == 0 && upstream_reused(x->up) && !upstream_answered(x->up) &&
	       x->request->body == BODY_NONE && method_is_idempotent(x->request->method);
}

static void retry(struct exchange *x)
{
	x->retried = true;
	x->refused = upstream_unprocessed(x->up);
	x->seat = (struct share_seat){0}; /* it neither dials nor waits now */
	/* An origin whose HTTP/2 takes no WebSocket takes it in HTTP/1.1. */
	x->h1_only = x->request->websocket;
	upstream_close(x->up);
	x->up = NULL;
	x->request_done = false;
	exchange_goto(x, EXCHANGE_RESOLVE);
}

/* One interim head. -1: it may not be passed on. */
static int interim(struct exchange *x, const struct response *r, struct err *e)
{
	if (r->status == 101)
		return err_reason(e, REASON_UPSTREAM_MALFORMED,
				  "101 to a request that asked for no upgrade");
	if (++x->interims > LIMIT_INTERIM_RESPONSES)
		return err_reason(e, REASON_UPSTREAM_MALFORMED, "more than %d interim answers",
				  LIMIT_INTERIM_RESPONSES);
	if (r->status == 100) {
		/* Told on once, and only to a client that waits for it. */
		if (x->request->expect_continue && !x->continued)
			x->down->ops->send_continue(x->down);
		x->continued = true;
		if (!x->request_done)
			exchange_arm(x, exchange_limits(x)->body_idle_ms);
		return 0;
	}
	if (x->down->ops->send_head(x->down, r, false, e) < 0)
		return -1;
	x->down->ops->flush(x->down); /* a hint is worth something only before the answer */
	return 0;
}

int exchange_read_heads(struct exchange *x)
{
	for (;;) {
		struct response r;
		struct err e = ERR_INIT;
		int got = upstream_read_head(x->up, &r, &e);

		if (got == 0)
			return 0;
		if (got < 0 && may_retry(x, &e)) {
			retry(x);
			return 2;
		}
		if (got > 0 && !x->retried)
			exchange_forget_sent(x);
		if (got > 0 && x->ms.first_byte_us == RECORD_MS_NONE)
			x->ms.first_byte_us = loop_clock_us(x->worker->loop) - x->sent_us;
		if (got > 0 && exchange_redact_head(x, &r, &e) < 0) {
			response_clear(&r);
			exchange_fail_with(x, &e);
			return -1;
		}
		if (got > 0 && r.status == 101 && x->request->websocket) {
			got = exchange_relay_begin(x, &r, &e) == 0 ? 1 : -1;
			response_clear(&r);
		} else if (got > 0 && r.status < 200) {
			got = interim(x, &r, &e);
			response_clear(&r);
			if (got == 0)
				continue;
			got = -1;
		} else if (got > 0) {
			got = websocket_check_refusal(x->request, &r, &e);
			if (got == 0)
				got = x->down->ops->send_head(x->down, &r, !x->request_done, &e);
			x->status = r.status;
			x->answer_begun = got == 0;
			response_clear(&r);
			got = got == 0 ? 1 : -1;
		}
		if (got < 0) {
			exchange_fail_with(x, &e);
			return -1;
		}
		return 1;
	}
}

bool exchange_pump_answer(struct exchange *x)
{
	struct err e = ERR_INIT;
	uint64_t before = x->bytes_in + x->bytes_down;
	const struct fields *trailers = NULL;
	bool done = false;

	if (exchange_redact_pull(x, &done, &e) < 0 ||
	    (done && !(trailers = exchange_redact_trailers(x, &e)))) {
		x->down->ops->flush(x->down);
		exchange_fail_with(x, &e);
		return true;
	}
	if (done) {
		x->down->ops->send_end(x->down, trailers);
		x->down->ops->flush(x->down);
		exchange_finish(x, EXCHANGE_WHOLE);
		return true;
	}
	x->down->ops->flush(x->down);
	if (x->bytes_in + x->bytes_down != before)
		exchange_arm(x, exchange_limits(x)->body_idle_ms);
	return false;
}
