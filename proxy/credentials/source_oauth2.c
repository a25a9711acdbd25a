/*
 * An OAuth 2.0 token endpoint (RFC 6749): client credentials (section 4.4), a refresh token
 * (section 6), token exchange (RFC 8693), a JWT as grant (RFC 7523). The secrets that it is told of
 * are read anew for each question, so that whoever rotates them need not tell. A refresh token that
 * the endpoint replaces is used from then on, in memory.
 */
#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "proxy/credentials/encode.h"
#include "proxy/credentials/endpoint.h"
#include "proxy/credentials/fetch.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"
#include "proxy/credentials/token.h"

#define TYPE_ACCESS_TOKEN "urn:ietf:params:oauth:token-type:access_token"
#define ERROR_CODE_MAX	  64

struct oauth2 {
	struct source_setting s;
	/* owned, while a question is asked */
	struct fetch *fetch;
	/* counted */
	struct secret *rotated; /* the refresh token that the endpoint gave last */
};

/* ---- the question ---- */

static void add_text(const struct oauth2 *o, struct strbuf *b, const char *key,
		     enum config_param_key param)
{
	const char *text = config_param_text(o->s.c, param);

	if (text)
		encode_form_pair(b, key, str_from_c(text));
}

static int add_secret(const struct oauth2 *o, struct strbuf *b, const char *key,
		      enum config_param_key param, struct err *e)
{
	struct secret *v = NULL;

	if (source_param_secret(o->s.c, param, key, &v, e) < 0)
		return -1;
	encode_form_pair(b, key, secret_value(v));
	secret_unref(v);
	return 0;
}

static bool grant_is(const struct oauth2 *o, const char *grant)
{
	const char *text = config_param_text(o->s.c, PARAM_GRANT);

	return strcmp(text ? text : "client_credentials", grant) == 0;
}

static int add_grant(const struct oauth2 *o, struct strbuf *b, struct err *e)
{
	if (grant_is(o, "refresh_token")) {
		encode_form_pair(b, "grant_type", STR("refresh_token"));
		if (!o->rotated)
			return add_secret(o, b, "refresh_token", PARAM_REFRESH_TOKEN, e);
		encode_form_pair(b, "refresh_token", secret_value(o->rotated));
		return 0;
	}
	if (grant_is(o, "token_exchange")) {
		const char *type = config_param_text(o->s.c, PARAM_SUBJECT_TOKEN_TYPE);

		encode_form_pair(b, "grant_type",
				 STR("urn:ietf:params:oauth:grant-type:token-exchange"));
		encode_form_pair(b, "subject_token_type",
				 str_from_c(type ? type : TYPE_ACCESS_TOKEN));
		return add_secret(o, b, "subject_token", PARAM_SUBJECT_TOKEN, e);
	}
	if (grant_is(o, "jwt_bearer")) {
		encode_form_pair(b, "grant_type",
				 STR("urn:ietf:params:oauth:grant-type:jwt-bearer"));
		return add_secret(o, b, "assertion", PARAM_ASSERTION, e);
	}
	encode_form_pair(b, "grant_type", STR("client_credentials"));
	return 0;
}

/* RFC 6749 section 2.3.1: both parts are form-encoded before they become Basic. */
static void add_basic(struct strbuf *out, struct str id, struct str secret)
{
	struct strbuf pair;

	strbuf_init(&pair, LIMIT_SOURCE_BYTES * 2);
	encode_percent(&pair, id);
	strbuf_addc(&pair, ':');
	encode_percent(&pair, secret);
	strbuf_adds(out, "Basic ");
	encode_base64(out, strbuf_str(&pair), STR_NONE);
	strbuf_wipe(&pair);
}

/* Who asks. A client without a secret is a public one, and says its name alone. */
static int add_client(const struct oauth2 *o, struct strbuf *body, struct strbuf *authorization,
		      struct err *e)
{
	const char *id = config_param_text(o->s.c, PARAM_CLIENT_ID);
	const char *how = config_param_text(o->s.c, PARAM_CLIENT_AUTH);
	struct secret *secret = NULL;

	if (!id)
		return 0;
	if (!config_param(o->s.c, PARAM_CLIENT_SECRET)) {
		encode_form_pair(body, "client_id", str_from_c(id));
		return 0;
	}
	if (source_param_secret(o->s.c, PARAM_CLIENT_SECRET, "client_secret", &secret, e) < 0)
		return -1;
	if (how && strcmp(how, "post") == 0) {
		encode_form_pair(body, "client_id", str_from_c(id));
		encode_form_pair(body, "client_secret", secret_value(secret));
	} else {
		add_basic(authorization, str_from_c(id), secret_value(secret));
	}
	secret_unref(secret);
	return 0;
}

/* ---- the answer ---- */

/* The code of RFC 6749 section 5.2, for people; told if it is a word. */
static int read_refusal(const struct fetch_answer *a, struct err *e)
{
	json_t *o = token_json(a->body, NULL);
	const char *code = json_string_value(json_object_get(o, "error"));
	bool plain = code && strlen(code) <= ERROR_CODE_MAX;

	for (size_t i = 0; plain && code[i]; i++)
		plain = code[i] > 0x20 && code[i] < 0x7f;
	(void)err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its endpoint answers %u%s%s", a->status,
			 plain ? " " : "", plain ? code : "");
	json_decref(o);
	return -1;
}

/* RFC 6749 section 5.1. */
static int read_token(void *self, const struct fetch_answer *a, struct secret **ret,
		      int64_t *ret_life_us, struct err *e)
{
	struct oauth2 *o = self;
	struct secret *next = NULL;
	json_t *json;
	int rc = -1;

	if (a->status != 200)
		return read_refusal(a, e);
	json = token_json(a->body, e);
	if (json && token_json_life(json, "expires_in", ret_life_us, e) == 0)
		rc = token_json_secret(json, "access_token", ret, e);
	if (rc == 0 && grant_is(o, "refresh_token") &&
	    token_json_secret(json, "refresh_token", &next, NULL) == 0) {
		secret_unref(o->rotated);
		o->rotated = next;
	}
	json_decref(json);
	return rc;
}

static void on_answer(void *arg, const struct fetch_answer *a, const struct err *why)
{
	struct oauth2 *o = arg;

	o->fetch = NULL;
	endpoint_answered(&o->s, a, why, read_token, o);
}

/* ---- the source ---- */

static int add_fields(struct fields *f, const struct strbuf *authorization)
{
	if (fields_add(f, STR("Content-Type"), STR("application/x-www-form-urlencoded")) < 0 ||
	    fields_add(f, STR("Accept"), STR("application/json")) < 0)
		return -1;
	return authorization->len == 0
		       ? 0
		       : fields_add(f, STR("Authorization"), strbuf_str(authorization));
}

static int oauth2_ask(void *self, struct err *e)
{
	struct oauth2 *o = self;
	struct fields fields = {0};
	struct strbuf body, authorization;
	struct fetch_request r = {
		.method = STR("POST"),
		.url = str_from_c(config_param_text(o->s.c, PARAM_TOKEN_URL)),
		.fields = &fields,
		.ranges = o->s.c->ranges,
		.ranges_n = o->s.c->ranges_n,
		.timeout_ms = o->s.c->timeout_ms,
	};
	int rc = -1;

	strbuf_init(&body, LIMIT_SOURCE_BYTES);
	strbuf_init(&authorization, LIMIT_SOURCE_BYTES);
	if (add_grant(o, &body, e) < 0 || add_client(o, &body, &authorization, e) < 0)
		goto out;
	add_text(o, &body, "scope", PARAM_SCOPE);
	add_text(o, &body, "audience", PARAM_AUDIENCE);
	add_text(o, &body, "resource", PARAM_RESOURCE);
	r.body = strbuf_str(&body);
	if (body.overflowed || authorization.overflowed || add_fields(&fields, &authorization) < 0)
		(void)err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
	else
		rc = fetch_start(o->s.fetcher, &r, on_answer, o, &o->fetch, e);
out:
	fields_clear(&fields);
	strbuf_wipe(&body);
	strbuf_wipe(&authorization);
	return rc;
}

static void oauth2_close(void *self)
{
	struct oauth2 *o = self;

	fetch_cancel(o->fetch);
	secret_unref(o->rotated);
	free(o);
}

static int oauth2_open(const struct source_setting *s, void **ret, struct err *e)
{
	struct oauth2 *o = calloc(1, sizeof(*o));

	if (!o)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
	o->s = *s;
	*ret = o;
	return 0;
}

const struct source_ops source_oauth2_ops = {.open = oauth2_open,
					     .ask = oauth2_ask,
					     .close = oauth2_close};
