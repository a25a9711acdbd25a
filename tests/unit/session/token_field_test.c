/*
 * A token in Proxy-Authorization: the two schemes, one spelling of each value, and no byte beyond
 * what was given room.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "logging/limits.h"
#include "proxy/session/token_field.h"

static void reads(const char *field, const char *want)
{
	char out[8];
	size_t n = 0;
	int rc;

	memset(out, '#', sizeof(out));
	rc = token_field_read(str_from_c(field), out, sizeof(out), &n);
	if (!want) {
		if (rc == 0)
			fail_msg("%s was read", field);
		return;
	}
	if (rc != 0 || n != strlen(want) || memcmp(out, want, n) != 0)
		fail_msg("%s: %d, %.*s", field, rc, (int)n, out);
}

static void test_both_schemes(void **state)
{
	(void)state;
	reads("Bearer token", "token");
	reads("bEARER  12345678", "12345678");
	reads("Basic dTp0b2tlbg==", "token"); /* u:token */
	reads("basic OnRva2Vu", "token");     /* :token */
	reads("BASIC dTo6dA==", ":t");	      /* u::t */
	reads("Basic dTr/", "\xff");
}

static void test_what_is_none(void **state)
{
	static const char *const bad[] = {
		"",
		"Bearer",
		"Bearer ",
		"Basic",
		"Basic ",
		"token",
		"Digest token",
		"Bearer 123456789", /* no room */
		"Basic dToxMjM0NTY3ODk=",
		"Basic dTp0b2tlbg=",  /* cut padding */
		"Basic dTp0b2tlbg",   /* none */
		"Basic dTp0b2tlbh==", /* bits that carry nothing */
		"Basic dTp0b2tlbg===",
		"Basic dTp0=b2tlbg=",
		"Basic dTp0b2tlbg== x",
		"Basic dTp0b2tl\tbg==",
		"Basic dTp0-2t_", /* another alphabet */
		"Basic dXRva2Vu", /* no colon */
		"Basic dTo=",	  /* nothing behind it */
		"Basic ====",
		"Basic =",
		"Bearertoken",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		reads(bad[i], NULL);
}

static void test_bounds(void **state)
{
	char *long_one = malloc(LIMIT_TOKEN_FIELD_BYTES + 2), out[LIMIT_TOKEN_FIELD_BYTES];
	size_t n = 0;

	(void)state;
	assert_non_null(long_one);
	memset(long_one, 'A', LIMIT_TOKEN_FIELD_BYTES + 1);
	memcpy(long_one, "Bearer ", 7);
	assert_int_equal(token_field_read(str_from(long_one, LIMIT_TOKEN_FIELD_BYTES), out,
					  sizeof(out), &n),
			 0);
	assert_int_equal(n, LIMIT_TOKEN_FIELD_BYTES - 7);
	assert_int_equal(token_field_read(str_from(long_one, LIMIT_TOKEN_FIELD_BYTES + 1), out,
					  sizeof(out), &n),
			 -1);
	/* No more than is there, of every length. */
	for (size_t i = 0; i < 40; i++) {
		char *exact = malloc(i ? i : 1);

		assert_non_null(exact);
		memcpy(exact, "Basic OnRva2VuOnRva2VuOnRva2VuOnRva2VuOnR", i);
		(void)!token_field_read(str_from(exact, i), out, sizeof(out), &n);
		free(exact);
	}
	free(long_one);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_schemes),
		cmocka_unit_test(test_what_is_none),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
