/*
 * The table of sources that take time; see source.h.
 */
#include "proxy/credentials/source.h"

#include <stdlib.h>

struct source {
	const struct source_ops *ops;
	void *self; /* owned */
};

const struct source_ops *source_ops_of(const struct config_credential *c)
{
	switch (c->source) {
	case CREDENTIAL_FROM_FILE:
	case CREDENTIAL_FROM_ENV: return NULL;
	case CREDENTIAL_FROM_EXEC: return &source_exec_ops;
	}
	return NULL;
}

int source_open(const struct config_credential *c, struct loop *l, source_result_fn *on_result,
		void *arg, struct source **ret, struct err *e)
{
	struct source *s = calloc(1, sizeof(*s));

	if (!s)
		return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
	s->ops = source_ops_of(c);
	if (s->ops->open(c, l, on_result, arg, &s->self, e) < 0) {
		free(s);
		return -1;
	}
	*ret = s;
	return 0;
}

int source_ask(struct source *s, struct err *e)
{
	return s->ops->ask(s->self, e);
}

void source_close(struct source *s)
{
	if (!s)
		return;
	s->ops->close(s->self);
	free(s);
}
