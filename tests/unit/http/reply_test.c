/*
 * The proxy's own answers: every reason gives a well-formed response that reads back with the
 * strict parser; text or JSON; nothing in a detail can break head or body.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "logging/limits.h"
#include "proxy/http/h1.h"
#include "proxy/http/reply.h"

/* Writes r and reads the head with the eyes of a client, but for what a proxy would drop. */
static struct str write_and_split(const struct reply *r, struct strbuf *out, struct response *ret)
{
	struct h1_scan scan = {.response = true};
	struct err e = ERR_INIT;
	size_t len = 0;

	strbuf_init(out, 65536);
	reply_write(r, out);
	assert_false(out->overflowed);
	if (h1_scan_head(&scan, strbuf_str(out), LIMIT_HEAD_BYTES, &len, &e) != 1)
		fail_msg("%s in:\n%s", e.text, strbuf_cstr(out));
	if (h1_parse_response(str_head(strbuf_str(out), len), STR("GET"), ret, &e) < 0)
		fail_msg("%s in:\n%s", e.text, strbuf_cstr(out));
	return str_skip(strbuf_str(out), len);
}

static void test_whole(void **state)
{
	struct reply r = {.reason = REASON_NO_RULE,
			  .detail = STR("no rule allows GET https://evil.test/x"),
			  .id = STR("0123456789abcdefghij"),
			  .keep = true};
	struct strbuf out;

	(void)state;
	strbuf_init(&out, 4096);
	reply_write(&r, &out);
	assert_string_equal(
		strbuf_cstr(&out),
		"HTTP/1.1 403 Forbidden by stile (no_rule)\r\n"
		"Content-Type: application/json\r\n"
		"Content-Length: 116\r\n"
		"Cache-Control: no-store\r\n"
		"X-Content-Type-Options: nosniff\r\n"
		"Proxy-Status: stile; error=http_request_denied; details=\"no_rule\"\r\n"
		"\r\n"
		"{\"error\":\"denied\",\"reason\":\"no_rule\",\"detail\":\"no rule allows GET "
		"https://evil.test/x\",\"id\":\"0123456789abcdefghij\"}\n");
	strbuf_reset(&out);
	r.head = true;
	r.keep = false;
	reply_write(&r, &out);
	assert_string_equal(
		strbuf_cstr(&out),
		"HTTP/1.1 403 Forbidden by stile (no_rule)\r\n"
		"Content-Type: application/json\r\n"
		"Content-Length: 116\r\n"
		"Cache-Control: no-store\r\n"
		"X-Content-Type-Options: nosniff\r\n"
		"Proxy-Status: stile; error=http_request_denied; details=\"no_rule\"\r\n"
		"Connection: close\r\n"
		"\r\n");
	strbuf_reset(&out);
	r.head = false;
	r.accept = STR("text/plain");
	reply_write(&r, &out);
	assert_string_equal(
		strbuf_cstr(&out),
		"HTTP/1.1 403 Forbidden by stile (no_rule)\r\n"
		"Content-Type: text/plain; charset=utf-8\r\n"
		"Content-Length: 130\r\n"
		"Cache-Control: no-store\r\n"
		"X-Content-Type-Options: nosniff\r\n"
		"Proxy-Status: stile; error=http_request_denied; details=\"no_rule\"\r\n"
		"Connection: close\r\n"
		"\r\n"
		"403 Forbidden\n"
		"stile refused this request.\n"
		"detail: no rule allows GET https://evil.test/x\n"
		"reason: no_rule\n"
		"id: 0123456789abcdefghij\n");
	strbuf_clear(&out);
}

/* All reasons, both forms: the length is right, the JSON is JSON, the words are the table's. */
static void test_every_reason(void **state)
{
	(void)state;
	for (int reason = REASON_NONE; reason < REASON_COUNT; reason++) {
		struct reply r = {.reason = (enum reason)reason,
				  .detail = STR("d"),
				  .id = STR("i")};
		struct response p;
		struct strbuf out;
		struct str body = write_and_split(&r, &out, &p);
		json_t *j = json_loadb(body.p, body.n, JSON_REJECT_DUPLICATES, NULL);

		assert_int_equal(p.status, reason_status(r.reason));
		assert_int_equal(p.body, BODY_LENGTH);
		assert_int_equal(p.length, body.n);
		assert_false(p.keep_alive);
		assert_true(str_ends(body, STR("}\n")));
		assert_non_null(j);
		assert_string_equal(json_string_value(json_object_get(j, "reason")),
				    reason_word(r.reason));
		assert_true(reply_phrase(p.status)[0] != '\0');
		assert_non_null(strstr(strbuf_cstr(&out), reason_proxy_error(r.reason)));
		json_decref(j);
		response_clear(&p);
		strbuf_clear(&out);

		r.accept = STR("text/html");
		body = write_and_split(&r, &out, &p);
		assert_int_equal(p.length, body.n);
		assert_non_null(strstr(body.p, reason_word(r.reason)));
		response_clear(&p);
		strbuf_clear(&out);
	}
}

static void test_error_words(void **state)
{
	static const struct {
		enum reason reason;
		const char *word, *line; /* a line the head must have, or NULL */
	} rows[] = {
		{REASON_NO_RULE, "denied", NULL},
		{REASON_METHOD_REFUSED, "denied", "\r\nAllow: GET, HEAD, "},
		{REASON_TOKEN_REQUIRED, "denied", "\r\nProxy-Authenticate: Basic "},
		{REASON_NAME_MISMATCH, "denied", NULL},
		{REASON_RATE_LIMITED, "denied", "\r\nRetry-After: 1\r\n"},
		{REASON_MALFORMED_REQUEST, "bad_request", NULL},
		{REASON_HEAD_TOO_LARGE, "bad_request", NULL},
		{REASON_CLIENT_TIMEOUT, "bad_request", NULL},
		{REASON_VERSION_UNSUPPORTED, "bad_request", NULL},
		{REASON_LOG_UNAVAILABLE, "unavailable", "\r\nRetry-After: 5\r\n"},
		{REASON_CREDENTIAL_UNAVAILABLE, "unavailable", NULL},
		{REASON_INTERNAL_ERROR, "unavailable", NULL},
		{REASON_DNS_FAILED, "upstream", NULL},
		{REASON_UPSTREAM_TIMEOUT, "upstream", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct reply r = {.reason = rows[i].reason};
		struct strbuf out;
		char want[64];

		strbuf_init(&out, 4096);
		reply_write(&r, &out);
		snprintf(want, sizeof(want), "{\"error\":\"%s\",", rows[i].word);
		assert_non_null(strstr(strbuf_cstr(&out), want));
		if (rows[i].line)
			assert_non_null(strstr(strbuf_cstr(&out), rows[i].line));
		/* what there is not is left out */
		assert_null(strstr(strbuf_cstr(&out), "detail\""));
		assert_null(strstr(strbuf_cstr(&out), "\"id\""));
		strbuf_clear(&out);
	}
}

static void test_accept(void **state)
{
	static const struct {
		const char *accept;
		bool text;
	} rows[] = {
		{"", false},
		{"*/*", false},
		{"application/json", false},
		{"application/json, text/plain, */*", false},
		{"application/json, text/event-stream", false},
		{"text/event-stream", false},
		{"image/png", false},
		{"text/plain", true},
		{"TEXT/HTML", true},
		{"text/*", true},
		{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true},
		{"text/plain;q=0.5, application/json", false},
		{"text/plain;q=0.5, application/json;q=0.4", true},
		{"text/plain;q=0.501, application/json;q=0.5", true},
		{"text/plain; q=0, */*;q=0", false},
		{"text/plain;q=0", false},
		{"text/html;level=1;q=0.3, */*;q=0.2", true},
		{"text/plain;q=x", false},
		{"text/plain;q=-1", false},
		{"text/plain;q=9999999999999", true},
		{"text/plain ; Q=0.9 , application/json ; q=0.8", true},
		{",,,;;,=,;q=,text/plain", true},
		{"text/plainx", false},
		{"application/*;q=1, text/plain;q=1.000", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct reply r = {.reason = REASON_NO_RULE, .accept = str_from_c(rows[i].accept)};
		struct strbuf out;
		bool text;

		strbuf_init(&out, 4096);
		reply_write(&r, &out);
		text = strstr(strbuf_cstr(&out), "Content-Type: text/plain; charset=utf-8") != NULL;
		if (text != rows[i].text)
			fail_msg("text %d for %s", text, rows[i].accept);
		strbuf_clear(&out);
	}
}

/* git asks for anything, and shows a refusal only if it is text. Nobody else is known by name. */
static void test_who_asks(void **state)
{
	static const struct {
		const char *agent;
		bool text;
	} rows[] = {
		{"git/2.39.5", true},  {"git/", false},		  {"GIT/2.39.5", false},
		{"github/1.0", false}, {"JGit/6.0 git/2", false}, {"curl/8", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct request q;
		struct str got;

		request_init(&q);
		q.accept = STR("*/*");
		assert_true(str_eq(reply_accept(&q), STR("*/*")));
		assert_int_equal(fields_add(&q.fields, STR("User-Agent"),
					    str_from_c(rows[i].agent)),
				 0);
		got = reply_accept(&q);
		assert_true(str_eq(got, rows[i].text ? STR("text/plain") : STR("*/*")));
		request_clear(&q);
	}
}

/* What came off the wire may stand in a detail: it breaks nothing and moves no cursor. */
static void test_hostile_details(void **state)
{
	static const char *const details[] = {
		"a\r\nSet-Cookie: x\r\n\r\n<script>",
		"\x1b[2K\x1b]0;x\x07",
		"\xe2\x80\xae\xe2\x80\xa8\xc2\x9b",
		"\xff\xfe\xc0\xaf",
		"\"}\\",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(details); i++) {
		for (int text = 0; text < 2; text++) {
			struct reply r = {.reason = REASON_MALFORMED_REQUEST,
					  .detail = str_from_c(details[i]),
					  .id = str_from_c(details[i]),
					  .accept = text ? STR("text/plain") : STR_NONE};
			struct response p;
			struct strbuf out;
			struct str body = write_and_split(&r, &out, &p);

			assert_int_equal(p.length, body.n);
			assert_null(fields_get(&p.fields, STR("Set-Cookie")));
			for (size_t at = 0; at < body.n; at++) {
				unsigned char c = (unsigned char)body.p[at];

				assert_true(c == '\n' || (c >= 0x20 && c != 0x7f));
				assert_true(text || c != '\n' || at == body.n - 1);
			}
			assert_null(strstr(body.p, "\xe2\x80\xae"));
			assert_null(strstr(body.p, "\xc2\x9b"));
			if (!text) {
				json_t *j = json_loadb(body.p, body.n, 0, NULL);

				assert_non_null(j);
				json_decref(j);
			}
			response_clear(&p);
			strbuf_clear(&out);
		}
	}
}

static void test_long_details(void **state)
{
	static char detail[100000];

	(void)state;
	for (int c = 0; c < 256; c += 5) {
		for (int text = 0; text < 2; text++) {
			struct reply r = {.reason = REASON_NO_RULE,
					  .detail = {detail, sizeof(detail)},
					  .id = {detail, sizeof(detail)},
					  .accept = text ? STR("text/plain") : STR_NONE};
			struct response p;
			struct strbuf out;
			struct str body;

			memset(detail, c, sizeof(detail));
			body = write_and_split(&r, &out, &p);
			assert_int_equal(p.length, body.n);
			assert_true(body.n < 8192);
			assert_non_null(strstr(body.p, "[cut]"));
			assert_true(str_ends(body, text ? STR("\n") : STR("}\n")));
			response_clear(&p);
			strbuf_clear(&out);
		}
	}
}

static void test_status(void **state)
{
	static const struct {
		unsigned given, want;
	} rows[] = {{0, 403}, {421, 421}, {502, 502}, {99, 500}, {100, 500}, {600, 500}, {7, 500}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct reply r = {.reason = REASON_NO_RULE, .status = rows[i].given};
		struct response p;
		struct strbuf out;

		write_and_split(&r, &out, &p);
		assert_int_equal(p.status, rows[i].want);
		response_clear(&p);
		strbuf_clear(&out);
	}
}

static void test_fixed_ones(void **state)
{
	(void)state;
	assert_true(str_eq(reply_connect_ok(), STR("HTTP/1.1 200 Connection established\r\n\r\n")));
	assert_true(str_eq(reply_continue(), STR("HTTP/1.1 100 Continue\r\n\r\n")));
	assert_string_equal(reply_phrase(404), "Not Found");
	assert_string_equal(reply_phrase(299), "");
	assert_string_equal(reply_phrase(0), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),	     cmocka_unit_test(test_every_reason),
		cmocka_unit_test(test_error_words),  cmocka_unit_test(test_accept),
		cmocka_unit_test(test_who_asks),     cmocka_unit_test(test_hostile_details),
		cmocka_unit_test(test_long_details), cmocka_unit_test(test_status),
		cmocka_unit_test(test_fixed_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
