/*
 * What is particular to AWS in a credential: `as: {sigv4: ...}`, and which keys of `from.aws` go
 * together. Nothing is opened or called here. Called
 * by load_credentials.c and load_source.c.
 */
#include <string.h>

#include "policy/load_source.h"

#define POLICY_MAX	 2048 /* AssumeRole's own bounds */
#define SESSION_NAME_MAX 64

/* ---- as ---- */

/* What stands between the slashes of a credential scope. */
static void read_scope(struct loader *l, const struct yaml_node *node, const char *what, char **ret)
{
	struct str s;

	if (load_text(l, node, what, &s) < 0)
		return;
	for (size_t i = 0; i < s.n; i++)
		if (!((s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= '0' && s.p[i] <= '9') ||
		      s.p[i] == '-')) {
			fault_add(l->f, node->line, node->col,
				  "%s: `%.*s` is none (lower-case letters, digits, hyphens)", what,
				  SHOW(s));
			return;
		}
	if (s.n > LIMIT_SIGV4_SCOPE_WORD)
		fault_add(l->f, node->line, node->col, "%s is longer than %d characters", what,
			  LIMIT_SIGV4_SCOPE_WORD);
	else
		*ret = load_keep(l, s);
}

void load_sigv4(struct loader *l, const struct yaml_node *node, struct config_credential *c)
{
	static const char *const words[] = {"signed", "unsigned"};
	const struct yaml_node *service, *region, *payload;
	struct section_values v;
	size_t which = 0;

	c->as = CREDENTIAL_AS_SIGV4;
	if (load_section(l, node, "`sigv4`", SECTION_SIGV4, &v) < 0)
		return;
	service = section_value(&v, KEY_SIGV4_SERVICE);
	region = section_value(&v, KEY_SIGV4_REGION);
	payload = section_value(&v, KEY_SIGV4_PAYLOAD);
	if ((!service || !region) && !v.has_unknown && !l->partial)
		fault_add(l->f, node->line, node->col,
			  "`sigv4` needs `service` and `region` (such as {service: s3, region: "
			  "eu-central-1})");
	if (service)
		read_scope(l, service, "`service`", &c->service);
	if (region)
		read_scope(l, region, "`region`", &c->region);
	if (payload && load_word(l, payload, "`payload`", words, ARRAY_LEN(words), &which) == 0)
		c->payload_unsigned = which == 1;
	if (c->service && strcmp(c->service, "sts") == 0)
		fault_warn(l->f, node->line, node->col,
			   "what sts answers may be keys, which the sandbox would then hold");
	if (payload && c->payload_unsigned && c->service && strncmp(c->service, "s3", 2) != 0)
		fault_warn(l->f, payload->line, payload->col,
			   "few services beside s3 take a body that is not signed");
}

/* ---- from ---- */

#define ROW(name, ...)                                                                             \
	{                                                                                          \
		.key = KEY_AWS_##name, .param = PARAM_##name, __VA_ARGS__                          \
	}

static const struct row aws_rows[] = {
	ROW(ACCESS_KEY_ID, .type = ROW_EITHER),
	ROW(SECRET_ACCESS_KEY, .type = ROW_SECRET),
	ROW(SESSION_TOKEN, .type = ROW_SECRET),
	ROW(PROFILES, .type = ROW_FILE),
	ROW(PROFILE, .type = ROW_TEXT),
	ROW(CONTAINER_URL, .type = ROW_URL),
	ROW(AUTHORIZATION_TOKEN, .type = ROW_SECRET),
	ROW(WEB_IDENTITY_TOKEN, .type = ROW_SECRET),
	ROW(ROLE_ARN, .type = ROW_TEXT),
	ROW(STS_URL, .type = ROW_URL),
	ROW(STS_REGION, .type = ROW_TEXT, .also = "-"),
	ROW(SESSION_NAME, .type = ROW_TEXT, .also = "_+=,.@-"),
	ROW(DURATION, .type = ROW_TIME, .least_s = 900, .most_s = 12 * 3600),
	ROW(EXTERNAL_ID, .type = ROW_TEXT),
	ROW(POLICY, .type = ROW_TEXT),
};

static bool given(const struct config_credential *c, enum config_param_key k)
{
	return config_param(c, k) != NULL;
}

/* `word` means nothing without what it belongs to. */
static void needs(struct loader *l, const struct yaml_node *node, const struct config_credential *c,
		  enum config_param_key k, const char *word, bool has, const char *what)
{
	if (given(c, k) && !has && !l->partial)
		fault_add(l->f, node->line, node->col, "`%s` without %s", word, what);
}

static void check_role(struct loader *l, const struct yaml_node *node,
		       const struct config_credential *c)
{
	bool role = given(c, PARAM_ROLE_ARN), web = given(c, PARAM_WEB_IDENTITY_TOKEN);
	const char *name = config_param_text(c, PARAM_SESSION_NAME);
	const char *policy = config_param_text(c, PARAM_POLICY);

	needs(l, node, c, PARAM_WEB_IDENTITY_TOKEN, "web_identity_token", role, "`role_arn`");
	needs(l, node, c, PARAM_ROLE_ARN, "role_arn", given(c, PARAM_STS_URL),
	      "`sts_url` (such as https://sts.eu-central-1.amazonaws.com/)");
	if (!web)
		needs(l, node, c, PARAM_ROLE_ARN, "role_arn", given(c, PARAM_STS_REGION),
		      "`sts_region`, for which the question is signed");
	needs(l, node, c, PARAM_STS_URL, "sts_url", role, "`role_arn`");
	needs(l, node, c, PARAM_STS_REGION, "sts_region", role && !web,
	      "a role that another credential takes on");
	needs(l, node, c, PARAM_EXTERNAL_ID, "external_id", role && !web,
	      "a role that another credential takes on");
	needs(l, node, c, PARAM_SESSION_NAME, "session_name", role, "`role_arn`");
	needs(l, node, c, PARAM_DURATION, "duration", role, "`role_arn`");
	needs(l, node, c, PARAM_POLICY, "policy", role, "`role_arn`");
	if (name && (strlen(name) < 2 || strlen(name) > SESSION_NAME_MAX))
		fault_add(l->f, node->line, node->col, "`session_name` has 2 to %d characters",
			  SESSION_NAME_MAX);
	if (policy && strlen(policy) > POLICY_MAX)
		fault_add(l->f, node->line, node->col, "`policy` has more than %d characters",
			  POLICY_MAX);
}

static void check_aws(struct loader *l, const struct yaml_node *node,
		      const struct config_credential *c)
{
	bool fixed = given(c, PARAM_ACCESS_KEY_ID), file = given(c, PARAM_PROFILES);
	bool container = given(c, PARAM_CONTAINER_URL), web = given(c, PARAM_WEB_IDENTITY_TOKEN);

	if (fixed + file + container + web != 1) {
		if (!l->partial)
			fault_add(l->f, node->line, node->col,
				  "`aws` takes one of `access_key_id`, `profiles`, "
				  "`container_url` and `web_identity_token`");
		return;
	}
	if (fixed && !given(c, PARAM_SECRET_ACCESS_KEY) && !l->partial)
		fault_add(l->f, node->line, node->col,
			  "`access_key_id` needs its `secret_access_key`");
	needs(l, node, c, PARAM_SECRET_ACCESS_KEY, "secret_access_key", fixed, "`access_key_id`");
	needs(l, node, c, PARAM_SESSION_TOKEN, "session_token", fixed, "`access_key_id`");
	needs(l, node, c, PARAM_PROFILE, "profile", file, "`profiles`");
	needs(l, node, c, PARAM_AUTHORIZATION_TOKEN, "authorization_token", container,
	      "`container_url`");
	check_role(l, node, c);
}

const struct source_kind kind_aws = {
	.key = KEY_FROM_AWS,
	.source = CREDENTIAL_FROM_AWS,
	.section = SECTION_AWS,
	.what = "`aws`",
	.rows = aws_rows,
	.rows_n = ARRAY_LEN(aws_rows),
	.from = {PARAM_STS_URL, PARAM_CONTAINER_URL, PARAM_PROFILES, PARAM_ACCESS_KEY_ID},
	.check = check_aws,
};

/* A key pair that went out as a bearer token would be given away. */
void load_aws_fits(struct loader *l, const struct config_credential *c)
{
	if (c->from && c->source == CREDENTIAL_FROM_AWS && c->as != CREDENTIAL_AS_SIGV4)
		fault_add(l->f, c->line, c->col,
			  "`from: {aws: ...}` is a key to sign with (write `as: {sigv4: {service: "
			  "..., region: ...}}`)");
}
