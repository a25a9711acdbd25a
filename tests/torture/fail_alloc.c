/*
 * The allocations of fail.h: malloc and its kin, as a preloaded object of its own, since under a
 * sanitizer it must stand before the sanitizer's library, and fail.c behind it. An allocation is
 * told by whose code asks for it and by its call stack, which is the same in every process and in
 * every round; the n-th one of all is not.
 */
#include "tests/torture/fail.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CALLER __builtin_return_address(0)
#define DEPTH  24 /* of a stack that is told from others */

/* glibc's own names, and the sanitizer's where one is loaded. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
__attribute__((weak)) void *__interceptor_malloc(size_t n);
__attribute__((weak)) void *__interceptor_calloc(size_t n, size_t size);
__attribute__((weak)) void *__interceptor_realloc(void *p, size_t n);
__attribute__((weak)) void *__interceptor_memalign(size_t align, size_t n);

__attribute__((weak)) extern struct fail_control *fail_control_at; /* fail.c */
__attribute__((weak)) void fail_note(void *caller);

static __thread int inside __attribute__((tls_model("initial-exec")));

/* backtrace loads a library when it is called first. */
__attribute__((constructor)) static void begin(void)
{
	void *frames[2];

	inside++;
	(void)backtrace(frames, 2);
	inside--;
}

/* Whose code it is; none: the loader's, the sanitizer's, ours. */
static enum fail_kind kind_of(void *caller)
{
	static const char *const names[KINDS_N] = {
		[KIND_libc] = "/libc.so",	    [KIND_libssl] = "/libssl.so",
		[KIND_libcrypto] = "/libcrypto.so", [KIND_libcares] = "/libcares.so",
		[KIND_libevent] = "/libevent",	    [KIND_libnghttp2] = "/libnghttp2.so",
		[KIND_libjansson] = "/libjansson.", [KIND_libyaml] = "/libyaml-",
	};
	struct dl_find_object found;

	if (_dl_find_object(caller, &found) < 0)
		return KIND_none;
	if (!found.dlfo_link_map->l_name[0])
		return KIND_stile;
	for (int i = 0; i < KINDS_N; i++)
		if (names[i] && strstr(found.dlfo_link_map->l_name, names[i]))
			return (enum fail_kind)i;
	return KIND_none;
}

static uint64_t mix(uint64_t hash, uint64_t at)
{
	hash = (hash ^ at) * 1099511628211ull;
	return hash ^ hash >> 29;
}

/* From the caller outwards, by places within the objects; see struct fail_stack. */
static uint64_t hash_stack(void *caller, uint64_t *ret_place)
{
	void *frames[DEPTH + 4];
	struct dl_find_object found;
	uint64_t hash = 14695981039346656037ull, at;
	int n = backtrace(frames, DEPTH + 4), from = 0;

	*ret_place = hash;
	while (from < n && frames[from] != caller)
		from++;
	for (int i = from; i < n && i < from + DEPTH; i++) {
		if (_dl_find_object(frames[i], &found) < 0)
			continue;
		at = (uint64_t)((uintptr_t)frames[i] - (uintptr_t)found.dlfo_map_start);
		hash = mix(hash, at);
		if (!found.dlfo_link_map->l_name[0])
			*ret_place = mix(*ret_place, at);
	}
	return hash ? hash : 1;
}

/* Two threads may lose a count between them. */
static void tell_stack(enum fail_kind kind, void *caller)
{
	uint64_t place, hash = hash_stack(caller, &place);

	for (uint64_t i = 0; i < FAIL_STACKS_N; i++) {
		struct fail_stack *s = &fail_control_at->stacks[(hash + i) % FAIL_STACKS_N];
		uint64_t free_one = 0;

		if (s->hash == hash ||
		    __atomic_compare_exchange_n(&s->hash, &free_one, hash, false, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST)) {
			s->count++;
			s->kind = kind;
			s->place = place;
			return;
		}
	}
}

static bool is_the_one(void *caller)
{
	struct fail_control *c = fail_control_at;
	enum fail_kind kind = kind_of(caller);
	uint32_t at = __atomic_load_n(&c->at, __ATOMIC_SEQ_CST);
	uint64_t place;

	if (kind == KIND_none)
		return false;
	__atomic_add_fetch(&c->counts[FAIL_alloc][kind], 1, __ATOMIC_SEQ_CST);
	if (c->tell_stacks)
		tell_stack(kind, caller);
	if (at == 0 || c->function != FAIL_alloc)
		return false;
	if (c->fired && c->and_on)
		return true;
	if (c->fired || c->kind != kind)
		return false;
	if (hash_stack(caller, &place) != c->stack ||
	    __atomic_add_fetch(&c->seen, 1, __ATOMIC_SEQ_CST) != at)
		return false;
	if (__atomic_fetch_add(&c->fired, 1, __ATOMIC_SEQ_CST) == 0)
		fail_note(caller);
	return true;
}

static bool fails(void *caller)
{
	int saved = errno;
	bool is;

	if (!&fail_control_at || !fail_control_at || inside)
		return false;
	inside++;
	is = is_the_one(caller);
	inside--;
	errno = is ? ENOMEM : saved;
	return is;
}

void *malloc(size_t n)
{
	if (fails(CALLER))
		return NULL;
	return __interceptor_malloc ? __interceptor_malloc(n) : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	if (fails(CALLER))
		return NULL;
	return __interceptor_calloc ? __interceptor_calloc(n, size) : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	if (n > 0 && fails(CALLER))
		return NULL;
	return __interceptor_realloc ? __interceptor_realloc(p, n) : __libc_realloc(p, n);
}

static void *aligned(size_t align, size_t n)
{
	return __interceptor_memalign ? __interceptor_memalign(align, n)
				      : __libc_memalign(align, n);
}

void *aligned_alloc(size_t align, size_t n)
{
	return fails(CALLER) ? NULL : aligned(align, n);
}

int posix_memalign(void **ret, size_t align, size_t n)
{
	void *p = fails(CALLER) ? NULL : aligned(align, n);

	if (!p)
		return ENOMEM;
	*ret = p;
	return 0;
}
