/*
 * Linked to a unit test (torture.mk): runs each of its tests once for each allocation of what it
 * tests, which then fails, once alone and once with all behind it. Every run ends in a process of
 * its own, since a failed assertion leaves a test where it stands; so assertions may fail, but no
 * run may end by a signal, by a report of the sanitizer or by the clock, and one whose assertions
 * all hold may leave no memory behind (of the others leaks.c judges that). OpenSSL's allocations do
 * not fail: tests build certificates by it and do not ask whether they got them.
 *
 * A test of many allocations is not run anew for each: it runs once, and becomes two processes
 * where the next one is to fail (fork). That needs a test without threads that has nothing open;
 * otherwise, and where few allocations are made, it begins anew. Of the allocations that come from
 * the same places (a hash of the call stack) the first three fail, and then each tenth power, where
 * there are more than EACH of them in a test.
 */
#include "tests/torture/alloc.h"

#include <sanitizer/lsan_interface.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define RUN_SECONDS  120   /* of a run */
#define WAIT_SECONDS 1200  /* where each allocation fails: beside others it waits for them */
#define TEST_SECONDS 3	   /* of one test, where its runs are bounded */
#define EACH	     1000  /* of a test with no more allocations, each fails */
#define QUICK_MS     20	   /* a test that is over by then begins anew for each */
#define BAD_MAX	     20	   /* no more are told */
#define BEHIND	     50000 /* allocations that a run is followed for after the one that failed */
#define LEAK_EXIT    98
#define STACKS	     (1u << 20)

int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
				   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
				   CMFixtureFunction setup, CMFixtureFunction teardown);

/* Of the test at hand; in memory that all its processes share. */
static struct shared {
	unsigned long places, runs, bad;
	unsigned long anew[STACKS]; /* allocations to begin anew for */
	unsigned long anew_n;
	struct {
		uint64_t hash;
		unsigned long n;
	} stacks[STACKS];
} * shared;

static struct {
	const struct CMUnitTest *test;
	CMFixtureFunction setup, teardown;
	bool each;	   /* whatever its stack */
	bool only_notes;   /* which are to fail */
	bool judges_leaks; /* it leaves none when nothing fails */
	unsigned seconds;  /* for one run, of the clock */
	/* of the run that becomes two */
	pid_t pid;
	int free_fd;
	unsigned long until; /* != 0: this is the other one; it ends at that allocation */
} now;

static FILE *told;  /* what the run says */
static FILE *aside; /* what one says that came out of it */

static void judge_leaks(void)
{
	if (now.judges_leaks && __lsan_do_recoverable_leak_check())
		_exit(LEAK_EXIT);
}

static void empty(FILE *out)
{
	if (ftruncate(fileno(out), 0) < 0)
		abort();
	rewind(out);
}

/* What is taken down is still in use where this process came out of. */
static int group_teardown(void **state)
{
	if (now.until)
		_exit(0);
	return now.teardown(state);
}

static int test_teardown(void **state)
{
	if (now.until)
		_exit(0);
	return now.test->teardown_func(state);
}

/* The test, and the end of its process. */
static void go(void)
{
	struct CMUnitTest test = *now.test;
	int failed;

	if (test.teardown_func)
		test.teardown_func = test_teardown;
	alloc_control.counting = true;
	failed = __real__cmocka_run_group_tests("torture", &test, 1, now.setup,
						now.teardown ? group_teardown : NULL);
	alloc_control.counting = false;
	if (failed == 0)
		judge_leaks();
	_exit(0);
}

/* One run in a process of its own; its status as of wait(2). */
static int run(unsigned long at, bool on, bool (*choose)(unsigned long n, uint64_t stack))
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	empty(told);
	pid = fork();
	if (pid == 0) {
		dup2(fileno(told), 1);
		dup2(fileno(told), 2);
		if (!choose)
			alarm(now.seconds);
		*alloc_control.count = 0;
		alloc_control.fail_at = at;
		alloc_control.fail_on = on;
		alloc_control.choose = choose;
		now.pid = getpid();
		now.free_fd = dup(1);
		close(now.free_fd);
		go();
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		abort();
	return status;
}

static void judge(unsigned long at, bool on, int status, FILE *out)
{
	bool leaks = WIFEXITED(status) && WEXITSTATUS(status) == LEAK_EXIT;
	char line[4096];

	shared->runs++;
	if (WIFEXITED(status) && WEXITSTATUS(status) != REPORT_EXIT && !leaks)
		return;
	/* A test that skips has jumped too. */
	rewind(out);
	while (leaks && fgets(line, sizeof(line), out))
		if (strstr(line, "[  SKIPPED ]"))
			return;
	/* A NULL that the test compares with a text, or a callback or thread of the test's own that
	 * writes to the stack that an assertion has jumped out of (cmocka may be the one to find
	 * it so): no code of ours is at fault. */
	rewind(out);
	while (!leaks && fgets(line, sizeof(line), out))
		if (strstr(line, " in _assert_") || strstr(line, " in vprint_error ") ||
		    (strstr(line, "    #0 ") && strstr(line, " tests/unit/")))
			return;
	shared->bad++;
	printf("FAILED %s, allocation %lu%s: %s %d\n", now.test->name, at,
	       on ? " and all behind it" : "",
	       leaks		     ? "leaks,"
	       : WIFSIGNALED(status) ? "signal"
				     : "exit",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	rewind(out);
	while (fgets(line, sizeof(line), out))
		fputs(line, stdout);
	fflush(stdout);
}

/* ---- one run that becomes many ---- */

/* How often it came from there; 0 when the table is full. */
static unsigned long note_stack(uint64_t hash)
{
	for (uint64_t i = 0; i < STACKS; i++) {
		uint64_t at = (hash + i) % STACKS;

		if (shared->stacks[at].n == 0) {
			shared->stacks[at].hash = hash;
			shared->places++;
		}
		if (shared->stacks[at].hash == hash)
			return ++shared->stacks[at].n;
	}
	return 0;
}

static bool is_worth_it(unsigned long n)
{
	if (n <= 3)
		return n > 0;
	while (n % 10 == 0)
		n /= 10;
	return n == 1;
}

/* Nothing that the two would share, and nobody else who runs. */
static bool may_become_two(void)
{
	struct stat st;
	int fd = dup(1);

	close(fd);
	return getpid() == now.pid && fd == now.free_fd && stat("/proc/self/task", &st) == 0 &&
	       st.st_nlink == 3;
}

/* True in the one where it fails. */
static bool become_two(unsigned long n, bool on)
{
	int status = 0, out = dup(1), err = dup(2);
	pid_t pid;

	empty(aside);
	pid = fork();
	if (pid == 0) {
		dup2(fileno(aside), 1);
		dup2(fileno(aside), 2);
		close(out);
		close(err);
		alarm(now.seconds);
		now.until = n + BEHIND;
		alloc_control.fail_at = n;
		alloc_control.fail_on = on;
		return true;
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		abort();
	*alloc_control.count = n; /* the other one has counted on */
	/* To where the driver's words go, for as long as that takes. */
	fflush(stdout);
	dup2(fileno(told), 1);
	judge(n, on, status, aside);
	fflush(stdout);
	dup2(out, 1);
	close(out);
	close(err);
	return false;
}

static bool choose(unsigned long n, uint64_t stack)
{
	bool is_new;

	if (now.until) {
		if (n > now.until && getpid() != now.pid) {
			judge_leaks();
			_exit(0);
		}
		return alloc_control.fail_on ? n >= alloc_control.fail_at
					     : n == alloc_control.fail_at;
	}
	if (getpid() != now.pid || shared->bad >= BAD_MAX)
		return false;
	is_new = is_worth_it(note_stack(stack));
	if (!is_new && !now.each)
		return false;
	if (now.only_notes || !may_become_two()) {
		if (is_new && shared->anew_n < STACKS)
			shared->anew[shared->anew_n++] = n;
		return false;
	}
	return become_two(n, false) || become_two(n, true);
}

/* ---- a test ---- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void both(unsigned long at)
{
	for (int on = 0; on < 2 && shared->bad < BAD_MAX; on++)
		judge(at, on, run(at, on, NULL), told);
}

/* Some, evenly; a test may take no longer than TEST_SECONDS. */
static void run_some(unsigned long all, unsigned long most)
{
	time_t until = time(NULL) + TEST_SECONDS;
	unsigned long step = all > most ? (all + most - 1) / most : 1;

	for (unsigned long at = 1; at <= all && time(NULL) <= until; at += step)
		both(at);
}

static void run_all(unsigned long all, int64_t ms)
{
	unsigned long seen;

	if (all <= EACH && ms < QUICK_MS) {
		for (unsigned long at = 1; at <= all; at++)
			both(at);
		return;
	}
	(void)run(0, false, choose);
	seen = *alloc_control.count;
	rewind(told);
	for (char line[4096]; shared->bad && fgets(line, sizeof(line), told);)
		fputs(line, stdout);
	if (seen != all && shared->bad < BAD_MAX) {
		/* What came out of it has disturbed it, by a file that both use: then each begins
		 * anew. */
		memset(shared->stacks, 0, sizeof(shared->stacks));
		shared->anew_n = 0;
		now.only_notes = true;
		(void)run(0, false, choose);
		now.only_notes = false;
		seen = *alloc_control.count;
	}
	if (seen != all)
		printf("%s: %lu allocations when counted, then %lu\n", now.test->name, all, seen);
	for (unsigned long i = 0; i < shared->anew_n; i++)
		both(shared->anew[i]);
}

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
				   CMFixtureFunction setup, CMFixtureFunction teardown)
{
	const char *most_text = getenv("TORTURE_PER_TEST"), *only = getenv("TORTURE_ONLY");
	unsigned long most = most_text ? strtoul(most_text, NULL, 10) : 0, runs = 0, bad = 0;
	static const char *const libraries[] = {"libyaml", "libevent", "libcares", NULL};
	time_t begun = time(NULL);

	told = tmpfile();
	aside = tmpfile();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (!told || !aside || shared == MAP_FAILED)
		abort();
	alloc_begin(libraries);
	now.setup = setup;
	now.teardown = teardown;
	now.seconds = most ? RUN_SECONDS : WAIT_SECONDS;
	for (size_t i = 0; i < n && bad < BAD_MAX; i++) {
		time_t from = time(NULL);
		unsigned long all;
		int64_t ms;
		int status;

		if (only && strcmp(only, tests[i].name) != 0)
			continue;
		now.test = &tests[i];
		now.judges_leaks = true;
		/* Anew for each test: no page of it is touched. */
		madvise(shared, sizeof(*shared), MADV_REMOVE);
		ms = now_ms();
		status = run(0, false, NULL);
		ms = now_ms() - ms;
		now.judges_leaks = !(WIFEXITED(status) && WEXITSTATUS(status) == LEAK_EXIT);
		all = *alloc_control.count;
		now.each = all <= EACH;
		if (most)
			run_some(all, most);
		else
			run_all(all, ms);
		runs += shared->runs;
		bad += shared->bad;
		if (getenv("TORTURE_VERBOSE"))
			printf("%s: %lu allocations from %lu places, %lu runs (%lu begun anew), "
			       "%ld s%s\n",
			       tests[i].name, all, shared->places, shared->runs, shared->anew_n * 2,
			       (long)(time(NULL) - from),
			       now.judges_leaks ? "" : ", leaks by itself");
		fflush(stdout);
	}
	printf("%s: %zu tests, %lu runs with memory failing, %lu failed, %ld s\n", name, n, runs,
	       bad, (long)(time(NULL) - begun));
	fclose(told);
	fclose(aside);
	return bad != 0;
}
