/*
 * Reads a credential's `from`: which file, variable, program or endpoint its value comes from, and
 * `ttl`, how long a value holds. Nothing is opened, run or called here. Called by
 * load_credentials.c.
 */
#include <stdio.h>
#include <string.h>

#include "policy/load_source.h"

#define SECOND_MS 1000ULL
#define DAY_MS	  (24 * 3600 * SECOND_MS)

static void read_file(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	struct str s;

	c->source = CREDENTIAL_FROM_FILE;
	if (load_text(l, node, "`file`", &s) == 0)
		c->from = load_path(l, node, s);
}

bool load_is_variable(struct str s)
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
	if (!load_is_variable(s)) {
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

/* ---- sources that call an endpoint ---- */

struct kind {
	enum config_key key; /* in `from` */
	enum credential_source source;
	enum section section;
	const char *what;
	const struct row *rows;
	size_t rows_n;
	enum config_param_key endpoint; /* what `from` is in messages */
};

static const char *const oauth2_grants[] = {"client_credentials", "refresh_token", "token_exchange",
					    "jwt_bearer"};
static const char *const oauth2_auths[] = {"basic", "post"};
#define ROW(section, name, ...)                                                                    \
	{                                                                                          \
		.key = KEY_##section##_##name, .param = PARAM_##name, __VA_ARGS__                  \
	}
#define WORDS(list) .type = ROW_WORD, .words = (list), .words_n = ARRAY_LEN(list)
static const struct row oauth2_rows[] = {
	ROW(OAUTH2, TOKEN_URL, .type = ROW_URL, .required = true),
	ROW(OAUTH2, GRANT, WORDS(oauth2_grants)),
	ROW(OAUTH2, CLIENT_ID, .type = ROW_TEXT),
	ROW(OAUTH2, CLIENT_SECRET, .type = ROW_SECRET),
	ROW(OAUTH2, CLIENT_AUTH, WORDS(oauth2_auths)),
	ROW(OAUTH2, SCOPE, .type = ROW_TEXT),
	ROW(OAUTH2, AUDIENCE, .type = ROW_TEXT),
	ROW(OAUTH2, RESOURCE, .type = ROW_TEXT),
	ROW(OAUTH2, REFRESH_TOKEN, .type = ROW_SECRET),
	ROW(OAUTH2, SUBJECT_TOKEN, .type = ROW_SECRET),
	ROW(OAUTH2, SUBJECT_TOKEN_TYPE, .type = ROW_TEXT),
	ROW(OAUTH2, ASSERTION, .type = ROW_SECRET),
};

static const struct kind kinds[] = {
	{KEY_FROM_OAUTH2, CREDENTIAL_FROM_OAUTH2, SECTION_OAUTH2, "`oauth2`", oauth2_rows,
	 ARRAY_LEN(oauth2_rows), PARAM_TOKEN_URL},
};

/* {file: PATH} or {env: NAME}: a secret itself has no place in a file that many read. */
static void read_secret(struct loader *l, const struct yaml_node *node, const char *what,
			struct config_param *p)
{
	struct config_credential as = {0}; /* what the readers of `from` fill */
	const struct yaml_node *file, *env;
	struct section_values v;

	if (node->kind != YAML_MAP) {
		fault_add(l->f, node->line, node->col,
			  "%s is a secret, so say where it is ({file: PATH} or {env: NAME})", what);
		return;
	}
	section_read(node, SECTION_SECRET, &v, l->f);
	file = section_value(&v, KEY_SECRET_FILE);
	env = section_value(&v, KEY_SECRET_ENV);
	if (!file == !env) {
		if (!v.has_unknown && !(l->partial && !file))
			fault_add(l->f, node->line, node->col,
				  "%s takes one of `file: PATH` and `env: NAME`", what);
		return;
	}
	if (file)
		read_file(l, file, &as);
	else
		read_env(l, env, &as);
	p->text = as.from;
	p->kind = file ? PARAM_FILE : PARAM_ENV;
}

static void read_url(struct loader *l, const struct yaml_node *node, const char *what,
		     struct config_param *p)
{
	struct err e = ERR_INIT;
	struct url u;
	struct str s;

	if (load_text(l, node, what, &s) < 0)
		return;
	if (url_parse_absolute(s, &u, &e) < 0)
		fault_add(l->f, node->line, node->col, "%s: `%.*s`: %s", what, SHOW(s), e.text);
	else if (u.scheme != SCHEME_HTTPS && u.scheme != SCHEME_HTTP)
		fault_add(l->f, node->line, node->col, "%s: `%.*s` is no https:// URL", what,
			  SHOW(s));
	else
		p->text = load_keep(l, s);
	url_clear(&u);
}

static void read_param(struct loader *l, const struct yaml_node *node, const struct row *row,
		       const struct yaml_node *key, struct config_credential *c)
{
	struct config_param *p = &c->params[c->params_n];
	char what[48];
	size_t which;
	struct str s;

	snprintf(what, sizeof(what), "`%.*s`", SHOW(key->text));
	*p = (struct config_param){.key = row->param, .kind = PARAM_TEXT};
	switch (row->type) {
	case ROW_TEXT:
		if (load_plain(l, node, what, &s) == 0)
			p->text = load_keep(l, s);
		break;
	case ROW_URL: read_url(l, node, what, p); break;
	case ROW_SECRET: read_secret(l, node, what, p); break;
	case ROW_EITHER:
		if (node->kind == YAML_MAP)
			read_secret(l, node, what, p);
		else if (load_plain(l, node, what, &s) == 0)
			p->text = load_keep(l, s);
		break;
	case ROW_WORD:
		if (load_word(l, node, what, row->words, row->words_n, &which) == 0)
			p->text = load_keep(l, str_from_c(row->words[which]));
		break;
	}
	if (p->text)
		c->params_n++;
}

void load_rows(struct loader *l, const struct yaml_node *node, const char *what,
	       const struct section_values *v, const struct row *rows, size_t n,
	       struct config_credential *c)
{
	for (size_t i = 0; c->params && i < n; i++) {
		const struct row *row = &rows[i];

		if (section_value(v, row->key))
			read_param(l, section_value(v, row->key), row, section_key(v, row->key), c);
		else if (row->required && !v->has_unknown && !l->partial)
			fault_add(l->f, node->line, node->col, "%s needs `%s`", what,
				  config_key_word(row->key));
	}
}

static void read_kind(struct loader *l, const struct yaml_node *node, const struct kind *k,
		      struct config_credential *c)
{
	const char *endpoint;
	struct section_values v;

	c->source = k->source;
	if (load_section(l, node, k->what, k->section, &v) < 0)
		return;
	c->params = load_array(l, k->rows_n, sizeof(*c->params));
	load_rows(l, node, k->what, &v, k->rows, k->rows_n, c);
	endpoint = config_param_text(c, k->endpoint);
	c->from = endpoint ? load_keep(l, str_from_c(endpoint)) : NULL;
}

/* What each grant of RFC 6749, 7523 and 8693 cannot do without. */
static void check_oauth2(struct loader *l, const struct yaml_node *node,
			 const struct config_credential *c)
{
	static const struct {
		const char *grant;
		enum config_param_key needs;
		const char *word;
	} needs[] = {
		{"client_credentials", PARAM_CLIENT_ID, "client_id"},
		{"client_credentials", PARAM_CLIENT_SECRET, "client_secret"},
		{"refresh_token", PARAM_REFRESH_TOKEN, "refresh_token"},
		{"token_exchange", PARAM_SUBJECT_TOKEN, "subject_token"},
		{"jwt_bearer", PARAM_ASSERTION, "assertion"},
	};
	const char *grant = config_param_text(c, PARAM_GRANT);

	for (size_t i = 0; i < ARRAY_LEN(needs) && !l->partial; i++)
		if (strcmp(grant ? grant : "client_credentials", needs[i].grant) == 0 &&
		    !config_param(c, needs[i].needs))
			fault_add(l->f, node->line, node->col, "the grant `%s` needs `%s`",
				  needs[i].grant, needs[i].word);
	if (config_param(c, PARAM_CLIENT_SECRET) && !config_param(c, PARAM_CLIENT_ID))
		fault_add(l->f, node->line, node->col,
			  "`client_secret` without `client_id`, whose secret it is");
}

static void read_oauth2(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	size_t faults = l->f->n;

	read_kind(l, node, &kinds[0], c);
	if (l->f->n == faults)
		check_oauth2(l, node, c);
}

static bool takes_time(const struct config_credential *c)
{
	return c->source != CREDENTIAL_FROM_FILE && c->source != CREDENTIAL_FROM_ENV;
}

static void read_timeout(struct loader *l, const struct section_values *v,
			 struct config_credential *c)
{
	const struct yaml_node *node = section_value(v, KEY_FROM_TIMEOUT);
	const struct yaml_node *key = section_key(v, KEY_FROM_TIMEOUT);

	c->timeout_ms = LIMIT_MS_SOURCE;
	if (!node)
		return;
	if (!takes_time(c))
		fault_add(l->f, key->line, key->col,
			  "`timeout` says nothing of a file or a variable (remove it)");
	else
		(void)load_time(l, node, "`timeout`", 100, 300 * SECOND_MS, &c->timeout_ms);
}

static void read_addresses(struct loader *l, const struct section_values *v,
			   struct config_credential *c)
{
	const struct yaml_node *node = section_value(v, KEY_FROM_ADDRESSES);
	const struct yaml_node *key = section_key(v, KEY_FROM_ADDRESSES);

	if (!node)
		return;
	if (!takes_time(c) || c->source == CREDENTIAL_FROM_EXEC)
		fault_add(l->f, key->line, key->col,
			  "`addresses` is for a source that calls an endpoint (remove it)");
	else
		load_ranges(l, node, &c->ranges, &c->ranges_n);
}

void load_source(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	static const struct {
		enum config_key key;
		void (*read)(struct loader *l, const struct yaml_node *node,
			     struct config_credential *c);
	} readers[] = {
		{KEY_FROM_FILE, read_file},   {KEY_FROM_ENV, read_env},
		{KEY_FROM_EXEC, read_exec},   {KEY_FROM_OAUTH2, read_oauth2},
		{KEY_FROM_VAULT, load_vault},
	};
	struct section_values v;
	size_t found = 0, which = 0;

	if (load_section(l, node, "`from`", SECTION_FROM, &v) < 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(readers); i++)
		if (section_value(&v, readers[i].key)) {
			found++;
			which = i;
		}
	if (found != 1) {
		if (!v.has_unknown && !(l->partial && found == 0))
			fault_add(l->f, node->line, node->col,
				  "`from` takes one of `file: PATH`, `env: NAME`, "
				  "`exec: [PROGRAM, ...]`, `oauth2: {...}` and `vault: {...}`");
		return;
	}
	readers[which].read(l, section_value(&v, readers[which].key), c);
	read_timeout(l, &v, c);
	read_addresses(l, &v, c);
}

void load_source_ttl(struct loader *l, const struct section_values *v, struct config_credential *c)
{
	const struct yaml_node *key = section_key(v, KEY_CREDENTIAL_TTL);

	/* A file is read again when it changes, a variable never can be. */
	if (c->from && !takes_time(c)) {
		fault_add(l->f, key->line, key->col,
			  "`ttl` says nothing of a file or a variable (remove it)");
		return;
	}
	(void)load_time(l, section_value(v, KEY_CREDENTIAL_TTL), "`ttl`", SECOND_MS, 30 * DAY_MS,
			&c->ttl_ms);
}
