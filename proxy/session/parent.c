/*
 * See parent.h. The proxy is the admin's and may have a private address, but it is not trusted with
 * more than bytes: its answer is read as strictly as an origin's, and nothing of it is shown.
 */
#include "proxy/session/parent.h"

#include <stdlib.h>

#include "certs/trust.h"
#include "proxy/credentials/inject.h"
#include "proxy/http/h1.h"
#include "proxy/net/dial.h"
#include "proxy/session/own_listener.h"

enum parent_state {
	PARENT_RESOLVE, /* the proxy's own name */
	PARENT_DIAL,
	PARENT_TLS,
	PARENT_ANSWER, /* to the CONNECT */
	PARENT_DONE,
};

struct parent {
	/* owned */
	struct resolve *question;
	struct dial *dial;
	struct stream *s;
	struct timer timer; /* all of it: limits.dial */
	struct timer later; /* what was known at once is told from the loop */
	/* plain */
	struct parent_options o;
	const struct config_parent *proxy; /* borrowed from the snapshot */
	enum parent_state state;
	struct resolved found; /* the proxy's addresses */
	size_t next;	       /* of o.judged: the one that is asked for */
	unsigned interim;
	struct h1_scan scan;
};

static void free_parent(void *obj)
{
	free(obj);
}

static void bury(struct parent *p)
{
	p->state = PARENT_DONE;
	if (p->question)
		resolve_cancel(p->question);
	dial_cancel(p->dial);
	stream_close(p->s);
	timer_clear(&p->timer);
	timer_clear(&p->later);
	p->question = NULL;
	p->dial = NULL;
	p->s = NULL;
	loop_bury(p->o.worker->loop, p, free_parent);
}

void parent_cancel(struct parent *p)
{
	if (p)
		bury(p);
}

/* The one exit but for parent_cancel. */
static void fail(struct parent *p, const struct err *e)
{
	struct parent_options o = p->o;

	bury(p);
	o.done(o.arg, NULL, NULL, e);
}

static void fail_reason(struct parent *p, enum reason why, const char *text)
{
	struct err e = ERR_INIT;

	(void)err_reason(&e, why, "the upstream proxy %s", text);
	fail(p, &e);
}

static void on_timer(void *arg)
{
	struct parent *p = arg;
	static const char *const doing[] = {
		[PARENT_RESOLVE] = "could not be found",
		[PARENT_DIAL] = "could not be connected to",
		[PARENT_TLS] = "did not finish its TLS handshake",
		[PARENT_ANSWER] = "did not answer the CONNECT",
		[PARENT_DONE] = "is gone",
	};
	char text[128];
	struct strbuf b;

	strbuf_init_fixed(&b, text, sizeof(text));
	strbuf_addf(&b, "%s within %llu ms", doing[p->state],
		    (unsigned long long)p->o.snapshot->config->limits.dial_ms);
	fail_reason(p, REASON_PROXY_TIMEOUT, text);
}

/* ---- the answer ---- */

static void connect_to_proxy(struct parent *p);

static const struct ipaddr *asked_for(const struct parent *p)
{
	return p->o.judged->n > 0 ? &p->o.judged->addrs[p->next] : NULL;
}

static void succeed(struct parent *p)
{
	struct parent_options o = p->o;
	const struct ipaddr *addr = asked_for(p);
	struct stream *s = p->s;

	p->s = NULL;
	bury(p);
	o.done(o.arg, s, addr, NULL);
}

/* The address may be out of its reach (an IPv6 one, mostly) and the next one not. */
static bool may_ask_for_next(const struct parent *p, unsigned status)
{
	return status >= 500 && p->next + 1 < p->o.judged->n && p->next + 1 < LIMIT_DIAL_ATTEMPTS;
}

static void refused(struct parent *p, unsigned status)
{
	struct err e = ERR_INIT;

	if (may_ask_for_next(p, status)) {
		p->next++;
		stream_close(p->s);
		p->s = NULL;
		connect_to_proxy(p);
		return;
	}
	(void)err_reason(&e, REASON_PROXY_REFUSED, "the upstream proxy answered %u to CONNECT%s",
			 status,
			 status != 407		? ""
			 : p->proxy->credential ? " (it does not take the credential)"
						: " (it wants a credential)");
	fail(p, &e);
}

/* The status of a whole head, or 0 and *e. */
static unsigned read_status(struct parent *p, size_t len, struct err *e)
{
	struct response r;
	unsigned status = 0;

	response_init(&r);
	/* How a 2xx would be framed is nobody's concern: no body follows it (RFC 9110 section
	 * 9.3.6); a refusal's is not read. */
	if (h1_parse_response(str_head(stream_data(p->s), len), STR("CONNECT"), &r, e) == 0)
		status = r.status;
	response_clear(&r);
	return status;
}

static void malformed(struct parent *p, const struct err *why)
{
	struct err e = ERR_INIT;

	(void)err_reason(&e, REASON_PROXY_MALFORMED, "the upstream proxy's answer: %s", why->text);
	fail(p, &e);
}

static void on_answer(struct parent *p)
{
	struct err e = ERR_INIT;
	unsigned status = 0;
	size_t len = 0;
	int r;

	do {
		r = h1_scan_head(&p->scan, stream_data(p->s), LIMIT_HEAD_BYTES, &len, &e);
		if (r > 0)
			status = read_status(p, len, &e);
		if (r < 0 || (r > 0 && status == 0)) {
			malformed(p, &e);
			return;
		}
		if (r == 0)
			return;
		stream_consume(p->s, len);
		p->scan = (struct h1_scan){.response = true};
	} while (status < 200 && status != 101 && ++p->interim <= LIMIT_PARENT_INTERIM);
	if (status < 200)
		fail_reason(p, REASON_PROXY_MALFORMED, "answers and answers with interim heads");
	else if (status < 300)
		succeed(p);
	else
		refused(p, status);
}

static void on_stream(void *arg, unsigned events)
{
	struct parent *p = arg;
	struct err e = ERR_INIT;

	if (events & STREAM_DATA)
		on_answer(p);
	if (p->state != PARENT_ANSWER || !(events & (STREAM_EOF | STREAM_ERROR)))
		return;
	(void)err_reason(&e, REASON_PROXY_UNREACHABLE,
			 "the upstream proxy closed the connection without an answer%s%s",
			 events & STREAM_ERROR ? ": " : "",
			 events & STREAM_ERROR ? stream_error(p->s)->text : "");
	fail(p, &e);
}

/* ---- asking ---- */

static void add_target(const struct parent *p, struct strbuf *b)
{
	const struct ipaddr *a = asked_for(p);
	struct host h;

	if (a)
		host_from_ipaddr(a, &h);
	host_add_url(a ? &h : p->o.host, b);
	strbuf_addc(b, ':');
	strbuf_addu(b, p->o.port);
}

static int add_login(const struct parent *p, struct strbuf *b, struct err *e)
{
	const struct config *c = p->o.snapshot->config;
	const struct config_credential *how = config_credential(c, p->proxy->credential);
	struct secret *secret = NULL;
	int r;

	if (!how)
		return 0;
	if (credential_get(p->o.snapshot->credentials, how->name, STR_NONE, &secret, e) < 0)
		return -1;
	strbuf_adds(b, "Proxy-Authorization: ");
	r = credential_add_value(how, secret, b, e);
	strbuf_adds(b, "\r\n");
	secret_unref(secret);
	return r;
}

static void ask(struct parent *p)
{
	struct err e = ERR_INIT;
	struct strbuf b;
	int r;

	strbuf_init(&b, LIMIT_HEAD_BYTES);
	strbuf_adds(&b, "CONNECT ");
	add_target(p, &b);
	strbuf_adds(&b, " HTTP/1.1\r\nHost: ");
	add_target(p, &b);
	strbuf_adds(&b, "\r\n");
	r = add_login(p, &b, &e);
	strbuf_adds(&b, "\r\n");
	if (r == 0 && b.overflowed)
		r = err_reason(&e, REASON_CREDENTIAL_UNAVAILABLE,
			       "the upstream proxy's credential is too long");
	if (r == 0) {
		p->state = PARENT_ANSWER;
		p->scan = (struct h1_scan){.response = true};
		p->interim = 0;
		stream_set_owner(p->s, on_stream, p);
		stream_write(p->s, strbuf_str(&b));
	}
	strbuf_wipe(&b);
	if (r < 0)
		fail(p, &e);
}

/* ---- connecting ---- */

static void on_tls(void *arg, unsigned events)
{
	struct parent *p = arg;
	struct err why = ERR_INIT, e = ERR_INIT;

	if (events & STREAM_HANDSHAKED) {
		ask(p);
	} else if (events & (STREAM_ERROR | STREAM_EOF)) {
		(void)trust_explain(stream_ssl(p->s), &why);
		(void)err_reason(&e, REASON_PROXY_UNREACHABLE, "the upstream proxy: %s", why.text);
		fail(p, &e);
	}
}

static int start_tls(struct parent *p, struct err *e)
{
	static const struct str alpn = {"\x08http/1.1", 9};
	const struct host *h = &p->proxy->host;
	char key[LIMIT_HOST_BYTES + 32];
	struct strbuf b;
	SSL *ssl;

	strbuf_init_fixed(&b, key, sizeof(key));
	strbuf_addf(&b, "proxy|%s", p->proxy->text);
	if (trust_client_new(p->o.snapshot->trust, h->text, h->kind == HOST_NAME ? NULL : h->addr.b,
			     h->kind == HOST_IPV4 ? 4 : 16, alpn, strbuf_str(&b), &ssl, e) < 0)
		return -1;
	p->state = PARENT_TLS;
	stream_set_owner(p->s, on_tls, p);
	return stream_start_tls(p->s, ssl, e);
}

static void on_dialled(void *arg, int fd, const struct ipaddr *addr, const struct err *why)
{
	struct parent *p = arg;
	struct err e = ERR_INIT;

	(void)addr;
	p->dial = NULL;
	if (fd < 0) {
		(void)err_reason(&e,
				 why->reason == REASON_CONNECT_TIMEOUT ? REASON_PROXY_TIMEOUT
				 : why->reason == REASON_OVERLOADED    ? REASON_OVERLOADED
								       : REASON_PROXY_UNREACHABLE,
				 "the upstream proxy: %s", why->text);
		fail(p, &e);
		return;
	}
	if (stream_new(p->o.worker->loop, fd, on_stream, p, &p->s, &e) < 0 ||
	    (p->proxy->tls && start_tls(p, &e) < 0)) {
		e.reason = REASON_INTERNAL_ERROR;
		fail(p, &e);
	} else if (!p->proxy->tls) {
		ask(p);
	}
}

static void connect_to_proxy(struct parent *p)
{
	struct err e = ERR_INIT;

	p->state = PARENT_DIAL;
	if (dial_start(p->o.worker->loop, p->found.addrs, p->found.n, p->proxy->port,
		       p->o.snapshot->config->limits.dial_ms, on_dialled, p, &p->dial, &e) < 0) {
		e.reason = REASON_INTERNAL_ERROR;
		fail(p, &e);
	}
}

/* The admin named the proxy, so it may be anywhere, but for one place: through itself stile would
 * go in circles. */
static bool leads_home(struct parent *p)
{
	const struct ipaddr *own;
	size_t own_n;

	if (own_addrs_get(p->o.worker->own_addrs, loop_now_us(p->o.worker->loop), &own, &own_n,
			  NULL) < 0)
		return true;
	for (size_t i = 0; i < p->found.n; i++)
		if (is_own_listener(p->o.worker, &p->found.addrs[i], p->proxy->port, own, own_n))
			return true;
	return false;
}

static void on_found(struct parent *p)
{
	if (leads_home(p))
		fail_reason(p, REASON_PROXY_UNREACHABLE, "is stile itself (see `upstream.proxy`)");
	else
		connect_to_proxy(p);
}

static void on_later(void *arg)
{
	on_found(arg);
}

static void not_found(struct parent *p, const struct err *why)
{
	struct err e = ERR_INIT;

	(void)err_reason(&e,
			 why->reason == REASON_DNS_TIMEOUT ? REASON_PROXY_TIMEOUT
							   : REASON_PROXY_UNREACHABLE,
			 "the upstream proxy: %s", why->text);
	fail(p, &e);
}

static void on_resolved(void *arg, const struct resolved *found, const struct err *why)
{
	struct parent *p = arg;

	p->question = NULL;
	if (!found) {
		not_found(p, why);
		return;
	}
	p->found = *found;
	on_found(p);
}

static int resolve_proxy(struct parent *p, struct err *e)
{
	switch (resolve_start(p->o.worker->resolver, &p->proxy->host,
			      p->o.snapshot->config->limits.dns_ms, on_resolved, p, &p->found,
			      &p->question, e)) {
	case RESOLVE_DONE: timer_arm(&p->later, 0); return 0;
	case RESOLVE_PENDING: return 0;
	case RESOLVE_FAILED: break;
	}
	if (e) {
		struct err why = *e;

		(void)err_reason(e, REASON_PROXY_UNREACHABLE, "the upstream proxy: %s", why.text);
	}
	return -1;
}

int parent_start(const struct parent_options *o, struct parent **ret, struct err *e)
{
	struct parent *p = calloc(1, sizeof(*p));

	if (!p)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	p->o = *o;
	p->proxy = o->snapshot->config->parent;
	if (timer_init(&p->timer, o->worker->loop, on_timer, p) < 0 ||
	    timer_init(&p->later, o->worker->loop, on_later, p) < 0) {
		timer_clear(&p->timer);
		free(p);
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	}
	timer_arm(&p->timer, o->snapshot->config->limits.dial_ms);
	if (resolve_proxy(p, e) < 0) {
		bury(p);
		return -1;
	}
	*ret = p;
	return 0;
}
