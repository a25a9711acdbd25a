/*
 * The first state of an exchange: may this request be made, as whom, and what is its connection
 * found by? Everything that can be said of it before a name is looked up. Called by exchange.c.
 */
#include <stdio.h>
#include <string.h>

#include "proxy/session/caller_memo.h"
#include "proxy/session/copy_source.h"
#include "proxy/session/exchange_internal.h"
#include "proxy/session/misuse.h"
#include "proxy/session/override.h"

/* What a rule must name. */
static enum scheme asked_scheme(const struct exchange *x)
{
	enum scheme s = x->request->url.scheme;

	return x->request->websocket ? scheme_of_websocket(s) : s;
}

/* Inside a tunnel that CONNECT was not admitted for (a reload may have changed that): what a rule
 * admits must be what its CONNECT would be opened for now. */
static void hold_to_connect(const struct exchange *x, struct policy_decision *d)
{
	const struct url *u = &x->request->url;
	struct policy_connect may;

	policy_decide_connect(x->identity.policy, &u->host, u->port, &may);
	if (u->scheme == SCHEME_HTTPS ? may.inspect : may.http)
		return;
	d->allow = false;
	d->reason = may.allow ? REASON_NO_RULE : may.reason;
	d->rule = may.allow ? NULL : may.deny;
}

struct policy_request exchange_question(const struct exchange *x)
{
	return (struct policy_request){
		.scheme = asked_scheme(x),
		.host = &x->request->url.host,
		.port = x->request->url.port,
		.method = x->request->method,
		.path = x->request->url.path,
	};
}

static int admit(struct exchange *x, struct err *e)
{
	struct policy_request q = exchange_question(x);
	struct policy_decision d = {0};
	struct strbuf url;

	int rc = 0;

	if (x->identity.policy)
		policy_decide(x->identity.policy, &q, &d);
	else
		d.reason = REASON_NO_RULE;
	if (d.allow && x->caller->explained)
		hold_to_connect(x, &d);
	if (d.allow)
		rc = override_check(x->identity.policy, x->request, &q, &d, e);
	if (d.allow && rc == 0 && d.rule->credential)
		rc = copy_source_check(x->identity.policy, x->request, &d, e);
	x->rule = d.rule;
	if (d.allow || rc < 0)
		return rc;
	/* Without the query: it may hold a secret, and no rule looks at it. */
	strbuf_init(&url, 256);
	strbuf_adds(&url, scheme_word(q.scheme));
	strbuf_adds(&url, "://");
	url_add_authority(&x->request->url, &url);
	strbuf_add(&url, q.path);
	(void)err_reason(e, d.reason, "%s %.*s %s%s",
			 d.reason == REASON_NO_RULE	     ? "no rule allows"
			 : d.reason == REASON_METHOD_REFUSED ? "no credential goes with"
							     : "a rule denies",
			 STR_FMT(x->request->method), strbuf_cstr(&url),
			 url.overflowed ? "..." : "");
	strbuf_clear(&url);
	return -1;
}

static int add_credential(struct exchange *x, const struct config_credential *c, struct err *e)
{
	struct secret *s = NULL;
	int r;

	/* Verified TLS alone may carry it; the loader refuses such a rule, and so does this. */
	if (!c || x->request->url.scheme != SCHEME_HTTPS)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "credential %s cannot be used here", x->rule->credential);
	if (c->as == CREDENTIAL_AS_MTLS)
		return credential_get_cert(x->snapshot->credentials, c->name, &x->cert, e);
	if (credential_get(x->snapshot->credentials, c->name, x->identity.sandbox, &s, e) < 0)
		return -1;
	r = exchange_redact_begin(x, s, e);
	if (r == 0)
		r = c->as == CREDENTIAL_AS_SIGV4 ? exchange_sign_prepare(x, c, s, e)
						 : credential_inject(c, s, &x->injection, e);
	secret_unref(s);
	x->injected = r == 0;
	return r;
}

/* Whose identity the request carries: the client's own, none, or that of the rule's credential. */
static int set_identity(struct exchange *x, struct err *e)
{
	const struct config_credential *c = NULL;
	const struct rule *rule = x->rule;

	if (rule->credential)
		c = config_credential(x->snapshot->config, rule->credential);
	if (c && c->placeholder)
		return exchange_swap(x, c, e);
	if (misuse_check(x->snapshot, x->request, e) < 0)
		return -1;
	if (credential_check_client(c, rule->client, x->request, e) < 0 ||
	    (rule->credential && add_credential(x, c, e) < 0))
		return -1;
	x->stripped = credential_strip(c, rule->client, x->request);
	return 0;
}

/* RFC 9110 section 7.6.2: one proxy fewer for OPTIONS; at 0 it is asked of us, who have nothing to
 * say. (TRACE is refused anyway.) */
static int spend_forward(struct exchange *x, struct err *e)
{
	struct request *r = x->request;
	bool found = false;

	if (!str_eq(r->method, STR("OPTIONS")))
		return 0;
	for (size_t i = 0; i < r->fields.n; i++) {
		struct field *f = &r->fields.v[i];
		uint64_t left;
		int n;

		if (!str_eq_nocase(f->name, STR("Max-Forwards")) || str_to_u64(f->value, &left) < 0)
			continue;
		if (found)
			return err_reason(e, REASON_MALFORMED_REQUEST,
					  "more than one Max-Forwards");
		found = true;
		if (left == 0)
			return err_reason(e, REASON_METHOD_REFUSED,
					  "OPTIONS with Max-Forwards: 0 asks the proxy itself");
		n = snprintf(x->max_forwards, sizeof(x->max_forwards), "%llu",
			     (unsigned long long)left - 1);
		f->value = str_from(x->max_forwards, (size_t)n);
	}
	return 0;
}

/* One that came over HTTP/2 has no key, and its origin may be asked in HTTP/1.1 (RFC 8441 section
 * 5.1). */
static int give_key(struct exchange *x, struct err *e)
{
	if (websocket_new_key(x->websocket_key) < 0)
		return err_reason(e, REASON_INTERNAL_ERROR, "no random bytes are to be had");
	if (fields_add(&x->request->fields, STR("Sec-WebSocket-Key"),
		       str_from_c(x->websocket_key)) < 0)
		return err_reason(e, REASON_HEAD_TOO_LARGE, "more than %d fields",
				  LIMIT_HEAD_FIELDS);
	return 0;
}

static int check_upgrade(struct exchange *x, struct err *e)
{
	if (x->request->websocket && x->request->version == HTTP_2 && give_key(x, e) < 0)
		return -1;
	if (x->request->websocket)
		return websocket_check_request(x->request, e);
	if (x->request->upgrade.n > 0)
		return err_reason(e, REASON_UPGRADE_REFUSED,
				  "an upgrade to something other than a WebSocket");
	return 0;
}

int exchange_decide(struct exchange *x, struct err *e)
{
	enum reason end = x->caller->sandbox ? sandbox_end(x->caller->sandbox) : REASON_NONE;

	/* The worker closes what is its own in a moment. */
	if (end != REASON_NONE)
		return err_reason(e, end, "%s", sandbox_end_text(end));
	if (!worker_log_available(x->worker))
		return err_reason(e, REASON_LOG_UNAVAILABLE, "the audit log cannot be written");
	if (admit(x, e) < 0) {
		misuse_note(x->snapshot, x->request, e);
		return -1;
	}
	if (spend_forward(x, e) < 0 || set_identity(x, e) < 0 || check_upgrade(x, e) < 0 ||
	    exchange_search_begin(x, e) < 0)
		return -1;
	x->pool_key = caller_pool_key(x->caller, x->snapshot, x->worker->pool, &x->request->url,
				      x->rule, x->cert);
	if (!x->pool_key)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	return 0;
}
