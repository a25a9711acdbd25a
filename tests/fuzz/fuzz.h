/*
 * What the fuzz targets share: a check that ends the run, bytes taken off the input, a generator
 * whose choices follow from the input alone (so that a seed file can stay readable text), and
 * copies that end where their memory ends, so that a read past the end is seen.
 */
#ifndef STILE_TESTS_FUZZ_FUZZ_H
#define STILE_TESTS_FUZZ_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "logging/err.h"
#include "logging/str.h"
#include "logging/strbuf.h"
#include "logging/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			(void)fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__,    \
				      #cond);                                                      \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* ---- choices ---- */

struct fuzz_random {
	uint64_t state;
};

/* FNV-1a over the input: each mutation makes other choices, the same input always the same. */
static inline struct fuzz_random fuzz_random(const uint8_t *data, size_t size)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < size; i++)
		h = (h ^ data[i]) * 0x100000001b3u;
	return (struct fuzz_random){h};
}

/* 0 to n - 1 (n > 0); splitmix64. */
static inline size_t fuzz_pick(struct fuzz_random *r, size_t n)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (size_t)((z ^ (z >> 31)) % n);
}

/* How many bytes come next, of left > 0: mostly few, at times all. */
static inline size_t fuzz_piece(struct fuzz_random *r, size_t left)
{
	static const size_t most[] = {1, 2, 5, 17, 300, 1 << 20};
	size_t n = 1 + fuzz_pick(r, most[fuzz_pick(r, ARRAY_LEN(most))]);

	return n < left ? n : left;
}

/* ---- input ---- */

static inline unsigned fuzz_u8(struct str *in)
{
	unsigned c = in->n > 0 ? (unsigned char)in->p[0] : 0;

	*in = str_skip(*in, 1);
	return c;
}

/* A copy in memory of its own size; free() it. */
static inline char *fuzz_copy(struct str s)
{
	char *copy = malloc(s.n ? s.n : 1);

	CHECK(copy);
	if (s.n)
		memcpy(copy, s.p, s.n);
	return copy;
}

/* ---- what every failure and every text must be ---- */

/* A failure says why, in text that can be shown. */
static inline void fuzz_check_err(const struct err *e)
{
	struct str text = str_from_c(e->text);

	CHECK(text.n > 0);
	CHECK(utf8_clean(text) == text.n);
}

static inline void fuzz_check_same(const struct strbuf *a, const struct strbuf *b)
{
	if (str_eq(strbuf_str(a), strbuf_str(b)))
		return;
	(void)fprintf(stderr, "not the same:\n%s\n%s\n", strbuf_cstr(a), strbuf_cstr(b));
	abort();
}

#endif
