/*
 * resolve.h with answers from the test: literals, fixed names and names that were put into the
 * cache are there at once, the others when the test says so, or never: then the time limit counts.
 */
#include "proxy/net/resolve.h"

#include <stdlib.h>
#include <string.h>

#include "tests/replay/fake.h"

#define CACHED_MAX 8

struct resolver {
	struct config *config;
};

struct resolve {
	struct resolve *next; /* oldest first */
	struct resolver *resolver;
	char name[256];
	struct timer timer;
	void (*done)(void *arg, const struct resolved *found, const struct err *e);
	void *arg;
	struct resolved found;
	struct err e;
	bool answered;
};

struct fake_names fake_names;

static struct resolve *questions;
static struct {
	char name[256];
	struct ipaddr addr;
} cached[CACHED_MAX];
static size_t cached_n;

int resolver_new(struct loop *l, const struct config *c, struct resolver **ret, struct err *e)
{
	struct resolver *r = calloc(1, sizeof(*r));

	(void)l;
	if (!r)
		return err_set(e, "out of memory");
	r->config = c ? config_ref((struct config *)(uintptr_t)c) : NULL;
	*ret = r;
	return 0;
}

static void drop(struct resolve *q)
{
	struct resolve **at = &questions;

	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	timer_clear(&q->timer);
	free(q);
}

static void answer(void *arg)
{
	struct resolve *q = arg;
	struct resolved found = q->found;
	struct err e = q->e;
	void (*done)(void *, const struct resolved *, const struct err *) = q->done;

	arg = q->arg;
	drop(q);
	done(arg, found.n > 0 ? &found : NULL, found.n > 0 ? NULL : &e);
}

void resolver_free(struct resolver *r)
{
	if (!r)
		return;
	for (bool again = true; again;) {
		again = false;
		for (struct resolve *q = questions; q && !again; q = q->next)
			if (q->resolver == r) {
				fake_forget(answer, q);
				q->found.n = 0;
				(void)err_reason(&q->e, REASON_DNS_FAILED, "the resolver ended");
				answer(q);
				again = true;
			}
	}
	config_unref(r->config);
	free(r);
}

static void on_timeout(void *arg)
{
	struct resolve *q = arg;

	if (q->answered)
		return;
	(void)err_reason(&q->e, REASON_DNS_TIMEOUT, "no answer for %s", q->name);
	answer(q);
}

static bool known(const struct resolver *r, const struct host *host, struct resolved *ret)
{
	*ret = (struct resolved){0};
	if (host->kind != HOST_NAME) {
		ret->addrs[ret->n++] = host->addr;
		return true;
	}
	for (size_t i = 0; r->config && i < r->config->hosts_n; i++)
		if (host_eq(&r->config->hosts[i].name, host)) {
			ret->addrs[ret->n++] = r->config->hosts[i].addrs[0];
			return true;
		}
	for (size_t i = 0; i < cached_n; i++)
		if (strcmp(cached[i].name, host->text) == 0) {
			ret->addrs[ret->n++] = cached[i].addr;
			ret->from_cache = true;
			return true;
		}
	return false;
}

enum resolve_status
resolve_start(struct resolver *r, const struct host *host, uint64_t timeout_ms,
	      void (*done)(void *arg, const struct resolved *found, const struct err *e), void *arg,
	      struct resolved *ret, struct resolve **ret_question, struct err *e)
{
	struct resolve *q, **at = &questions;

	if (known(r, host, ret))
		return RESOLVE_DONE;
	q = calloc(1, sizeof(*q));
	if (!q || timer_init(&q->timer, NULL, on_timeout, q) < 0) {
		free(q);
		(void)err_reason(e, REASON_DNS_FAILED, "out of memory");
		return RESOLVE_FAILED;
	}
	q->resolver = r;
	memcpy(q->name, host->text, strlen(host->text) + 1);
	q->done = done;
	q->arg = arg;
	while (*at)
		at = &(*at)->next;
	*at = q;
	timer_arm(&q->timer, timeout_ms);
	*ret_question = q;
	if (fake_names.automatic) {
		struct ipaddr a = {.family = 4, .b = {5, 6, 7, 8}};

		(void)fake_resolve_answer(q->name, &a, 1);
	}
	return RESOLVE_PENDING;
}

void resolve_cancel(struct resolve *q)
{
	fake_forget(answer, q);
	drop(q);
}

/* ---- the test's side ---- */

bool fake_resolve_answer(const char *name, const struct ipaddr *addrs, size_t n)
{
	struct resolve *q = questions;

	while (q && (q->answered || strcmp(q->name, name) != 0))
		q = q->next;
	if (!q)
		return false;
	q->answered = true;
	q->found.n = n > LIMIT_DNS_ADDRESSES ? LIMIT_DNS_ADDRESSES : n;
	for (size_t i = 0; i < q->found.n; i++)
		q->found.addrs[i] = addrs[i];
	(void)err_reason(&q->e, REASON_DNS_FAILED, "%s does not exist", name);
	fake_later(answer, q);
	return true;
}

void fake_resolve_cache(const char *name, const struct ipaddr *addr)
{
	if (cached_n == CACHED_MAX || strlen(name) >= sizeof(cached[0].name))
		return;
	memcpy(cached[cached_n].name, name, strlen(name) + 1);
	cached[cached_n++].addr = *addr;
}

const char *fake_resolve_pending(void)
{
	struct resolve *q = questions;

	while (q && q->answered)
		q = q->next;
	return q ? q->name : NULL;
}

size_t fake_resolve_count(void)
{
	size_t n = 0;

	for (struct resolve *q = questions; q; q = q->next)
		n++;
	return n;
}

void fake_resolve_end(void)
{
	if (fake_resolve_count() > 0)
		fake_fault("%zu questions were never ended", fake_resolve_count());
	questions = NULL;
	cached_n = 0;
}
