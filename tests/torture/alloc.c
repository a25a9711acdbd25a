/*
 * Linked to a unit test (torture.mk): runs each of its tests once for each allocation of what it
 * tests, which then fails, once alone and once with all behind it. Every run is a process of its
 * own, since a failed assertion leaves a test where it stands; so assertions may fail and memory
 * may be left, but no run may end by a signal, by a report of the sanitizer or by the clock.
 *
 * malloc and its kin are the program's own here, so that libraries get them too. OpenSSL's
 * allocations do not fail: tests build certificates by it and do not ask whether they got them.
 */
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define REPORT_EXIT  99
#define RUN_SECONDS  30
#define MODULES_MAX  16
#define TEST_SECONDS 3 /* of one test, where its runs are bounded */

/* The sanitizer's own, behind those below. */
void *__interceptor_malloc(size_t n);
void *__interceptor_calloc(size_t n, size_t size);
void *__interceptor_realloc(void *p, size_t n);
void *steady_malloc(size_t n);
void *steady_calloc(size_t n, size_t size);
void *steady_realloc(void *p, size_t n);
char *steady_strdup(const char *s);
const char *__asan_default_options(void);
int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
				   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
				   CMFixtureFunction setup, CMFixtureFunction teardown);

static struct {
	uintptr_t from, to;
} modules[MODULES_MAX];
static size_t modules_n;
static unsigned long *count; /* shared with the runs */
static unsigned long fail_at;
static bool fail_on, counting;

const char *__asan_default_options(void)
{
	return "exitcode=99:detect_leaks=0:handle_segv=2:handle_abort=2:handle_sigbus=2:"
	       "allocator_may_return_null=1:quarantine_size_mb=1";
}

static int note_module(struct dl_phdr_info *info, size_t size, void *arg)
{
	static const char *const tested[] = {"libyaml", "libevent", "libcares"};
	bool wanted = !info->dlpi_name[0];

	(void)size;
	(void)arg;
	for (size_t i = 0; i < sizeof(tested) / sizeof(tested[0]); i++)
		wanted = wanted || strstr(info->dlpi_name, tested[i]);
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

static bool fails(void *caller)
{
	uintptr_t at = (uintptr_t)caller;
	bool is_tested = false;
	unsigned long n;

	if (!counting)
		return false;
	for (size_t i = 0; i < modules_n; i++)
		is_tested = is_tested || (at >= modules[i].from && at < modules[i].to);
	if (!is_tested)
		return false;
	n = __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
	return fail_at && (fail_on ? n >= fail_at : n == fail_at);
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

/* One run of one test in a process of its own; its status as of wait(2). */
static int run(const struct CMUnitTest *test, CMFixtureFunction setup, CMFixtureFunction teardown,
	       unsigned long at, bool on, FILE *out)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	if (ftruncate(fileno(out), 0) < 0)
		abort();
	rewind(out);
	pid = fork();
	if (pid == 0) {
		dup2(fileno(out), 1);
		dup2(fileno(out), 2);
		alarm(RUN_SECONDS);
		*count = 0;
		fail_at = at;
		fail_on = on;
		counting = true;
		__real__cmocka_run_group_tests("torture", test, 1, setup, teardown);
		counting = false;
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		abort();
	return status;
}

static bool is_bad(const struct CMUnitTest *test, unsigned long at, bool on, int status, FILE *out)
{
	char line[4096];

	if (WIFEXITED(status) && WEXITSTATUS(status) != REPORT_EXIT)
		return false;
	/* A NULL that the test compares with a text: cmocka's fault, and no code of ours is in it.
	 */
	rewind(out);
	while (fgets(line, sizeof(line), out))
		if (strstr(line, " in _assert_"))
			return false;
	printf("FAILED %s, allocation %lu%s: %s %d\n", test->name, at,
	       on ? " and all behind it" : "", WIFSIGNALED(status) ? "signal" : "exit",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	rewind(out);
	while (fgets(line, sizeof(line), out))
		fputs(line, stdout);
	return true;
}

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
				   CMFixtureFunction setup, CMFixtureFunction teardown)
{
	const char *most_text = getenv("TORTURE_PER_TEST");
	unsigned long most = most_text ? strtoul(most_text, NULL, 10) : 0, runs = 0;
	FILE *out = tmpfile();
	int bad = 0;

	count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (count == MAP_FAILED || !out)
		abort();
	dl_iterate_phdr(note_module, NULL);
	for (size_t i = 0; i < n; i++) {
		time_t until = time(NULL) + TEST_SECONDS;
		unsigned long all, step;

		(void)run(&tests[i], setup, teardown, 0, false, out);
		all = *count;
		step = most && all > most ? (all + most - 1) / most : 1;
		for (int on = 0; on < 2; on++)
			for (unsigned long at = 1; at <= all && bad < 20; at += step) {
				if (most && time(NULL) > until)
					break;
				bad += is_bad(&tests[i], at, on,
					      run(&tests[i], setup, teardown, at, on, out), out);
				runs++;
			}
	}
	printf("%s: %zu tests, %lu runs with memory failing, %d failed\n", name, n, runs, bad);
	fclose(out);
	return bad;
}
