/*
 * See vault.h. Every number and text of an answer is the server's word: lives are bounded, a
 * lease's name is looked at before it is sent back, and of an error nothing is told on but what is
 * known.
 */
#include "proxy/credentials/vault.h"

#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/token.h"

static int bad(struct err *e, const char *what)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "%s", what);
}

/* Vault's 0 is "no end"; so is a key that is missing. */
static int read_life(const json_t *o, const char *key, int64_t *ret_us, struct err *e)
{
	if (token_json_life(o, key, ret_us, e) < 0)
		return -1;
	if (*ret_us < 0)
		*ret_us = 0;
	return 0;
}

/* ---- logins ---- */

int vault_read_grant(struct str body, struct vault_grant *ret, struct err *e)
{
	json_t *o = token_json(body, e), *auth = json_object_get(o, "auth");
	struct vault_grant g = {0};
	const char *type;
	int rc = -1;

	if (o && !json_is_object(auth))
		(void)bad(e, "its answer has no `auth`");
	if (json_is_object(auth) && read_life(auth, "lease_duration", &g.life_us, e) == 0 &&
	    token_json_secret(auth, "client_token", &g.token, e) == 0)
		rc = secret_check(g.token, e);
	if (rc == 0) {
		type = json_string_value(json_object_get(auth, "token_type"));
		g.renewable = json_is_true(json_object_get(auth, "renewable"));
		g.batch = type && strcmp(type, "batch") == 0;
		*ret = g;
	} else {
		secret_unref(g.token);
	}
	json_decref(o);
	return rc;
}

int vault_read_lookup(struct str body, int64_t *ret_life_us, int64_t *ret_left_us,
		      bool *ret_renewable, struct err *e)
{
	json_t *o = token_json(body, e), *data = json_object_get(o, "data");
	int64_t left = 0, life = 0;
	int rc = -1;

	if (o && !json_is_object(data))
		(void)bad(e, "its answer has no `data`");
	if (json_is_object(data) && read_life(data, "ttl", &left, e) == 0 &&
	    read_life(data, "creation_ttl", &life, e) == 0) {
		*ret_left_us = left;
		/* A renewal may have been for longer than the birth was. */
		*ret_life_us = left == 0 ? 0 : life > left ? life : left;
		*ret_renewable = json_is_true(json_object_get(data, "renewable"));
		rc = 0;
	}
	json_decref(o);
	return rc;
}

int vault_read_unwrapped(struct str body, struct secret **ret, struct err *e)
{
	json_t *o = token_json(body, e), *data = json_object_get(o, "data");
	int rc = -1;

	if (o)
		rc = token_json_secret(data, "secret_id", ret, e);
	json_decref(o);
	return rc;
}

/* ---- secrets ---- */

/* What is sent back, and shown to people who look for it: visible ASCII. */
static bool is_lease(const char *s)
{
	size_t n = 0;

	for (; s[n]; n++)
		if (s[n] <= ' ' || s[n] > '~' || n >= LIMIT_VAULT_LEASE_BYTES)
			return false;
	return n > 0;
}

/* The lease of an answer, if it has one. */
static int read_lease(const json_t *o, struct vault_secret *ret, struct err *e)
{
	const json_t *id = json_object_get(o, "lease_id");

	if (!id || json_is_null(id) || (json_is_string(id) && json_string_length(id) == 0))
		return 0;
	if (!json_is_string(id) || strlen(json_string_value(id)) != json_string_length(id) ||
	    !is_lease(json_string_value(id)))
		return bad(e, "its answer has a `lease_id` that is none");
	if (read_life(o, "lease_duration", &ret->life_us, e) < 0)
		return -1;
	if (ret->life_us == 0)
		return bad(e, "its lease has no `lease_duration`");
	ret->renewable = json_is_true(json_object_get(o, "renewable"));
	ret->lease = strdup(json_string_value(id));
	return ret->lease ? 0 : bad(e, "out of memory");
}

static int join(struct secret *a, struct secret *b, char between, struct secret **ret,
		struct err *e)
{
	struct str x = secret_value(a), y = secret_value(b);
	struct secret *both;

	if (str_find(x, between) >= 0 && between != '\n')
		return bad(e, "the first of its fields holds a colon, which ends a user name");
	both = secret_join(x, between, y);
	if (!both)
		return bad(e, "out of memory");
	*ret = both;
	return 0;
}

static int read_fields(const json_t *data, const char *first, const char *second, char between,
		       struct secret **ret, struct err *e)
{
	struct secret *a = NULL, *b = NULL;
	int rc = token_json_secret(data, first, &a, e);

	if (rc < 0 || !second) {
		*ret = a;
		return rc;
	}
	rc = token_json_secret(data, second, &b, e);
	if (rc == 0)
		rc = join(a, b, between, ret, e);
	secret_unref(a);
	secret_unref(b);
	return rc;
}

/* Version 2 of the key-value engine wraps the secret once more, with what it knows of it. */
static const json_t *find_data(const json_t *o, int64_t *ret_life_us, struct err *e)
{
	const json_t *data = json_object_get(o, "data");
	const json_t *inner = json_object_get(data, "data"), *meta, *end;

	meta = json_object_get(data, "metadata");
	if (!json_is_object(data)) {
		(void)bad(e, "its answer has no `data`");
		return NULL;
	}
	if (!json_is_object(meta) || !json_object_get(meta, "version") || !inner)
		return data;
	if (!json_is_object(inner)) {
		(void)bad(e, "that version of the secret was deleted");
		return NULL;
	}
	end = json_object_get(meta, "deletion_time");
	if (json_string_length(end) > 0 &&
	    token_json_end(meta, "deletion_time", ret_life_us, e) < 0)
		return NULL;
	if (*ret_life_us < 0) {
		(void)bad(e, "that version of the secret was deleted");
		return NULL;
	}
	return inner;
}

int vault_read_secret(struct str body, const char *first, const char *second, char between,
		      struct vault_secret *ret, struct err *e)
{
	json_t *o = token_json(body, e);
	struct vault_secret s = {0};
	const json_t *data = NULL;
	int rc = -1;

	if (o && json_is_object(json_object_get(o, "wrap_info")))
		(void)bad(e, "its answer is wrapped");
	else if (o)
		data = find_data(o, &s.life_us, e);
	if (data && read_lease(o, &s, e) == 0)
		rc = read_fields(data, first, second, between, &s.value, e);
	if (rc == 0)
		*ret = s;
	else
		vault_secret_clear(&s);
	json_decref(o);
	return rc;
}

int vault_read_renewal(struct str body, struct vault_secret *ret, struct err *e)
{
	json_t *o = token_json(body, e);
	struct vault_secret s = {0};
	int rc = o ? read_lease(o, &s, e) : -1;

	if (rc == 0 && !s.lease)
		rc = bad(e, "its answer has no `lease_id`");
	if (rc == 0)
		*ret = s;
	else
		vault_secret_clear(&s);
	json_decref(o);
	return rc;
}

void vault_secret_clear(struct vault_secret *s)
{
	secret_unref(s->value);
	free(s->lease);
	*s = (struct vault_secret){0};
}

/* ---- refusals ---- */

/* Words of Vault's own errors that say more than the status does. */
static const struct {
	unsigned status;
	const char *has, *say;
} known[] = {
	{503, "sealed", "it is sealed"},
	{400, "invalid role or secret ID", "role_id or secret_id is not valid"},
	{400, "invalid role ID", "role_id is not valid"},
	{400, "invalid secret id", "secret_id is not valid"},
	{400, "wrapping token is not valid",
	 "the wrapping token was used already or has ended: somebody else may have read what it "
	 "held"},
	{400, "missing client token", "it got no token"},
	{400, "lease not found", "the lease has ended"},
	{403, "wrapping token is not valid",
	 "the wrapping token was used already or has ended: somebody else may have read what it "
	 "held"},
	{403, "invalid token", "the token is not valid, or has ended"},
	{403, "permission denied",
	 "permission denied: a policy does not allow it, or the token has ended"},
	{404, "no handler for route", "nothing is mounted at that path"},
};

static const char *of_errors(const struct fetch_answer *a)
{
	json_t *o = token_json(a->body, NULL), *errors = json_object_get(o, "errors");
	const char *say = NULL;

	for (size_t i = 0; i < ARRAY_LEN(known) && !say; i++)
		for (size_t n = 0; n < json_array_size(errors) && !say; n++) {
			const char *text = json_string_value(json_array_get(errors, n));

			if (known[i].status == a->status && text && strstr(text, known[i].has))
				say = known[i].say;
		}
	json_decref(o);
	return say;
}

static const char *of_status(unsigned status)
{
	switch (status) {
	case 301:
	case 302:
	case 303:
	case 307:
	case 308:
		return "a standby sends to another server, which is not followed (name the active "
		       "one, or a balancer that finds it, in `address`)";
	case 400: return "it takes the request for a wrong one";
	case 403: return "permission denied";
	case 404:
		return "there is no such secret or path (version 2 of the key-value engine has "
		       "data/ behind its mount), or it was deleted";
	case 412: return "it does not know yet what another node has written";
	case 429: return "it was asked too often, or is a standby";
	case 472:
	case 473: return "it is a standby";
	case 500: return "it failed";
	case 501: return "it is not initialised";
	case 502:
	case 504: return "what stands before it has no answer of it";
	case 503: return "it is sealed, or down for maintenance";
	default: return "which is no answer of a Vault";
	}
}

int vault_refusal(const struct fetch_answer *a, struct err *e)
{
	const char *say = of_errors(a);

	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its endpoint answers %u (%s)",
			  a->status, say ? say : of_status(a->status));
}

bool vault_is_final(const struct fetch_answer *a)
{
	return a->status == 400 || a->status == 403 || a->status == 404;
}
