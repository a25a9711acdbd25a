/*
 * The id of a request: time and randomness as text. Each record of a request bears it, and so does
 * an answer of the proxy's own. The session layer calls it.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "logging/record.h"

#define HALF	  10 /* characters of the time, and of the randomness */
#define LATEST	  3  /* of the time, that change within half a minute */
#define CHAR_BITS 5

/* Random bytes of this thread, fetched many at a time so that an id costs no system call. */
static uint64_t random_bits(void)
{
	static _Thread_local uint64_t pool[32]; /* 256 bytes: never interrupted, random(4) */
	static _Thread_local size_t left;
	struct timespec t;

	if (left == 0) {
		ssize_t n;

		do
			n = getrandom(pool, sizeof(pool), 0);
		while (n < 0 && errno == EINTR);
		/* An id must differ; it need not be secret. */
		if (n != (ssize_t)sizeof(pool)) {
			clock_gettime(CLOCK_MONOTONIC, &t);
			return (uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15U ^ (uintptr_t)pool;
		}
		left = ARRAY_LEN(pool);
	}
	return pool[--left];
}

/* n characters of five bits, the most significant first, so that ids sort as their numbers do. */
static ATTR_INLINE void put_base32(char *out, uint64_t v, unsigned n)
{
#pragma GCC unroll 10
	for (unsigned i = n; i-- > 0; v >>= CHAR_BITS)
		out[i] = "0123456789abcdefghjkmnpqrstvwxyz"[v & 31];
}

/* All of the time but its latest characters is kept from the last call. */
static ATTR_INLINE void put_time(char out[HALF], uint64_t ms)
{
	static _Thread_local uint64_t cached;
	static _Thread_local char text[HALF - LATEST] = {'0', '0', '0', '0', '0', '0', '0'};
	uint64_t early = ms >> LATEST * CHAR_BITS;

	if (early != cached) {
		cached = early;
		put_base32(text, early, HALF - LATEST);
	}
	memcpy(out, text, sizeof(text));
	put_base32(out + HALF - LATEST, ms, LATEST);
}

void record_new_id(char ret_id[RECORD_ID_LEN + 1])
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	put_time(ret_id, (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
	put_base32(ret_id + HALF, random_bits(), HALF);
	ret_id[RECORD_ID_LEN] = '\0';
}
