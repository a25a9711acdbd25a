/*
 * See tls_mem.h. Otherwise these do what OpenSSL's own do, which are malloc, realloc and free; as
 * last calls, so that a trace of allocations (tests/torture) finds whose each one is.
 */
#include "certs/tls_mem.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

static _Thread_local bool wiping;

static void *mem_alloc(size_t n, const char *file, int line)
{
	(void)file;
	(void)line;
	return n > 0 ? malloc(n) : NULL;
}

static void mem_free(void *p, const char *file, int line)
{
	(void)file;
	(void)line;
	if (p && wiping)
		OPENSSL_cleanse(p, malloc_usable_size(p));
	free(p);
}

static void *mem_realloc(void *p, size_t n, const char *file, int line)
{
	size_t had;
	void *fresh;

	if (!p)
		return mem_alloc(n, file, line);
	if (n == 0) {
		mem_free(p, file, line);
		return NULL;
	}
	if (!wiping)
		return realloc(p, n);
	fresh = malloc(n);
	if (!fresh)
		return NULL;
	had = malloc_usable_size(p);
	memcpy(fresh, p, had < n ? had : n);
	mem_free(p, file, line);
	return fresh;
}

void tls_mem_install(void)
{
	/* Fails when OpenSSL has memory already. */
	(void)CRYPTO_set_mem_functions(mem_alloc, mem_realloc, mem_free);
}

void tls_mem_wipe(bool on)
{
	wiping = on;
}
