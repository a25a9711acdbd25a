/*
 * One sandbox as it lies in the shared state: what is written is read, and nothing else is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "logging/limits.h"
#include "proxy/state/record.h"

static const struct state_record good = {
	.digest = {1, 2, 3},
	.name = "agent-7",
	.policy = "agent",
	.listener = "strict",
	.created_us = 1700000000000000,
	.ends_us = 1700000060000000,
};

static const char text[] =
	"{\"form\":1,\"name\":\"agent-7\",\"policy\":\"agent\",\"listener\":\"strict\","
	"\"created_us\":1700000000000000,\"ends_us\":1700000060000000";

static void test_what_is_written_is_read(void **state)
{
	struct state_record r = good, back = {.digest = {1, 2, 3}};
	struct strbuf b;

	(void)state;
	for (int i = 0; i < 2; i++) {
		r.revoked = i == 1;
		strbuf_init(&b, LIMIT_STATE_RECORD_BYTES);
		assert_int_equal(state_record_format(&r, &b), 0);
		assert_int_equal(strncmp(strbuf_cstr(&b), text, sizeof(text) - 1), 0);
		assert_int_equal(state_record_parse(strbuf_str(&b), &back, NULL), 0);
		assert_memory_equal(&r.digest, &back.digest, sizeof(r.digest));
		assert_string_equal(back.name, "agent-7");
		assert_string_equal(back.policy, "agent");
		assert_string_equal(back.listener, "strict");
		assert_true(back.created_us == r.created_us && back.ends_us == r.ends_us);
		assert_int_equal(back.revoked, r.revoked);
		/* No part of it is one. */
		for (size_t n = 0; n < b.len; n++)
			assert_int_equal(state_record_parse(str_head(strbuf_str(&b), n), &back,
							    NULL),
					 -1);
		strbuf_clear(&b);
	}
	/* The longest there is fits. */
	memset(r.name, 'n', STATE_NAME_MAX - 1);
	memset(r.policy, 'p', STATE_NAME_MAX - 1);
	memset(r.listener, 'l', STATE_NAME_MAX - 1);
	r.created_us = INT64_MAX / 4 - 1;
	r.ends_us = INT64_MAX / 4;
	strbuf_init(&b, LIMIT_STATE_RECORD_BYTES);
	assert_int_equal(state_record_format(&r, &b), 0);
	assert_int_equal(state_record_parse(strbuf_str(&b), &back, NULL), 0);
	strbuf_clear(&b);
}

static void refused(const char *from, const char *to)
{
	struct state_record r = good, before;
	const char *at = strstr(text, from);
	struct strbuf b;

	memcpy(&before, &r, sizeof(r));
	assert_non_null(at);
	strbuf_init(&b, 4 * LIMIT_STATE_RECORD_BYTES);
	strbuf_add(&b, str_from(text, (size_t)(at - text)));
	strbuf_adds(&b, to);
	strbuf_adds(&b, at + strlen(from));
	strbuf_adds(&b, "}");
	if (state_record_parse(strbuf_str(&b), &r, NULL) != -1)
		fail_msg("taken: %s", strbuf_cstr(&b));
	/* Nothing was written. */
	assert_memory_equal(&r, &before, sizeof(r));
	strbuf_clear(&b);
}

static void test_what_is_none(void **state)
{
	char spaces[LIMIT_STATE_RECORD_BYTES + 16];

	(void)state;
	refused("\"form\":1,", "");
	refused("\"form\":1", "\"form\":2");
	refused("\"form\":1", "\"form\":\"1\"");
	refused("\"form\":1", "\"form\":1,\"admin\":true");
	refused("\"form\":1", "\"form\":1,\"revoked\":false");
	refused("\"form\":1", "\"form\":1,\"revoked\":1");
	refused("\"form\":1", "\"form\":1,\"form\":1");
	refused("agent-7", "");
	refused("agent-7", "a b");
	refused("agent-7", "a\\u0000b");
	refused("agent-7", "a\\nb");
	refused("agent-7", "\xc3\xa4");
	refused("agent-7", "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn");
	refused("\"agent\"", "null");
	refused("\"strict\"", "[\"strict\"]");
	refused("1700000000000000", "-1");
	refused("1700000000000000", "1700000000000000.5");
	refused("1700000000000000", "\"1700000000000000\"");
	refused("1700000000000000", "1700000060000000");
	refused("1700000000000000", "1");
	refused("1700000060000000", "99999999999999999999");
	refused("1700000060000000", "9223372036854775807");
	memset(spaces, ' ', sizeof(spaces));
	spaces[sizeof(spaces) - 1] = '\0';
	memcpy(spaces + sizeof(spaces) - 8, "\"form\"", 6);
	spaces[sizeof(spaces) - 2] = '\0';
	refused("\"form\"", spaces);
}

static void test_digests(void **state)
{
	unsigned char d[STATE_DIGEST_BYTES], back[STATE_DIGEST_BYTES];
	char hex[STATE_DIGEST_HEX + 1];

	(void)state;
	for (size_t i = 0; i < sizeof(d); i++)
		d[i] = (unsigned char)(i * 37);
	state_digest_write(d, hex);
	assert_int_equal(state_digest_read(str_from_c(hex), back), 0);
	assert_memory_equal(d, back, sizeof(d));
	assert_int_equal(state_digest_read(str_from(hex, STATE_DIGEST_HEX - 1), back), -1);
	hex[5] = 'A';
	assert_int_equal(state_digest_read(str_from_c(hex), back), -1);
	hex[5] = 'g';
	assert_int_equal(state_digest_read(str_from_c(hex), back), -1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_written_is_read),
		cmocka_unit_test(test_what_is_none),
		cmocka_unit_test(test_digests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
