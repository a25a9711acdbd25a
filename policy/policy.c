/*
 * The compiled policy and its decisions; see policy.h. The rules are an array in file order,
 * index.c finds those that speak of a host, and what is here picks among them.
 */
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

#include "policy/index.h"

#define ALLOWS_ONE_BY_ONE 8 /* paths of allows; for more of them the path is read once */

struct policy {
	/* owned */
	char *name, *file, *version;
	struct rule *rules;
	struct index *index;
	/* plain */
	size_t rules_n;
	int refs; /* atomic */
};

void rule_clear(struct rule *r)
{
	for (size_t i = 0; i < r->targets_n; i++)
		pattern_free(r->targets[i].path);
	for (size_t i = 0; i < r->methods_n; i++)
		free(r->methods[i]);
	free(r->targets);
	free(r->methods);
	free(r->ranges);
	free(r->name);
	free(r->credential);
	*r = (struct rule){0};
}

static void policy_free(struct policy *p)
{
	for (size_t i = 0; i < p->rules_n; i++)
		rule_clear(&p->rules[i]);
	free(p->rules);
	index_free(p->index);
	free(p->name);
	free(p->file);
	free(p->version);
	free(p);
}

int policy_new(const char *name, const char *file, const char *version, struct rule *rules,
	       size_t rules_n, struct policy **ret, struct err *e)
{
	struct policy *p = calloc(1, sizeof(*p));

	if (!p) {
		for (size_t i = 0; i < rules_n; i++)
			rule_clear(&rules[i]);
		free(rules);
		return err_set(e, "out of memory");
	}
	p->refs = 1;
	p->rules = rules;
	p->rules_n = rules_n;
	p->name = str_dup(str_from_c(name));
	p->file = str_dup(str_from_c(file));
	p->version = str_dup(str_from_c(version));
	for (size_t i = 0; i < rules_n; i++)
		if (!rules[i].file)
			rules[i].file = p->file;
	p->index = index_new(rules, rules_n);
	if (!p->name || !p->file || !p->version || !p->index) {
		policy_free(p);
		return err_set(e, "out of memory");
	}
	*ret = p;
	return 0;
}

struct policy *policy_ref(struct policy *p)
{
	__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
	return p;
}

void policy_unref(struct policy *p)
{
	if (p && __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) == 0)
		policy_free(p);
}

const char *policy_name(const struct policy *p)
{
	return p->name;
}

const char *policy_version(const struct policy *p)
{
	return p->version;
}

size_t policy_rules_n(const struct policy *p)
{
	return p->rules_n;
}

const struct rule *policy_rule(const struct policy *p, size_t i)
{
	return i < p->rules_n ? &p->rules[i] : NULL;
}

const struct index *policy_index(const struct policy *p)
{
	return p->index;
}

/* ---- matching one target ---- */

static bool has_port(const struct target *t, uint16_t port)
{
	return port >= t->port_first && port <= t->port_last;
}

static bool has_method(const struct rule *r, struct str method)
{
	if (!r->methods)
		return true;
	for (size_t i = 0; i < r->methods_n; i++) {
		struct str m = str_from_c(r->methods[i]);

		if (str_eq(m, method) || (str_eq(m, STR("GET")) && str_eq(method, STR("HEAD"))))
			return true;
	}
	return false;
}

/* Methods are case-sensitive, but frameworks put them into upper case: a deny counts that reading
 * too. */
static bool may_be_method(const struct rule *r, struct str method)
{
	if (!r->methods)
		return true;
	for (size_t i = 0; i < r->methods_n; i++) {
		struct str m = str_from_c(r->methods[i]);

		if (str_eq_nocase(m, method) ||
		    (str_eq_nocase(m, STR("GET")) && str_eq_nocase(method, STR("HEAD"))))
			return true;
	}
	return false;
}

/* The path is read for the first deny that names one, and for allows when there are many. */
struct lazy_forms {
	struct pattern_forms *forms;
	bool made;
	unsigned allows;
};

static struct pattern_forms *forms_of(struct lazy_forms *lazy, struct str path)
{
	if (!lazy->made) {
		lazy->forms = pattern_forms_new(path);
		lazy->made = true;
	}
	return lazy->forms;
}

static bool allows_path(const struct pattern *p, struct str path, struct lazy_forms *lazy)
{
	struct pattern_forms *f = NULL;

	if (lazy->forms || ++lazy->allows > ALLOWS_ONE_BY_ONE)
		f = forms_of(lazy, path);
	return f ? pattern_match_path(p, f) : pattern_match(p, path);
}

static bool allows(const struct index_entry *en, const struct policy_request *q,
		   struct lazy_forms *lazy)
{
	const struct target *t = en->target;

	/* What only a tunnel may carry is not admitted as a request that we read. */
	return en->rule->tls == RULE_TLS_INSPECT && t->scheme == q->scheme &&
	       has_port(t, q->port) && has_method(en->rule, q->method) &&
	       (!t->path || allows_path(t->path, q->path, lazy));
}

bool target_denies_scheme(const struct target *t, enum scheme s)
{
	return t->scheme == s || t->scheme == SCHEME_TCP ||
	       (t->scheme == SCHEME_HTTPS && s == SCHEME_WSS) ||
	       (t->scheme == SCHEME_HTTP && s == SCHEME_WS);
}

static bool denies(const struct index_entry *en, const struct policy_request *q,
		   struct lazy_forms *lazy)
{
	const struct target *t = en->target;

	if (!target_denies_scheme(t, q->scheme) || !has_port(t, q->port) ||
	    !may_be_method(en->rule, q->method))
		return false;
	return !t->path || pattern_match_forms(t->path, forms_of(lazy, q->path));
}

static bool is_later(const struct index_entry *en, const struct rule *best)
{
	return best && best->order <= en->rule->order;
}

/* A chain is in file order: the first that matches is the chain's word, and what stands behind the
 * best of another chain has none. */
static void pick_deny(const struct index_list *l, const struct policy_request *q,
		      struct lazy_forms *lazy, const struct rule **best)
{
	for (const struct index_entry *en = l->denies; en && !is_later(en, *best);
	     en = en->next_match)
		if (denies(en, q, lazy)) {
			*best = en->rule;
			return;
		}
}

static void pick_allow(const struct index_entry *chain, const struct policy_request *q,
		       struct lazy_forms *lazy, const struct rule **best)
{
	for (const struct index_entry *en = chain; en && !is_later(en, *best); en = en->next_match)
		if (allows(en, q, lazy)) {
			*best = en->rule;
			return;
		}
}

/* TRACE in a spelling that some servers fold to it, and its cousin of another vendor: what they
 * hand back would hold the credential. */
static bool would_echo(struct str method)
{
	return str_eq_nocase(method, STR("TRACE")) || str_eq_nocase(method, STR("TRACK"));
}

void policy_decide(const struct policy *p, const struct policy_request *q,
		   struct policy_decision *ret)
{
	const struct index_list *lists[INDEX_LISTS_MAX];
	const struct index_entry *chains[INDEX_CHAINS_MAX];
	size_t n = index_find(p->index, q->host, lists);
	const struct rule *allow = NULL, *deny = NULL;
	struct lazy_forms lazy = {0};

	*ret = (struct policy_decision){.reason = REASON_NO_RULE};
	if (str_eq(q->method, STR("TRACE"))) {
		ret->reason = REASON_METHOD_REFUSED;
		return;
	}
	for (size_t i = 0; i < n; i++)
		pick_deny(lists[i], q, &lazy, &deny);
	if (deny) {
		pattern_forms_free(lazy.forms);
		ret->reason = REASON_DENIED_BY_RULE;
		ret->rule = deny;
		return;
	}
	for (size_t i = 0; i < n; i++) {
		size_t chains_n = index_allows(p->index, lists[i], q->path, chains);

		for (size_t j = 0; j < chains_n; j++)
			pick_allow(chains[j], q, &lazy, &allow);
	}
	pattern_forms_free(lazy.forms);
	if (allow && allow->credential && would_echo(q->method)) {
		ret->reason = REASON_METHOD_REFUSED;
		ret->rule = allow;
	} else if (allow) {
		ret->allow = true;
		ret->reason = REASON_NONE;
		ret->rule = allow;
	}
}

/* ---- CONNECT ---- */

static void keep_first(const struct rule **best, const struct rule *r)
{
	if (!*best || r->order < (*best)->order)
		*best = r;
}

/* The first deny that closes each way of using a connection. A deny that names a path or methods
 * leaves what can be read to policy_decide, and closes what cannot. */
struct closed {
	const struct rule *https, *http, *passthrough, *tcp;
};

static void note_deny(struct closed *c, const struct index_entry *en)
{
	const struct target *t = en->target;
	bool whole = !t->path && !en->rule->methods;

	if (whole && target_denies_scheme(t, SCHEME_HTTPS))
		keep_first(&c->https, en->rule);
	if (whole && target_denies_scheme(t, SCHEME_HTTP))
		keep_first(&c->http, en->rule);
	if (target_denies_scheme(t, SCHEME_WSS))
		keep_first(&c->passthrough, en->rule);
	keep_first(&c->tcp, en->rule);
}

static void note_allow(struct policy_connect *m, const struct index_entry *en)
{
	switch (en->target->scheme) {
	case SCHEME_HTTPS:
	case SCHEME_WSS:
		if (en->rule->tls == RULE_TLS_PASSTHROUGH)
			keep_first(&m->passthrough, en->rule);
		else
			keep_first(&m->inspect, en->rule);
		return;
	case SCHEME_HTTP:
	case SCHEME_WS: keep_first(&m->http, en->rule); return;
	case SCHEME_TCP: keep_first(&m->tcp, en->rule); return;
	case SCHEME_NONE: return;
	}
}

static void close_by(const struct rule **rule, const struct rule *deny,
		     const struct rule **ret_deny)
{
	if (!*rule || !deny)
		return;
	*rule = NULL;
	keep_first(ret_deny, deny);
}

void policy_decide_connect(const struct policy *p, const struct host *host, uint16_t port,
			   struct policy_connect *ret)
{
	const struct index_list *lists[INDEX_LISTS_MAX];
	size_t n = index_find(p->index, host, lists);
	struct closed c = {0};

	*ret = (struct policy_connect){.reason = REASON_NO_RULE};
	for (size_t i = 0; i < n; i++)
		for (const struct index_entry *en = lists[i]->kinds; en; en = en->next_kind) {
			if (!has_port(en->target, port))
				continue;
			if (en->rule->effect == RULE_DENY)
				note_deny(&c, en);
			else
				note_allow(ret, en);
		}
	/* Of the https rules the first in file order says how. */
	if (ret->inspect && ret->passthrough) {
		if (ret->inspect->order < ret->passthrough->order)
			ret->passthrough = NULL;
		else
			ret->inspect = NULL;
	}
	close_by(&ret->inspect, c.https, &ret->deny);
	close_by(&ret->passthrough, c.passthrough, &ret->deny);
	close_by(&ret->http, c.http, &ret->deny);
	close_by(&ret->tcp, c.tcp, &ret->deny);
	ret->allow = ret->inspect || ret->passthrough || ret->http || ret->tcp;
	if (ret->allow) {
		ret->reason = REASON_NONE;
		return;
	}
	/* A deny of the whole host is the answer where nothing was allowed either. */
	if (!ret->deny)
		ret->deny = c.https;
	ret->reason = ret->deny ? REASON_DENIED_BY_RULE : REASON_NO_RULE;
}

/* Is an allow of this kind closed, on all its ports, by one deny of the whole host? */
static bool is_closed(const struct index_entry *allow, const struct index_list *const *lists,
		      size_t n)
{
	const struct target *a = allow->target;

	for (size_t i = 0; i < n; i++)
		for (const struct index_entry *en = lists[i]->kinds; en; en = en->next_kind) {
			const struct target *t = en->target;

			if (en->rule->effect == RULE_DENY && !t->path && !en->rule->methods &&
			    target_denies_scheme(t, a->scheme) && t->port_first <= a->port_first &&
			    t->port_last >= a->port_last)
				return true;
		}
	return false;
}

bool policy_admits_name(const struct policy *p, const struct host *host)
{
	const struct index_list *lists[INDEX_LISTS_MAX];
	size_t n = index_find(p->index, host, lists);

	for (size_t i = 0; i < n; i++)
		for (const struct index_entry *en = lists[i]->kinds; en; en = en->next_kind)
			if (en->rule->effect == RULE_ALLOW && !is_closed(en, lists, n))
				return true;
	return false;
}

bool policy_spells_name(const struct policy *p, const struct host *host)
{
	const struct index_list *lists[INDEX_LISTS_MAX];
	size_t n = index_find(p->index, host, lists);

	for (size_t i = 0; i < n; i++)
		for (const struct index_entry *en = lists[i]->kinds; en; en = en->next_kind)
			if (en->rule->effect == RULE_ALLOW &&
			    en->target->host_kind == TARGET_HOST_EXACT)
				return true;
	return false;
}

int policy_check_addr(const struct rule *r, const struct ipaddr *a, const struct ipaddr *own,
		      size_t own_n, struct err *e)
{
	return ipaddr_judge(a, r->ranges, r->ranges_n, own, own_n, e);
}

/* ---- words ---- */

void rule_add_at(const struct rule *r, struct strbuf *out)
{
	/* No printf: this is done for each request. */
	strbuf_adds(out, r->file);
	strbuf_addc(out, ':');
	strbuf_addu(out, r->line);
}

void target_add(const struct target *t, struct strbuf *out)
{
	uint16_t port = scheme_default_port(t->scheme);

	strbuf_addf(out, "%s://", scheme_word(t->scheme));
	switch (t->host_kind) {
	case TARGET_HOST_EXACT: host_add_url(&t->host, out); break;
	case TARGET_HOST_WILDCARD:
		strbuf_adds(out, "*.");
		strbuf_add(out, host_str(&t->host));
		break;
	case TARGET_HOST_ANY: strbuf_addc(out, '*'); break;
	}
	if (t->port_first <= 1 && t->port_last == 65535)
		strbuf_adds(out, ":*");
	else if (t->port_first != t->port_last)
		strbuf_addf(out, ":%u-%u", t->port_first, t->port_last);
	else if (t->port_first != port)
		strbuf_addf(out, ":%u", t->port_first);
	if (t->path)
		strbuf_add(out, pattern_str(t->path));
}
