/*
 * Refusals that no exchange and no tunnel makes: of a head that cannot be read, a CONNECT, a
 * connection over a bound; and the records of what ends before it became a request. The record is
 * with the kernel before the client hears of it. client.c, connect.c and client_h2.c call this.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/session/audit.h"
#include "proxy/session/client.h"
#include "proxy/session/client_h2.h"
#include "proxy/session/identity.h"
#include "proxy/session/misuse.h"
#include "proxy/session/transparent.h"

/* ---- records ---- */

/* As much of a head as came, for the record of one that never became a request. */
static void note_partial_head(struct client *c)
{
	struct str in = str_head(stream_data(c->s), LIMIT_HEAD_BYTES);

	if (c->request.method.n == 0 && c->request.raw_target.n == 0 && in.n > 0)
		(void)!h1_parse_request(in, &c->where, &c->request, NULL);
}

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

void client_record_unfinished(struct client *c, enum reason why, const char *detail)
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

/* ---- answers ---- */

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
		client_end(c);
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
	/* From here on nothing is unfinished: it is recorded, whether it can be said or not. */
	client_goto(c, CLIENT_REFUSE);
	c->refusal = calloc(1, sizeof(*c->refusal));
	if (!c->refusal) {
		client_close(c, REASON_NONE, NULL);
		return;
	}
	c->refusal->e = *e;
	c->refusal->answer = answer;
	c->refusal->held = c->hold_ms > 0;
	memcpy(c->refusal->id, id, sizeof(c->refusal->id));
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

void client_deny_head(struct client *c, const struct err *e)
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

void client_deny_timer(struct client *c)
{
	c->refusal->held = false;
	if (c->refusal->recorded)
		say_refusal(c);
}

/* ---- over a bound ---- */

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
