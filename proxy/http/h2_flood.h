/*
 * What a peer may make an HTTP/2 connection do, as counters: rates with bursts, and what a head may
 * cost (LIMIT_H2_...). And where frames begin, since what is counted must be every frame, not those
 * alone that nghttp2 tells of: it reads past unknown types and closed streams without a word. It
 * ends nothing; h2_conn.c asks it, and ends the connection at a no.
 */
#ifndef STILE_PROXY_HTTP_H2_FLOOD_H
#define STILE_PROXY_HTTP_H2_FLOOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "logging/str.h"

#define H2_FRAME_HEAD 9 /* RFC 9113 section 4.1 */
#define H2_RESETS_KEPT                                                                             \
	256 /* more than streams can be reset before the peer hears of the first of them */

/* A rate with a burst: `at` is when the bucket is full again. */
struct h2_bucket {
	int64_t at_us;
};

struct h2_flood {
	struct h2_bucket resets, control, windows;
	uint64_t head_bytes;	/* of the field section that is arriving, unfolded */
	unsigned continuations; /* in a row */
	int64_t padding;	/* that may still come */
	int64_t stray;		/* of frames for streams that are over, likewise */
	int32_t reset[H2_RESETS_KEPT];
	size_t reset_at;
};

void h2_flood_init(struct h2_flood *f);
/* Each: one more. False: it is one too many. */
bool h2_flood_control(struct h2_flood *f, int64_t now_us);
bool h2_flood_reset(struct h2_flood *f, int64_t now_us);
bool h2_flood_window(struct h2_flood *f, int64_t now_us);
bool h2_flood_frame(struct h2_flood *f, bool is_continuation);
/* A field of a section, in bytes as SETTINGS_MAX_HEADER_LIST_SIZE counts them. */
void h2_flood_head(struct h2_flood *f); /* a new section */
bool h2_flood_field(struct h2_flood *f, size_t bytes);
/* A DATA frame that came: data pays for padding. */
bool h2_flood_padding(struct h2_flood *f, size_t data, size_t padding);
/* A frame of that many bytes for a stream that is over. */
bool h2_flood_stray(struct h2_flood *f, size_t bytes);

/* A DATA frame was sent. Who gets data has to say that there is room for more, and measures the way
 * by PING as often; `cut`: the peer's window left next to nothing of it, and it pays for nothing.
 */
void h2_flood_sent_data(struct h2_flood *f, bool cut);
/* We opened a stream: the peer may reset it. */
void h2_flood_opened(struct h2_flood *f);
/* We reset this stream: what is on its way for it is no fault of the peer's. */
void h2_flood_sent_reset(struct h2_flood *f, int32_t stream);
bool h2_flood_was_reset(const struct h2_flood *f, int32_t stream);

/* Where in the peer's bytes a frame begins. */
struct h2_frames {
	/* plain */
	unsigned char head[H2_FRAME_HEAD];
	size_t head_n;	/* of a frame whose head is still arriving */
	uint32_t left;	/* of the payload */
	size_t preface; /* bytes of it that are still to come */
	/* of the newest frame */
	uint32_t length;
	int32_t stream;
	uint8_t type, flags;
};

/* How many of these bytes (at least one) end with a frame or with `in`. *ret_begins: the head of a
 * frame is whole with them. */
size_t h2_frames_next(struct h2_frames *f, struct str in, bool *ret_begins);

#endif
