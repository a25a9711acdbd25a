/*
 * Making and counting snapshots; see snapshot.h.
 */
#include "proxy/session/snapshot.h"

#include <stdlib.h>

#include "proxy/credentials/config_trust.h"

int snapshot_new(struct config *config, struct keeper *k, struct snapshot **ret, struct err *e)
{
	static uint64_t made; /* atomic */
	struct snapshot *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(e, "out of memory");
	s->refs = 1;
	s->number = __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
	s->config = config_ref(config);
	if (config_trust(config, &s->trust, e) < 0 ||
	    placeholders_new(config, &s->placeholders, e) < 0 ||
	    (k ? keeper_store(k, config, &s->credentials, e)
	       : credential_store_new(config, NULL, s->trust, &s->credentials, e)) < 0) {
		snapshot_unref(s);
		return -1;
	}
	*ret = s;
	return 0;
}

struct snapshot *snapshot_ref(struct snapshot *s)
{
	__atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
	return s;
}

void snapshot_unref(struct snapshot *s)
{
	if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	credential_store_unref(s->credentials);
	placeholders_free(s->placeholders);
	trust_unref(s->trust);
	config_unref(s->config);
	free(s);
}
