/*
 * Configuration files: config_load_text, config_with_allows, policy_decide. The input is a file.
 * - It is loaded or has at least one error; each fault lies within the file and can be shown.
 * - What is loaded is whole: listeners with their policies, credentials that exist, targets with
 *   ports, limits above nothing.
 * - A second time it has the same hash, rules and decisions.
 * - A decision is that of a plain walk over all rules, which knows no index: deny first, then the
 *   first allow; CONNECT and names admit whatever such an allow needs.
 * - A target, written as text, loads as the same target.
 * Leaks and endless loads are the runtime's to find.
 */
#include "logging/limits.h"
#include "policy/config.h"
#include "tests/fuzz/fuzz.h"

#define RULES_MAX 24 /* those asked about; a walk for each is their square */

/* ---- faults ---- */

static void check_faults(struct faults *f, struct str text)
{
	struct strbuf out;
	size_t lines = 2, errors = 0;

	for (size_t i = 0; i < text.n; i++)
		lines += text.p[i] == '\n' || text.p[i] == '\r' || (text.p[i] & 0x80);
	for (size_t i = 0; i < f->n; i++) {
		struct str s = str_from_c(f->v[i].text);

		CHECK(s.n > 0 && utf8_clean(s) == s.n);
		CHECK(f->v[i].line <= lines);
		errors += !f->v[i].warning;
	}
	CHECK(errors <= f->errors && f->n <= LIMIT_YAML_FAULTS + 1);
	strbuf_init(&out, 1 << 22);
	faults_print(f, &out);
	CHECK(!out.overflowed && (out.len > 0) == (f->n > 0));
	strbuf_clear(&out);
}

/* ---- what is loaded ---- */

static void check_rule(const struct config *c, const struct rule *r, size_t at)
{
	CHECK(r->order == at && r->targets_n > 0 && r->line > 0 && r->file);
	CHECK(!r->credential || (r->effect == RULE_ALLOW && config_credential(c, r->credential)));
	CHECK((r->methods != NULL) == (r->methods_n > 0));
	CHECK(r->ranges_n <= LIMIT_RULE_RANGES && r->methods_n <= LIMIT_RULE_METHODS);
	for (size_t i = 0; i < r->methods_n; i++)
		CHECK(r->methods[i][0] != '\0');
	for (size_t i = 0; i < r->targets_n; i++) {
		const struct target *t = &r->targets[i];

		CHECK(t->scheme != SCHEME_NONE);
		CHECK(t->port_first > 0 && t->port_first <= t->port_last);
		CHECK(t->host_kind == TARGET_HOST_ANY || t->host.kind != HOST_NONE);
		CHECK(t->host_kind != TARGET_HOST_WILDCARD || t->host.kind == HOST_NAME);
		CHECK(t->scheme != SCHEME_TCP || !t->path);
	}
}

static void check_config(const struct config *c)
{
	CHECK(strlen(c->version_hash) == 16);
	CHECK(c->limits.connections > 0 && c->limits.head_bytes > 0 && c->limits.head_ms > 0);
	CHECK(c->limits.body_idle_ms > 0 && c->limits.tunnel_life_ms > 0);
	for (size_t i = 0; i < c->listeners_n; i++) {
		const struct config_listener *l = &c->listeners[i];

		CHECK(l->name && !l->policy_name == (l->tokens == CONFIG_TOKENS_REQUIRED));
		CHECK(!l->policy_name == !l->policy);
		CHECK(config_policy(c, l->policy_name) == l->policy);
		CHECK(l->unix_path || l->addr.family);
	}
	for (size_t i = 0; i < c->credentials_n; i++) {
		const struct config_credential *k = &c->credentials[i];

		CHECK(k->name && k->from && config_credential(c, k->name) == k);
		CHECK((k->as != CREDENTIAL_AS_HEADER && k->as != CREDENTIAL_AS_QUERY) ||
		      k->as_name);
	}
	for (size_t i = 0; i < c->hosts_n; i++)
		CHECK(c->hosts[i].name.kind == HOST_NAME && c->hosts[i].addrs_n > 0);
	for (size_t i = 0; i < c->tests_n; i++)
		CHECK(config_policy(c, c->tests[i].policy) && c->tests[i].url);
	for (size_t i = 0; i < c->policies_n; i++) {
		const struct policy *p = c->policies[i];

		CHECK(config_policy(c, policy_name(p)) == p);
		for (size_t j = 0; j < policy_rules_n(p); j++)
			check_rule(c, policy_rule(p, j), j);
	}
}

/* ---- decisions, by a walk ---- */

static bool has_host(const struct target *t, const struct host *h)
{
	struct str name = host_str(h), suffix = host_str(&t->host);

	switch (t->host_kind) {
	case TARGET_HOST_ANY: return true;
	case TARGET_HOST_EXACT: return host_eq(&t->host, h);
	case TARGET_HOST_WILDCARD:
		return h->kind == HOST_NAME && name.n > suffix.n + 1 && str_ends(name, suffix) &&
		       name.p[name.n - suffix.n - 1] == '.';
	}
	return false;
}

/* A deny is read in any case of letters. */
static bool has_method(const struct rule *r, struct str method)
{
	bool (*same)(struct str, struct str) = r->effect == RULE_DENY ? str_eq_nocase : str_eq;

	for (size_t i = 0; i < r->methods_n; i++) {
		struct str m = str_from_c(r->methods[i]);

		if (same(m, method) || (same(m, STR("GET")) && same(method, STR("HEAD"))))
			return true;
	}
	return r->methods_n == 0;
}

static bool has_target(const struct rule *r, const struct policy_request *q)
{
	bool deny = r->effect == RULE_DENY;

	for (size_t i = 0; i < r->targets_n; i++) {
		const struct target *t = &r->targets[i];

		if ((t->scheme == q->scheme || (deny && t->scheme == SCHEME_TCP)) &&
		    q->port >= t->port_first && q->port <= t->port_last && has_host(t, q->host) &&
		    (!t->path || (deny ? pattern_match_broad(t->path, q->path)
				       : pattern_match(t->path, q->path))))
			return true;
	}
	return false;
}

static const struct rule *walk(const struct policy *p, const struct policy_request *q)
{
	const struct rule *allow = NULL;

	for (size_t i = 0; i < policy_rules_n(p); i++) {
		const struct rule *r = policy_rule(p, i);

		if (!has_method(r, q->method) || !has_target(r, q))
			continue;
		if (r->effect == RULE_DENY)
			return r;
		if (!allow && r->tls != RULE_TLS_PASSTHROUGH)
			allow = r;
	}
	return allow;
}

static void ask(const struct policy *p, const struct policy *again, const struct policy_request *q)
{
	const struct rule *want = walk(p, q);
	struct policy_decision d, d_again;
	struct policy_connect c;

	policy_decide(p, q, &d);
	policy_decide(again, q, &d_again);
	CHECK(d.rule == want);
	CHECK(d.allow == (want && want->effect == RULE_ALLOW));
	CHECK(d.allow == (d.reason == REASON_NONE));
	CHECK(d.allow == d_again.allow && d.reason == d_again.reason);
	CHECK((d.rule ? (int)d.rule->order : -1) == (d_again.rule ? (int)d_again.rule->order : -1));
	if (!d.allow)
		return;
	CHECK(policy_admits_name(p, q->host));
	policy_decide_connect(p, q->host, q->port, &c);
	/* A passthrough that stands before it takes the place of what would be intercepted. */
	CHECK(q->scheme == SCHEME_HTTP ? c.http != NULL : c.inspect || c.passthrough || c.deny);
}

static void ask_about(const struct policy *p, const struct policy *again, const struct target *t,
		      const struct rule *r)
{
	static const char *const paths[] = {"/", "/a", "/a/b/c", "/A%2Fb", "//x;y"};
	struct policy_request q = {.host = &t->host, .port = t->port_first};
	struct strbuf name;
	struct host below;

	strbuf_init(&name, 512);
	strbuf_adds(&name, "x.");
	strbuf_add(&name, t->host_kind == TARGET_HOST_ANY ? STR("y.test") : host_str(&t->host));
	for (unsigned i = 0; i < 12; i++) {
		bool is_name = t->host_kind == TARGET_HOST_EXACT && i < 8;

		if (!is_name && host_parse(strbuf_str(&name), &below, NULL) == 0)
			q.host = &below;
		if (q.host->kind == HOST_NONE)
			break;
		q.scheme = i & 1 ? SCHEME_HTTP : SCHEME_HTTPS;
		q.port = i & 2 ? t->port_last : t->port_first;
		q.method = i & 4 && r->methods_n ? str_from_c(r->methods[0])
			   : i & 8		 ? STR("head")
						 : STR("HEAD");
		q.path = i % 3 == 0 && t->path ? pattern_str(t->path)
					       : str_from_c(paths[i % ARRAY_LEN(paths)]);
		if (!str_eq(q.method, STR("TRACE")))
			ask(p, again, &q);
	}
	strbuf_clear(&name);
}

/* ---- targets as text ---- */

static void check_target(const struct target *t)
{
	const struct target *other;
	struct strbuf text, again;
	const char *targets[1];
	struct config *c;
	struct faults f;

	strbuf_init(&text, 2 * LIMIT_URL_BYTES);
	strbuf_init(&again, 2 * LIMIT_URL_BYTES);
	faults_init(&f, "--allow");
	target_add(t, &text);
	targets[0] = strbuf_cstr(&text);
	if (config_with_allows(NULL, NULL, targets, 1, &c, &f) < 0) {
		(void)fprintf(stderr, "not a target: %s\n", targets[0]);
		CHECK(!"a target can be written and read");
	}
	CHECK(c->policies_n == 1 && policy_rules_n(c->policies[0]) == 1);
	other = &policy_rule(c->policies[0], 0)->targets[0];
	CHECK(t->scheme == other->scheme && t->host_kind == other->host_kind);
	CHECK(t->port_first == other->port_first && t->port_last == other->port_last);
	target_add(other, &again);
	fuzz_check_same(&text, &again);
	config_unref(c);
	faults_clear(&f);
	strbuf_clear(&text);
	strbuf_clear(&again);
}

static void compare(const struct config *a, const struct config *b)
{
	CHECK(strcmp(a->version_hash, b->version_hash) == 0);
	CHECK(a->policies_n == b->policies_n && a->listeners_n == b->listeners_n);
	CHECK(a->credentials_n == b->credentials_n && a->tests_n == b->tests_n);
	for (size_t i = 0; i < a->policies_n; i++) {
		const struct policy *p = a->policies[i];
		size_t n = policy_rules_n(p) < RULES_MAX ? policy_rules_n(p) : RULES_MAX;

		CHECK(policy_rules_n(p) == policy_rules_n(b->policies[i]));
		for (size_t j = 0; j < n; j++) {
			const struct rule *r = policy_rule(p, j);

			for (size_t k = 0; k < r->targets_n && k < 4; k++) {
				ask_about(p, b->policies[i], &r->targets[k], r);
				check_target(&r->targets[k]);
			}
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = fuzz_copy(str_from(data, size));
	struct str text = str_from(copy, size);
	struct config *a = NULL, *b = NULL;
	struct faults f, f_again;
	int rc, rc_again;

	faults_init(&f, "x.yaml");
	faults_init(&f_again, "x.yaml");
	rc = config_load_text("x.yaml", text, &a, &f);
	rc_again = config_load_text("x.yaml", text, &b, &f_again);
	CHECK(rc == rc_again && f.n == f_again.n && f.errors == f_again.errors);
	CHECK((rc == 0) == (f.errors == 0));
	check_faults(&f, text);
	if (rc == 0) {
		check_config(a);
		compare(a, b);
		config_unref(a);
		config_unref(b);
	}
	faults_clear(&f);
	faults_clear(&f_again);
	free(copy);
	return 0;
}
