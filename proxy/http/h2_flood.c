/*
 * See h2_flood.h.
 */
#include "proxy/http/h2_flood.h"

#include "logging/limits.h"

static bool take(struct h2_bucket *b, int64_t now_us, int64_t burst, int64_t per_second)
{
	int64_t cost = 1000000 / per_second;

	if (b->at_us < now_us)
		b->at_us = now_us;
	if (b->at_us - now_us > burst * cost)
		return false;
	b->at_us += cost;
	return true;
}

bool h2_flood_control(struct h2_flood *f, int64_t now_us)
{
	return take(&f->control, now_us, LIMIT_H2_CONTROL, LIMIT_H2_CONTROL_PER_S);
}

bool h2_flood_reset(struct h2_flood *f, int64_t now_us)
{
	return take(&f->resets, now_us, LIMIT_H2_RESETS, LIMIT_H2_RESETS_PER_S);
}

bool h2_flood_window(struct h2_flood *f, int64_t now_us)
{
	return take(&f->windows, now_us, LIMIT_H2_WINDOWS, LIMIT_H2_WINDOWS_PER_S);
}

bool h2_flood_frame(struct h2_flood *f, bool is_continuation)
{
	f->continuations = is_continuation ? f->continuations + 1 : 0;
	return f->continuations <= LIMIT_H2_CONTINUATIONS;
}

void h2_flood_head(struct h2_flood *f)
{
	f->head_bytes = 0;
}

bool h2_flood_field(struct h2_flood *f, size_t bytes)
{
	f->head_bytes += bytes;
	return f->head_bytes <= LIMIT_H2_HEAD_DECODED;
}

void h2_flood_pay(struct h2_flood *f)
{
	f->windows.at_us -= LIMIT_H2_WINDOWS_PER_DATA * (1000000 / LIMIT_H2_WINDOWS_PER_S);
}
