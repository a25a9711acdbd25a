/*
 * Reads a credential's `from`: which file, variable or program its value comes from, and `ttl`, how
 * long a value holds. Nothing is opened or run here. Called by load_credentials.c.
 */
#include <string.h>

#include "policy/load.h"

#define SECOND_MS 1000ULL
#define DAY_MS	  (24 * 3600 * SECOND_MS)

static void read_file(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	struct str s;

	c->source = CREDENTIAL_FROM_FILE;
	if (load_text(l, node, "`file`", &s) == 0)
		c->from = load_path(l, node, s);
}

static bool is_variable(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
		      (i > 0 && c >= '0' && c <= '9')))
			return false;
	}
	return s.n > 0;
}

static void read_env(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	struct str s;

	c->source = CREDENTIAL_FROM_ENV;
	if (load_text(l, node, "`env`", &s) < 0)
		return;
	if (!is_variable(s)) {
		fault_add(l->f, node->line, node->col,
			  "`%.*s` is not the name of an environment variable (write it without $)",
			  SHOW(s));
		return;
	}
	c->from = load_keep(l, s);
}

static void read_arg(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	struct str s;

	/* A number is an argument like any other; an empty one is written "". */
	if (node->kind == YAML_SCALAR && node->text.n == 0)
		s = node->text;
	else if (load_plain(l, node, "an argument of `exec`", &s) < 0)
		return;
	if (memchr(s.p, '\0', s.n)) {
		fault_add(l->f, node->line, node->col, "an argument holds a NUL (remove it)");
		return;
	}
	c->args[c->args_n] = load_keep(l, s);
	if (c->args[c->args_n])
		c->args_n++;
}

/* A name without a slash is looked up along PATH, as `env NAME` would. */
static void read_exec(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	struct str s;

	c->source = CREDENTIAL_FROM_EXEC;
	if (node->kind == YAML_SCALAR) {
		fault_add(l->f, node->line, node->col,
			  "`exec` is a list, as no shell reads it (write [PROGRAM, ARGUMENT])");
		return;
	}
	if (!load_list(l, node, "`exec`"))
		return;
	if (node->n > LIMIT_SOURCE_ARGS) {
		fault_add(l->f, node->line, node->col, "`exec` has more than %d entries",
			  LIMIT_SOURCE_ARGS);
		return;
	}
	if (load_text(l, node->v[0], "the program of `exec`", &s) < 0)
		return;
	c->from = memchr(s.p, '/', s.n) ? load_path(l, node->v[0], s) : load_keep(l, s);
	c->args = load_array(l, node->n, sizeof(*c->args));
	for (size_t i = 1; c->args && i < node->n; i++)
		read_arg(l, node->v[i], c);
}

static void read_timeout(struct loader *l, const struct section_values *v,
			 struct config_credential *c)
{
	const struct yaml_node *node = section_value(v, KEY_FROM_TIMEOUT);
	const struct yaml_node *key = section_key(v, KEY_FROM_TIMEOUT);

	c->timeout_ms = LIMIT_MS_SOURCE;
	if (!node)
		return;
	if (c->source == CREDENTIAL_FROM_FILE || c->source == CREDENTIAL_FROM_ENV)
		fault_add(l->f, key->line, key->col,
			  "`timeout` says nothing of a file or a variable (remove it)");
	else
		(void)load_time(l, node, "`timeout`", 100, 300 * SECOND_MS, &c->timeout_ms);
}

void load_source(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	static const struct {
		enum config_key key;
		void (*read)(struct loader *l, const struct yaml_node *node,
			     struct config_credential *c);
	} kinds[] = {
		{KEY_FROM_FILE, read_file},
		{KEY_FROM_ENV, read_env},
		{KEY_FROM_EXEC, read_exec},
	};
	struct section_values v;
	size_t found = 0, which = 0;

	if (load_section(l, node, "`from`", SECTION_FROM, &v) < 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (section_value(&v, kinds[i].key)) {
			found++;
			which = i;
		}
	if (found != 1) {
		if (!v.has_unknown && !(l->partial && found == 0))
			fault_add(l->f, node->line, node->col,
				  "`from` takes one of `file: PATH`, `env: NAME` and "
				  "`exec: [PROGRAM, ...]`");
		return;
	}
	kinds[which].read(l, section_value(&v, kinds[which].key), c);
	read_timeout(l, &v, c);
}

void load_source_ttl(struct loader *l, const struct section_values *v, struct config_credential *c)
{
	const struct yaml_node *key = section_key(v, KEY_CREDENTIAL_TTL);

	/* A file is read again when it changes, a variable never can be. */
	if (c->from && (c->source == CREDENTIAL_FROM_FILE || c->source == CREDENTIAL_FROM_ENV)) {
		fault_add(l->f, key->line, key->col,
			  "`ttl` says nothing of a file or a variable (remove it)");
		return;
	}
	(void)load_time(l, section_value(v, KEY_CREDENTIAL_TTL), "`ttl`", SECOND_MS, 30 * DAY_MS,
			&c->ttl_ms);
}
