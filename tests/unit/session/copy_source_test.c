/*
 * Where an object store is told to copy from: it has to be admitted as a GET under the same
 * credential, in the form that the store reads it in.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config_of.h"
#include "proxy/http/h1.h"
#include "proxy/session/copy_source.h"

static const char CONFIG[] =
	"version: 1\n"
	"credentials:\n"
	"  a: {from: {env: A}, as: bearer}\n"
	"  b: {from: {env: B}, as: bearer}\n"
	"policies:\n"
	"  default:\n"
	"    rules:\n"
	"      - {allow: [https://s3.eu.test/mine/**, https://s3.eu.test/put/**], credential: a}\n"
	"      - {allow: https://s3.eu.test/other/**, credential: b}\n"
	"      - {allow: https://s3.eu.test/open/**}\n"
	"      - {allow: https://s3.eu.test/writes/**, methods: [PUT], credential: a}\n"
	"      - {allow: \"https://mine.s3.eu.test/**\", credential: a}\n"
	"      - {allow: \"https://mine.custom.test/**\", credential: a}\n"
	"      - {allow: \"https://acct.blob.test/c/**\", credential: a}\n"
	"      - {deny: https://s3.eu.test/mine/secret/**}\n";

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

static enum reason ask(const char *host, const char *path, const char *field)
{
	struct h1_context inside = {.in_tunnel = true, .scheme = SCHEME_HTTPS, .port = 443};
	struct policy_decision d;
	struct policy_request q;
	struct err e = ERR_INIT;
	struct request r;
	struct strbuf head;
	int rc;

	strbuf_init(&head, 65536);
	strbuf_addf(&head, "PUT %s HTTP/1.1\r\nHost: %s\r\n%s\r\nContent-Length: 0\r\n\r\n", path,
		    host, field);
	assert_int_equal(url_parse_host_field(str_from_c(host), 443, &inside.host, &inside.port,
					      NULL),
			 0);
	if (h1_parse_request(strbuf_str(&head), &inside, &r, &e) < 0)
		fail_msg("no request: %s: %s", field, e.text);
	q = (struct policy_request){r.url.scheme, &r.url.host, r.url.port, r.method, r.url.path};
	policy_decide(config->policies[0], &q, &d);
	assert_true(d.allow && d.rule->credential);
	rc = copy_source_check(config->policies[0], &r, &d, &e);
	assert_int_equal(rc < 0, !d.allow);
	request_clear(&r);
	strbuf_clear(&head);
	return rc < 0 ? e.reason : REASON_NONE;
}

static void sources(void **state)
{
	static const struct {
		const char *host, *path, *field;
		enum reason why;
	} facts[] = {
		{"s3.eu.test", "/put/k", "X-Other: /mine/k", REASON_NONE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: /mine/k", REASON_NONE},
		{"s3.eu.test", "/put/k", "x-amz-copy-source: mine/k%20b?versionId=1", REASON_NONE},
		{"s3.eu.test", "/put/k", "X_Amz_Copy_Source: /none/k", REASON_NO_RULE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: /none/k", REASON_NO_RULE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: /mine/k\r\nX-Amz-Copy-Source: /none/k",
		 REASON_NO_RULE},
		/* another credential, or none, may read it: ours is the one that would */
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: /other/k", REASON_NO_RULE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: /open/k", REASON_NO_RULE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: /writes/k", REASON_NO_RULE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: /mine/secret/k", REASON_NO_RULE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: /mine/x%2F..%2Fsecret",
		 REASON_NO_RULE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: /mine/../none/k", REASON_NO_RULE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: /mine/a+b", REASON_NO_RULE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: mine", REASON_NO_RULE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source:", REASON_NO_RULE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: //mine/k", REASON_NO_RULE},
		{"s3.eu.test", "/put/k", "X-Amz-Copy-Source: %6Dine/k", REASON_NO_RULE},
		{"s3.eu.test", "/put/k",
		 "X-Amz-Copy-Source: arn:aws:s3:eu:1:accesspoint/a/object/k", REASON_NO_RULE},
		{"s3.eu.test", "/put/k?x-amz-copy-source=/mine/k", "X: y", REASON_NO_RULE},
		{"s3.eu.test", "/put/k?a&X%2DAmz-Copy-Source=/mine/k", "X: y", REASON_NO_RULE},
		{"s3.eu.test", "/put/k?x-amz-copy=1&a=x-amz-copy-source", "X: y", REASON_NONE},
		{"s3.eu.test", "/put/k", "X-Amz-Rename-Source: /mine/k", REASON_NO_RULE},
		/* by host: the rule's own `**` says nothing about another bucket */
		{"mine.s3.eu.test", "/k", "X-Amz-Copy-Source: /mine/k", REASON_NONE},
		{"mine.s3.eu.test", "/k", "X-Amz-Copy-Source: /none/k", REASON_NO_RULE},
		{"mine.s3.eu.test", "/k", "X-Amz-Copy-Source: /a@b/k", REASON_NO_RULE},
		{"mine.custom.test", "/mine/k", "X-Amz-Copy-Source: /mine/k", REASON_NO_RULE},
		{"acct.blob.test", "/c/k", "x-ms-copy-source: https://acct.blob.test/c/j",
		 REASON_NONE},
		{"acct.blob.test", "/c/k", "x-ms-copy-source: https://acct.blob.test/d/j",
		 REASON_NO_RULE},
		{"acct.blob.test", "/c/k", "x-ms-copy-source: https://evil.test/c/j",
		 REASON_NO_RULE},
		{"acct.blob.test", "/c/k", "x-ms-copy-source: /c/j", REASON_NO_RULE},
		{"acct.blob.test", "/c/k", "X-Copy-From: c/j", REASON_NO_RULE},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(facts); i++) {
		enum reason got = ask(facts[i].host, facts[i].path, facts[i].field);

		if (got != facts[i].why)
			fail_msg("%s%s %s: %s", facts[i].host, facts[i].path, facts[i].field,
				 reason_word(got));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(sources)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
