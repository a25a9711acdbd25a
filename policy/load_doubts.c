/*
 * Looks for rules that are right one by one and odd together: an allow that an earlier allow or a
 * deny leaves nothing to decide, a tunnel that a deny with a path closes, an address that the rule
 * itself does not admit, a deny that misses what it looks like. Each target is compared with those
 * of its own host alone, and with so many of them at most, so that the price of a long list stays
 * that of its length. Called by load_policies.c for a policy without errors.
 */
#include <string.h>

#include "policy/index.h"
#include "policy/load.h"

#define COMPARED_MAX 64 /* entries of one chain */

/* Stands in a path for what only a wildcard matches: no canonical path holds it. */
#define ANY_TEXT "\x04"

/* ---- does one pattern cover another? ---- */

static size_t count_any_depth(struct str text)
{
	size_t n = 0;

	for (size_t i = 0; i + 2 < text.n; i++)
		n += memcmp(text.p + i, "/**", 3) == 0;
	return n;
}

static size_t count_segments(struct str text)
{
	size_t n = 0;

	for (size_t i = 0; i < text.n; i++)
		n += text.p[i] == '/';
	return n;
}

/* Writes q's text with its one `**` as so many segments. False when there is no room. */
static bool expand(struct str q, size_t segments, struct strbuf *out)
{
	size_t at = 0;

	strbuf_reset(out);
	while (at + 2 < q.n && memcmp(q.p + at, "/**", 3) != 0)
		at++;
	strbuf_add(out, str_head(q, at));
	for (size_t i = 0; i < segments; i++)
		strbuf_adds(out, "/" ANY_TEXT);
	strbuf_add(out, str_skip(q, at + 3));
	if (out->len == 0)
		strbuf_addc(out, '/');
	return !out->overflowed;
}

/*
 * Is every path of q one of p? Never a wrong yes. The text of q is taken for a path: its `*` can
 * only be matched by a wildcard of p, which then takes whatever stands there. A `**` is tried with
 * every number of segments that p could tell apart: one more than p has must fall to a `**` of p.
 */
static bool covers_path(const struct pattern *p, const struct pattern *q)
{
	struct str text = q ? pattern_str(q) : STR("/**");
	char mem[1024];
	struct strbuf path;
	size_t most;

	if (!p)
		return true;
	if (q && str_eq(pattern_str(p), text))
		return true;
	if (count_any_depth(text) == 0)
		return pattern_match(p, text);
	if (count_any_depth(text) > 1)
		return false;
	strbuf_init_fixed(&path, mem, sizeof(mem));
	most = count_segments(pattern_str(p)) + 1;
	for (size_t i = 0; i <= most; i++)
		if (!expand(text, i, &path) || !pattern_match(p, strbuf_str(&path)))
			return false;
	return true;
}

/* ---- does one target cover another of the same host? ---- */

static bool has_method(const struct rule *r, const char *method)
{
	for (size_t i = 0; i < r->methods_n; i++)
		if (strcmp(r->methods[i], method) == 0 ||
		    (strcmp(r->methods[i], "GET") == 0 && strcmp(method, "HEAD") == 0))
			return true;
	return false;
}

static bool covers_methods(const struct rule *a, const struct rule *b)
{
	if (!a->methods)
		return true;
	for (size_t i = 0; i < b->methods_n; i++)
		if (!has_method(a, b->methods[i]))
			return false;
	return b->methods != NULL;
}

static bool covers_ports(const struct target *a, const struct target *b)
{
	return a->port_first <= b->port_first && a->port_last >= b->port_last;
}

static bool meets_ports(const struct target *a, const struct target *b)
{
	return a->port_first <= b->port_last && a->port_last >= b->port_first;
}

/* Does the earlier allow decide wherever the later one could? Of a host's https rules the first
 * says whether TLS is opened, so beside one of the other kind path and methods say nothing. */
static bool outdoes(const struct index_entry *a, const struct rule *r, const struct target *t)
{
	if (a->target->scheme != t->scheme || !covers_ports(a->target, t))
		return false;
	if (a->rule->tls != r->tls)
		return true;
	return covers_methods(a->rule, r) && covers_path(a->target->path, t->path);
}

static bool undoes(const struct index_entry *deny, const struct rule *r, const struct target *t)
{
	bool has_scheme = target_denies_scheme(deny->target, t->scheme);

	return has_scheme && covers_ports(deny->target, t) && covers_methods(deny->rule, r) &&
	       covers_path(deny->target->path, t->path);
}

static bool is_tunnel(const struct rule *r, const struct target *t)
{
	return t->scheme == SCHEME_TCP || r->tls == RULE_TLS_PASSTHROUGH;
}

/* A deny that can only be kept to by reading, beside an allow of what cannot be read. */
static bool closes(const struct rule *deny, const struct target *dt, const struct target *t)
{
	if (!meets_ports(dt, t))
		return false;
	if (dt->scheme == SCHEME_WSS && t->scheme == SCHEME_HTTPS)
		return true;
	return (dt->path || deny->methods) && (t->scheme == SCHEME_TCP || dt->scheme == t->scheme);
}

/* ---- one target ---- */

static bool is_earlier(const struct index_entry *a, const struct rule *r, const struct target *t)
{
	if (a->rule != r)
		return a->rule->order < r->order;
	return a->target < t;
}

static void doubt_tunnel(struct loader *l, const struct target *t, const struct rule *deny)
{
	fault_warn(
		l->f, t->line, t->col,
		"the deny in line %u cannot be kept to within a tunnel, so it refuses the tunnel "
		"wherever both match",
		deny->line);
}

/* True when the target has been told that it admits nothing: once is enough. */
static bool doubt_by_denies(struct loader *l, const struct index_list *list, const struct rule *r,
			    const struct target *t)
{
	size_t left = COMPARED_MAX;

	for (const struct index_entry *en = list->denies; en && left > 0;
	     en = en->next_match, left--) {
		if (is_tunnel(r, t) && closes(en->rule, en->target, t))
			doubt_tunnel(l, t, en->rule);
		if (!undoes(en, r, t))
			continue;
		fault_warn(l->f, t->line, t->col,
			   "this never admits anything: the deny in line %u covers it",
			   en->target->line);
		return true;
	}
	return false;
}

/* The same for an earlier allow that decides in the target's place. */
static bool doubt_by(struct loader *l, const struct index_entry *en, const struct rule *r,
		     const struct target *t)
{
	if (en->target == t || en->rule->effect == RULE_DENY || !is_earlier(en, r, t) ||
	    !outdoes(en, r, t))
		return false;
	fault_warn(l->f, t->line, t->col, "this never decides: line %u covers it",
		   en->target->line);
	return true;
}

/* Who covers the target's path begins as that does; who opens TLS where the target does not, or
 * the other way round, is among the kinds. */
static bool doubt_by_allows(struct loader *l, const struct index *x, const struct index_list *list,
			    const struct rule *r, const struct target *t)
{
	const struct index_entry *chains[INDEX_CHAINS_MAX];
	struct str path = t->path ? pattern_str(t->path) : STR("");
	size_t n = index_allows(x, list, path, chains), left = COMPARED_MAX;

	for (size_t i = 0; i < n; i++)
		for (const struct index_entry *en = chains[i]; en && left > 0;
		     en = en->next_match, left--)
			if (doubt_by(l, en, r, t))
				return true;
	left = COMPARED_MAX;
	for (const struct index_entry *en = list->kinds; en && left > 0; en = en->next_kind, left--)
		if (en->rule->tls != r->tls && doubt_by(l, en, r, t))
			return true;
	return false;
}

static void doubt_tunnels_beside(struct loader *l, const struct index_list *list,
				 const struct rule *deny, const struct target *t)
{
	size_t left = COMPARED_MAX;

	for (const struct index_entry *en = list->kinds; en && left > 0; en = en->next_kind, left--)
		if (en->rule->effect == RULE_ALLOW && is_tunnel(en->rule, en->target) &&
		    closes(deny, t, en->target))
			doubt_tunnel(l, en->target, deny);
}

/* The lists that cover the target's host: for a wildcard those of its own and of shorter suffixes.
 */
static size_t find_lists(const struct index *x, const struct target *t,
			 const struct index_list *lists[INDEX_LISTS_MAX])
{
	struct host below = {.kind = HOST_NAME, .len = 1, .text = "*"};

	if (t->host_kind == TARGET_HOST_EXACT)
		return index_find(x, &t->host, lists);
	if (t->host_kind == TARGET_HOST_WILDCARD) {
		below.text[1] = '.';
		memcpy(below.text + 2, t->host.text, (size_t)t->host.len + 1);
		below.len = (uint8_t)(t->host.len + 2);
	}
	return index_find(x, &below, lists);
}

static void doubt_target(struct loader *l, const struct index *x, const struct rule *r,
			 const struct target *t)
{
	const struct index_list *lists[INDEX_LISTS_MAX];
	size_t n = find_lists(x, t, lists);

	for (size_t i = 0; i < n; i++) {
		if (r->effect == RULE_DENY)
			doubt_tunnels_beside(l, lists[i], r, t);
		else if (doubt_by_denies(l, lists[i], r, t) ||
			 doubt_by_allows(l, x, lists[i], r, t))
			return;
	}
}

/* An address, or a name whose addresses stand in the file, that the rule itself does not admit. */
static void doubt_address(struct loader *l, const struct rule *r, const struct target *t)
{
	struct err e = ERR_INIT;

	if (r->effect != RULE_ALLOW || t->host_kind != TARGET_HOST_EXACT)
		return;
	/* Of one of metadata it says itself what to do. */
	if (config_check_known(l->c, r, &t->host, &e) != 0)
		fault_warn(l->f, t->line, t->col, "this never admits anything: %s%s", e.text,
			   strchr(e.text, '(') ? "" : " (name it in the rule's `addresses:`)");
	else if (r->tls == RULE_TLS_PASSTHROUGH && t->host.kind != HOST_NAME)
		fault_warn(l->f, t->line, t->col,
			   "this never admits anything: what is passed through is known by its "
			   "SNI, and no SNI is an address (remove `tls`, or write tcp://)");
}

/* A deny of `secret*.git` holds without .git too; one of `*.git` would hold for all that there is.
 */
static bool is_any_repository(struct str segment)
{
	size_t n = segment.n;

	if (n < 5 || !str_ends(segment, STR(".git")))
		return false;
	for (size_t i = 0; i < n - 4; i++)
		if (segment.p[i] != '*')
			return false;
	return true;
}

static void doubt_repositories(struct loader *l, const struct rule *r, const struct target *t)
{
	struct str rest = t->path ? pattern_str(t->path) : STR_NONE;

	while (r->effect == RULE_DENY && rest.p)
		if (is_any_repository(str_split(&rest, '/'))) {
			fault_warn(l->f, t->line, t->col,
				   "`*.git` misses repositories that are asked for without .git "
				   "(deny `**/info/refs`, `**/git-upload-pack` and "
				   "`**/git-receive-pack`)");
			return;
		}
}

void load_doubts(struct loader *l, const struct policy *p)
{
	for (size_t i = 0; i < policy_rules_n(p); i++) {
		const struct rule *r = policy_rule(p, i);

		for (size_t j = 0; j < r->targets_n; j++) {
			doubt_address(l, r, &r->targets[j]);
			doubt_repositories(l, r, &r->targets[j]);
			doubt_target(l, policy_index(p), r, &r->targets[j]);
		}
	}
}
