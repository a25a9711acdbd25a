/*
 * Tokens that stile signs itself. What is read from the file is the key; a token is made of it when
 * a request needs one, at once, since signing takes less than a look at a file. A token is handed
 * out again until half of its life is over, so whoever gets one has the other half. Where a claim
 * names the sandbox each has its own, in a table of a fixed size.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/rand.h>

#include "logging/json.h"
#include "logging/limits.h"
#include "proxy/credentials/encode.h"
#include "proxy/credentials/jwt.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"

#define JTI_BYTES 16

struct minted {
	/* owned */
	char *sandbox; /* NULL: free */
	/* counted */
	struct secret *token;
	/* plain */
	int64_t made_us; /* by a clock that nobody can set */
	int64_t made_s;	 /* by the one that verifiers go by */
};

struct jwt_mint {
	pthread_mutex_t lock;
	/* borrowed */
	const struct config_credential *c;
	jwt_sign_fn *sign; /* NULL: signed here */
	void *sign_arg;
	/* under the lock */
	struct secret *pem; /* counted: what key was made of */
	struct jwt_key *key;
	struct minted *tokens; /* owned */
	/* plain */
	size_t tokens_n;
};

static int64_t clock_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t life_ms(const struct config_credential *c)
{
	return (int64_t)(c->ttl_ms ? c->ttl_ms : LIMIT_MS_JWT_LIFE);
}

/* ---- the key ---- */

int source_jwt_read(const struct config_credential *c, struct source_mark *mark,
		    struct secret **ret, struct err *e)
{
	struct jwt_key *key = NULL;
	struct secret *pem = NULL;

	if (source_file_read_lines(c->from, mark, &pem, e) < 0)
		return -1;
	if (jwt_key_new(secret_value(pem), config_param_text(c, PARAM_ALGORITHM), &key, e) < 0) {
		secret_unref(pem);
		return -1;
	}
	jwt_key_unref(key);
	*ret = pem;
	return 0;
}

/* ---- a token ---- */

/* The name of the sandbox as it stands within a text of JSON. */
static void add_claims(struct strbuf *out, struct str claims, struct str sandbox)
{
	struct str mark = STR(CONFIG_SANDBOX), name;
	struct strbuf quoted;
	struct json j;

	strbuf_init(&quoted, LIMIT_SECRET_BYTES);
	json_init(&j, &quoted);
	json_str(&j, sandbox);
	name = str_skip(str_head(strbuf_str(&quoted), quoted.len - 1), 1);
	while (claims.n > 0) {
		if (str_starts(claims, mark)) {
			strbuf_add(out, name);
			claims = str_skip(claims, mark.n);
		} else {
			strbuf_addc(out, claims.p[0]);
			claims = str_skip(claims, 1);
		}
	}
	out->overflowed |= quoted.overflowed;
	strbuf_clear(&quoted);
}

static int make_claims(const struct config_credential *c, struct str sandbox, int64_t now,
		       struct strbuf *out, struct err *e)
{
	unsigned char random[JTI_BYTES];
	struct strbuf own, jti;
	struct json j;

	if (RAND_bytes(random, sizeof(random)) != 1)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "no random number is to be had");
	strbuf_init(&own, LIMIT_SECRET_BYTES);
	strbuf_init(&jti, 2 * JTI_BYTES);
	add_claims(&own, str_from_c(config_param_text(c, PARAM_CLAIMS)), sandbox);
	encode_base64url(&jti, str_from(random, sizeof(random)));
	json_init(&j, out);
	json_open(&j, '{');
	json_members(&j, strbuf_str(&own));
	json_kv_u64(&j, "iat", (uint64_t)(now - LIMIT_JWT_BACK_SECS));
	json_kv_u64(&j, "nbf", (uint64_t)(now - LIMIT_JWT_BACK_SECS));
	json_kv_u64(&j, "exp", (uint64_t)(now + life_ms(c) / 1000));
	json_kv_str(&j, "jti", strbuf_str(&jti));
	json_close(&j, '}');
	out->overflowed |= own.overflowed || jti.overflowed;
	strbuf_clear(&own);
	strbuf_clear(&jti);
	return out->overflowed
		       ? err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "its claims are too long")
		       : 0;
}

static int make_token(const struct config_credential *c, const struct jwt_key *key,
		      struct str sandbox, int64_t now, struct secret **ret, struct err *e)
{
	struct strbuf claims;
	int rc;

	strbuf_init(&claims, LIMIT_SECRET_BYTES);
	rc = make_claims(c, sandbox, now, &claims, e);
	if (rc == 0)
		rc = jwt_sign(key, config_param_text(c, PARAM_KID), strbuf_str(&claims), ret, e);
	strbuf_clear(&claims);
	return rc;
}

/* ---- the table, under the lock ---- */

static void forget(struct minted *t)
{
	secret_unref(t->token);
	free(t->sandbox);
	*t = (struct minted){0};
}

/* A clock that was set makes a token that verifiers no longer take, or do not take yet. */
static bool is_fresh(const struct jwt_mint *m, const struct minted *t, int64_t now_us,
		     int64_t now_s)
{
	int64_t half_us = life_ms(m->c) * 1000 / 2;

	return now_us - t->made_us < half_us && now_s >= t->made_s &&
	       (now_s - t->made_s) * 1000000 <= half_us;
}

static struct minted *find(struct jwt_mint *m, struct str sandbox)
{
	for (size_t i = 0; i < m->tokens_n; i++)
		if (m->tokens[i].sandbox && str_eq(str_from_c(m->tokens[i].sandbox), sandbox))
			return &m->tokens[i];
	return NULL;
}

/* The sandbox's own, a free one, or the oldest. */
static struct minted *place_for(struct jwt_mint *m, struct str sandbox)
{
	struct minted *best = find(m, sandbox);

	for (size_t i = 0; i < m->tokens_n && !best; i++)
		if (!m->tokens[i].sandbox)
			best = &m->tokens[i];
	if (best)
		return best;
	best = &m->tokens[0];
	for (size_t i = 1; i < m->tokens_n; i++)
		if (m->tokens[i].made_us < best->made_us)
			best = &m->tokens[i];
	return best;
}

static void keep(struct jwt_mint *m, struct str sandbox, struct secret *token, int64_t now_us,
		 int64_t now_s)
{
	struct minted *t = place_for(m, sandbox);
	char *copy = str_dup(sandbox);

	if (!copy)
		return; /* the next one is made anew */
	forget(t);
	*t = (struct minted){.sandbox = copy,
			     .token = secret_ref(token),
			     .made_us = now_us,
			     .made_s = now_s};
}

/* Another key: what the old one signed is not handed out any more. */
static int use_key(struct jwt_mint *m, struct secret *pem, struct err *e)
{
	struct jwt_key *key = NULL;

	if (m->pem == pem)
		return 0;
	if (!m->sign &&
	    jwt_key_new(secret_value(pem), config_param_text(m->c, PARAM_ALGORITHM), &key, e) < 0)
		return -1;
	for (size_t i = 0; i < m->tokens_n; i++)
		forget(&m->tokens[i]);
	jwt_key_unref(m->key);
	secret_unref(m->pem);
	m->key = key;
	m->pem = secret_ref(pem);
	return 0;
}

/* ---- the mint ---- */

int jwt_mint_new(const struct config_credential *c, struct jwt_mint **ret, struct err *e)
{
	struct jwt_mint *m = calloc(1, sizeof(*m));

	if (!m)
		return err_set(e, "out of memory");
	m->c = c;
	m->tokens_n = config_credential_is_per_sandbox(c) ? LIMIT_JWT_SANDBOXES : 1;
	m->tokens = calloc(m->tokens_n, sizeof(*m->tokens));
	if (!m->tokens || pthread_mutex_init(&m->lock, NULL) != 0) {
		free(m->tokens);
		free(m);
		return err_set(e, "out of memory");
	}
	*ret = m;
	return 0;
}

int jwt_mint_new_remote(const struct config_credential *c, jwt_sign_fn *sign, void *arg,
			struct jwt_mint **ret, struct err *e)
{
	if (jwt_mint_new(c, ret, e) < 0)
		return -1;
	(*ret)->sign = sign;
	(*ret)->sign_arg = arg;
	return 0;
}

void jwt_mint_free(struct jwt_mint *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->tokens_n; i++)
		forget(&m->tokens[i]);
	free(m->tokens);
	jwt_key_unref(m->key);
	secret_unref(m->pem);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

/* The sandbox as the table knows it: where no claim names it there is one token for all. */
static int check_sandbox(const struct jwt_mint *m, struct str *sandbox, struct err *e)
{
	if (m->tokens_n == 1)
		*sandbox = STR("");
	else if (sandbox->n == 0)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
				  "its token names the sandbox, and here none is known");
	return 0;
}

int jwt_mint_make(struct jwt_mint *m, struct secret *pem, struct str sandbox, struct secret **ret,
		  struct err *e)
{
	struct jwt_key *key = NULL;
	int rc;

	if (check_sandbox(m, &sandbox, e) < 0)
		return -1;
	pthread_mutex_lock(&m->lock);
	rc = use_key(m, pem, e);
	if (rc == 0)
		key = jwt_key_ref(m->key);
	pthread_mutex_unlock(&m->lock);
	if (rc == 0)
		rc = make_token(m->c, key, sandbox, jwt_now(), ret, e);
	jwt_key_unref(key);
	return rc;
}

int jwt_mint_get(struct jwt_mint *m, struct secret *pem, struct str sandbox, struct secret **ret,
		 struct err *e)
{
	int64_t now_us = clock_us(), now_s = jwt_now();
	struct jwt_key *key = NULL;
	bool is_missing = false;
	struct minted *t;
	int rc;

	if (check_sandbox(m, &sandbox, e) < 0)
		return -1;
	pthread_mutex_lock(&m->lock);
	rc = use_key(m, pem, e);
	t = rc == 0 ? find(m, sandbox) : NULL;
	if (t && is_fresh(m, t, now_us, now_s))
		*ret = secret_ref(t->token);
	else if (rc == 0)
		is_missing = true;
	if (is_missing && !m->sign)
		key = jwt_key_ref(m->key);
	pthread_mutex_unlock(&m->lock);
	if (!is_missing)
		return rc;
	/* Not under the lock, so that one that signs holds up nobody; another one may do the same.
	 */
	rc = m->sign ? m->sign(m->sign_arg, sandbox, ret, e)
		     : make_token(m->c, key, sandbox, now_s, ret, e);
	if (rc == 0) {
		pthread_mutex_lock(&m->lock);
		if (m->pem == pem)
			keep(m, sandbox, *ret, now_us, now_s);
		pthread_mutex_unlock(&m->lock);
	}
	jwt_key_unref(key);
	return rc;
}
