/*
 * How a Vault's source comes by a token and keeps it: one that is given, AppRole (its secret_id
 * wrapped or not), Kubernetes.
 */
#include <string.h>

#include "proxy/credentials/vault_internal.h"

void vault_leave_token(struct vault *v, bool doubted)
{
	struct vault_token *t = &v->token;

	if (t->value && t->ours && !t->batch && !vault_has_ended(t->ends_us))
		vault_owe(v, (struct vault_debt){.token = t->value,
						 .ends_us = t->ends_us,
						 .doubted = doubted});
	else
		secret_unref(t->value);
	if (t->ours && !t->batch)
		v->lease.stale = true; /* it ends with its token */
	*t = (struct vault_token){0};
}

void vault_take_grant(struct vault *v, const struct vault_grant *g, bool ours)
{
	vault_leave_token(v, false);
	v->token = (struct vault_token){
		.value = g->token,
		.life_us = g->life_us,
		.ends_us = vault_end(v, g->life_us),
		.since_us = vault_clock_us(),
		.renewable = g->renewable,
		.ours = ours,
		.batch = g->batch,
	};
}

static int add_secret(const struct vault *v, struct json *j, const char *key,
		      enum config_param_key param, struct err *e)
{
	struct secret *s = NULL;

	if (source_param_secret(v->s.c, param, key, &s, e) < 0)
		return -1;
	json_kv_str(j, key, secret_value(s));
	secret_unref(s);
	return 0;
}

static int add_role_id(const struct vault *v, struct json *j, struct err *e)
{
	const struct config_param *p = config_param(v->s.c, PARAM_VAULT_ROLE_ID);

	if (p->kind != PARAM_TEXT)
		return add_secret(v, j, "role_id", PARAM_VAULT_ROLE_ID, e);
	json_kv_str(j, "role_id", str_from_c(p->text));
	return 0;
}

static bool is_wrapped(const struct vault *v)
{
	const char *text = vault_text(v, PARAM_VAULT_WRAPPED);

	return text && strcmp(text, "true") == 0;
}

static int add_secret_id(const struct vault *v, struct json *j, struct err *e)
{
	if (!config_param(v->s.c, PARAM_VAULT_SECRET_ID))
		return 0;
	if (!is_wrapped(v))
		return add_secret(v, j, "secret_id", PARAM_VAULT_SECRET_ID, e);
	json_kv_str(j, "secret_id", secret_value(v->secret_id));
	return 0;
}

static int login(struct vault *v, struct err *e)
{
	bool kubernetes = vault_text(v, PARAM_VAULT_ROLE) != NULL;
	const char *mount = vault_text(v, PARAM_VAULT_MOUNT);
	struct strbuf body;
	struct json j;
	char path[512];
	struct strbuf at;
	int rc;

	v->done.login = true;
	strbuf_init_fixed(&at, path, sizeof(path));
	strbuf_addf(&at, "auth/%s/login", mount ? mount : kubernetes ? "kubernetes" : "approle");
	vault_begin_body(&body, &j);
	if (kubernetes) {
		json_kv_str(&j, "role", str_from_c(vault_text(v, PARAM_VAULT_ROLE)));
		rc = add_secret(v, &j, "jwt", PARAM_VAULT_JWT, e);
	} else {
		rc = add_role_id(v, &j, e) < 0 || add_secret_id(v, &j, e) < 0 ? -1 : 0;
	}
	json_close(&j, '}');
	if (rc == 0)
		return vault_ask_path(v, STEP_LOGIN, path, "", STR_NONE, &body, e);
	strbuf_wipe(&body);
	return -1;
}

/* Is there a wrapping token that was not used yet? 1: unwrap it, which is under way. */
static int unwrap(struct vault *v, struct err *e)
{
	struct secret *s = NULL;
	struct strbuf body;
	struct json j;
	int rc;

	if (source_param_secret(v->s.c, PARAM_VAULT_SECRET_ID, "secret_id", &s, e) < 0) {
		/* Who hands it over may take it away once it was read. */
		return v->secret_id ? 0 : -1;
	}
	if (v->secret_id && str_eq(secret_value(v->wrapping), secret_value(s))) {
		secret_unref(s);
		return 0;
	}
	secret_unref(v->wrapping);
	secret_unref(v->secret_id);
	v->wrapping = s;
	v->secret_id = NULL;
	vault_begin_body(&body, &j);
	json_close(&j, '}');
	rc = vault_ask_path(v, STEP_UNWRAP, "sys/wrapping/unwrap", "", secret_value(s), &body, e);
	return rc < 0 ? -1 : 1;
}

static int has_no_life(struct err *e)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its login ends as soon as it is made");
}

int vault_get_token(struct vault *v, struct err *e)
{
	if (v->done.login)
		return has_no_life(e);
	if (is_wrapped(v)) {
		int rc = unwrap(v, e);

		if (rc != 0)
			return rc < 0 ? -1 : 0;
	}
	return login(v, e);
}

int vault_read_given(struct vault *v, struct err *e)
{
	struct vault_grant g = {0};

	if (source_param_secret(v->s.c, PARAM_VAULT_TOKEN, "token", &g.token, e) < 0)
		return -1;
	if (v->token.value && str_eq(vault_token(v), secret_value(g.token))) {
		secret_unref(g.token);
		return 0;
	}
	if (v->done.lookup) {
		secret_unref(g.token);
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its token has ended");
	}
	v->done.lookup = true;
	vault_take_grant(v, &g, false);
	if (vault_ask_path(v, STEP_LOOKUP, "auth/token/lookup-self", "", vault_token(v), NULL, e) <
	    0)
		return -1;
	return 1;
}

bool vault_is_due(const struct vault_token *t)
{
	return t->ends_us != 0 && t->ends_us - vault_clock_us() < t->life_us / 2;
}

int vault_renew_token(struct vault *v, struct err *e)
{
	struct strbuf body;
	struct json j;

	v->done.renewed_token = true;
	vault_begin_body(&body, &j);
	vault_add_seconds(&j, v->token.life_us);
	json_close(&j, '}');
	return vault_ask_path(v, STEP_RENEW_TOKEN, "auth/token/renew-self", "", vault_token(v),
			      &body, e);
}
