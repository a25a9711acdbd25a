/*
 * See identity.h.
 */
#include "proxy/session/identity.h"

struct identity identity_of(const struct entrance *en, const struct snapshot *s)
{
	return (struct identity){
		.policy = config_policy(s->config, en->policy_name),
		.sandbox = str_from_c(en->sandbox ? en->sandbox : en->name),
	};
}
