/*
 * CONNECT: the decision on host and port, the answer, and the look at the first bytes inside, which
 * say what the tunnel carries: TLS to be inspected, TLS to be passed through, cleartext HTTP, or
 * what only a tcp:// rule admits.
 *
 * A connection to a transparent listener is the inside of a CONNECT that never was: the address it
 * came to is the target. There is nobody to be told of a refusal before the first bytes say what
 * can be: an alert in TLS, an answer in HTTP, else the end.
 *
 * Few clients show what a CONNECT was refused with. So with `deny: explain` the refusal is told
 * inside: CONNECT is answered 200, TLS is opened with a leaf of ours, and each request gets its 403
 * there. Nothing is looked up or dialled for it, and the record is the request's; if none comes,
 * one of the CONNECT.
 */
#include <stdlib.h>
#include <string.h>

#include "proxy/http/clienthello.h"
#include "proxy/session/client.h"
#include "proxy/session/identity.h"
#include "proxy/session/misuse.h"
#include "proxy/session/transparent.h"

/* TLS alert, fatal, access_denied (RFC 8446 section 6): what a client of a refused name can show.
 */
static const struct str ALERT_ACCESS_DENIED = {"\x15\x03\x03\x00\x02\x02\x31", 7};
/* unrecognized_name */
static const struct str ALERT_UNRECOGNIZED = {"\x15\x03\x03\x00\x02\x02\x70", 7};

static struct stream *on_tunnel_ready(void *arg)
{
	struct client *c = arg;
	struct stream *s = c->s;

	if (c->state == CLIENT_TUNNEL && !c->where.in_tunnel)
		stream_write(s, reply_connect_ok());
	c->s = NULL;
	return s;
}

static void on_tunnel_end(void *arg, bool opened, const struct err *e)
{
	struct client *c = arg;

	c->tunnel = NULL;
	if (opened || c->where.in_tunnel) {
		client_close(c, REASON_NONE, NULL);
		return;
	}
	/* CONNECT was not answered yet: the failure can be, in HTTP. */
	struct reply r = {
		.reason = e->reason,
		.detail = str_from_c(e->text),
		.id = str_from(c->connect->id, RECORD_ID_LEN),
		.accept = reply_accept(&c->request),
	};
	client_answer(c, &r, false);
}

static void start_tunnel(struct client *c, const struct rule *rule, enum scheme scheme,
			 const struct clienthello *hello)
{
	struct client_connect *k = c->connect;
	struct tunnel_options o = {
		.worker = c->worker,
		.caller = &c->caller,
		.snapshot = k->snapshot,
		.rule = rule,
		.host = &k->host,
		.port = k->port,
		.scheme = scheme,
		.id = k->id,
		.on_ready = on_tunnel_ready,
		.on_end = on_tunnel_end,
		.arg = c,
	};

	if (hello) {
		o.sni = str_from(hello->sni, hello->sni_len);
		o.ech = hello->ech;
	}
	k->pending = false; /* the tunnel's records speak for it */
	client_goto(c, CLIENT_TUNNEL);
	c->tunnel = tunnel_new(&o);
	if (!c->tunnel) {
		k->pending = true;
		client_close(c, REASON_OVERLOADED, "out of memory");
		return;
	}
	tunnel_start(c->tunnel);
}

/* The tcp rule decides alone when it stands before the others: then nothing needs to be looked at,
 * and protocols in which the server speaks first work. */
static bool tcp_first(const struct policy_connect *m)
{
	const struct rule *others[] = {m->inspect, m->passthrough, m->http};

	if (!m->tcp)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (others[i] && others[i]->order < m->tcp->order)
			return false;
	return true;
}

static bool explains(const struct client *c)
{
	switch (c->connect->snapshot->config->deny) {
	case CONFIG_DENY_UNSAID: return c->caller.entrance->explain;
	case CONFIG_DENY_EXPLAIN: return true;
	case CONFIG_DENY_REFUSE: return false;
	}
	return false;
}

/* A leaf and a handshake for each name that a client can think of: so many in a second. */
static bool may_explain(struct worker *w)
{
	int64_t now = loop_now_us(w->loop);

	if (now - w->explained_since_us >= 1000000) {
		w->explained_since_us = now;
		w->explained_n = 0;
	}
	return w->explained_n++ < LIMIT_EXPLAINED_PER_SEC;
}

static void deny_reason(const struct client *c, struct err *e)
{
	const struct client_connect *k = c->connect;
	char at[HOST_PORT_ROOM];

	(void)err_reason(e, k->may.reason, "%s %s %s%s%s",
			 k->may.deny ? "a rule denies" : "no rule allows",
			 k->transparent ? "a connection to" : "CONNECT",
			 host_port(&k->host, k->port, at), k->barred ? ": " : "",
			 k->barred ? k->barred : "");
}

void connect_denial(const struct client *c, struct err *e)
{
	struct err end = *e, why = ERR_INIT;

	deny_reason(c, &why);
	(void)err_reason(e, why.reason, "%s; no request came to be told so: %s", why.text,
			 end.text);
}

static int new_connect(struct client *c, const struct host *host, uint16_t port)
{
	struct client_connect *k = calloc(1, sizeof(*k));

	if (!k)
		return -1;
	k->host = *host;
	k->port = port;
	k->snapshot = snapshot_ref(c->worker->snapshot);
	k->pending = true;
	record_new_id(k->id);
	c->connect = k;
	return 0;
}

void connect_refuse(struct client *c, const struct err *e)
{
	if (new_connect(c, &c->request.url.host, c->request.url.port) < 0)
		client_close(c, REASON_OVERLOADED, "out of memory");
	else
		client_deny_connect(c, SCHEME_NONE, e, true);
}

/* What the rules of the snapshot say of the target. False: nobody has any for this caller. */
static bool decide(struct client *c)
{
	struct client_connect *k = c->connect;
	struct identity who = identity_of(&c->caller, k->snapshot);

	k->may = (struct policy_connect){.reason = REASON_NO_RULE};
	if (who.policy && !k->barred)
		policy_decide_connect(who.policy, &k->host, k->port, &k->may);
	return who.policy;
}

/* May the refusal be told inside? No name stands for an address that was not given to one, so
 * there no client would take a certificate of ours. */
static bool can_explain(struct client *c)
{
	const struct client_connect *k = c->connect;

	return explains(c) && (!k->transparent || k->host.kind == HOST_NAME) &&
	       (k->may.allow || may_explain(c->worker));
}

/* The target is known: by CONNECT, or by the address that the connection came to. */
static void judge(struct client *c)
{
	struct client_connect *k = c->connect;
	struct err e = ERR_INIT;

	if (!worker_log_available(c->worker)) {
		(void)err_reason(&e, REASON_LOG_UNAVAILABLE, "the audit log cannot be written");
		client_deny_connect(c, SCHEME_NONE, &e, !k->transparent);
		return;
	}
	k->explain = decide(c) && can_explain(c);
	k->admitted = k->may.allow;
	if (!k->admitted && !k->explain && !k->transparent) {
		deny_reason(c, &e);
		client_deny_connect(c, SCHEME_NONE, &e, true);
		return;
	}
	if (tcp_first(&k->may)) {
		start_tunnel(c, k->may.tcp, SCHEME_TCP, NULL);
		return;
	}
	if (!k->transparent)
		stream_write(c->s, reply_connect_ok());
	c->where.in_tunnel = true;
	c->where.host = k->host;
	c->where.port = k->port;
	client_goto(c, CLIENT_PEEK);
}

void connect_start(struct client *c)
{
	struct err e = ERR_INIT;

	if (new_connect(c, &c->request.url.host, c->request.url.port) < 0)
		client_close(c, REASON_OVERLOADED, "out of memory");
	else if (misuse_check(c->connect->snapshot, &c->request, &e) < 0)
		client_deny_connect(c, SCHEME_NONE, &e, true);
	else
		judge(c);
}

void connect_transparent(struct client *c)
{
	struct host host;
	uint16_t port;
	const char *barred = transparent_target(c->caller.entrance, stream_fd(c->s), &host, &port);

	if (new_connect(c, &host, port) < 0) {
		client_close(c, REASON_OVERLOADED, "out of memory");
		return;
	}
	c->connect->transparent = true;
	c->connect->barred = barred;
	c->where.in_tunnel = true; /* so that nothing is answered that was not asked */
	judge(c);
}

/* ---- what is inside ---- */

/* Why nothing is admitted here. */
static void refusal(const struct client *c, struct err *e)
{
	const struct client_connect *k = c->connect;

	if (k->explain || !k->admitted)
		deny_reason(c, e);
	else
		(void)err_reason(e, k->may.reason,
				 k->transparent
					 ? "a reload took back what the connection was "
					   "admitted by"
					 : "a reload took back what CONNECT was admitted by");
}

/* A reload since CONNECT was answered: nothing is open yet that could go on under the old policy,
 * so what comes now is judged by the new one. */
static void judge_anew(struct client *c)
{
	struct client_connect *k = c->connect;

	if (k->snapshot == c->worker->snapshot)
		return;
	snapshot_unref(k->snapshot);
	k->snapshot = snapshot_ref(c->worker->snapshot);
	(void)decide(c);
}

/* Bytes of TLS that are not to be opened get an alert, so that the client's own error says
 * something. */
static void deny_tls(struct client *c, enum reason why, const char *text)
{
	struct err e = ERR_INIT;

	(void)err_reason(&e, why, "%s", text);
	stream_write(c->s, why == REASON_NAME_MISMATCH ? ALERT_UNRECOGNIZED : ALERT_ACCESS_DENIED);
	client_deny_connect(c, SCHEME_HTTPS, &e, false);
}

/* Invariant 4: the SNI and the CONNECT name are one. An address has no SNI (RFC 6066 section 3). */
static bool sni_agrees(const struct client *c, const struct clienthello *h)
{
	const struct host *want = &c->connect->host;

	return want->kind == HOST_NAME && str_eq(str_from(h->sni, h->sni_len), host_str(want));
}

static void peek_tls(struct client *c, const struct clienthello *h)
{
	const struct policy_connect *m = &c->connect->may;
	struct err e = ERR_INIT;

	c->tls_sni = str_dup(str_from(h->sni, h->sni_len));
	if (!c->tls_sni) {
		client_close(c, REASON_OVERLOADED, "out of memory");
		return;
	}
	c->caller.tls_sni = str_from(c->tls_sni, h->sni_len);
	if (m->tcp && !m->inspect && !m->passthrough) {
		start_tunnel(c, m->tcp, SCHEME_TCP, h);
	} else if (!m->allow && !c->connect->explain) {
		refusal(c, &e);
		deny_tls(c, e.reason, e.text);
	} else if (h->has_sni && !sni_agrees(c, h)) {
		(void)err_reason(&e, REASON_NAME_MISMATCH, "the TLS SNI is %s, %s %s", h->sni,
				 c->connect->transparent ? "the address is that of"
							 : "CONNECT said",
				 c->connect->host.text);
		deny_tls(c, REASON_NAME_MISMATCH, e.text);
	} else if (!m->inspect && !m->passthrough && c->connect->explain) {
		c->caller.explained = true;
		intercept_start(c);
	} else if (!m->inspect && !m->passthrough) {
		deny_tls(c, REASON_NO_RULE, "no rule allows https here");
	} else if (m->inspect) {
		intercept_start(c);
	} else if (!h->has_sni || h->sni_dotted) {
		/* It goes up as it came, and of a server of many names not each folds a dot. */
		deny_tls(c, REASON_NAME_MISMATCH,
			 h->sni_dotted
				 ? "the TLS SNI ends in a dot, and passthrough would send it so"
				 : "passthrough needs an SNI, equal to the name of the target");
	} else if (h->ech && m->passthrough->ech_refuse) {
		deny_tls(c, REASON_ECH_REFUSED, "the rule refuses Encrypted Client Hello");
	} else {
		start_tunnel(c, m->passthrough, SCHEME_HTTPS, h);
	}
}

/* A method and a space within the first bytes. 1: yes; 0: cannot be said yet; -1: no. */
static int looks_like_http(struct str in)
{
	for (size_t i = 0; i < in.n && i <= LIMIT_METHOD_BYTES; i++) {
		char ch = in.p[i];

		if (ch == ' ')
			return i > 0 ? 1 : -1;
		if (!((ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') || ch == '-' ||
		      ch == '_'))
			return -1;
	}
	return in.n > LIMIT_METHOD_BYTES ? -1 : 0;
}

static void peek_clear(struct client *c, struct str in)
{
	const struct policy_connect *m = &c->connect->may;
	int http = looks_like_http(in);
	struct err e = ERR_INIT;

	if (http == 0)
		return;
	/* In clear nothing has to be made for it: the answer is the request's. */
	c->caller.explained =
		!m->allow && (c->connect->explain ||
			      (c->connect->transparent && c->connect->host.kind == HOST_NAME));
	if (http > 0 && (m->http || c->caller.explained)) {
		c->where.scheme = SCHEME_HTTP;
		request_clear(&c->request);
		c->served = false;
		client_goto(c, CLIENT_IDLE);
		return;
	}
	if (m->tcp) {
		start_tunnel(c, m->tcp, SCHEME_TCP, NULL);
		return;
	}
	if (!m->allow)
		refusal(c, &e);
	else
		(void)err_reason(&e, REASON_NOT_TLS, "%s",
				 http > 0 ? "no rule allows cleartext http here"
					  : "what came is neither TLS nor HTTP, and no tcp:// rule "
					    "admits it");
	client_deny_connect(c, http > 0 ? SCHEME_HTTP : SCHEME_TCP, &e, http > 0);
}

void connect_peek(struct client *c)
{
	struct str in = stream_data(c->s);
	enum clienthello_result r;
	struct clienthello h;
	struct err e = ERR_INIT;

	if (in.n == 0)
		return;
	judge_anew(c);
	r = clienthello_scan(&c->connect->hello, in, &e);
	if (r == CLIENTHELLO_OK)
		r = clienthello_parse(in, &h, &e);
	switch (r) {
	case CLIENTHELLO_MORE: return;
	case CLIENTHELLO_OK: peek_tls(c, &h); return;
	case CLIENTHELLO_NOT_TLS: peek_clear(c, in); return;
	case CLIENTHELLO_BAD:
		if (!c->connect->may.allow)
			deny_reason(c, &e);
		if (c->connect->may.tcp && !c->connect->may.inspect && !c->connect->may.passthrough)
			start_tunnel(c, c->connect->may.tcp, SCHEME_TCP, NULL);
		else
			deny_tls(c, c->connect->may.allow ? REASON_CLIENT_TLS_FAILED : e.reason,
				 e.text);
		return;
	}
}
