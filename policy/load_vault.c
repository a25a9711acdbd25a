/*
 * Reads `from: {vault: ...}`: which Vault, which path and fields, and by whom stile logs in.
 * Nothing is asked here. Called by load_source.c.
 */
#include <string.h>

#include "policy/load_source.h"

#define SERVICE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount/token"
#define PARAMS_MAX	16

static const char *const yes_no[] = {"true", "false"};

#define ROW(section, name, ...)                                                                    \
	{                                                                                          \
		.key = KEY_##section##_##name, .param = PARAM_VAULT_##name, __VA_ARGS__            \
	}
static const struct row rows[] = {
	ROW(VAULT, ADDRESS, .type = ROW_URL, .required = true),
	ROW(VAULT, NAMESPACE, .type = ROW_TEXT),
	ROW(VAULT, PATH, .type = ROW_TEXT, .required = true),
	ROW(VAULT, VERSION, .type = ROW_TEXT),
	ROW(VAULT, TOKEN, .type = ROW_SECRET),
};
static const struct row approle_rows[] = {
	ROW(APPROLE, ROLE_ID, .type = ROW_EITHER, .required = true),
	ROW(APPROLE, SECRET_ID, .type = ROW_SECRET),
	ROW(APPROLE, WRAPPED, .type = ROW_WORD, .words = yes_no, .words_n = ARRAY_LEN(yes_no)),
	ROW(APPROLE, MOUNT, .type = ROW_TEXT),
};
static const struct row kubernetes_rows[] = {
	ROW(KUBERNETES, ROLE, .type = ROW_TEXT, .required = true),
	ROW(KUBERNETES, JWT, .type = ROW_SECRET),
	ROW(KUBERNETES, MOUNT, .type = ROW_TEXT),
};

_Static_assert(ARRAY_LEN(rows) + ARRAY_LEN(approle_rows) + ARRAY_LEN(kubernetes_rows) + 2 <=
		       PARAMS_MAX,
	       "room for every parameter");

static void add_param(struct loader *l, struct config_credential *c, enum config_param_key key,
		      enum config_param_kind kind, struct str text)
{
	struct config_param *p = &c->params[c->params_n];

	*p = (struct config_param){.key = key, .kind = kind, .text = load_keep(l, text)};
	if (p->text)
		c->params_n++;
}

/* One name, or two whose values become user:password, or a certificate and its key. */
static void read_field(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	struct str s;

	if (node->kind != YAML_SEQ) {
		if (load_plain(l, node, "`field`", &s) == 0)
			add_param(l, c, PARAM_VAULT_FIELD, PARAM_TEXT, s);
		return;
	}
	if (node->n != 2) {
		fault_add(l->f, node->line, node->col,
			  "`field` is one name, or a list of two (such as [username, password])");
		return;
	}
	if (load_plain(l, node->v[0], "`field`", &s) == 0)
		add_param(l, c, PARAM_VAULT_FIELD, PARAM_TEXT, s);
	if (load_plain(l, node->v[1], "`field`", &s) == 0)
		add_param(l, c, PARAM_VAULT_FIELD_2, PARAM_TEXT, s);
}

static void read_group(struct loader *l, const struct yaml_node *node, const char *what,
		       enum section section, const struct row *group, size_t n,
		       struct config_credential *c)
{
	struct section_values v;

	if (load_section(l, node, what, section, &v) == 0)
		load_rows(l, node, what, &v, group, n, c);
}

/* How it logs in: one of three. */
static void read_login(struct loader *l, const struct yaml_node *node,
		       const struct section_values *v, struct config_credential *c)
{
	const struct yaml_node *approle = section_value(v, KEY_VAULT_APPROLE);
	const struct yaml_node *kubernetes = section_value(v, KEY_VAULT_KUBERNETES);

	if (!!section_value(v, KEY_VAULT_TOKEN) + !!approle + !!kubernetes != 1) {
		if (!v->has_unknown && !l->partial)
			fault_add(l->f, node->line, node->col,
				  "`vault` takes one of `token: {file: PATH}`, "
				  "`approle: {role_id: ..., secret_id: ...}` and "
				  "`kubernetes: {role: ...}`");
		return;
	}
	if (approle)
		read_group(l, approle, "`approle`", SECTION_APPROLE, approle_rows,
			   ARRAY_LEN(approle_rows), c);
	if (!kubernetes)
		return;
	read_group(l, kubernetes, "`kubernetes`", SECTION_KUBERNETES, kubernetes_rows,
		   ARRAY_LEN(kubernetes_rows), c);
	if (!config_param(c, PARAM_VAULT_JWT))
		add_param(l, c, PARAM_VAULT_JWT, PARAM_FILE, STR(SERVICE_ACCOUNT));
}

/* It becomes part of a URL or a header as it is written. */
static void check_plain(struct loader *l, const struct yaml_node *node,
			const struct config_credential *c, enum config_param_key key,
			const char *what, bool slashes)
{
	const char *s = config_param_text(c, key);
	size_t n = s ? strlen(s) : 0;

	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~' || strchr("?#\\%", s[i]) ||
		    (s[i] == '/' && (!slashes || i == 0))) {
			fault_add(
				l->f, node->line, node->col,
				"%s: `%s` holds what cannot stand there (a blank, one of ?#%%\\, a "
				"slash at its begin)",
				what, s);
			return;
		}
}

static void check_version(struct loader *l, const struct yaml_node *node,
			  const struct config_credential *c)
{
	const char *s = config_param_text(c, PARAM_VAULT_VERSION);
	uint64_t n;

	if (s && (str_to_u64(str_from_c(s), &n) < 0 || n == 0 || n > UINT32_MAX))
		fault_add(l->f, node->line, node->col,
			  "`version` is a number from 1 (left out: the latest)");
}

/* The whole of what is asked for, for messages too. */
static void make_url(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	const char *address = config_param_text(c, PARAM_VAULT_ADDRESS);
	const char *path = config_param_text(c, PARAM_VAULT_PATH);
	struct err e = ERR_INIT;
	struct strbuf b;
	struct url u;

	if (!address || !path)
		return;
	if (url_parse_absolute(str_from_c(address), &u, &e) == 0 &&
	    (u.path.n > 1 || u.query.n > 0 || u.has_query))
		fault_add(l->f, node->line, node->col,
			  "`address` is the server alone, such as https://vault.example.com:8200 "
			  "(what is asked for goes into `path`)");
	url_clear(&u);
	if (strncmp(path, "v1/", 3) == 0)
		fault_add(l->f, node->line, node->col,
			  "`path` is written without v1/, which stands before every path");
	strbuf_init(&b, LIMIT_TARGET_BYTES);
	strbuf_adds(&b, address);
	if (b.len > 0 && strbuf_str(&b).p[b.len - 1] == '/')
		b.len--;
	strbuf_addf(&b, "/v1/%s", path);
	if (b.overflowed)
		err_set(&e, "it is too long");
	else if (url_parse_absolute(strbuf_str(&b), &u, &e) == 0)
		e.text[0] = '\0';
	if (e.text[0])
		fault_add(l->f, node->line, node->col, "`path`: `%.64s`: %s", path, e.text);
	if (!b.overflowed)
		url_clear(&u); /* in every case */
	c->from = load_keep(l, strbuf_str(&b));
	strbuf_clear(&b);
}

void load_vault(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	struct section_values v;

	c->source = CREDENTIAL_FROM_VAULT;
	if (load_section(l, node, "`vault`", SECTION_VAULT, &v) < 0)
		return;
	c->params = load_array(l, PARAMS_MAX, sizeof(*c->params));
	if (!c->params)
		return;
	load_rows(l, node, "`vault`", &v, rows, ARRAY_LEN(rows), c);
	if (section_value(&v, KEY_VAULT_FIELD))
		read_field(l, section_value(&v, KEY_VAULT_FIELD), c);
	else if (!v.has_unknown && !l->partial)
		fault_add(l->f, node->line, node->col, "`vault` needs `field`");
	read_login(l, node, &v, c);
	check_plain(l, node, c, PARAM_VAULT_PATH, "`path`", true);
	check_plain(l, node, c, PARAM_VAULT_NAMESPACE, "`namespace`", true);
	check_plain(l, node, c, PARAM_VAULT_MOUNT, "`mount`", true);
	check_version(l, node, c);
	if (config_param(c, PARAM_VAULT_WRAPPED) && !config_param(c, PARAM_VAULT_SECRET_ID))
		fault_add(l->f, node->line, node->col,
			  "`wrapped` says how `secret_id` is handed over, and there is none");
	make_url(l, node, c);
}

void load_vault_as(struct loader *l, const struct yaml_node *node,
		   const struct config_credential *c)
{
	if (config_param(c, PARAM_VAULT_FIELD_2) && c->as != CREDENTIAL_AS_MTLS &&
	    (c->as != CREDENTIAL_AS_BASIC || c->username))
		fault_add(l->f, node->line, node->col,
			  "`field` of two names is user and password, for `as: basic`, or a "
			  "certificate and its key, for `as: mtls` (name one)");
}
