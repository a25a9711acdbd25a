/*
 * Memory for short texts that live no longer than a request: the heads on their way and what both
 * records say alike. Most fit into one block, which is lent from here and comes back, so that a
 * request neither grows a text by doubling nor asks the allocator for it. A text that grew beyond
 * it is freed as any other.
 */
#ifndef STILE_PROXY_SESSION_SPARE_TEXT_H
#define STILE_PROXY_SESSION_SPARE_TEXT_H

#include <stdlib.h>

#include "logging/strbuf.h"

#define SPARE_TEXT_BYTES 2048
#define SPARE_TEXT_MAX	 48
#define SPARE_TEXT_SLACK 128

/* One a worker. Of an address sanitizer's build it stays empty. */
struct spare_texts {
	/* owned */
	char *v[SPARE_TEXT_MAX]; /* SPARE_TEXT_BYTES each */
	/* plain */
	size_t n;
};

/* Memory for b, where it has none: its bound is no smaller than a block. Without memory b stays as
 * it is, and is asked for in vain by whoever writes. */
static inline void spare_text_lend(struct spare_texts *t, struct strbuf *b)
{
	if (b->data || HAS_ADDRESS_SANITIZER)
		return;
	b->data = t->n > 0 ? t->v[--t->n] : malloc(SPARE_TEXT_BYTES);
	if (!b->data)
		return;
	b->cap = SPARE_TEXT_BYTES;
	b->data[0] = '\0';
}

/* strbuf_clear, whose memory is kept. */
static inline void spare_text_return(struct spare_texts *t, struct strbuf *b)
{
	if (b->cap == SPARE_TEXT_BYTES && t->n < SPARE_TEXT_MAX && !HAS_ADDRESS_SANITIZER) {
		t->v[t->n++] = b->data;
		strbuf_init(b, b->max);
	} else if (b->data || b->overflowed) {
		strbuf_clear(b);
	}
}

/* strbuf_wipe, whose memory is kept. Of most blocks little was written to: all of it, and as much
 * behind it as may be written before it is counted, is wiped. */
static inline void spare_text_wipe(struct spare_texts *t, struct strbuf *b)
{
	size_t n = b->cap - b->len > SPARE_TEXT_SLACK ? b->len + SPARE_TEXT_SLACK : b->cap;

	if (b->data)
		explicit_bzero(b->data, n);
	spare_text_return(t, b);
}

static inline void spare_texts_free(struct spare_texts *t)
{
	while (t->n > 0)
		free(t->v[--t->n]);
}

#endif
