/*
 * See client_token.h. A right token always passes, however many wrong ones its address has sent: on
 * one machine all sandboxes may have the same address, and none must lock out another. What a guess
 * costs is its connection: each is closed, and beyond the rate it is held first.
 */
#include "proxy/session/client_token.h"

#include <string.h>

#include "proxy/session/identity.h"

/* IPv6: the /64, of which one machine has all. A Unix socket's peer: its user. Never 0. */
static uint64_t place_of(const struct listener_peer *p)
{
	uint64_t place = p->uid;

	if (p->addr.family != 0)
		memcpy(&place, p->addr.b, p->addr.family == 4 ? 4 : sizeof(place));
	return (place ^ (uint64_t)p->addr.family << 56) | 1ULL << 63;
}

/* One more wrong token from there. True: there were too many in this second. Places that share a
 * row share its count. */
static bool too_many(struct worker *w, const struct listener_peer *p)
{
	uint64_t place = place_of(p);
	struct token_guesses *g = &w->guesses[(place * 0x9e3779b97f4a7c15ULL) >> 58];
	int64_t now = loop_now_us(w->loop);

	if (now - g->since_us >= 1000000)
		*g = (struct token_guesses){.since_us = now};
	return g->n++ >= LIMIT_TOKEN_WRONG_PER_SEC;
}

/* The worker looks again by then; at least every LIMIT_MS_TOKEN_LOOK, since a timer stands still
 * while the machine sleeps and a token's life does not. */
static void look_within(struct worker *w, int64_t left_us)
{
	int64_t most = LIMIT_MS_TOKEN_LOOK * 1000LL;
	int64_t due;

	left_us = left_us < 0 ? 0 : left_us > most ? most : left_us;
	due = loop_now_us(w->loop) + left_us;
	if (w->token_timer.armed && w->token_due_us <= due)
		return;
	w->token_due_us = due;
	timer_arm(&w->token_timer, (uint64_t)left_us / 1000 + 1);
}

/* Takes s over. */
static void belong(struct client *c, struct sandbox *s)
{
	c->caller.claimed = true;
	if (!s)
		return;
	sandbox_seen(s);
	if (c->caller.sandbox) {
		sandbox_unref(s); /* the same one */
		return;
	}
	c->caller.sandbox = s;
	sandbox_enter(s);
	look_within(c->worker, sandbox_left_us(s));
}

void client_identify_quietly(struct client *c)
{
	struct sandbox *s = NULL;
	bool is_new;

	if (c->caller.claimed || c->request.n_proxy_authorization != 1)
		return;
	if (identity_claim(&c->caller, c->worker->sandboxes, &c->request, &s, &is_new, NULL) == 0)
		belong(c, s);
	else
		sandbox_unref(s);
}

/* A token that is not known here may have been made elsewhere a moment ago. How far that is known,
 * before it is looked up: what is answered meanwhile is in the table. */
static enum state_answer answer_of(const struct client *c)
{
	if (!c->worker->state)
		return STATE_KNOWN; /* there is no elsewhere */
	return c->asked ? state_answer(c->worker->state, c->asked) : STATE_PENDING;
}

int client_identify(struct client *c, uint64_t *ret_hold_ms, struct err *e)
{
	struct sandbox *s = NULL;
	enum state_answer known = answer_of(c);
	bool is_new = false;
	int rc;

	if (c->caller.entrance->tokens == CONFIG_TOKENS_NONE) {
		*ret_hold_ms = 0;
		belong(c, NULL);
		return 0;
	}
	rc = identity_claim(&c->caller, c->worker->sandboxes, &c->request, &s, &is_new, e);

	*ret_hold_ms = 0;
	if (rc == 0 || s)
		belong(c, s);
	if (rc < 0 && is_new && known == STATE_PENDING) {
		if (!c->asked)
			c->asked = state_ask(c->worker->state);
		return 1;
	}
	c->asked = 0;
	if (rc < 0 && is_new && known == STATE_UNKNOWN)
		return err_reason(e, REASON_STATE_UNAVAILABLE,
				  "the token is not known here, and the shared state is out of "
				  "reach (try again later)");
	if (rc < 0 && e->reason == REASON_TOKEN_INVALID && too_many(c->worker, &c->peer)) {
		*ret_hold_ms = LIMIT_MS_TOKEN_HELD;
		(void)err_reason(e, REASON_RATE_LIMITED, "too many wrong tokens from this address");
	}
	return rc;
}

void client_token_look(struct worker *w)
{
	struct client *c = TAILQ_FIRST(&w->askers);

	/* Each is driven once: those that still wait go to the end. */
	for (const struct client *last = TAILQ_LAST(&w->askers, client_askers); c;) {
		struct client *next = c == last ? NULL : TAILQ_NEXT(c, asker);

		if (state_answer(w->state, c->asked) != STATE_PENDING)
			client_drive(c);
		c = next;
	}
}

void client_token_leave(struct client *c)
{
	if (c->caller.sandbox)
		sandbox_leave(c->caller.sandbox);
}

/* Already refused, or on its way out: it has no more than an answer to come. */
static bool is_leaving(const struct client *c)
{
	return c->state == CLIENT_REFUSE || c->state == CLIENT_LINGER || c->state == CLIENT_CLOSED;
}

void client_token_sweep(struct worker *w)
{
	struct client *c = w->clients;
	bool current = !w->sandboxes || sandboxes_are_current(w->sandboxes);

	timer_stop(&w->token_timer);
	while (c) {
		struct client *next = c->next;
		struct sandbox *s = is_leaving(c) ? NULL : c->caller.sandbox;
		enum reason why = s ? sandbox_end(s) : REASON_NONE;

		if (s && why == REASON_NONE && !current)
			client_close(c, REASON_STATE_UNAVAILABLE,
				     "the tokens' shared state is out of reach for too long");
		else if (why != REASON_NONE)
			client_close(c, why, sandbox_end_text(why));
		else if (s)
			look_within(w, sandbox_left_us(s));
		c = next;
	}
}
