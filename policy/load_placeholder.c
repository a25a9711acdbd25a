/*
 * Reads `as: {placeholder: {...}}`: by what name the sandbox gets the made-up value, what it looks
 * like, and in which places it is swapped for the real one. No value is made here. Called by
 * load_credentials.c.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/load.h"

#define RANDOM_LEAST 20 /* characters behind the prefix, so that none is met by chance */

static const char *const places[] = {"header", "basic", "query", "path", "body", "websocket"};

static void read_env(struct loader *l, const struct yaml_node *node, struct config_placeholder *p)
{
	struct str s;

	if (load_text(l, node, "`env`", &s) < 0)
		return;
	if (load_is_variable(s))
		p->env = load_keep(l, s);
	else
		fault_add(l->f, node->line, node->col,
			  "`%.*s` is not the name of an environment variable (write it without $)",
			  SHOW(s));
}

static void read_file(struct loader *l, const struct yaml_node *node, struct config_placeholder *p)
{
	struct str s;

	if (load_text(l, node, "`file`", &s) == 0)
		p->file = load_path(l, node, s);
}

static void read_places(struct loader *l, const struct yaml_node *node,
			struct config_placeholder *p)
{
	size_t which;

	p->places = 0;
	if (!load_list(l, node, "`in`"))
		return;
	for (size_t i = 0; i < node->n; i++) {
		if (load_word(l, node->v[i], "`in`", places, ARRAY_LEN(places), &which) < 0)
			continue;
		if (p->places & 1u << which)
			fault_add(l->f, node->v[i]->line, node->v[i]->col, "`%s` stands here twice",
				  places[which]);
		p->places |= 1u << which;
	}
}

/* What a value may begin with in every place: unreserved characters (RFC 3986 section 2.3). */
static void read_prefix(struct loader *l, const struct yaml_node *node,
			struct config_placeholder *p)
{
	struct str s;

	if (load_text(l, node, "`prefix`", &s) < 0)
		return;
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		    (c != '\0' && strchr("-._~:", c)))
			continue;
		fault_add(l->f, node->line, node->col,
			  "`prefix` has letters, digits, `-`, `.`, `_`, `~` and `:`");
		return;
	}
	if (s.n > LIMIT_PLACEHOLDER_PREFIX)
		fault_add(l->f, node->line, node->col, "`prefix` has more than %d characters",
			  LIMIT_PLACEHOLDER_PREFIX);
	else
		p->prefix = load_keep(l, s);
}

/* A key that says something of a place that is not opted in. */
static void check_place(struct loader *l, const struct section_values *v, enum config_key k,
			const struct config_placeholder *p, unsigned place)
{
	const struct yaml_node *key = section_key(v, k);

	if (!key || (p->places & place))
		return;
	fault_add(l->f, key->line, key->col, "`%s` says nothing unless `in` lists `%s`",
		  config_key_word(k), place == PLACEHOLDER_IN_BASIC ? "basic" : config_key_word(k));
}

static void check_bound(struct loader *l, const struct section_values *v,
			const struct yaml_node *node, const struct config_placeholder *p)
{
	const struct yaml_node *key = section_key(v, KEY_PLACEHOLDER_BODY_BYTES);
	bool streamed = (p->places & (PLACEHOLDER_IN_BODY | PLACEHOLDER_IN_WEBSOCKET)) != 0;

	if (streamed && !key && !l->partial)
		fault_add(
			l->f, node->line, node->col,
			"`%s` needs a bound: how much of a body or message is looked through (add "
			"`body_bytes: 64KiB`)",
			p->places & PLACEHOLDER_IN_BODY ? "body" : "websocket");
	if (!streamed && key)
		fault_add(l->f, key->line, key->col,
			  "`body_bytes` says nothing unless `in` lists `body` or `websocket`");
}

static void read_names(struct loader *l, const struct section_values *v,
		       struct config_placeholder *p)
{
	const struct yaml_node *header = section_value(v, KEY_PLACEHOLDER_HEADER);
	const struct yaml_node *query = section_value(v, KEY_PLACEHOLDER_QUERY);
	const struct yaml_node *user = section_value(v, KEY_PLACEHOLDER_USER);
	struct config_credential as = {0}; /* what the readers of `as` fill */

	if (header)
		load_as_header(l, header, &as);
	p->header = as.as_name;
	as.as_name = NULL;
	if (query)
		load_as_query(l, query, &as);
	p->query = as.as_name;
	if (user)
		load_as_basic(l, user, &as);
	p->user = as.username;
}

static void read_shape(struct loader *l, const struct section_values *v,
		       struct config_placeholder *p)
{
	const struct yaml_node *prefix = section_value(v, KEY_PLACEHOLDER_PREFIX);
	const struct yaml_node *length = section_value(v, KEY_PLACEHOLDER_LENGTH);
	size_t least = RANDOM_LEAST;

	if (prefix)
		read_prefix(l, prefix, p);
	if (p->prefix)
		least += strlen(p->prefix);
	if (length)
		(void)load_count(l, length, "`length`", least, LIMIT_PLACEHOLDER_BYTES, &p->length);
}

void load_as_placeholder(struct loader *l, const struct yaml_node *node,
			 struct config_credential *c)
{
	const struct yaml_node *in, *bound;
	struct config_placeholder *p;
	struct section_values v;

	if (load_section(l, node, "`placeholder`", SECTION_PLACEHOLDER, &v) < 0)
		return;
	p = load_array(l, 1, sizeof(*p));
	if (!p)
		return;
	c->as = CREDENTIAL_AS_PLACEHOLDER;
	c->placeholder = p;
	p->places = PLACEHOLDER_IN_HEADER | PLACEHOLDER_IN_BASIC;
	in = section_value(&v, KEY_PLACEHOLDER_IN);
	bound = section_value(&v, KEY_PLACEHOLDER_BODY_BYTES);
	if (section_value(&v, KEY_PLACEHOLDER_ENV))
		read_env(l, section_value(&v, KEY_PLACEHOLDER_ENV), p);
	if (section_value(&v, KEY_PLACEHOLDER_FILE))
		read_file(l, section_value(&v, KEY_PLACEHOLDER_FILE), p);
	if (in)
		read_places(l, in, p);
	if (bound)
		(void)load_bytes(l, bound, "`body_bytes`", LIMIT_PLACEHOLDER_BYTES,
				 LIMIT_PLACEHOLDER_BODY, &p->body_bytes);
	read_shape(l, &v, p);
	read_names(l, &v, p);
	check_place(l, &v, KEY_PLACEHOLDER_HEADER, p, PLACEHOLDER_IN_HEADER);
	check_place(l, &v, KEY_PLACEHOLDER_QUERY, p, PLACEHOLDER_IN_QUERY);
	check_place(l, &v, KEY_PLACEHOLDER_USER, p, PLACEHOLDER_IN_BASIC);
	check_bound(l, &v, node, p);
	if (!section_key(&v, KEY_PLACEHOLDER_ENV) && !section_key(&v, KEY_PLACEHOLDER_FILE) &&
	    !v.has_unknown && !l->partial)
		fault_add(l->f, node->line, node->col,
			  "`placeholder` needs `env` (the variable in which `run` gives it to the "
			  "sandbox) or `file` (where `serve` writes it)");
}

/* ---- all of them together ---- */

static bool is_same(const char *a, const char *b)
{
	return a && b && strcmp(a, b) == 0;
}

/* What `serve` writes goes over what stands there. */
static void check_file(struct loader *l, const struct config_credential *c)
{
	const char *file = c->placeholder->file;

	for (size_t i = 0; file && i < l->c->credentials_n; i++) {
		const struct config_credential *o = &l->c->credentials[i];
		bool source = o->source == CREDENTIAL_FROM_FILE && is_same(o->from, file);

		for (size_t k = 0; k < o->params_n; k++)
			source |=
				o->params[k].kind == PARAM_FILE && is_same(o->params[k].text, file);
		if (source)
			fault_add(l->f, c->line, c->col,
				  "the placeholder of `%s` would be written over `%s`, from which "
				  "`%s` is read",
				  c->name, file, o->name);
	}
}

void load_placeholders_check(struct loader *l)
{
	for (size_t i = 0; i < l->c->credentials_n; i++) {
		const struct config_credential *c = &l->c->credentials[i];

		if (!c->placeholder)
			continue;
		check_file(l, c);
		for (size_t k = 0; k < i; k++) {
			const struct config_placeholder *o = l->c->credentials[k].placeholder;

			if (o && is_same(o->env, c->placeholder->env))
				fault_add(l->f, c->line, c->col,
					  "the placeholders of `%s` and `%s` cannot both stand in "
					  "the variable `%s`",
					  l->c->credentials[k].name, c->name, o->env);
			if (o && is_same(o->file, c->placeholder->file))
				fault_add(l->f, c->line, c->col,
					  "the placeholders of `%s` and `%s` cannot both stand in "
					  "the file `%s`",
					  l->c->credentials[k].name, c->name, o->file);
		}
	}
}

/* A body that becomes a comment or a file is read by others: the sandbox would only have to write
 * its placeholder there. */
void load_placeholder_doubt(struct loader *l, const struct yaml_node *node,
			    const struct config_credential *c, const struct rule *r)
{
	unsigned wide = PLACEHOLDER_IN_PATH | PLACEHOLDER_IN_BODY | PLACEHOLDER_IN_WEBSOCKET;

	if (!c || !c->placeholder || !(c->placeholder->places & wide))
		return;
	for (size_t i = 0; i < r->targets_n; i++) {
		if (r->targets[i].path)
			continue;
		fault_warn(l->f, node->line, node->col,
			   "the placeholder of `%s` is swapped in paths, bodies or messages to any "
			   "path of this host, and so where the host shows to others what was sent "
			   "(name the path that takes it)",
			   c->name);
		return;
	}
}
