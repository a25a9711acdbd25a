/*
 * One Vault, for its files alone: source_vault.c (the steps of a question, and its answers),
 * vault_login.c (how it comes by a token), vault_ask.c (requests), vault_debts.c (what it gives
 * back). What a Vault says is vault.h's.
 */
#ifndef STILE_PROXY_CREDENTIALS_VAULT_INTERNAL_H
#define STILE_PROXY_CREDENTIALS_VAULT_INTERNAL_H

#include "logging/json.h"
#include "logging/limits.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/source.h"
#include "proxy/credentials/vault.h"

enum vault_step {
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
struct vault_done {
	bool lookup, login, renewed_token, renewed_lease;
};

struct vault_token {
	struct secret *value;	  /* counted; NULL: there is none */
	int64_t life_us, ends_us; /* 0: it does not end */
	int64_t since_us;
	bool renewable;
	bool ours; /* of a login: revoked at the end, and its leases with it */
	bool batch;
	bool worked; /* something was read with it */
};

struct vault_lease {
	struct vault_secret secret;
	int64_t ends_us, since_us;
	bool ends_with_token; /* revoked by revoking the token */
	bool stale;	      /* not renewed any more: another secret is to be read */
};

/* What was replaced and has not ended yet: a token to revoke, or the name of a lease. */
struct vault_debt {
	struct secret *token; /* counted */
	char *lease;	      /* owned */
	int64_t ends_us;      /* 0: it does not */
	bool doubted;	      /* refused when it was used last: it may be gone already */
};

struct vault {
	struct source_setting s;
	/* owned */
	struct fetch *fetch;
	struct vault_lease lease;
	struct vault_debt debts[LIMIT_VAULT_DEBTS];
	/* counted */
	struct vault_token token;
	struct secret *wrapping;  /* what secret_id was unwrapped with */
	struct secret *secret_id; /* unwrapped */
	/* plain */
	enum vault_step step;
	int64_t asked_us; /* when the request at hand was sent: lives begin no later */
	struct vault_done done;
	size_t debts_n;
	int64_t farewell_ends_us;
	void (*left)(void *arg);
	void *left_arg;
};

/* Microseconds. As in slot.c: it goes on while the machine sleeps. */
int64_t vault_clock_us(void);
/* ends_us: 0: it does not. */
bool vault_has_ended(int64_t ends_us);
/* When something ends whose life came with the answer at hand; 0: it does not. */
int64_t vault_end(const struct vault *v, int64_t life_us);
/* A parameter's text, borrowed; NULL: it is not there, or is no text. */
const char *vault_text(const struct vault *v, enum config_param_key key);
/* The token's value, borrowed; empty: there is none. */
struct str vault_token(const struct vault *v);
/* Always -1. */
int vault_no_memory(struct err *e);

/* vault_ask.c: */
/* Sends a question for `path`, which stands behind /v1/, and `more` behind that; the answer is
 * source_vault.c's vault_on_answer. token: STR_NONE: none. body: NULL: a GET; wiped here. */
int vault_ask_path(struct vault *v, enum vault_step step, const char *path, const char *more,
		   struct str token, struct strbuf *body, struct err *e) ATTR_NODISCARD;
/* An object that is open in *j, over *b, which vault_ask_path wipes, or strbuf_wipe. */
void vault_begin_body(struct strbuf *b, struct json *j);
void vault_add_seconds(struct json *j, int64_t life_us);
void vault_on_answer(void *arg, const struct fetch_answer *a, const struct err *why);

/* vault_login.c: */
/* A login, or first what it needs. 0: a request is under way. */
int vault_get_token(struct vault *v, struct err *e) ATTR_NODISCARD;
/* A token that was given is read anew for each question. 1: it is another one than before, and is
 * being looked up; 0: go on. */
int vault_read_given(struct vault *v, struct err *e) ATTR_NODISCARD;
/* Half of its life is over. */
bool vault_is_due(const struct vault_token *t);
int vault_renew_token(struct vault *v, struct err *e) ATTR_NODISCARD;
/* In place of the token that it had; takes over what g owns. ours: of a login. */
void vault_take_grant(struct vault *v, const struct vault_grant *g, bool ours);
/* It has no token any more; what is to be given back of it is owed. doubted: it was refused. */
void vault_leave_token(struct vault *v, bool doubted);

/* vault_debts.c: */
/* Takes over what d owns. Over the bound the oldest is left to its own end. */
void vault_owe(struct vault *v, struct vault_debt d);
void vault_drop_debt(struct vault *v, size_t i);
/* It has no lease any more; one that does not go with its token is owed. */
void vault_leave_lease(struct vault *v);
/* STEP_FAREWELL: asks for the next one of what there is to give back. False: nothing is left. */
bool vault_give_back(struct vault *v);
/* What came of it; a: NULL: no answer did. Goes on, and calls v->left after the last. */
void vault_on_given_back(struct vault *v, const struct fetch_answer *a, const struct err *why);

#endif
