/*
 * Queries without their secrets: which keys count, in every spelling, and what must stay.
 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "logging/record.h"
#include "redact_reference.h"

/* Behind the reference, whose functions have an `out` of their own. */
#include "out_fixture.h"

#define CANARY "CANARY"

static const char *redacted(struct str query)
{
	strbuf_reset(&out);
	record_redact_query(query, &out);
	return strbuf_cstr(&out);
}

static void test_secret_keys(void **state)
{
	static const char *const keys[] = {
		"key",
		"KEY",
		"Key",
		"kEy",
		"%6bey",
		"%6Bey",
		"k%65y",
		"%256bey",
		"%25256bey",
		"token",
		"securityToken",
		"exaApiKey",
		"X-Amz-Signature",
		"X-Amz-Credential",
		"X-Amz-Security-Token",
		"sig",
		"access_token",
		"code",
		"session",
		"sid",
		"jwt",
		"sessionid",
		"sessionId",
		"JSESSIONID",
		"PHPSESSID",
		"apikey",
		"APIKEY",
		"api_key",
		"api-key",
		"api.key",
		"api+key",
		"api%20key",
		"apiKey",
		"myApiKey",
		"AWSAccessKeyId",
		"awsaccesskey",
		"client_secret",
		"clientsecret",
		"password",
		"passwd",
		"pwd",
		"pat",
		"userpassword",
		"user[password]",
		"key[]",
		"key%5B%5D",
		"auth",
		"authToken",
		"Authorization",
		"oauth_signature",
		"bearer",
		"credentials",
		"idtoken",
		"id_token",
		"SAMLResponse",
		"token2",
		"key1",
		"2key",
		"%00key",
		"refreshtoken",
		"tOkEn",
		"ToKeN",
		"TOKEN%",
		"x%zzkey%zz-key",
		"private_token",
		"subscription-key",
		"sas.sig",
		"ticket",
		"samlart",
		"appkey",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		char query[256], want[256];

		snprintf(query, sizeof(query), "q=ok&%s=" CANARY "=&z=1", keys[i]);
		snprintf(want, sizeof(want), "q=ok&%s=[redacted]&z=1", keys[i]);
		assert_string_equal(redacted(str_from_c(query)), want);
	}
}

static void test_harmless_keys(void **state)
{
	static const char *const keys[] = {
		"q",	     "monkey",	  "page",   "author",  "authors", "tokenizer", "keyboard",
		"signal",    "codec",	  "decode", "encoded", "turkey",  "sidebar",   "design",
		"passenger", "secretary", "assign", "keyword", "insider", "monkeys",   "",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		char query[256];

		snprintf(query, sizeof(query), "%s=value", keys[i]);
		assert_string_equal(redacted(str_from_c(query)), query);
	}
}

static void test_shape(void **state)
{
	(void)state;
	assert_string_equal(redacted(STR_NONE), "");
	assert_string_equal(redacted(STR("key")), "key");
	assert_string_equal(redacted(STR("key&token&a")), "key&token&a");
	assert_string_equal(redacted(STR("=x")), "=x");
	assert_string_equal(redacted(STR("&&a=1&")), "&&a=1&");
	assert_string_equal(redacted(STR("a=1;key=C;b=2")), "a=1;key=[redacted];b=2");
	assert_string_equal(redacted(STR("key=C&key=D")), "key=[redacted]&key=[redacted]");
	assert_string_equal(redacted(STR("key=")), "key=[redacted]");
	/* For a server that splits at '&' only, these pieces are the secret too. */
	assert_string_equal(redacted(STR("key=C;D;E&f;g")), "key=[redacted]&f;g");
	assert_string_equal(redacted(STR("key=;D")), "key=[redacted]");
	assert_string_equal(redacted(STR("a=%&b=%2")), "a=%&b=%2");
}

/* A URL as a value, in as many layers of encoding as somebody decodes. */
static void test_urls_within(void **state)
{
	(void)state;
	assert_string_equal(redacted(STR("u=http://h/?key=C&q=1")),
			    "u=http://h/?key=[redacted]&q=1");
	assert_string_equal(redacted(STR("u=http%3A%2F%2Fh%2F%3Fkey%3DC%26q%3D1&z=2")),
			    "u=http%3A%2F%2Fh%2F%3Fkey%3D[redacted]%26q%3D1&z=2");
	assert_string_equal(redacted(STR("u=h%253Fa%253D1%2526k%2565y%253dC%2526q%253D1")),
			    "u=h%253Fa%253D1%2526k%2565y%253d[redacted]%2526q%253D1");
	assert_string_equal(redacted(STR("u=/cb%23access_token=C")),
			    "u=/cb%23access_token=[redacted]");
	assert_string_equal(redacted(STR("u=h?a=1?key=C;D&z=2")), "u=h?a=1?key=[redacted]&z=2");
	assert_string_equal(redacted(STR("http://u:C@h/?q=1")), "http://[redacted]@h/?q=1");
	/* The key, up to a `=` of its own, is the URL. */
	assert_string_equal(redacted(STR("a=1&http://u:C@h/?token=C&b=2")),
			    "a=1&http://[redacted]@h/?token=[redacted]&b=2");
	assert_string_equal(redacted(STR("http%3A%2F%2Fu:C%40h/?key=C;C")),
			    "http%3A%2F%2F[redacted]%40h/?key=[redacted]");
	assert_string_equal(redacted(STR("u?token%3DC=C")), "u?token%3D[redacted]");
	assert_string_equal(redacted(STR("u=https%3a%2f%2fC%40h%2f&q=a@b:c")),
			    "u=https%3a%2f%2f[redacted]%40h%2f&q=a@b:c");
	/* Nothing of the kind. */
	assert_string_equal(redacted(STR("t=12:30&u=http://h/a@b&w=a?b&x=?&y=?=1&v=%3f")),
			    "t=12:30&u=http://h/a@b&w=a?b&x=?&y=?=1&v=%3f");
	assert_string_equal(redacted(STR("u=http://h/%3Fpage%3D2%26monkey%3D1%25")),
			    "u=http://h/%3Fpage%3D2%26monkey%3D1%25");
}

static void test_long_key(void **state)
{
	char query[1000];

	(void)state;
	memset(query, 'a', sizeof(query));
	memcpy(query + 900, "=" CANARY, 7);
	redacted(str_from(query, sizeof(query)));
	assert_null(strstr(out.data, CANARY));
	assert_non_null(strstr(out.data, "=[redacted]"));
	/* Encoded over and over. */
	assert_string_equal(redacted(STR("%2525252525252525256bey=C")),
			    "%2525252525252525256bey=[redacted]");
}

static void test_full_output(void **state)
{
	char mem[16];
	struct strbuf small;

	(void)state;
	strbuf_init_fixed(&small, mem, sizeof(mem));
	record_redact_query(STR("abc=1&key=" CANARY "&def=2&ghi=3"), &small);
	assert_true(small.overflowed);
	assert_string_equal(mem, "abc=1&key=[reda");
}

/* ---- beside the reference ---- */

static unsigned picked = 1;

static unsigned pick(unsigned below)
{
	picked = picked * 1664525 + 1013904223;
	return (picked >> 8) % below;
}

/* A query out of pieces that mean something to one who takes secrets out, and of those that do not,
 * at the end of its memory. */
static struct str some_query(void)
{
	static const char *const pieces[] = {
		"&",
		"&",
		"&",
		"=",
		"=",
		"=",
		";",
		";",
		"?",
		"#",
		":",
		"@",
		"/",
		"//",
		"://",
		"%",
		"%3D",
		"%3d",
		"%26",
		"%3B",
		"%253F",
		"%40",
		"%2F",
		"%252F",
		"%3a",
		"%6b",
		"%00",
		"%25",
		"%2525",
		"key",
		"Key",
		"KEY",
		"token",
		"Token",
		"apiKey",
		"api",
		"sessid",
		"phpsessid",
		"secret",
		"AWSAccessKey",
		"code",
		"pass",
		"a",
		"b",
		"Z",
		"_",
		"-",
		".",
		"[",
		"]",
		"1",
		"http",
		"https://u:p@h/?x=1",
		"keys",
		"per_page",
		"ref",
		"x-amz-signature",
		"",
	};
	static char text[4096];
	unsigned n = pick(4) ? pick(12) : pick(60);
	size_t len = 0;
	char *p;

	for (unsigned i = 0; i < n; i++) {
		const char *piece = pieces[pick(ARRAY_LEN(pieces))];
		size_t m = strlen(piece);

		memcpy(text + len, piece, m);
		len += m;
		if (pick(20) == 0)
			text[len++] = (char)pick(256);
	}
	/* A key that is as long as one is read, or longer. */
	if (pick(200) == 0) {
		size_t m = 250 + pick(10);

		memset(text + len, 'k', m);
		text[len + m] = '=';
		len += m + 1;
	}
	p = malloc(len ? len : 1);
	assert_non_null(p);
	memcpy(p, text, len);
	return str_from(p, len);
}

static void test_beside_reference(void **state)
{
	struct strbuf want;
	size_t redacted_n = 0;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		struct str query = some_query();
		/* Often where the room ends within. */
		size_t max = pick(3) ? 1 << 16 : pick(80);

		strbuf_init(&want, max);
		redact_reference(query, &want);
		strbuf_clear(&out);
		strbuf_init(&out, max);
		record_redact_query(query, &out);
		if (!str_eq(strbuf_str(&out), strbuf_str(&want)))
			fail_msg("%.*s\ngot  %s\nwant %s", STR_FMT(query), strbuf_cstr(&out),
				 strbuf_cstr(&want));
		assert_int_equal(out.overflowed, want.overflowed);
		redacted_n += strstr(strbuf_cstr(&out), "[redacted]") != NULL;
		strbuf_clear(&want);
		free((void *)query.p);
	}
	assert_true(redacted_n > 20000);
	strbuf_clear(&out);
	strbuf_init(&out, 1 << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_secret_keys),
		cmocka_unit_test(test_harmless_keys),
		cmocka_unit_test(test_shape),
		cmocka_unit_test(test_long_key),
		cmocka_unit_test(test_full_output),
		cmocka_unit_test(test_urls_within),
		cmocka_unit_test(test_beside_reference),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
