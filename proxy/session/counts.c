/*
 * See counts.h. A number is loaded and stored whole, so that no lock is needed: its thread is the
 * only one to write it.
 */
#include "proxy/session/counts.h"

static void add(uint64_t *to, uint64_t n)
{
	__atomic_store_n(to, __atomic_load_n(to, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

void counts_note(struct counts *c, const struct record *r)
{
	add(&c->events[r->event], 1);
	if (r->event == RECORD_REQUEST_DENY)
		add(&c->requests_denied[r->reason], 1);
	else if (r->event == RECORD_TUNNEL_DENY)
		add(&c->tunnels_denied[r->reason], 1);
	if (r->event != RECORD_REQUEST_END && r->event != RECORD_TUNNEL_END)
		return;
	if (r->error.n > 0)
		add(&c->failed[reason_from_word(r->error)], 1);
	if (r->has_bytes) {
		add(&c->bytes_out, r->bytes_out);
		add(&c->bytes_in, r->bytes_in);
	}
}

static void add_all(uint64_t *sum, const uint64_t *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum[i] += __atomic_load_n(&v[i], __ATOMIC_RELAXED);
}

void counts_add(struct counts *sum, const struct counts *c)
{
	add_all(sum->events, c->events, RECORD_EVENTS);
	add_all(sum->requests_denied, c->requests_denied, REASON_COUNT);
	add_all(sum->tunnels_denied, c->tunnels_denied, REASON_COUNT);
	add_all(sum->failed, c->failed, REASON_COUNT);
	add_all(&sum->bytes_out, &c->bytes_out, 1);
	add_all(&sum->bytes_in, &c->bytes_in, 1);
}
