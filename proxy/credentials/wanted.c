/*
 * Which credentials a configuration can ever ask for. Pure; both sides of proxy/keeper/ ask it of
 * the same configuration and must come to the same answer.
 */
#include <string.h>

#include "proxy/credentials/store.h"

static void want(const struct config *c, const char *name, bool *ret)
{
	const struct config_credential *found = name ? config_credential(c, name) : NULL;

	if (found)
		ret[found - c->credentials] = true;
}

bool policy_is_in_force(const struct config *c, const struct policy *p, const char *policy)
{
	if (policy)
		return strcmp(policy_name(p), policy) == 0;
	for (size_t i = 0; i < c->listeners_n; i++)
		/* Whoever makes a sandbox there chooses any of them. */
		if (c->listeners[i].policy == p || c->listeners[i].tokens != CONFIG_TOKENS_NONE)
			return true;
	return false;
}

void credentials_wanted(const struct config *c, const char *policy, bool *ret)
{
	memset(ret, 0, c->credentials_n * sizeof(*ret));
	for (size_t p = 0; p < c->policies_n; p++) {
		if (!policy_is_in_force(c, c->policies[p], policy))
			continue;
		for (size_t r = 0; r < policy_rules_n(c->policies[p]); r++)
			want(c, policy_rule(c->policies[p], r)->credential, ret);
	}
	if (c->parent)
		want(c, c->parent->credential, ret);
	/* Of a daemon alone: `run` has no tokens. */
	if (c->state && !policy)
		want(c, c->state->credential, ret);
}
