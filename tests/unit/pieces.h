/*
 * Texts put together at random, the same ones in every run: what the tests that compare two readers
 * feed them with.
 */
#ifndef STILE_TESTS_UNIT_PIECES_H
#define STILE_TESTS_UNIT_PIECES_H

#include <stddef.h>
#include <stdint.h>

static uint64_t seed; /* set by each test */

static inline size_t below(size_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (size_t)(seed >> 33) % n;
}

static inline const char *pick(const char *const *words, size_t n)
{
	return words[below(n)];
}
#define PICK(...)                                                                                  \
	pick((const char *const[]){__VA_ARGS__},                                                   \
	     sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

#endif
