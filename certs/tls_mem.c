/*
 * See tls_mem.h. Otherwise these do what OpenSSL's own do, which are malloc, realloc and free; as
 * last calls, so that a trace of allocations (tests/torture) finds whose each one is.
 */
#include "certs/tls_mem.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "logging/attrs.h"

/* A record's buffer: 16 KiB and what stands around them. Connections give theirs back whenever they
 * are empty (SSL_MODE_RELEASE_BUFFERS), so each request takes and gives back four, which are beyond
 * what glibc keeps for a thread: it would split and join them each time. Not where use after free
 * is looked for. */
#define RECORD_MIN   16384
#define RECORD_BYTES 17408
#define RECORD_ALIGN 256
#define SPARES_MAX   4

static _Thread_local bool wiping;
static _Thread_local void *spares[SPARES_MAX];
static _Thread_local unsigned spares_n;

static void *mem_alloc(size_t n, const char *file, int line)
{
	(void)file;
	(void)line;
	if (n > RECORD_MIN && n <= RECORD_BYTES)
		return spares_n > 0 ? spares[--spares_n]
				    : aligned_alloc(RECORD_ALIGN, RECORD_BYTES);
	return n > 0 ? malloc(n) : NULL;
}

/* Whether p is now kept. What is a little larger than it must be is as good. A handshake gives back
 * 600 pieces, of which few lie as the buffers do: the others' size is not asked for. */
static bool keep_spare(void *p)
{
	size_t n;

	if ((uintptr_t)p % RECORD_ALIGN != 0)
		return false;
	n = malloc_usable_size(p);
	if (HAS_ADDRESS_SANITIZER || n < RECORD_BYTES || n >= RECORD_BYTES + 64 ||
	    spares_n == SPARES_MAX)
		return false;
	spares[spares_n++] = p;
	return true;
}

static void mem_free(void *p, const char *file, int line)
{
	(void)file;
	(void)line;
	if (p && wiping)
		OPENSSL_cleanse(p, malloc_usable_size(p));
	if (p && keep_spare(p))
		return;
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
