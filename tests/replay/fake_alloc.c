/*
 * Counts the product's allocations and lets the n-th one fail (the linker's --wrap sends them
 * here), and holds the fakes' own memory, which never fails.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "tests/replay/fake.h"

struct fake_memory fake_memory;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static bool fails(void)
{
	if (fake_memory.paused)
		return false;
	fake_memory.count++;
	if (fake_memory.fail_at == 0 ||
	    (fake_memory.fail_on ? fake_memory.count < fake_memory.fail_at
				 : fake_memory.count != fake_memory.fail_at))
		return false;
	errno = ENOMEM;
	return true;
}

static void *born(void *p)
{
	if (p) {
		fake_memory.live++;
		fake_memory.bytes += malloc_usable_size(p);
	}
	return p;
}

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : born(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : born(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
	size_t before = p ? malloc_usable_size(p) : 0;
	void *r;

	if (fails())
		return NULL;
	r = __real_realloc(p, n);
	if (!p)
		return born(r);
	if (r)
		fake_memory.bytes += malloc_usable_size(r) - before;
	return r;
}

char *__wrap_strdup(const char *s)
{
	size_t n = strlen(s) + 1;
	char *r = __wrap_malloc(n);

	return r ? memcpy(r, s, n) : NULL;
}

void __wrap_free(void *p)
{
	if (p) {
		fake_memory.live--;
		fake_memory.bytes -= malloc_usable_size(p);
	}
	__real_free(p);
}

/* ---- the fakes' own ---- */

void *fake_calloc(size_t n)
{
	void *p = __real_calloc(1, n);

	if (!p)
		abort();
	return p;
}

void fake_free(void *p)
{
	__real_free(p);
}

void bytes_add(struct bytes *b, const void *p, size_t n)
{
	if (n == 0)
		return;
	if (b->n + n > b->cap) {
		b->cap = (b->n + n) * 2;
		b->p = __real_realloc(b->p, b->cap);
		if (!b->p)
			abort();
	}
	memcpy(b->p + b->n, p, n);
	b->n += n;
}

void bytes_drop(struct bytes *b, size_t n)
{
	if (n > b->n)
		n = b->n;
	if (n > 0)
		memmove(b->p, b->p + n, b->n - n);
	b->n -= n;
}

void bytes_clear(struct bytes *b)
{
	__real_free(b->p);
	*b = (struct bytes){0};
}

struct str bytes_str(const struct bytes *b)
{
	return str_from(b->p, b->n);
}
