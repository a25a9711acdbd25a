/*
 * Keys to sign with for AWS: given as they are, or by a file of profiles, both read again every few
 * seconds; or by the endpoint that a container is told of; or by the token service, for a web
 * identity or for any of the others. The secrets that it is told of are read anew for each
 * question.
 */
#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "proxy/credentials/encode.h"
#include "proxy/credentials/endpoint.h"
#include "proxy/credentials/fetch.h"
#include "proxy/credentials/profile.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/sigv4.h"
#include "proxy/credentials/source.h"
#include "proxy/credentials/sts.h"
#include "proxy/credentials/token.h"

struct aws {
	struct source_setting s;
	/* owned */
	struct fetch *fetch;
	struct timer timer; /* tells what was read at once */
	/* counted, until it is told */
	struct secret *value;
};

static const char *text_of(const struct aws *a, enum config_param_key k)
{
	return config_param_text(a->s.c, k);
}

static int out_of_memory(struct err *e)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
}

/* ---- what is read at once ---- */

static int read_fixed(const struct aws *a, struct secret **ret, struct err *e)
{
	const struct config_param *id = config_param(a->s.c, PARAM_ACCESS_KEY_ID);
	struct secret *id_s = NULL, *key = NULL, *token = NULL;
	struct sigv4_parts p = {STR_NONE, STR_NONE, STR_NONE};
	int rc = -1;

	if (id->kind == PARAM_TEXT)
		p.id = str_from_c(id->text);
	else if (source_param_secret(a->s.c, PARAM_ACCESS_KEY_ID, "access_key_id", &id_s, e) < 0)
		goto out;
	else
		p.id = secret_value(id_s);
	if (source_param_secret(a->s.c, PARAM_SECRET_ACCESS_KEY, "secret_access_key", &key, e) < 0)
		goto out;
	p.key = secret_value(key);
	if (config_param(a->s.c, PARAM_SESSION_TOKEN)) {
		if (source_param_secret(a->s.c, PARAM_SESSION_TOKEN, "session_token", &token, e) <
		    0)
			goto out;
		p.token = secret_value(token);
	}
	rc = sigv4_join_parts(&p, ret, e);
out:
	secret_unref(id_s);
	secret_unref(key);
	secret_unref(token);
	return rc;
}

static int read_profile(const struct aws *a, struct secret **ret, struct err *e)
{
	const char *profile = text_of(a, PARAM_PROFILE);
	struct secret *text = NULL;
	struct source_mark mark;
	struct sigv4_parts p;
	int rc = -1;

	if (source_file_read_lines(text_of(a, PARAM_PROFILES), &mark, &text, e) < 0)
		return -1;
	if (profile_read(secret_value(text), str_from_c(profile ? profile : "default"), &p, e) == 0)
		rc = sigv4_join_parts(&p, ret, e);
	secret_unref(text);
	return rc;
}

static void on_timer(void *arg)
{
	struct aws *a = arg;
	struct secret *value = a->value;

	a->value = NULL;
	a->s.on_result(a->s.arg, value, LIMIT_MS_AWS_STATIC * 1000LL, NULL);
}

static int tell_later(struct aws *a, struct secret *value)
{
	a->value = value;
	timer_arm(&a->timer, 0);
	return 0;
}

/* ---- the token service ---- */

static void add_text(const struct aws *a, struct strbuf *b, const char *key,
		     enum config_param_key param, const char *otherwise)
{
	const char *text = text_of(a, param) ? text_of(a, param) : otherwise;

	if (text)
		encode_form_pair(b, key, str_from_c(text));
}

static int write_question(const struct aws *a, bool web, struct strbuf *body, struct err *e)
{
	struct secret *token = NULL;

	encode_form_pair(body, "Action",
			 web ? STR("AssumeRoleWithWebIdentity") : STR("AssumeRole"));
	encode_form_pair(body, "Version", STR("2011-06-15"));
	add_text(a, body, "RoleArn", PARAM_ROLE_ARN, NULL);
	add_text(a, body, "RoleSessionName", PARAM_SESSION_NAME, "stile");
	add_text(a, body, "DurationSeconds", PARAM_DURATION, NULL);
	add_text(a, body, "Policy", PARAM_POLICY, NULL);
	if (!web) {
		add_text(a, body, "ExternalId", PARAM_EXTERNAL_ID, NULL);
		return 0;
	}
	if (source_param_secret(a->s.c, PARAM_WEB_IDENTITY_TOKEN, "web_identity_token", &token, e) <
	    0)
		return -1;
	encode_form_pair(body, "WebIdentityToken", secret_value(token));
	secret_unref(token);
	return 0;
}

static int hash_of(struct str body, char out[SIGV4_HASH_HEX])
{
	struct sigv4_hash *h = NULL;
	int rc = sigv4_hash_new(&h);

	if (rc == 0)
		rc = sigv4_hash_add(h, body) == 0 ? sigv4_hash_end(h, out) : -1;
	sigv4_hash_free(h);
	return rc;
}

/* base: who asks. */
static int sign(const struct aws *a, const struct secret *base, const struct url *url,
		struct str body, struct fields *fields, struct strbuf *mem, struct err *e)
{
	char hash[SIGV4_HASH_HEX];
	struct fields added = {0};
	struct sigv4_request q = {
		.method = STR("POST"),
		.url = url,
		.fields = fields,
		.payload = str_from(hash, SIGV4_HASH_HEX),
		.region = str_from_c(text_of(a, PARAM_STS_REGION)),
		.service = STR("sts"),
		.now = time(NULL),
	};
	struct sigv4 *s = NULL;
	int rc = -1;

	if (hash_of(body, hash) == 0 && sigv4_read_parts(secret_value(base), &q.who, e) == 0 &&
	    sigv4_new(&s, e) == 0)
		rc = sigv4_sign(s, &q, mem, &added, e);
	for (size_t i = 0; rc == 0 && i < added.n; i++)
		rc = fields_add(fields, added.v[i].name, added.v[i].value);
	fields_clear(&added);
	sigv4_free(s);
	return rc;
}

static int read_role(void *self, const struct fetch_answer *answer, struct secret **ret,
		     int64_t *ret_life_us, struct err *e)
{
	(void)self;
	return answer->status == 200 ? sts_read(answer->body, ret, ret_life_us, e)
				     : sts_read_error(answer->body, answer->status, e);
}

static void on_role(void *arg, const struct fetch_answer *answer, const struct err *why)
{
	struct aws *a = arg;

	a->fetch = NULL;
	endpoint_answered(&a->s, answer, why, read_role, a);
}

/* base: NULL for a web identity, whose token says who asks. */
static int ask_role(struct aws *a, const struct secret *base, struct err *e)
{
	struct fields fields = {0};
	struct strbuf body, mem;
	struct url url;
	struct fetch_request r = {
		.method = STR("POST"),
		.url = str_from_c(text_of(a, PARAM_STS_URL)),
		.fields = &fields,
		.ranges = a->s.c->ranges,
		.ranges_n = a->s.c->ranges_n,
		.timeout_ms = a->s.c->timeout_ms,
	};
	int rc = -1;

	strbuf_init(&body, LIMIT_SOURCE_BYTES);
	strbuf_init(&mem, SIGV4_MAX_TEXT);
	if (url_parse_absolute(r.url, &url, e) < 0 || write_question(a, base == NULL, &body, e) < 0)
		goto out;
	r.body = strbuf_str(&body);
	if (body.overflowed ||
	    fields_add(&fields, STR("Content-Type"), STR("application/x-www-form-urlencoded")) < 0)
		(void)out_of_memory(e);
	else if (!base || sign(a, base, &url, r.body, &fields, &mem, e) == 0)
		rc = fetch_start(a->s.fetcher, &r, on_role, a, &a->fetch, e);
out:
	url_clear(&url);
	fields_clear(&fields);
	strbuf_wipe(&body);
	strbuf_wipe(&mem);
	return rc;
}

/* ---- the endpoint of a container ---- */

static int read_container(const struct fetch_answer *answer, struct secret **ret,
			  int64_t *ret_life_us, struct err *e)
{
	struct secret *id = NULL, *key = NULL, *token = NULL;
	json_t *o;
	int rc = -1;

	if (answer->status != 200)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its endpoint answers %u",
				  answer->status);
	o = token_json(answer->body, e);
	if (o && token_json_end(o, "Expiration", ret_life_us, e) == 0 &&
	    token_json_secret(o, "AccessKeyId", &id, e) == 0 &&
	    token_json_secret(o, "SecretAccessKey", &key, e) == 0 &&
	    token_json_secret(o, "Token", &token, e) == 0) {
		struct sigv4_parts p = {secret_value(id), secret_value(key), secret_value(token)};

		rc = sigv4_join_parts(&p, ret, e);
	}
	json_decref(o);
	secret_unref(id);
	secret_unref(key);
	secret_unref(token);
	return rc;
}

static void on_container(void *arg, const struct fetch_answer *answer, const struct err *why)
{
	struct aws *a = arg;
	struct secret *value = NULL;
	struct err e = ERR_INIT;
	int64_t life_us = 0;

	a->fetch = NULL;
	if (!answer)
		e = *why;
	else if (read_container(answer, &value, &life_us, &e) < 0)
		value = NULL;
	else if (text_of(a, PARAM_ROLE_ARN)) {
		int rc = ask_role(a, value, &e);

		secret_unref(value);
		value = NULL;
		if (rc == 0)
			return;
	}
	a->s.on_result(a->s.arg, value, life_us, &e);
}

static int ask_container(struct aws *a, struct err *e)
{
	struct fields fields = {0};
	struct secret *token = NULL;
	struct fetch_request r = {
		.method = STR("GET"),
		.url = str_from_c(text_of(a, PARAM_CONTAINER_URL)),
		.fields = &fields,
		.ranges = a->s.c->ranges,
		.ranges_n = a->s.c->ranges_n,
		.timeout_ms = a->s.c->timeout_ms,
	};
	int rc = -1;

	if (config_param(a->s.c, PARAM_AUTHORIZATION_TOKEN)) {
		if (source_param_secret(a->s.c, PARAM_AUTHORIZATION_TOKEN, "authorization_token",
					&token, e) < 0)
			return -1;
		rc = fields_add(&fields, STR("Authorization"), secret_value(token));
	}
	if (!token || rc == 0)
		rc = fields_add(&fields, STR("Accept"), STR("application/json"));
	rc = rc < 0 ? out_of_memory(e)
		    : fetch_start(a->s.fetcher, &r, on_container, a, &a->fetch, e);
	fields_clear(&fields);
	secret_unref(token);
	return rc;
}

/* ---- the source ---- */

static int aws_ask(void *self, struct err *e)
{
	struct aws *a = self;
	struct secret *base = NULL;
	int rc;

	if (config_param(a->s.c, PARAM_WEB_IDENTITY_TOKEN))
		return ask_role(a, NULL, e);
	if (config_param(a->s.c, PARAM_CONTAINER_URL))
		return ask_container(a, e);
	rc = config_param(a->s.c, PARAM_PROFILES) ? read_profile(a, &base, e)
						  : read_fixed(a, &base, e);
	if (rc < 0)
		return -1;
	if (!text_of(a, PARAM_ROLE_ARN))
		return tell_later(a, base);
	rc = ask_role(a, base, e);
	secret_unref(base);
	return rc;
}

static void aws_close(void *self)
{
	struct aws *a = self;

	fetch_cancel(a->fetch);
	timer_clear(&a->timer);
	secret_unref(a->value);
	free(a);
}

static int aws_open(const struct source_setting *s, void **ret, struct err *e)
{
	struct aws *a = calloc(1, sizeof(*a));

	if (!a || timer_init(&a->timer, s->loop, on_timer, a) < 0) {
		free(a);
		return out_of_memory(e);
	}
	a->s = *s;
	*ret = a;
	return 0;
}

const struct source_ops source_aws_ops = {.open = aws_open, .ask = aws_ask, .close = aws_close};
