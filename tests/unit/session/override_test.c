/*
 * Fields and query keys by which a server is told to take a request for another one: what they ask
 * for has to be admitted as well, and nothing else is refused for them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config_of.h"
#include "proxy/http/h1.h"
#include "proxy/session/override.h"

static const char CONFIG[] = "version: 1\n"
			     "policies:\n"
			     "  default:\n"
			     "    rules:\n"
			     "      - {allow: http://a.test/ok/**, methods: [GET, POST, PUT]}\n"
			     "      - {allow: http://a.test/form/**, methods: [POST]}\n"
			     "      - {allow: http://b.test/**}\n"
			     "      - {deny: http://a.test/ok/no/**}\n";

static struct config *config;

static int setup(void **state)
{
	(void)state;
	config = config_of(CONFIG);
	return config ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	config_unref(config);
	return 0;
}

/* The reason for which a request with these lines is refused. */
static enum reason ask(const char *first, const char *fields, struct policy_decision *d,
		       struct err *e)
{
	static const struct h1_context outside;
	struct policy_request q;
	struct request r;
	struct strbuf head;
	int rc;

	strbuf_init(&head, 65536);
	strbuf_addf(&head, "%s HTTP/1.1\r\nHost: a.test\r\n%s\r\n", first, fields);
	if (h1_parse_request(strbuf_str(&head), &outside, &r, e) < 0)
		fail_msg("no request: %s%s: %s", first, fields, e->text);
	q = (struct policy_request){r.url.scheme, &r.url.host, r.url.port, r.method, r.url.path};
	policy_decide(config->policies[0], &q, d);
	assert_true(d->allow);
	rc = override_check(config->policies[0], &r, &q, d, e);
	assert_int_equal(rc == 0, d->allow);
	request_clear(&r);
	strbuf_clear(&head);
	return rc == 0 ? REASON_NONE : d->reason;
}

#define GET  "GET http://a.test/ok/x"
#define POST "POST http://a.test/ok/x"

static const struct row {
	const char *first, *fields;
	enum reason want;
} rows[] = {
	/* more than anybody asks */
	{POST, "X-HTTP-Method: GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET\r\n",
	 REASON_NONE},
	{POST,
	 "X-HTTP-Method: GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET,GET\r\n",
	 REASON_AMBIGUOUS_URL},
	/* marks that CGI makes hyphens of, keys as PHP reads them, no word */
	{GET, "X.HTTP.Method!Override: DELETE\r\n", REASON_NO_RULE},
	{GET, "X-HTTP-Method: \"PUT\"\r\n", REASON_NO_RULE},
	{GET "?+%20.method=DELETE", "", REASON_NO_RULE},
	{GET "?_method%00x=DELETE", "", REASON_NO_RULE},
	{GET "?x+_method=DELETE", "", REASON_NONE},
	/* nothing is asked for */
	{GET, "", REASON_NONE},
	{GET, "X-Method: DELETE\r\nX-HTTP-Method-Overrides: DELETE\r\n", REASON_NONE},
	{GET, "Accept: x-http-method-override\r\n", REASON_NONE},
	{GET "?q=_method", "", REASON_NONE},
	{GET "?_methods=DELETE&x_method=DELETE", "", REASON_NONE},

	/* methods */
	{POST, "X-HTTP-Method-Override: PUT\r\n", REASON_NONE},
	{POST, "X-HTTP-Method-Override: put\r\n", REASON_NONE},
	{POST, "X-HTTP-Method-Override: GET , PUT\r\n", REASON_NONE},
	{POST, "X-HTTP-Method-Override: DELETE\r\n", REASON_NO_RULE},
	{POST, "x-http-method: delete\r\n", REASON_NO_RULE},
	{POST, "X_METHOD_OVERRIDE: DELETE\r\n", REASON_NO_RULE},
	{POST, "X-Forwarded-Method: DELETE\r\n", REASON_NO_RULE},
	{POST, "X-HTTP-Method-Override: PUT, DELETE\r\n", REASON_NO_RULE},
	{POST, "X-HTTP-Method-Override: PUT\r\nX-Method-Override: DELETE\r\n", REASON_NO_RULE},
	{POST, "X-HTTP-Method-Override:\r\n", REASON_NO_RULE},
	{POST, "X-HTTP-Method-Override: \"PUT\"\r\n", REASON_NO_RULE},
	{POST, "X-HTTP-Method-Override: PUTPUTPUTPUTPUTPUTPUTPUTPUTPUTPUT\r\n", REASON_NO_RULE},
	{"POST http://a.test/form/x", "X-HTTP-Method-Override: PUT\r\n", REASON_NO_RULE},
	{POST "?_method=PUT", "", REASON_NONE},
	{POST "?_method=DELETE", "", REASON_NO_RULE},
	{POST "?a=b&_method=delete", "", REASON_NO_RULE},
	{POST "?a=b;_method=delete", "", REASON_NO_RULE},
	{POST "?_METHOD=DELETE", "", REASON_NO_RULE},
	{POST "?%5Fmethod=DELETE", "", REASON_NO_RULE},
	{POST "?_method=%44ELETE", "", REASON_NO_RULE},
	{POST "?_method=PUT&_method=DELETE", "", REASON_NO_RULE},
	{POST "?_method", "", REASON_NO_RULE},
	{POST "?X-HTTP-Method-Override=DELETE", "", REASON_NO_RULE},

	/* paths */
	{GET, "X-Original-URL: /ok/y\r\n", REASON_NONE},
	{GET, "X-Original-URL: /ok/%79?q=1\r\n", REASON_NONE},
	{GET, "X-Original-URL: /other\r\n", REASON_NO_RULE},
	{GET, "x_rewrite_url: /other\r\n", REASON_NO_RULE},
	{GET, "X-Forwarded-Uri: /other\r\n", REASON_NO_RULE},
	{GET, "X-Rewrite-URL: /ok/no/x\r\n", REASON_DENIED_BY_RULE},
	{GET, "X-Rewrite-URL: /ok/NO;v=1/x\r\n", REASON_DENIED_BY_RULE},
	{GET, "X-Original-URL: /ok/y\r\nX-Original-URL: /other\r\n", REASON_NO_RULE},
	{GET, "X-Original-URL: /ok/../other\r\n", REASON_AMBIGUOUS_URL},
	{GET, "X-Original-URL: http://a.test/ok/y\r\n", REASON_AMBIGUOUS_URL},
	{GET, "X-Original-URL: ok/y\r\n", REASON_AMBIGUOUS_URL},
	{GET, "X-Original-URL:\r\n", REASON_AMBIGUOUS_URL},
	{GET "?X-Original-URL=/other", "", REASON_NONE}, /* a field alone */
	{"POST http://a.test/form/x", "X-Original-URL: /ok/y\r\n", REASON_NONE},

	/* what a server takes off the path, so that the rest is meant */
	{GET "/ok/y", "SCRIPT_NAME: /ok/x\r\n", REASON_NONE},
	{GET "/ok/y", "Script-Name: /ok/x/\r\n", REASON_NONE},
	{GET "/ok/no/y", "SCRIPT_NAME: /ok/x\r\n", REASON_DENIED_BY_RULE},
	{GET "/other", "SCRIPT_NAME: /ok/x\r\n", REASON_NO_RULE},
	{GET "/other", "X-Script-Name: /ok/x/\r\n", REASON_NO_RULE},
	{GET "/other", "x_forwarded_prefix: /ok/x\r\n", REASON_NO_RULE},
	{GET "%40/ok/no/y", "X-Script-Name: /ok/x@\r\n", REASON_DENIED_BY_RULE},
	{GET "@/ok/no/y", "X-Script-Name: /%6fk/x%40\r\n", REASON_DENIED_BY_RULE},
	{GET "%40/ok/x@/other", "SCRIPT_NAME: /ok/x@\r\n", REASON_NO_RULE}, /* both of them */
	{GET "%40/ok/x@/ok/y", "SCRIPT_NAME: /ok/x@\r\n", REASON_NONE},
	{GET "ok/no/y", "SCRIPT_NAME: /ok/x\r\n", REASON_AMBIGUOUS_URL},
	{GET "/ok/no/y", "SCRIPT_NAME: /x\r\n", REASON_DENIED_BY_RULE}, /* an old one: anywhere */
	{GET, "SCRIPT_NAME: /ok/x\r\n", REASON_NO_RULE},		/* the root */
	{GET, "SCRIPT_NAME:\r\n", REASON_NONE},
	{GET, "SCRIPT_NAME: /\r\n", REASON_NONE},
	{GET, "X-Forwarded-Prefix: /elsewhere\r\n", REASON_NONE},
	{GET "/ok/y", "X-Forwarded-Prefix: /ok/x\r\nX-HTTP-Method: PUT\r\n", REASON_AMBIGUOUS_URL},

	/* a method and a path: together a request that nobody was asked about */
	{GET, "X-Original-URL: /ok/y\r\nX-HTTP-Method: PUT\r\n", REASON_AMBIGUOUS_URL},
	{GET "?_method=PUT", "X-Original-URL: /ok/y\r\n", REASON_AMBIGUOUS_URL},

	/* hosts */
	{GET, "X-Forwarded-Host: a.test\r\n", REASON_NONE},
	{GET, "X-Forwarded-Host: A.TEST.:8080, a.test\r\n", REASON_NONE},
	{GET, "X-Forwarded-Host: b.test\r\n", REASON_NAME_MISMATCH},
	{GET, "X-Host: a.test, b.test\r\n", REASON_NAME_MISMATCH},
	{GET, "X_Forwarded_Host: b.test\r\n", REASON_NAME_MISMATCH},
	{GET, "X-Forwarded-Host: a.test\r\nX-Forwarded-Host: b.test\r\n", REASON_NAME_MISMATCH},
	{GET, "X-Forwarded-Host:\r\n", REASON_NAME_MISMATCH},
	{GET, "Forwarded: for=192.0.2.1;proto=http\r\n", REASON_NONE},
	{GET, "Forwarded: for=192.0.2.1;host=a.test\r\n", REASON_NONE},
	{GET, "Forwarded: host=\"a.test:80\", for=x\r\n", REASON_NONE},
	{GET, "Forwarded: for=192.0.2.1; Host=b.test\r\n", REASON_NAME_MISMATCH},
	{GET, "Forwarded: host=a.test, host=\"b.test\"\r\n", REASON_NAME_MISMATCH},
	{GET, "Forwarded: host\r\n", REASON_NAME_MISMATCH},
};

static void test_rows(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err e = ERR_INIT;
		struct policy_decision d;
		enum reason got = ask(rows[i].first, rows[i].fields, &d, &e);

		if (got != rows[i].want)
			fail_msg("%s | %s: wanted %s, got %s (%s)", rows[i].first, rows[i].fields,
				 reason_word(rows[i].want), reason_word(got), e.text);
		assert_int_equal(got == REASON_NONE, e.text[0] == '\0');
		assert_false(str_ends(str_from_c(e.text), STR(" ")));
	}
}

/* The record names the rule that denies it, and no other. */
static void test_rule(void **state)
{
	struct policy_decision d;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(ask(GET, "X-Original-URL: /ok/no/x\r\n", &d, &e), REASON_DENIED_BY_RULE);
	assert_non_null(d.rule);
	assert_int_equal(d.rule->order, 3);
	assert_non_null(strstr(e.text, "/ok/no/x"));
	assert_int_equal(ask(GET, "X-Original-URL: /other\r\n", &d, &e), REASON_NO_RULE);
	assert_null(d.rule);
	assert_int_equal(ask(GET, "X-Forwarded-Host: b.test\r\n", &d, &e), REASON_NAME_MISMATCH);
	assert_null(d.rule);
	assert_int_equal(ask(GET, "X-Original-URL: /ok/y\r\n", &d, &e), REASON_NONE);
	assert_int_equal(d.rule->order, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_rule),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
