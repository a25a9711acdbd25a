/*
 * config_trust: the sources of `upstream.trust`, and where one that cannot be read is named. Called
 * by the proxy's snapshot and by the keeper's core.
 */
#include "proxy/credentials/config_trust.h"

/* The first of them that cannot be read alone; trust_n: each can. */
static size_t find_bad(const struct config *c)
{
	size_t i;

	for (i = 0; i < c->trust_n; i++) {
		struct trust *t = NULL;
		int rc = trust_new(&c->trust[i], 1, &t, NULL);

		trust_unref(t);
		if (rc < 0)
			break;
	}
	return i;
}

int config_trust(const struct config *c, struct trust **ret, struct err *e)
{
	static char system_roots[] = "system";
	char *const roots[] = {system_roots};
	bool given = c->trust_n > 0;
	size_t bad;

	if (trust_new(given ? c->trust : roots, given ? c->trust_n : 1, ret, e) == 0)
		return 0;
	bad = find_bad(c);
	if (bad < c->trust_n && c->file)
		err_wrap(e, "%s:%u:%u", c->file, c->trust_places[bad].line,
			 c->trust_places[bad].col);
	return -1;
}
