/*
 * Reads a credential's `from`: which file, variable, program or endpoint its value comes from, and
 * `ttl`, how long a value holds. Nothing is opened, run or called here. Called by
 * load_credentials.c.
 */
#include <stdio.h>
#include <string.h>

#include "logging/json.h"
#include "policy/load_source.h"

#define SECOND_MS 1000ULL
#define DAY_MS	  (24 * 3600 * SECOND_MS)

/* A client certificate, and its key in a file of its own. */
static void read_pair(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	const struct yaml_node *cert, *key;
	struct section_values v;
	struct str s;

	section_read(node, SECTION_PAIR, &v, l->f);
	cert = section_value(&v, KEY_PAIR_CERT);
	key = section_value(&v, KEY_PAIR_KEY);
	if (!cert || !key) {
		if (!v.has_unknown && !l->partial)
			fault_add(l->f, node->line, node->col,
				  "`file` is a path, or {cert: PATH, key: PATH} for `as: mtls`");
		return;
	}
	if (load_text(l, cert, "`cert`", &s) == 0)
		c->from = load_path(l, cert, s);
	if (load_text(l, key, "`key`", &s) == 0)
		c->key_file = load_path(l, key, s);
}

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

/* {file: PATH} or {env: NAME}: a secret itself has no place in a file that many read. */
static void read_secret(struct loader *l, const struct yaml_node *node, const char *what,
			const struct row *row, struct config_param *p)
{
	const char *places = row->type == ROW_FILE ? "{file: PATH}" : "{file: PATH} or {env: NAME}";
	struct config_credential as = {0}; /* what the readers of `from` fill */
	const struct yaml_node *file, *env;
	struct section_values v;

	if (node->kind != YAML_MAP) {
		fault_add(l->f, node->line, node->col, "%s is a secret, so say where it is (%s)",
			  what, places);
		return;
	}
	section_read(node, SECTION_SECRET, &v, l->f);
	file = section_value(&v, KEY_SECRET_FILE);
	env = section_value(&v, KEY_SECRET_ENV);
	if (row->type == ROW_FILE && env) {
		fault_add(l->f, env->line, env->col,
			  "%s has more than one line, which no variable holds (write %s)", what,
			  places);
		return;
	}
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

static bool is_of(struct str s, const char *also)
{
	for (size_t i = 0; also && i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      (c != '\0' && strchr(also, c))))
			return false;
	}
	return true;
}

static int read_row_text(struct loader *l, const struct yaml_node *node, const struct row *row,
			 const char *what, struct str *ret)
{
	if (load_plain(l, node, what, ret) < 0)
		return -1;
	if (is_of(*ret, row->also) && !memchr(ret->p, '\0', ret->n))
		return 0;
	fault_add(l->f, node->line, node->col,
		  row->also && row->also[0] ? "%s: `%.*s` may have letters, digits and `%s` alone"
					    : "%s: `%.*s` may have letters and digits alone%s",
		  what, SHOW(*ret), row->also ? row->also : "");
	return -1;
}

static char *read_words(struct loader *l, const struct yaml_node *node, const struct row *row,
			const char *what)
{
	const struct yaml_node *const *v = node->kind == YAML_SEQ ? node->v : &node;
	size_t n = node->kind == YAML_SEQ ? node->n : 1;
	struct strbuf text;
	struct json j;
	char *done = NULL;
	struct str s;
	int rc = 0;

	if (node->kind == YAML_SEQ && !load_list(l, node, what))
		return NULL;
	if (n > LIMIT_SOURCE_WORDS) {
		fault_add(l->f, node->line, node->col, "%s has more than %d entries", what,
			  LIMIT_SOURCE_WORDS);
		return NULL;
	}
	strbuf_init(&text, LIMIT_CLAIMS_BYTES);
	json_init(&j, &text);
	json_open(&j, '[');
	for (size_t i = 0; i < n; i++) {
		if (read_row_text(l, v[i], row, what, &s) < 0)
			rc = -1;
		else
			json_str(&j, s);
	}
	json_close(&j, ']');
	if (rc == 0 && text.overflowed)
		fault_add(l->f, node->line, node->col, "%s has more than %d bytes", what,
			  LIMIT_CLAIMS_BYTES);
	if (rc == 0)
		done = strbuf_take(&text);
	strbuf_clear(&text);
	return done;
}

static char *read_seconds(struct loader *l, const struct yaml_node *node, const struct row *row,
			  const char *what)
{
	char text[24];
	uint64_t ms;

	if (load_time(l, node, what, row->least_s * SECOND_MS, row->most_s * SECOND_MS, &ms) < 0)
		return NULL;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)(ms / SECOND_MS));
	return load_keep(l, str_from_c(text));
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
		if (read_row_text(l, node, row, what, &s) == 0)
			p->text = load_keep(l, s);
		break;
	case ROW_URL: read_url(l, node, what, p); break;
	case ROW_SECRET:
	case ROW_FILE: read_secret(l, node, what, row, p); break;
	case ROW_PATH:
		if (load_text(l, node, what, &s) == 0)
			p->text = load_path(l, node, s);
		break;
	case ROW_WORDS: p->text = read_words(l, node, row, what); break;
	case ROW_TIME: p->text = read_seconds(l, node, row, what); break;
	case ROW_OWN: p->text = row->read(l, node, what); break;
	case ROW_EITHER:
		if (node->kind == YAML_MAP)
			read_secret(l, node, what, row, p);
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

static void read_kind(struct loader *l, const struct yaml_node *node, const struct source_kind *k,
		      struct config_credential *c)
{
	size_t faults = l->f->n;
	const char *from = NULL;
	struct section_values v;

	c->source = k->source;
	if (load_section(l, node, k->what, k->section, &v) < 0)
		return;
	c->params = load_array(l, k->rows_n, sizeof(*c->params));
	load_rows(l, node, k->what, &v, k->rows, k->rows_n, c);
	for (size_t i = 0; i < ARRAY_LEN(k->from) && !from; i++)
		from = config_param_text(c, k->from[i]);
	if (!from)
		from = k->standard;
	c->from = from ? load_keep(l, str_from_c(from)) : NULL;
	if (l->f->n == faults && k->check)
		k->check(l, node, c);
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

static const struct source_kind kind_oauth2 = {
	.key = KEY_FROM_OAUTH2,
	.source = CREDENTIAL_FROM_OAUTH2,
	.section = SECTION_OAUTH2,
	.what = "`oauth2`",
	.rows = oauth2_rows,
	.rows_n = ARRAY_LEN(oauth2_rows),
	.from = {PARAM_TOKEN_URL, PARAM_TOKEN_URL},
	.check = check_oauth2,
};

static const struct source_kind *const kinds[] = {
	&kind_oauth2, &kind_aws, &kind_jwt, &kind_github_app, &kind_gcp, &kind_kubernetes,
};

/* An endpoint is asked for the value. */
static bool calls(const struct config_credential *c)
{
	switch (c->source) {
	case CREDENTIAL_FROM_FILE:
	case CREDENTIAL_FROM_ENV:
	case CREDENTIAL_FROM_EXEC:
	case CREDENTIAL_FROM_JWT: return false;
	case CREDENTIAL_FROM_KUBERNETES: return config_param(c, PARAM_API) != NULL;
	case CREDENTIAL_FROM_OAUTH2:
	case CREDENTIAL_FROM_AWS:
	case CREDENTIAL_FROM_VAULT:
	case CREDENTIAL_FROM_GITHUB_APP:
	case CREDENTIAL_FROM_GCP: return true;
	}
	return false;
}

static bool takes_time(const struct config_credential *c)
{
	return calls(c) || c->source == CREDENTIAL_FROM_EXEC;
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
		fault_add(l->f, key->line, key->col, "`timeout` says nothing of a %s (remove it)",
			  c->source == CREDENTIAL_FROM_JWT ? "token that is signed here"
							   : "file or a variable");
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
	if (!calls(c))
		fault_add(l->f, key->line, key->col,
			  "`addresses` is for a source that calls an endpoint (remove it)");
	else
		load_ranges(l, node, &c->ranges, &c->ranges_n);
}

/* The metadata server is at an address that nothing opens but its own name. */
static void check_metadata(struct loader *l, const struct yaml_node *node,
			   const struct config_credential *c)
{
	struct ipaddr a;

	if (l->partial || !config_param(c, PARAM_METADATA) ||
	    ipaddr_parse(STR("169.254.169.254"), &a) < 0 ||
	    ipaddr_judge(&a, c->ranges, c->ranges_n, NULL, 0, NULL) == 0)
		return;
	fault_add(l->f, node->line, node->col,
		  "`metadata` is asked at 169.254.169.254 (add `addresses: [169.254.169.254]` "
		  "beside the kind)");
}

static void read_file_or_pair(struct loader *l, const struct yaml_node *node,
			      struct config_credential *c)
{
	c->source = CREDENTIAL_FROM_FILE;
	if (node->kind == YAML_MAP)
		read_pair(l, node, c);
	else
		read_file(l, node, c);
}

void load_source(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	static const struct {
		enum config_key key;
		void (*read)(struct loader *l, const struct yaml_node *node,
			     struct config_credential *c);
	} readers[] = {
		{KEY_FROM_FILE, read_file_or_pair},
		{KEY_FROM_ENV, read_env},
		{KEY_FROM_EXEC, read_exec},
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
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (section_value(&v, kinds[i]->key)) {
			found++;
			which = ARRAY_LEN(readers) + i;
		}
	if (found != 1) {
		if (!v.has_unknown && !(l->partial && found == 0))
			fault_add(l->f, node->line, node->col,
				  "`from` takes one of `file: PATH`, `env: NAME`, "
				  "`exec: [PROGRAM, ...]`, `oauth2: {...}`, `vault: {...}`, `aws: "
				  "{...}`, `jwt: {...}`, "
				  "`github_app: {...}`, `gcp: {...}` and `kubernetes: {...}`");
		return;
	}
	if (which < ARRAY_LEN(readers)) {
		readers[which].read(l, section_value(&v, readers[which].key), c);
	} else {
		const struct source_kind *k = kinds[which - ARRAY_LEN(readers)];

		read_kind(l, section_value(&v, k->key), k, c);
	}
	read_timeout(l, &v, c);
	read_addresses(l, &v, c);
	check_metadata(l, node, c);
}

void load_source_ttl(struct loader *l, const struct section_values *v, struct config_credential *c)
{
	const struct yaml_node *key = section_key(v, KEY_CREDENTIAL_TTL);

	/* A file is read again when it changes, a variable never can be. */
	if (c->from && !takes_time(c) && c->source != CREDENTIAL_FROM_JWT) {
		fault_add(l->f, key->line, key->col,
			  "`ttl` says nothing of a file or a variable (remove it)");
		return;
	}
	(void)load_time(l, section_value(v, KEY_CREDENTIAL_TTL), "`ttl`", SECOND_MS, 30 * DAY_MS,
			&c->ttl_ms);
}
