/*
 * Linked to a unit test (torture.mk): runs each of its tests once for each allocation of what it
 * tests, which then fails, once alone and once with all behind it. Every run is a process of its
 * own, since a failed assertion leaves a test where it stands; so assertions may fail and memory
 * may be left (leaks.c judges that), but no run may end by a signal, by a report of the sanitizer
 * or by the clock. OpenSSL's allocations do not fail: tests build certificates by it and do not ask
 * whether they got them.
 */
#include "tests/torture/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define RUN_SECONDS  30
#define TEST_SECONDS 3 /* of one test, where its runs are bounded */

int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
				   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
				   CMFixtureFunction setup, CMFixtureFunction teardown);

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
		*alloc_control.count = 0;
		alloc_control.fail_at = at;
		alloc_control.fail_on = on;
		alloc_control.counting = true;
		__real__cmocka_run_group_tests("torture", test, 1, setup, teardown);
		alloc_control.counting = false;
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
	/* A NULL that the test compares with a text, or a callback or thread of the test's own that
	 * writes to the stack that an assertion has jumped out of (cmocka may be the one to find
	 * it so): no code of ours is at fault. */
	rewind(out);
	while (fgets(line, sizeof(line), out))
		if (strstr(line, " in _assert_") || strstr(line, " in vprint_error ") ||
		    (strstr(line, "    #0 ") && strstr(line, " tests/unit/")))
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
	static const char *const libraries[] = {"libyaml", "libevent", "libcares", NULL};
	FILE *out = tmpfile();
	int bad = 0;

	if (!out)
		abort();
	alloc_begin(libraries);
	for (size_t i = 0; i < n; i++) {
		time_t until = time(NULL) + TEST_SECONDS;
		unsigned long all, step;

		(void)run(&tests[i], setup, teardown, 0, false, out);
		all = *alloc_control.count;
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
