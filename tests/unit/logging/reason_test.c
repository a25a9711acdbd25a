/*
 * The table of reasons, and that logging/README.md lists the same words, events and record keys.
 * Runs from the top of the repository.
 */
#include "unit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "logging/reason.h"
#include "logging/record.h"

static void test_rows(void **state)
{
	(void)state;
	assert_string_equal(reason_word(REASON_NONE), "none");
	for (unsigned r = REASON_NONE + 1; r < REASON_COUNT; r++) {
		const char *word = reason_word((enum reason)r);
		int status = reason_status((enum reason)r);

		assert_true(strlen(word) > 0 &&
			    strspn(word, "abcdefghijklmnopqrstuvwxyz_") == strlen(word));
		assert_true(status >= 400 && status <= 599);
		assert_true(strlen(reason_proxy_error((enum reason)r)) > 0);
		assert_int_equal(reason_from_word(str_from_c(word)), r);
	}
	assert_int_equal(reason_status(REASON_NAME_MISMATCH), 421);
	assert_int_equal(reason_status(REASON_LOG_UNAVAILABLE), 503);
	assert_string_equal(reason_proxy_error(REASON_ADDRESS_DENIED), "destination_ip_prohibited");
}

static void test_unknown(void **state)
{
	(void)state;
	assert_int_equal(reason_from_word(STR("none")), REASON_NONE);
	assert_int_equal(reason_from_word(STR("no_rul")), REASON_NONE);
	assert_int_equal(reason_from_word(STR("no_rules")), REASON_NONE);
	assert_int_equal(reason_from_word(STR_NONE), REASON_NONE);
	/* A refusal that lost its reason is not a success. */
	assert_int_equal(reason_status(REASON_NONE), 500);
	assert_int_equal(reason_status(REASON_COUNT), 500);
	assert_string_equal(reason_word(REASON_COUNT), "none");
}

static char *read_readme(void)
{
	FILE *f = fopen("logging/README.md", "r");
	char *text = calloc(1, 65536);

	assert_non_null(f);
	assert_non_null(text);
	assert_true(fread(text, 1, 65535, f) > 0);
	fclose(f);
	return text;
}

/* The text from the heading to the next one. */
static struct str section(const char *text, const char *heading)
{
	const char *from = strstr(text, heading);
	const char *to;

	assert_non_null(from);
	from += strlen(heading);
	to = strstr(from, "\n## ");
	return str_from(from, to ? (size_t)(to - from) : strlen(from));
}

static void test_readme_reasons(void **state)
{
	char *text = read_readme();
	struct str rest = section(text, "\n## Reasons\n");
	unsigned next = REASON_NONE + 1;

	(void)state;
	while (rest.p) {
		struct str line = str_split(&rest, '\n');
		struct str word;

		if (!str_starts(line, STR("- `")))
			continue;
		line = str_skip(line, 3);
		word = str_split(&line, '`');
		assert_true(next < REASON_COUNT);
		assert_str(word, reason_word((enum reason)next));
		assert_true(str_starts(line, STR(": ")) && str_ends(line, STR(".")));
		next++;
	}
	assert_int_equal(next, REASON_COUNT);
	free(text);
}

static void test_readme_events(void **state)
{
	char *text = read_readme();
	struct str events = section(text, "\n## Events\n");
	char *copy = str_dup(events);

	(void)state;
	for (int e = RECORD_REQUEST_START; e < RECORD_EVENTS; e++) {
		char quoted[64];

		snprintf(quoted, sizeof(quoted), "`%s`", record_event_word((enum record_event)e));
		assert_non_null(strstr(copy, quoted));
	}
	free(copy);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_readme_reasons),
		cmocka_unit_test(test_readme_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
