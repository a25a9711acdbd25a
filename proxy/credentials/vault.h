/*
 * What a Vault answers (its HTTP API, version 1): logins, secrets, refusals. Pure: no request is
 * made here; source_vault.c asks.
 */
#ifndef STILE_PROXY_CREDENTIALS_VAULT_H
#define STILE_PROXY_CREDENTIALS_VAULT_H

#include "proxy/credentials/fetch.h"

/* A token, as a login or its renewal hands it out. */
struct vault_grant {
	struct secret *token; /* counted */
	int64_t life_us;      /* from now on; 0: it does not end */
	bool renewable;
	bool batch; /* it cannot be revoked, and leases do not go with it */
};

/* What was read, or a lease as its renewal answers. */
struct vault_secret {
	struct secret *value; /* counted; NULL in a renewal */
	char *lease;	      /* owned; NULL: there is none */
	int64_t life_us;      /* of the lease, or until the secret is deleted; 0: not said */
	bool renewable;
};

/* `auth` of a login or a renewal. -1: e says what is missing. */
int vault_read_grant(struct str body, struct vault_grant *ret, struct err *e) ATTR_NODISCARD;
/* `data` of auth/token/lookup-self: the token's whole life and what is left of it, 0: no end. */
int vault_read_lookup(struct str body, int64_t *ret_life_us, int64_t *ret_left_us,
		      bool *ret_renewable, struct err *e) ATTR_NODISCARD;
/* `data` of sys/wrapping/unwrap: the secret_id. */
int vault_read_unwrapped(struct str body, struct secret **ret, struct err *e) ATTR_NODISCARD;
/* A secret with a lease, or of a key-value engine of either version. Two fields (second: NULL for
 * one) are joined by `between`, which the first may not hold. */
int vault_read_secret(struct str body, const char *first, const char *second, char between,
		      struct vault_secret *ret, struct err *e) ATTR_NODISCARD;
/* The lease of an answer of sys/leases/renew. */
int vault_read_renewal(struct str body, struct vault_secret *ret, struct err *e) ATTR_NODISCARD;
void vault_secret_clear(struct vault_secret *s);

/* Why it did not do what it was asked, in words that hold nothing of the answer but known ones.
 * Always -1. */
int vault_refusal(const struct fetch_answer *a, struct err *e);
/* Has it looked at the request, and will it say the same again? */
bool vault_is_final(const struct fetch_answer *a);

#endif
