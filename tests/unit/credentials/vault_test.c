/*
 * What is read out of a Vault's answers: secrets of either version of the key-value engine, leases,
 * logins; and that nothing of a refusal is told on but what is known.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proxy/credentials/secret.h"
#include "proxy/credentials/vault.h"

static void assert_secret(const char *body, const char *second, const char *want, const char *lease,
			  int64_t life_us)
{
	struct vault_secret s = {0};
	struct err e = ERR_INIT;

	if (vault_read_secret(str_from_c(body), "a", second, ':', &s, &e) != 0)
		fail_msg("%s: %s", body, e.text);
	assert_true(str_eq(secret_value(s.value), str_from_c(want)));
	assert_string_equal(s.lease ? s.lease : "", lease);
	assert_int_equal(s.life_us, life_us);
	vault_secret_clear(&s);
	assert_null(s.value);
}

static void assert_none(const char *body, const char *second, const char *why)
{
	struct vault_secret s = {0};
	struct err e = ERR_INIT;

	assert_int_equal(vault_read_secret(str_from_c(body), "a", second, ':', &s, &e), -1);
	assert_int_equal(e.reason, REASON_CREDENTIAL_UNAVAILABLE);
	if (!strstr(e.text, why))
		fail_msg("%s: %s does not say %s", body, e.text, why);
	assert_null(s.value);
	assert_null(s.lease);
}

static void test_secrets(void **state)
{
	(void)state;
	assert_secret("{\"data\":{\"a\":\"x\"},\"lease_duration\":99,\"lease_id\":\"\"}", NULL, "x",
		      "", 0);
	assert_secret("{\"data\":{\"data\":{\"a\":\"x\"},\"metadata\":{\"version\":1}}}", NULL, "x",
		      "", 0);
	/* Only what says that it is version 2 is. */
	assert_secret("{\"data\":{\"data\":{\"a\":\"y\"},\"a\":\"x\"}}", NULL, "x", "", 0);
	assert_secret(
		"{\"data\":{\"a\":\"u\",\"b\":\"p:q\"},\"lease_id\":\"d/c/1\",\"lease_duration\":"
		"60,\"renewable\":true}",
		"b", "u:p:q", "d/c/1", 60000000);
	assert_none("{\"data\":{\"a\":\"u:v\",\"b\":\"p\"}}", "b", "holds a colon");
	assert_none("{\"data\":{\"a\":\"u\"}}", "b", "no text for `b`");
	assert_none("{\"data\":{\"data\":null,\"metadata\":{\"version\":1}}}", NULL, "deleted");
	assert_none(
		"{\"data\":{\"data\":{\"a\":\"x\"},\"metadata\":{\"version\":1,\"deletion_time\":"
		"\"1999-01-01T00:00:00Z\"}}}",
		NULL, "deleted");
	assert_none(
		"{\"data\":{\"data\":{\"a\":\"x\"},\"metadata\":{\"version\":1,\"deletion_time\":"
		"\"soon\"}}}",
		NULL, "is no time");
	assert_none("{\"data\":{\"a\":\"x\"},\"lease_id\":5,\"lease_duration\":9}", NULL,
		    "`lease_id` that is none");
	assert_none("{\"data\":{\"a\":\"x\"},\"lease_id\":\"a\\u0000b\",\"lease_duration\":9}",
		    NULL, "");
	assert_none("{\"data\":{\"a\":\"x\"},\"lease_id\":\"a\",\"lease_duration\":-1}", NULL,
		    "no `lease_duration`");
	assert_none("{}", NULL, "no `data`");
	assert_none("", NULL, "not a JSON object");
}

static void test_grants(void **state)
{
	struct vault_grant g = {0};
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(
		vault_read_grant(STR("{\"auth\":{\"client_token\":\"t\",\"lease_duration\":"
				     "0,\"renewable\":true,\"token_type\":\"batch\"}}"),
				 &g, &e),
		0);
	assert_true(g.renewable && g.batch && g.life_us == 0);
	secret_unref(g.token);
	assert_int_equal(vault_read_grant(STR("{\"auth\":{\"client_token\":\"a\\nb\"}}"), &g, &e),
			 -1);
	assert_int_equal(vault_read_grant(STR("{\"auth\":[]}"), &g, &e), -1);
	assert_int_equal(vault_read_grant(STR("{"), &g, &e), -1);
}

static void test_refusals(void **state)
{
	static const struct {
		unsigned status;
		const char *body, *says;
	} rows[] = {
		{503, "{\"errors\":[\"Vault is sealed\"]}", "503 (it is sealed)"},
		{503, "", "503 (it is sealed, or down"},
		{400, "{\"errors\":[\"x\",\"invalid role or secret ID\"]}", "role_id or secret_id"},
		{403, "{\"errors\":[\"hvs.s3cr3t: no\"]}", "403 (permission denied)"},
		{403, "{\"errors\":\"s3cr3t\"}", "403 (permission denied)"},
		{307, "s3cr3t", "not followed"},
		{404, "{\"errors\":[]}", "no such secret"},
		{418, "{\"errors\":[\"s3cr3t\"]}", "no answer of a Vault"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct fetch_answer a = {.status = rows[i].status,
					 .body = str_from_c(rows[i].body)};
		struct err e = ERR_INIT;

		assert_int_equal(vault_refusal(&a, &e), -1);
		if (!strstr(e.text, rows[i].says))
			fail_msg("%s does not say %s", e.text, rows[i].says);
		assert_null(strstr(e.text, "s3cr3t"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_secrets),
		cmocka_unit_test(test_grants),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
