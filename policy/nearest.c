/*
 * For `explain`: which allow rule came nearest to admitting a request, and in words what differs.
 * Walks all rules: it is for people, not for requests.
 */
#include "policy/policy.h"

static bool covers_host(const struct target *t, const struct host *h)
{
	struct str text = host_str(h), suffix = host_str(&t->host);

	switch (t->host_kind) {
	case TARGET_HOST_ANY: return true;
	case TARGET_HOST_EXACT: return host_eq(&t->host, h);
	case TARGET_HOST_WILDCARD:
		return h->kind == HOST_NAME && text.n > suffix.n + 1 && str_ends(text, suffix) &&
		       text.p[text.n - suffix.n - 1] == '.';
	}
	return false;
}

/* The names stand near: one is the wildcard's own apex, or below or above the other. */
static bool host_is_near(const struct target *t, const struct host *h)
{
	struct str a = host_str(h), b = host_str(&t->host);

	if (h->kind != HOST_NAME || t->host.kind != HOST_NAME || t->host_kind == TARGET_HOST_ANY)
		return false;
	if (str_eq(a, b))
		return true;
	if (a.n > b.n + 1)
		return str_ends(a, b) && a.p[a.n - b.n - 1] == '.';
	return b.n > a.n + 1 && str_ends(b, a) && b.p[b.n - a.n - 1] == '.';
}

static bool has_method(const struct rule *r, struct str method)
{
	if (!r->methods)
		return true;
	for (size_t i = 0; i < r->methods_n; i++)
		if (str_eq(str_from_c(r->methods[i]), method) ||
		    (str_eq(str_from_c(r->methods[i]), STR("GET")) && str_eq(method, STR("HEAD"))))
			return true;
	return false;
}

/* How far q gets along the target: host, scheme, port, tls, path, method. 0: nothing in common. */
static unsigned closeness(const struct rule *r, const struct target *t,
			  const struct policy_request *q)
{
	if (!covers_host(t, q->host))
		return host_is_near(t, q->host) ? 1 : 0;
	if (t->scheme != q->scheme)
		return 2;
	if (q->port < t->port_first || q->port > t->port_last)
		return 3;
	if (r->tls == RULE_TLS_PASSTHROUGH)
		return 4;
	if (t->path && !pattern_match(t->path, q->path))
		return 5;
	return has_method(r, q->method) ? 7 : 6;
}

static void say(const struct rule *r, const struct target *t, unsigned how,
		const struct policy_request *q, struct strbuf *out)
{
	switch (how) {
	case 1:
		if (t->host_kind == TARGET_HOST_WILDCARD && host_eq(&t->host, q->host))
			strbuf_addf(out, "`*.%s` covers the names below %s, not %s itself",
				    t->host.text, t->host.text, t->host.text);
		else
			strbuf_addf(out, "it names the host %s%s, not %s",
				    t->host_kind == TARGET_HOST_WILDCARD ? "*." : "", t->host.text,
				    q->host->text);
		break;
	case 2:
		strbuf_addf(out, "it admits %s://, not %s://", scheme_word(t->scheme),
			    scheme_word(q->scheme));
		break;
	case 3:
		if (t->port_first == t->port_last)
			strbuf_addf(out, "it covers port %u, not %u", t->port_first, q->port);
		else
			strbuf_addf(out, "it covers ports %u to %u, not %u", t->port_first,
				    t->port_last, q->port);
		break;
	case 4:
		strbuf_adds(out, "it passes TLS through, so it admits no request that stile reads");
		break;
	case 5:
		strbuf_adds(out, "the path ");
		strbuf_add_printable(out, q->path);
		strbuf_adds(out, " does not match ");
		strbuf_add(out, pattern_str(t->path));
		break;
	case 6:
		strbuf_adds(out, "its methods are");
		for (size_t i = 0; i < r->methods_n; i++)
			strbuf_addf(out, "%s %s", i ? "," : "", r->methods[i]);
		strbuf_adds(out, ", not ");
		strbuf_add_printable(out, q->method);
		break;
	default:
		strbuf_adds(out, "it would admit the request, but a deny stands against it");
		break;
	}
}

const struct rule *policy_nearest(const struct policy *p, const struct policy_request *q,
				  struct strbuf *ret_why)
{
	const struct rule *best = NULL;
	const struct target *best_target = NULL;
	unsigned best_how = 0;

	for (size_t i = 0; i < policy_rules_n(p); i++) {
		const struct rule *r = policy_rule(p, i);

		if (r->effect != RULE_ALLOW)
			continue;
		for (size_t j = 0; j < r->targets_n; j++) {
			unsigned how = closeness(r, &r->targets[j], q);

			if (how > best_how) {
				best = r;
				best_target = &r->targets[j];
				best_how = how;
			}
		}
	}
	if (best)
		say(best, best_target, best_how, q, ret_why);
	return best;
}
