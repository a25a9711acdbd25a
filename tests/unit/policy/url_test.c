/*
 * The canonical URL: what each target becomes, what is refused and with which reason, the fixed
 * point over random targets, and what a typical one costs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "policy/url.h"

#define BYTES(s)                                                                                   \
	{                                                                                          \
		s, sizeof(s) - 1                                                                   \
	}

static struct host here(void)
{
	struct host h;

	assert_int_equal(host_parse(STR("allowed.test"), &h, NULL), 0);
	return h;
}

static int parse_path(struct str in, struct url *ret, struct err *e)
{
	struct host h = here();

	return url_parse_origin_form(SCHEME_HTTP, &h, 8080, in, ret, e);
}

/* Origin-form: in and, if it differs, what is sent. */
static void test_paths(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{"/", NULL},
		{"//", NULL},
		{"///a//b///", NULL},
		{"//evil.test/x", NULL},
		{"/a/b/c.html", NULL},
		{"/OK/a", NULL},
		{"/a.b", NULL},
		{"/a..b", NULL},
		{"/.a", NULL},
		{"/..a", NULL},
		{"/...", NULL},
		{"/.../x", NULL},
		{"/a./b.", NULL},
		{"/a../b..", NULL},
		{"/.well-known/acme", NULL},
		{"/..a/..b", NULL},
		{"/a;v=1;w", NULL},
		{"/;v=1;w", NULL},
		{"/a;..", NULL},
		{"/-._~!$&'()*+,;=:@", NULL},
		{"/%41%5a%61%7A%30%39%2d%2e%5f%7e", "/AZaz09-._~"},
		{"/%73ecret/x", "/secret/x"},
		{"/sec%72et/x", "/secret/x"},
		{"/%7Euser", "/~user"},
		{"/@scope%2Fname", NULL},
		{"/@scope%2fname", "/@scope%2Fname"},
		{"/%40scope%2fname", "/%40scope%2Fname"},
		{"/o/a%2fb%2Fc", "/o/a%2Fb%2Fc"},
		{"/100%25", NULL},
		{"/a%252Fb", NULL},
		{"/a%252fb", NULL},
		{"/a%252ehtml", NULL},
		{"/a%25%32%65", "/a%252e"},
		{"/%2525", NULL},
		{"/a%20b", NULL},
		{"/a%20", NULL},
		{"/a+b", NULL},
		{"/%21%24%26%27%28%29%2a%2b%2c%3b%3d%3a%40",
		 "/%21%24%26%27%28%29%2A%2B%2C%3B%3D%3A%40"},
		{"/%22%3c%3e%5b%5d%5e%60%7b%7c%7d", "/%22%3C%3E%5B%5D%5E%60%7B%7C%7D"},
		{"/\"<>[]^`{|}", "/%22%3C%3E%5B%5D%5E%60%7B%7C%7D"},
		{"/%3f%23", "/%3F%23"},
		{"/a%3Fb", NULL},
		{"/a%3Bb", NULL},
		{"/caf\xc3\xa9", "/caf%C3%A9"},
		{"/caf%c3%a9", "/caf%C3%A9"},
		{"/caf%e9", "/caf%E9"},
		{"/\xe2\x82\xac/\xf0\x9f\x98\x80", "/%E2%82%AC/%F0%9F%98%80"},
		{"/%E0%A0%80%F0%90%80%80", NULL}, /* the shortest of their length */
		{"/%ff%fe", "/%FF%FE"},
		{"/%80", NULL},
		{"/%E0/%80", NULL},
		{"/a.%2Fb", NULL},
		{"/a%2F.b", NULL},
		{"/...%2Fx", NULL},
		{"/x%2F...", NULL},
		{"/..%41", "/..A"},
		{"/.%2541", NULL},
		{"/..%25", NULL},
		{"/..%2526", NULL},
		{"/..%20x", NULL},
		{"/..!", NULL},
		{"/..:x", NULL},
		/* queries: kept */
		{"/x?", NULL},
		{"/x??a", NULL},
		{"/?", NULL},
		{"/?/../..", NULL},
		{"/a%20b?x=%2F&y=a+b", NULL},
		{"/x?a=%2f&b=%7e&c=%41", NULL},
		{"/x?a=%0d%0a&b=%00&c=%1b&d=%7f", NULL},
		{"/x?a=%5c&b=%c0%ae", NULL},
		{"/x?a=\\n", NULL},
		{"/x?\"<>[]^`{|}'", NULL},
		{"/x?q=caf\xc3\xa9", "/x?q=caf%C3%A9"},
		{"/x?q=\xc0\xae", "/x?q=%C0%AE"},
		{"/x?/?/?", NULL},
		{"/x?%25%2525", NULL},
		/* a percent sign that is one */
		{"/x?%", "/x?%25"},
		{"/x?a=%4", "/x?a=%254"},
		{"/x?a=%zz", "/x?a=%25zz"},
		{"/x?a=100%&b=1", "/x?a=100%25&b=1"},
		{"/x?format=%l:+%c+%t", "/x?format=%25l:+%25c+%25t"},
		{"/x?%%41", "/x?%25%41"},
		{"/x?%4%1", "/x?%254%251"},
		{"/x?%\xe9", "/x?%25%E9"},
		{"/x?%u", "/x?%25u"},
		{"/x?%u004", "/x?%25u004"},
		{"/x?%u00_5", "/x?%25u00_5"},
		{"/x?url=http://u@h/../?a", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct url u;
		struct err e = ERR_INIT;
		struct strbuf b;

		strbuf_init(&b, LIMIT_URL_BYTES);
		if (parse_path(str_from_c(rows[i].in), &u, &e) < 0)
			fail_msg("%s: %s", rows[i].in, e.text);
		url_add_target(&u, &b);
		assert_string_equal(strbuf_cstr(&b), rows[i].out ? rows[i].out : rows[i].in);
		assert_int_equal(u.has_query, strchr(rows[i].in, '?') != NULL);
		assert_int_equal(u.port, 8080);
		assert_int_equal(u.scheme, SCHEME_HTTP);
		assert_string_equal(u.host.text, "allowed.test");
		strbuf_clear(&b);
		url_clear(&u);
	}
}

struct refusal {
	struct str in;
	enum reason reason;
};

#define AMBIGUOUS(s)                                                                               \
	{                                                                                          \
		BYTES(s), REASON_AMBIGUOUS_URL                                                     \
	}
#define MALFORMED(s)                                                                               \
	{                                                                                          \
		BYTES(s), REASON_MALFORMED_REQUEST                                                 \
	}

static void test_refused_paths(void **state)
{
	static const struct refusal rows[] = {
		/* dot segments */
		AMBIGUOUS("/."),
		AMBIGUOUS("/.."),
		AMBIGUOUS("/./"),
		AMBIGUOUS("/../"),
		AMBIGUOUS("/ok/../secret"),
		AMBIGUOUS("/ok/./a"),
		AMBIGUOUS("/ok/a/.."),
		AMBIGUOUS("/ok/a/."),
		AMBIGUOUS("//.."),
		AMBIGUOUS("/ok//../x"),
		AMBIGUOUS("/..?x"),
		AMBIGUOUS("/.?"),
		AMBIGUOUS("/ok/%2e%2e/secret"),
		/* what is no UTF-8 is dropped by who ignores errors */
		AMBIGUOUS("/ok/.%FF./secret"),
		AMBIGUOUS("/ok/%ED%A0%80../secret"),
		AMBIGUOUS("/ok/..%E2%82/secret"),
		AMBIGUOUS("/ok/..%F8%80%80%80/secret"),
		/* to whoever folds fullwidth forms */
		AMBIGUOUS("/ok/%EF%BC%8E%ef%bc%8e/secret"),
		AMBIGUOUS("/ok/.\xef\xbc\x8e"),
		AMBIGUOUS("/ok/%EF%BC%8E"),
		AMBIGUOUS("/ok/%25ef%25bc%258e/x"),
		AMBIGUOUS("/ok%EF%BC%8F..%EF%BC%8Fsecret"),
		AMBIGUOUS("/ok/x%EF%BC%BC../secret"),
		AMBIGUOUS("/ok/..%EF%BC%9Bv=1/secret"),
		AMBIGUOUS("/ok/..%EF%BC%9Fx"),
		AMBIGUOUS("/ok/..%EF%BC%83x"),
		/* ... other forms, what is left out, blanks */
		AMBIGUOUS("/ok/%E2%80%A5/secret"),
		AMBIGUOUS("/ok/\xe2\x80\xa4.%E2%88%95x"),
		AMBIGUOUS("/ok/..%E2%80%8B/x"),
		AMBIGUOUS("/ok/.%C2%AD./x"),
		AMBIGUOUS("/ok/%25EF%25BB%25BF../x"),
		AMBIGUOUS("/ok/..%C2%A5x"),
		AMBIGUOUS("/ok/..%C2%A0/x"),
		AMBIGUOUS("/ok/%20../x"),
		AMBIGUOUS("/ok/x%C2/../y"),
		AMBIGUOUS("/ok/x%E2%80/../y"),
		AMBIGUOUS("/ok/%25C0%25AE./x"),
		/* to whoever decodes twice, or three times */
		AMBIGUOUS("/ok/%252e%252e/secret"),
		AMBIGUOUS("/ok/%25252E./secret"),
		AMBIGUOUS("/ok/%252e%252e%252fsecret"),
		AMBIGUOUS("/ok/x%252f..%255csecret"),
		AMBIGUOUS("/ok/x%255c..%2500"),
		AMBIGUOUS("/ok/%2E%2E/secret"),
		AMBIGUOUS("/ok/.%2E/secret"),
		AMBIGUOUS("/ok/%2e./secret"),
		AMBIGUOUS("/ok/%2e/a"),
		AMBIGUOUS("/%2e"),
		AMBIGUOUS("/%2E%2e"),
		AMBIGUOUS("/ok/..;x/secret"),
		AMBIGUOUS("/ok/..;/secret"),
		AMBIGUOUS("/ok/.;x/secret"),
		AMBIGUOUS("/ok/%2e%2e;x=y/secret"),
		AMBIGUOUS("/ok/..%3bx/secret"),
		AMBIGUOUS("/ok/..%3B"),
		AMBIGUOUS("/ok/.%3B"),
		AMBIGUOUS("/ok/..%2Fsecret"),
		AMBIGUOUS("/ok/..%2fsecret"),
		AMBIGUOUS("/ok%2F..%2Fsecret"),
		AMBIGUOUS("/ok%2f.."),
		AMBIGUOUS("/ok%2F%2e%2e/secret"),
		AMBIGUOUS("/ok%2F."),
		AMBIGUOUS("/a%2F..;x"),
		AMBIGUOUS("/a%2F.%2Fb"),
		AMBIGUOUS("/%2F../x"),
		AMBIGUOUS("/%2f%2e%2E%2fx"),
		AMBIGUOUS("/ok/..%20/secret"),
		AMBIGUOUS("/ok/..%20"),
		AMBIGUOUS("/ok/.%20%20/x"),
		AMBIGUOUS("/ok/..%20%2Fx"),
		AMBIGUOUS("/ok/..%3Fx"),
		AMBIGUOUS("/ok/..%3fx/y"),
		AMBIGUOUS("/ok/..%23x"),
		AMBIGUOUS("/.a/../b"),
		AMBIGUOUS("/.../../b"),
		AMBIGUOUS("/a;/../b"),
		/* backslashes */
		AMBIGUOUS("/ok\\secret\\x"),
		AMBIGUOUS("/\\evil.test"),
		AMBIGUOUS("/ok/..\\secret"),
		AMBIGUOUS("/ok%5csecret"),
		AMBIGUOUS("/ok%5Csecret"),
		AMBIGUOUS("/ok/..%5Csecret"),
		AMBIGUOUS("/%5c"),
		/* NUL and controls, encoded */
		AMBIGUOUS("/ok/%00"),
		AMBIGUOUS("/ok/..%00/x"),
		AMBIGUOUS("/a%00.html"),
		AMBIGUOUS("/ok/%0d%0aHost:%20evil.test"),
		AMBIGUOUS("/%0a"),
		AMBIGUOUS("/%0D"),
		AMBIGUOUS("/%09"),
		AMBIGUOUS("/%01"),
		AMBIGUOUS("/%1b[2J"),
		AMBIGUOUS("/%1F"),
		AMBIGUOUS("/%7f"),
		AMBIGUOUS("/%7F"),
		/* broken escapes */
		AMBIGUOUS("/ok/%zz"),
		AMBIGUOUS("/ok/%"),
		AMBIGUOUS("/ok/%4"),
		AMBIGUOUS("/ok/%4/x"),
		AMBIGUOUS("/ok/%%41"),
		AMBIGUOUS("/ok/%g1"),
		AMBIGUOUS("/ok/%1g"),
		AMBIGUOUS("/%u002e%u002e/x"),
		AMBIGUOUS("/%-1"),
		AMBIGUOUS("/%+1"),
		AMBIGUOUS("/%0x"),
		AMBIGUOUS("/%2?x"),
		AMBIGUOUS("/ok?%u0041"),
		AMBIGUOUS("/ok?a=b&%U005Fmethod=DELETE"),
		AMBIGUOUS("/ok?%%u005f"),
		/* UTF-8 longer than it need be */
		AMBIGUOUS("/ok/%c0%ae%c0%ae/secret"),
		AMBIGUOUS("/ok%C0%AFsecret"),
		AMBIGUOUS("/ok/%c1%9c"),
		AMBIGUOUS("/%c0%2f"),
		AMBIGUOUS("/%c0."),
		AMBIGUOUS("/\xc0\xae"),
		AMBIGUOUS("/\xc0%ae"),
		AMBIGUOUS("/%e0%80%ae"),
		AMBIGUOUS("/%E0%80%AF"),
		AMBIGUOUS("/%e0\x80\xaf"),
		AMBIGUOUS("/\xe0\x9f\xbf"),
		AMBIGUOUS("/%f0%80%80%ae"),
		AMBIGUOUS("/%f0%8f%bf%bf"),
		AMBIGUOUS("/%f8%80%80%80%ae"),
		AMBIGUOUS("/%fc%80%80%80%80%ae"),
		/* fragments */
		AMBIGUOUS("/ok/a#b"),
		AMBIGUOUS("/#"),
		AMBIGUOUS("/ok?a#b"),
		AMBIGUOUS("/ok?#"),
		/* what no request line may hold */
		MALFORMED("/a b"),
		MALFORMED("/ "),
		MALFORMED("/a\tb"),
		MALFORMED("/a\rb"),
		MALFORMED("/a\nb"),
		MALFORMED("/a\r\nHost: evil.test"),
		MALFORMED("/a\0b"),
		MALFORMED("/\0"),
		MALFORMED("/\x1b[2J"),
		MALFORMED("/\x7f"),
		MALFORMED("/a?b c"),
		MALFORMED("/a?\t"),
		MALFORMED("/a?b\0"),
		MALFORMED("/a?b\x7f"),
		MALFORMED("/a?b\r\nX: y"),
		/* no path */
		MALFORMED(""),
		MALFORMED("?"),
		MALFORMED("?x"),
		MALFORMED("a"),
		MALFORMED("**"),
		MALFORMED("*?"),
		MALFORMED("*/"),
		MALFORMED("allowed.test:8080"),
		MALFORMED("http://allowed.test/"),
		MALFORMED("@evil.test/"),
		MALFORMED(" /"),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct url u;
		struct err e = ERR_INIT;
		size_t path_n = rows[i].in.n;
		const char *q = path_n ? memchr(rows[i].in.p, '?', path_n) : NULL;

		if (parse_path(rows[i].in, &u, &e) == 0)
			fail_msg("read: %.*s", STR_FMT(rows[i].in));
		if (e.reason != rows[i].reason)
			fail_msg("%.*s: %s, %s", STR_FMT(rows[i].in), reason_word(e.reason),
				 e.text);
		assert_true(e.text[0] != '\0');
		/* the log gets the bytes as they came */
		if (q)
			path_n = (size_t)(q - rows[i].in.p);
		assert_true(str_eq(u.path, str_head(rows[i].in, path_n)));
		assert_int_equal(u.has_query, q != NULL);
		if (q)
			assert_true(str_eq(u.query, str_skip(rows[i].in, path_n + 1)));
		url_clear(&u);
		url_clear(&u); /* twice does no harm */
	}
}

static void test_asterisk(void **state)
{
	struct url u;
	struct strbuf b;

	(void)state;
	strbuf_init(&b, 64);
	assert_int_equal(parse_path(STR("*"), &u, NULL), 0);
	assert_true(str_eq(u.path, STR("*")));
	assert_false(u.has_query);
	url_add_target(&u, &b);
	assert_string_equal(strbuf_cstr(&b), "*");
	strbuf_reset(&b);
	url_add(&u, &b);
	assert_string_equal(strbuf_cstr(&b), "http://allowed.test:8080");
	strbuf_clear(&b);
	url_clear(&u);
}

static void test_absolute(void **state)
{
	static const struct {
		const char *in, *out;
		int port;
	} rows[] = {
		{"http://allowed.test", "http://allowed.test/", 80},
		{"http://allowed.test/", "http://allowed.test/", 80},
		{"HTTP://ALLOWED.TEST/A", "http://allowed.test/A", 80},
		{"hTtPs://allowed.test/", "https://allowed.test/", 443},
		{"http://allowed.test:80/", "http://allowed.test/", 80},
		{"https://allowed.test:443/", "https://allowed.test/", 443},
		{"https://allowed.test:80/", "https://allowed.test:80/", 80},
		{"http://allowed.test:443/", "http://allowed.test:443/", 443},
		{"http://allowed.test:8080/ok/a", "http://allowed.test:8080/ok/a", 8080},
		{"http://allowed.test:65535", "http://allowed.test:65535/", 65535},
		{"http://allowed.test:1/", "http://allowed.test:1/", 1},
		{"http://allowed.test./x", "http://allowed.test/x", 80},
		{"http://allowed.test.:80/x", "http://allowed.test/x", 80},
		{"http://h?x", "http://h/?x", 80},
		{"http://h?", "http://h/?", 80},
		{"http://h:81?a=/../b", "http://h:81/?a=/../b", 81},
		{"http://h//", "http://h//", 80},
		{"http://h/%7e?%7e", "http://h/~?%7e", 80},
		{"http://h/@x", "http://h/@x", 80},
		{"http://h/a:80@b", "http://h/a:80@b", 80},
		{"http://h/?u@h", "http://h/?u@h", 80},
		{"http://h?u@h", "http://h/?u@h", 80},
		{"http://h/http://g/", "http://h/http://g/", 80},
		{"http://127.0.0.1/", "http://127.0.0.1/", 80},
		{"http://[::1]/", "http://[::1]/", 80},
		{"http://[::1]", "http://[::1]/", 80},
		{"http://[::1]?x", "http://[::1]/?x", 80},
		{"http://[0::0:1]:8080/x", "http://[::1]:8080/x", 8080},
		{"http://[::FFFF:1.2.3.4]/", "http://[::ffff:1.2.3.4]/", 80},
		{"http://_x.test/", "http://_x.test/", 80},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct url u;
		struct err e = ERR_INIT;
		struct strbuf b;

		strbuf_init(&b, LIMIT_URL_BYTES);
		if (url_parse_absolute(str_from_c(rows[i].in), &u, &e) < 0)
			fail_msg("%s: %s", rows[i].in, e.text);
		url_add(&u, &b);
		assert_string_equal(strbuf_cstr(&b), rows[i].out);
		assert_int_equal(u.port, rows[i].port);
		strbuf_clear(&b);
		url_clear(&u);
	}
}

static void test_refused_absolute(void **state)
{
	static const struct refusal rows[] = {
		MALFORMED(""),
		MALFORMED("/"),
		MALFORMED("*"),
		MALFORMED("h"),
		MALFORMED("h:80"),
		MALFORMED("allowed.test:8080"),
		MALFORMED("//h/"),
		MALFORMED("://h/"),
		MALFORMED(":"),
		MALFORMED("ftp://h/"),
		MALFORMED("file:///etc/passwd"),
		MALFORMED("gopher://h/"),
		MALFORMED("ws://h/"),
		MALFORMED("wss://h/"),
		MALFORMED("tcp://h:1"),
		MALFORMED("httpss://h/"),
		MALFORMED("http ://h/"),
		MALFORMED(" http://h/"),
		MALFORMED("\thttp://h/"),
		MALFORMED("http\0://h/"),
		MALFORMED("xhttp://h/"),
		MALFORMED("javascript:alert(1)"),
		AMBIGUOUS("http:h"),
		AMBIGUOUS("http:/h/x"),
		AMBIGUOUS("http:\\\\h\\x"),
		AMBIGUOUS("http:/\\h/x"),
		AMBIGUOUS("http:"),
		MALFORMED("http://"),
		MALFORMED("http:///"),
		MALFORMED("http:///h/"),
		MALFORMED("http://:80/"),
		MALFORMED("http://?x"),
		/* ports */
		MALFORMED("http://h:/"),
		MALFORMED("http://h:"),
		MALFORMED("http://h:0/"),
		AMBIGUOUS("http://h:00/"),
		AMBIGUOUS("http://h:080/"),
		AMBIGUOUS("http://h:00080/"),
		AMBIGUOUS("http://h:000000000000000080/"),
		MALFORMED("http://h:65536/"),
		MALFORMED("http://h:65616/"), /* 65536 + 80 */
		MALFORMED("http://h:4294967376/"),
		MALFORMED("http://h:18446744073709551696/"),
		MALFORMED("http://h:99999/"),
		MALFORMED("http://h:+80/"),
		MALFORMED("http://h:-80/"),
		MALFORMED("http://h: 80/"),
		MALFORMED("http://h:80 /"),
		MALFORMED("http://h:0x50/"),
		MALFORMED("http://h:8a/"),
		MALFORMED("http://h:80:80/"),
		MALFORMED("http://h:80,90/"),
		MALFORMED("http://h:http/"),
		MALFORMED("http://h:%38%30/"),
		MALFORMED("http://h:8\0/"),
		MALFORMED("http://h:\xd9\xa8/"), /* arabic digit */
		/* userinfo */
		AMBIGUOUS("http://u@h/"),
		AMBIGUOUS("http://u:p@h/"),
		AMBIGUOUS("http://@h/"),
		AMBIGUOUS("http://:@h/"),
		AMBIGUOUS("http://h@/"),
		AMBIGUOUS("http://allowed.test@evil.test/"),
		AMBIGUOUS("http://allowed.test:80@evil.test/"),
		AMBIGUOUS("http://a@b@c/"),
		AMBIGUOUS("http://allowed.test\\@evil.test/"),
		AMBIGUOUS("http://[::1]@h/"),
		MALFORMED("http://u%40h/"),
		/* what ends an authority */
		AMBIGUOUS("http://allowed.test\\evil.test/"),
		AMBIGUOUS("http://allowed.test\\"),
		AMBIGUOUS("http://allowed.test#@evil.test/"),
		AMBIGUOUS("http://allowed.test#"),
		AMBIGUOUS("http://allowed.test/#"),
		AMBIGUOUS("http://allowed.test?#"),
		MALFORMED("http://allowed.test;evil.test/"),
		MALFORMED("http://allowed.test&evil.test/"),
		MALFORMED("http://allowed.test%2f.evil.test/"),
		MALFORMED("http://allowed.test%00.evil.test/"),
		MALFORMED("http://allowed.test\0.evil.test/"),
		MALFORMED("http://allowed.test .evil.test/"),
		MALFORMED("http://allowed.test,evil.test/"),
		MALFORMED("http://allowed.test\t/"),
		MALFORMED("http://*.test/"),
		/* brackets */
		MALFORMED("http://[::1/"),
		MALFORMED("http://[::1]80/"),
		MALFORMED("http://[::1]:/"),
		MALFORMED("http://[::1].evil.test/"),
		MALFORMED("http://[fe80::1%25eth0]/"),
		MALFORMED("http://[127.0.0.1]/"),
		MALFORMED("http://::1/"),
		MALFORMED("http://2001:db8::1/"),
		/* numbers */
		AMBIGUOUS("http://2130706433/"),
		AMBIGUOUS("http://0x7f000001/"),
		AMBIGUOUS("http://0x7f.1/"),
		AMBIGUOUS("http://0177.0.0.1/"),
		AMBIGUOUS("http://127.1/"),
		AMBIGUOUS("http://0/"),
		AMBIGUOUS("http://127.0.0.1./"),
		AMBIGUOUS("http://127.0.0.256/"),
		/* paths, as above */
		AMBIGUOUS("http://h/../x"),
		AMBIGUOUS("http://h/.."),
		AMBIGUOUS("http://h/%2e%2e"),
		AMBIGUOUS("http://h/a\\b"),
		AMBIGUOUS("http://h/%zz"),
		MALFORMED("http://h/a b"),
		MALFORMED("http://h?a b"),
		AMBIGUOUS("http://h?%uff3f"),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct url u;
		struct err e = ERR_INIT;

		if (url_parse_absolute(rows[i].in, &u, &e) == 0)
			fail_msg("read: %.*s", STR_FMT(rows[i].in));
		if (e.reason != rows[i].reason)
			fail_msg("%.*s: %s, %s", STR_FMT(rows[i].in), reason_word(e.reason),
				 e.text);
		assert_true(e.text[0] != '\0');
		url_clear(&u);
	}
}

/* A refusal leaves what could be read for the log. */
static void test_what_a_refusal_leaves(void **state)
{
	struct url u;

	(void)state;
	assert_int_equal(url_parse_absolute(STR("http://Allowed.test:81/a/../b?c"), &u, NULL), -1);
	assert_int_equal(u.scheme, SCHEME_HTTP);
	assert_string_equal(u.host.text, "allowed.test");
	assert_int_equal(u.port, 81);
	assert_true(str_eq(u.path, STR("/a/../b")));
	assert_true(str_eq(u.query, STR("c")));
	url_clear(&u);
	assert_int_equal(url_parse_absolute(STR("http://u@h/a?c"), &u, NULL), -1);
	assert_int_equal(u.host.kind, HOST_NONE);
	assert_int_equal(u.port, 0);
	assert_true(str_eq(u.path, STR("/a")));
	url_clear(&u);
}

static void test_authority(void **state)
{
	static const struct {
		const char *in, *host;
		int port;
	} good[] = {
		{"allowed.test:443", "allowed.test", 443},
		{"ALLOWED.TEST.:8443", "allowed.test", 8443},
		{"127.0.0.1:1", "127.0.0.1", 1},
		{"[::1]:65535", "::1", 65535},
		{"[0:0::1]:22", "::1", 22},
		{"_dmarc.allowed.test:443", "_dmarc.allowed.test", 443},
	};
	static const struct refusal bad[] = {
		MALFORMED(""),
		MALFORMED(":"),
		MALFORMED(":443"),
		MALFORMED("allowed.test"),
		MALFORMED("allowed.test:"),
		MALFORMED("[::1]"),
		MALFORMED("[::1]:"),
		MALFORMED("::1:443"),
		MALFORMED("http://allowed.test:8443/"),
		MALFORMED("allowed.test:8443/x"),
		MALFORMED("allowed.test:443?x"),
		MALFORMED("allowed.test:443#x"),
		MALFORMED("/allowed.test:443"),
		MALFORMED("*"),
		MALFORMED("*:443"),
		MALFORMED("allowed.test:443 "),
		MALFORMED(" allowed.test:443"),
		MALFORMED("allowed.test :443"),
		MALFORMED("allowed.test:443\0"),
		MALFORMED("evil.test\0.allowed.test:443"),
		MALFORMED("evil.test%00.allowed.test:443"),
		MALFORMED("evil.test%0d%0a.allowed.test:443"),
		MALFORMED("evil%2etest:443"),
		MALFORMED("evil.test\t.allowed.test:443"),
		MALFORMED("evil.test\x7f.allowed.test:443"),
		MALFORMED("a..allowed.test:443"),
		MALFORMED("allowed.test:0"),
		MALFORMED("allowed.test:65536"),
		MALFORMED("allowed.test:65979"), /* 65536 + 443 */
		MALFORMED("allowed.test:443:443"),
		MALFORMED("allowed.test:https"),
		AMBIGUOUS("allowed.test:0443"),
		AMBIGUOUS("u@allowed.test:443"),
		AMBIGUOUS("allowed.test:443@evil.test:443"),
		AMBIGUOUS("allowed.test\\:443"),
		AMBIGUOUS("2130706433:443"),
		AMBIGUOUS("127.1:443"),
		AMBIGUOUS("127.0.0.1.:443"),
	};
	struct host h;
	uint16_t port;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		assert_int_equal(url_parse_authority(str_from_c(good[i].in), &h, &port, NULL), 0);
		assert_string_equal(h.text, good[i].host);
		assert_int_equal(port, good[i].port);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err e = ERR_INIT;

		port = 7;
		h.kind = HOST_NONE;
		if (url_parse_authority(bad[i].in, &h, &port, &e) == 0)
			fail_msg("read: %.*s", STR_FMT(bad[i].in));
		if (e.reason != bad[i].reason)
			fail_msg("%.*s: %s", STR_FMT(bad[i].in), e.text);
		assert_int_equal(port, 7);
		assert_int_equal(h.kind, HOST_NONE);
	}
}

static void test_host_field(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		"allowed.test, evil.test",
		"allowed.test:8080, evil.test",
		"allowed.test:8080 evil.test",
		"allowed.test:",
		"u@allowed.test",
		"http://allowed.test",
		"allowed.test/",
		"allowed.test:80:80",
		"allowed.test:00080",
		"[::1",
		"::1",
		"127.1",
		".",
		"allowed.test\\",
		"*.allowed.test",
		"allowed.test#",
		"allowed.test?",
	};
	struct host h;
	uint16_t port;

	(void)state;
	assert_int_equal(url_parse_host_field(STR("Allowed.Test"), 443, &h, &port, NULL), 0);
	assert_string_equal(h.text, "allowed.test");
	assert_int_equal(port, 443);
	assert_int_equal(url_parse_host_field(STR("allowed.test:8080"), 80, &h, &port, NULL), 0);
	assert_int_equal(port, 8080);
	assert_int_equal(url_parse_host_field(STR("[::1]"), 80, &h, &port, NULL), 0);
	assert_int_equal(h.kind, HOST_IPV6);
	assert_int_equal(port, 80);
	assert_int_equal(url_parse_host_field(STR("[::1]:81"), 80, &h, &port, NULL), 0);
	assert_int_equal(port, 81);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (url_parse_host_field(str_from_c(bad[i]), 80, &h, &port, NULL) == 0)
			fail_msg("read: %s", bad[i]);
}

static struct str filled(char *buf, size_t n, const char *with)
{
	size_t with_n = strlen(with);

	buf[0] = '/';
	for (size_t i = 1; i < n; i++)
		buf[i] = with[(i - 1) % with_n];
	return str_from(buf, n);
}

/* At the bound, one beyond, and inputs that grow beyond it when they are encoded. */
static void test_bounds(void **state)
{
	static const struct {
		size_t n;
		const char *with;
		bool fits;
	} rows[] = {
		{LIMIT_TARGET_BYTES - 1, "a", true},
		{LIMIT_TARGET_BYTES, "a", true},
		{LIMIT_TARGET_BYTES + 1, "a", false},
		{LIMIT_TARGET_BYTES * 4, "a", false},
		{LIMIT_TARGET_BYTES, "%41", true},
		{LIMIT_TARGET_BYTES - 3, "%2f", true},
		{LIMIT_TARGET_BYTES / 3, "|", true},
		{LIMIT_TARGET_BYTES / 3 + 1, "|", true},
		{LIMIT_TARGET_BYTES / 3 + 2, "|", false},
		{LIMIT_TARGET_BYTES / 3 + 3, "\xff", false},
		{LIMIT_TARGET_BYTES, "|", false},
		{LIMIT_TARGET_BYTES, "?\xff", false},
		{LIMIT_TARGET_BYTES, "?", true},
		{LIMIT_TARGET_BYTES + 1, "?", false},
		{LIMIT_TARGET_BYTES, "/", true},
		{2, "\xff", true},
	};
	char *buf = malloc(LIMIT_TARGET_BYTES * 4);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct str in = filled(buf, rows[i].n, rows[i].with);
		struct url u;
		struct err e = ERR_INIT;
		int rc;

		/* no broken escape at the end */
		for (size_t j = in.n - 2; strcmp(rows[i].with, "%41") == 0 && j < in.n; j++)
			buf[j] = 'a';
		rc = parse_path(in, &u, &e);
		if ((rc == 0) != rows[i].fits)
			fail_msg("%zu of %s: %s", rows[i].n, rows[i].with, e.text);
		if (rc < 0)
			assert_int_equal(e.reason, REASON_TARGET_TOO_LONG);
		assert_true(u.path.n + u.query.n <= LIMIT_TARGET_BYTES);
		url_clear(&u);
	}
	free(buf);
}

static unsigned seed = 7;

static size_t pick(size_t n)
{
	return (size_t)rand_r(&seed) % n;
}

/* Pieces that have meaning to some reader of URLs, glued at random. */
static struct str nasty(char *buf, size_t size)
{
	static const char *const pieces[] = {
		"/",	  "//",	  ".",	 "..",	      "...",   ";",    ";x",	 "%2e",	 "%2E",
		"%2f",	  "%2F",  "%5c", "%25",	      "%252e", "%41",  "%7e",	 "%00",	 "%0a",
		"%20",	  "%3b",  "%3f", "%23",	      "%c0",   "%ae",  "%e0",	 "%80",	 "%af",
		"%c3%a9", "%",	  "%4",	 "%zz",	      "a",     "B",    "secret", "~",	 "!",
		"*",	  "+",	  "?",	 "?a=b",      "&",     "=",    "#",	 "@",	 ":",
		":80",	  "[",	  "]",	 "|",	      "{",     "\\",   "^",	 "\"",	 "<",
		"`",	  " ",	  "\t",	 "\x7f",      "\xc3",  "\xa9", "\xc0",	 "\xff", "-",
		"_",	  "0x7f", "1",	 "127.0.0.1",
	};
	size_t n = 0, count = pick(12);

	buf[n++] = '/';
	for (size_t i = 0; i < count; i++) {
		const char *p = pieces[pick(ARRAY_LEN(pieces))];

		if (n + strlen(p) > size)
			break;
		memcpy(buf + n, p, strlen(p));
		n += strlen(p);
	}
	return str_from(buf, n);
}

/* What an upstream would read that decodes once and follows dots: there must be nothing to follow.
 */
static void assert_no_dots(struct str path)
{
	char buf[1024];
	size_t n = 0;

	for (size_t i = 0; i < path.n; i++) {
		unsigned v = (unsigned char)path.p[i];
		char hex[3] = {0};

		if (v == '%') {
			memcpy(hex, path.p + i + 1, 2);
			v = (unsigned)strtoul(hex, NULL, 16);
			i += 2;
		}
		assert_true(v >= 0x20 && v != 0x7f && v != '\\');
		buf[n++] = (char)v;
	}
	buf[n] = '\0';
	for (char *seg = buf; seg; seg = strchr(seg + 1, '/')) {
		size_t len = strcspn(seg + 1, "/;");

		assert_false(len == 1 && seg[1] == '.');
		assert_false(len == 2 && seg[1] == '.' && seg[2] == '.');
	}
}

static void test_fixed_point(void **state)
{
	char buf[256];
	unsigned read = 0;

	(void)state;
	for (int round = 0; round < 300000; round++) {
		struct str in = nasty(buf, sizeof(buf));
		struct url u, again;
		struct strbuf text, text2;

		if (parse_path(in, &u, NULL) < 0) {
			url_clear(&u);
			continue;
		}
		read++;
		assert_no_dots(u.path);
		strbuf_init(&text, LIMIT_URL_BYTES);
		strbuf_init(&text2, LIMIT_URL_BYTES);
		url_add_target(&u, &text);
		if (parse_path(strbuf_str(&text), &again, NULL) < 0)
			fail_msg("not read again: %.*s -> %s", STR_FMT(in), strbuf_cstr(&text));
		url_add_target(&again, &text2);
		assert_string_equal(strbuf_cstr(&text), strbuf_cstr(&text2));
		assert_true(str_eq(u.path, again.path) && str_eq(u.query, again.query));
		url_clear(&again);
		/* and as a whole */
		strbuf_reset(&text);
		url_add(&u, &text);
		assert_int_equal(url_parse_absolute(strbuf_str(&text), &again, NULL), 0);
		strbuf_reset(&text2);
		url_add(&again, &text2);
		assert_string_equal(strbuf_cstr(&text), strbuf_cstr(&text2));
		url_clear(&again);
		url_clear(&u);
		strbuf_clear(&text);
		strbuf_clear(&text2);
	}
	assert_true(read > 10000);
}

/* Whole URLs out of pieces: whatever is read has one spelling, and the host in it is the host. */
static void test_fixed_point_absolute(void **state)
{
	static const char *const pieces[] = {
		"h",
		"A.b",
		"x.test",
		".",
		"..",
		":",
		":80",
		":443",
		":8080",
		":080",
		"@",
		"[::1]",
		"[::ffff:1.2.3.4]",
		"127.0.0.1",
		"127.1",
		"0x7f",
		"1",
		"_",
		"-",
		"%2e",
		"\\",
		"/",
		"?",
		"#",
		"//",
		"xn--a",
		"\xc3\xa9",
		" ",
	};
	char buf[256];
	unsigned read = 0;

	(void)state;
	for (int round = 0; round < 300000; round++) {
		size_t n, count = 1 + pick(5);
		struct url u, again;
		struct strbuf text, text2;

		n = (size_t)snprintf(buf, sizeof(buf), pick(2) ? "http://" : "HTTPS://");
		for (size_t i = 0; i < count; i++)
			n += (size_t)snprintf(buf + n, sizeof(buf) - n, "%s",
					      pieces[pick(ARRAY_LEN(pieces))]);
		if (url_parse_absolute(str_from(buf, n), &u, NULL) < 0) {
			url_clear(&u);
			continue;
		}
		read++;
		strbuf_init(&text, LIMIT_URL_BYTES);
		strbuf_init(&text2, LIMIT_URL_BYTES);
		url_add(&u, &text);
		if (url_parse_absolute(strbuf_str(&text), &again, NULL) < 0)
			fail_msg("not read again: %s -> %s", buf, strbuf_cstr(&text));
		url_add(&again, &text2);
		assert_string_equal(strbuf_cstr(&text), strbuf_cstr(&text2));
		assert_true(host_eq(&u.host, &again.host));
		assert_int_equal(u.port, again.port);
		url_clear(&again);
		url_clear(&u);
		strbuf_clear(&text);
		strbuf_clear(&text2);
	}
	assert_true(read > 10000);
}

/* Any byte at all, anywhere: no crash, and never a raw control or high byte in what comes out. */
static void test_any_bytes(void **state)
{
	char buf[64];

	(void)state;
	for (int round = 0; round < 300000; round++) {
		size_t n = 1 + pick(sizeof(buf) - 1);
		struct url u;
		struct err e = ERR_INIT;

		buf[0] = '/';
		for (size_t i = 1; i < n; i++)
			buf[i] = (char)(pick(3) ? "/.%2eF?"[pick(7)] : (char)pick(256));
		if (parse_path(str_from(buf, n), &u, &e) == 0) {
			for (size_t i = 0; i < u.path.n + u.query.n; i++) {
				char c = i < u.path.n ? u.path.p[i] : u.query.p[i - u.path.n];

				assert_true(c > 0x20 && c < 0x7f && c != '#');
			}
		} else {
			assert_true(e.reason == REASON_AMBIGUOUS_URL ||
				    e.reason == REASON_MALFORMED_REQUEST);
		}
		url_clear(&u);
	}
}

static void test_schemes(void **state)
{
	(void)state;
	assert_string_equal(scheme_word(SCHEME_HTTP), "http");
	assert_string_equal(scheme_word(SCHEME_HTTPS), "https");
	assert_string_equal(scheme_word(SCHEME_TCP), "tcp");
	assert_int_equal(scheme_default_port(SCHEME_HTTP), 80);
	assert_int_equal(scheme_default_port(SCHEME_HTTPS), 443);
	assert_int_equal(scheme_default_port(SCHEME_TCP), 0);
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void test_cost(void **state)
{
	struct str path = STR("/repos/acme/widgets/contents/src/main.c?ref=main&per_page=100");
	struct str whole =
		STR("http://api.github.com/repos/acme/widgets/contents/src%2fmain.c?a=1");
	const int rounds = 300000;
	struct host h = here();
	struct url u;
	double t = now_ns();

	(void)state;
	for (int i = 0; i < rounds; i++) {
		assert_true(url_parse_origin_form(SCHEME_HTTPS, &h, 443, path, &u, NULL) == 0);
		url_clear(&u);
	}
	print_message("origin-form, %zu bytes: %.0f ns\n", path.n, (now_ns() - t) / rounds);
	t = now_ns();
	for (int i = 0; i < rounds; i++) {
		assert_true(url_parse_absolute(whole, &u, NULL) == 0);
		url_clear(&u);
	}
	print_message("absolute-form, %zu bytes: %.0f ns\n", whole.n, (now_ns() - t) / rounds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_refused_paths),
		cmocka_unit_test(test_asterisk),
		cmocka_unit_test(test_absolute),
		cmocka_unit_test(test_refused_absolute),
		cmocka_unit_test(test_what_a_refusal_leaves),
		cmocka_unit_test(test_authority),
		cmocka_unit_test(test_host_field),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_fixed_point),
		cmocka_unit_test(test_fixed_point_absolute),
		cmocka_unit_test(test_any_bytes),
		cmocka_unit_test(test_schemes),
		cmocka_unit_test(test_cost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
