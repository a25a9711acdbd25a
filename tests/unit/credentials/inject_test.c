/*
 * Injection: the bytes of each form, and what of the client's request stays and goes. Secrets are
 * made through the store, as nothing else can make one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/credentials/inject.h"

static char name[] = "tok", key_name[] = "X-Api-Key", query_name[] = "api_key",
	    cookie_name[] = "sid", user[] = "me";

static struct secret *secret_of(const char *value)
{
	static char path[] = "/tmp/stile-inject-XXXXXX";
	static struct config_credential cred;
	static struct config config;
	struct credential_store *s;
	struct secret *v;
	struct err e = ERR_INIT;
	char temp[] = "/tmp/stile-inject-XXXXXX";
	int fd = mkstemp(temp);

	assert_true(fd >= 0);
	memcpy(path, temp, sizeof(path));
	assert_int_equal(write(fd, value, strlen(value)), (ssize_t)strlen(value));
	close(fd);
	cred = (struct config_credential){.name = name, .from = path};
	config = (struct config){.credentials = &cred, .credentials_n = 1, .refs = 1000};
	assert_int_equal(credential_store_new(&config, NULL, NULL, &s, &e), 0);
	assert_int_equal(credential_get(s, name, STR_NONE, &v, &e), 0);
	credential_store_unref(s);
	unlink(path);
	return v;
}

static void request_of(struct request *r, const char *url)
{
	struct err e = ERR_INIT;

	request_init(r);
	if (url_parse_absolute(str_from_c(url), &r->url, &e) != 0)
		fail_msg("%s", e.text);
}

static void add(struct request *r, const char *field, const char *value)
{
	assert_int_equal(fields_add(&r->fields, str_from_c(field), str_from_c(value)), 0);
}

static void assert_extra(const struct injection *i, const char *field, const char *value)
{
	assert_int_equal(i->extra.n, 1);
	assert_true(str_eq(i->extra.v[0].name, str_from_c(field)));
	assert_int_equal(i->extra.v[0].value.n, strlen(value));
	assert_memory_equal(i->extra.v[0].value.p, value, strlen(value));
}

static void inject(struct config_credential c, const char *value, struct injection *i)
{
	struct secret *s = secret_of(value);
	struct err e = ERR_INIT;

	c.name = name;
	injection_init(i);
	if (credential_inject(&c, s, i, &e) != 0)
		fail_msg("%s", e.text);
	secret_unref(s);
}

static void test_forms(void **state)
{
	static const struct {
		struct config_credential c;
		const char *value, *field, *sent;
	} cases[] = {
		{{.as = CREDENTIAL_AS_BEARER},
		 "CANARY-7f3a",
		 "Authorization",
		 "Bearer CANARY-7f3a"},
		/* RFC 7617 section 2 */
		{{.as = CREDENTIAL_AS_BASIC},
		 "Aladdin:open sesame",
		 "Authorization",
		 "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="},
		{{.as = CREDENTIAL_AS_BASIC, .username = user},
		 "x",
		 "Authorization",
		 "Basic bWU6eA=="},
		{{.as = CREDENTIAL_AS_BASIC, .username = user},
		 "p:w",
		 "Authorization",
		 "Basic bWU6cDp3"},
		{{.as = CREDENTIAL_AS_BASIC, .username = user},
		 "\xc3\xa4",
		 "Authorization",
		 "Basic bWU6w6Q="},
		{{.as = CREDENTIAL_AS_HEADER, .as_name = key_name}, "k v", "X-Api-Key", "k v"},
		/* RFC 6265 section 4.2.1 */
		{{.as = CREDENTIAL_AS_COOKIE, .as_name = cookie_name},
		 "a/b+c==",
		 "Cookie",
		 "sid=a/b+c=="},
	};

	(void)state;
	for (size_t n = 0; n < ARRAY_LEN(cases); n++) {
		struct injection i;

		inject(cases[n].c, cases[n].value, &i);
		assert_extra(&i, cases[n].field, cases[n].sent);
		assert_int_equal(i.query.len, 0);
		injection_clear(&i);
		assert_int_equal(i.extra.n, 0);
	}
}

static void test_query_form(void **state)
{
	struct injection i;

	(void)state;
	inject((struct config_credential){.as = CREDENTIAL_AS_QUERY, .as_name = query_name},
	       "a+b&c=d/\xc3\xa4 %~", &i);
	assert_string_equal(strbuf_cstr(&i.query), "api_key=a%2Bb%26c%3Dd%2F%C3%A4%20%25~");
	assert_int_equal(i.extra.n, 0);
	injection_clear(&i);
}

static void test_largest(void **state)
{
	static char big[LIMIT_SECRET_BYTES + 1];
	struct injection i;

	(void)state;
	memset(big, '%', LIMIT_SECRET_BYTES);
	inject((struct config_credential){.as = CREDENTIAL_AS_QUERY, .as_name = query_name}, big,
	       &i);
	assert_int_equal(i.query.len, strlen("api_key=") + 3 * LIMIT_SECRET_BYTES);
	injection_clear(&i);
	inject((struct config_credential){.as = CREDENTIAL_AS_BASIC, .username = user}, big, &i);
	assert_int_equal(i.extra.n, 1);
	injection_clear(&i);
}

static void test_unusable(void **state)
{
	static char bad_user[] = "a:b";
	static const struct {
		struct config_credential c;
		const char *value;
	} cases[] = {
		{{.as = CREDENTIAL_AS_BEARER}, "\xc3\xa4"},
		{{.as = CREDENTIAL_AS_HEADER, .as_name = key_name}, "a\xff"},
		{{.as = CREDENTIAL_AS_HEADER, .as_name = key_name}, " mY"},
		{{.as = CREDENTIAL_AS_BEARER}, "mY "},
		{{.as = CREDENTIAL_AS_BEARER}, "   "},
		{{.as = CREDENTIAL_AS_BASIC}, "no-colon"},
		{{.as = CREDENTIAL_AS_BASIC, .username = bad_user}, "x"},
		{{.as = CREDENTIAL_AS_COOKIE, .as_name = cookie_name}, "a; admin=1"},
		{{.as = CREDENTIAL_AS_COOKIE, .as_name = cookie_name}, "k v"},
		{{.as = CREDENTIAL_AS_COOKIE, .as_name = cookie_name}, "a,b"},
		{{.as = CREDENTIAL_AS_COOKIE, .as_name = cookie_name}, "\"ab\""},
	};

	(void)state;
	for (size_t n = 0; n < ARRAY_LEN(cases); n++) {
		struct config_credential c = cases[n].c;
		struct secret *s = secret_of(cases[n].value);
		struct injection i;
		struct err e = ERR_INIT;

		c.name = name;
		injection_init(&i);
		assert_int_equal(credential_inject(&c, s, &i, &e), -1);
		assert_int_equal(e.reason, REASON_CREDENTIAL_UNAVAILABLE);
		assert_null(strstr(e.text, cases[n].value));
		/* Nothing half-done. */
		assert_int_equal(i.extra.n, 0);
		assert_int_equal(i.mem.len, 0);
		secret_unref(s);
		injection_clear(&i);
	}
}

/* Makes room for a credential in a request with one field: did the field stay? */
static bool field_stays_with(struct config_credential c, enum rule_client client, const char *field,
			     const char *value)
{
	struct request r;
	struct err e = ERR_INIT;
	bool stays, stripped;

	c.name = name;
	request_of(&r, "http://h.test/");
	add(&r, "Accept", "*/*");
	add(&r, field, value);
	add(&r, "User-Agent", "x");
	/* What would be taken out is what would be refused, and the reverse. */
	if (client == RULE_CLIENT_STRIP)
		assert_int_equal(credential_check_client(&c, RULE_CLIENT_STRIP, &r, &e), 0);
	stripped = credential_check_client(&c, RULE_CLIENT_DENY, &r, &e) < 0;
	if (stripped)
		assert_int_equal(e.reason, REASON_CLIENT_CREDENTIAL);
	assert_null(strstr(e.text, value));
	stays = !credential_strip(&c, client, &r);
	if (client == RULE_CLIENT_STRIP)
		assert_int_equal(stripped, !stays);
	assert_int_equal(stays, fields_get(&r.fields, str_from_c(field)) != NULL);
	assert_int_equal(r.fields.n, stays ? 3 : 2);
	assert_true(str_eq(r.fields.v[r.fields.n - 1].name, STR("User-Agent")));
	request_clear(&r);
	return stays;
}

static bool field_stays(struct config_credential c, const char *field, const char *value)
{
	return field_stays_with(c, RULE_CLIENT_STRIP, field, value);
}

static void test_fields_that_go(void **state)
{
	static const char *const gone[] = {
		"Authorization",
		"authorization",
		"PROXY-AUTHORIZATION",
		"Cookie",
		"Cookie2",
		"X-Api-Key",
		"x_api_key",
		"Api-Key",
		"apikey",
		"X-ApiKey",
		"X-Auth-Token",
		"X-Access-Token",
		"X-Goog-Api-Key",
		"X-Amz-Security-Token",
		"Private-Token",
		"Job-Token",
		"X-Vault-Token",
		"X-GitHub-Token",
		"X-My-Own-Key",
		"X-Shared-Secret",
		"X-Custom-Auth",
		"X-Custom-Authorization",
		"Token",
		"Ocp-Apim-Subscription-Key",
		"DPoP",
		"X-Forwarded-User",
		"X-Client-Cert",
		"X-User",
		"Impersonate-User",
		"X-TrackerToken",
		"X-ClientSecret",
		"X_MyApiKey",
		"Authentication",
		"X-WSSE",
		"X-PAT",
		"X-Ticket",
		"X-Sid",
		"X-On-Behalf-Of",
		"X-Auth-Email",
		"X-Auth-User",
		"Cf-Access-Jwt-Assertion",
		"X-Goog-Iap-Jwt-Assertion",
		"X-Amzn-Oidc-Data",
		"X-Ms-Client-Principal",
		"X-Ms-Client-Principal-Name",
		"X-ARR-ClientCert",
		"X-SSL-Client-Cert",
		"X-SSL-Client-S-DN",
		"X-Consumer-Username",
		"X-Authenticated-Userid",
		"X-Goog-Authenticated-User-Email",
		"X_Impersonate_User",
		"On-Behalf-Of",
		"X-Sudo",
	};
	static const struct config_credential c = {.as = CREDENTIAL_AS_BEARER};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(gone); i++) {
		if (field_stays(c, gone[i], "attacker"))
			fail_msg("%s stays", gone[i]);
	}
	assert_false(field_stays(c, "Sec-WebSocket-Protocol", "realtime, insecure-API-KEY.sk"));
}

static void test_fields_that_stay(void **state)
{
	static const char *const kept[] = {
		"Content-Type",
		"Idempotency-Key",
		"X-Request-Id",
		"If-Match",
		"Range",
		"Accept-Language",
		"Sec-WebSocket-Key",
		"X-Amz-Content-Sha256",
		"X-Amz-Date",
		"anthropic-version",
		"Monkey",
		"X-Bypass",
		"X-Max-Tokens",
		"X-Keys-Only",
		"Authority",
		"OpenAI-Organization",
		"X-Tokens-Used",
		"Client-Id",
		"From",
		"X-Certificate-Count",
		"x-amz-server-side-encryption-customer-key",
	};
	static const struct config_credential c = {.as = CREDENTIAL_AS_BEARER};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
		if (!field_stays(c, kept[i], "v"))
			fail_msg("%s goes", kept[i]);
	}
	assert_true(field_stays(c, "Sec-WebSocket-Protocol", "chat, v2"));
}

static void test_target_field_goes(void **state)
{
	static char odd[] = "X-Odd_Name";
	const struct config_credential c = {.as = CREDENTIAL_AS_HEADER, .as_name = odd};

	(void)state;
	assert_false(field_stays(c, "x-odd-name", "attacker"));
	assert_false(field_stays(c, "X_ODD_NAME", "attacker"));
	assert_true(field_stays(c, "X-Odd", "v"));
}

/* With `pass`, only the place of our own is cleared, so that ours stands there alone. */
static void test_pass(void **state)
{
	const struct config_credential bearer = {.as = CREDENTIAL_AS_BEARER};
	const struct config_credential cookie = {.as = CREDENTIAL_AS_COOKIE,
						 .as_name = cookie_name};

	(void)state;
	assert_false(field_stays_with(bearer, RULE_CLIENT_PASS, "authorization", "mine"));
	assert_true(field_stays_with(bearer, RULE_CLIENT_PASS, "Cookie", "a=mine"));
	assert_true(field_stays_with(bearer, RULE_CLIENT_PASS, "X-Api-Key", "mine"));
	assert_false(field_stays_with(cookie, RULE_CLIENT_PASS, "Cookie", "a=mine"));
	assert_true(field_stays_with(cookie, RULE_CLIENT_PASS, "Authorization", "mine"));
}

static void test_without_a_credential(void **state)
{
	struct request r;
	struct err e = ERR_INIT;

	(void)state;
	request_of(&r, "http://h.test/?a=1&api_key=mine");
	add(&r, "Authorization", "Bearer mine");
	assert_int_equal(credential_check_client(NULL, RULE_CLIENT_PASS, &r, &e), 0);
	assert_int_equal(credential_check_client(NULL, RULE_CLIENT_DENY, &r, &e), -1);
	assert_false(credential_strip(NULL, RULE_CLIENT_PASS, &r));
	assert_int_equal(r.fields.n, 1);
	assert_true(credential_strip(NULL, RULE_CLIENT_STRIP, &r));
	assert_int_equal(r.fields.n, 0);
	assert_true(str_eq(r.url.query, STR("a=1")));
	assert_int_equal(credential_check_client(NULL, RULE_CLIENT_DENY, &r, &e), 0);
	request_clear(&r);
	/* The query alone is enough. */
	request_of(&r, "http://h.test/?a=1;to%6ben=mine");
	assert_int_equal(credential_check_client(NULL, RULE_CLIENT_DENY, &r, &e), -1);
	request_clear(&r);
}

static void test_queries(void **state)
{
	static char odd[] = "my.Slot";
	static const struct {
		const char *in, *out; /* out NULL: no query at all */
	} cases[] = {
		{"?a=1&b=2", "a=1&b=2"},
		{"?", ""},
		{"?&&a&", "&&a&"},
		{"?api_key=attacker", NULL},
		{"?api_key=attacker&a=1", "a=1"},
		{"?a=1&api_key=attacker", "a=1"},
		{"?a=1&api_key=attacker&b=%2f", "a=1&b=%2f"},
		{"?a=1&API%5FKEY=x&b=2&key", "a=1&b=2"},
		{"?a=1&%61pikey=x", "a=1"},
		{"?a=1&api-key[]=x&api%5Fkey%5B0%5D=y", "a=1"},
		{"?a=1;token=x&b=2", "a=1&b=2"},
		{"?a=1;b=2&sig=x;c=3", "a=1;b=2;c=3"},
		{"?access_token=x&X-Amz-Signature=y&auth=z", NULL},
		{"?my.Slot=x&MY.SLOT=y&my_slot=z&q=1", "q=1"},
		{"?page_token=x&keys=1&monkey=2&sort_key=3&tokens=4",
		 "page_token=x&keys=1&monkey=2&sort_key=3&tokens=4"},
		{"?circle-token=x&user_key=y&a=1&SecretAccessKey=z&trackerToken", "a=1"},
		{"?a=1&hapikey=x&wstoken=y&JSESSIONID=z&x-goog-api-key=w&SID=v", "a=1"},
		{"?q=api_key=1", "q=api_key=1"},
		{"?q=a%26token=1", "q=a%26token=1"},
	};
	struct config_credential c = {.name = name, .as = CREDENTIAL_AS_QUERY, .as_name = odd};

	(void)state;
	for (size_t n = 0; n < ARRAY_LEN(cases); n++) {
		struct request r;
		char url[256];

		snprintf(url, sizeof(url), "http://h.test/p%s", cases[n].in);
		request_of(&r, url);
		(void)credential_strip(&c, RULE_CLIENT_STRIP, &r);
		assert_int_equal(r.url.has_query, cases[n].out != NULL);
		if (!str_eq(r.url.query, str_from_c(cases[n].out)))
			fail_msg("%s: %.*s", cases[n].in, STR_FMT(r.url.query));
		assert_true(str_eq(r.url.path, STR("/p")));
		request_clear(&r);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_query_form),
		cmocka_unit_test(test_largest),
		cmocka_unit_test(test_unusable),
		cmocka_unit_test(test_fields_that_go),
		cmocka_unit_test(test_fields_that_stay),
		cmocka_unit_test(test_target_field_goes),
		cmocka_unit_test(test_pass),
		cmocka_unit_test(test_without_a_credential),
		cmocka_unit_test(test_queries),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
