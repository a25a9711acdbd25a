/*
 * A Vault: logs in (token, AppRole, Kubernetes), reads one secret, and keeps its lease and the
 * login's own token alive. Each question walks along `next`, one request at a time, in the order in
 * which the steps stand there. What is replaced is remembered until its end, and given back with
 * what is held when the source is closed (`farewell`).
 */
#include <stdlib.h>
#include <time.h>

#include "proxy/credentials/vault_internal.h"

/* ---- for all files of a Vault ---- */

int64_t vault_clock_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

bool vault_has_ended(int64_t ends_us)
{
	return ends_us != 0 && vault_clock_us() >= ends_us;
}

const char *vault_text(const struct vault *v, enum config_param_key key)
{
	return config_param_text(v->s.c, key);
}

int64_t vault_end(const struct vault *v, int64_t life_us)
{
	return life_us ? v->asked_us + life_us : 0;
}

struct str vault_token(const struct vault *v)
{
	return v->token.value ? secret_value(v->token.value) : STR_NONE;
}

int vault_no_memory(struct err *e)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
}

/* ---- the secret ---- */

/* `ttl` is what a value lasts, renewed or not. 0: nothing bounds it. */
static int64_t ttl_left_us(const struct vault *v)
{
	int64_t ttl_us = (int64_t)v->s.c->ttl_ms * 1000;

	if (ttl_us == 0)
		return 0;
	ttl_us -= vault_clock_us() - v->lease.since_us;
	return ttl_us > 0 ? ttl_us : -1;
}

static bool may_renew_lease(const struct vault *v)
{
	const struct vault_lease *l = &v->lease;
	int64_t left = ttl_left_us(v);

	if (!l->secret.lease || l->stale || !l->secret.renewable || v->done.renewed_lease ||
	    vault_has_ended(l->ends_us))
		return false;
	/* Renewed in the second half of its `ttl`, it would soon have to be asked for anyway. */
	return left == 0 || left > (int64_t)v->s.c->ttl_ms * 1000 / 2;
}

static int renew_lease(struct vault *v, struct err *e)
{
	struct strbuf body;
	struct json j;

	v->done.renewed_lease = true;
	vault_begin_body(&body, &j);
	json_kv_str(&j, "lease_id", str_from_c(v->lease.secret.lease));
	vault_add_seconds(&j, v->lease.secret.life_us);
	json_close(&j, '}');
	return vault_ask_path(v, STEP_RENEW_LEASE, "sys/leases/renew", "", vault_token(v), &body,
			      e);
}

static int read_secret(struct vault *v, struct err *e)
{
	const char *version = vault_text(v, PARAM_VAULT_VERSION);
	char query[32] = "";
	struct strbuf q;

	strbuf_init_fixed(&q, query, sizeof(query));
	if (version)
		strbuf_addf(&q, "?version=%s", version);
	return vault_ask_path(v, STEP_READ, vault_text(v, PARAM_VAULT_PATH), query, vault_token(v),
			      NULL, e);
}

/* 0: a request is under way; -1: there is none. */
static int next(struct vault *v, struct err *e)
{
	bool given = config_param(v->s.c, PARAM_VAULT_TOKEN) != NULL;
	struct vault_token *t = &v->token;

	if (vault_has_ended(t->ends_us))
		vault_leave_token(v, false);
	if (given) {
		int rc = vault_read_given(v, e);

		if (rc != 0)
			return rc < 0 ? -1 : 0;
	}
	if (!t->value)
		return vault_get_token(v, e);
	if (vault_is_due(t) && t->renewable && !v->done.renewed_token)
		return vault_renew_token(v, e);
	if (vault_is_due(t) && !given && !v->done.login)
		return vault_get_token(v, e);
	if (may_renew_lease(v))
		return renew_lease(v, e);
	return read_secret(v, e);
}

/* ---- answers ---- */

static void finish(struct vault *v, struct secret *value, int64_t life_us, const struct err *why)
{
	v->step = STEP_NONE;
	v->s.on_result(v->s.arg, value, life_us, why);
}

static void fail(struct vault *v, const char *what, const struct err *why)
{
	struct err e = *why;

	if (what)
		(void)err_wrap(&e, "%s", what);
	finish(v, NULL, 0, &e);
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Its lease ends, or its token, or its `ttl`: a secret is told to hold as long as all do. */
static void deliver(struct vault *v)
{
	struct vault_lease *l = &v->lease;
	int64_t life_us = l->ends_us ? l->ends_us - vault_clock_us() : 0;

	/* What has no lease is still there when a login has ended, as the next one will be; a token
	 * that was given is renewed by nobody else. */
	if (v->token.ends_us && (l->secret.lease || !v->token.ours))
		life_us = earlier(life_us, v->token.ends_us - vault_clock_us());
	if (l->secret.lease && v->s.c->ttl_ms)
		life_us = earlier(life_us, ttl_left_us(v));
	if (!l->secret.lease && v->s.c->ttl_ms == 0)
		life_us = earlier(life_us, LIMIT_MS_VAULT_REREAD * 1000LL);
	v->token.worked = true;
	finish(v, secret_ref(l->secret.value), life_us, NULL);
}

static void go_on(struct vault *v)
{
	struct err e = ERR_INIT;

	if (next(v, &e) < 0) {
		e.reason = REASON_CREDENTIAL_UNAVAILABLE;
		finish(v, NULL, 0, &e);
	}
}

static void on_lookup(struct vault *v, const struct fetch_answer *a)
{
	struct vault_token *t = &v->token;
	int64_t left = 0;

	/* Who may not look itself up may still read. */
	if (a->status == 200 &&
	    vault_read_lookup(a->body, &t->life_us, &left, &t->renewable, NULL) == 0)
		t->ends_us = vault_end(v, left);
	go_on(v);
}

static void on_unwrapped(struct vault *v, const struct fetch_answer *a)
{
	struct err e = ERR_INIT;

	if ((a->status != 200 && vault_refusal(a, &e) < 0) ||
	    vault_read_unwrapped(a->body, &v->secret_id, &e) < 0)
		fail(v, "`secret_id` cannot be unwrapped", &e);
	else
		go_on(v);
}

static void on_login(struct vault *v, const struct fetch_answer *a)
{
	struct vault_grant g = {0};
	struct err e = ERR_INIT;

	if ((a->status != 200 && vault_refusal(a, &e) < 0) ||
	    vault_read_grant(a->body, &g, &e) < 0) {
		fail(v, "login", &e);
		return;
	}
	vault_take_grant(v, &g, true);
	go_on(v);
}

static void on_token_renewed(struct vault *v, const struct fetch_answer *a)
{
	struct vault_grant g = {0};
	struct vault_token *t = &v->token;
	struct err e = ERR_INIT;

	if (a->status != 200 && !vault_is_final(a)) {
		(void)vault_refusal(a, &e);
		fail(v, NULL, &e);
		return;
	}
	if (a->status != 200 || vault_read_grant(a->body, &g, &e) < 0) {
		t->renewable = false;
		if (a->status == 403 && t->ours)
			vault_leave_token(v, true);
	} else {
		/* Less than it was: its last renewals, which another login makes up for. */
		t->ends_us = vault_end(v, g.life_us);
		t->renewable = g.renewable && (g.life_us == 0 || g.life_us >= t->life_us / 2);
	}
	secret_unref(g.token);
	go_on(v);
}

static void on_lease_renewed(struct vault *v, const struct fetch_answer *a)
{
	struct vault_secret s = {0};
	struct vault_lease *l = &v->lease;
	struct err e = ERR_INIT;

	if (a->status != 200 && !vault_is_final(a)) {
		(void)vault_refusal(a, &e);
		fail(v, NULL, &e);
		return;
	}
	if (a->status != 200 || vault_read_renewal(a->body, &s, &e) < 0) {
		l->stale = true;
		go_on(v);
		return;
	}
	l->ends_us = vault_end(v, s.life_us);
	/* Near its most: what is left of it is for requests that are under way. */
	l->stale = s.life_us < l->secret.life_us / 2;
	vault_secret_clear(&s);
	if (l->stale)
		go_on(v);
	else
		deliver(v);
}

/* 403: the token may have ended, or been revoked. A fresh one that may not read it is no better the
 * second time, but for what a policy has become meanwhile. */
static bool may_login_again(const struct vault *v)
{
	const struct vault_token *t = &v->token;

	if (!t->ours || v->done.login)
		return false;
	return t->worked || vault_clock_us() - t->since_us > LIMIT_MS_VAULT_RELOGIN * 1000LL;
}

static void on_read(struct vault *v, const struct fetch_answer *a)
{
	const char *second = vault_text(v, PARAM_VAULT_FIELD_2);
	struct vault_secret s = {0};
	struct err e = ERR_INIT;

	if (a->status == 403 && may_login_again(v)) {
		vault_leave_token(v, true);
		go_on(v);
		return;
	}
	if ((a->status != 200 && vault_refusal(a, &e) < 0) ||
	    vault_read_secret(a->body, vault_text(v, PARAM_VAULT_FIELD), second,
			      v->s.c->as == CREDENTIAL_AS_BASIC ? ':' : '\n', &s, &e) < 0) {
		fail(v, NULL, &e);
		return;
	}
	vault_leave_lease(v);
	v->lease = (struct vault_lease){
		.secret = s,
		.ends_us = vault_end(v, s.life_us),
		.since_us = v->asked_us,
		.ends_with_token = v->token.ours && !v->token.batch,
	};
	deliver(v);
}

void vault_on_answer(void *arg, const struct fetch_answer *a, const struct err *why)
{
	struct vault *v = arg;

	v->fetch = NULL;
	if (v->step == STEP_FAREWELL) {
		vault_on_given_back(v, a, why);
		return;
	}
	if (!a) {
		finish(v, NULL, 0, why);
		return;
	}
	switch (v->step) {
	case STEP_LOOKUP: on_lookup(v, a); break;
	case STEP_UNWRAP: on_unwrapped(v, a); break;
	case STEP_LOGIN: on_login(v, a); break;
	case STEP_RENEW_TOKEN: on_token_renewed(v, a); break;
	case STEP_RENEW_LEASE: on_lease_renewed(v, a); break;
	case STEP_READ: on_read(v, a); break;
	case STEP_NONE:
	case STEP_FAREWELL: break;
	}
}

/* ---- the source ---- */

static int vault_ask(void *self, struct err *e)
{
	struct vault *v = self;

	v->done = (struct vault_done){0};
	return next(v, e);
}

static bool vault_farewell(void *self, void (*done)(void *arg), void *arg)
{
	struct vault *v = self;
	bool ours = v->token.ours && !v->token.batch;

	fetch_cancel(v->fetch);
	v->fetch = NULL;
	v->left = done;
	v->left_arg = arg;
	v->farewell_ends_us = vault_clock_us() + LIMIT_MS_SOURCE_FAREWELL * 1000LL;
	/* A login last of all that it is needed for: the last of the debts goes first. */
	if (v->token.value && ours)
		vault_owe(v, (struct vault_debt){.token = secret_ref(v->token.value),
						 .ends_us = v->token.ends_us});
	vault_leave_lease(v);
	return vault_give_back(v);
}

static void vault_close(void *self)
{
	struct vault *v = self;

	fetch_cancel(v->fetch);
	while (v->debts_n > 0)
		vault_drop_debt(v, v->debts_n - 1);
	vault_secret_clear(&v->lease.secret);
	secret_unref(v->token.value);
	secret_unref(v->wrapping);
	secret_unref(v->secret_id);
	free(v);
}

static int vault_open(const struct source_setting *s, void **ret, struct err *e)
{
	struct vault *v = calloc(1, sizeof(*v));

	if (!v)
		return vault_no_memory(e);
	v->s = *s;
	*ret = v;
	return 0;
}

const struct source_ops source_vault_ops = {.open = vault_open,
					    .ask = vault_ask,
					    .close = vault_close,
					    .farewell = vault_farewell};
