/*
 * malloc and its kin as the program's own, so that libraries get them too, over those of the
 * sanitizer: the n-th allocation fails that is asked for by code under test. See alloc.h.
 */
#include "tests/torture/alloc.h"

#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unwind.h>

#define MODULES_MAX 32
#define DEPTH	    40 /* of a stack that is told from others */

/* The sanitizer's own, behind those below. */
void *__interceptor_malloc(size_t n);
void *__interceptor_calloc(size_t n, size_t size);
void *__interceptor_realloc(void *p, size_t n);
void *steady_malloc(size_t n);
void *steady_calloc(size_t n, size_t size);
void *steady_realloc(void *p, size_t n);
char *steady_strdup(const char *s);
const char *__asan_default_options(void);

struct alloc_control alloc_control;

static struct {
	uintptr_t from, to;
} modules[MODULES_MAX];
static size_t modules_n;
static uintptr_t stack_top; /* of the main thread, or near it */

const char *__asan_default_options(void)
{
	return "exitcode=99:detect_leaks=1:leak_check_at_exit=0:handle_segv=2:handle_abort=2:"
	       "handle_sigbus=2:"
	       "allocator_may_return_null=1:quarantine_size_mb=1";
}

static int note_module(struct dl_phdr_info *info, size_t size, void *arg)
{
	bool wanted = !info->dlpi_name[0];

	(void)size;
	for (const char *const *library = arg; *library; library++)
		wanted = wanted || strstr(info->dlpi_name, *library);
	for (int i = 0; wanted && i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X) || modules_n == MODULES_MAX)
			continue;
		modules[modules_n].from = info->dlpi_addr + p->p_vaddr;
		modules[modules_n].to = modules[modules_n].from + p->p_memsz;
		modules_n++;
	}
	return 0;
}

void alloc_begin(const char *const *libraries)
{
	alloc_control.count = mmap(NULL, sizeof(*alloc_control.count), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (alloc_control.count == MAP_FAILED)
		abort();
	stack_top = (uintptr_t)__builtin_frame_address(0) + 4096;
	dl_iterate_phdr(note_module, (void *)(uintptr_t)libraries);
}

/* ---- where it comes from ---- */

struct walk {
	uint64_t hash;
	int n;
};

static uint64_t mix(uint64_t hash, uint64_t at)
{
	hash = (hash ^ at) * 1099511628211ull;
	return hash ^ hash >> 29;
}

static _Unwind_Reason_Code on_frame(struct _Unwind_Context *context, void *arg)
{
	struct walk *w = arg;

	w->hash = mix(w->hash, (uint64_t)_Unwind_GetIP(context));
	return ++w->n < DEPTH ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/* Our own code has frame pointers, and is by far the most; a library's is unwound. Not part of its
 * caller, which runs before the sanitizer is ready for variables on the stack. */
__attribute__((noinline, no_sanitize("address", "undefined"))) static uint64_t
hash_stack(void *caller, bool is_ours)
{
	uintptr_t *at = __builtin_frame_address(0), *next;
	struct walk w = {14695981039346656037ull, 0};

	if (!is_ours) {
		(void)_Unwind_Backtrace(on_frame, &w);
		return w.hash;
	}
	w.hash = mix(w.hash, (uintptr_t)caller);
	for (int i = 0; i < DEPTH; i++) {
		next = (uintptr_t *)at[0];
		w.hash = mix(w.hash, at[1]);
		if (next <= at || (uintptr_t)next >= stack_top || (uintptr_t)next % 8)
			break;
		at = next;
	}
	return w.hash;
}

static bool is_chosen(unsigned long n, void *caller, bool is_ours)
{
	static __thread bool inside;
	bool is;

	if (inside)
		return false;
	inside = true;
	is = alloc_control.choose(n, hash_stack(caller, is_ours));
	inside = false;
	return is;
}

static bool fails(void *caller)
{
	uintptr_t at = (uintptr_t)caller;
	size_t i = 0;
	unsigned long n;
	bool is;

	if (!alloc_control.counting)
		return false;
	while (i < modules_n && (at < modules[i].from || at >= modules[i].to))
		i++;
	if (i == modules_n)
		return false;
	n = __atomic_add_fetch(alloc_control.count, 1, __ATOMIC_SEQ_CST);
	if (alloc_control.choose)
		is = is_chosen(n, caller, i == 0);
	else
		is = alloc_control.fail_at && (alloc_control.fail_on ? n >= alloc_control.fail_at
								     : n == alloc_control.fail_at);
	if (is)
		errno = ENOMEM;
	return is;
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t n)
{
	return fails(CALLER) ? NULL : __interceptor_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return fails(CALLER) ? NULL : __interceptor_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return fails(CALLER) ? NULL : __interceptor_realloc(p, n);
}

static char *copy(char *to, const char *s, size_t n)
{
	return to ? memcpy(to, s, n) : NULL;
}

char *strdup(const char *s)
{
	size_t n = strlen(s) + 1;

	return fails(CALLER) ? NULL : copy(__interceptor_malloc(n), s, n);
}

void *steady_malloc(size_t n)
{
	return __interceptor_malloc(n);
}

void *steady_calloc(size_t n, size_t size)
{
	return __interceptor_calloc(n, size);
}

void *steady_realloc(void *p, size_t n)
{
	return __interceptor_realloc(p, n);
}

char *steady_strdup(const char *s)
{
	size_t n = strlen(s) + 1;

	return copy(__interceptor_malloc(n), s, n);
}
