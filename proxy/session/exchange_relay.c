/*
 * The WebSocket that an exchange may become: bytes both ways, unread, for as long as a tunnel may
 * live and the policy admits it. exchange.c calls it, from the 101 on.
 */
#include <string.h>

#include "proxy/session/exchange_internal.h"
#include "proxy/session/override.h"

#define REVOKED "the policy no longer admits this WebSocket"

/* How long a WebSocket may still live. */
static uint64_t life_left_ms(const struct exchange *x)
{
	uint64_t life = exchange_limits(x)->tunnel_life_ms;
	uint64_t lived = (uint64_t)(loop_now_us(x->worker->loop) - x->relay_us) / 1000;

	return lived < life ? life - lived : 0;
}

void exchange_relay_arm(struct exchange *x)
{
	uint64_t wait = exchange_limits(x)->tunnel_idle_ms, left = life_left_ms(x);

	if (x->end_held) {
		uint64_t held = (uint64_t)(loop_now_us(x->worker->loop) - x->held_us) / 1000;

		wait = held < LIMIT_MS_WEBSOCKET_END ? LIMIT_MS_WEBSOCKET_END - held : 0;
	}
	timer_arm(&x->timer, wait < left ? wait : left);
}

static void tell_end(struct exchange *x)
{
	x->end_held = false;
	upstream_send_end(x->up, NULL);
	upstream_flush(x->up);
}

/* A browser ends its stream of HTTP/2 with its Close frame and waits for the origin's. In HTTP/1.1
 * its connection would stay open for that, and many an origin takes the end of TLS for the end of
 * both ways and says no more (RFC 6455 section 7.1.1: the server closes first). */
void exchange_relay_client_ended(struct exchange *x)
{
	if (x->request->version != HTTP_2 || str_eq(x->up_tls_alpn, STR("h2")) || x->answer_done) {
		tell_end(x);
		return;
	}
	x->end_held = true;
	x->held_us = loop_now_us(x->worker->loop);
	upstream_flush(x->up);
	exchange_relay_arm(x);
}

bool exchange_relay_timed_out(struct exchange *x)
{
	if (x->end_held && life_left_ms(x) > 0) {
		tell_end(x);
		exchange_relay_arm(x);
		return false;
	}
	if (life_left_ms(x) == 0)
		(void)err_reason(&x->error, REASON_TUNNEL_LIFE,
				 "the WebSocket reached its longest life");
	else
		(void)err_reason(&x->error, REASON_TUNNEL_IDLE, "no byte moved either way");
	return true;
}

/* Does the policy of s admit it as it stands? */
static bool still_admitted(const struct exchange *x, struct snapshot *s)
{
	struct identity id = identity_of(x->caller, s);
	struct policy_request q = exchange_question(x);
	struct policy_decision d = {0};
	struct err e = ERR_INIT;
	const struct ipaddr *own;
	size_t own_n;

	if (!id.policy)
		return false;
	policy_decide(id.policy, &q, &d);
	if (!d.allow || override_check(id.policy, x->request, &q, &d, &e) < 0 || !d.allow)
		return false;
	/* What was added at its beginning must still be what the policy adds. */
	if (d.rule->client != x->rule->client ||
	    strcmp(d.rule->credential ? d.rule->credential : "",
		   x->rule->credential ? x->rule->credential : "") != 0)
		return false;
	if (x->addr.family == 0)
		return true; /* its name was sent to upstream.proxy: no address to judge */
	return own_addrs_get(x->worker->own_addrs, loop_now_us(x->worker->loop), &own, &own_n,
			     NULL) == 0 &&
	       policy_check_addr(d.rule, &x->addr, own, own_n, NULL) == 0;
}

int exchange_relay_begin(struct exchange *x, const struct response *r, struct err *e)
{
	if (websocket_check_response(x->request, r, e) < 0)
		return -1;
	/* Like a tunnel it opens under the policy of this moment or not at all: a reload while it
	 * was dialled or answered did not ask after it, since it was a request then. */
	if (x->snapshot != x->worker->snapshot && !still_admitted(x, x->worker->snapshot))
		return err_reason(e, REASON_POLICY_REVOKED, REVOKED);
	if (x->down->ops->send_head(x->down, r, false, e) < 0)
		return -1;
	x->down->ops->flush(x->down);
	upstream_relay(x->up);
	x->status = r->status;
	x->answer_begun = true;
	x->request_done = false;
	x->relayed = true;
	x->relay_us = loop_now_us(x->worker->loop);
	x->next = x->worker->relays;
	if (x->next)
		x->next->prev = x;
	x->worker->relays = x;
	return 0;
}

void exchange_relay_leave(struct exchange *x)
{
	if (x->prev)
		x->prev->next = x->next;
	else
		x->worker->relays = x->next;
	if (x->next)
		x->next->prev = x->prev;
}

void exchange_relay_drive(struct exchange *x)
{
	struct err e = ERR_INIT;
	uint64_t before = x->bytes_in + x->bytes_out;

	if (exchange_pump_request(x) < 0)
		return;
	if (!x->answer_done) {
		if (exchange_redact_pull(x, &x->answer_done, &e) < 0) {
			exchange_fail_with(x, &e);
			return;
		}
		if (x->answer_done && x->end_held)
			tell_end(x);
		if (x->answer_done)
			x->down->ops->send_end(x->down, NULL);
		x->down->ops->flush(x->down);
	}
	/* What the client said last must not end with the connection that it waits in. */
	if (x->answer_done && x->request_done && upstream_is_drained(x->up))
		exchange_finish(x, EXCHANGE_WHOLE);
	else if (x->bytes_in + x->bytes_out != before)
		exchange_relay_arm(x);
}

void exchange_recheck(struct exchange *x, struct snapshot *s)
{
	if (still_admitted(x, s))
		return;
	(void)err_reason(&x->error, REASON_POLICY_REVOKED, REVOKED);
	exchange_fail(x);
}

struct exchange *exchange_next(const struct exchange *x)
{
	return x->next;
}
