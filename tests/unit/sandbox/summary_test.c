/*
 * Counting a run's refusals: only its own, only those since it began, none that a request forged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <unistd.h>

#include "proxy/sandbox/summary.h"

static void add(const char *path, const char *line)
{
	FILE *f = fopen(path, "a");

	assert_non_null(f);
	fputs(line, f);
	fclose(f);
}

static void test_count(void **state)
{
	char path[] = "/tmp/stile-summary-XXXXXX";
	struct log_mark m;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	add(path, "{\"sandbox\":\"run-1\",\"decision\":\"deny\"}\n");
	log_mark_set(&m, path);
	assert_int_equal(log_mark_refused(&m, "run-1"), 0);
	add(path, "{\"sandbox\":\"run-1\",\"decision\":\"deny\"}\n");
	add(path, "{\"sandbox\":\"run-1\",\"decision\":\"allow\"}\n");
	add(path, "{\"sandbox\":\"run-2\",\"decision\":\"deny\"}\n");
	add(path, "{\"sandbox\":\"run-1\",\"path\":\"/"
		  "\\\"decision\\\":\\\"deny\\\"\",\"decision\":\"allow\"}\n");
	add(path, "{\"sandbox\":\"run-1\",\"decision\":\"deny\"");
	assert_int_equal(log_mark_refused(&m, "run-1"), 2);
	unlink(path);
	assert_int_equal(log_mark_refused(&m, "run-1"), 0);
	log_mark_set(&m, "syslog:local0");
	assert_int_equal(log_mark_refused(&m, "run-1"), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_count)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
