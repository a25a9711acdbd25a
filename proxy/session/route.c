/*
 * See route.h. Invariant 3 lives here: the addresses given to dial_start or parent_start are
 * exactly those that policy_check_addr admitted, from one resolution.
 */
#include "proxy/session/route.h"

#include <stdlib.h>
#include <string.h>

#include "proxy/session/own_listener.h"
#include "proxy/session/parent.h"

static const struct str ALPN_H1 = {"\x08http/1.1", 9};
static const struct str ALPN = {"\x02h2\x08http/1.1", 12};

static void on_timer(void *arg);

void route_init(struct route *r, struct worker *w, struct snapshot *s, const struct rule *rule,
		const struct host *host, uint16_t port, void *arg)
{
	/* Most requests meet a connection that is there, and look nothing up. */
	memset(r, 0, offsetof(struct route, judged));
	r->judged.n = 0;
	r->judged.from_cache = false;
	r->worker = w;
	r->snapshot = s;
	r->rule = rule;
	r->host = host;
	r->port = port;
	r->arg = arg;
	r->dns_us = r->connect_us = r->tls_us = RECORD_MS_NONE;
}

void route_clear(struct route *r)
{
	if (r->question)
		resolve_cancel(r->question);
	dial_cancel(r->dial);
	parent_cancel(r->parent);
	stream_close(r->stream);
	timer_clear(&r->timer);
	free(r->session_key);
	r->question = NULL;
	r->dial = NULL;
	r->parent = NULL;
	r->stream = NULL;
	r->session_key = NULL;
}

static int judge_one(struct route *r, const struct ipaddr *a, const struct ipaddr *own,
		     size_t own_n, struct err *e)
{
	if (policy_check_addr(r->rule, a, own, own_n, e) < 0)
		return -1;
	if (is_own_listener(r->worker, a, r->port, own, own_n))
		return err_reason(e, REASON_ADDRESS_DENIED,
				  "port %u there is stile itself (no rule opens that)", r->port);
	if (is_shared_state(r->worker, a, r->port, own, own_n))
		return err_reason(e, REASON_ADDRESS_DENIED,
				  "port %u there is the shared state of stile (no rule opens that)",
				  r->port);
	return 0;
}

/* What `no_proxy` names by its address is dialled, and then nothing else of that host: one request
 * goes one way. */
static void spare_some(struct route *r)
{
	struct resolved direct = {.n = 0};

	for (size_t i = 0; r->via && i < r->judged.n; i++)
		if (config_parent_spares(r->via, &r->judged.addrs[i]))
			direct.addrs[direct.n++] = r->judged.addrs[i];
	if (direct.n == 0)
		return;
	r->judged = direct;
	r->via = NULL;
}

/* Drops what the rule does not admit; the first refusal is told when nothing is left. */
static int judge(struct route *r, const struct resolved *found, struct err *e)
{
	const struct ipaddr *own;
	size_t own_n;
	struct err first = ERR_INIT;

	if (own_addrs_get(r->worker->own_addrs, loop_now_us(r->worker->loop), &own, &own_n, e) <
	    0) {
		if (e)
			e->reason = REASON_INTERNAL_ERROR;
		return -1;
	}
	r->judged.n = 0;
	for (size_t i = 0; i < found->n; i++) {
		struct err why = ERR_INIT;

		if (judge_one(r, &found->addrs[i], own, own_n, &why) == 0)
			r->judged.addrs[r->judged.n++] = found->addrs[i];
		else if (first.reason == REASON_NONE)
			first = why;
	}
	if (r->judged.n > 0) {
		spare_some(r);
		return 0;
	}
	if (first.reason == REASON_NONE)
		return err_reason(e, REASON_DNS_FAILED, "%s has no address", r->host->text);
	return err_reason(e, REASON_ADDRESS_DENIED, "%s", first.text);
}

static void on_resolved(void *arg, const struct resolved *found, const struct err *why)
{
	struct route *r = arg;
	struct err e = ERR_INIT;

	r->question = NULL;
	r->dns_us = loop_clock_us(r->worker->loop) - r->at_us;
	if (!found)
		e = *why;
	r->on_judged(r->arg, !found || judge(r, found, &e) < 0 ? &e : NULL);
}

int route_resolve(struct route *r, struct err *e)
{
	struct resolved found;
	uint64_t timeout = r->snapshot->config->limits.dns_ms;

	r->at_us = loop_now_us(r->worker->loop);
	r->via = config_parent_for(r->snapshot->config, r->host);
	if (config_sends_name(r->snapshot->config, r->host)) {
		r->judged.n = 0;
		return 1;
	}
	switch (resolve_start(r->worker->resolver, r->host, timeout, on_resolved, r, &found,
			      &r->question, e)) {
	case RESOLVE_DONE: return judge(r, &found, e) < 0 ? -1 : 1;
	case RESOLVE_PENDING: return 0;
	case RESOLVE_FAILED: return -1;
	}
	return -1;
}

static void connected(struct route *r, const struct err *e)
{
	struct stream *s = r->stream;

	r->stream = NULL;
	timer_stop(&r->timer);
	if (e)
		stream_close(s);
	r->on_connected(r->arg, e ? NULL : s, e);
}

static void on_timer(void *arg)
{
	struct route *r = arg;
	struct err e = ERR_INIT;

	(void)err_reason(&e, REASON_UPSTREAM_TLS_TIMEOUT, "no TLS handshake with %s within %llu ms",
			 r->host->text, (unsigned long long)r->snapshot->config->limits.tls_ms);
	connected(r, &e);
}

static void on_tls_event(void *arg, unsigned events)
{
	struct route *r = arg;
	struct err e = ERR_INIT;

	if (events & STREAM_HANDSHAKED) {
		r->tls_us = loop_clock_us(r->worker->loop) - r->at_us;
		trust_client_shown(stream_ssl(r->stream));
		connected(r, NULL);
	} else if (events & (STREAM_ERROR | STREAM_EOF)) {
		(void)trust_explain(stream_ssl(r->stream), &e);
		connected(r, &e);
	}
}

static int start_tls(struct route *r, struct err *e)
{
	bool is_ip = r->host->kind != HOST_NAME;
	SSL *ssl;

	if (!r->timer.impl && timer_init(&r->timer, r->worker->loop, on_timer, r) < 0)
		return err_set(e, "out of memory");
	if (trust_client_new(r->snapshot->trust, r->host->text, is_ip ? r->host->addr.b : NULL,
			     r->host->kind == HOST_IPV4 ? 4 : 16, r->h1_only ? ALPN_H1 : ALPN,
			     str_from_c(r->session_key), &ssl, e) < 0)
		return -1;
	if (r->cert)
		trust_client_show(ssl, r->cert);
	r->at_us = loop_now_us(r->worker->loop);
	stream_set_owner(r->stream, on_tls_event, r);
	timer_arm(&r->timer, r->snapshot->config->limits.tls_ms);
	return stream_start_tls(r->stream, ssl, e);
}

static void on_plain_event(void *arg, unsigned events)
{
	/* Owned by nobody for the moment between connect and its first use: what it has to say is
	 * kept by the stream (buffered bytes, EOF) and heard then. */
	(void)arg;
	(void)events;
}

/* A connection that leads to the origin is there. */
static void proceed(struct route *r)
{
	struct err e = ERR_INIT;

	if (!r->tls) {
		connected(r, NULL);
	} else if (start_tls(r, &e) < 0) {
		e.reason = REASON_INTERNAL_ERROR;
		connected(r, &e);
	}
}

static void on_parent(void *arg, struct stream *s, const struct ipaddr *addr, const struct err *why)
{
	struct route *r = arg;

	r->parent = NULL;
	r->connect_us = loop_clock_us(r->worker->loop) - r->at_us;
	if (!s) {
		r->on_connected(r->arg, NULL, why);
		return;
	}
	if (addr)
		r->addr = *addr;
	r->stream = s;
	stream_set_owner(s, on_plain_event, r);
	proceed(r);
}

static void on_dialled(void *arg, int fd, const struct ipaddr *addr, const struct err *why)
{
	struct route *r = arg;
	struct err e = ERR_INIT;

	r->dial = NULL;
	r->connect_us = loop_clock_us(r->worker->loop) - r->at_us;
	if (fd < 0) {
		r->on_connected(r->arg, NULL, why);
		return;
	}
	r->addr = *addr;
	if (stream_new(r->worker->loop, fd, on_plain_event, r, &r->stream, &e) < 0) {
		e.reason = REASON_INTERNAL_ERROR;
		r->on_connected(r->arg, NULL, &e);
		return;
	}
	proceed(r);
}

/* A TLS session may be resumed only where the same sandbox would make the same connection, and show
 * the same certificate: a resumed one stands for it. No host begins with that mark. */
static int make_session_key(struct route *r, struct str sandbox)
{
	struct strbuf b;

	strbuf_init(&b, 1024);
	if (r->cert)
		strbuf_addf(&b, "!%llu|", (unsigned long long)client_cert_id(r->cert));
	strbuf_add(&b, host_str(r->host));
	strbuf_addf(&b, ":%u|", r->port);
	strbuf_add(&b, sandbox);
	free(r->session_key);
	r->session_key = strbuf_take(&b);
	strbuf_clear(&b);
	return r->session_key ? 0 : -1;
}

static int start_parent(struct route *r, struct err *e)
{
	struct parent_options o = {
		.worker = r->worker,
		.snapshot = r->snapshot,
		.host = r->host,
		.judged = &r->judged,
		.done = on_parent,
		.arg = r,
		.port = r->port,
	};

	return parent_start(&o, &r->parent, e);
}

bool route_is_connecting(const struct route *r)
{
	return r->dial || r->parent || r->stream;
}

int route_connect(struct route *r, bool tls, struct str sandbox, struct err *e)
{
	r->tls = tls;
	r->at_us = loop_now_us(r->worker->loop);
	if (tls && make_session_key(r, sandbox) < 0)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	if (r->via)
		return start_parent(r, e);
	if (dial_start(r->worker->loop, r->judged.addrs, r->judged.n, r->port,
		       r->snapshot->config->limits.dial_ms, on_dialled, r, &r->dial, e) < 0) {
		if (e)
			e->reason = REASON_INTERNAL_ERROR;
		return -1;
	}
	return 0;
}
