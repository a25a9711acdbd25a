/*
 * Included in front of a unit test by `make unit-torture`: what the test itself allocates does not
 * fail, only what it tests.
 */
#ifndef STILE_TESTS_TORTURE_STEADY_H
#define STILE_TESTS_TORTURE_STEADY_H

#include <stdlib.h>
#include <string.h>

void *steady_malloc(size_t n);
void *steady_calloc(size_t n, size_t size);
void *steady_realloc(void *p, size_t n);
char *steady_strdup(const char *s);
#define malloc(n)	steady_malloc(n)
#define calloc(n, size) steady_calloc(n, size)
#define realloc(p, n)	steady_realloc(p, n)
#undef strdup
#define strdup(s) steady_strdup(s)

#endif
