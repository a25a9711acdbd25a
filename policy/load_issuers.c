/*
 * The tables of sources that sign JWTs or are given short-lived tokens: `jwt`, `github_app`, `gcp`
 * and `kubernetes`. Nothing is opened or signed here. Called by load_source.c.
 */
#include <string.h>

#include "logging/json.h"
#include "policy/load_source.h"

#define ROW(section, name, ...)                                                                    \
	{                                                                                          \
		.key = KEY_##section##_##name, .param = PARAM_##name, __VA_ARGS__                  \
	}
#define GITHUB_API "https://api.github.com"

/* ---- claims ---- */

/* Those that say when and once: made with each signature. */
static bool is_made(struct str name)
{
	static const char *const made[] = {"exp", "iat", "nbf", "jti"};

	for (size_t i = 0; i < ARRAY_LEN(made); i++)
		if (str_eq(name, str_from_c(made[i])))
			return true;
	return false;
}

/* Something in braces that looks like our placeholder and is none would go out as it stands. */
static bool has_unknown_placeholder(struct str s)
{
	struct str ours = STR(CONFIG_SANDBOX);

	for (size_t i = 0; i < s.n; i++) {
		size_t end = i + 1;

		if (s.p[i] != '{' || str_starts(str_skip(s, i), ours))
			continue;
		while (end < s.n && ((s.p[end] >= 'a' && s.p[end] <= 'z') || s.p[end] == '_'))
			end++;
		if (end > i + 1 && end < s.n && s.p[end] == '}')
			return true;
	}
	return false;
}

static bool is_integer(struct str s)
{
	size_t sign = s.n > 0 && s.p[0] == '-';

	/* Within what every reader of JSON holds exactly (RFC 8259 section 6). */
	if (s.n == sign || s.n - sign > 15 || (s.p[sign] == '0' && s.n > 1))
		return false;
	for (size_t i = sign; i < s.n; i++)
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
	return true;
}

/* One value: true and false are booleans, whole numbers are numbers, all else is a text. */
static int add_scalar(struct loader *l, const struct yaml_node *node, const char *what,
		      struct json *j)
{
	struct str s;

	if (load_plain(l, node, what, &s) < 0)
		return -1;
	if (!node->quoted && (str_eq(s, STR("true")) || str_eq(s, STR("false")))) {
		json_bool(j, s.n == 4);
		return 0;
	}
	if (!node->quoted && is_integer(s)) {
		json_members(j, s);
		return 0;
	}
	if (load_text(l, node, what, &s) < 0)
		return -1;
	if (has_unknown_placeholder(s)) {
		fault_add(l->f, node->line, node->col,
			  "%s: `%.*s` has a placeholder that is none (there is %s alone)", what,
			  SHOW(s), CONFIG_SANDBOX);
		return -1;
	}
	json_str(j, s);
	return 0;
}

static int add_claim(struct loader *l, const struct yaml_node *node, const char *what,
		     struct json *j)
{
	int rc = 0;

	if (node->kind == YAML_MAP) {
		fault_add(l->f, node->line, node->col,
			  "%s must be a single value or a list (quote a text that begins with {)",
			  what);
		return -1;
	}
	if (node->kind != YAML_SEQ)
		return add_scalar(l, node, what, j);
	if (!load_list(l, node, what))
		return -1;
	json_open(j, '[');
	for (size_t i = 0; i < node->n; i++)
		rc |= add_scalar(l, node->v[i], what, j);
	json_close(j, ']');
	return rc;
}

/* One entry, under `of` in messages; -1: it is at fault. */
typedef int entry_fn(struct loader *l, const struct yaml_node *key, const struct yaml_node *value,
		     const char *of, struct json *j);

/* A map as JSON, or with `braces` off as what stands within an object's. NULL: at fault. */
static char *read_map(struct loader *l, const struct yaml_node *node, const char *what,
		      const char *example, const char *noun, bool braces, entry_fn *entry)
{
	struct strbuf text;
	struct json j;
	char *done = NULL;
	int rc = 0;

	if (node->kind != YAML_MAP || node->n == 0) {
		if (!l->partial)
			fault_add(l->f, node->line, node->col, "%s must be a map (such as %s)",
				  what, example);
		return NULL;
	}
	strbuf_init(&text, LIMIT_CLAIMS_BYTES);
	json_init(&j, &text);
	if (braces)
		json_open(&j, '{');
	for (size_t i = 0; i < node->n; i++) {
		const struct yaml_node *key = node->v[2 * i];
		char of[96];
		struct strbuf b;

		strbuf_init_fixed(&b, of, sizeof(of));
		strbuf_addf(&b, "the %s `%.*s`", noun, SHOW(key->text));
		rc |= entry(l, key, node->v[2 * i + 1], of, &j);
	}
	if (braces)
		json_close(&j, '}');
	if (rc == 0 && text.overflowed)
		fault_add(l->f, node->line, node->col, "%s are more than %d bytes", what,
			  LIMIT_CLAIMS_BYTES);
	if (rc == 0)
		done = strbuf_take(&text);
	strbuf_clear(&text);
	return done;
}

static int claim_entry(struct loader *l, const struct yaml_node *key, const struct yaml_node *value,
		       const char *of, struct json *j)
{
	if (is_made(key->text) || has_unknown_placeholder(key->text) ||
	    memchr(key->text.p, '{', key->text.n) || memchr(key->text.p, '\0', key->text.n)) {
		fault_add(l->f, key->line, key->col,
			  is_made(key->text) ? "%s is made anew each time (remove it; `ttl` on the "
					       "credential says how long a token holds)"
					     : "%s: a name holds no { and no NUL",
			  of);
		return -1;
	}
	json_key(j, key->text.p);
	return add_claim(l, value, of, j);
}

static char *read_claims(struct loader *l, const struct yaml_node *node, const char *what)
{
	return read_map(l, node, what, "{iss: stile}", "claim", false, claim_entry);
}

/* ---- jwt ---- */

static const char *const algorithms[] = {"RS256", "PS256", "ES256", "EdDSA"};
static const struct row jwt_rows[] = {
	ROW(JWT, KEY, .type = ROW_FILE, .required = true),
	ROW(JWT, ALGORITHM, .type = ROW_WORD, .words = algorithms,
	    .words_n = ARRAY_LEN(algorithms)),
	ROW(JWT, KID, .type = ROW_TEXT),
	ROW(JWT, CLAIMS, .type = ROW_OWN, .read = read_claims, .required = true),
};

const struct source_kind kind_jwt = {
	.key = KEY_FROM_JWT,
	.source = CREDENTIAL_FROM_JWT,
	.section = SECTION_JWT,
	.what = "`jwt`",
	.rows = jwt_rows,
	.rows_n = ARRAY_LEN(jwt_rows),
	.from = {PARAM_KEY, PARAM_KEY},
	.standard = "a key",
};

/* ---- github_app ---- */

static int permission_entry(struct loader *l, const struct yaml_node *key,
			    const struct yaml_node *value, const char *of, struct json *j)
{
	static const char *const levels[] = {"read", "write", "admin"};
	size_t level;

	if (load_name(l, key, "the permission", key->text) < 0 ||
	    load_word(l, value, of, levels, ARRAY_LEN(levels), &level) < 0)
		return -1;
	json_kv_str(j, key->text.p, str_from_c(levels[level]));
	return 0;
}

/* {contents: read, ...}: a token may do no more than this. */
static char *read_permissions(struct loader *l, const struct yaml_node *node, const char *what)
{
	return read_map(l, node, what, "{contents: read}", "permission", true, permission_entry);
}

static void check_github_app(struct loader *l, const struct yaml_node *node,
			     const struct config_credential *c)
{
	const char *repository = config_param_text(c, PARAM_REPOSITORY);
	const char *slash = repository ? strchr(repository, '/') : NULL;

	if (l->partial)
		return;
	if (!config_param(c, PARAM_APP_ID) == !config_param(c, PARAM_CLIENT_ID))
		fault_add(l->f, node->line, node->col,
			  "`github_app` takes one of `app_id` and `client_id`");
	if (!!config_param(c, PARAM_INSTALLATION_ID) + !!config_param(c, PARAM_OWNER) +
		    !!repository !=
	    1)
		fault_add(l->f, node->line, node->col,
			  "`github_app` takes one of `installation_id`, `owner` and `repository`");
	if (repository && (!slash || slash == repository || !slash[1] || strchr(slash + 1, '/')))
		fault_add(l->f, node->line, node->col,
			  "`repository` is OWNER/NAME (such as acme/site)");
}

static const struct row github_app_rows[] = {
	ROW(GITHUB_APP, APP_ID, .type = ROW_TEXT, .also = ""),
	ROW(GITHUB_APP, CLIENT_ID, .type = ROW_TEXT, .also = "."),
	ROW(GITHUB_APP, KEY, .type = ROW_FILE, .required = true),
	ROW(GITHUB_APP, INSTALLATION_ID, .type = ROW_TEXT, .also = ""),
	ROW(GITHUB_APP, OWNER, .type = ROW_TEXT, .also = "-_"),
	ROW(GITHUB_APP, REPOSITORY, .type = ROW_TEXT, .also = "-_./"),
	ROW(GITHUB_APP, REPOSITORIES, .type = ROW_WORDS, .also = "-_."),
	ROW(GITHUB_APP, PERMISSIONS, .type = ROW_OWN, .read = read_permissions),
	ROW(GITHUB_APP, API, .type = ROW_URL),
};

const struct source_kind kind_github_app = {
	.key = KEY_FROM_GITHUB_APP,
	.source = CREDENTIAL_FROM_GITHUB_APP,
	.section = SECTION_GITHUB_APP,
	.what = "`github_app`",
	.rows = github_app_rows,
	.rows_n = ARRAY_LEN(github_app_rows),
	.from = {PARAM_API, PARAM_API},
	.standard = GITHUB_API,
	.check = check_github_app,
};

/* ---- gcp ---- */

static void check_gcp(struct loader *l, const struct yaml_node *node,
		      const struct config_credential *c)
{
	static const enum config_param_key impersonate_needs[] = {PARAM_LIFETIME, PARAM_IAM};

	if (l->partial)
		return;
	if (!config_param(c, PARAM_KEY) == !config_param(c, PARAM_METADATA))
		fault_add(l->f, node->line, node->col, "`gcp` takes one of `key` and `metadata`");
	if (config_param(c, PARAM_SCOPES) && config_param(c, PARAM_AUDIENCE))
		fault_add(l->f, node->line, node->col,
			  "`scopes` are of an access token and `audience` is of an ID token (write "
			  "one of them)");
	if (config_param(c, PARAM_KEY) && !config_param(c, PARAM_SCOPES) &&
	    !config_param(c, PARAM_AUDIENCE))
		fault_add(l->f, node->line, node->col, "`gcp` needs `scopes` or `audience`");
	if (config_param(c, PARAM_IMPERSONATE)) {
		if (config_param(c, PARAM_METADATA) && !config_param(c, PARAM_SCOPES) &&
		    !config_param(c, PARAM_AUDIENCE))
			fault_add(l->f, node->line, node->col,
				  "`impersonate` needs `scopes` or `audience`");
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(impersonate_needs); i++)
		if (config_param(c, impersonate_needs[i]))
			fault_add(l->f, node->line, node->col,
				  "`%s` without `impersonate`, of which it is",
				  impersonate_needs[i] == PARAM_IAM ? "iam" : "lifetime");
}

/* The names of service accounts stand in URLs; the address of a scope may hold no blank and no
 * comma, of which lists are made. */
static const struct row gcp_rows[] = {
	ROW(GCP, KEY, .type = ROW_FILE),
	ROW(GCP, METADATA, .type = ROW_TEXT, .also = "-_.@"),
	ROW(GCP, SCOPES, .type = ROW_WORDS, .also = "-_.:/~"),
	ROW(GCP, AUDIENCE, .type = ROW_TEXT),
	ROW(GCP, IMPERSONATE, .type = ROW_TEXT, .also = "-_.@"),
	ROW(GCP, LIFETIME, .type = ROW_TIME, .least_s = 60, .most_s = 12 * 3600),
	ROW(GCP, IAM, .type = ROW_URL),
};

const struct source_kind kind_gcp = {
	.key = KEY_FROM_GCP,
	.source = CREDENTIAL_FROM_GCP,
	.section = SECTION_GCP,
	.what = "`gcp`",
	.rows = gcp_rows,
	.rows_n = ARRAY_LEN(gcp_rows),
	.from = {PARAM_KEY, PARAM_KEY},
	.standard = "http://169.254.169.254",
	.check = check_gcp,
};

/* ---- kubernetes ---- */

static void check_kubernetes(struct loader *l, const struct yaml_node *node,
			     const struct config_credential *c)
{
	static const struct {
		const char *word;
		enum config_param_key key;
		bool needed;
	} of_api[] = {
		{"namespace", PARAM_NAMESPACE, true},
		{"service_account", PARAM_SERVICE_ACCOUNT, true},
		{"audiences", PARAM_AUDIENCES, true},
		{"ca", PARAM_CA, false},
		{"lifetime", PARAM_LIFETIME, false},
	};
	bool api = config_param(c, PARAM_API) != NULL;

	for (size_t i = 0; i < ARRAY_LEN(of_api) && !l->partial; i++) {
		bool given = config_param(c, of_api[i].key) != NULL;

		if (api && of_api[i].needed && !given)
			fault_add(l->f, node->line, node->col,
				  "a token of the cluster's `api` needs `%s`", of_api[i].word);
		else if (!api && given && of_api[i].key != PARAM_AUDIENCES)
			fault_add(l->f, node->line, node->col,
				  "`%s` without `api`, which would be asked", of_api[i].word);
	}
}

static const struct row kubernetes_rows[] = {
	ROW(CLUSTER, TOKEN, .type = ROW_FILE, .required = true),
	ROW(CLUSTER, AUDIENCES, .type = ROW_WORDS),
	ROW(CLUSTER, API, .type = ROW_URL),
	ROW(CLUSTER, CA, .type = ROW_PATH),
	ROW(CLUSTER, NAMESPACE, .type = ROW_TEXT, .also = "-"),
	ROW(CLUSTER, SERVICE_ACCOUNT, .type = ROW_TEXT, .also = "-."),
	ROW(CLUSTER, LIFETIME, .type = ROW_TIME, .least_s = 600, .most_s = 24 * 3600),
};

const struct source_kind kind_kubernetes = {
	.key = KEY_FROM_KUBERNETES,
	.source = CREDENTIAL_FROM_KUBERNETES,
	.section = SECTION_CLUSTER,
	.what = "`kubernetes`",
	.rows = kubernetes_rows,
	.rows_n = ARRAY_LEN(kubernetes_rows),
	.from = {PARAM_API, PARAM_TOKEN},
	.check = check_kubernetes,
};
