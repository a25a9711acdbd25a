/*
 * See shared.h.
 */
#include "proxy/session/shared.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "logging/log.h"

struct shared {
	/* owned */
	struct state *state;
	/* counted; under the lock */
	struct snapshot *snapshot;
	/* borrowed */
	struct sandboxes *all;
	struct worker **workers;
	/* plain */
	size_t workers_n;
	uint64_t grace_ms;
	pthread_mutex_t lock;
	bool ended; /* of the state's thread: something has, and the workers are to look */
	bool full;  /* it has been said */
};

static struct snapshot *take_snapshot(struct shared *sh)
{
	struct snapshot *s;

	pthread_mutex_lock(&sh->lock);
	s = snapshot_ref(sh->snapshot);
	pthread_mutex_unlock(&sh->lock);
	return s;
}

/* ---- what is shown to it ---- */

/* "user:password", or a user that the configuration names, or a password alone. */
static int split(const struct config_credential *c, const struct secret *v, struct strbuf *user,
		 struct strbuf *password, struct err *e)
{
	struct str s = secret_value(v);
	ptrdiff_t colon = str_find(s, ':');

	if (c->as == CREDENTIAL_AS_BASIC && c->username) {
		strbuf_adds(user, c->username);
	} else if (c->as == CREDENTIAL_AS_BASIC) {
		if (colon < 0)
			return err_set(e, "the credential %s is no USER:PASSWORD", c->name);
		strbuf_add(user, str_head(s, (size_t)colon));
		s = str_skip(s, (size_t)colon + 1);
	}
	strbuf_add(password, s);
	return user->overflowed || password->overflowed ? err_set(e, "the password is too long")
							: 0;
}

static int on_login(void *arg, struct strbuf *user, struct strbuf *password, struct err *e)
{
	struct snapshot *s = take_snapshot(arg);
	const struct config_state *to = s->config->state;
	const struct config_credential *c =
		to ? config_credential(s->config, to->credential) : NULL;
	struct secret *v = NULL;
	int rc = -1;

	if (!c)
		err_set(e, "its credential is gone");
	else if (credential_get(s->credentials, c->name, STR_NONE, &v, e) == 0)
		rc = split(c, v, user, password, e);
	secret_unref(v);
	snapshot_unref(s);
	return rc;
}

static int on_tls(void *arg, SSL **ret, struct err *e)
{
	struct snapshot *s = take_snapshot(arg);
	const struct config_state *to = s->config->state;
	const struct host *h = &to->host;
	struct strbuf session;
	int rc;

	strbuf_init(&session, LIMIT_HOST_BYTES + 32);
	strbuf_addf(&session, "state|%s", to->text);
	rc = trust_client_new(s->trust, h->text, h->kind == HOST_NAME ? NULL : h->addr.b,
			      h->kind == HOST_IPV4 ? 4 : 16, STR_NONE, strbuf_str(&session), ret,
			      e);
	strbuf_clear(&session);
	snapshot_unref(s);
	return rc;
}

/* ---- what it tells ---- */

static void on_begin(void *arg)
{
	sandboxes_begin(((struct shared *)arg)->all);
}

static void on_put(void *arg, const struct state_record *r)
{
	struct shared *sh = arg;
	struct err e = ERR_INIT;
	bool ended = false;

	if (sandboxes_put(sh->all, r, &ended, &e) < 0 && !sh->full) {
		sh->full = true;
		log_error("state: a token is not known here: %s", e.text);
	}
	sh->ended |= ended;
}

static void on_gone(void *arg, const unsigned char digest[STATE_DIGEST_BYTES])
{
	struct shared *sh = arg;

	sh->ended |= sandboxes_gone(sh->all, digest);
}

static void on_whole(void *arg)
{
	struct shared *sh = arg;

	sh->ended |= sandboxes_whole(sh->all);
}

static void sweep(struct shared *sh)
{
	for (size_t n = 0; n < sh->workers_n; n++)
		(void)worker_sweep_tokens(sh->workers[n]);
}

static void on_current(void *arg, int64_t as_of_us)
{
	struct shared *sh = arg;

	sandboxes_hold(sh->all, as_of_us + (int64_t)sh->grace_ms * 1000);
	if (sh->ended)
		sweep(sh);
	sh->ended = false;
}

static void on_answered(void *arg)
{
	struct shared *sh = arg;

	for (size_t n = 0; n < sh->workers_n; n++)
		worker_look_again(sh->workers[n]);
}

static void on_expired(void *arg)
{
	sweep(arg);
}

/* ---- the main thread's ---- */

int shared_add(struct shared *sh, const struct sandbox_options *o,
	       char token[SANDBOX_TOKEN_LEN + 1], struct sandbox **ret, struct err *e)
{
	struct state_record r;

	if (sandboxes_draft(sh->all, o, token, &r, e) < 0)
		return -1;
	if (state_add(sh->state, &r, e) == 0) {
		*ret = sandboxes_by_digest(sh->all, r.digest, false);
		if (*ret)
			return 0;
		/* Nobody will ever see its token. */
		(void)!state_end(sh->state, &r, NULL);
		err_set(e, "there is no room for it here");
	}
	OPENSSL_cleanse(token, SANDBOX_TOKEN_LEN + 1);
	return -1;
}

int shared_revoke(struct shared *sh, struct str id_or_name, struct sandbox **ret, struct err *e)
{
	struct state_record r;
	struct err why = ERR_INIT;

	/* One that was made elsewhere just now is to be found. */
	(void)!state_sync(sh->state, NULL);
	if (sandboxes_record(sh->all, id_or_name, &r, e) < 0)
		return -1;
	if (state_end(sh->state, &r, &why) == 0) {
		*ret = sandboxes_by_digest(sh->all, r.digest, true);
		return *ret ? 0 : err_set(e, "it is gone");
	}
	(void)!sandboxes_revoke(sh->all, id_or_name, ret, NULL);
	return err_set(
		e,
		"%s: it has ended here; the others hear of it when the state is back, unless "
		"this stile ends before",
		why.text);
}

/* ---- birth and end ---- */

int shared_new(struct snapshot *s, struct sandboxes *all, struct shared **ret, struct err *e)
{
	struct shared *sh = calloc(1, sizeof(*sh));
	struct state_ops ops = {
		.login = on_login,
		.tls = on_tls,
		.begin = on_begin,
		.put = on_put,
		.gone = on_gone,
		.whole = on_whole,
		.current = on_current,
		.answered = on_answered,
		.expired = on_expired,
		.arg = sh,
	};

	if (!sh)
		return err_set(e, "out of memory");
	if (pthread_mutex_init(&sh->lock, NULL) != 0) {
		free(sh);
		return err_set(e, "a lock is not to be had");
	}
	sh->all = all;
	sh->snapshot = snapshot_ref(s);
	sh->grace_ms = s->config->state->grace_ms;
	if (state_new(s->config, &ops, &sh->state, e) < 0) {
		shared_free(sh);
		return -1;
	}
	sandboxes_share(all);
	*ret = sh;
	return 0;
}

struct state *shared_state(struct shared *sh)
{
	return sh->state;
}

int shared_start(struct shared *sh, struct worker **workers, size_t n, struct err *e)
{
	sh->workers = workers;
	sh->workers_n = n;
	return state_start(sh->state, e);
}

void shared_set_snapshot(struct shared *sh, struct snapshot *s)
{
	struct snapshot *old;

	pthread_mutex_lock(&sh->lock);
	old = sh->snapshot;
	sh->snapshot = snapshot_ref(s);
	pthread_mutex_unlock(&sh->lock);
	snapshot_unref(old);
}

void shared_stop(struct shared *sh)
{
	if (sh)
		state_stop(sh->state);
}

void shared_free(struct shared *sh)
{
	if (!sh)
		return;
	state_free(sh->state);
	snapshot_unref(sh->snapshot);
	pthread_mutex_destroy(&sh->lock);
	free(sh);
}
