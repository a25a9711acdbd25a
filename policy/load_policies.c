/*
 * Reads `policies:`: each policy with its rules and its tests, and the rules of --allow. The policy
 * itself is made only when the whole file is without an error so far, so that no policy of half a
 * file can exist.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/load.h"

static void clear_rules(struct rule *rules, size_t n)
{
	for (size_t i = 0; i < n; i++)
		rule_clear(&rules[i]);
	free(rules);
}

/* ---- --allow ---- */

/* One rule for a target of the command line. */
static void read_allow(struct loader *l, size_t i, struct rule *r)
{
	struct err e = ERR_INIT;

	*r = (struct rule){.line = (uint32_t)i + 1, .col = 1, .file = "--allow"};
	r->targets = load_array(l, 1, sizeof(*r->targets));
	if (!r->targets)
		return;
	if (load_target(str_from_c(l->allows[i]), r->targets, &e) < 0) {
		fault_add(l->f, 0, 0, "--allow %s: %s", l->allows[i], e.text);
		return;
	}
	r->targets[0].line = r->line;
	r->targets[0].col = 1;
	r->targets_n = 1;
	if (load_target_doubt(r->targets))
		fault_warn(l->f, 0, 0, "--allow %s: %s", l->allows[i],
			   load_target_doubt(r->targets));
}

/* ---- one policy ---- */

static void add_policy(struct loader *l, struct str name, struct rule *rules, size_t n)
{
	struct err e = ERR_INIT;
	char *copy = load_keep(l, name);

	for (size_t i = 0; i < n; i++)
		rules[i].order = (uint32_t)i;
	if (l->f->errors > l->errors_before || !copy) {
		clear_rules(rules, n);
	} else if (policy_new(copy, l->c->file, l->c->version_hash, rules, n,
			      &l->c->policies[l->c->policies_n], &e) < 0) {
		fault_add(l->f, 0, 0, "%s", e.text);
	} else {
		load_doubts(l, l->c->policies[l->c->policies_n++]);
	}
	free(copy);
}

static bool has_allow(const struct rule *rules, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (rules[i].effect == RULE_ALLOW)
			return true;
	return false;
}

static void read_rules(struct loader *l, struct str name, const struct yaml_node *list,
		       const struct yaml_node *at)
{
	size_t listed = list ? list->n : 0, n = 0;
	size_t allows =
		l->allows_n > 0 && str_eq(name, str_from_c(l->allows_for)) ? l->allows_n : 0;
	struct rule *rules;

	l->rules_n += listed;
	if (l->rules_n > LIMIT_RULES) {
		fault_add(l->f, at->line, at->col, "more than %d rules in one file (the limit)",
			  LIMIT_RULES);
		return;
	}
	rules = load_array(l, listed + allows + 1, sizeof(*rules));
	if (!rules)
		return;
	for (size_t i = 0; i < listed; i++)
		if (load_rule(l, list->v[i], &rules[n]) == 0)
			n++;
	for (size_t i = 0; i < allows; i++)
		read_allow(l, i, &rules[n++]);
	if (l->f->errors == l->errors_before && !has_allow(rules, n))
		fault_warn(l->f, at->line, at->col,
			   "policy `%.*s` allows nothing: every request is refused", SHOW(name));
	add_policy(l, name, rules, n);
}

static void read_policy(struct loader *l, const struct yaml_node *key, const struct yaml_node *node)
{
	const struct yaml_node *rules, *tests;
	struct section_values v;
	char what[96];

	if (load_name(l, key, "the policy", key->text) < 0)
		return;
	snprintf(what, sizeof(what), "policy `%.*s`", SHOW(key->text));
	if (load_section(l, node, what, SECTION_POLICY, &v) < 0)
		return;
	rules = section_value(&v, KEY_POLICY_RULES);
	tests = section_value(&v, KEY_POLICY_TESTS);
	if (!rules || load_items(l, rules, "`rules`", "allow: HOST"))
		read_rules(l, key->text, rules, key);
	if (tests)
		load_tests(l, key->text.p, tests);
}

static int by_name(const void *a, const void *b)
{
	struct policy *const *x = a, *const *y = b;

	return strcmp(policy_name(*x), policy_name(*y));
}

/* Settles which policy the targets of --allow go to. */
static bool find_allows_policy(struct loader *l, const struct yaml_node *map)
{
	if (!l->allows_for)
		l->allows_for = map->n == 1 ? map->v[0]->text.p : "default";
	for (size_t i = 0; i < map->n; i++)
		if (str_eq(map->v[2 * i]->text, str_from_c(l->allows_for)))
			return true;
	return false;
}

static void refuse_allows_policy(struct loader *l, const struct yaml_node *map, const char *said)
{
	char known[256];
	struct strbuf list;

	strbuf_init_fixed(&list, known, sizeof(known));
	for (size_t i = 0; i < map->n; i++)
		strbuf_addf(&list, "%s%.*s", i ? ", " : "", STR_FMT(map->v[2 * i]->text));
	if (said)
		fault_add(l->f, map->line, map->col, "--policy %s: there is none (there is: %s)",
			  said, strbuf_cstr(&list));
	else
		fault_add(l->f, map->line, map->col,
			  "--allow: which of the %zu policies? (say --policy NAME: %s)", map->n,
			  strbuf_cstr(&list));
}

void load_policies(struct loader *l, const struct yaml_node *node)
{
	const char *said = l->allows_for;

	if (node->kind != YAML_MAP || node->n == 0) {
		if (!l->partial)
			fault_add(l->f, node->line, node->col,
				  "`policies` must be a map with at least one policy "
				  "(`default: {rules: [...]}`)");
		return;
	}
	if (l->allows_n > 0 && !find_allows_policy(l, node)) {
		refuse_allows_policy(l, node, said);
		return;
	}
	l->c->policies = load_array(l, node->n, sizeof(struct policy *));
	if (!l->c->policies)
		return;
	for (size_t i = 0; i < node->n; i++)
		read_policy(l, node->v[2 * i], node->v[2 * i + 1]);
	if (l->c->policies_n > 0)
		qsort(l->c->policies, l->c->policies_n, sizeof(struct policy *), by_name);
}

void load_allows_only(struct loader *l)
{
	struct rule *rules = load_array(l, l->allows_n + 1, sizeof(*rules));

	l->c->policies = load_array(l, 1, sizeof(struct policy *));
	if (!l->c->policies || !rules) {
		free(rules);
		return;
	}
	for (size_t i = 0; i < l->allows_n; i++)
		read_allow(l, i, &rules[i]);
	add_policy(l, STR("default"), rules, l->allows_n);
}

/* ---- tests ---- */

/* `METHOD URL`, or `CONNECT host:port`. What is expected to be denied may be a URL that is refused
 * before any rule is asked. */
static int check_request(struct loader *l, const struct yaml_node *node, struct str method,
			 struct str url, enum rule_effect expect)
{
	struct err e = ERR_INIT;
	struct host host;
	uint16_t port;
	struct url u = {0};
	int rc;

	if (method.n == 0 || url.n == 0 || str_find(url, ' ') >= 0 || memchr(url.p, '\0', url.n) ||
	    memchr(method.p, '\0', method.n)) {
		fault_add(l->f, node->line, node->col,
			  "`request` must be a method and a URL (\"GET https://h.test/x\")");
		return -1;
	}
	if (str_eq(method, STR("CONNECT"))) {
		rc = url_parse_authority(url, &host, &port, &e);
	} else {
		rc = url_parse_asked(url, &u, &e);
		url_clear(&u);
	}
	if (rc < 0 && expect == RULE_ALLOW) {
		fault_add(l->f, node->line, node->col, "`request` can never be allowed: %s",
			  e.text);
		return -1;
	}
	return 0;
}

static void read_test(struct loader *l, const char *policy, const struct yaml_node *node)
{
	static const char *const words[] = {"allow", "deny"};
	struct config_test *t = &l->c->tests[l->c->tests_n];
	const struct yaml_node *expect, *request;
	struct section_values v;
	struct str url, method;
	size_t which = 0;

	if (load_section(l, node, "a test", SECTION_TEST, &v) < 0)
		return;
	expect = section_value(&v, KEY_TEST_EXPECT);
	request = section_value(&v, KEY_TEST_REQUEST);
	if (!expect || !request) {
		if (!v.has_unknown && !l->partial)
			fault_add(l->f, node->line, node->col,
				  "a test needs `expect` (allow or deny) and `request`");
		return;
	}
	if (load_word(l, expect, "`expect`", words, ARRAY_LEN(words), &which) < 0 ||
	    load_text(l, request, "`request`", &url) < 0)
		return;
	method = str_split(&url, ' ');
	if (check_request(l, request, method, url, which == 0 ? RULE_ALLOW : RULE_DENY) < 0)
		return;
	l->c->tests_n++;
	*t = (struct config_test){
		.policy = load_keep(l, str_from_c(policy)),
		.method = load_keep(l, method),
		.url = load_keep(l, url),
		.expect = which == 0 ? RULE_ALLOW : RULE_DENY,
		.line = node->line,
		.col = node->col,
	};
}

void load_tests(struct loader *l, const char *policy, const struct yaml_node *node)
{
	struct config_test *v;

	if (!load_items(l, node, "`tests`", "{expect: allow, request: GET URL}"))
		return;
	v = realloc(l->c->tests, (l->c->tests_n + node->n) * sizeof(*v));
	if (!v) {
		fault_add(l->f, 0, 0, "out of memory");
		return;
	}
	l->c->tests = v;
	for (size_t i = 0; i < node->n; i++)
		read_test(l, policy, node->v[i]);
}
