/*
 * See h2_flood.h.
 */
#include "proxy/http/h2_flood.h"

#include <string.h>

#include "logging/limits.h"

#define CONTROL_COST (1000000 / LIMIT_H2_CONTROL_PER_S)
#define WINDOW_COST  (1000000 / LIMIT_H2_WINDOWS_PER_S)

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

void h2_flood_init(struct h2_flood *f)
{
	*f = (struct h2_flood){.padding = LIMIT_H2_PADDING, .stray = LIMIT_H2_STRAY};
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

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

bool h2_flood_padding(struct h2_flood *f, size_t data, size_t padding)
{
	f->padding =
		least(f->padding + LIMIT_H2_PADDING_PER_BYTE * (int64_t)data, LIMIT_H2_PADDING) -
		(int64_t)padding;
	return f->padding >= 0;
}

bool h2_flood_stray(struct h2_flood *f, size_t bytes)
{
	/* A frame of nothing has its price too. */
	f->stray -= (int64_t)bytes + 64;
	return f->stray >= 0;
}

void h2_flood_sent_data(struct h2_flood *f, bool cut)
{
	if (cut)
		return;
	f->windows.at_us -= LIMIT_H2_WINDOWS_PER_DATA * WINDOW_COST;
	f->control.at_us -= CONTROL_COST;
}

void h2_flood_opened(struct h2_flood *f)
{
	f->control.at_us -= CONTROL_COST;
}

void h2_flood_sent_reset(struct h2_flood *f, int32_t stream)
{
	f->reset[f->reset_at++ % H2_RESETS_KEPT] = stream;
	/* A window's worth, in small frames. */
	f->stray = least(f->stray + 4 * LIMIT_H2_STREAM_WINDOW,
			 (int64_t)LIMIT_H2_STREAMS * 4 * LIMIT_H2_STREAM_WINDOW);
}

bool h2_flood_was_reset(const struct h2_flood *f, int32_t stream)
{
	for (size_t i = 0; i < H2_RESETS_KEPT; i++)
		if (f->reset[i] == stream)
			return true;
	return false;
}

/* ---- where frames begin ---- */

static void read_head(struct h2_frames *f)
{
	const unsigned char *h = f->head;

	f->length = (uint32_t)h[0] << 16 | (uint32_t)h[1] << 8 | h[2];
	f->type = h[3];
	f->flags = h[4];
	f->stream = (int32_t)((uint32_t)(h[5] & 0x7f) << 24 | (uint32_t)h[6] << 16 |
			      (uint32_t)h[7] << 8 | h[8]);
	f->left = f->length;
	f->head_n = 0;
}

size_t h2_frames_next(struct h2_frames *f, struct str in, bool *ret_begins)
{
	size_t n = 0, more;

	*ret_begins = false;
	if (f->preface > 0) {
		n = in.n < f->preface ? in.n : f->preface;
		f->preface -= n;
		return n;
	}
	if (f->left == 0) {
		n = H2_FRAME_HEAD - f->head_n < in.n ? H2_FRAME_HEAD - f->head_n : in.n;
		memcpy(f->head + f->head_n, in.p, n);
		f->head_n += n;
		if (f->head_n < H2_FRAME_HEAD)
			return n;
		read_head(f);
		*ret_begins = true;
	}
	more = in.n - n < f->left ? in.n - n : f->left;
	f->left -= (uint32_t)more;
	return n + more;
}
