/*
 * Bounded growing text. It grows by doubling and wipes what it leaves behind, because any text may
 * turn out to have carried a secret. It never fails aloud: a dropped byte sets `overflowed`, and
 * from then on nothing more is taken, so that a text has no holes. Every layer calls it.
 */
#include "logging/strbuf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "logging/digits.h"
#include "logging/utf8.h"

#define FIRST_CAP 128

void strbuf_init_fixed(struct strbuf *b, char *mem, size_t size)
{
	/* With cap == max + 1 there is never a reason to grow. */
	*b = (struct strbuf){.data = mem, .cap = size, .max = size - 1};
	mem[0] = '\0';
}

void strbuf_free_memory(struct strbuf *b)
{
	free(b->data);
	b->data = NULL;
	b->cap = 0;
}

void strbuf_wipe_memory(struct strbuf *b)
{
	explicit_bzero(b->data, b->cap);
	strbuf_free_memory(b);
}

void strbuf_reset(struct strbuf *b)
{
	b->len = 0;
	b->overflowed = false;
	if (b->data)
		b->data[0] = '\0';
}

/* Memory for `need` bytes and the terminator. Not realloc: it could leave a copy of a secret in the
 * heap. */
static bool grow(struct strbuf *b, size_t need)
{
	size_t cap = b->cap ? b->cap : FIRST_CAP;
	char *data;

	while (cap < need + 1)
		cap *= 2;
	if (cap > b->max + 1)
		cap = b->max + 1;
	data = malloc(cap);
	if (!data)
		return false;
	if (b->data) {
		memcpy(data, b->data, b->len);
		explicit_bzero(b->data, b->len);
		free(b->data);
	}
	data[b->len] = '\0';
	b->data = data;
	b->cap = cap;
	return true;
}

char *strbuf_reserve(struct strbuf *b, size_t n)
{
	if (b->overflowed || n > b->max - b->len)
		return NULL;
	if (n >= b->cap - b->len && !grow(b, b->len + n))
		return NULL;
	return b->data + b->len;
}

/* How many of n bytes there is room for, with the memory at hand; marks the overflow if fewer. */
static size_t make_room(struct strbuf *b, size_t n)
{
	size_t fits = n;

	if (b->overflowed)
		return 0;
	if (n > b->max - b->len) {
		fits = b->max - b->len;
		b->overflowed = true;
	}
	if (b->len + fits + 1 > b->cap && !grow(b, b->len + fits)) {
		b->overflowed = true;
		return 0;
	}
	return fits;
}

void strbuf_add_slowly(struct strbuf *b, struct str s)
{
	size_t n = make_room(b, s.n);

	if (n == 0 || !b->data)
		return;
	memcpy(b->data + b->len, s.p, n);
	b->len += n;
	b->data[b->len] = '\0';
}

const char digits_pairs[201] = "00010203040506070809101112131415161718192021222324252627282930"
			       "31323334353637383940414243444546474849505152535455565758596061"
			       "62636465666768697071727374757677787980818283848586878889909192"
			       "93949596979899";

/* n < 10000 as exactly four digits. */
static void put_four(char *out, unsigned n)
{
	digits_put_pair(out, n / 100);
	digits_put_pair(out + 2, n % 100);
}

static size_t put_upto_four(char *out, unsigned n)
{
	size_t head;

	if (n < 100)
		return digits_put(out, n);
	head = digits_put(out, n / 100);
	digits_put_pair(out + head, n % 100);
	return head + 2;
}

/* n < 10^8. */
static size_t put_upto_eight(char *out, unsigned n)
{
	size_t head;

	if (n < 10000)
		return put_upto_four(out, n);
	head = put_upto_four(out, n / 10000);
	put_four(out + head, n % 10000);
	return head + 4;
}

/* 100 <= n < 100000: a port, a status. */
static ATTR_INLINE size_t put_three_to_five(char *out, unsigned n)
{
	unsigned high = n / 100, low = n % 100, top;

	if (high < 10) {
		*out = (char)('0' + high);
		digits_put_pair(out + 1, low);
		return 3;
	}
	if (high < 100) {
		digits_put_pair(out, high);
		digits_put_pair(out + 2, low);
		return 4;
	}
	top = high / 100;
	*out = (char)('0' + top);
	digits_put_pair(out + 1, high - 100 * top);
	digits_put_pair(out + 3, low);
	return 5;
}

size_t digits_put_long(char *out, uint64_t n)
{
	unsigned low;
	size_t head;

	if (n < 100000)
		return put_three_to_five(out, (unsigned)n);

	if (n < 100000000)
		return put_upto_eight(out, (unsigned)n);
	head = digits_put(out, n / 100000000);
	low = (unsigned)(n % 100000000);
	put_four(out + head, low / 10000);
	put_four(out + head + 4, low % 10000);
	return head + 8;
}

static ATTR_NOINLINE void addu_slowly(struct strbuf *b, uint64_t n)
{
	char digits[DIGITS_MAX];

	strbuf_add(b, str_from(digits, digits_put(digits, n)));
}

void strbuf_addu(struct strbuf *b, unsigned long long n)
{
	char *p = strbuf_room(b, DIGITS_MAX);

	if (!p) {
		addu_slowly(b, n);
		return;
	}
	b->len += digits_put(p, n);
	b->data[b->len] = '\0';
}

void strbuf_addf(struct strbuf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	strbuf_vaddf(b, fmt, ap);
	va_end(ap);
}

void strbuf_vaddf(struct strbuf *b, const char *fmt, va_list ap)
{
	va_list again;
	char first[256];
	int want;
	size_t n;

	va_copy(again, ap);
	want = vsnprintf(first, sizeof(first), fmt, ap);
	if (want < 0) {
		b->overflowed = true;
	} else if ((size_t)want < sizeof(first)) {
		strbuf_add(b, str_from(first, (size_t)want));
	} else {
		n = make_room(b, (size_t)want);
		if (n) {
			vsnprintf(b->data + b->len, n + 1, fmt, again);
			b->len += n;
		}
	}
	va_end(again);
}

void strbuf_add_printable(struct strbuf *b, struct str s)
{
	while (s.n) {
		size_t clean = utf8_clean(s);
		char one[UTF8_ESCAPE_MAX];
		size_t n;

		strbuf_add(b, str_head(s, clean));
		s = str_skip(s, clean);
		if (s.n == 0)
			break;
		s = str_skip(s, utf8_escape_one(s, one, &n));
		strbuf_add(b, str_from(one, n));
	}
}

const char *strbuf_cstr(const struct strbuf *b)
{
	return b->data ? b->data : "";
}

char *strbuf_take(struct strbuf *b)
{
	char *data = b->data;

	if (b->overflowed || !data) {
		strbuf_wipe(b);
		return NULL;
	}
	strbuf_init(b, b->max);
	return data;
}
