/*
 * A Vault: logs in (token, AppRole, Kubernetes), reads one secret, and keeps its lease and the
 * login's own token alive. Each question walks along `next`, one request at a time, in the order in
 * which the steps stand there. What is replaced is remembered until its end, and given back with
 * what is held when the source is closed (`farewell`).
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "logging/json.h"
#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"
#include "proxy/credentials/vault.h"

enum step {
	STEP_NONE,
	STEP_LOOKUP, /* of a token that was given: how long does it hold? */
	STEP_UNWRAP, /* the secret_id out of its wrapping */
	STEP_LOGIN,
	STEP_RENEW_TOKEN,
	STEP_RENEW_LEASE,
	STEP_READ,
	STEP_FAREWELL,
};

/* What of it was done for the question at hand; each at most once. */
struct done {
	bool lookup, login, renewed_token, renewed_lease;
};

struct token {
	struct secret *value;	  /* counted; NULL: there is none */
	int64_t life_us, ends_us; /* 0: it does not end */
	int64_t since_us;
	bool renewable;
	bool ours; /* of a login: revoked at the end, and its leases with it */
	bool batch;
	bool worked; /* something was read with it */
};

struct lease {
	struct vault_secret secret;
	int64_t ends_us, since_us;
	bool ends_with_token; /* revoked by revoking the token */
	bool stale;	      /* not renewed any more: another secret is to be read */
};

/* What was replaced and has not ended yet: a token to revoke, or the name of a lease. */
struct debt {
	struct secret *token; /* counted */
	char *lease;	      /* owned */
	int64_t ends_us;      /* 0: it does not */
	bool doubted;	      /* refused when it was used last: it may be gone already */
};

struct vault {
	struct source_setting s;
	/* owned */
	struct fetch *fetch;
	struct lease lease;
	struct debt debts[LIMIT_VAULT_DEBTS];
	/* counted */
	struct token token;
	struct secret *wrapping;  /* what secret_id was unwrapped with */
	struct secret *secret_id; /* unwrapped */
	/* plain */
	enum step step;
	int64_t asked_us; /* when the request at hand was sent: lives begin no later */
	struct done done;
	size_t debts_n;
	int64_t farewell_ends_us;
	void (*left)(void *arg);
	void *left_arg;
};

static void on_answer(void *arg, const struct fetch_answer *a, const struct err *why);
static int next(struct vault *v, struct err *e);

/* As in slot.c: it goes on while the machine sleeps. */
static int64_t clock_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static bool has_ended(int64_t ends_us)
{
	return ends_us != 0 && clock_us() >= ends_us;
}

static const char *text_of(const struct vault *v, enum config_param_key key)
{
	return config_param_text(v->s.c, key);
}

/* When something ends whose life came with the answer at hand; 0: it does not. */
static int64_t end_of(const struct vault *v, int64_t life_us)
{
	return life_us ? v->asked_us + life_us : 0;
}

/* ---- what is to be given back ---- */

static void debt_clear(struct debt *d)
{
	secret_unref(d->token);
	free(d->lease);
	*d = (struct debt){0};
}

static void drop_debt(struct vault *v, size_t i)
{
	debt_clear(&v->debts[i]);
	v->debts_n--;
	memmove(&v->debts[i], &v->debts[i + 1], (v->debts_n - i) * sizeof(v->debts[0]));
	v->debts[v->debts_n] = (struct debt){0};
}

/* Takes what d owns over. Over the bound the oldest is left to its own end. */
static void owe(struct vault *v, struct debt d)
{
	for (size_t i = v->debts_n; i-- > 0;)
		if (has_ended(v->debts[i].ends_us))
			drop_debt(v, i);
	if (v->debts_n == LIMIT_VAULT_DEBTS)
		drop_debt(v, 0);
	v->debts[v->debts_n++] = d;
}

static void leave_lease(struct vault *v)
{
	struct lease *l = &v->lease;

	if (l->secret.lease && !l->ends_with_token) {
		owe(v, (struct debt){.lease = l->secret.lease, .ends_us = l->ends_us});
		l->secret.lease = NULL;
	}
	vault_secret_clear(&l->secret);
	*l = (struct lease){0};
}

/* doubted: it was refused. */
static void leave_token(struct vault *v, bool doubted)
{
	struct token *t = &v->token;

	if (t->value && t->ours && !t->batch && !has_ended(t->ends_us))
		owe(v, (struct debt){.token = t->value, .ends_us = t->ends_us, .doubted = doubted});
	else
		secret_unref(t->value);
	if (t->ours && !t->batch)
		v->lease.stale = true; /* it ends with its token */
	*t = (struct token){0};
}

static void take_grant(struct vault *v, const struct vault_grant *g, bool ours)
{
	leave_token(v, false);
	v->token = (struct token){
		.value = g->token,
		.life_us = g->life_us,
		.ends_us = end_of(v, g->life_us),
		.since_us = clock_us(),
		.renewable = g->renewable,
		.ours = ours,
		.batch = g->batch,
	};
}

/* ---- requests ---- */

static int out_of_memory(struct err *e)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
}

static int add_fields(const struct vault *v, struct fields *f, struct str token)
{
	const char *space = text_of(v, PARAM_VAULT_NAMESPACE);

	if (fields_add(f, STR("X-Vault-Request"), STR("true")) < 0 ||
	    (token.n > 0 && fields_add(f, STR("X-Vault-Token"), token) < 0) ||
	    (space && fields_add(f, STR("X-Vault-Namespace"), str_from_c(space)) < 0))
		return -1;
	return fields_add(f, STR("Content-Type"), STR("application/json"));
}

static uint64_t timeout_of(const struct vault *v)
{
	uint64_t ms = v->s.c->timeout_ms;
	int64_t left;

	if (v->step != STEP_FAREWELL)
		return ms;
	left = (v->farewell_ends_us - clock_us()) / 1000;
	return left < 1 ? 1 : (uint64_t)left < ms ? (uint64_t)left : ms;
}

/* url: the whole of it. body: NULL for a GET; wiped here. */
static int ask_url(struct vault *v, enum step step, struct str url, struct str token,
		   struct strbuf *body, struct err *e)
{
	struct fields fields = {0};
	struct fetch_request r = {
		.method = body ? STR("POST") : STR("GET"),
		.url = url,
		.fields = &fields,
		.body = body ? strbuf_str(body) : STR_NONE,
		.ranges = v->s.c->ranges,
		.ranges_n = v->s.c->ranges_n,
	};
	int rc;

	v->step = step;
	v->asked_us = clock_us();
	r.timeout_ms = timeout_of(v);
	if ((body && body->overflowed) || add_fields(v, &fields, token) < 0)
		rc = out_of_memory(e);
	else
		rc = fetch_start(v->s.fetcher, &r, on_answer, v, &v->fetch, e);
	fields_clear(&fields);
	if (body)
		strbuf_wipe(body);
	return rc;
}

/* path: behind /v1/. */
static int ask_path(struct vault *v, enum step step, const char *path, const char *more,
		    struct str token, struct strbuf *body, struct err *e)
{
	struct str address = str_from_c(text_of(v, PARAM_VAULT_ADDRESS));
	struct strbuf url;
	int rc;

	if (str_ends(address, STR("/")))
		address.n--;
	strbuf_init(&url, LIMIT_URL_BYTES);
	strbuf_addf(&url, "%.*s/v1/%s%s", STR_FMT(address), path, more);
	rc = ask_url(v, step, strbuf_str(&url), token, body, e);
	strbuf_clear(&url);
	return rc;
}

static struct str token_of(const struct vault *v)
{
	return v->token.value ? secret_value(v->token.value) : STR_NONE;
}

static void begin_body(struct strbuf *b, struct json *j)
{
	strbuf_init(b, LIMIT_SOURCE_BYTES);
	json_init(j, b);
	json_open(j, '{');
}

static void add_seconds(struct json *j, int64_t life_us)
{
	json_kv_u64(j, "increment", (uint64_t)life_us / 1000000);
}

/* ---- the login ---- */

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
	const char *text = text_of(v, PARAM_VAULT_WRAPPED);

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
	bool kubernetes = text_of(v, PARAM_VAULT_ROLE) != NULL;
	const char *mount = text_of(v, PARAM_VAULT_MOUNT);
	struct strbuf body;
	struct json j;
	char path[512];
	struct strbuf at;
	int rc;

	v->done.login = true;
	strbuf_init_fixed(&at, path, sizeof(path));
	strbuf_addf(&at, "auth/%s/login", mount ? mount : kubernetes ? "kubernetes" : "approle");
	begin_body(&body, &j);
	if (kubernetes) {
		json_kv_str(&j, "role", str_from_c(text_of(v, PARAM_VAULT_ROLE)));
		rc = add_secret(v, &j, "jwt", PARAM_VAULT_JWT, e);
	} else {
		rc = add_role_id(v, &j, e) < 0 || add_secret_id(v, &j, e) < 0 ? -1 : 0;
	}
	json_close(&j, '}');
	if (rc == 0)
		return ask_path(v, STEP_LOGIN, path, "", STR_NONE, &body, e);
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
	begin_body(&body, &j);
	json_close(&j, '}');
	rc = ask_path(v, STEP_UNWRAP, "sys/wrapping/unwrap", "", secret_value(s), &body, e);
	return rc < 0 ? -1 : 1;
}

static int has_no_life(struct err *e)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its login ends as soon as it is made");
}

static int get_token(struct vault *v, struct err *e)
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

/* A token that was given is read anew for each question. 1: it is another one than before, and is
 * being looked up. */
static int read_given(struct vault *v, struct err *e)
{
	struct vault_grant g = {0};

	if (source_param_secret(v->s.c, PARAM_VAULT_TOKEN, "token", &g.token, e) < 0)
		return -1;
	if (v->token.value && str_eq(token_of(v), secret_value(g.token))) {
		secret_unref(g.token);
		return 0;
	}
	if (v->done.lookup) {
		secret_unref(g.token);
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its token has ended");
	}
	v->done.lookup = true;
	take_grant(v, &g, false);
	if (ask_path(v, STEP_LOOKUP, "auth/token/lookup-self", "", token_of(v), NULL, e) < 0)
		return -1;
	return 1;
}

/* Half of its life is over. */
static bool is_due(const struct token *t)
{
	return t->ends_us != 0 && t->ends_us - clock_us() < t->life_us / 2;
}

static int renew_token(struct vault *v, struct err *e)
{
	struct strbuf body;
	struct json j;

	v->done.renewed_token = true;
	begin_body(&body, &j);
	add_seconds(&j, v->token.life_us);
	json_close(&j, '}');
	return ask_path(v, STEP_RENEW_TOKEN, "auth/token/renew-self", "", token_of(v), &body, e);
}

/* ---- the secret ---- */

/* `ttl` is what a value lasts, renewed or not. 0: nothing bounds it. */
static int64_t ttl_left_us(const struct vault *v)
{
	int64_t ttl_us = (int64_t)v->s.c->ttl_ms * 1000;

	if (ttl_us == 0)
		return 0;
	ttl_us -= clock_us() - v->lease.since_us;
	return ttl_us > 0 ? ttl_us : -1;
}

static bool may_renew_lease(const struct vault *v)
{
	const struct lease *l = &v->lease;
	int64_t left = ttl_left_us(v);

	if (!l->secret.lease || l->stale || !l->secret.renewable || v->done.renewed_lease ||
	    has_ended(l->ends_us))
		return false;
	/* Renewed in the second half of its `ttl`, it would soon have to be asked for anyway. */
	return left == 0 || left > (int64_t)v->s.c->ttl_ms * 1000 / 2;
}

static int renew_lease(struct vault *v, struct err *e)
{
	struct strbuf body;
	struct json j;

	v->done.renewed_lease = true;
	begin_body(&body, &j);
	json_kv_str(&j, "lease_id", str_from_c(v->lease.secret.lease));
	add_seconds(&j, v->lease.secret.life_us);
	json_close(&j, '}');
	return ask_path(v, STEP_RENEW_LEASE, "sys/leases/renew", "", token_of(v), &body, e);
}

static int read_secret(struct vault *v, struct err *e)
{
	const char *version = text_of(v, PARAM_VAULT_VERSION);
	char query[32] = "";
	struct strbuf q;

	strbuf_init_fixed(&q, query, sizeof(query));
	if (version)
		strbuf_addf(&q, "?version=%s", version);
	return ask_path(v, STEP_READ, text_of(v, PARAM_VAULT_PATH), query, token_of(v), NULL, e);
}

/* 0: a request is under way; -1: there is none. */
static int next(struct vault *v, struct err *e)
{
	bool given = config_param(v->s.c, PARAM_VAULT_TOKEN) != NULL;
	struct token *t = &v->token;

	if (has_ended(t->ends_us))
		leave_token(v, false);
	if (given) {
		int rc = read_given(v, e);

		if (rc != 0)
			return rc < 0 ? -1 : 0;
	}
	if (!t->value)
		return get_token(v, e);
	if (is_due(t) && t->renewable && !v->done.renewed_token)
		return renew_token(v, e);
	if (is_due(t) && !given && !v->done.login)
		return get_token(v, e);
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
	struct lease *l = &v->lease;
	int64_t life_us = l->ends_us ? l->ends_us - clock_us() : 0;

	/* What has no lease is still there when a login has ended, as the next one will be; a token
	 * that was given is renewed by nobody else. */
	if (v->token.ends_us && (l->secret.lease || !v->token.ours))
		life_us = earlier(life_us, v->token.ends_us - clock_us());
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
	struct token *t = &v->token;
	int64_t left = 0;

	/* Who may not look itself up may still read. */
	if (a->status == 200 &&
	    vault_read_lookup(a->body, &t->life_us, &left, &t->renewable, NULL) == 0)
		t->ends_us = end_of(v, left);
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
	take_grant(v, &g, true);
	go_on(v);
}

static void on_token_renewed(struct vault *v, const struct fetch_answer *a)
{
	struct vault_grant g = {0};
	struct token *t = &v->token;
	struct err e = ERR_INIT;

	if (a->status != 200 && !vault_is_final(a)) {
		(void)vault_refusal(a, &e);
		fail(v, NULL, &e);
		return;
	}
	if (a->status != 200 || vault_read_grant(a->body, &g, &e) < 0) {
		t->renewable = false;
		if (a->status == 403 && t->ours)
			leave_token(v, true);
	} else {
		/* Less than it was: its last renewals, which another login makes up for. */
		t->ends_us = end_of(v, g.life_us);
		t->renewable = g.renewable && (g.life_us == 0 || g.life_us >= t->life_us / 2);
	}
	secret_unref(g.token);
	go_on(v);
}

static void on_lease_renewed(struct vault *v, const struct fetch_answer *a)
{
	struct vault_secret s = {0};
	struct lease *l = &v->lease;
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
	l->ends_us = end_of(v, s.life_us);
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
	const struct token *t = &v->token;

	if (!t->ours || v->done.login)
		return false;
	return t->worked || clock_us() - t->since_us > LIMIT_MS_VAULT_RELOGIN * 1000LL;
}

static void on_read(struct vault *v, const struct fetch_answer *a)
{
	const char *second = text_of(v, PARAM_VAULT_FIELD_2);
	struct vault_secret s = {0};
	struct err e = ERR_INIT;

	if (a->status == 403 && may_login_again(v)) {
		leave_token(v, true);
		go_on(v);
		return;
	}
	if ((a->status != 200 && vault_refusal(a, &e) < 0) ||
	    vault_read_secret(a->body, text_of(v, PARAM_VAULT_FIELD), second,
			      v->s.c->as == CREDENTIAL_AS_BASIC ? ':' : '\n', &s, &e) < 0) {
		fail(v, NULL, &e);
		return;
	}
	leave_lease(v);
	v->lease = (struct lease){
		.secret = s,
		.ends_us = end_of(v, s.life_us),
		.since_us = v->asked_us,
		.ends_with_token = v->token.ours && !v->token.batch,
	};
	deliver(v);
}

/* ---- the end ---- */

static void say_kept(const struct vault *v, const char *what, const char *why)
{
	log_warn("credential %s: %s could not be given back, and holds until its end: %s",
		 v->s.c->name, what, why);
}

/* The next one of what there is to give back. False: nothing is left. */
static bool give_back(struct vault *v)
{
	struct err e = ERR_INIT;

	while (v->debts_n > 0) {
		struct debt *d = &v->debts[v->debts_n - 1];
		struct strbuf body;
		struct json j;
		int rc = 0;

		begin_body(&body, &j);
		if (d->lease)
			json_kv_str(&j, "lease_id", str_from_c(d->lease));
		json_close(&j, '}');
		if (has_ended(d->ends_us))
			strbuf_wipe(&body);
		else
			rc = ask_path(v, STEP_FAREWELL,
				      d->lease ? "sys/leases/revoke" : "auth/token/revoke-self", "",
				      d->lease ? token_of(v) : secret_value(d->token), &body, &e);
		if (rc == 0 && v->fetch)
			return true;
		if (rc < 0)
			say_kept(v, d->lease ? "a lease" : "its login", e.text);
		drop_debt(v, v->debts_n - 1);
	}
	return false;
}

static void on_given_back(struct vault *v, const struct fetch_answer *a, const struct err *why)
{
	const struct debt *d = &v->debts[v->debts_n - 1];
	const char *what = d->lease ? "a lease" : "its login";
	struct err e = ERR_INIT;

	if (!a)
		say_kept(v, what, why->text);
	else if (a->status != 200 && a->status != 204 && !(d->doubted && a->status == 403) &&
		 vault_refusal(a, &e) < 0)
		say_kept(v, what, e.text);
	drop_debt(v, v->debts_n - 1);
	if (!give_back(v))
		v->left(v->left_arg);
}

static void on_answer(void *arg, const struct fetch_answer *a, const struct err *why)
{
	struct vault *v = arg;

	v->fetch = NULL;
	if (v->step == STEP_FAREWELL) {
		on_given_back(v, a, why);
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

	v->done = (struct done){0};
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
	v->farewell_ends_us = clock_us() + LIMIT_MS_SOURCE_FAREWELL * 1000LL;
	/* A login last of all that it is needed for: the last of the debts goes first. */
	if (v->token.value && ours)
		owe(v, (struct debt){.token = secret_ref(v->token.value),
				     .ends_us = v->token.ends_us});
	leave_lease(v);
	return give_back(v);
}

static void vault_close(void *self)
{
	struct vault *v = self;

	fetch_cancel(v->fetch);
	while (v->debts_n > 0)
		drop_debt(v, v->debts_n - 1);
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
		return out_of_memory(e);
	v->s = *s;
	*ret = v;
	return 0;
}

const struct source_ops source_vault_ops = {.open = vault_open,
					    .ask = vault_ask,
					    .close = vault_close,
					    .farewell = vault_farewell};
