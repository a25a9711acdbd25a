/*
 * See admin_ops.h. Read by jansson, strictly: no key twice, none that is not known.
 */
#include "proxy/cli/admin_ops.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <openssl/crypto.h>

#include "logging/json.h"
#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/cli/cli.h"
#include "proxy/credentials/slot.h"
#include "proxy/net/listener.h"
#include "proxy/session/sandboxes.h"
#include "proxy/session/snapshot.h"

struct ask {
	struct engine *g;
	const json_t *q;
	unsigned uid;
	struct json *j;
};

/* ---- text ---- */

static void put_time(struct json *j, const char *key, int64_t us)
{
	time_t t = (time_t)(us / 1000000);
	char text[32];
	struct tm tm;

	if (us <= 0 || !gmtime_r(&t, &tm) ||
	    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		return;
	json_kv_str(j, key, str_from_c(text));
}

static void put_cstr(struct json *j, const char *key, const char *s)
{
	json_kv_str(j, key, str_from_c(s));
}

/* In seconds; below 0: nothing. */
static void put_span(struct json *j, const char *key, int64_t us)
{
	if (us >= 0)
		json_kv_u64(j, key, (uint64_t)us / 1000000);
}

/* "127.0.0.1:3128", "unix:/path" */
static void put_place(struct json *j, const struct engine *g, size_t i)
{
	const struct config_listener *l = &engine_snapshot(g)->config->listeners[i];
	struct strbuf b;

	strbuf_init(&b, 8192);
	listener_add_place(l, engine_port(g, i), &b);
	json_kv_str(j, "at", strbuf_str(&b));
	strbuf_clear(&b);
}

/* ---- what was asked ---- */

static const char *text_of(const struct ask *a, const char *key)
{
	return json_string_value(json_object_get(a->q, key));
}

/* Each key is one of `keys` (NULL-terminated), and a text but for the one that is a number. */
static int check_keys(const struct ask *a, const char *const *keys, struct err *e)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)a->q, key, value)
	{
		size_t i = 0;

		while (keys[i] && strcmp(keys[i], key) != 0)
			i++;
		if (!keys[i])
			return err_set(e, "unknown key");
		if (strcmp(key, "ttl_ms") == 0 ? !json_is_integer(value) : !json_is_string(value))
			return err_set(e, "%s is of the wrong type", keys[i]);
	}
	return 0;
}

/* ---- sandboxes ---- */

static const char *tokens_word(enum config_tokens t)
{
	switch (t) {
	case CONFIG_TOKENS_NONE: return "none";
	case CONFIG_TOKENS_OPTIONAL: return "optional";
	case CONFIG_TOKENS_REQUIRED: return "required";
	}
	return "none";
}

/* The listener of that name, or the only one that takes tokens. */
static int choose_listener(const struct config *c, const char *name, size_t *ret, struct err *e)
{
	size_t found = 0;

	for (size_t i = 0; i < c->listeners_n; i++) {
		const struct config_listener *l = &c->listeners[i];

		if (name && strcmp(l->name, name) == 0 && l->tokens == CONFIG_TOKENS_NONE)
			return err_set(e, "the listener %s takes no tokens (add `tokens` to it)",
				       l->name);
		if (l->tokens == CONFIG_TOKENS_NONE || (name && strcmp(l->name, name) != 0))
			continue;
		*ret = i;
		found++;
	}
	if (found == 1)
		return 0;
	if (name)
		return err_set(e, "no listener has that name");
	return err_set(e, found == 0
				  ? "no listener takes tokens (add `tokens: required` to one)"
				  : "several listeners take tokens (say which: --listener NAME)");
}

/* The record's `sandbox` must name one thing. */
static int check_name(const struct config *c, const char *name, struct err *e)
{
	for (size_t i = 0; name && i < c->listeners_n; i++)
		if (strcmp(c->listeners[i].name, name) == 0)
			return err_set(e, "a listener has that name");
	return 0;
}

static void put_sandbox(struct json *j, const struct sandbox *s)
{
	struct sandbox_times t = sandbox_times(s);

	put_cstr(j, "name", sandbox_name(s));
	put_cstr(j, "id", sandbox_id(s));
	put_cstr(j, "policy", sandbox_policy(s));
	put_cstr(j, "listener", sandbox_listener(s));
	put_time(j, "created", t.created_us);
	put_time(j, "ends", t.ends_us);
	put_time(j, "seen", t.seen_us);
	json_kv_u64(j, "connections", t.connections);
}

/* Nobody has seen its token. */
static void take_back(const struct ask *a, struct sandbox *s)
{
	struct sandbox *same = NULL;

	if (engine_revoke_sandbox(a->g, str_from_c(sandbox_id(s)), &same, NULL) == 0)
		(void)!engine_record_sandbox(a->g, s, a->uid, NULL);
	sandbox_unref(same);
	sandbox_unref(s);
}

static int refuse_policy(const struct config *c, const char *policy, struct err *e)
{
	struct strbuf names;
	int r;

	strbuf_init(&names, 4096);
	cli_add_policies(c, &names);
	r = policy ? err_set(e, "no policy is called %s (there is: %s)", policy,
			     strbuf_cstr(&names))
		   : err_set(e, "which policy? (there is: %s)", strbuf_cstr(&names));
	strbuf_clear(&names);
	return r;
}

static int sandbox_new(const struct ask *a, struct err *e)
{
	static const char *const keys[] = {"do", "policy", "ttl_ms", "name", "listener", NULL};
	const struct config *c = engine_snapshot(a->g)->config;
	const char *policy = text_of(a, "policy"), *name = text_of(a, "name");
	const json_t *ttl = json_object_get(a->q, "ttl_ms");
	struct sandbox_options o = {.name = str_from_c(name), .policy = policy};
	char token[SANDBOX_TOKEN_LEN + 1];
	json_int_t ms = ttl ? json_integer_value(ttl) : LIMIT_MS_SANDBOX;
	struct sandbox *s = NULL;
	size_t at = 0;

	if (check_keys(a, keys, e) < 0)
		return -1;
	o.ttl_ms = ms < 0 ? 0 : (uint64_t)ms;
	if (!policy || !config_policy(c, policy))
		return refuse_policy(c, policy, e);
	if (choose_listener(c, text_of(a, "listener"), &at, e) < 0 || check_name(c, name, e) < 0)
		return -1;
	o.listener = c->listeners[at].name;
	if (engine_add_sandbox(a->g, &o, token, &s, e) < 0)
		return -1;
	if (engine_record_sandbox(a->g, s, a->uid, e) < 0) {
		OPENSSL_cleanse(token, sizeof(token));
		take_back(a, s);
		return -1;
	}
	log_info("sandbox %s (%s): made by user %u, policy %s, for %llu s", sandbox_name(s),
		 sandbox_id(s), a->uid, policy, (unsigned long long)o.ttl_ms / 1000);
	put_sandbox(a->j, s);
	put_place(a->j, a->g, at);
	put_cstr(a->j, "token", token);
	OPENSSL_cleanse(token, sizeof(token));
	sandbox_unref(s);
	return 0;
}

static void list_one(void *arg, const struct sandbox *s)
{
	struct json *j = arg;

	json_open(j, '{');
	put_sandbox(j, s);
	json_close(j, '}');
}

static int sandbox_list(const struct ask *a, struct err *e)
{
	static const char *const keys[] = {"do", NULL};

	if (check_keys(a, keys, e) < 0)
		return -1;
	engine_refresh_sandboxes(a->g);
	json_key(a->j, "sandboxes");
	json_open(a->j, '[');
	sandboxes_each(engine_sandboxes(a->g), list_one, a->j);
	json_close(a->j, ']');
	return 0;
}

static int sandbox_revoke(const struct ask *a, struct err *e)
{
	static const char *const keys[] = {"do", "sandbox", NULL};
	const char *which = text_of(a, "sandbox");
	struct sandbox *s = NULL;
	struct err why = ERR_INIT;
	int rc;

	if (check_keys(a, keys, e) < 0)
		return -1;
	if (!which)
		return err_set(e, "which sandbox?");
	rc = engine_revoke_sandbox(a->g, str_from_c(which), &s, e);
	if (!s)
		return -1;
	engine_enforce_tokens(a->g);
	/* It has ended, whatever becomes of the record. */
	if (engine_record_sandbox(a->g, s, a->uid, &why) < 0)
		log_error("sandbox %s (%s): %s", sandbox_name(s), sandbox_id(s), why.text);
	log_info("sandbox %s (%s): revoked by user %u", sandbox_name(s), sandbox_id(s), a->uid);
	if (rc == 0)
		put_sandbox(a->j, s);
	sandbox_unref(s);
	return rc;
}

/* ---- credentials ---- */

static const char *source_word(enum credential_source s)
{
	switch (s) {
	case CREDENTIAL_FROM_FILE: return "file";
	case CREDENTIAL_FROM_ENV: return "env";
	case CREDENTIAL_FROM_EXEC: return "exec";
	case CREDENTIAL_FROM_OAUTH2: return "oauth2";
	case CREDENTIAL_FROM_VAULT: return "vault";
	case CREDENTIAL_FROM_JWT: return "jwt";
	case CREDENTIAL_FROM_AWS: return "aws";
	case CREDENTIAL_FROM_GITHUB_APP: return "github_app";
	case CREDENTIAL_FROM_GCP: return "gcp";
	case CREDENTIAL_FROM_KUBERNETES: return "kubernetes";
	}
	return "?";
}

static const char *as_word(enum credential_as as)
{
	switch (as) {
	case CREDENTIAL_AS_BEARER: return "bearer";
	case CREDENTIAL_AS_BASIC: return "basic";
	case CREDENTIAL_AS_HEADER: return "header";
	case CREDENTIAL_AS_QUERY: return "query";
	case CREDENTIAL_AS_COOKIE: return "cookie";
	case CREDENTIAL_AS_PLACEHOLDER: return "placeholder";
	case CREDENTIAL_AS_MTLS: return "mtls";
	case CREDENTIAL_AS_SIGV4: return "sigv4";
	}
	return "?";
}

/* `renewing` has a value that its source could not renew. */
static const char *state_word(const struct slot_status *st)
{
	if (st->holds)
		return st->why[0] ? "renewing" : "available";
	return st->tried ? "unavailable" : "waiting";
}

static void put_credential(void *arg, const struct config_credential *c,
			   const struct slot_status *st)
{
	struct json *j = arg;

	json_open(j, '{');
	put_cstr(j, "name", c->name);
	put_cstr(j, "source", source_word(c->source));
	put_cstr(j, "as", as_word(c->as));
	put_cstr(j, "state", state_word(st));
	put_span(j, "age_s", st->age_us);
	put_span(j, "ends_in_s", st->left_us);
	put_span(j, "renewed_in_s", st->next_us);
	json_kv_opt(j, "error", str_from_c(st->why));
	json_kv_u64(j, "uses", st->uses);
	put_span(j, "used_ago_s", st->unused_us);
	json_close(j, '}');
}

static int credentials(const struct ask *a, struct err *e)
{
	static const char *const keys[] = {"do", NULL};

	if (check_keys(a, keys, e) < 0)
		return -1;
	json_key(a->j, "credentials");
	json_open(a->j, '[');
	credential_store_each(engine_snapshot(a->g)->credentials, put_credential, a->j);
	json_close(a->j, ']');
	return 0;
}

/* ---- status ---- */

static void put_policies(const struct ask *a)
{
	const struct config *c = engine_snapshot(a->g)->config;

	json_key(a->j, "policies");
	json_open(a->j, '[');
	for (size_t i = 0; i < c->policies_n; i++) {
		json_open(a->j, '{');
		put_cstr(a->j, "name", policy_name(c->policies[i]));
		put_cstr(a->j, "version", policy_version(c->policies[i]));
		json_kv_u64(a->j, "rules", policy_rules_n(c->policies[i]));
		json_close(a->j, '}');
	}
	json_close(a->j, ']');
}

static void put_listeners(const struct ask *a)
{
	const struct config *c = engine_snapshot(a->g)->config;

	json_key(a->j, "listeners");
	json_open(a->j, '[');
	for (size_t i = 0; i < c->listeners_n; i++) {
		json_open(a->j, '{');
		put_cstr(a->j, "name", c->listeners[i].name);
		put_cstr(a->j, "kind", config_kind_word(c->listeners[i].kind));
		put_place(a->j, a->g, i);
		json_kv_opt(a->j, "policy", str_from_c(c->listeners[i].policy_name));
		put_cstr(a->j, "tokens", tokens_word(c->listeners[i].tokens));
		json_close(a->j, '}');
	}
	json_close(a->j, ']');
}

static void put_unavailable(void *arg, const struct config_credential *c,
			    const struct slot_status *st)
{
	if (!st->holds)
		json_str(arg, str_from_c(c->name));
}

static void put_state(struct json *j, const struct engine_measures *m)
{
	json_key(j, "state");
	json_open(j, '{');
	put_cstr(j, "at", m->state_at);
	json_key(j, "available");
	json_bool(j, m->state_up);
	json_key(j, "tokens_served");
	json_bool(j, m->tokens_served);
	json_kv_opt(j, "error", str_from_c(m->state_why));
	json_close(j, '}');
}

static int status(const struct ask *a, struct err *e)
{
	static const char *const keys[] = {"do", NULL};
	struct engine_measures m;

	if (check_keys(a, keys, e) < 0)
		return -1;
	engine_measure(a->g, &m);
	json_key(a->j, "healthy");
	json_bool(a->j, m.log_available && m.tokens_served && !m.draining);
	put_cstr(a->j, "version", STILE_VERSION);
	put_span(a->j, "up_s", m.up_us);
	put_policies(a);
	put_listeners(a);
	json_kv_u64(a->j, "workers", m.workers);
	json_kv_u64(a->j, "connections", m.connections);
	json_kv_u64(a->j, "requests", m.requests);
	json_kv_u64(a->j, "sandboxes", sandboxes_n(engine_sandboxes(a->g)));
	json_key(a->j, "log");
	json_open(a->j, '{');
	put_cstr(a->j, "to", m.log_to);
	json_key(a->j, "available");
	json_bool(a->j, m.log_available);
	json_close(a->j, '}');
	if (m.state_at)
		put_state(a->j, &m);
	json_key(a->j, "credentials_unavailable");
	json_open(a->j, '[');
	credential_store_each(engine_snapshot(a->g)->credentials, put_unavailable, a->j);
	json_close(a->j, ']');
	return 0;
}

/* ---- the whole ---- */

static int dispatch(const struct ask *a, struct err *e)
{
	static const struct {
		const char *word;
		int (*run)(const struct ask *a, struct err *e);
	} ops[] = {
		{"status", status},
		{"credentials", credentials},
		{"sandbox.new", sandbox_new},
		{"sandbox.list", sandbox_list},
		{"sandbox.revoke", sandbox_revoke},
	};
	const char *word = text_of(a, "do");

	for (size_t i = 0; word && i < ARRAY_LEN(ops); i++)
		if (strcmp(ops[i].word, word) == 0)
			return ops[i].run(a, e);
	return err_set(e, "what is to be done is not known");
}

static void say_error(struct strbuf *out, const char *text)
{
	struct json j;

	strbuf_wipe(out);
	json_init(&j, out);
	json_open(&j, '{');
	json_key(&j, "ok");
	json_bool(&j, false);
	put_cstr(&j, "error", text);
	json_close(&j, '}');
	strbuf_addc(out, '\n');
}

void admin_answer(struct engine *g, struct str request, unsigned uid, struct strbuf *out)
{
	json_t *q = json_loadb(request.p, request.n, JSON_REJECT_DUPLICATES, NULL);
	struct err e = ERR_INIT;
	struct json j;
	struct ask a = {.g = g, .q = q, .uid = uid, .j = &j};

	json_init(&j, out);
	json_open(&j, '{');
	json_key(&j, "ok");
	json_bool(&j, true);
	if (!json_is_object(q))
		say_error(out, "a request is one JSON object on one line");
	else if (dispatch(&a, &e) < 0)
		say_error(out, e.text);
	else
		json_close(&j, '}');
	if (strbuf_str(out).n > 0 && out->data[out->len - 1] != '\n')
		strbuf_addc(out, '\n');
	if (out->overflowed)
		say_error(out, "the answer is too long");
	json_decref(q);
}
