/*
 * Request heads: what is accepted and as what, what is refused and with which reason, however the
 * bytes are cut; what a refused one leaves for the record; what a typical one costs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "h1_fixture.h"
#include "logging/limits.h"
#include "proxy/http/h1.h"

#define BYTES(s) s, sizeof(s) - 1
#define H	 "Host: allowed.test:8080\r\n"
#define GET	 "GET http://allowed.test:8080/ok/a HTTP/1.1\r\n"
#define POST	 "POST http://allowed.test:8080/ok/a HTTP/1.1\r\n"
#define POST10	 "POST http://allowed.test:8080/ok/a HTTP/1.0\r\n"

static const struct h1_context outside;
static struct h1_context tunnel;

static int setup(void **state)
{
	(void)state;
	tunnel.in_tunnel = true;
	tunnel.scheme = SCHEME_HTTPS;
	tunnel.port = 8443;
	return host_parse(STR("allowed.test"), &tunnel.host, NULL);
}

/* What becomes of the bytes, REASON_NONE if they are a request; the same however they are cut. */
static enum reason judge(struct str raw, const struct h1_context *ctx, struct request *ret,
			 struct err *e)
{
	static const size_t steps[] = {1, 2, 3, 7, 64};
	size_t len = 0, cut_len = 0;
	struct err other = ERR_INIT;
	char *exact = malloc(raw.n + 1);
	int rc;

	assert_non_null(exact);
	memcpy(exact, raw.p, raw.n);
	*e = ERR_INIT;
	rc = scan_in_steps((struct h1_scan){0}, raw, raw.n, LIMIT_HEAD_BYTES, &len, e);
	for (size_t i = 0; i < ARRAY_LEN(steps) && raw.n < 4096; i++) {
		int cut = scan_in_steps((struct h1_scan){0}, raw, steps[i], LIMIT_HEAD_BYTES,
					&cut_len, &other);

		if (cut != rc || (rc == 1 && cut_len != len) ||
		    (rc < 0 && other.reason != e->reason))
			fail_msg("steps of %zu: %d instead of %d (%s) for: %.*s", steps[i], cut, rc,
				 other.text, STR_FMT(raw));
	}
	if (rc == 0)
		fail_msg("unfinished: %.*s", STR_FMT(raw));
	if (rc < 0) {
		/* For the record: never a success. */
		assert_int_equal(h1_parse_request(str_from(exact, raw.n), ctx, ret, &other), -1);
	} else {
		rc = h1_parse_request(str_from(exact, len), ctx, ret, e);
	}
	memset(exact, 'X', raw.n); /* nothing may point there */
	free(exact);
	return rc < 0 ? e->reason : REASON_NONE;
}

static void expect_reason(struct str raw, const struct h1_context *ctx, enum reason want)
{
	struct request r;
	struct err e;
	enum reason got = judge(raw, ctx, &r, &e);

	if (got != want)
		fail_msg("%s (%s) instead of %s for:\n%.*s", reason_word(got), e.text,
			 reason_word(want), STR_FMT(str_head(raw, 300)));
	if (want != REASON_NONE)
		assert_true(e.text[0] != '\0');
	request_clear(&r);
}

struct row {
	const char *raw;
	size_t n;
	enum reason want;
};

static void run(const struct row *rows, size_t n, const struct h1_context *ctx)
{
	for (size_t i = 0; i < n; i++)
		expect_reason(str_from(rows[i].raw, rows[i].n), ctx, rows[i].want);
}

#define OK	       REASON_NONE
#define BAD	       REASON_MALFORMED_REQUEST
#define RUN(rows, ctx) run(rows, ARRAY_LEN(rows), ctx)

static void test_request_line(void **state)
{
	static const struct row rows[] = {
		{BYTES(GET H "\r\n"), OK},
		{BYTES("\r\n" GET H "\r\n"), OK},
		{BYTES("\r\n\r\n\r\n\r\n" GET H "\r\n"), OK},
		{BYTES("\r\n\r\n\r\n\r\n\r\n" GET H "\r\n"), BAD},
		{BYTES("\n" GET H "\r\n"), BAD},
		{BYTES("\r" GET H "\r\n"), BAD},
		{BYTES(" " GET H "\r\n"), BAD},
		{BYTES("GET  http://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/  HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ HTTP/1.1 \r\n" H "\r\n"), BAD},
		{BYTES("GET\thttp://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/\tHTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/a b HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ HTTP/1.1 HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/\r\n" H "\r\n"), BAD},
		{BYTES("GET\r\n" H "\r\n"), BAD},
		{BYTES("GET \r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ \r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ HTTP/1.2\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ HTTP/0.9\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ HTTP/1.10\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ HTTP/1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ HTTP/11\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ http/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ HTTP/1,1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ HTTPS/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ HTTP/1.1\r\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ HTTP/2\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/ HTTP/2.0\r\n" H "\r\n"),
		 REASON_VERSION_UNSUPPORTED},
		{BYTES("GET http://allowed.test:8080/ HTTP/3.0\r\n" H "\r\n"),
		 REASON_VERSION_UNSUPPORTED},
		{BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), REASON_VERSION_UNSUPPORTED},
		{BYTES("PRI http://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("G\x00T http://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("G(T http://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("G\xc3\xa9T http://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET: http://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), BAD},
		{BYTES("\x80\x2e\x01\x03\x01"), BAD},
		{BYTES("SSH-2.0-OpenSSH_9.2\r\n"), BAD},
		{BYTES("HTTP/1.1 200 OK\r\n\r\n"), BAD},
		{BYTES("{\"a\":1}"), BAD},
		{BYTES("GET http://allowed.test:8080/\x1b[2K HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/\x7f HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/\x00 HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/a\rb HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:8080/a\nb HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("abcdefghijklmnopqrstuvwxyzABCDEF http://allowed.test:8080/ HTTP/1.1\r\n" H
		       "\r\n"),
		 OK},
		{BYTES("abcdefghijklmnopqrstuvwxyzABCDEFG http://allowed.test:8080/ HTTP/1.1\r\n" H
		       "\r\n"),
		 BAD},
		{BYTES("get http://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), OK},
		{BYTES("trace http://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), OK},
		{BYTES("TRACK http://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), OK},
		{BYTES("M-SEARCH http://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), OK},
		{BYTES("TRACE http://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"),
		 REASON_METHOD_REFUSED},
		{BYTES("TRACE http://allowed.test:8080/ HTTP/1.0\r\n" H "\r\n"),
		 REASON_METHOD_REFUSED},
		/* the end of lines */
		{BYTES("GET http://allowed.test:8080/ HTTP/1.1\n" H "\r\n"), BAD},
		{BYTES(GET "Host: allowed.test:8080\n\r\n"), BAD},
		{BYTES(GET H "\n"), BAD},
		{BYTES(GET H "\r\r\n"), BAD},
		{BYTES(GET H "\r \n"), BAD},
	};

	(void)state;
	RUN(rows, &outside);
}

static void test_targets_outside(void **state)
{
	static const struct row rows[] = {
		{BYTES("GET http://allowed.test:8080 HTTP/1.1\r\n" H "\r\n"), OK},
		{BYTES("GET http://allowed.test:8080?a HTTP/1.1\r\n" H "\r\n"), OK},
		{BYTES("GET HTTP://ALLOWED.TEST.:8080/ HTTP/1.1\r\n" H "\r\n"), OK},
		{BYTES("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), OK},
		{BYTES("GET http://allowed.test:8080/\xc3\xa9 HTTP/1.1\r\n" H "\r\n"), OK},
		{BYTES("GET / HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET /ok/a HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET //allowed.test:8080/ok HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET allowed.test:8080 HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET allowed.test HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET ftp://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET https://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http:///x HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:0/ HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http://allowed.test:/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BAD},
		{BYTES("OPTIONS * HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET * HTTP/1.1\r\n" H "\r\n"), BAD},
		{BYTES("GET http:/allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"), REASON_AMBIGUOUS_URL},
		{BYTES("GET http://u:p@allowed.test:8080/ HTTP/1.1\r\n" H "\r\n"),
		 REASON_AMBIGUOUS_URL},
		{BYTES("GET http://allowed.test:8080/a/../b HTTP/1.1\r\n" H "\r\n"),
		 REASON_AMBIGUOUS_URL},
		{BYTES("GET http://allowed.test:8080/a/%2e%2E/b HTTP/1.1\r\n" H "\r\n"),
		 REASON_AMBIGUOUS_URL},
		{BYTES("GET http://allowed.test:8080/a\\b HTTP/1.1\r\n" H "\r\n"),
		 REASON_AMBIGUOUS_URL},
		{BYTES("GET http://allowed.test:8080/a#b HTTP/1.1\r\n" H "\r\n"),
		 REASON_AMBIGUOUS_URL},
		{BYTES("GET http://0x7f.1/ HTTP/1.1\r\nHost: 0x7f.1\r\n\r\n"),
		 REASON_AMBIGUOUS_URL},
	};

	(void)state;
	RUN(rows, &outside);
}

static void test_connect(void **state)
{
#define C "CONNECT allowed.test:8443 HTTP/1.1\r\n"
	static const struct row rows[] = {
		{BYTES(C "Host: allowed.test:8443\r\n\r\n"), OK},
		{BYTES(C "Host: allowed.test\r\n\r\n"), OK},
		{BYTES(C "Host: ALLOWED.test.:8443\r\n\r\n"), OK},
		{BYTES("CONNECT [::1]:8443 HTTP/1.1\r\nHost: [::1]:8443\r\n\r\n"), OK},
		{BYTES("CONNECT 127.0.0.1:22 HTTP/1.0\r\nHost: 127.0.0.1:22\r\n\r\n"), OK},
		{BYTES("CONNECT _dmarc.allowed.test:443 HTTP/1.1\r\nHost: "
		       "_dmarc.allowed.test:443\r\n\r\n"),
		 OK},
		{BYTES(C "Host: allowed.test:443\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES(C "Host: evil.test\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES(C "Host: evil.test:8443\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES(C "\r\n"), BAD},
		{BYTES(C "Host: allowed.test:8443\r\nHost: allowed.test:8443\r\n\r\n"), BAD},
		{BYTES(C "Host: allowed.test:8443\r\nContent-Length: 0\r\n\r\n"), OK},
		{BYTES(C "Host: allowed.test:8443\r\nContent-Length: 40\r\n\r\n"), BAD},
		{BYTES(C "Host: allowed.test:8443\r\nTransfer-Encoding: chunked\r\n\r\n"), BAD},
		{BYTES("CONNECT allowed.test HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BAD},
		{BYTES("CONNECT allowed.test: HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BAD},
		{BYTES("CONNECT :8443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BAD},
		{BYTES("CONNECT allowed.test:0 HTTP/1.1\r\nHost: allowed.test:0\r\n\r\n"), BAD},
		{BYTES("CONNECT allowed.test:65536 HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BAD},
		{BYTES("CONNECT allowed.test:8443/x HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BAD},
		{BYTES("CONNECT http://allowed.test:8443/ HTTP/1.1\r\nHost: a.test\r\n\r\n"), BAD},
		{BYTES("CONNECT / HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BAD},
		{BYTES("CONNECT * HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BAD},
		{BYTES("CONNECT evil.test\x00.allowed.test:443 HTTP/1.1\r\n\r\n"), BAD},
		{BYTES("CONNECT evil.test%00.allowed.test:443 HTTP/1.1\r\n\r\n"), BAD},
		{BYTES("CONNECT evil.test\t.allowed.test:443 HTTP/1.1\r\n\r\n"), BAD},
		{BYTES("CONNECT evil.test\x7f.allowed.test:443 HTTP/1.1\r\n\r\n"), BAD},
		{BYTES("CONNECT evil.test%0d%0a.allowed.test:443 HTTP/1.1\r\n\r\n"), BAD},
		{BYTES("CONNECT a..allowed.test:443 HTTP/1.1\r\n\r\n"), BAD},
		{BYTES("CONNECT \x1b[2K\x1b[1Aallowed.test:443 HTTP/1.1\r\n\r\n"), BAD},
		{BYTES("CONNECT \xc2\x9b.allowed.test:443 HTTP/1.1\r\n\r\n"), BAD},
		{BYTES("CONNECT u@allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n"),
		 REASON_AMBIGUOUS_URL},
		{BYTES("CONNECT 127.1:443 HTTP/1.1\r\nHost: 127.1:443\r\n\r\n"),
		 REASON_AMBIGUOUS_URL},
		{BYTES("CONNECT allowed.test:0443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n"),
		 REASON_AMBIGUOUS_URL},
	};

	(void)state;
	RUN(rows, &outside);
	expect_reason(STR(C "Host: allowed.test:8443\r\n\r\n"), &tunnel, BAD);
}

static void test_targets_in_tunnel(void **state)
{
#define HT "Host: allowed.test:8443\r\n\r\n"
	static const struct row rows[] = {
		{BYTES("GET / HTTP/1.1\r\n" HT), OK},
		{BYTES("GET /ok?a=b HTTP/1.1\r\n" HT), OK},
		{BYTES("GET //evil.test/x HTTP/1.1\r\n" HT), OK},
		{BYTES("GET https://allowed.test:8443/ok HTTP/1.1\r\n" HT), OK},
		{BYTES("GET HTTPS://Allowed.Test:8443 HTTP/1.1\r\n" HT), OK},
		{BYTES("GET http://allowed.test:8443/ok HTTP/1.1\r\n" HT), REASON_NAME_MISMATCH},
		{BYTES("GET https://evil.test:8443/ok HTTP/1.1\r\n" HT), REASON_NAME_MISMATCH},
		{BYTES("GET https://allowed.test/ok HTTP/1.1\r\n" HT), REASON_NAME_MISMATCH},
		{BYTES("GET https://evil.test:8443/ HTTP/1.1\r\nHost: evil.test:8443\r\n\r\n"),
		 REASON_NAME_MISMATCH},
		{BYTES("GET / HTTP/1.1\r\nHost: evil.test:8443\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES("GET / HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES("GET / HTTP/1.1\r\nHost: a.allowed.test:8443\r\n\r\n"),
		 REASON_NAME_MISMATCH},
		{BYTES("OPTIONS * HTTP/1.1\r\n" HT), BAD},
		{BYTES("GET ok HTTP/1.1\r\n" HT), BAD},
		{BYTES("GET ?x HTTP/1.1\r\n" HT), BAD},
		{BYTES("GET allowed.test:8443 HTTP/1.1\r\n" HT), BAD},
		{BYTES("GET /a/../b HTTP/1.1\r\n" HT), REASON_AMBIGUOUS_URL},
		{BYTES("TRACE / HTTP/1.1\r\n" HT), REASON_METHOD_REFUSED},
		{BYTES("GET / HTTP/1.1\r\n\r\n"), BAD},
	};

	struct request r = {0};
	struct err e;

	(void)state;
	RUN(rows, &tunnel);
	/* For the record: whereto it was. */
	assert_int_equal(judge(STR("CONNECT EVIL.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n"),
			       &tunnel, &r, &e),
			 BAD);
	assert_string_equal(r.url.host.text, "evil.test");
	assert_int_equal(r.url.port, 443);
	assert_non_null(strstr(e.text, "where no proxy is asked"));
	request_clear(&r);
}

static void test_host(void **state)
{
#define A  "GET http://allowed.test:8080/ok/a HTTP/1.1\r\n"
#define A8 "GET http://allowed.test/ok/a HTTP/1.1\r\n"
	static const struct row rows[] = {
		{BYTES(A "Host: allowed.test:8080\r\n\r\n"), OK},
		{BYTES(A "hOST:allowed.test:8080\r\n\r\n"), OK},
		{BYTES(A "Host: \t allowed.test:8080 \t\r\n\r\n"), OK},
		{BYTES(A "Host: ALLOWED.TEST.:8080\r\n\r\n"), OK},
		{BYTES(A8 "Host: allowed.test\r\n\r\n"), OK},
		{BYTES(A8 "Host: allowed.test:80\r\n\r\n"), OK},
		{BYTES(A8 "Host: allowed.test:443\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES(A "Host: evil.test\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES(A "Host: evil.test:8080\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES(A "Host: allowed.test\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES(A "Host: allowed.test:8081\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES(A "Host: xallowed.test:8080\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES(A "Host: 127.0.0.1:8080\r\n\r\n"), REASON_NAME_MISMATCH},
		{BYTES(A "\r\n"), BAD},
		{BYTES(A "Host:\r\n\r\n"), BAD},
		{BYTES(A "Host: \r\n\r\n"), BAD},
		{BYTES(A H H "\r\n"), BAD},
		{BYTES(A H "Host: evil.test\r\n\r\n"), BAD},
		{BYTES(A "Host: evil.test\r\n" H "\r\n"), BAD},
		{BYTES(A H "X: y\r\nhost: allowed.test:8080\r\n\r\n"), BAD},
		{BYTES(A "Host: allowed.test:8080, evil.test\r\n\r\n"), BAD},
		{BYTES(A "Host: allowed.test:8080 evil.test\r\n\r\n"), BAD},
		{BYTES(A "Host: evil.test allowed.test:8080\r\n\r\n"), BAD},
		{BYTES(A "Host: allowed.test:8080/\r\n\r\n"), BAD},
		{BYTES(A "Host: http://allowed.test:8080\r\n\r\n"), BAD},
		{BYTES(A "Host: allowed.test:\r\n\r\n"), BAD},
		{BYTES(A "Host: allowed.test:8080:8080\r\n\r\n"), BAD},
		{BYTES(A "Host: allowed.test:+8080\r\n\r\n"), BAD},
		{BYTES(A "Host: allowed.test:08080\r\n\r\n"), BAD},
		{BYTES(A "Host: allowed.test:73616\r\n\r\n"), BAD},
		{BYTES(A "Host: u@allowed.test:8080\r\n\r\n"), BAD},
		{BYTES(A "Host: allowed.test#:8080\r\n\r\n"), BAD},
		{BYTES(A "Host: allowed.test%00:8080\r\n\r\n"), BAD},
		{BYTES(A "Host: allowed..test:8080\r\n\r\n"), BAD},
		{BYTES(A "Host: 127.1:8080\r\n\r\n"), BAD},
		{BYTES(A "Host: [::1\r\n\r\n"), BAD},
		/* HTTP/1.0 asks for none where the target says the name */
		{BYTES("GET http://allowed.test:8080/ HTTP/1.0\r\n\r\n"), OK},
		{BYTES("CONNECT allowed.test:8080 HTTP/1.0\r\n\r\n"), OK},
		{BYTES("CONNECT allowed.test:8080 HTTP/1.1\r\n\r\n"), BAD},
	};

	(void)state;
	RUN(rows, &outside);
}

static void test_field_lines(void **state)
{
	static const struct row rows[] = {
		{BYTES(POST H "X: 1\r\n\r\n"), OK},
		{BYTES(POST H "X:\r\n\r\n"), OK},
		{BYTES(POST H "X: \t \r\n\r\n"), OK},
		{BYTES(POST H "!#$%&'*+-.^_`|~09azAZ: x\r\n\r\n"), OK},
		{BYTES(POST H "X: caf\xc3\xa9 \xff\r\n\r\n"), OK},
		{BYTES(POST H "X: a\tb\r\n\r\n"), OK},
		{BYTES(POST H "X: a:b;c=\"d\"\r\n\r\n"), OK},
		{BYTES(POST H "Transfer-Encoding : chunked\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding\t: chunked\r\n\r\n"), BAD},
		{BYTES(POST H "X: 1\r\n Transfer-Encoding: chunked\r\n\r\n"), BAD},
		{BYTES(POST H "X: 1\r\n\tmore\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length:\r\n 5\r\n\r\n"), BAD},
		{BYTES(POST H ": x\r\nContent-Length: 5\r\n\r\n"), BAD},
		{BYTES(POST H ":\r\n\r\n"), BAD},
		{BYTES(POST " " H "\r\n"), BAD},
		{BYTES(POST "\t" H "\r\n"), BAD},
		{BYTES(POST " \r\n" H "\r\n"), BAD},
		{BYTES(POST H " \r\n\r\n"), BAD},
		{BYTES(POST H "X\x00Y: 1\r\n\r\n"), BAD},
		{BYTES(POST H "X: a\x00"
			      "b\r\n\r\n"),
		 BAD},
		{BYTES(POST H "X: a\rb\r\n\r\n"), BAD},
		{BYTES(POST H "X: a\r\r\n\r\n"), BAD},
		{BYTES(POST H "X: a\nb: c\r\n\r\n"), BAD},
		{BYTES(POST H "X: a\x0b\r\n\r\n"), BAD},
		{BYTES(POST H "X: a\x0c\r\n\r\n"), BAD},
		{BYTES(POST H "X: \x1b[2K\r\n\r\n"), BAD},
		{BYTES(POST H "X: \x7f\r\n\r\n"), BAD},
		{BYTES(POST H "X: \x08\r\n\r\n"), BAD},
		{BYTES(POST H "Foo Bar: 1\r\n\r\n"), BAD},
		{BYTES(POST H "no-colon-here\r\n\r\n"), BAD},
		{BYTES(POST H "x\":\"y: 1\r\n\r\n"), BAD},
		{BYTES(POST H "F\xc3\xa9: 1\r\n\r\n"), BAD},
		{BYTES(POST H "F(): 1\r\n\r\n"), BAD},
		{BYTES(POST H "F,G: 1\r\n\r\n"), BAD},
		{BYTES(POST H "F=G: 1\r\n\r\n"), BAD},
		{BYTES(POST H "F/G: 1\r\n\r\n"), BAD},
		{BYTES(POST H "F@G: 1\r\n\r\n"), BAD},
		{BYTES(POST H "F;G: 1\r\n\r\n"), BAD},
		{BYTES(POST H "F[G]: 1\r\n\r\n"), BAD},
		{BYTES(POST H "F\\G: 1\r\n\r\n"), BAD},
		{BYTES(POST H "{F}: 1\r\n\r\n"), BAD},
		{BYTES(POST H "<F>: 1\r\n\r\n"), BAD},
		{BYTES(POST H "F?: 1\r\n\r\n"), BAD},
	};

	(void)state;
	RUN(rows, &outside);
}

static void test_framing(void **state)
{
	static const struct row rows[] = {
		{BYTES(POST H "Content-Length: 5\r\n\r\n"), OK},
		{BYTES(POST H "Content-Length: 0\r\n\r\n"), OK},
		{BYTES(POST H "content-length:005\t\r\n\r\n"), OK},
		{BYTES(POST H "Content-Length: 9223372036854775807\r\n\r\n"), OK},
		{BYTES(POST10 H "Content-Length: 5\r\n\r\n"), OK},
		{BYTES(POST H "Content-Length: 9223372036854775808\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 18446744073709551615\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 18446744073709551621\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 99999999999999999999999999\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 5\r\ncontent-length: 5\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length:\r\nContent-Length: 5\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 5, 6\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 5, 5\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 5,\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: ,5\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length:\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: +5\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: -5\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: -0\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 0x5\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 5 5\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 5;\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 5.0\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 5e0\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 1_0\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: \"5\"\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: five\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 5\x0b\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: \xd9\xa5\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: chunked\r\n\r\n"), OK},
		{BYTES(POST H "transfer-encoding:CHUNKED \t\r\n\r\n"), OK},
		{BYTES(GET H "Transfer-Encoding: Chunked\r\n\r\n"), OK},
		{BYTES(POST10 H "Transfer-Encoding: chunked\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"), BAD},
		{BYTES(POST H "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: chunked,\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: ,chunked\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: chunked, gzip\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: gzip, chunked\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: chunked, chunked\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: gzip\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: identity\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: xchunked\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: chunkedx\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: chunk\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: chunked;q=1\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: \"chunked\"\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: chunked\x0b\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: \xc2\xa0"
			      "chunked\r\n\r\n"),
		 BAD},
		{BYTES(POST H "Transfer-Encoding:\r\n\r\n"), BAD},
		{BYTES(POST H "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"),
		 BAD},
		{BYTES(POST H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
		 BAD},
		{BYTES(POST H "Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n\r\n"), BAD},
		/* names that resemble: to CGI they are the same */
		{BYTES(POST H "Transfer_Encoding: chunked\r\n\r\n"), BAD},
		{BYTES(POST H "content_length: 7\r\n\r\n"), BAD},
		{BYTES(POST H "Proxy_Connection: close\r\n\r\n"), BAD},
		{BYTES(POST H "Content_Type: a/b\r\n\r\n"), OK},
		{BYTES(POST H "X_Y: 1\r\n\r\n"), OK},
		{BYTES(POST H "X-Content-Length: 7\r\n\r\n"), OK},
	};

	(void)state;
	RUN(rows, &outside);
}

static void test_wishes(void **state)
{
	static const struct row rows[] = {
		{BYTES(POST H "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"), OK},
		{BYTES(POST H "Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n"), OK},
		{BYTES(GET H "Expect: 100-continue\r\n\r\n"), OK},
		{BYTES(POST H "Expect: x\r\nContent-Length: 5\r\n\r\n"), REASON_EXPECTATION_FAILED},
		{BYTES(POST H "Expect:\r\nContent-Length: 5\r\n\r\n"), REASON_EXPECTATION_FAILED},
		{BYTES(POST H "Expect: 100-continue, x\r\n\r\n"), REASON_EXPECTATION_FAILED},
		{BYTES(POST H "Expect: 100-continue\r\nExpect: x\r\n\r\n"),
		 REASON_EXPECTATION_FAILED},
		{BYTES(POST H "Expect: 100-continue;x\r\n\r\n"), REASON_EXPECTATION_FAILED},
		{BYTES(POST10 H "Expect: x\r\nContent-Length: 5\r\n\r\n"), OK},
		{BYTES(GET H "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), OK},
		/* the body is beyond doubt or the wish does not count */
		{BYTES(POST H "Expect: x\r\nContent-Length: 5, 5\r\n\r\n"), BAD},
		{BYTES(POST H "Upgrade: h2c\r\nTransfer-Encoding: x\r\n\r\n"), BAD},
	};

	(void)state;
	RUN(rows, &outside);
}

static void test_connection_options(void **state)
{
	static const struct row rows[] = {
		{BYTES(GET H "Connection: close\r\n\r\n"), OK},
		{BYTES(GET H "Connection:\r\n\r\n"), OK},
		{BYTES(GET H "Connection: , ,close,,\r\n\r\n"), OK},
		{BYTES(GET H "Connection: X-Foo, keep-alive, Trailer\r\n\r\n"), OK},
		{BYTES(GET H "Connection: host\r\n\r\n"), BAD},
		{BYTES(GET H "Connection: close, Content-Length\r\n\r\n"), BAD},
		{BYTES(GET H "Connection: TRANSFER-ENCODING\r\n\r\n"), BAD},
		{BYTES(GET H "Connection: authorization\r\n\r\n"), BAD},
		{BYTES(GET H "Connection: Cookie\r\n\r\n"), BAD},
		{BYTES(GET H "Connection: Expect\r\n\r\n"), BAD},
		{BYTES(GET H "Connection: content-type\r\n\r\n"), BAD},
		{BYTES(GET H "Connection: Range\r\n\r\n"), BAD},
		{BYTES(GET H "Connection: close x\r\n\r\n"), BAD},
		{BYTES(GET H "Connection: \"close\"\r\n\r\n"), BAD},
		{BYTES(GET H "Connection: clo\xc3\xa9se\r\n\r\n"), BAD},
		{BYTES(GET H "Connection: close;q=1\r\n\r\n"), BAD},
		{BYTES(GET H "Connection: close\r\nConnection: Host\r\n\r\n"), BAD},
	};

	(void)state;
	RUN(rows, &outside);
}

/* Everything that is read out of one rich head. */
static void test_members(void **state)
{
	struct request r;
	struct err e;

	(void)state;
	assert_int_equal(judge(STR("POST http://Allowed.Test:8080/%73ecret?q=1 HTTP/1.1\r\n"
				   "User-Agent: x/1\r\n"
				   "Keep-Alive: timeout=5\r\n"
				   "Proxy-Connection: keep-alive\r\n"
				   "Proxy-Authorization: Basic eA==\r\n"
				   "proxy-foo: 1\r\n"
				   "HOST: allowed.test:8080\r\n"
				   "TE: trailers, deflate;q=0.5\r\n"
				   "X-Gone: 1\r\n"
				   "Connection: TE, X-Gone\r\n"
				   "x-gone: 2\r\n"
				   "Accept: a/b\r\n"
				   "accept: c/d\r\n"
				   "Cookie: a=1\r\n"
				   "cookie:b=2  \r\n"
				   "Trailer: X-Sum\r\n"
				   "Alt-Svc: h3\r\n"
				   "Connection: x-later\r\n"
				   "X-Later: 1\r\n"
				   "Expect: 100-CONTINUE\r\n"
				   "Transfer-Encoding: chunked\r\n\r\n"),
			       &outside, &r, &e),
			 REASON_NONE);
	expect_fields(&r.fields, "User-Agent=x/1|Accept=a/b|accept=c/d|Cookie=a=1|cookie=b=2|"
				 "Trailer=X-Sum|Alt-Svc=h3|");
	assert_true(str_eq(r.method, STR("POST")));
	assert_int_equal(r.version, HTTP_11);
	assert_int_equal(r.form, TARGET_ABSOLUTE);
	assert_string_equal(r.url.host.text, "allowed.test");
	assert_int_equal(r.url.port, 8080);
	assert_true(str_eq(r.url.path, STR("/secret")));
	assert_true(str_eq(r.url.query, STR("q=1")));
	assert_int_equal(r.body, BODY_CHUNKED);
	assert_true(r.keep_alive);
	assert_true(r.expect_continue);
	assert_true(r.te_trailers);
	assert_int_equal(r.upgrade.n, 0);
	assert_true(str_eq(r.accept, STR("a/b")));
	assert_true(str_eq(r.raw_host, STR("allowed.test:8080")));
	assert_true(str_eq(r.raw_target, STR("http://Allowed.Test:8080/%73ecret?q=1")));
	assert_true(str_eq(r.proxy_authorization, STR("Basic eA==")));
	request_clear(&r);
}

static void test_bodies(void **state)
{
	static const struct {
		const char *raw;
		enum body_kind body;
		uint64_t length;
		bool keep, expects;
	} rows[] = {
		{GET H "\r\n", BODY_NONE, 0, true, false},
		{POST H "\r\n", BODY_NONE, 0, true, false},
		{GET H "Content-Length: 3\r\n\r\n", BODY_LENGTH, 3, true, false},
		{POST H "Content-Length: 0\r\n\r\n", BODY_LENGTH, 0, true, false},
		{POST H "Content-Length: 007\r\n\r\n", BODY_LENGTH, 7, true, false},
		{POST H "Content-Length: 0\r\nExpect: 100-continue\r\n\r\n", BODY_LENGTH, 0, true,
		 false},
		{GET H "Expect: 100-continue\r\n\r\n", BODY_NONE, 0, true, false},
		{POST H "Content-Length: 9\r\nExpect: 100-continue\r\n\r\n", BODY_LENGTH, 9, true,
		 true},
		{POST10 H "Content-Length: 9\r\nExpect: 100-continue\r\n\r\n", BODY_LENGTH, 9,
		 false, false},
		{POST10 H "Connection: keep-alive\r\n\r\n", BODY_NONE, 0, false, false},
		{GET H "Connection: CLOSE\r\n\r\n", BODY_NONE, 0, false, false},
		{GET H "Connection: keep-alive, close\r\n\r\n", BODY_NONE, 0, false, false},
		{GET H "Connection: keep-alive\r\nConnection: close\r\n\r\n", BODY_NONE, 0, false,
		 false},
		{GET H "Proxy-Connection: close\r\n\r\n", BODY_NONE, 0, true, false},
	};
	struct request r;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(judge(str_from_c(rows[i].raw), &outside, &r, &e), REASON_NONE);
		if (r.body != rows[i].body || r.length != rows[i].length ||
		    r.keep_alive != rows[i].keep || r.expect_continue != rows[i].expects)
			fail_msg("body %d, length %llu, keep %d, expects %d for:\n%s", r.body,
				 (unsigned long long)r.length, r.keep_alive, r.expect_continue,
				 rows[i].raw);
		request_clear(&r);
	}
}

static void test_upgrade_is_told(void **state)
{
	static const struct {
		const char *raw, *want;
	} rows[] = {
		{GET H "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "websocket"},
		{GET H "Upgrade: websocket\r\nConnection: keep-alive, uPGRADE\r\n\r\n",
		 "websocket"},
		{GET H "Upgrade: websocket\r\n\r\n", ""},
		{GET H "Connection: Upgrade\r\n\r\n", ""},
		{GET H "Connection: Upgrade\r\nUpgrade: a\r\nUpgrade: b\r\n\r\n", ""},
		{GET H "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n", ""},
		{GET H "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n", ""},
		{GET H "Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n\r\n", ""},
		{GET H "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
		       "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
		 ""},
		{GET H "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", ""},
		{POST10 H "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", ""},
	};
	struct request r;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(judge(str_from_c(rows[i].raw), &outside, &r, &e), REASON_NONE);
		assert_true(str_eq(r.upgrade, str_from_c(rows[i].want)));
		assert_null(fields_get(&r.fields, STR("upgrade")));
		assert_null(fields_get(&r.fields, STR("http2-settings")));
		request_clear(&r);
	}
}

/* What a refusal leaves for the record, and whether the connection may go on after it. */
static void test_record_of_refused(void **state)
{
	static const struct {
		const char *raw;
		const char *method, *target, *host;
		bool keep;
	} rows[] = {
		{"garbage\r\n\r\n", "", "garbage", "", false},
		{"GET http://h.test/x\r\n" H "\r\n", "GET", "http://h.test/x", "allowed.test:8080",
		 false},
		{"GET http://h.test/\x1b HTTP/1.1\r\n" H "\r\n", "GET", "http://h.test/\x1b",
		 "allowed.test:8080", false},
		{"GET http://h.test/a\nb HTTP/1.1\r\n" H "\r\n", "GET", "http://h.test/a", "",
		 false},
		{"CONNECT bad host:443 HTTP/1.1\r\n" H "\r\n", "CONNECT", "bad",
		 "allowed.test:8080", false},
		{"GET /x HTTP/1.1\r\n" H "\r\n", "GET", "/x", "allowed.test:8080", false},
		{GET H H "\r\n", "GET", "http://allowed.test:8080/ok/a", "allowed.test:8080",
		 false},
		{GET "Host: evil.test\r\n\r\n", "GET", "http://allowed.test:8080/ok/a", "evil.test",
		 true},
		{GET "Host: evil.test\r\nConnection: close\r\n\r\n", "GET",
		 "http://allowed.test:8080/ok/a", "evil.test", false},
		{"GET http://allowed.test:8080/a/../b HTTP/1.1\r\n" H "\r\n", "GET",
		 "http://allowed.test:8080/a/../b", "allowed.test:8080", true},
		/* two faults, of which the second puts the framing in doubt */
		{"GET http://allowed.test:8080/a/../b HTTP/1.1\r\n" H "X : 1\r\n\r\n", "GET",
		 "http://allowed.test:8080/a/../b", "allowed.test:8080", false},
		{"GET http://allowed.test:8080/a/../b HTTP/1.1\r\n" H
		 "Content-Length: 1, 1\r\n\r\n",
		 "GET", "http://allowed.test:8080/a/../b", "allowed.test:8080", false},
		{"GET http://allowed.test:8080/a/../b HTTP/1.1\r\n" H H "\r\n", "GET",
		 "http://allowed.test:8080/a/../b", "allowed.test:8080", false},
		{GET "Host: evil.test\r\nExpect: x\r\n\r\n", "GET", "http://allowed.test:8080/ok/a",
		 "evil.test", true},
		{"CONNECT allowed.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n", "CONNECT",
		 "allowed.test:443", "evil.test", false},
		{"TRACE http://allowed.test:8080/ HTTP/1.1\r\n" H "\r\n", "TRACE",
		 "http://allowed.test:8080/", "allowed.test:8080", true},
		{POST H "Content-Length: x\r\n\r\n", "POST", "http://allowed.test:8080/ok/a",
		 "allowed.test:8080", false},
		/* a head without an end */
		{"GET http://allowed.test:8080/ok/a HTT", "GET", "http://allowed.test:8080/ok/a",
		 "", false},
		{GET "Host: allowed.test", "GET", "http://allowed.test:8080/ok/a", "", false},
		{GET H "X: 1", "GET", "http://allowed.test:8080/ok/a", "allowed.test:8080", false},
		{"GE", "", "GE", "", false},
	};
	struct request r;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct str raw = str_from_c(rows[i].raw);

		e = ERR_INIT;
		assert_int_equal(h1_parse_request(raw, &outside, &r, &e), -1);
		assert_int_not_equal(e.reason, REASON_NONE);
		if (!str_eq(r.method, str_from_c(rows[i].method)) ||
		    !str_eq(r.raw_target, str_from_c(rows[i].target)) ||
		    !str_eq(r.raw_host, str_from_c(rows[i].host)) || r.keep_alive != rows[i].keep)
			fail_msg("\"%.*s\" \"%.*s\" \"%.*s\" %d (%s) for:\n%s", STR_FMT(r.method),
				 STR_FMT(r.raw_target), STR_FMT(r.raw_host), r.keep_alive, e.text,
				 rows[i].raw);
		request_clear(&r);
		/* and without a place for the reason */
		assert_int_equal(h1_parse_request(raw, &outside, &r, NULL), -1);
		request_clear(&r);
	}
	assert_int_equal(h1_parse_request(STR_NONE, &outside, &r, &e), -1);
	request_clear(&r);
}

static void expect_text(struct str raw, const char *part)
{
	struct h1_scan scan = {0};
	struct err e = ERR_INIT;
	size_t len;

	assert_int_equal(h1_scan_head(&scan, raw, LIMIT_HEAD_BYTES, &len, &e), -1);
	if (!strstr(e.text, part))
		fail_msg("\"%s\" does not say \"%s\"", e.text, part);
}

static void test_texts(void **state)
{
	struct request r;
	struct err e;

	(void)state;
	expect_text(STR("\x16"), "TLS on the plain port");
	expect_text(STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "HTTP/2 with prior knowledge");
	expect_text(STR("GET / HTTP/1.1\n"), "bare LF");
	expect_text(STR("GET / HTTP/1.1\rX"), "bare CR");
	expect_text(STR(GET "\x00"), "byte 0x00");
	assert_int_equal(h1_parse_request(STR("GET https://h.test/ HTTP/1.1\r\nHost: "
					      "h.test\r\n\r\n"),
					  &outside, &r, &e),
			 -1);
	assert_non_null(strstr(e.text, "CONNECT"));
	request_clear(&r);
	/* values may be secrets: they are not quoted */
	assert_int_equal(h1_parse_request(STR(GET H "Authorization: Bearer CANARY\x01\r\n\r\n"),
					  &outside, &r, &e),
			 -1);
	assert_null(strstr(e.text, "CANARY"));
	assert_non_null(strstr(e.text, "Authorization"));
	request_clear(&r);
}

/* A head of a first line, then `n` bytes of fill in front of the tail. */
static struct str filled(char *mem, const char *head, size_t n, char c, const char *tail)
{
	size_t len = strlen(head);

	memcpy(mem, head, len);
	memset(mem + len, c, n);
	memcpy(mem + len + n, tail, strlen(tail));
	return str_from(mem, len + n + strlen(tail));
}

static void test_limits(void **state)
{
	char *mem = malloc(2 * 1024 * 1024);
	struct str s;
	size_t at;

	(void)state;
	assert_non_null(mem);
	s = filled(mem, GET H, 256, 'n', ": 1\r\n\r\n");
	expect_reason(s, &outside, REASON_NONE);
	s = filled(mem, GET H, 257, 'n', ": 1\r\n\r\n");
	expect_reason(s, &outside, REASON_HEAD_TOO_LARGE);
	s = filled(mem, GET H, 257, 'n', "");
	expect_reason(s, &outside, REASON_HEAD_TOO_LARGE);
	s = filled(mem, GET H, 70000, 'n', ": 1\r\n\r\n");
	expect_reason(s, &outside, REASON_HEAD_TOO_LARGE);
	s = filled(mem, GET H "X: ", 1024 * 1024, 'v', "\r\n\r\n");
	expect_reason(s, &outside, REASON_HEAD_TOO_LARGE);
	/* the longest head that fits, and one byte more */
	at = LIMIT_HEAD_BYTES - strlen(GET H "X: \r\n\r\n");
	s = filled(mem, GET H "X: ", at, 'v', "\r\n\r\n");
	expect_reason(s, &outside, REASON_NONE);
	s = filled(mem, GET H "X: ", at + 1, 'v', "\r\n\r\n");
	expect_reason(s, &outside, REASON_HEAD_TOO_LARGE);
	/* targets */
	at = LIMIT_TARGET_BYTES - strlen("http://allowed.test:8080/");
	s = filled(mem, "GET http://allowed.test:8080/", at, 'p', " HTTP/1.1\r\n" H "\r\n");
	expect_reason(s, &outside, REASON_NONE);
	s = filled(mem, "GET http://allowed.test:8080/", at + 1, 'p', " HTTP/1.1\r\n" H "\r\n");
	expect_reason(s, &outside, REASON_TARGET_TOO_LONG);
	s = filled(mem, "GET http://allowed.test:8080/", at + 1, 'p', "");
	expect_reason(s, &outside, REASON_TARGET_TOO_LONG);
	s = filled(mem, "GET http://allowed.test:8080/", 20 * 1024, 'p', "");
	expect_reason(s, &outside, REASON_TARGET_TOO_LONG);
	s = filled(mem, "GET http://allowed.test:8080/ HTTP/1.1", 20 * 1024, 'p', "");
	expect_reason(s, &outside, REASON_MALFORMED_REQUEST);
	s = filled(mem, "", 33, 'M', "");
	expect_reason(s, &outside, REASON_MALFORMED_REQUEST);
	free(mem);
}

static void test_number_of_fields(void **state)
{
	char mem[16384];
	struct request r;
	struct err e;

	(void)state;
	for (int over = 0; over < 2; over++) {
		size_t len = strlen(GET H);

		memcpy(mem, GET H, len);
		for (int i = 1; i < LIMIT_HEAD_FIELDS + over; i++, len += 6)
			memcpy(mem + len, "a: b\r\n", 6);
		memcpy(mem + len, "\r\n", 2);
		expect_reason(str_from(mem, len + 2), &outside,
			      over ? REASON_HEAD_TOO_LARGE : REASON_NONE);
		/* the parser does not rely on the scan */
		assert_int_equal(h1_parse_request(str_from(mem, len + 2), &outside, &r, &e),
				 over ? -1 : 0);
		request_clear(&r);
	}
}

/* Many options times many fields stay cheap, and are bounded. */
static void test_connection_flood(void **state)
{
	char mem[LIMIT_HEAD_BYTES];
	size_t len = strlen(GET H "Connection: ");

	(void)state;
	memcpy(mem, GET H "Connection: ", len);
	for (int i = 0; i < 257; i++, len += 2)
		memcpy(mem + len, "a,", 2);
	memcpy(mem + len, "\r\n\r\n", 4);
	expect_reason(str_from(mem, len + 4), &outside, REASON_HEAD_TOO_LARGE);
}

/* Bytes behind the head stay where they are. */
static void test_pipelined(void **state)
{
	struct str two = STR(GET H "\r\nGET http://evil.test/ HTTP/1.1\r\n");
	struct h1_scan scan = {0};
	size_t len = 0;

	(void)state;
	assert_int_equal(h1_scan_head(&scan, two, LIMIT_HEAD_BYTES, &len, NULL), 1);
	assert_int_equal(len, strlen(GET H "\r\n"));
	scan = (struct h1_scan){0};
	assert_int_equal(h1_scan_head(&scan, STR_NONE, LIMIT_HEAD_BYTES, &len, NULL), 0);
	/* given both, the parser refuses rather than choosing */
	expect_reason(STR(GET H "\r\n"), &outside, REASON_NONE);
	{
		struct request r;

		assert_int_equal(h1_parse_request(two, &outside, &r, NULL), -1);
		request_clear(&r);
	}
}

/* Nothing that one byte may become gets past both without being one of the refusals. */
static void test_every_byte_everywhere(void **state)
{
	static const char head[] = GET H "Content-Length: 5\r\nX-Y: a b\r\n\r\n";
	char mem[sizeof(head)];
	struct request r;
	struct err e;
	size_t accepted = 0;

	(void)state;
	for (size_t at = 0; at < sizeof(head) - 1; at++) {
		for (int c = 0; c < 256; c++) {
			struct h1_scan scan = {0};
			size_t len = 0;
			int rc;

			memcpy(mem, head, sizeof(head));
			mem[at] = (char)c;
			rc = h1_scan_head(&scan, str_from(mem, sizeof(head) - 1), LIMIT_HEAD_BYTES,
					  &len, &e);
			if (rc != 1)
				continue;
			rc = h1_parse_request(str_from(mem, len), &outside, &r, &e);
			if (rc == 0) {
				accepted++;
				assert_true(c >= 0x20 || c == '\t' || c == '\r' || c == '\n');
				assert_string_equal(r.url.host.text, "allowed.test");
			}
			request_clear(&r);
		}
	}
	assert_true(accepted > 1000);
}

static void test_cost(void **state)
{
	static const char head[] =
		"GET http://registry.example.com/@scope%2Fname/-/name-1.2.3.tgz?x=1 HTTP/1.1\r\n"
		"Host: registry.example.com\r\n"
		"User-Agent: npm/10.2.4 node/v20.11.1 linux x64 workspaces/false\r\n"
		"Accept: application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, "
		"*/*\r\n"
		"Accept-Encoding: gzip, deflate, br\r\n"
		"Accept-Language: en-US,en;q=0.9\r\n"
		"Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n"
		"npm-auth-type: web\r\n"
		"npm-command: install\r\n"
		"Cache-Control: max-age=0\r\n"
		"If-None-Match: \"0123456789abcdef\"\r\n"
		"Connection: keep-alive\r\n"
		"Proxy-Connection: keep-alive\r\n"
		"\r\n";
	enum { ROUNDS = 20000 };
	struct timespec a, b;
	struct request r;

	(void)state;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < ROUNDS; i++) {
		struct h1_scan scan = {0};
		size_t len;

		assert_int_equal(h1_scan_head(&scan, str_from(head, sizeof(head) - 1),
					      LIMIT_HEAD_BYTES, &len, NULL),
				 1);
		assert_int_equal(h1_parse_request(str_from(head, len), &outside, &r, NULL), 0);
		request_clear(&r);
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("a head of %zu bytes: %.0f ns\n", sizeof(head) - 1,
	       ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / ROUNDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_request_line),
		cmocka_unit_test(test_targets_outside),
		cmocka_unit_test(test_connect),
		cmocka_unit_test(test_targets_in_tunnel),
		cmocka_unit_test(test_host),
		cmocka_unit_test(test_field_lines),
		cmocka_unit_test(test_framing),
		cmocka_unit_test(test_wishes),
		cmocka_unit_test(test_connection_options),
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_bodies),
		cmocka_unit_test(test_upgrade_is_told),
		cmocka_unit_test(test_record_of_refused),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_number_of_fields),
		cmocka_unit_test(test_connection_flood),
		cmocka_unit_test(test_pipelined),
		cmocka_unit_test(test_every_byte_everywhere),
		cmocka_unit_test(test_cost),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
