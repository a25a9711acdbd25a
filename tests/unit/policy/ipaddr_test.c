/*
 * Addresses: every spelling that is read and every one that is not, the text that comes back,
 * ranges, what IPv6 forms carry, and the judgement over the special-purpose registries.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "policy/ipaddr.h"

static struct ipaddr addr(const char *text)
{
	struct ipaddr a;

	if (ipaddr_parse(str_from_c(text), &a) < 0)
		fail_msg("not read: %s", text);
	return a;
}

static struct iprange range(const char *text)
{
	struct iprange r;
	struct err e = ERR_INIT;

	if (iprange_parse(str_from_c(text), &r, &e) < 0)
		fail_msg("not read: %s: %s", text, e.text);
	return r;
}

static void test_spellings(void **state)
{
	static const struct {
		const char *in, *out;
	} good[] = {
		{"0.0.0.0", "0.0.0.0"},
		{"1.2.3.4", "1.2.3.4"},
		{"255.255.255.255", "255.255.255.255"},
		{"10.0.0.109", "10.0.0.109"},
		{"::", "::"},
		{"::1", "::1"},
		{"1::", "1::"},
		{"0:0:0:0:0:0:0:0", "::"},
		{"0:0:0:0:0:0:0:1", "::1"},
		{"2001:DB8::A", "2001:db8::a"},
		{"2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"},
		{"2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"},
		{"2001:0:0:1:0:0:0:1", "2001:0:0:1::1"},
		{"2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"},
		{"1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"},
		{"::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"},
		{"1:2:3:4:5:6:0:0", "1:2:3:4:5:6::"},
		{"::ffff:1.2.3.4", "::ffff:1.2.3.4"},
		{"::FFFF:102:304", "::ffff:1.2.3.4"},
		{"0:0:0:0:0:ffff:127.0.0.1", "::ffff:127.0.0.1"},
		{"::1.2.3.4", "::102:304"},
		{"64:ff9b::1.2.3.4", "64:ff9b::102:304"},
		{"1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"},
		{"1::1.2.3.4", "1::102:304"},
		{"::ffff:0:1.2.3.4", "::ffff:0:102:304"},
		{"fe80::1", "fe80::1"},
		{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		 "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{"ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255",
		 "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	};
	char text[IPADDR_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct ipaddr a = addr(good[i].in), again;

		ipaddr_format(&a, text);
		assert_string_equal(text, good[i].out);
		again = addr(text);
		assert_true(ipaddr_eq(&a, &again));
	}
}

static void test_not_addresses(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		".",
		":",
		"1",
		"0",
		"127",
		"127.1",
		"127.0.1",
		"1.2.3",
		"1.2.3.",
		".1.2.3",
		"1..2.3",
		"1.2.3.4.",
		"1.2.3.4.5",
		"01.2.3.4",
		"1.2.3.04",
		"00.0.0.0",
		"0177.0.0.1",
		"0x7f.0.0.1",
		"0x7f000001",
		"2130706433",
		"256.1.1.1",
		"1.2.3.256",
		"1.2.3.1000",
		"1.2.3.-4",
		"+1.2.3.4",
		" 1.2.3.4",
		"1.2.3.4 ",
		"1.2.3.4/8",
		"1.2.3.4%eth0",
		"a.b.c.d",
		"1,2,3,4",
		":::",
		"::1::",
		"1::2::3",
		"1:2:3:4:5:6:7",
		"1:2:3:4:5:6:7:8:9",
		"1:2:3:4:5:6:7:8::",
		"::1:2:3:4:5:6:7:8",
		"1:2:3:4::5:6:7:8",
		"12345::",
		"::12345",
		"g::",
		"::g",
		"1:2:3:4:5:6:7:",
		":1:2:3:4:5:6:7",
		":1::",
		"::1:",
		"::1.2.3",
		"::1.2.3.4.5",
		"::1.2.3.04",
		"::1.2.3.4:5",
		"1.2.3.4::",
		"1:2:3:4:5:6:7:1.2.3.4",
		"::256.1.1.1",
		"::%1",
		"fe80::1%eth0",
		"fe80::1%25eth0",
		"[::1]",
		"::1/128",
		"::-1",
		"::0x1",
		" ::1",
		"::1 ",
		"1:2:3:4:5:1.2.3.4",
		"1.2.3.4:80",
		"::ffff:1.2.3.4.",
		"::ffff:0177.0.0.1",
		"0000:0000:0000:0000:0000:ffff:255.255.255.255x",
	};
	struct ipaddr a = {.family = 77};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (ipaddr_parse(str_from_c(bad[i]), &a) == 0)
			fail_msg("read: \"%s\"", bad[i]);
		assert_int_equal(a.family, 77);
	}
	assert_int_equal(ipaddr_parse(STR("1.2.3.4\0"), &a), -1);
	assert_int_equal(ipaddr_parse(STR("1.2.3\0.4"), &a), -1);
	assert_int_equal(ipaddr_parse(STR("::1\0"), &a), -1);
	assert_int_equal(ipaddr_parse(STR_NONE, &a), -1);
}

/* Against the C library, over random strings of the bytes that addresses are made of. */
static void test_like_the_library(void **state)
{
	static const char alphabet[] = "0011229f:::...";
	unsigned seed = 20240601, read = 0;

	(void)state;
	for (int round = 0; round < 400000; round++) {
		char s[32], text[IPADDR_TEXT_MAX];
		size_t n = (size_t)(rand_r(&seed) % 20);
		struct ipaddr a;
		uint8_t lib[16];
		int family, ours;

		for (size_t i = 0; i < n; i++)
			s[i] = alphabet[(size_t)rand_r(&seed) % (sizeof(alphabet) - 1)];
		s[n] = '\0';
		family = memchr(s, ':', n) ? AF_INET6 : AF_INET;
		ours = ipaddr_parse(str_from(s, n), &a);
		if ((ours == 0) != (inet_pton(family, s, lib) == 1))
			fail_msg("differs from inet_pton: \"%s\"", s);
		if (ours < 0)
			continue;
		read++;
		assert_memory_equal(a.b, lib, family == AF_INET ? 4 : 16);
		ipaddr_format(&a, text);
		assert_int_equal(inet_pton(family, text, lib), 1);
		assert_memory_equal(a.b, lib, family == AF_INET ? 4 : 16);
	}
	assert_true(read > 100);
}

static void test_ranges(void **state)
{
	static const struct {
		const char *range, *addr;
		bool has;
	} rows[] = {
		{"10.0.0.0/8", "10.255.255.255", true},
		{"10.0.0.0/8", "11.0.0.0", false},
		{"10.0.0.0/8", "9.255.255.255", false},
		{"10.0.0.0/8", "::ffff:10.0.0.1", false},
		{"10.0.0.0/8", "a00::", false},
		{"0.0.0.0/0", "255.1.2.3", true},
		{"0.0.0.0/0", "::1", false},
		{"::/0", "::1", true},
		{"::/0", "1.2.3.4", false},
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.0", false},
		{"192.0.2.1/32", "192.0.2.1", true},
		{"100.64.0.0/10", "100.127.255.255", true},
		{"100.64.0.0/10", "100.128.0.0", false},
		{"172.16.0.0/12", "172.31.0.1", true},
		{"172.16.0.0/12", "172.32.0.1", false},
		{"128.0.0.0/1", "127.255.255.255", false},
		{"fd00::/8", "fdff::1", true},
		{"fd00::/8", "fc00::1", false},
		{"fc00::/7", "fdff::1", true},
		{"2001:db8::/33", "2001:db8:7fff::", true},
		{"2001:db8::/33", "2001:db8:8000::", false},
		{"::1", "::1", true},
		{"::1", "::2", false},
		{"::/127", "::1", true},
		{"::ffff:0:0/96", "::ffff:1.2.3.4", true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct iprange r = range(rows[i].range);
		struct ipaddr a = addr(rows[i].addr);

		if (iprange_has(&r, &a) != rows[i].has)
			fail_msg("%s has %s", rows[i].range, rows[i].addr);
	}
}

static void test_bad_ranges(void **state)
{
	static const char *const bad[] = {
		"",
		"/",
		"/8",
		"10.0.0.0/",
		"10.0.0.0/33",
		"10.0.0.0/-1",
		"10.0.0.0/+8",
		"10.0.0.0/08",
		"10.0.0.0/8/8",
		"10.0.0.0/ 8",
		"10.0.0.0 /8",
		"10/8",
		"10.0.0/8",
		"10.0.0.0/8x",
		"10.0.0.0/255.0.0.0",
		"10.0.0.1/8",
		"10.0.0.0/4294967304",
		"fd00::/129",
		"fd00::1/8",
		"fd00::/0x8",
		"::1%lo/128",
		"[::1]/128",
		"localhost",
		"10.0.0.0-10.0.0.9",
		"2001:db8::1/127",
		"255.255.255.255/0",
		"fe80::1/10",
		"10.0.0.0/256",
		"10.0.0.0/264",
	};
	struct iprange r;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		e = ERR_INIT;
		if (iprange_parse(str_from_c(bad[i]), &r, &e) == 0)
			fail_msg("read: \"%s\"", bad[i]);
		assert_true(e.text[0] != '\0');
	}
	assert_int_equal(iprange_parse(STR("10.1.2.3/8"), &r, &e), -1);
	assert_non_null(strstr(e.text, "10.0.0.0/8"));
	assert_int_equal(iprange_parse(STR("2001:db8::1/127"), &r, &e), -1);
	assert_non_null(strstr(e.text, "2001:db8::/127"));
}

/* What each form carries; NULL ends a list. */
static void test_embedded(void **state)
{
	static const struct {
		const char *addr;
		const char *v4[3];
	} rows[] = {
		{"::", {NULL}},
		{"::1", {NULL}},
		{"1.2.3.4", {NULL}},
		{"2606:4700::1111", {NULL}},
		{"::2", {"0.0.0.2"}},
		{"::127.0.0.1", {"127.0.0.1"}},
		{"::ffff:169.254.169.254", {"169.254.169.254"}},
		{"::ffff:0.0.0.0", {"0.0.0.0"}},
		{"::ffff:0:10.1.2.3", {"10.1.2.3"}},
		{"64:ff9b::192.168.1.1", {"192.168.1.1"}},
		{"64:ff9b::", {"0.0.0.0"}},
		/* the layouts of RFC 6052 section 2.2: /48, /56, /64, /96 */
		{"64:ff9b:1:7f00:0:100::", {"127.0.0.1"}},
		{"64:ff9b:1:c0:0:221::", {"192.0.2.33"}},
		{"64:ff9b:1:c000:2:2100::", {"192.0.2.33", "2.33.0.0"}},
		{"64:ff9b:1:0:c0:2:2100:0", {"192.0.2.33", "33.0.0.0"}},
		{"64:ff9b:1::10.0.0.1", {"10.0.0.1"}},
		{"64:ff9b:1:7f00::8.8.8.8", {"127.0.0.0", "8.8.8.8"}},
		{"64:ff9b:1::", {"0.0.0.0"}},
		{"2002:7f00:1::", {"127.0.0.1"}},
		{"2002:a00:1:ffff::1", {"10.0.0.1"}},
		/* RFC 4380 section 4: server, then client with its bits turned */
		{"2001:0:4136:e378:8000:63bf:3fff:fdd2", {"65.54.227.120", "192.0.2.45"}},
		{"2001::80ff:fffe", {"0.0.0.0", "127.0.0.1"}},
		{"fe80::5efe:10.0.0.1", {"10.0.0.1"}},
		{"2606:4700::5efe:127.0.0.1", {"127.0.0.1"}},
		{"2606:4700::200:5efe:8.8.8.8", {"8.8.8.8"}},
		{"2606:4700::100:5efe:8.8.8.8", {NULL}},
		{"2606:4700::5eff:8.8.8.8", {NULL}},
		{"2002:a00:1::200:5efe:192.168.0.9", {"10.0.0.1", "192.168.0.9"}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct ipaddr a = addr(rows[i].addr), got;
		unsigned n = 0;

		for (; n < 3 && rows[i].v4[n]; n++) {
			struct ipaddr want = addr(rows[i].v4[n]);

			if (!ipaddr_embedded_v4(&a, n, &got) || !ipaddr_eq(&got, &want))
				fail_msg("%s does not carry %s", rows[i].addr, rows[i].v4[n]);
		}
		if (ipaddr_embedded_v4(&a, n, &got))
			fail_msg("%s carries more", rows[i].addr);
	}
}

static const char *const metadata[] = {
	"169.254.169.254",   "169.254.170.2",	"169.254.170.23",  "169.254.169.253",
	"169.254.169.123",   "169.254.169.252", "100.100.100.200", "192.0.0.192",
	"168.63.129.16",     "169.254.42.42",	"192.80.8.124",	   "fd00:ec2::254",
	"fd00:ec2::23",	     "fd20:ce::254",	"fd00:42::42",	   "fd00:c1::a9fe:a9fe",
	"fd00:a9fe:a9fe::1", "fe80::a9fe:a9fe",
};

/* Each with a word that the reason must hold. */
static const struct {
	const char *addr, *why;
} specials[] = {
	{"0.0.0.0", "unspecified"},
	{"0.1.2.3", "this network"},
	{"0.255.255.255", "this network"},
	{"10.0.0.0", "private"},
	{"10.255.255.255", "private"},
	{"100.64.0.0", "shared"},
	{"100.127.255.255", "shared"},
	{"127.0.0.1", "loopback"},
	{"127.255.255.254", "loopback"},
	{"169.254.0.0", "link-local"},
	{"169.254.255.255", "link-local"},
	{"172.16.0.0", "private"},
	{"172.31.255.255", "private"},
	{"192.0.0.1", "continuity"},
	{"192.0.0.8", "dummy"},
	{"192.0.0.9", "PCP"},
	{"192.0.0.10", "TURN"},
	{"192.0.0.170", "NAT64"},
	{"192.0.0.171", "NAT64"},
	{"192.0.0.255", "IETF"},
	{"192.0.2.1", "documentation"},
	{"192.31.196.1", "AS112"},
	{"192.52.193.1", "AMT"},
	{"192.88.99.1", "6to4"},
	{"192.168.0.1", "private"},
	{"192.168.255.255", "private"},
	{"192.175.48.6", "AS112"},
	{"198.18.0.0", "benchmarking"},
	{"198.19.255.255", "benchmarking"},
	{"198.51.100.1", "documentation"},
	{"203.0.113.255", "documentation"},
	{"224.0.0.1", "multicast"},
	{"239.255.255.255", "multicast"},
	{"240.0.0.1", "reserved"},
	{"255.255.255.254", "reserved"},
	{"255.255.255.255", "broadcast"},
	{"::", "unspecified"},
	{"::1", "loopback"},
	{"::2", "carries 0.0.0.2 (this network)"},
	{"::127.0.0.1", "carries 127.0.0.1 (loopback)"},
	{"::8.8.8.8", "carries 8.8.8.8"},
	{"::ffff:127.0.0.1", "carries 127.0.0.1 (loopback)"},
	{"::ffff:8.8.8.8", "carries 8.8.8.8"},
	{"::ffff:a9fe:a9fe", "carries 169.254.169.254 (cloud metadata)"},
	{"::ffff:0:10.0.0.1", "carries 10.0.0.1 (private)"},
	{"64:ff9b::10.0.0.1", "carries 10.0.0.1 (private)"},
	{"64:ff9b::8.8.8.8", "carries 8.8.8.8"},
	{"64:ff9b:1::1.1.1.1", "carries 1.1.1.1"},
	{"64:ff9b:1:a9fe:a9:fe00::", "(cloud metadata)"},
	{"64:ff9b:2::1", "not global"},
	{"100::1", "discard"},
	{"100:0:0:1::1", "dummy"},
	{"100:0:0:2::1", "not global"},
	{"2001::1", "carries"},
	{"2001:1::1", "PCP"},
	{"2001:1::2", "TURN"},
	{"2001:1::3", "DNS-SD"},
	{"2001:1::4", "IETF"},
	{"2001:2::1", "benchmarking"},
	{"2001:2:1::1", "IETF"},
	{"2001:3::1", "AMT"},
	{"2001:4:112::1", "AS112"},
	{"2001:10::1", "ORCHID"},
	{"2001:1f:ffff::1", "ORCHID"},
	{"2001:20::1", "ORCHIDv2"},
	{"2001:2f:ffff::", "ORCHIDv2"},
	{"2001:30::1", "drone"},
	{"2001:1ff:ffff::1", "IETF"},
	{"2001:db8::1", "documentation"},
	{"2001:db8:ffff:ffff::1", "documentation"},
	{"2002:8.8.8.8::", NULL}, /* no spelling: skipped */
	{"2002:808:808::1", "carries 8.8.8.8"},
	{"2002:7f00:1::", "carries 127.0.0.1 (loopback)"},
	{"2620:4f:8000::1", "AS112"},
	{"3fff::1", "documentation"},
	{"3fff:fff:ffff::1", "documentation"},
	{"5f00::1", "segment routing"},
	{"4000::1", "not global"},
	{"1fff::1", "not global"},
	{"8000::1", "not global"},
	{"fbff::1", "not global"},
	{"fc00::1", "private"},
	{"fdff::1", "private"},
	{"fe00::1", "not global"},
	{"fe80::1", "link-local"},
	{"febf::1", "link-local"},
	{"fec0::1", "site-local"},
	{"feff::1", "site-local"},
	{"ff02::1", "multicast"},
	{"ffff::1", "multicast"},
	{"2606:4700::5efe:8.8.8.8", "carries 8.8.8.8"},
	{"2606:4700::5efe:10.1.1.1", "carries 10.1.1.1 (private)"},
};

/* The neighbours of special ranges, and some well-known servers. */
static const char *const publics[] = {
	"1.0.0.0",
	"1.1.1.1",
	"8.8.8.8",
	"9.255.255.255",
	"11.0.0.0",
	"100.63.255.255",
	"100.128.0.0",
	"126.255.255.255",
	"128.0.0.0",
	"169.253.255.255",
	"169.255.0.0",
	"172.15.255.255",
	"172.32.0.0",
	"191.255.255.255",
	"192.0.1.0",
	"192.0.3.0",
	"192.31.195.255",
	"192.31.197.0",
	"192.52.192.0",
	"192.52.194.0",
	"192.88.98.255",
	"192.88.100.0",
	"192.167.255.255",
	"192.169.0.0",
	"192.175.47.255",
	"192.175.49.0",
	"198.17.255.255",
	"198.20.0.0",
	"198.51.99.255",
	"198.51.101.0",
	"203.0.112.255",
	"203.0.114.0",
	"223.255.255.255",
	"168.63.129.15",
	"168.63.129.17",
	"192.80.8.123",
	"2000::1",
	"2001:200::1",
	"2001:4860:4860::8888",
	"2001:db7::1",
	"2001:db9::1",
	"2003::1",
	"2606:4700:4700::1111",
	"2620:4f:7fff::1",
	"2620:4f:8001::1",
	"2a00:1450::1",
	"3ffe:ffff::1",
	"3fff:1000::1",
};

static void test_specials(void **state)
{
	char buf[96];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specials); i++) {
		struct ipaddr a;
		struct err e = ERR_INIT;
		const char *why;

		if (!specials[i].why) {
			assert_int_equal(ipaddr_parse(str_from_c(specials[i].addr), &a), -1);
			continue;
		}
		a = addr(specials[i].addr);
		why = ipaddr_special(&a, buf, sizeof(buf));
		if (!why || !strstr(why, specials[i].why))
			fail_msg("%s: %s", specials[i].addr, why ? why : "public");
		assert_int_equal(ipaddr_judge(&a, NULL, 0, NULL, 0, &e), -1);
		assert_int_equal(e.reason, REASON_ADDRESS_DENIED);
		assert_non_null(strstr(e.text, why));
	}
	for (size_t i = 0; i < ARRAY_LEN(publics); i++) {
		struct ipaddr a = addr(publics[i]);

		if (ipaddr_special(&a, buf, sizeof(buf)))
			fail_msg("%s: %s", publics[i], buf);
		assert_int_equal(ipaddr_judge(&a, NULL, 0, NULL, 0, NULL), 0);
	}
}

static void test_no_address_is_refused(void **state)
{
	struct ipaddr none = {0};
	struct iprange all[] = {range("0.0.0.0/0"), range("::/0")};
	struct iprange broken = {0};

	(void)state;
	assert_int_equal(ipaddr_judge(&none, all, 2, NULL, 0, NULL), -1);
	assert_int_equal(ipaddr_judge(&none, &broken, 1, NULL, 0, NULL), -1);
}

static void test_metadata_needs_its_exact_address(void **state)
{
	struct iprange wide[] = {range("0.0.0.0/0"), range("::/0"), range("169.254.0.0/16"),
				 range("168.63.129.16/31"), range("fd00:ec2::/64")};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(metadata); i++) {
		struct ipaddr a = addr(metadata[i]);
		struct iprange exact = range(metadata[i]);
		struct err e = ERR_INIT;

		assert_true(ipaddr_is_metadata(&a));
		assert_int_equal(ipaddr_judge(&a, NULL, 0, NULL, 0, &e), -1);
		assert_int_equal(ipaddr_judge(&a, wide, ARRAY_LEN(wide), NULL, 0, &e), -1);
		assert_int_equal(e.reason, REASON_ADDRESS_DENIED);
		assert_non_null(strstr(e.text, "metadata"));
		assert_int_equal(ipaddr_judge(&a, &exact, 1, NULL, 0, &e), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(publics); i++) {
		struct ipaddr a = addr(publics[i]);

		assert_false(ipaddr_is_metadata(&a));
	}
}

/* Ranges as one string with blanks between; "" for none. */
static void test_judge(void **state)
{
	static const struct {
		const char *addr, *ranges;
		bool admitted;
	} rows[] = {
		{"8.8.8.8", "", true},
		{"8.8.8.8", "10.0.0.0/8", true}, /* ranges add, they do not narrow */
		{"10.1.2.3", "", false},
		{"10.1.2.3", "10.0.0.0/8", true},
		{"10.1.2.3", "10.1.2.3", true},
		{"10.1.2.3", "10.1.2.4 192.168.0.0/16", false},
		{"10.1.2.3", "192.168.0.0/16 10.1.0.0/16", true},
		{"127.0.0.1", "127.0.0.0/8", true},
		{"::1", "127.0.0.0/8", false},
		{"::1", "::1", true},
		{"0.0.0.0", "127.0.0.0/8", false},
		/* a carrier needs both */
		{"::ffff:10.0.0.1", "10.0.0.0/8", false},
		{"::ffff:10.0.0.1", "::ffff:0:0/96", false},
		{"::ffff:10.0.0.1", "::ffff:0:0/96 10.0.0.0/8", true},
		{"::ffff:10.0.0.1", "::/0", false},
		{"::ffff:8.8.8.8", "", false},
		{"::ffff:8.8.8.8", "::ffff:0:0/96", true},
		{"::ffff:8.8.8.8", "8.8.8.8", false},
		{"64:ff9b::8.8.8.8", "", false},
		{"64:ff9b::8.8.8.8", "64:ff9b::/96", true},
		{"64:ff9b::10.0.0.1", "64:ff9b::/96", false},
		{"64:ff9b::169.254.169.254", "64:ff9b::/96 169.254.0.0/16", false},
		{"64:ff9b::169.254.169.254", "64:ff9b::/96 169.254.169.254", true},
		{"64:ff9b::168.63.129.16", "64:ff9b::/96", false},
		{"64:ff9b:1::8.8.8.8", "64:ff9b:1::/48", true},
		{"64:ff9b:1::10.0.0.1", "64:ff9b:1::/48", false},
		{"64:ff9b:1::10.0.0.1", "64:ff9b:1::/48 10.0.0.0/8", true},
		{"64:ff9b:1:7f00:0:100::", "64:ff9b:1::/48", false},
		{"2002:7f00:1::1", "2002::/16", false},
		{"2002:808:808::1", "2002::/16", true},
		/* Teredo: server and client */
		{"2001:0:808:808::f7f7:f7f7", "2001::/32", true},
		{"2001:0:808:808::80ff:fffe", "2001::/32", false},
		{"2001:0:7f00:1::f7f7:f7f7", "2001::/32", false},
		{"2001:0:7f00:1::f7f7:f7f7", "2001::/32 127.0.0.0/8", true},
		{"2606:4700::5efe:8.8.8.8", "", false},
		{"2606:4700::5efe:8.8.8.8", "2606:4700::/32", true},
		{"2606:4700::5efe:127.0.0.1", "2606:4700::/32", false},
		{"fd00::1", "fd00::/8", true},
		{"fd00::1", "fc00::/8", false},
		{"fe80::1", "fe80::/10", true},
		/* this host's own addresses: 5.5.5.5 and 2600::5 */
		{"5.5.5.5", "", false},
		{"5.5.5.5", "5.5.5.0/24", true},
		{"5.5.5.6", "", true},
		{"2600::5", "", false},
		{"2600::5", "2600::5", true},
		{"::ffff:5.5.5.5", "::ffff:0:0/96", false},
		{"2002:505:505::", "2002::/16", false},
	};
	struct ipaddr own[] = {addr("127.0.0.1"), addr("5.5.5.5"), addr("2600::5")};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct str rest = str_from_c(rows[i].ranges);
		struct iprange ranges[4];
		struct ipaddr a = addr(rows[i].addr);
		struct err e = ERR_INIT;
		size_t n = 0;

		while (rest.n > 0)
			assert_int_equal(iprange_parse(str_split(&rest, ' '), &ranges[n++], &e), 0);
		if ((ipaddr_judge(&a, ranges, n, own, ARRAY_LEN(own), &e) == 0) != rows[i].admitted)
			fail_msg("%s under [%s]: %s", rows[i].addr, rows[i].ranges, e.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spellings),
		cmocka_unit_test(test_not_addresses),
		cmocka_unit_test(test_like_the_library),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_bad_ranges),
		cmocka_unit_test(test_embedded),
		cmocka_unit_test(test_specials),
		cmocka_unit_test(test_no_address_is_refused),
		cmocka_unit_test(test_metadata_needs_its_exact_address),
		cmocka_unit_test(test_judge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
