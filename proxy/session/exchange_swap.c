/*
 * The placeholders of a request: those of its rule's credential are swapped, all others refused. In
 * the head before anything is looked up (exchange_decide.c), in the body as it goes by
 * (exchange.c).
 */
#include <stdlib.h>

#include "proxy/credentials/secret.h"
#include "proxy/credentials/swap.h"
#include "proxy/session/exchange_internal.h"

/* The path with the real value in it is asked about again: it must be canonical, and admitted by
 * the same rule, or the value would say where the request goes. */
static int judge_path(struct exchange *x, struct err *e)
{
	struct str path = strbuf_str(&x->injection.path);
	struct policy_request q = exchange_question(x);
	struct policy_decision d = {0};
	struct url u;
	bool same;

	if (path.n == 0)
		return 0;
	same = url_parse_origin_form(q.scheme, q.host, q.port, path, &u, NULL) == 0 &&
	       !u.has_query && str_eq(u.path, path);
	url_clear(&u);
	if (same) {
		q.path = path;
		policy_decide(x->identity.policy, &q, &d);
	}
	if (same && d.allow && d.rule == x->rule)
		return 0;
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
			  "credential %s is not available: with it the path would be another one",
			  x->rule->credential);
}

static bool is_streamed(const struct exchange *x, const struct config_credential *c)
{
	if (x->request->websocket)
		return c->placeholder->places & PLACEHOLDER_IN_WEBSOCKET;
	return x->request->body != BODY_NONE && (c->placeholder->places & PLACEHOLDER_IN_BODY);
}

static int give_stream(struct exchange *x, const struct config_credential *c, size_t own,
		       struct secret *value, struct err *e)
{
	const struct field *type = fields_get(&x->request->fields, STR("Content-Type"));
	struct str form = STR("application/x-www-form-urlencoded");
	struct body_swap *b;

	if (x->request->websocket) {
		x->ws = malloc(sizeof(*x->ws));
		if (!x->ws)
			return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
		ws_swap_init(x->ws, placeholders_needles(x->snapshot->placeholders));
		/* What both ends compress cannot be read. */
		fields_remove(&x->request->fields, STR("Sec-WebSocket-Extensions"));
	} else if (exchange_search_begin(x, e) < 0) {
		return -1;
	}
	b = x->ws ? &x->ws->text : x->search;
	body_swap_give(b, c->name, own, secret_ref(value), c->placeholder->body_bytes);
	b->form = type && str_eq_nocase(str_head(type->value, form.n), form);
	return 0;
}

static int put(struct exchange *x, const struct config_credential *c, size_t own,
	       const struct swap *s, struct err *e)
{
	struct secret *value = NULL;
	int rc = 0;

	x->unasked = !swap_is_any(s) && !is_streamed(x, c);
	if (x->unasked)
		return 0;
	/* Verified TLS alone may carry it; the loader refuses such a rule, and so does this. */
	if (x->request->url.scheme != SCHEME_HTTPS)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "credential %s cannot be used here", c->name);
	if (credential_get(x->snapshot->credentials, c->name, x->identity.sandbox, &value, e) < 0)
		return -1;
	rc = exchange_redact_begin(x, value, e);
	if (rc == 0 && swap_is_any(s)) {
		rc = swap_put(x->snapshot->placeholders, c, own, x->request, s, value,
			      x->rule->client, &x->injection, e);
		if (rc == 0)
			rc = judge_path(x, e);
		x->injected = rc == 0;
	}
	if (rc == 0 && is_streamed(x, c))
		rc = give_stream(x, c, own, value, e);
	secret_unref(value);
	return rc;
}

int exchange_swap(struct exchange *x, const struct config_credential *c, struct err *e)
{
	const struct placeholders *p = x->snapshot->placeholders;
	enum rule_client client = x->rule->client;
	struct swap s;
	size_t own;
	int rc = -1;

	swap_init(&s);
	if (!p || !placeholders_find(p, x->identity.sandbox, c->name, &own)) {
		(void)err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				 "credential %s is not available: it has no placeholder", c->name);
	} else if (swap_take(p, c, own, client, x->request, &s, e) < 0) {
		rc = -1;
	} else if (s.dropped && client == RULE_CLIENT_DENY) {
		(void)err_reason(e, REASON_CLIENT_CREDENTIAL,
				 "the request brings a cookie beside the placeholder, which this "
				 "rule does not admit");
	} else if (credential_check_client(c, client, x->request, e) == 0) {
		x->stripped = credential_strip(c, client, x->request) || s.dropped;
		rc = put(x, c, own, &s, e);
	}
	x->swaps_body = rc == 0 && is_streamed(x, c);
	swap_clear(&s);
	return rc;
}

/* ---- the body ---- */

int exchange_search_begin(struct exchange *x, struct err *e)
{
	if (x->search || !x->snapshot->placeholders || x->request->websocket ||
	    x->request->body == BODY_NONE)
		return 0;
	x->search = malloc(sizeof(*x->search));
	if (!x->search)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	body_swap_init(x->search, placeholders_needles(x->snapshot->placeholders));
	return 0;
}

void exchange_search(struct exchange *x, struct str data, body_swap_sink *sink)
{
	if (x->misused)
		return;
	if (x->ws && x->state == EXCHANGE_RELAY)
		x->misused |= ws_swap_feed(x->ws, data, sink, x, &x->error) < 0;
	else if (x->search)
		x->misused |= body_swap_feed(x->search, data, sink, x, &x->error) < 0;
	else
		sink(x, data);
}

void exchange_search_flush(struct exchange *x, body_swap_sink *sink)
{
	if (x->ws && x->state == EXCHANGE_RELAY)
		ws_swap_end(x->ws, sink, x);
	else if (x->search)
		body_swap_end(x->search, sink, x);
}

void exchange_search_clear(struct exchange *x)
{
	if (!x->search && !x->ws)
		return;
	if (x->search)
		body_swap_clear(x->search);
	if (x->ws)
		ws_swap_clear(x->ws);
	free(x->search);
	free(x->ws);
	x->search = NULL;
	x->ws = NULL;
}

size_t exchange_search_room(const struct exchange *x, size_t room)
{
	/* What waits for what comes goes out with it. */
	if (!x->swaps_body)
		return room;
	return room > LIMIT_PLACEHOLDER_BYTES ? room - LIMIT_PLACEHOLDER_BYTES : 0;
}

int exchange_check_trailers(const struct exchange *x, const struct fields *trailers, struct err *e)
{
	if (!x->snapshot->placeholders)
		return 0;
	return swap_check_trailers(x->snapshot->placeholders, trailers, e);
}
