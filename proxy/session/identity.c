/*
 * See identity.h.
 */
#include "proxy/session/identity.h"

#include <openssl/crypto.h>

#include "proxy/session/token_field.h"

struct identity identity_of(const struct caller *c, const struct snapshot *s)
{
	const struct entrance *en = c->entrance;

	if (c->sandbox)
		return (struct identity){
			.policy = config_policy(s->config, sandbox_policy(c->sandbox)),
			.sandbox = str_from_c(sandbox_name(c->sandbox)),
			.key = str_from_c(sandbox_key(c->sandbox)),
		};
	return (struct identity){
		/* None with `tokens: required`. */
		.policy = config_policy(s->config, en->policy_name),
		.sandbox = str_from_c(en->sandbox ? en->sandbox : en->name),
		.key = str_from_c(en->sandbox ? en->sandbox : en->name),
	};
}

/* A reference, or NULL: no token of this entrance. */
static struct sandbox *find(const struct caller *c, struct sandboxes *all, struct str field,
			    bool *ret_new)
{
	char token[SANDBOX_TOKEN_LEN];
	struct sandbox *s = NULL;
	size_t n = 0;

	if (all && token_field_read(field, token, sizeof(token), &n) == 0) {
		struct str t = str_from(token, n);

		s = sandboxes_find(all, t);
		*ret_new = !s && n == SANDBOX_TOKEN_LEN && str_starts(t, STR(SANDBOX_TOKEN_PREFIX));
	}
	OPENSSL_cleanse(token, sizeof(token));
	if (s && !str_eq(str_from_c(sandbox_listener(s)), str_from_c(c->entrance->name))) {
		sandbox_unref(s);
		return NULL;
	}
	return s;
}

static int claim_nothing(const struct caller *c, struct err *e)
{
	if (c->entrance->tokens == CONFIG_TOKENS_OPTIONAL && !c->sandbox)
		return 0;
	return err_reason(
		e, REASON_TOKEN_REQUIRED,
		"a token is needed (Proxy-Authorization: Basic or Bearer, as the proxy URL "
		"of `stile sandbox new` brings it)");
}

int identity_claim(const struct caller *c, struct sandboxes *all, const struct request *q,
		   struct sandbox **ret, bool *ret_new, struct err *e)
{
	struct sandbox *s;
	enum reason end;

	*ret = NULL;
	*ret_new = false;
	if (c->entrance->tokens == CONFIG_TOKENS_NONE)
		return 0;
	if (q->n_proxy_authorization == 0)
		return claim_nothing(c, e);
	if (q->n_proxy_authorization > 1)
		return err_reason(e, REASON_TOKEN_INVALID, "more than one Proxy-Authorization");
	if (all && !sandboxes_are_current(all))
		return err_reason(e, REASON_STATE_UNAVAILABLE,
				  "the tokens' shared state is out of reach (try again later)");
	s = find(c, all, q->proxy_authorization, ret_new);
	if (!s)
		return err_reason(e, REASON_TOKEN_INVALID, "that is no token of this listener");
	if (c->claimed && s != c->sandbox) {
		sandbox_unref(s);
		return err_reason(e, REASON_TOKEN_INVALID,
				  "this connection began as another sandbox's (open one for each)");
	}
	*ret = s;
	end = sandbox_end(s);
	return end == REASON_NONE ? 0 : err_reason(e, end, "%s", sandbox_end_text(end));
}
