/*
 * See share.h. Diallers and those who wait stand in the chains of one table; what is known of
 * origins stands in another one, of fixed size, where the newest overwrites: forgetting costs a
 * handshake.
 */
#include "proxy/session/share.h"

#include <stdlib.h>

#include "logging/limits.h"

#define CHAINS 256  /* a power of two */
#define KNOWN  1024 /* likewise */

TAILQ_HEAD(seats, share_seat);

struct known {
	uint64_t hash;
	int64_t until_us;
	bool h2;
};

struct share {
	/* owned */
	struct seats chains[CHAINS]; /* who dials, and who waits for it behind */
	struct seats woken;
	struct timer timer; /* of zero: nobody is woken from within a call */
	struct known known[KNOWN];
	/* borrowed */
	struct loop *loop;
};

static void on_timer(void *arg)
{
	struct share *h = arg;
	struct share_seat *s;

	while ((s = TAILQ_FIRST(&h->woken))) {
		share_leave(h, s);
		s->fn(s->arg);
	}
}

int share_new(struct loop *l, struct share **ret, struct err *e)
{
	struct share *h = calloc(1, sizeof(*h));

	if (!h || timer_init(&h->timer, l, on_timer, h) < 0) {
		free(h);
		return err_set(e, "out of memory");
	}
	h->loop = l;
	TAILQ_INIT(&h->woken);
	for (size_t i = 0; i < CHAINS; i++)
		TAILQ_INIT(&h->chains[i]);
	*ret = h;
	return 0;
}

void share_free(struct share *h)
{
	if (!h)
		return;
	timer_clear(&h->timer);
	free(h);
}

static struct seats *chain(struct share *h, uint64_t hash)
{
	return &h->chains[hash & (CHAINS - 1)];
}

/* NULL: nothing is known any more. */
static const struct known *known(const struct share *h, uint64_t hash)
{
	const struct known *k = &h->known[hash & (KNOWN - 1)];

	return k->hash == hash && loop_now_us(h->loop) < k->until_us ? k : NULL;
}

static struct share_seat *dialler(struct share *h, uint64_t hash)
{
	struct share_seat *s;

	TAILQ_FOREACH(s, chain(h, hash), next)
	if (s->dials && s->hash == hash)
		return s;
	return NULL;
}

bool share_enter(struct share *h, struct share_seat *seat, uint64_t hash)
{
	const struct known *k = known(h, hash);

	seat->hash = hash;
	if (seat->alone || (k && !k->h2)) {
		seat->alone = true;
		return true;
	}
	if (!dialler(h, hash)) {
		seat->dials = true;
		TAILQ_INSERT_HEAD(chain(h, hash), seat, next);
		return true;
	}
	if (!seat->since_us)
		seat->since_us = loop_now_us(h->loop);
	if (share_left_ms(h, seat) == 0) {
		seat->alone = true;
		return true;
	}
	seat->waits = true;
	TAILQ_INSERT_TAIL(chain(h, hash), seat, next);
	return false;
}

static void wake(struct share *h, uint64_t hash, bool alone)
{
	struct share_seat *s, *next;

	for (s = TAILQ_FIRST(chain(h, hash)); s; s = next) {
		next = TAILQ_NEXT(s, next);
		if (!s->waits || s->hash != hash)
			continue;
		TAILQ_REMOVE(chain(h, hash), s, next);
		s->alone = alone;
		s->woken = true;
		TAILQ_INSERT_TAIL(&h->woken, s, next);
	}
	if (!TAILQ_EMPTY(&h->woken))
		timer_arm(&h->timer, 0);
}

void share_end(struct share *h, struct share_seat *seat, enum share_end how)
{
	if (!seat->dials)
		return;
	seat->dials = false;
	TAILQ_REMOVE(chain(h, seat->hash), seat, next);
	wake(h, seat->hash, how == SHARE_END_OTHER);
}

void share_know(struct share *h, uint64_t hash, bool h2)
{
	h->known[hash & (KNOWN - 1)] = (struct known){
		.hash = hash,
		.until_us = loop_now_us(h->loop) + LIMIT_MS_SHARE_KNOWN * 1000LL,
		.h2 = h2,
	};
}

void share_leave(struct share *h, struct share_seat *seat)
{
	if (seat->waits)
		TAILQ_REMOVE(seat->woken ? &h->woken : chain(h, seat->hash), seat, next);
	seat->waits = seat->woken = false;
}

uint64_t share_left_ms(const struct share *h, const struct share_seat *seat)
{
	const struct known *k = known(h, seat->hash);
	int64_t most = k && k->h2 ? LIMIT_MS_SHARE : LIMIT_MS_SHARE_UNKNOWN;
	int64_t waited = (loop_now_us(h->loop) - seat->since_us) / 1000;

	return waited < most ? (uint64_t)(most - waited) : 0;
}
