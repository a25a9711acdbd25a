/*
 * See audit.h.
 */
#include "proxy/session/audit.h"

#include <stdlib.h>
#include <string.h>

/* Each has its one place; what comes there next takes it. */
#define RULES_KEPT     16
#define UPSTREAMS_KEPT 16

/* The snapshot is the worker's as long as they are here: no other rule can have the address. */
struct rule_text {
	/* borrowed: compared alone */
	const struct policy *policy;
	const struct rule *rule;
	/* plain */
	size_t n; /* 0: it is none, or too long */
	char text[LIMIT_RECORD_RULE];
};

struct upstream_text {
	struct ipaddr addr;
	uint16_t port;
	size_t n;
	char text[IPADDR_TEXT_MAX + sizeof("[]:65535")];
};

struct audit_texts {
	struct rule_text rules[RULES_KEPT];
	struct upstream_text upstreams[UPSTREAMS_KEPT];
};

struct audit_texts *audit_texts_new(void)
{
	return calloc(1, sizeof(struct audit_texts));
}

void audit_texts_free(struct audit_texts *t)
{
	free(t);
}

void audit_texts_forget(struct audit_texts *t)
{
	for (size_t i = 0; i < RULES_KEPT; i++)
		t->rules[i].rule = NULL;
}

void audit_init(struct record *r, struct audit_mem *m, enum record_event event)
{
	memset(r, 0, sizeof(*r));
	r->event = event;
	r->ms = (struct record_ms){RECORD_MS_NONE, RECORD_MS_NONE, RECORD_MS_NONE, RECORD_MS_NONE,
				   RECORD_MS_NONE};
	strbuf_init_fixed(&m->rule_at, m->rule_at_mem, sizeof(m->rule_at_mem));
}

void audit_tls(struct record *r, const struct caller *c)
{
	r->tls_sni = c->tls_sni;
	r->tls_version = c->tls_version;
	r->tls_alpn = c->tls_alpn;
}

void audit_caller(struct record *r, const struct caller *c, const struct identity *id)
{
	r->client = c->client;
	r->listener = str_from_c(c->entrance->name);
	r->sandbox = id->sandbox;
	r->http = c->http;
	audit_tls(r, c);
}

void audit_policy(struct record *r, const struct policy *p)
{
	if (!p)
		return;
	r->policy = str_from_c(policy_name(p));
	r->policy_version = str_from_c(policy_version(p));
}

/* Of a target or a host that could not be read: what stands behind the last `@` of its authority.
 * Before it may be the proxy's own user information, a token, put there by a client at fault. */
static struct str without_user(struct str s)
{
	size_t from = 0, at = 0;

	/* "http://", "http:", or nothing: the authority begins behind it. */
	if (s.n == 0 || s.p[0] != '/') {
		ptrdiff_t slashes = str_find(s, '/');

		if (slashes > 0 && s.p[slashes - 1] == ':')
			at = (size_t)slashes;
		while (at < s.n && at > 0 && s.p[at] == '/')
			at++;
	}
	for (; at < s.n && s.p[at] != '/' && s.p[at] != '?' && s.p[at] != '#'; at++)
		if (s.p[at] == '@')
			from = at + 1;
	return str_skip(s, from);
}

void audit_request(struct record *r, const struct request *q)
{
	r->method = q->method;
	if (q->url.host.kind != HOST_NONE) {
		r->host = host_str(&q->url.host);
		r->port = q->url.port;
	} else {
		r->host = without_user(q->raw_host);
	}
	if (q->url.scheme != SCHEME_NONE)
		r->scheme = str_from_c(scheme_word(q->url.scheme));
	if (q->url.path.n > 0) {
		r->path = q->url.path;
		r->query = q->url.query;
		r->has_query = q->url.has_query;
	} else if (q->form != TARGET_AUTHORITY || q->url.host.kind == HOST_NONE) {
		struct str target = without_user(q->raw_target);
		ptrdiff_t mark = str_find(target, '?');

		/* A target that could not be read: as it came, its query apart for the redaction.
		 */
		r->path = mark < 0 ? target : str_head(target, (size_t)mark);
		if (mark >= 0) {
			r->query = str_skip(target, (size_t)mark + 1);
			r->has_query = true;
		}
	}
}

void audit_target(struct record *r, enum scheme scheme, const struct host *host, uint16_t port)
{
	r->method = STR("CONNECT");
	if (scheme != SCHEME_NONE)
		r->scheme = str_from_c(scheme_word(scheme));
	r->host = host_str(host);
	r->port = port;
}

static struct str credential_of(const struct rule *rule)
{
	return rule->effect == RULE_ALLOW ? str_from_c(rule->credential) : STR_NONE;
}

void audit_rule(struct record *r, struct audit_mem *m, const struct rule *rule)
{
	if (!rule)
		return;
	r->rule = str_from_c(rule->name);
	rule_add_at(rule, &m->rule_at);
	r->rule_at = strbuf_str(&m->rule_at);
	r->credential = credential_of(rule);
}

void audit_decided(struct record *r, struct audit_mem *m, struct audit_texts *t,
		   const struct policy *p, const struct rule *rule)
{
	struct rule_text *kept = t && rule ? &t->rules[rule->order % RULES_KEPT] : NULL;
	bool is_known = kept && kept->rule == rule && kept->policy == p && kept->n > 0;

	if (is_known) {
		r->credential = credential_of(rule);
	} else {
		audit_policy(r, p);
		audit_rule(r, m, rule);
	}
	if (kept && !is_known) {
		kept->rule = rule;
		kept->policy = p;
		kept->n = record_format_rule(r, kept->text);
	}
	if (kept)
		r->rule_members = str_from(kept->text, kept->n);
}

static void put_upstream(struct upstream_text *kept, const struct ipaddr *a, uint16_t port)
{
	char text[IPADDR_TEXT_MAX];
	struct strbuf b;

	ipaddr_format(a, text);
	strbuf_init_fixed(&b, kept->text, sizeof(kept->text));
	strbuf_adds(&b, a->family == 6 ? "[" : "");
	strbuf_adds(&b, text);
	strbuf_adds(&b, a->family == 6 ? "]:" : ":");
	strbuf_addu(&b, port);
	kept->addr = *a;
	kept->port = port;
	kept->n = b.len;
}

void audit_upstream(struct record *r, struct audit_texts *t, const struct ipaddr *a, uint16_t port,
		    const struct config_parent *via)
{
	struct upstream_text *kept;

	r->via = str_from_c(via ? via->text : NULL);
	if (a->family == 0)
		return;
	kept = &t->upstreams[(a->b[a->family == 4 ? 3 : 15] ^ port) % UPSTREAMS_KEPT];
	/* All bytes of it, the unused ones too: then no call is needed. */
	if (kept->port != port || memcmp(&kept->addr, a, sizeof(*a)) != 0)
		put_upstream(kept, a, port);
	r->upstream = str_from(kept->text, kept->n);
}

void audit_decision(struct record *r, bool allow, enum reason reason)
{
	r->has_decision = true;
	r->allow = allow;
	r->reason = reason;
}

void audit_error(struct record *r, const struct err *e)
{
	if (!e || e->reason == REASON_NONE)
		return;
	r->error = str_from_c(reason_word(e->reason));
	r->error_detail = str_from_c(e->text);
}
