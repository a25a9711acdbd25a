/*
 * Hosts: what is a name, what is an address, what is refused and with which reason. Names come as
 * counted bytes, so NUL and the like are among the inputs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy/hostname.h"

#define L10 "aaaaaaaaaa"
#define L60 L10 L10 L10 L10 L10 L10
#define L63 L60 "aaa"
#define L64 L60 "aaaa"
/* 63 + 1 + 63 + 1 + 63 + 1 + 61 = 253 */
#define N253 L63 "." L63 "." L63 "." L60 "a"

static void test_names(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{"a", "a"},
		{"localhost", "localhost"},
		{"Example.COM", "example.com"},
		{"ALLOWED.TEST.", "allowed.test"},
		{"a.b.c.d.e.f.g", "a.b.c.d.e.f.g"},
		{"_dmarc.example.com", "_dmarc.example.com"},
		{"_", "_"},
		{"a_b.example.com", "a_b.example.com"},
		{"xn--mnchen-3ya.DE", "xn--mnchen-3ya.de"},
		{"XN--MNCHEN-3YA.de", "xn--mnchen-3ya.de"},
		{"-a.example.com", "-a.example.com"},
		{"a-.example.com", "a-.example.com"},
		{"-", "-"},
		{"a--b", "a--b"},
		{"10.example", "10.example"},
		{"10.evil.test", "10.evil.test"},
		{"127.0.0.1.evil.test", "127.0.0.1.evil.test"},
		{"127.0.0.1.nip.io", "127.0.0.1.nip.io"},
		{"127-0-0-1.evil.test", "127-0-0-1.evil.test"},
		{"fcm.evil.test", "fcm.evil.test"},
		{"0x7f.evil.test", "0x7f.evil.test"},
		{"1a", "1a"},
		{"a1", "a1"},
		{"1.2.3.4a", "1.2.3.4a"},
		{"1.2.3.a4", "1.2.3.a4"},
		{"0xg", "0xg"},
		{"1.2.3.0xg", "1.2.3.0xg"},
		{"1.2.3.0y1", "1.2.3.0y1"},
		{"x0", "x0"},
		{"0b1", "0b1"},
		{"0o17", "0o17"},
		{"1e3", "1e3"},
		{"-1", "-1"},
		{"1_0", "1_0"},
		{"1.2.3.-4", "1.2.3.-4"},
		{"de.ad.be.ef", "de.ad.be.ef"},
		{L63 ".test", L63 ".test"},
		{N253, N253},
		{N253 ".", N253},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct host h, again;
		struct err e = ERR_INIT;

		if (host_parse(str_from_c(rows[i].in), &h, &e) < 0)
			fail_msg("%s: %s", rows[i].in, e.text);
		assert_int_equal(h.kind, HOST_NAME);
		assert_string_equal(h.text, rows[i].out);
		assert_int_equal(h.len, strlen(rows[i].out));
		assert_int_equal(h.addr.family, 0);
		assert_int_equal(host_parse(host_str(&h), &again, &e), 0);
		assert_true(host_eq(&h, &again));
	}
}

static void test_addresses(void **state)
{
	static const struct {
		const char *in, *text, *url;
		enum host_kind kind;
	} rows[] = {
		{"127.0.0.1", "127.0.0.1", "127.0.0.1", HOST_IPV4},
		{"0.0.0.0", "0.0.0.0", "0.0.0.0", HOST_IPV4},
		{"255.255.255.255", "255.255.255.255", "255.255.255.255", HOST_IPV4},
		{"169.254.169.254", "169.254.169.254", "169.254.169.254", HOST_IPV4},
		{"[::1]", "::1", "[::1]", HOST_IPV6},
		{"[::]", "::", "[::]", HOST_IPV6},
		{"[2001:DB8:0:0:0:0:0:1]", "2001:db8::1", "[2001:db8::1]", HOST_IPV6},
		{"[0:0:0:0:0:0:0:1]", "::1", "[::1]", HOST_IPV6},
		{"[::ffff:1.2.3.4]", "::ffff:1.2.3.4", "[::ffff:1.2.3.4]", HOST_IPV6},
		{"[::ffff:0102:0304]", "::ffff:1.2.3.4", "[::ffff:1.2.3.4]", HOST_IPV6},
		{"[64:ff9b::10.0.0.1]", "64:ff9b::a00:1", "[64:ff9b::a00:1]", HOST_IPV6},
		{"[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]",
		 "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		 "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]", HOST_IPV6},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct host h, again;
		struct err e = ERR_INIT;
		struct strbuf b;

		strbuf_init(&b, 64);
		if (host_parse(str_from_c(rows[i].in), &h, &e) < 0)
			fail_msg("%s: %s", rows[i].in, e.text);
		assert_int_equal(h.kind, rows[i].kind);
		assert_string_equal(h.text, rows[i].text);
		assert_int_equal(h.len, strlen(rows[i].text));
		host_add_url(&h, &b);
		assert_string_equal(strbuf_cstr(&b), rows[i].url);
		assert_int_equal(host_parse(strbuf_str(&b), &again, &e), 0);
		assert_true(host_eq(&h, &again));
		assert_true(ipaddr_eq(&h.addr, &again.addr));
		strbuf_clear(&b);
	}
}

#define BYTES(s)                                                                                   \
	{                                                                                          \
		s, sizeof(s) - 1                                                                   \
	}

static void test_malformed(void **state)
{
	static const struct str rows[] = {
		BYTES(""),
		BYTES("."),
		BYTES(".."),
		BYTES("..."),
		BYTES(".a"),
		BYTES(".allowed.test"),
		BYTES("a..b"),
		BYTES("a.."),
		BYTES("allowed.test.."),
		BYTES("127.0.0.1.."),
		BYTES("127..0.1"),
		BYTES(" a"),
		BYTES("a "),
		BYTES("a b"),
		BYTES("a\tb"),
		BYTES("a\nb"),
		BYTES("a\r\nb"),
		BYTES("\0"),
		BYTES("a\0"),
		BYTES("\0a"),
		BYTES("evil.test\0.allowed.test"),
		BYTES("allowed.test\0.evil.test"),
		BYTES("127.0.0.1\0"),
		BYTES("evil.test%00.allowed.test"),
		BYTES("evil.test%0d%0a.allowed.test"),
		BYTES("evil%2etest"),
		BYTES("%61llowed.test"),
		BYTES("allowed%2Etest"),
		BYTES("evil.test\x01.allowed.test"),
		BYTES("evil.test\x1b[2J.allowed.test"),
		BYTES("evil.test\x7f.allowed.test"),
		BYTES("evil.test\x80.allowed.test"),
		BYTES("evil.test\xff.allowed.test"),
		BYTES("m\xc3\xbcnchen.de"),
		BYTES("evil\xe3\x80\x82test"), /* ideographic full stop */
		BYTES("\xef\xbc\x91.1.1.1"),   /* fullwidth digit one */
		BYTES("allowed.te\xc5\xbft"),  /* long s, which folds to s */
		BYTES("a*b"),
		BYTES("*"),
		BYTES("*.wild.test"),
		BYTES("a,b"),
		BYTES("allowed.test:8080, evil.test"),
		BYTES("a/b"),
		BYTES("a?b"),
		BYTES("a#b"),
		BYTES("user@host"),
		BYTES("a:80"),
		BYTES("::1"),
		BYTES("2001:db8::1"),
		BYTES("fe80::1%eth0"),
		BYTES("1.2.3.4:"),
		BYTES("a!b"),
		BYTES("a$b"),
		BYTES("a&b"),
		BYTES("a'b"),
		BYTES("a(b)"),
		BYTES("a+b"),
		BYTES("a;b"),
		BYTES("a=b"),
		BYTES("a~b"),
		BYTES("a|b"),
		BYTES("a^b"),
		BYTES("a`b"),
		BYTES("a{b}"),
		BYTES("a\"b"),
		BYTES("a<b>"),
		BYTES("["),
		BYTES("]"),
		BYTES("[]"),
		BYTES("[::1"),
		BYTES("::1]"),
		BYTES("[[::1]]"),
		BYTES("[::1]]"),
		BYTES("[::1].test"),
		BYTES("[::1]."),
		BYTES("[::1]x"),
		BYTES("x[::1]"),
		BYTES("[fe80::1%eth0]"),
		BYTES("[fe80::1%25eth0]"),
		BYTES("[::1%0]"),
		BYTES("[::1%25lo]"),
		BYTES("[::1\0]"),
		BYTES("[::1 ]"),
		BYTES("[ ::1]"),
		BYTES("[127.0.0.1]"),
		BYTES("[allowed.test]"),
		BYTES("[v1.x]"),
		BYTES("[vF.::1]"),
		BYTES("[::ffff:127.1]"),
		BYTES("[::ffff:0177.0.0.1]"),
		BYTES("[1:2:3:4:5:6:7:8:9]"),
		BYTES(L64),
		BYTES(L64 ".test"),
		BYTES("a." L64),
		BYTES(N253 "a"),
		BYTES(N253 "a."),
		BYTES(N253 ".."),
		BYTES("a." N253),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct host h = {.kind = HOST_NONE, .len = 99};
		struct err e = ERR_INIT;

		if (host_parse(rows[i], &h, &e) == 0)
			fail_msg("read: %.*s", STR_FMT(rows[i]));
		if (e.reason != REASON_MALFORMED_REQUEST)
			fail_msg("%.*s: %s", STR_FMT(rows[i]), reason_word(e.reason));
		assert_true(e.text[0] != '\0');
		assert_int_equal(h.kind, HOST_NONE);
		assert_int_equal(h.len, 99);
	}
}

/* What another reader would take for another host: numbers, and a backslash for a slash. */
static void test_ambiguous(void **state)
{
	static const char *const rows[] = {
		"2130706433",
		"0x7f000001",
		"0X7F000001",
		"0x7f.1",
		"0177.0.0.1",
		"127.1",
		"0",
		"00",
		"127.0.0.1.",
		"0.",
		"1.2.3.",
		"2852039166",
		"0251.0376.0251.0376",
		"127.0.0.256",
		"256.256.256.256",
		"1.2.3.4.5",
		"1.2.3",
		"1.2",
		"01.2.3.4",
		"1.02.3.4",
		"1.2.3.04",
		"1.2.3.0x4",
		"1.2.3.0x",
		"0x",
		"0X",
		"0x.",
		"a.0x",
		"evil.test.0x7f",
		"evil.test.1",
		"evil.test.1.",
		"a.b.127",
		"foo.0",
		"foo.00000",
		"4294967296",
		"99999999999999999999",
		"0x7f.0x0.0x0.0x1",
		"0x100000000",
		"1.2.3.4.0xabc",
		"1.2.3.4.0xABC.",
		"000127.0.0.1",
		"127.0.0.0001",
		"0x0",
		"10.0xdeadbeef",
		"_.1",
		"-.1",
		"a-1.1",
		"evil.test\\.allowed.test",
		"a\\b",
		"\\",
		"allowed.test\\",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct host h = {.len = 99};
		struct err e = ERR_INIT;

		if (host_parse(str_from_c(rows[i]), &h, &e) == 0)
			fail_msg("read: %s", rows[i]);
		if (e.reason != REASON_AMBIGUOUS_URL)
			fail_msg("%s: %s", rows[i], reason_word(e.reason));
		assert_int_equal(h.len, 99);
	}
}

/* Of all bytes, only these are in a name. */
static void test_every_byte(void **state)
{
	static const char in_names[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				       "0123456789-_.";

	(void)state;
	for (int c = 0; c < 256; c++) {
		char name[] = "a?a";
		struct host h;
		bool want = c != 0 && strchr(in_names, c);

		name[1] = (char)c;
		assert_int_equal(host_parse(str_from(name, 3), &h, NULL) == 0, want);
	}
}

static void test_compare(void **state)
{
	struct host a, b, none = {0};
	struct ipaddr v4 = {4, {1, 2, 3, 4}}, nothing = {0};

	(void)state;
	assert_int_equal(host_parse(STR("A.test"), &a, NULL), 0);
	assert_int_equal(host_parse(STR("a.TEST."), &b, NULL), 0);
	assert_true(host_eq(&a, &b));
	assert_int_equal(host_parse(STR("a.tes"), &b, NULL), 0);
	assert_false(host_eq(&a, &b));
	assert_false(host_eq(&none, &none));
	assert_int_equal(host_parse(STR("1.2.3.4"), &a, NULL), 0);
	host_from_ipaddr(&v4, &b);
	assert_true(host_eq(&a, &b));
	assert_int_equal(host_parse(STR("[::ffff:1.2.3.4]"), &b, NULL), 0);
	assert_false(host_eq(&a, &b));
	host_from_ipaddr(&nothing, &b);
	assert_int_equal(b.kind, HOST_NONE);
	assert_int_equal(b.len, 0);
}

static void test_with_a_port(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{"A.test", "a.test:65535"},
		{"1.2.3.4", "1.2.3.4:65535"},
		{"[2001:DB8::1]", "[2001:db8::1]:65535"},
		{"[2001:db8:1111:2222:3333:4444:5555:6666]",
		 "[2001:db8:1111:2222:3333:4444:5555:6666]:65535"},
	};
	char mem[HOST_PORT_ROOM], longest[LIMIT_HOST_BYTES + 1];
	struct host h;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(host_parse(str_from_c(rows[i].in), &h, NULL), 0);
		assert_string_equal(host_port(&h, 65535, mem), rows[i].out);
	}
	for (size_t i = 0; i < LIMIT_HOST_BYTES; i++)
		longest[i] = i % 2 ? '.' : 'a';
	longest[LIMIT_HOST_BYTES] = '\0';
	assert_int_equal(host_parse(str_from_c(longest), &h, NULL), 0);
	assert_int_equal(strlen(host_port(&h, 65535, mem)), LIMIT_HOST_BYTES + 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),	    cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_malformed),   cmocka_unit_test(test_ambiguous),
		cmocka_unit_test(test_every_byte),  cmocka_unit_test(test_compare),
		cmocka_unit_test(test_with_a_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
