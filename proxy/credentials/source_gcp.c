/*
 * Tokens of a Google Cloud service account: with its key file (an assertion that the file's
 * token_uri exchanges, RFC 7523), from the metadata server of the machine, and by impersonation of
 * another account with a token of either. An access token for scopes, or an ID token for an
 * audience.
 */
#include <stdlib.h>
#include <string.h>

#include "logging/json.h"
#include "logging/limits.h"
#include "proxy/credentials/encode.h"
#include "proxy/credentials/endpoint.h"
#include "proxy/credentials/jwt.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"
#include "proxy/credentials/token.h"

#define METADATA      "http://169.254.169.254"
#define IAM	      "https://iamcredentials.googleapis.com"
#define IAM_SCOPE     "https://www.googleapis.com/auth/iam"
#define GRANT	      "urn:ietf:params:oauth:grant-type:jwt-bearer"
#define FLAVOR	      "Metadata-Flavor"
#define LIFE	      "3600"
#define JWT_LIFE_SECS 600

enum step { STEP_FIRST, STEP_IMPERSONATE };

struct gcp {
	struct source_setting s;
	/* owned, while a question is asked */
	struct fetch *fetch;
	/* plain */
	enum step step;
};

static int failed(struct err *e, const char *what)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "%s", what);
}

static bool impersonates(const struct gcp *g)
{
	return config_param(g->s.c, PARAM_IMPERSONATE) != NULL;
}

/* What the first question asks for: NULL when that is only a step towards another account. */
static const char *audience_of(const struct gcp *g)
{
	return impersonates(g) ? NULL : config_param_text(g->s.c, PARAM_AUDIENCE);
}

/* The scopes of the first question, joined by sep. */
static void add_scopes(const struct gcp *g, const char *sep, struct strbuf *out)
{
	const char *text = config_param_text(g->s.c, PARAM_SCOPES);
	json_t *list = text && !impersonates(g) ? token_json_config(text) : NULL, *v;
	size_t i;

	json_array_foreach(list, i, v)
	{
		strbuf_adds(out, i > 0 ? sep : "");
		strbuf_adds(out, json_string_value(v));
	}
	json_decref(list);
}

static void on_answer(void *arg, const struct fetch_answer *a, const struct err *why);

/* ---- with a key file ---- */

struct key_file {
	/* borrowed from the JSON */
	const char *email, *id, *url;
	/* owned */
	struct jwt_key *key;
};

/* What the file says of where to go is taken for an https URL at most; fetch judges its addresses
 * as those of any endpoint. */
static int check_token_uri(const char *text, struct err *e)
{
	struct url u;
	bool good = url_parse_absolute(str_from_c(text), &u, NULL) == 0 && u.scheme == SCHEME_HTTPS;

	url_clear(&u);
	return good ? 0 : failed(e, "`token_uri` of its key file is no https:// URL");
}

static int read_key_file(json_t *o, struct key_file *ret, struct err *e)
{
	const char *type = json_string_value(json_object_get(o, "type"));
	const char *pem = json_string_value(json_object_get(o, "private_key"));

	*ret = (struct key_file){
		.email = json_string_value(json_object_get(o, "client_email")),
		.id = json_string_value(json_object_get(o, "private_key_id")),
		.url = json_string_value(json_object_get(o, "token_uri")),
	};
	if (!type || strcmp(type, "service_account") != 0)
		return failed(e, "its key file is not of a service account (`type`)");
	if (!ret->email || !ret->url || !pem)
		return failed(e, "its key file lacks `client_email`, `private_key` or `token_uri`");
	if (check_token_uri(ret->url, e) < 0)
		return -1;
	return jwt_key_new(str_from_c(pem), "RS256", &ret->key, e);
}

static int sign_assertion(const struct gcp *g, const struct key_file *f, struct secret **ret,
			  struct err *e)
{
	const char *audience = audience_of(g);
	struct strbuf claims, scopes;
	struct json j;
	int rc;

	strbuf_init(&claims, 2 * LIMIT_CLAIMS_BYTES);
	strbuf_init(&scopes, LIMIT_CLAIMS_BYTES);
	add_scopes(g, " ", &scopes);
	if (impersonates(g))
		strbuf_adds(&scopes, IAM_SCOPE);
	json_init(&j, &claims);
	json_open(&j, '{');
	json_kv_str(&j, "iss", str_from_c(f->email));
	json_kv_str(&j, "aud", str_from_c(f->url));
	if (audience)
		json_kv_str(&j, "target_audience", str_from_c(audience));
	else
		json_kv_str(&j, "scope", strbuf_str(&scopes));
	json_kv_u64(&j, "iat", (uint64_t)(jwt_now() - LIMIT_JWT_BACK_SECS));
	json_kv_u64(&j, "exp", (uint64_t)(jwt_now() + JWT_LIFE_SECS));
	json_close(&j, '}');
	rc = claims.overflowed || scopes.overflowed
		     ? failed(e, "out of memory")
		     : jwt_sign(f->key, f->id, strbuf_str(&claims), ret, e);
	strbuf_clear(&claims);
	strbuf_clear(&scopes);
	return rc;
}

static int exchange(struct gcp *g, const struct key_file *f, struct err *e)
{
	struct secret *assertion = NULL;
	struct strbuf body;
	struct endpoint_question q = {
		.s = &g->s,
		.base = f->url,
		.type = STR("application/x-www-form-urlencoded"),
		.post = true,
	};
	int rc;

	if (sign_assertion(g, f, &assertion, e) < 0)
		return -1;
	strbuf_init(&body, LIMIT_SOURCE_BYTES);
	strbuf_adds(&body, "grant_type=");
	encode_percent(&body, STR(GRANT));
	strbuf_adds(&body, "&assertion=");
	encode_percent(&body, secret_value(assertion));
	q.body = strbuf_str(&body);
	rc = body.overflowed ? failed(e, "out of memory")
			     : endpoint_ask(&q, on_answer, g, &g->fetch, e);
	strbuf_wipe(&body);
	secret_unref(assertion);
	return rc;
}

static int ask_with_key(struct gcp *g, struct err *e)
{
	struct secret *text = NULL;
	struct source_mark mark;
	struct key_file f = {0};
	json_t *o;
	int rc;

	if (source_file_read_lines(config_param_text(g->s.c, PARAM_KEY), &mark, &text, e) < 0)
		return err_wrap(e, "`key`");
	o = token_json(secret_value(text), NULL);
	rc = o ? read_key_file(o, &f, e) : failed(e, "its key file is not a JSON object");
	if (rc == 0)
		rc = exchange(g, &f, e);
	jwt_key_unref(f.key);
	json_decref(o);
	secret_unref(text);
	return rc;
}

/* ---- the metadata server ---- */

static int ask_metadata(struct gcp *g, struct err *e)
{
	const char *audience = audience_of(g);
	struct endpoint_question q = {
		.s = &g->s,
		.base = METADATA,
		.accept = STR("*/*"),
		.more = {STR(FLAVOR), STR("Google")},
	};
	struct strbuf path, scopes;
	int rc;

	strbuf_init(&path, LIMIT_URL_BYTES);
	strbuf_init(&scopes, LIMIT_CLAIMS_BYTES);
	strbuf_addf(&path, "/computeMetadata/v1/instance/service-accounts/%s/%s",
		    config_param_text(g->s.c, PARAM_METADATA), audience ? "identity" : "token");
	add_scopes(g, ",", &scopes);
	if (audience) {
		strbuf_adds(&path, "?format=full&audience=");
		encode_percent(&path, str_from_c(audience));
	} else if (scopes.len > 0) {
		strbuf_adds(&path, "?scopes=");
		encode_percent(&path, strbuf_str(&scopes));
	}
	q.path = strbuf_str(&path);
	rc = path.overflowed || scopes.overflowed ? failed(e, "out of memory")
						  : endpoint_ask(&q, on_answer, g, &g->fetch, e);
	strbuf_clear(&path);
	strbuf_clear(&scopes);
	return rc;
}

/* Anything that listens there but the metadata server does not say this. */
static int check_flavor(const struct gcp *g, const struct fetch_answer *a, struct err *e)
{
	const struct field *f = fields_get(a->fields, STR(FLAVOR));

	if (!config_param(g->s.c, PARAM_METADATA) || (f && str_eq(f->value, STR("Google"))))
		return 0;
	return failed(e, "what answers at its address is not the metadata server");
}

/* ---- another account ---- */

static int impersonate(struct gcp *g, struct str bearer, struct err *e)
{
	const char *audience = config_param_text(g->s.c, PARAM_AUDIENCE);
	const char *life = config_param_text(g->s.c, PARAM_LIFETIME);
	const char *iam = config_param_text(g->s.c, PARAM_IAM);
	struct endpoint_question q = {
		.s = &g->s,
		.base = iam ? iam : IAM,
		.bearer = bearer,
		.post = true,
	};
	struct strbuf path, body;
	struct json j;
	int rc;

	strbuf_init(&path, LIMIT_URL_BYTES);
	strbuf_init(&body, 2 * LIMIT_CLAIMS_BYTES);
	strbuf_addf(&path, "/v1/projects/-/serviceAccounts/%s:%s",
		    config_param_text(g->s.c, PARAM_IMPERSONATE),
		    audience ? "generateIdToken" : "generateAccessToken");
	json_init(&j, &body);
	if (audience) {
		json_open(&j, '{');
		json_kv_str(&j, "audience", str_from_c(audience));
		json_key(&j, "includeEmail");
		json_bool(&j, true);
		json_close(&j, '}');
	} else {
		strbuf_addf(&body, "{\"scope\":%s,\"lifetime\":\"%ss\"}",
			    config_param_text(g->s.c, PARAM_SCOPES), life ? life : LIFE);
	}
	q.path = strbuf_str(&path);
	q.body = strbuf_str(&body);
	g->step = STEP_IMPERSONATE;
	rc = path.overflowed || body.overflowed ? failed(e, "out of memory")
						: endpoint_ask(&q, on_answer, g, &g->fetch, e);
	strbuf_clear(&path);
	strbuf_clear(&body);
	return rc;
}

/* ---- answers ---- */

static struct secret *secret_of(struct str value)
{
	return value.n <= LIMIT_SECRET_BYTES ? secret_copy(value) : NULL;
}

/* An ID token says its end itself, and whom it is for. */
static int read_id_token(const struct gcp *g, const struct secret *token, int64_t *ret_life_us,
			 struct err *e)
{
	json_t *payload = jwt_payload(secret_value(token), e);
	struct strbuf asked;
	struct json j;
	int rc = -1;

	strbuf_init(&asked, LIMIT_CLAIMS_BYTES);
	json_init(&j, &asked);
	json_open(&j, '[');
	json_str(&j, str_from_c(config_param_text(g->s.c, PARAM_AUDIENCE)));
	json_close(&j, ']');
	if (payload && asked.overflowed)
		(void)failed(e, "out of memory");
	else if (payload && jwt_check_audience(payload, strbuf_cstr(&asked), e) == 0)
		rc = jwt_life(payload, ret_life_us, e);
	json_decref(payload);
	strbuf_clear(&asked);
	return rc;
}

/* Of each endpoint under its own names; the metadata server's ID token is the whole body. */
static int read_value(const struct gcp *g, const struct fetch_answer *a, struct secret **ret,
		      int64_t *ret_life_us, struct err *e)
{
	bool second = g->step == STEP_IMPERSONATE;
	bool id = second ? config_param(g->s.c, PARAM_AUDIENCE) != NULL : audience_of(g) != NULL;
	json_t *o = NULL;
	int rc = -1;

	*ret_life_us = 0;
	if (id && !second && config_param(g->s.c, PARAM_METADATA)) {
		*ret = secret_of(a->body);
		return *ret ? 0 : failed(e, "its answer is too large");
	}
	o = token_json(a->body, e);
	if (!o)
		return -1;
	if (second)
		rc = id ? 0 : token_json_end(o, "expireTime", ret_life_us, e);
	else
		rc = token_json_life(o, "expires_in", ret_life_us, e);
	if (rc == 0)
		rc = token_json_secret(o,
				       second ? (id ? "token" : "accessToken")
				       : id   ? "id_token"
					      : "access_token",
				       ret, e);
	json_decref(o);
	return rc;
}

static int read_answer(const struct gcp *g, const struct fetch_answer *a, struct secret **ret,
		       int64_t *ret_life_us, struct err *e)
{
	static const struct endpoint_hint of_first[] = {
		{400, "the key is not the account's, or a clock is wrong"},
		{404, "the machine has no such service account"},
		{0, NULL},
	};
	static const struct endpoint_hint of_second[] = {
		{403, "the account may not make tokens of the other one"},
		{404, "there is no such service account"},
		{0, NULL},
	};
	struct secret *value = NULL;
	bool last = g->step == STEP_IMPERSONATE || !impersonates(g);

	if (a->status != 200)
		return endpoint_refused(a, g->step == STEP_FIRST ? of_first : of_second, e);
	if (g->step == STEP_FIRST && check_flavor(g, a, e) < 0)
		return -1;
	if (read_value(g, a, &value, ret_life_us, e) < 0)
		return -1;
	/* One that is only a step is judged as a value is, before it goes into a head. */
	if (secret_check(value, e) < 0 || (last && config_param(g->s.c, PARAM_AUDIENCE) &&
					   read_id_token(g, value, ret_life_us, e) < 0)) {
		secret_unref(value);
		return -1;
	}
	*ret = value;
	return 0;
}

static void on_answer(void *arg, const struct fetch_answer *a, const struct err *why)
{
	struct gcp *g = arg;
	struct secret *value = NULL;
	struct err e = ERR_INIT;
	int64_t life_us = 0;

	g->fetch = NULL;
	if (!a) {
		e = *why;
	} else if (read_answer(g, a, &value, &life_us, &e) < 0) {
		value = NULL;
	} else if (g->step == STEP_FIRST && impersonates(g)) {
		int rc = impersonate(g, secret_value(value), &e);

		secret_unref(value);
		value = NULL;
		if (rc == 0)
			return;
	}
	g->s.on_result(g->s.arg, value, life_us, &e);
}

/* ---- the source ---- */

static int gcp_ask(void *self, struct err *e)
{
	struct gcp *g = self;

	g->step = STEP_FIRST;
	return config_param(g->s.c, PARAM_KEY) ? ask_with_key(g, e) : ask_metadata(g, e);
}

static void gcp_close(void *self)
{
	struct gcp *g = self;

	fetch_cancel(g->fetch);
	free(g);
}

static int gcp_open(const struct source_setting *s, void **ret, struct err *e)
{
	struct gcp *g = calloc(1, sizeof(*g));

	if (!g)
		return failed(e, "out of memory");
	g->s = *s;
	*ret = g;
	return 0;
}

const struct source_ops source_gcp_ops = {gcp_open, gcp_ask, gcp_close, NULL};
