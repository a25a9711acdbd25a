/*
 * What an exchange sends upstream behind the head: the client's body, as far as both sides allow,
 * searched or checked on the way where the rule's credential wants that, and its trailers. What has
 * gone is kept, within a bound, for as long as the origin may still say that it did not look at it.
 * exchange.c calls it, and exchange_relay.c for a WebSocket's way there.
 */
#include "proxy/session/exchange_internal.h"

/* Only HTTP/2 can say that a request was not looked at, and only before it says anything else of
 * it. */
static bool may_be_refused(const struct exchange *x)
{
	return x->state == EXCHANGE_ANSWER && !x->retried && x->interims == 0 &&
	       str_eq(x->up_tls_alpn, STR("h2"));
}

static void send_body(void *arg, struct str data)
{
	struct exchange *x = arg;
	bool all = x->sent.len == x->bytes_out;

	bool last = x->request->body == BODY_LENGTH && x->bytes_out + data.n >= x->request->length;

	if (x->signing && exchange_check_signed(x, data, last) < 0)
		return;
	upstream_send_body(x->up, data);
	x->bytes_out += data.n;
	if (!all || !may_be_refused(x))
		return;
	strbuf_add(&x->sent, data);
	if (x->sent.overflowed)
		exchange_forget_sent(x);
}

static void sink_request(void *arg, struct str data)
{
	struct exchange *x = arg;

	if (x->search || x->ws)
		exchange_search(x, data, send_body);
	else
		send_body(x, data);
}

/* In a second attempt: what the first one has taken of the client's body. False: there is more. */
static bool send_again(struct exchange *x)
{
	struct str rest = str_skip(strbuf_str(&x->sent), x->resent);
	struct str now = str_head(rest, x->retried ? upstream_room(x->up) : 0);

	if (now.n > 0)
		upstream_send_body(x->up, now);
	x->resent += now.n;
	return !x->retried || now.n == rest.n;
}

/* Some servers merge trailers into the fields: what the rule does not let the client bring there
 * could come here. */
static const struct fields *trailers_of(struct exchange *x)
{
	return x->rule->client == RULE_CLIENT_PASS && !x->injected ? x->down->ops->trailers(x->down)
								   : NULL;
}

/* All of it has come. -1: what comes last may not go out; x->error says why. */
static int end_body(struct exchange *x)
{
	exchange_search_flush(x, send_body);
	if (x->state == EXCHANGE_RELAY)
		return 0;
	if (x->signing && exchange_check_signed(x, STR_NONE, true) < 0)
		return -1;
	return exchange_check_trailers(x, trailers_of(x), &x->error);
}

int exchange_pump_more(struct exchange *x)
{
	struct err e = ERR_INIT;
	uint64_t before = x->bytes_out;
	bool done = false;

	if (send_again(x)) {
		size_t room = exchange_search_room(x, upstream_room(x->up));

		if (exchange_pull_client(x, room, sink_request, &done, &e) < 0) {
			exchange_fail_with(x, &e);
			return -1;
		}
		if (x->misused || (done && end_body(x) < 0)) {
			exchange_fail(x);
			return -1;
		}
		if (done) {
			x->request_done = true;
			if (x->state == EXCHANGE_RELAY) {
				exchange_relay_client_ended(x);
				return 0;
			}
			upstream_send_end(x->up, trailers_of(x));
			if (x->state == EXCHANGE_ANSWER)
				exchange_arm(x, exchange_limits(x)->first_byte_ms);
		}
	}
	upstream_flush(x->up);
	if (x->bytes_out != before && !x->request_done)
		exchange_arm(x, exchange_limits(x)->body_idle_ms);
	return 0;
}
