/*
 * A token of a Kubernetes service account for a certain audience. Without `api` the kubelet puts it
 * into a file of a projected volume and renews it there; its end stands in it. With `api` the
 * cluster is asked for it (TokenRequest of authentication.k8s.io/v1), as the service account whose
 * token file is given, and may be verified by the cluster's own CA.
 */
#include <stdlib.h>

#include "logging/limits.h"
#include "proxy/credentials/endpoint.h"
#include "proxy/credentials/jwt.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"
#include "proxy/credentials/token.h"

#define LIFE "3600"

struct kubernetes {
	struct source_setting s;
	/* owned, while a question is asked */
	struct fetch *fetch;
};

static int failed(struct err *e, const char *what)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "%s", what);
}

/* The token's own word on whom it is for and until when. */
static int read_life(const struct config_credential *c, const struct secret *token, int64_t *ret_us,
		     struct err *e)
{
	json_t *payload = jwt_payload(secret_value(token), e);
	int rc = -1;

	if (payload && jwt_check_audience(payload, config_param_text(c, PARAM_AUDIENCES), e) == 0)
		rc = jwt_life(payload, ret_us, e);
	json_decref(payload);
	return rc;
}

int source_kubernetes_read(const struct config_credential *c, struct source_mark *mark,
			   struct secret **ret, int64_t *ret_life_us, struct err *e)
{
	struct secret *token = NULL;

	if (source_file_read(c->from, mark, &token, e) < 0)
		return -1;
	if (read_life(c, token, ret_life_us, e) < 0 ||
	    (*ret_life_us < 0 && failed(e, "its token has ended already (is the clock right?)"))) {
		secret_unref(token);
		return -1;
	}
	*ret = token;
	return 0;
}

/* ---- TokenRequest ---- */

static int read_answer(void *self, const struct fetch_answer *a, struct secret **ret,
		       int64_t *ret_life_us, struct err *e)
{
	const struct kubernetes *k = self;
	static const struct endpoint_hint hints[] = {
		{401, "the cluster does not take the token that was shown"},
		{403, "that account may not make tokens of the other one"},
		{404, "there is no such service account"},
		{0, NULL},
	};
	struct secret *token = NULL;
	int64_t said_us = 0, own_us = 0;
	json_t *o, *status;
	int rc = -1;

	if (a->status != 201 && a->status != 200)
		return endpoint_refused(a, hints, e);
	o = token_json(a->body, e);
	status = json_object_get(o, "status");
	if (o && token_json_end(status, "expirationTimestamp", &said_us, e) == 0 &&
	    token_json_secret(status, "token", &token, e) == 0)
		rc = read_life(k->s.c, token, &own_us, e);
	json_decref(o);
	if (rc < 0) {
		secret_unref(token);
		return -1;
	}
	*ret_life_us = said_us != 0 && said_us < own_us ? said_us : own_us;
	*ret = token;
	return 0;
}

static void on_answer(void *arg, const struct fetch_answer *a, const struct err *why)
{
	struct kubernetes *k = arg;

	k->fetch = NULL;
	endpoint_answered(&k->s, a, why, read_answer, k);
}

/* The cluster's CA is read each time, since clusters change theirs. Its path is not for clients. */
static int read_ca(const struct config_credential *c, struct trust **ret, struct err *e)
{
	char *path = config_param(c, PARAM_CA) ? config_param(c, PARAM_CA)->text : NULL;

	if (!path || trust_new(&path, 1, ret, NULL) == 0)
		return 0;
	return failed(e, "`ca` is no file with a certificate that can be read");
}

static int ask_with(struct kubernetes *k, struct str bearer, struct trust *trust, struct err *e)
{
	const struct config_credential *c = k->s.c;
	const char *life = config_param_text(c, PARAM_LIFETIME);
	struct endpoint_question q = {
		.s = &k->s,
		.base = config_param_text(c, PARAM_API),
		.bearer = bearer,
		.trust = trust,
		.post = true,
	};
	struct strbuf path, body;
	int rc;

	strbuf_init(&path, LIMIT_URL_BYTES);
	strbuf_init(&body, 2 * LIMIT_CLAIMS_BYTES);
	strbuf_addf(&path, "/api/v1/namespaces/%s/serviceaccounts/%s/token",
		    config_param_text(c, PARAM_NAMESPACE),
		    config_param_text(c, PARAM_SERVICE_ACCOUNT));
	strbuf_addf(&body,
		    "{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenRequest\","
		    "\"spec\":{\"audiences\":%s,\"expirationSeconds\":%s}}",
		    config_param_text(c, PARAM_AUDIENCES), life ? life : LIFE);
	q.path = strbuf_str(&path);
	q.body = strbuf_str(&body);
	rc = path.overflowed || body.overflowed ? failed(e, "out of memory")
						: endpoint_ask(&q, on_answer, k, &k->fetch, e);
	strbuf_clear(&path);
	strbuf_clear(&body);
	return rc;
}

static int kubernetes_ask(void *self, struct err *e)
{
	struct kubernetes *k = self;
	struct secret *bearer = NULL;
	struct trust *trust = NULL;
	int rc = -1;

	if (source_param_secret(k->s.c, PARAM_TOKEN, "token", &bearer, e) == 0 &&
	    read_ca(k->s.c, &trust, e) == 0)
		rc = ask_with(k, secret_value(bearer), trust, e);
	trust_unref(trust);
	secret_unref(bearer);
	return rc;
}

static void kubernetes_close(void *self)
{
	struct kubernetes *k = self;

	fetch_cancel(k->fetch);
	free(k);
}

static int kubernetes_open(const struct source_setting *s, void **ret, struct err *e)
{
	struct kubernetes *k = calloc(1, sizeof(*k));

	if (!k)
		return failed(e, "out of memory");
	k->s = *s;
	*ret = k;
	return 0;
}

const struct source_ops source_kubernetes_ops = {kubernetes_open, kubernetes_ask, kubernetes_close,
						 NULL};
