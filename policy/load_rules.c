/*
 * Reads one entry of `rules:`. Each field is read whatever became of the others; what only the
 * whole rule shows (a credential in a deny, a path in a passthrough) is checked last.
 * Called by load_policies.c.
 */
#include <stdlib.h>
#include <string.h>

#include "logging/utf8.h"
#include "policy/load.h"

#define RULE_NAME_MAX 128

static bool is_token(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      (c != '\0' && strchr("!#$%&'*+-.^_`|~", c))))
			return false;
	}
	return s.n > 0;
}

/* ---- targets ---- */

static void read_target(struct loader *l, const struct yaml_node *node, struct rule *r)
{
	struct target *t = &r->targets[r->targets_n];
	struct err e = ERR_INIT;
	const char *doubt;
	struct str s;

	if (load_text(l, node, r->effect == RULE_DENY ? "`deny`" : "`allow`", &s) < 0)
		return;
	if (load_target(s, t, &e) < 0) {
		fault_add(l->f, node->line, node->col, "%s", e.text);
		return;
	}
	t->line = node->line;
	t->col = node->col;
	r->targets_n++;
	doubt = load_target_doubt(t);
	if (doubt && r->effect == RULE_ALLOW)
		fault_warn(l->f, node->line, node->col, "%s", doubt);
}

static void read_targets(struct loader *l, const struct yaml_node *node, struct rule *r)
{
	const struct yaml_node *list = NULL;

	if (node->kind != YAML_SCALAR) {
		list = load_list(l, node, r->effect == RULE_DENY ? "`deny`" : "`allow`");
		if (!list)
			return;
	}
	r->targets = load_array(l, list ? list->n : 1, sizeof(*r->targets));
	if (!r->targets)
		return;
	if (!list)
		read_target(l, node, r);
	for (size_t i = 0; list && i < list->n; i++)
		read_target(l, list->v[i], r);
}

/* ---- the other fields ---- */

static void read_rule_name(struct loader *l, const struct yaml_node *node, struct rule *r)
{
	struct str s;

	if (!node || load_text(l, node, "`name`", &s) < 0)
		return;
	if (s.n > RULE_NAME_MAX) {
		fault_add(l->f, node->line, node->col, "`name` is longer than %d bytes",
			  RULE_NAME_MAX);
		return;
	}
	/* Also what only a terminal takes for one: C1, the marks that turn the direction of text.
	 */
	if (utf8_clean(s) < s.n) {
		fault_add(l->f, node->line, node->col,
			  "`name` holds a control character (remove it)");
		return;
	}
	r->name = load_keep(l, s);
}

static bool has_method(const struct rule *r, struct str s)
{
	for (size_t i = 0; i < r->methods_n; i++)
		if (str_eq(str_from_c(r->methods[i]), s))
			return true;
	return false;
}

static const char *usual_method(struct str s)
{
	static const char *const usual[] = {"GET",    "HEAD",	 "POST",     "PUT",    "PATCH",
					    "DELETE", "OPTIONS", "PROPFIND", "REPORT", "MKCOL"};

	for (size_t i = 0; i < ARRAY_LEN(usual); i++)
		if (str_eq_nocase(s, str_from_c(usual[i])) && !str_eq(s, str_from_c(usual[i])))
			return usual[i];
	return NULL;
}

static void read_method(struct loader *l, const struct yaml_node *node, struct rule *r)
{
	struct str s;

	if (load_text(l, node, "a method", &s) < 0)
		return;
	if (!is_token(s) || s.n > LIMIT_METHOD_BYTES) {
		fault_add(l->f, node->line, node->col, "`%.*s` is not a method (such as GET)",
			  SHOW(s));
		return;
	}
	if (str_eq(s, STR("TRACE")) || str_eq(s, STR("CONNECT"))) {
		fault_add(l->f, node->line, node->col, "`%.*s` can never match: %s", SHOW(s),
			  s.p[0] == 'T' ? "TRACE is refused whatever a rule says (remove it)"
					: "a tunnel is admitted by its target (remove it)");
		return;
	}
	if (str_eq(s, STR("*"))) {
		/* A token, so a method: a deny of it would deny next to nothing. */
		fault_add(l->f, node->line, node->col,
			  "`*` is no pattern here, but a method of that name (leave `methods` out "
			  "for any)");
		return;
	}
	if (str_eq_nocase(s, STR("ANY")) || str_eq_nocase(s, STR("ALL")))
		fault_warn(l->f, node->line, node->col,
			   "`%.*s` is a method of that name (leave `methods` out for any)",
			   SHOW(s));
	if (usual_method(s))
		fault_warn(l->f, node->line, node->col,
			   "methods are case-sensitive, and `%.*s` is not %s", SHOW(s),
			   usual_method(s));
	if (has_method(r, s)) {
		fault_warn(l->f, node->line, node->col, "`%.*s` is listed twice", SHOW(s));
		return;
	}
	r->methods[r->methods_n] = load_keep(l, s);
	if (r->methods[r->methods_n])
		r->methods_n++;
}

static void read_methods(struct loader *l, const struct yaml_node *node, struct rule *r)
{
	if (!node || !load_list(l, node, "`methods`"))
		return;
	if (node->n > LIMIT_RULE_METHODS) {
		fault_add(l->f, node->line, node->col,
			  "`methods` has more than %d entries (leave it out for any method)",
			  LIMIT_RULE_METHODS);
		return;
	}
	r->methods = load_array(l, node->n, sizeof(*r->methods));
	for (size_t i = 0; r->methods && i < node->n; i++)
		read_method(l, node->v[i], r);
}

/* Wider than any range that is reserved for one thing: a half of all addresses admits no less than
 * all of them. At the beginning of IPv6 lies what carries IPv4; 2000::/3 is what is public there.
 */
static bool is_wide(const struct iprange *r)
{
	const uint8_t *b = r->base.b;

	if (r->base.family == 4)
		return r->bits < 8 && b[0] < 224;
	return (r->bits < 7 && b[0] >> 5 != 1) || (r->bits < 64 && b[0] == 0 && b[1] == 0);
}

static void read_range(struct loader *l, const struct yaml_node *node, struct iprange *to,
		       size_t *n)
{
	struct err e = ERR_INIT;
	struct str s;

	if (load_text(l, node, "a range of `addresses`", &s) < 0)
		return;
	if (iprange_parse(s, &to[*n], &e) < 0) {
		fault_add(l->f, node->line, node->col, "`%.*s`: %s", SHOW(s), e.text);
		return;
	}
	if (to[*n].bits == 0)
		fault_warn(l->f, node->line, node->col,
			   "`%.*s` admits every address, internal ones too", SHOW(s));
	else if (is_wide(&to[*n]))
		fault_warn(l->f, node->line, node->col,
			   "`%.*s` admits internal addresses of several kinds (name those that "
			   "are meant)",
			   SHOW(s));
	(*n)++;
}

void load_ranges(struct loader *l, const struct yaml_node *node, struct iprange **ret,
		 size_t *ret_n)
{
	if (!node || !load_list(l, node, "`addresses`"))
		return;
	if (node->n > LIMIT_RULE_RANGES) {
		fault_add(l->f, node->line, node->col, "`addresses` has more than %d ranges",
			  LIMIT_RULE_RANGES);
		return;
	}
	*ret = load_array(l, node->n, sizeof(**ret));
	for (size_t i = 0; *ret && i < node->n; i++)
		read_range(l, node->v[i], *ret, ret_n);
}

static void read_modes(struct loader *l, const struct section_values *v, struct rule *r)
{
	static const char *const tls[] = {"inspect", "passthrough"};
	static const char *const ech[] = {"allow", "refuse"};
	const struct yaml_node *node = section_value(v, KEY_RULE_TLS);
	size_t which = 0;

	if (node && load_word(l, node, "`tls`", tls, ARRAY_LEN(tls), &which) == 0)
		r->tls = which == 0 ? RULE_TLS_INSPECT : RULE_TLS_PASSTHROUGH;
	node = section_value(v, KEY_RULE_ECH);
	if (node && load_word(l, node, "`ech`", ech, ARRAY_LEN(ech), &which) == 0)
		r->ech_refuse = which == 1;
}

/* After the rule's own credential, which decides what holds when nothing is said. */
static void read_client_credentials(struct loader *l, const struct section_values *v,
				    struct rule *r)
{
	static const char *const words[] = {"pass", "strip", "deny"};
	static const enum rule_client is[] = {RULE_CLIENT_PASS, RULE_CLIENT_STRIP,
					      RULE_CLIENT_DENY};
	const struct yaml_node *node = section_value(v, KEY_RULE_CLIENT_CREDENTIALS);
	size_t which = 0;

	r->client = section_key(v, KEY_RULE_CREDENTIAL) ? RULE_CLIENT_STRIP : RULE_CLIENT_PASS;
	if (!node ||
	    load_word(l, node, "`client_credentials`", words, ARRAY_LEN(words), &which) < 0)
		return;
	r->client = is[which];
	if (r->client == RULE_CLIENT_PASS && section_key(v, KEY_RULE_CREDENTIAL))
		fault_warn(l->f, node->line, node->col,
			   "beside a credential of stile's, the client may bring one of its own to "
			   "the same host, and so another account");
}

/* ---- the rule as a whole ---- */

static void refuse_in_deny(struct loader *l, const struct section_values *v)
{
	static const enum config_key keys[] = {KEY_RULE_CREDENTIAL, KEY_RULE_CLIENT_CREDENTIALS,
					       KEY_RULE_ADDRESSES, KEY_RULE_TLS, KEY_RULE_ECH};

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const struct yaml_node *key = section_key(v, keys[i]);

		if (key)
			fault_add(l->f, key->line, key->col,
				  "`%.*s` in a deny, which admits nothing (remove it)",
				  SHOW(key->text));
	}
}

static void refuse_key(struct loader *l, const struct yaml_node *key, const char *why)
{
	if (key)
		fault_add(l->f, key->line, key->col, "`%.*s` %s", SHOW(key->text), why);
}

static bool any_scheme(const struct rule *r, enum scheme s)
{
	for (size_t i = 0; i < r->targets_n; i++)
		if (r->targets[i].scheme == s)
			return true;
	return false;
}

/* Nothing can be read in a tunnel, so nothing that speaks of a request can be kept to there. */
static void check_tunnel(struct loader *l, const struct section_values *v, const struct rule *r)
{
	bool passthrough = r->tls == RULE_TLS_PASSTHROUGH;

	if (!passthrough && !any_scheme(r, SCHEME_TCP))
		return;
	refuse_key(l, section_key(v, KEY_RULE_METHODS),
		   passthrough ? "with `tls: passthrough`, where no method can be read (remove one)"
			       : "with a tcp:// target, where no method can be read (remove it)");
	refuse_key(l, section_key(v, KEY_RULE_CREDENTIAL),
		   passthrough ? "with `tls: passthrough`, where nothing can be added (remove one)"
			       : "with a tcp:// target, where nothing can be added (remove it)");
	refuse_key(l, section_key(v, KEY_RULE_CLIENT_CREDENTIALS),
		   passthrough
			   ? "with `tls: passthrough`, where no credential can be seen (remove one)"
			   : "with a tcp:// target, where no credential can be seen (remove it)");
	for (size_t i = 0; passthrough && i < r->targets_n; i++)
		if (r->targets[i].path)
			fault_add(l->f, r->targets[i].line, r->targets[i].col,
				  "a path with `tls: passthrough`, where no path can be read "
				  "(remove one)");
}

static void check_targets(struct loader *l, const struct section_values *v, const struct rule *r)
{
	for (size_t i = 0; i < r->targets_n; i++) {
		const struct target *t = &r->targets[i];

		if ((t->scheme == SCHEME_HTTP || t->scheme == SCHEME_WS) &&
		    section_key(v, KEY_RULE_CREDENTIAL))
			fault_add(l->f, t->line, t->col,
				  "a credential over %s://, where anybody on the way reads it "
				  "(use %ss)",
				  scheme_word(t->scheme), scheme_word(t->scheme));
		if (t->scheme != SCHEME_HTTPS && section_key(v, KEY_RULE_TLS))
			fault_add(l->f, t->line, t->col,
				  "`tls` is for https targets (give this one a rule of its own)");
	}
}

static void check_whole(struct loader *l, const struct section_values *v, const struct rule *r)
{
	const struct yaml_node *ech = section_key(v, KEY_RULE_ECH);

	if (any_scheme(r, SCHEME_WS) || any_scheme(r, SCHEME_WSS))
		refuse_key(l, section_key(v, KEY_RULE_METHODS),
			   "with a ws:// or wss:// target, where the method is GET (remove it)");
	if (r->effect == RULE_DENY) {
		refuse_in_deny(l, v);
		if (any_scheme(r, SCHEME_TCP))
			refuse_key(l, section_key(v, KEY_RULE_METHODS),
				   "with a tcp:// target, where no method can be read (remove it)");
		return;
	}
	check_tunnel(l, v, r);
	check_targets(l, v, r);
	if (ech && r->tls != RULE_TLS_PASSTHROUGH)
		fault_warn(l->f, ech->line, ech->col,
			   "`ech` says nothing without `tls: passthrough`");
}

static const struct yaml_node *pick_effect(struct loader *l, const struct yaml_node *node,
					   const struct section_values *v, struct rule *r)
{
	const struct yaml_node *allow = section_value(v, KEY_RULE_ALLOW);
	const struct yaml_node *deny = section_value(v, KEY_RULE_DENY);
	const struct yaml_node *key = section_key(v, KEY_RULE_DENY);

	if (allow && deny)
		fault_add(l->f, key->line, key->col,
			  "`allow` and `deny` in one rule (make two rules)");
	else if (!allow && !deny && !v->has_unknown && !l->partial)
		fault_add(l->f, node->line, node->col, "a rule without `allow` or `deny`");
	r->effect = deny ? RULE_DENY : RULE_ALLOW;
	return deny ? deny : allow;
}

static int refuse_rule(struct loader *l, const struct yaml_node *node)
{
	if (node->kind == YAML_SCALAR)
		fault_add(l->f, node->line, node->col,
			  "a rule must be a map (write `- allow: %.*s`)", SHOW(node->text));
	else if (node->kind == YAML_SEQ)
		fault_add(l->f, node->line, node->col,
			  "a rule must be a map, not a list (write `- allow: [...]`)");
	else if (!l->partial)
		fault_add(l->f, node->line, node->col,
			  "an empty rule (write `- allow: HOST` or remove it)");
	return -1;
}

int load_rule(struct loader *l, const struct yaml_node *node, struct rule *r)
{
	const struct yaml_node *targets;
	struct section_values v;

	*r = (struct rule){.line = node->line, .col = node->col};
	if (node->kind != YAML_MAP || node->n == 0)
		return refuse_rule(l, node);
	section_read(node, SECTION_RULE, &v, l->f);
	targets = pick_effect(l, node, &v, r);
	if (targets)
		read_targets(l, targets, r);
	/* Of a rule with both, the other list is looked at for its own faults alone. */
	if (targets && targets != section_value(&v, KEY_RULE_ALLOW) &&
	    section_value(&v, KEY_RULE_ALLOW)) {
		struct rule other = {.effect = RULE_ALLOW};

		read_targets(l, section_value(&v, KEY_RULE_ALLOW), &other);
		rule_clear(&other);
	}
	read_rule_name(l, section_value(&v, KEY_RULE_NAME), r);
	read_methods(l, section_value(&v, KEY_RULE_METHODS), r);
	load_ranges(l, section_value(&v, KEY_RULE_ADDRESSES), &r->ranges, &r->ranges_n);
	if (section_value(&v, KEY_RULE_CREDENTIAL))
		load_placeholder_doubt(l, section_value(&v, KEY_RULE_CREDENTIAL),
				       load_credential_name(l,
							    section_value(&v, KEY_RULE_CREDENTIAL),
							    &r->credential),
				       r);
	read_modes(l, &v, r);
	read_client_credentials(l, &v, r);
	check_whole(l, &v, r);
	return 0;
}
