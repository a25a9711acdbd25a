/*
 * No scenario has a credential whose source takes time, and there is no thread here to ask one, nor
 * a helper to watch.
 */
#include <stddef.h>

#include "proxy/credentials/broker.h"
#include "proxy/net/watch.h"

bool broker_keeps(const struct config_credential *c)
{
	(void)c;
	return false;
}

int broker_take(struct broker *b, struct config *config, size_t i, struct trust *t,
		struct kept **ret, struct err *e)
{
	(void)b;
	(void)config;
	(void)i;
	(void)t;
	(void)ret;
	return err_set(e, "no broker");
}

struct slot *kept_slot(const struct kept *k)
{
	(void)k;
	return NULL;
}

void broker_give_back(struct broker *b, struct kept *k)
{
	(void)b;
	(void)k;
}

void broker_nudge(struct kept *k)
{
	(void)k;
}

int watch_new(struct loop *l, int fd, void (*fn)(void *arg), void *arg, struct watch **ret,
	      struct err *e)
{
	(void)l;
	(void)fd;
	(void)fn;
	(void)arg;
	(void)ret;
	return err_set(e, "no watch");
}

void watch_free(struct watch *w)
{
	(void)w;
}
