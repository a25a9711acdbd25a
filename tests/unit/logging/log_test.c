/*
 * The operator's log: one line each, escaped, levels, errno kept, lines of several threads unmixed.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "logging/log.h"

static char captured[1 << 20];

/* Runs f with stderr in a file, and leaves in `captured` what came. */
static const char *capture(void (*f)(void))
{
	int saved = dup(STDERR_FILENO);
	FILE *file = tmpfile();
	size_t n;

	assert_non_null(file);
	fcntl(fileno(file), F_SETFL, O_APPEND);
	dup2(fileno(file), STDERR_FILENO);
	f();
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(file);
	n = fread(captured, 1, sizeof(captured) - 1, file);
	captured[n] = '\0';
	fclose(file);
	return captured;
}

static void say_all(void)
{
	log_error("e %d", 1);
	log_warn("w %s", "x");
	log_info("i");
	log_debug("d");
}

static void say_hostile(void)
{
	log_error("host %s", "\x1b[2K\nstile: forged\xc2\x9b");
}

static void say_long(void)
{
	char huge[10000];

	memset(huge, '\n', sizeof(huge) - 1);
	huge[sizeof(huge) - 1] = '\0';
	log_error("%s", huge);
}

static void say_with_errno(void)
{
	errno = ENOSPC;
	log_error("x");
	assert_int_equal(errno, ENOSPC);
	close(STDERR_FILENO);
	log_error("y");
	assert_int_equal(errno, ENOSPC);
}

static void *say_many(void *arg)
{
	const char *text = arg;

	for (int i = 0; i < 500; i++)
		log_error("%s", text);
	return NULL;
}

static void say_in_threads(void)
{
	pthread_t a, b;
	static char as[200], bs[300];

	memset(as, 'a', sizeof(as) - 1);
	memset(bs, 'b', sizeof(bs) - 1);
	pthread_create(&a, NULL, say_many, as);
	pthread_create(&b, NULL, say_many, bs);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
}

static void test_levels(void **state)
{
	(void)state;
	assert_int_equal(log_get_level(), LOG_LEVEL_INFO);
	assert_string_equal(capture(say_all), "stile: e 1\nstile: w x\nstile: i\n");
	log_set_level(LOG_LEVEL_DEBUG);
	assert_string_equal(capture(say_all), "stile: e 1\nstile: w x\nstile: i\nstile: d\n");
	log_set_level(LOG_LEVEL_ERROR);
	assert_string_equal(capture(say_all), "stile: e 1\n");
	log_set_level(LOG_LEVEL_INFO);
}

static void test_hostile(void **state)
{
	(void)state;
	assert_string_equal(capture(say_hostile),
			    "stile: host \\x1b[2K\\x0astile: forged\\u009b\n");
	capture(say_long);
	assert_true(strlen(captured) <= 4096 && strlen(captured) > 4000);
	assert_ptr_equal(strchr(captured, '\n'), captured + strlen(captured) - 1);
}

static void test_errno(void **state)
{
	(void)state;
	capture(say_with_errno);
}

static void test_threads(void **state)
{
	char *rest;
	int lines = 0;

	(void)state;
	capture(say_in_threads);
	for (char *line = strtok_r(captured, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		size_t n = strlen(line);

		assert_true(n == 7 + 199 || n == 7 + 299);
		assert_int_equal(strspn(line + 7, n == 206 ? "a" : "b"), n - 7);
		lines++;
	}
	assert_int_equal(lines, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_errno),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
