/*
 * Reads `credentials:`: how each secret goes into a request; where it comes from is read by
 * load_source.c. No secret is read here. Called by load.c, before the rules that name them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/load_source.h"

/* What stile itself writes, drops or reads in a head; a secret there would be lost or would break
 * the message. `Proxy-...` comes on top. */
static const char *const governed[] = {"connection",	 "content-encoding",
				       "content-length", "content-type",
				       "date",		 "expect",
				       "forwarded",	 "host",
				       "http2-settings", "keep-alive",
				       "max-forwards",	 "proxy",
				       "range",		 "te",
				       "trailer",	 "transfer-encoding",
				       "upgrade",	 "via"};

/* Also with `_` or another mark for `-`: to a server that hands fields on as variables they are
 * one. */
static bool is_governed(struct str name)
{
	char mem[32];
	struct str folded = {mem, 0};

	for (; folded.n < name.n && folded.n < sizeof(mem); folded.n++)
		mem[folded.n] = str_name_fold(name.p[folded.n]);
	for (size_t i = 0; i < ARRAY_LEN(governed); i++)
		if (name.n == folded.n && str_eq_nocase(folded, str_from_c(governed[i])))
			return true;
	return str_eq_nocase(str_head(folded, 6), STR("proxy-"));
}

static bool all_in(struct str s, const char *also)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      (c != '\0' && strchr(also, c))))
			return false;
	}
	return s.n > 0;
}

/* ---- as ---- */

void load_as_header(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	struct str s;

	if (load_text(l, node, "`header`", &s) < 0)
		return;
	c->as = CREDENTIAL_AS_HEADER;
	if (!all_in(s, "!#$%&'*+-.^_`|~") || s.n > LIMIT_FIELD_NAME_BYTES)
		fault_add(l->f, node->line, node->col,
			  "`%.*s` is not a header name (such as X-Api-Key)", SHOW(s));
	else if (is_governed(s))
		fault_add(l->f, node->line, node->col,
			  "the header `%.*s` is governed by stile (a secret goes into another)",
			  SHOW(s));
	else
		c->as_name = load_keep(l, s);
}

void load_as_query(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	struct str s;

	if (load_text(l, node, "`query`", &s) < 0)
		return;
	c->as = CREDENTIAL_AS_QUERY;
	if (!all_in(s, "-._~[]") || s.n > LIMIT_FIELD_NAME_BYTES)
		fault_add(l->f, node->line, node->col,
			  "`%.*s` is not a query key (such as api_key)", SHOW(s));
	else
		c->as_name = load_keep(l, s);
}

static void read_as_cookie(struct loader *l, const struct yaml_node *node,
			   struct config_credential *c)
{
	struct str s;

	if (load_text(l, node, "`cookie`", &s) < 0)
		return;
	c->as = CREDENTIAL_AS_COOKIE;
	if (!all_in(s, "!#$%&'*+-.^_`|~") || s.n > LIMIT_FIELD_NAME_BYTES)
		fault_add(l->f, node->line, node->col,
			  "`%.*s` is not the name of a cookie (such as session)", SHOW(s));
	else
		c->as_name = load_keep(l, s);
}

/* RFC 7617 section 2: no colon, no control character. */
void load_as_basic(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	struct str s;

	if (load_text(l, node, "`basic`", &s) < 0)
		return;
	c->as = CREDENTIAL_AS_BASIC;
	for (size_t i = 0; i < s.n; i++)
		if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f || s.p[i] == ':') {
			fault_add(l->f, node->line, node->col,
				  "a user name has no colon and no control character");
			return;
		}
	c->username = load_keep(l, s);
}

static void read_as_map(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	const struct yaml_node *basic, *header, *query, *cookie, *placeholder, *sigv4;
	struct section_values v;

	section_read(node, SECTION_AS, &v, l->f);
	basic = section_value(&v, KEY_AS_BASIC);
	header = section_value(&v, KEY_AS_HEADER);
	query = section_value(&v, KEY_AS_QUERY);
	cookie = section_value(&v, KEY_AS_COOKIE);
	placeholder = section_value(&v, KEY_AS_PLACEHOLDER);
	sigv4 = section_value(&v, KEY_AS_SIGV4);
	if (!!basic + !!header + !!query + !!cookie + !!placeholder + !!sigv4 != 1) {
		if (!v.has_unknown && !l->partial)
			fault_add(l->f, node->line, node->col,
				  "`as` takes one of `basic: USER`, `header: NAME`, `query: NAME`, "
				  "`cookie: NAME`, `placeholder: {...}`, `sigv4: {...}`");
		return;
	}
	if (basic)
		load_as_basic(l, basic, c);
	else if (header)
		load_as_header(l, header, c);
	else if (query)
		load_as_query(l, query, c);
	else if (placeholder)
		load_as_placeholder(l, placeholder, c);
	else if (cookie)
		read_as_cookie(l, cookie, c);
	else
		load_sigv4(l, sigv4, c);
}

static void read_as(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	static const char *const words[] = {"bearer", "basic", "mtls"};
	static const enum credential_as means[] = {CREDENTIAL_AS_BEARER, CREDENTIAL_AS_BASIC,
						   CREDENTIAL_AS_MTLS};
	size_t which;

	if (node->kind == YAML_MAP) {
		read_as_map(l, node, c);
		return;
	}
	if (node->kind == YAML_SCALAR &&
	    (str_eq(node->text, STR("header")) || str_eq(node->text, STR("query")) ||
	     str_eq(node->text, STR("cookie")))) {
		fault_add(l->f, node->line, node->col,
			  "`as: %.*s` needs a name (write {%.*s: NAME})", SHOW(node->text),
			  SHOW(node->text));
		return;
	}
	if (load_word(l, node, "`as`", words, ARRAY_LEN(words), &which) == 0)
		c->as = means[which];
}

/* ---- the whole ---- */

/* A certificate with its key is nothing that an endpoint for tokens hands out. */
static void check_mtls(struct loader *l, const struct yaml_node *key,
		       const struct config_credential *c, const char *what)
{
	bool may = c->source == CREDENTIAL_FROM_FILE || c->source == CREDENTIAL_FROM_ENV ||
		   c->source == CREDENTIAL_FROM_EXEC || c->source == CREDENTIAL_FROM_VAULT;

	if (c->key_file && c->as != CREDENTIAL_AS_MTLS)
		fault_add(l->f, key->line, key->col,
			  "%s: {cert: ..., key: ...} is for `as: mtls` (name one file)", what);
	if (c->as == CREDENTIAL_AS_MTLS && !may)
		fault_add(l->f, key->line, key->col,
			  "%s: `as: mtls` takes a certificate and its key, from `file`, `env`, "
			  "`exec` or `vault`",
			  what);
}

static void read_credential(struct loader *l, const struct yaml_node *key,
			    const struct yaml_node *node)
{
	struct config_credential *c = &l->c->credentials[l->c->credentials_n];
	struct section_values v;
	char what[96];

	if (load_name(l, key, "the credential", key->text) < 0)
		return;
	*c = (struct config_credential){.line = key->line, .col = key->col};
	c->name = load_keep(l, key->text);
	if (!c->name)
		return;
	/* Known from here on, faults or not: who refers to it has made no mistake. */
	l->c->credentials_n++;
	snprintf(what, sizeof(what), "credential `%.*s`", SHOW(key->text));
	if (load_section(l, node, what, SECTION_CREDENTIAL, &v) < 0)
		return;
	if (section_value(&v, KEY_CREDENTIAL_FROM))
		load_source(l, section_value(&v, KEY_CREDENTIAL_FROM), c);
	if (section_value(&v, KEY_CREDENTIAL_TTL))
		load_source_ttl(l, &v, c);
	if (section_value(&v, KEY_CREDENTIAL_AS))
		read_as(l, section_value(&v, KEY_CREDENTIAL_AS), c);
	if (section_value(&v, KEY_CREDENTIAL_AS) && section_value(&v, KEY_CREDENTIAL_FROM))
		check_mtls(l, key, c, what);
	if (c->source == CREDENTIAL_FROM_VAULT && section_value(&v, KEY_CREDENTIAL_AS))
		load_vault_as(l, section_key(&v, KEY_CREDENTIAL_AS), c);
	if ((!section_value(&v, KEY_CREDENTIAL_FROM) || !section_value(&v, KEY_CREDENTIAL_AS)) &&
	    !v.has_unknown && !l->partial)
		fault_add(l->f, key->line, key->col,
			  "%s needs `from` (where the secret is) and `as` (how it is sent)", what);
	load_aws_fits(l, c);
}

static int by_name(const void *a, const void *b)
{
	const struct config_credential *x = a, *y = b;

	return strcmp(x->name, y->name);
}

void load_credentials(struct loader *l, const struct yaml_node *node)
{
	if (node->kind != YAML_MAP || node->n == 0) {
		if (!l->partial)
			fault_add(l->f, node->line, node->col,
				  "`credentials` must be a map with at least one entry (or remove "
				  "the key)");
		return;
	}
	l->c->credentials = load_array(l, node->n, sizeof(*l->c->credentials));
	l->used = load_array(l, node->n, sizeof(*l->used));
	if (!l->c->credentials || !l->used)
		return;
	for (size_t i = 0; i < node->n; i++)
		read_credential(l, node->v[2 * i], node->v[2 * i + 1]);
	load_placeholders_check(l);
	if (l->c->credentials_n > 0)
		qsort(l->c->credentials, l->c->credentials_n, sizeof(*l->c->credentials), by_name);
}

void load_unused_credentials(struct loader *l)
{
	for (size_t i = 0; i < l->c->credentials_n && !l->partial; i++)
		if (!l->used[i])
			fault_warn(l->f, l->c->credentials[i].line, l->c->credentials[i].col,
				   "nothing uses the credential `%s`", l->c->credentials[i].name);
}

const struct config_credential *load_credential_name(struct loader *l, const struct yaml_node *node,
						     char **ret)
{
	const struct config_credential *c;
	const char *near = NULL;
	struct str s;

	if (load_text(l, node, "`credential`", &s) < 0)
		return NULL;
	*ret = load_keep(l, s);
	c = *ret ? config_credential(l->c, *ret) : NULL;
	if (c && l->used)
		l->used[c - l->c->credentials] = true;
	if (c || !*ret || l->partial)
		return c;
	for (size_t i = 0; i < l->c->credentials_n && !near; i++) {
		const char *name = l->c->credentials[i].name;

		near = nearest_word(s, &name, 1);
	}
	if (near)
		fault_add(l->f, node->line, node->col,
			  "no credential is called `%.*s` (did you mean `%s`?)", SHOW(s), near);
	else
		fault_add(l->f, node->line, node->col,
			  "no credential is called `%.*s` (add it under `credentials:`)", SHOW(s));
	return NULL;
}
