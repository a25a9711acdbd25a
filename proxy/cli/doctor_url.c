/*
 * What `stile doctor` asks for when nobody says: the first URL that the policy allows, and a name
 * that nobody has.
 */
#include <string.h>

#include "policy/url.h"
#include "proxy/cli/doctor.h"

/* The part of a path pattern in front of its first wildcard, up to a whole segment. */
static struct str plain_path(const struct target *t)
{
	struct str path = t->path ? pattern_str(t->path) : STR("/");
	ptrdiff_t star = str_find(path, '*');

	if (star < 0)
		return path;
	while (star > 0 && path.p[star - 1] != '/')
		star--;
	return str_head(path, (size_t)star);
}

static bool allows_get(const struct policy *p, const char *text)
{
	struct policy_decision d = {0};
	struct policy_request q;
	struct url u;

	if (url_parse_absolute(str_from_c(text), &u, NULL) == 0) {
		q = policy_request_for(&u, STR("GET"));
		policy_decide(p, &q, &d);
	}
	url_clear(&u);
	return d.allow;
}

static bool try_target(const struct policy *p, const struct target *t, struct strbuf *url)
{
	if (t->scheme != SCHEME_HTTPS || t->host_kind != TARGET_HOST_EXACT)
		return false;
	strbuf_reset(url);
	strbuf_adds(url, "https://");
	host_add_url(&t->host, url);
	if (t->port_first != scheme_default_port(SCHEME_HTTPS))
		strbuf_addf(url, ":%u", t->port_first);
	strbuf_add(url, plain_path(t));
	return !url->overflowed && allows_get(p, strbuf_cstr(url));
}

int doctor_find_url(const struct policy *p, struct strbuf *ret_url)
{
	for (size_t i = 0; i < policy_rules_n(p); i++) {
		const struct rule *r = policy_rule(p, i);

		for (size_t j = 0; r->effect == RULE_ALLOW && j < r->targets_n; j++)
			if (try_target(p, &r->targets[j], ret_url))
				return 0;
	}
	return -1;
}
