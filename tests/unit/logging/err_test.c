/*
 * Errors: each setter's fields, escaping, arguments that point into the text itself, NULL.
 */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "logging/err.h"

static void test_set(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(err_set(&e, "bad %d", 7), -1);
	assert_string_equal(e.text, "bad 7");
	assert_int_equal(e.reason, REASON_NONE);
	assert_int_equal(err_reason(&e, REASON_NO_RULE, "no %s", "rule"), -1);
	assert_string_equal(e.text, "no rule");
	assert_int_equal(e.reason, REASON_NO_RULE);
	assert_int_equal(e.sys_errno, 0);
	assert_int_equal(err_sys(&e, ENOENT, "open %s", "x"), -1);
	assert_string_equal(e.text, "open x: No such file or directory");
	assert_int_equal(e.sys_errno, ENOENT);
	assert_int_equal(e.reason, REASON_NONE);
	err_set(&e, "again");
	assert_int_equal(e.sys_errno, 0);
}

static void test_wrap(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	err_reason(&e, REASON_DNS_FAILED, "no answer");
	assert_int_equal(err_wrap(&e, "host %s", "a.test"), -1);
	assert_string_equal(e.text, "host a.test: no answer");
	assert_int_equal(e.reason, REASON_DNS_FAILED);
	err_wrap(&e, "%s", e.text);
	assert_string_equal(e.text, "host a.test: no answer: host a.test: no answer");
	err_set(&e, "<%s>", e.text);
	assert_string_equal(e.text, "<host a.test: no answer: host a.test: no answer>");
}

static void test_hint(void **state)
{
	struct err e = ERR_INIT;
	char huge[ERR_TEXT_MAX + 1];

	(void)state;
	err_sys(&e, ENOENT, "x");
	assert_int_equal(err_hint(&e, "make it"), -1);
	assert_string_equal(e.text, "x: No such file or directory (make it)");
	assert_int_equal(e.sys_errno, ENOENT);
	assert_int_equal(err_hint(&e, NULL), -1);
	assert_string_equal(e.text, "x: No such file or directory (make it)");
	/* Half a piece of advice is none. */
	memset(huge, 'x', ERR_TEXT_MAX);
	huge[ERR_TEXT_MAX] = '\0';
	err_hint(&e, huge);
	assert_string_equal(e.text, "x: No such file or directory (make it)");
	err_set(&e, "%s", huge);
	err_hint(&e, "make it");
	assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
	assert_int_equal(e.text[ERR_TEXT_MAX - 2], 'x');
	assert_int_equal(err_hint(NULL, "x"), -1);
}

static void test_escaped(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	err_set(&e, "host %s", "\x1b[2K\n\xff\xe2\x80\xae");
	assert_string_equal(e.text, "host \\x1b[2K\\x0a\\xff\\u202e");
	/* Wrapping does not escape a second time. */
	err_wrap(&e, "a");
	assert_string_equal(e.text, "a: host \\x1b[2K\\x0a\\xff\\u202e");
}

static void test_long(void **state)
{
	struct err e = ERR_INIT;
	char huge[2000];

	(void)state;
	memset(huge, '\n', sizeof(huge) - 1);
	huge[sizeof(huge) - 1] = '\0';
	err_set(&e, "%s", huge);
	assert_true(strlen(e.text) < ERR_TEXT_MAX);
	/* No escape is cut in its middle. */
	assert_int_equal(strlen(e.text) % 4, 0);
	memset(huge, 'x', sizeof(huge) - 1);
	err_sys(&e, ENOENT, "%s", huge);
	assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
	err_wrap(&e, "%s", huge);
	assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
}

static void test_null(void **state)
{
	(void)state;
	assert_int_equal(err_set(NULL, "x"), -1);
	assert_int_equal(err_reason(NULL, REASON_NO_RULE, "x"), -1);
	assert_int_equal(err_sys(NULL, EIO, "x"), -1);
	assert_int_equal(err_wrap(NULL, "x"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set),	cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_escaped), cmocka_unit_test(test_long),
		cmocka_unit_test(test_null),	cmocka_unit_test(test_hint),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
