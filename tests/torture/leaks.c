/*
 * Runs each scenario (leaks_scenarios.c) once for each of its allocations, which then fails, once
 * alone and once with all behind it: those of the program and of every library that it uses. No run
 * may leave memory behind, crash, hang, or succeed with something else than without a failure.
 * What a library makes once for the whole process is made before.
 *
 *    leaks SECONDS [SCENARIO]     0: every allocation, however long that takes
 */
#include "tests/torture/leaks.h"

#include <sanitizer/lsan_interface.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/torture/alloc.h"

#define RUN_SECONDS 30
#define OTHER_EXIT  3 /* success, but with another result */
#define LEAK_EXIT   4
#define TOLD_MAX    65536

struct expected {
	char text[TOLD_MAX];
	size_t n;
};

static struct expected expected;
static int bad, runs;

bool leaks_pause(void)
{
	bool was = alloc_control.counting;

	alloc_control.counting = false;
	return was;
}

void leaks_resume(bool was)
{
	alloc_control.counting = was;
}

/* The scenario, and whether what came of it is as it should be. The stream has its memory before
 * anything fails. */
static int once(const struct leak_scenario *s, struct expected *got)
{
	FILE *out = fmemopen(got->text, sizeof(got->text), "w");
	int rc;

	if (!out)
		abort();
	setvbuf(out, NULL, _IONBF, 0);
	alloc_control.counting = true;
	rc = s->run(out);
	alloc_control.counting = false;
	fflush(out);
	got->n = (size_t)ftell(out);
	fclose(out);
	return rc;
}

static void child(const struct leak_scenario *s, unsigned long at, bool on)
{
	static struct expected got;
	int rc;

	alarm(RUN_SECONDS);
	*alloc_control.count = 0;
	alloc_control.fail_at = at;
	alloc_control.fail_on = on;
	rc = once(s, &got);
	if (rc == 0 && (got.n != expected.n || memcmp(got.text, expected.text, got.n) != 0)) {
		fprintf(stderr, "succeeded with\n%.*s\ninstead of\n%.*s\n", (int)got.n, got.text,
			(int)expected.n, expected.text);
		_exit(OTHER_EXIT);
	}
	_exit(__lsan_do_recoverable_leak_check() ? LEAK_EXIT : rc == 0 ? 0 : 1);
}

static void judge(const struct leak_scenario *s, unsigned long at, bool on, int status, FILE *told)
{
	char line[4096];

	if (WIFEXITED(status) && WEXITSTATUS(status) <= 1)
		return;
	bad++;
	printf("FAILED %s, allocation %lu%s: %s %d\n", s->name, at, on ? " and all behind it" : "",
	       WIFSIGNALED(status) ? "signal" : "exit",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	rewind(told);
	while (fgets(line, sizeof(line), told))
		fputs(line, stdout);
	fflush(stdout);
}

static void run(const struct leak_scenario *s, unsigned long at, bool on, FILE *told)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	if (ftruncate(fileno(told), 0) < 0)
		abort();
	rewind(told);
	pid = fork();
	if (pid == 0) {
		dup2(fileno(told), 2);
		child(s, at, on);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		abort();
	runs++;
	judge(s, at, on, status, told);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void each(const struct leak_scenario *s, double seconds, FILE *told)
{
	double begun = now();
	unsigned long all, tries = 0, step;

	/* Twice: what is made once is not counted. */
	for (int i = 0; i < 2; i++) {
		*alloc_control.count = 0;
		alloc_control.fail_at = 0;
		if (once(s, &expected) < 0) {
			printf("FAILED %s: it fails although nothing does\n", s->name);
			bad++;
			return;
		}
	}
	all = *alloc_control.count;
	/* A step that has no common divisor with `all` visits each, in an order that covers the
	 * whole soon. */
	for (step = all * 5 / 8 + 1; all > 1; step++) {
		unsigned long a = all, b = step;

		while (b) {
			unsigned long t = a % b;

			a = b;
			b = t;
		}
		if (a == 1)
			break;
	}
	for (unsigned long i = 0, at = 0; i < all && bad < 20; i++, at = (at + step) % all) {
		if (seconds > 0 && now() - begun > seconds)
			break;
		run(s, at + 1, false, told);
		run(s, at + 1, true, told);
		tries++;
	}
	printf("%s: %lu of %lu allocations, %.0f s\n", s->name, tries, all, now() - begun);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const char *const libraries[] = {"libyaml",    "libcrypto", "libssl",
						"libjansson", "libcares",  "libnghttp2",
						"libevent",   "libpsl",	   NULL};
	double seconds = argc > 1 ? strtod(argv[1], NULL) : 0, until = now() + seconds;
	const char *only = argc > 2 ? argv[2] : NULL;
	FILE *told = tmpfile();
	size_t left = 0;

	if (!told)
		abort();
	alloc_begin(libraries);
	for (const struct leak_scenario *s = leak_scenarios; s->name; s++)
		left += !only || strcmp(s->name, only) == 0;
	for (const struct leak_scenario *s = leak_scenarios; s->name; s++)
		if (!only || strcmp(s->name, only) == 0)
			each(s, seconds > 0 ? (until - now()) / (double)left-- : 0, told);
	printf("leaks: %d runs with memory failing, %d failed\n", runs, bad);
	fclose(told);
	return bad || runs == 0;
}
