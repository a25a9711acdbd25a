/*
 * What a Vault's source gives back: leases and logins that were replaced and have not ended, and at
 * its end those that it holds. Each is revoked by a request; what cannot be is said in the log.
 */
#include <stdlib.h>
#include <string.h>

#include "logging/log.h"
#include "proxy/credentials/vault_internal.h"

static void debt_clear(struct vault_debt *d)
{
	secret_unref(d->token);
	free(d->lease);
	*d = (struct vault_debt){0};
}

void vault_drop_debt(struct vault *v, size_t i)
{
	debt_clear(&v->debts[i]);
	v->debts_n--;
	memmove(&v->debts[i], &v->debts[i + 1], (v->debts_n - i) * sizeof(v->debts[0]));
	v->debts[v->debts_n] = (struct vault_debt){0};
}

void vault_owe(struct vault *v, struct vault_debt d)
{
	for (size_t i = v->debts_n; i-- > 0;)
		if (vault_has_ended(v->debts[i].ends_us))
			vault_drop_debt(v, i);
	if (v->debts_n == LIMIT_VAULT_DEBTS)
		vault_drop_debt(v, 0);
	v->debts[v->debts_n++] = d;
}

void vault_leave_lease(struct vault *v)
{
	struct vault_lease *l = &v->lease;

	if (l->secret.lease && !l->ends_with_token) {
		vault_owe(v, (struct vault_debt){.lease = l->secret.lease, .ends_us = l->ends_us});
		l->secret.lease = NULL;
	}
	vault_secret_clear(&l->secret);
	*l = (struct vault_lease){0};
}

static void say_kept(const struct vault *v, const char *what, const char *why)
{
	log_warn("credential %s: %s could not be given back, and holds until its end: %s",
		 v->s.c->name, what, why);
}

bool vault_give_back(struct vault *v)
{
	struct err e = ERR_INIT;

	while (v->debts_n > 0) {
		struct vault_debt *d = &v->debts[v->debts_n - 1];
		struct strbuf body;
		struct json j;
		int rc = 0;

		vault_begin_body(&body, &j);
		if (d->lease)
			json_kv_str(&j, "lease_id", str_from_c(d->lease));
		json_close(&j, '}');
		if (vault_has_ended(d->ends_us))
			strbuf_wipe(&body);
		else
			rc = vault_ask_path(v, STEP_FAREWELL,
					    d->lease ? "sys/leases/revoke"
						     : "auth/token/revoke-self",
					    "", d->lease ? vault_token(v) : secret_value(d->token),
					    &body, &e);
		if (rc == 0 && v->fetch)
			return true;
		if (rc < 0)
			say_kept(v, d->lease ? "a lease" : "its login", e.text);
		vault_drop_debt(v, v->debts_n - 1);
	}
	return false;
}

void vault_on_given_back(struct vault *v, const struct fetch_answer *a, const struct err *why)
{
	const struct vault_debt *d = &v->debts[v->debts_n - 1];
	const char *what = d->lease ? "a lease" : "its login";
	struct err e = ERR_INIT;

	if (!a)
		say_kept(v, what, why->text);
	else if (a->status != 200 && a->status != 204 && !(d->doubted && a->status == 403) &&
		 vault_refusal(a, &e) < 0)
		say_kept(v, what, e.text);
	vault_drop_debt(v, v->debts_n - 1);
	if (!vault_give_back(v))
		v->left(v->left_arg);
}
