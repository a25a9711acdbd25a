/*
 * What a peer may make an HTTP/2 connection do, as counters: rates with bursts, and what a head may
 * cost (LIMIT_H2_...). It knows no frame's meaning and ends nothing; h2_conn.c asks it, and ends
 * the connection at a no.
 */
#ifndef STILE_PROXY_HTTP_H2_FLOOD_H
#define STILE_PROXY_HTTP_H2_FLOOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A rate with a burst: `at` is when the bucket is full again. */
struct h2_bucket {
	int64_t at_us;
};

struct h2_flood {
	struct h2_bucket resets, control, windows;
	uint64_t head_bytes;	/* of the field section that is arriving, unfolded */
	unsigned continuations; /* in a row */
};

/* Each: one more. False: it is one too many. */
bool h2_flood_control(struct h2_flood *f, int64_t now_us);
bool h2_flood_reset(struct h2_flood *f, int64_t now_us);
bool h2_flood_window(struct h2_flood *f, int64_t now_us);
bool h2_flood_frame(struct h2_flood *f, bool is_continuation);
/* A field of a section, in bytes as SETTINGS_MAX_HEADER_LIST_SIZE counts them. */
void h2_flood_head(struct h2_flood *f); /* a new section */
bool h2_flood_field(struct h2_flood *f, size_t bytes);
/* Who gets data has to say that there is room for more: a DATA frame pays for that. */
void h2_flood_pay(struct h2_flood *f);

#endif
