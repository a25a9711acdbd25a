/*
 * See tunnel.h.
 */
#include "proxy/session/tunnel.h"

#include <stdlib.h>
#include <string.h>

#include "logging/log.h"
#include "proxy/net/splice.h"
#include "proxy/net/stream_relay.h"
#include "proxy/session/audit.h"
#include "proxy/session/route.h"

#define REVOKED "the policy no longer admits this tunnel"

enum tunnel_state {
	TUNNEL_RESOLVE,
	TUNNEL_RECORD, /* tunnel.start is on its way to the kernel */
	TUNNEL_DIAL,
	TUNNEL_PRIME, /* what the client sent early goes out */
	TUNNEL_RELAY,
	TUNNEL_REFUSE, /* tunnel.deny is on its way to the kernel; then the answer */
	TUNNEL_DONE,
};

struct tunnel {
	/* owned */
	struct route *route; /* while it is being opened: a tunnel that runs is kept small */
	struct splice *splice;
	struct stream_relay *relay; /* instead, where the origin is behind TLS of upstream.proxy */
	struct stream *client_side, *origin_side; /* until they are spliced */
	struct timer life;
	char *sni;	  /* NULL: none */
	char *error_text; /* of `error`; NULL: nothing to say */
	/* counted */
	struct snapshot *snapshot;
	/* borrowed */
	struct worker *worker;
	struct tunnel *next, *prev; /* worker->tunnels */
	const struct caller *caller;
	const struct rule *rule;
	const struct config_parent *via; /* of the snapshot */
	struct stream *(*on_ready)(void *arg);
	void (*on_end)(void *arg, bool opened, const struct err *e);
	void *arg;
	/* plain */
	enum tunnel_state state;
	struct host host;
	uint16_t port;
	enum scheme scheme;
	struct identity identity;
	struct log_waiter waiter;
	char id[RECORD_ID_LEN + 1];
	bool ech;
	bool closed; /* the last record was handed over */
	bool recorded;
	bool opened;
	int64_t begun_us;
	uint64_t early_bytes; /* went out before the splice */
	uint64_t early_bytes_in;
	uint64_t bytes_out, bytes_in;
	struct ipaddr addr;
	int64_t dns_us, connect_us; /* the route's, when it is gone */
	enum reason error;
};

static void tunnel_goto(struct tunnel *t, enum tunnel_state to)
{
	static const char *const names[] = {"resolve", "record", "dial", "prime",
					    "relay",   "refuse", "done"};

	log_debug("tunnel %s: %s -> %s", t->id, names[t->state], names[to]);
	t->state = to;
}

static void fill(struct tunnel *t, struct record *r, struct audit_mem *m, enum record_event event)
{
	audit_init(r, m, event);
	r->id = str_from(t->id, RECORD_ID_LEN);
	audit_caller(r, t->caller, &t->identity);
	audit_target(r, t->scheme, &t->host, t->port);
	audit_policy(r, t->identity.policy);
	audit_rule(r, m, t->rule);
	audit_upstream(r, t->worker->record_texts, &t->addr, t->port, t->via);
	r->tls_sni = str_from_c(t->sni);
	r->ech = t->ech;
}

static uint64_t record_start(struct tunnel *t)
{
	struct record r;
	struct audit_mem m;

	fill(t, &r, &m, RECORD_TUNNEL_START);
	audit_decision(&r, true, REASON_NONE);
	return worker_log(t->worker, &r, false);
}

static struct err error_of(const struct tunnel *t)
{
	struct err e = ERR_INIT;

	if (t->error != REASON_NONE)
		(void)err_reason(&e, t->error, "%s", t->error_text ? t->error_text : "");
	return e;
}

static void set_error(struct tunnel *t, enum reason why, const char *text)
{
	free(t->error_text);
	t->error = why;
	t->error_text = str_dup(str_from_c(text));
}

static uint64_t record_last(struct tunnel *t)
{
	struct record r;
	struct audit_mem m;
	struct err e = error_of(t);

	fill(t, &r, &m, t->recorded ? RECORD_TUNNEL_END : RECORD_TUNNEL_DENY);
	r.ms.dns_us = t->route ? t->route->dns_us : t->dns_us;
	r.ms.connect_us = t->route ? t->route->connect_us : t->connect_us;
	r.ms.total_us = loop_clock_us(t->worker->loop) - t->begun_us;
	r.has_ms = true;
	if (t->recorded) {
		audit_decision(&r, true, REASON_NONE);
		r.has_bytes = true;
		r.bytes_out = t->bytes_out + t->early_bytes;
		r.bytes_in = t->bytes_in + t->early_bytes_in;
		audit_error(&r, &e);
	} else {
		audit_decision(&r, false, e.reason);
		r.error_detail = str_from_c(e.text);
	}
	t->closed = true;
	return worker_log(t->worker, &r, t->recorded);
}

static void free_tunnel(void *obj)
{
	struct tunnel *t = obj;

	snapshot_unref(t->snapshot);
	free(t->sni);
	free(t->error_text);
	free(t);
}

/* Its own code may stand above us on the stack: buried. */
static void drop_route(struct tunnel *t)
{
	if (!t->route)
		return;
	t->dns_us = t->route->dns_us;
	t->connect_us = t->route->connect_us;
	route_clear(t->route);
	loop_bury(t->worker->loop, t->route, free);
	t->route = NULL;
}

static void unlink_tunnel(struct tunnel *t)
{
	if (t->prev)
		t->prev->next = t->next;
	else
		t->worker->tunnels = t->next;
	if (t->next)
		t->next->prev = t->prev;
}

/* The one exit. `hard`: the sockets are reset, so that neither side takes the end for a clean one.
 */
static void finish(struct tunnel *t, bool tell, bool hard)
{
	struct err e;

	if (t->state == TUNNEL_DONE)
		return;
	tunnel_goto(t, TUNNEL_DONE);
	if (t->splice) {
		t->bytes_out = splice_bytes_a_to_b(t->splice);
		t->bytes_in = splice_bytes_b_to_a(t->splice);
		splice_cancel(t->splice, hard);
		t->splice = NULL;
	}
	if (t->relay) {
		t->bytes_out = stream_relay_bytes_a_to_b(t->relay);
		t->bytes_in = stream_relay_bytes_b_to_a(t->relay);
		stream_relay_cancel(t->relay, hard);
		t->relay = NULL;
	}
	if (!t->closed)
		(void)record_last(t);
	worker_log_forget(t->worker, &t->waiter);
	if (hard) {
		stream_reset(t->client_side);
		stream_reset(t->origin_side);
	} else {
		stream_close(t->client_side);
		stream_close(t->origin_side);
	}
	t->client_side = t->origin_side = NULL;
	drop_route(t);
	timer_clear(&t->life);
	unlink_tunnel(t);
	e = error_of(t);
	if (tell)
		t->on_end(t->arg, t->opened, e.reason == REASON_NONE ? NULL : &e);
	loop_bury(t->worker->loop, t, free_tunnel);
}

/* As in exchange.c: the record first, then the answer. What may still be under way (a tunnel can be
 * revoked while its name is looked up) must not carry it on meanwhile. */
static void refuse(struct tunnel *t)
{
	uint64_t ticket = record_last(t);

	drop_route(t);
	timer_stop(&t->life);
	tunnel_goto(t, TUNNEL_REFUSE);
	if (!ticket || worker_log_wait(t->worker, &t->waiter, ticket))
		finish(t, true, false);
}

static void fail(struct tunnel *t, const struct err *e)
{
	set_error(t, e->reason == REASON_NONE ? REASON_INTERNAL_ERROR : e->reason, e->text);
	if (!t->recorded)
		refuse(t);
	else
		finish(t, true, t->opened);
}

static void fail_reason(struct tunnel *t, enum reason why, const char *text)
{
	struct err e = ERR_INIT;

	(void)err_reason(&e, why, "%s", text);
	fail(t, &e);
}

void tunnel_close(struct tunnel *t, enum reason why, const char *detail)
{
	if (t->state == TUNNEL_DONE)
		return;
	set_error(t, why, detail);
	finish(t, false, true);
}

static uint64_t life_left_ms(const struct tunnel *t)
{
	uint64_t life = t->snapshot->config->limits.tunnel_life_ms;
	uint64_t lived = (uint64_t)(loop_now_us(t->worker->loop) - t->begun_us) / 1000;

	return lived < life ? life - lived : 0;
}

static void on_life(void *arg)
{
	struct tunnel *t = arg;

	if (t->state == TUNNEL_PRIME && life_left_ms(t) > 0)
		fail_reason(t, REASON_TUNNEL_IDLE, "the client took nothing of the tunnel");
	else
		fail_reason(t, REASON_TUNNEL_LIFE, "the tunnel reached its longest life");
}

/* ---- relay ---- */

static void relay_ended(struct tunnel *t, enum splice_end how)
{
	switch (how) {
	case SPLICE_DONE: finish(t, true, false); return;
	case SPLICE_RESET_A:
		fail_reason(t, REASON_CLIENT_CLOSED, "the client reset the tunnel");
		return;
	case SPLICE_RESET_B:
		fail_reason(t, REASON_UPSTREAM_CLOSED, "the origin reset the tunnel");
		return;
	case SPLICE_IDLE: fail_reason(t, REASON_TUNNEL_IDLE, "no byte moved either way"); return;
	case SPLICE_FAILED: fail_reason(t, REASON_INTERNAL_ERROR, "the relay failed"); return;
	}
}

static void on_spliced(void *arg, enum splice_end how)
{
	struct tunnel *t = arg;

	t->bytes_out = splice_bytes_a_to_b(t->splice);
	t->bytes_in = splice_bytes_b_to_a(t->splice);
	t->splice = NULL; /* it has closed both sockets */
	relay_ended(t, how);
}

static void on_relayed(void *arg, enum splice_end how)
{
	struct tunnel *t = arg;

	t->bytes_out = stream_relay_bytes_a_to_b(t->relay);
	t->bytes_in = stream_relay_bytes_b_to_a(t->relay);
	t->relay = NULL; /* it has closed both streams */
	relay_ended(t, how);
}

/* No descriptor holds the origin's bytes in clear. */
static void relay_streams(struct tunnel *t)
{
	struct stream *a = t->client_side, *b = t->origin_side;
	struct err e = ERR_INIT;

	t->client_side = t->origin_side = NULL;
	tunnel_goto(t, TUNNEL_RELAY);
	timer_arm(&t->life, life_left_ms(t));
	drop_route(t);
	if (stream_relay_start(t->worker->loop, a, b, t->snapshot->config->limits.tunnel_idle_ms,
			       on_relayed, t, &t->relay, &e) < 0)
		fail(t, &e);
}

static void relay(struct tunnel *t)
{
	struct err e = ERR_INIT;
	int a, b;

	if (stream_ssl(t->origin_side)) {
		relay_streams(t);
		return;
	}
	a = stream_detach(t->client_side);
	if (a < 0) {
		fail_reason(t, REASON_CLIENT_CLOSED, "the client closed before the tunnel was up");
		return;
	}
	t->client_side = NULL;
	b = stream_detach(t->origin_side);
	if (b < 0) {
		/* cannot be: primed() saw it empty; the client's descriptor must not leak all the
		 * same */
		t->client_side = NULL;
		if (stream_new(t->worker->loop, a, NULL, NULL, &t->client_side, NULL) == 0)
			fail_reason(t, REASON_INTERNAL_ERROR, "the relay failed");
		return;
	}
	t->origin_side = NULL;
	tunnel_goto(t, TUNNEL_RELAY);
	timer_arm(&t->life, life_left_ms(t));
	drop_route(t);
	if (splice_start(t->worker->loop, a, b, t->snapshot->config->limits.tunnel_idle_ms,
			 on_spliced, t, &t->splice, &e) < 0)
		fail(t, &e);
}

/* What is buffered at `from`, as far as `to` has room. */
static size_t move(struct stream *from, struct stream *to)
{
	struct str early = stream_data(from);

	if (early.n > stream_room(to))
		early.n = stream_room(to);
	stream_write(to, early);
	stream_consume(from, early.n);
	return early.n;
}

/* What the client sent behind its CONNECT goes out first, and what came in behind the answer of
 * upstream.proxy goes back; then both sockets are bare. */
static void prime(struct tunnel *t)
{
	t->early_bytes += move(t->client_side, t->origin_side);
	t->early_bytes_in += move(t->origin_side, t->client_side);
	if (stream_data(t->client_side).n == 0 && stream_data(t->origin_side).n == 0 &&
	    stream_pending(t->origin_side) == 0 && stream_pending(t->client_side) == 0)
		relay(t);
}

static void on_side(void *arg, unsigned events)
{
	struct tunnel *t = arg;

	if (t->state != TUNNEL_PRIME)
		return;
	if (events & STREAM_ERROR)
		fail_reason(t, REASON_CLIENT_CLOSED,
			    "the connection broke before the tunnel was up");
	else
		prime(t);
}

/* ---- opening ---- */

static bool still_admitted(const struct tunnel *t, struct snapshot *s)
{
	struct identity id = identity_of(t->caller, s);
	const struct ipaddr *own;
	size_t own_n;
	struct policy_connect may;
	const struct rule *rule;

	if (!id.policy)
		return false;
	policy_decide_connect(id.policy, &t->host, t->port, &may);
	rule = t->scheme == SCHEME_TCP ? may.tcp : may.passthrough;
	if (!rule || (t->ech && rule->ech_refuse))
		return false;
	if (t->addr.family == 0)
		return true; /* not dialled yet, and asked again when it is; or its name was sent */
	return own_addrs_get(t->worker->own_addrs, loop_now_us(t->worker->loop), &own, &own_n,
			     NULL) == 0 &&
	       policy_check_addr(rule, &t->addr, own, own_n, NULL) == 0;
}

static void on_connected(void *arg, struct stream *s, const struct err *e)
{
	struct tunnel *t = arg;

	if (e) {
		fail(t, e);
		return;
	}
	t->addr = t->route->addr;
	t->origin_side = s;
	/* A reload while it was dialled asked after the name, as the address was not settled. */
	if (t->snapshot != t->worker->snapshot && !still_admitted(t, t->worker->snapshot)) {
		fail_reason(t, REASON_POLICY_REVOKED, REVOKED);
		return;
	}
	/* The origin's bytes stay in the kernel until splice takes them. */
	stream_pause(s);
	stream_set_owner(s, on_side, t);
	t->opened = true;
	t->client_side = t->on_ready(t->arg);
	stream_pause(t->client_side);
	stream_set_owner(t->client_side, on_side, t);
	tunnel_goto(t, TUNNEL_PRIME);
	/* Nothing is spliced yet, so nobody else sees that no byte moves. */
	if (t->snapshot->config->limits.tunnel_idle_ms < life_left_ms(t))
		timer_arm(&t->life, t->snapshot->config->limits.tunnel_idle_ms);
	prime(t);
}

static void dial(struct tunnel *t)
{
	struct err e = ERR_INIT;

	tunnel_goto(t, TUNNEL_DIAL);
	if (route_connect(t->route, false, t->identity.key, &e) < 0)
		fail(t, &e);
}

static void on_recorded(void *arg, bool written)
{
	struct tunnel *t = arg;

	if (t->state == TUNNEL_REFUSE)
		finish(t, true, false);
	else if (written)
		dial(t);
	else
		fail_reason(t, REASON_LOG_UNAVAILABLE, "the audit log cannot be written");
}

static void on_judged(void *arg, const struct err *e)
{
	struct tunnel *t = arg;
	uint64_t ticket;

	if (e) {
		fail(t, e);
		return;
	}
	t->via = t->route->via;
	tunnel_goto(t, TUNNEL_RECORD);
	ticket = record_start(t);
	t->recorded = ticket != 0;
	if (!ticket)
		on_recorded(t, false);
	else if (worker_log_wait(t->worker, &t->waiter, ticket))
		dial(t);
}

void tunnel_start(struct tunnel *t)
{
	struct err e = ERR_INIT;
	int r;

	if (!worker_log_available(t->worker)) {
		fail_reason(t, REASON_LOG_UNAVAILABLE, "the audit log cannot be written");
		return;
	}
	r = route_resolve(t->route, &e);
	if (r < 0)
		fail(t, &e);
	else if (r > 0)
		on_judged(t, NULL);
}

void tunnel_recheck(struct tunnel *t, struct snapshot *s)
{
	if (t->state < TUNNEL_REFUSE && !still_admitted(t, s))
		fail_reason(t, REASON_POLICY_REVOKED, REVOKED);
}

struct tunnel *tunnel_next(const struct tunnel *t)
{
	return t->next;
}

struct tunnel *tunnel_new(const struct tunnel_options *o)
{
	struct tunnel *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->worker = o->worker;
	t->caller = o->caller;
	t->snapshot = snapshot_ref(o->snapshot);
	t->identity = identity_of(o->caller, t->snapshot);
	t->rule = o->rule;
	t->host = *o->host;
	t->port = o->port;
	t->scheme = o->scheme;
	t->ech = o->ech;
	t->on_ready = o->on_ready;
	t->on_end = o->on_end;
	t->arg = o->arg;
	t->waiter.fn = on_recorded;
	t->waiter.arg = t;
	t->begun_us = loop_now_us(t->worker->loop);
	memcpy(t->id, o->id, sizeof(t->id));
	t->sni = o->sni.n > 0 ? str_dup(o->sni) : NULL;
	t->route = calloc(1, sizeof(*t->route));
	if ((o->sni.n > 0 && !t->sni) || !t->route ||
	    timer_init(&t->life, t->worker->loop, on_life, t) < 0) {
		free(t->route);
		free_tunnel(t);
		return NULL;
	}
	route_init(t->route, t->worker, t->snapshot, t->rule, &t->host, t->port, t);
	t->route->on_judged = on_judged;
	t->route->on_connected = on_connected;
	t->next = t->worker->tunnels;
	if (t->next)
		t->next->prev = t;
	t->worker->tunnels = t;
	timer_arm(&t->life, t->snapshot->config->limits.tunnel_life_ms);
	return t;
}
