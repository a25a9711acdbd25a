/*
 * Text that grows up to a bound given at birth. Past the bound it stops taking bytes and says so
 * (`overflowed`): it never grows beyond, and never fails in the middle of a caller's work. The data
 * is always NUL-terminated (the terminator is not counted).
 */
#ifndef STILE_LOGGING_STRBUF_H
#define STILE_LOGGING_STRBUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "logging/attrs.h"
#include "logging/str.h"

struct strbuf {
	/* owned */
	char *data; /* NULL until the first byte */
	/* plain */
	size_t len;
	size_t cap;
	size_t max;
	bool overflowed; /* a byte was dropped: bound reached or memory out */
};

static inline void strbuf_init(struct strbuf *b, size_t max)
{
	/* One less than all there is, so that max + 1 (the terminator) does not wrap. */
	*b = (struct strbuf){.max = max < SIZE_MAX / 2 ? max : SIZE_MAX / 2};
}

/* Over memory of the caller's (size > 0) that never grows: up to size - 1 bytes. It must not be
 * cleared, wiped or taken. */
void strbuf_init_fixed(struct strbuf *b, char *mem, size_t size);
void strbuf_free_memory(struct strbuf *b); /* for strbuf_clear alone */
void strbuf_wipe_memory(struct strbuf *b); /* for strbuf_wipe alone */

/* Frees; the buffer may be used again with the same max. */
static inline void strbuf_clear(struct strbuf *b)
{
	if (b->data)
		strbuf_free_memory(b);
	b->len = 0;
	b->overflowed = false;
}

/* strbuf_clear after OPENSSL_cleanse-like wiping. */
static inline void strbuf_wipe(struct strbuf *b)
{
	if (b->data)
		strbuf_wipe_memory(b);
	b->len = 0;
	b->overflowed = false;
}

void strbuf_reset(struct strbuf *b); /* empties, keeps the memory */

/* Room for n more bytes, for a caller that writes them itself and then adds them to len and sets
 * the terminator; NULL if there is none (nothing is marked then). Valid until the next change. */
char *strbuf_reserve(struct strbuf *b, size_t n);

/* The same where the memory is there already, without a call; NULL says nothing of strbuf_reserve.
 */
static inline char *strbuf_room(const struct strbuf *b, size_t n)
{
	if (b->overflowed || n >= b->cap - b->len || n > b->max - b->len)
		return NULL;
	return b->data + b->len;
}

void strbuf_add_slowly(struct strbuf *b, struct str s); /* for strbuf_add alone */

/* The common case, memory that is there, without a call: a head or a record is many small pieces.
 */
static inline void strbuf_add(struct strbuf *b, struct str s)
{
	char *p = strbuf_room(b, s.n);

	if (s.n == 0)
		return;
	if (!p) {
		strbuf_add_slowly(b, s);
		return;
	}
	memcpy(p, s.p, s.n);
	p[s.n] = '\0';
	b->len += s.n;
}

static inline void strbuf_addc(struct strbuf *b, char c)
{
	strbuf_add(b, str_from(&c, 1));
}

static inline void strbuf_adds(struct strbuf *b, const char *c)
{
	strbuf_add(b, str_from_c(c));
}

void strbuf_addu(struct strbuf *b, unsigned long long n); /* decimal */
void strbuf_addf(struct strbuf *b, const char *fmt, ...) ATTR_PRINTF(2, 3);
void strbuf_vaddf(struct strbuf *b, const char *fmt, va_list ap);
/* Adds s for human eyes: control characters, DEL, invalid UTF-8, C1, bidi controls and line
 * separators as \xNN or \uNNNN, so that nothing reaches a terminal that could move its cursor. */
void strbuf_add_printable(struct strbuf *b, struct str s);

static inline struct str strbuf_str(const struct strbuf *b)
{
	return str_from(b->data, b->len);
}

const char *strbuf_cstr(const struct strbuf *b); /* "" when empty; valid until the next change */
/* Hands the memory over: the caller frees the result. NULL if nothing was ever added or on
 * overflow. The buffer is empty afterwards. */
char *strbuf_take(struct strbuf *b);

#endif
