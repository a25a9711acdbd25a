/*
 * Hosts, authorities and URLs beside the plain readers of url_plain.h, over texts that are put
 * together from common pieces and then broken in places: the same verdict, the same form, the same
 * words. Each text lies in memory that ends where it ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/pieces.h"
#include "url_plain.h"

#define TEXTS 150000

static void add_host(struct strbuf *b)
{
	static const char label[] =
		"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl";

	for (size_t labels = below(20) ? 1 + below(4) : 1 + below(30); labels > 0; labels--) {
		strbuf_adds(b, PICK("api", "github", "example", "Test", "xn--bcher-kva", "a_b", "1",
				    "127", "0", "255", "256", "0x7f", "0xg", "01", "3com", "com",
				    "a-b"));
		if (below(12) == 0)
			strbuf_add(b, str_from(label, below(sizeof(label))));
		if (labels > 1)
			strbuf_addc(b, '.');
	}
	if (below(10) == 0)
		strbuf_adds(b, PICK(".", "..", "\xc3\xa9", " ", "%41", "[::1]"));
}

static void add_authority(struct strbuf *b)
{
	if (below(30) == 0)
		strbuf_adds(b, PICK("user@", "u:p@", ":", "["));
	if (below(10) == 0)
		strbuf_adds(b, PICK("[::1]", "[2001:DB8::1]", "[::1", "[]", "", "127.0.0.1",
				    "10.0.0.255", "0.0.0.0", "1.2.3.4."));
	else
		add_host(b);
	if (below(2))
		strbuf_adds(b, PICK(":80", ":443", ":8080", ":65535", ":65536", ":0", ":", ":080",
				    ":000001", ":99999", ":123456", ":8a", ":1:2"));
}

static void add_target(struct strbuf *b)
{
	strbuf_adds(b, below(12) ? "/" : PICK("", "*", "//", "\\", "."));
	for (size_t n = below(20) ? below(7) : below(300); n > 0; n--)
		strbuf_adds(b, PICK("a", "repos", "acme", "/", "/", "/", ".", ".", "..", "~u",
				    "%2F", "%2e", "%7e", "%zz", "%", "-", "_", ":", ";v=1",
				    "@scope", "$&'()*+,=!", "|", "<>", "\xc3\xa9", "\xc0\xaf",
				    "\xef\xbc\x8f", "index.html", "v1.2.3"));
	if (below(2) == 0)
		return;
	strbuf_addc(b, '?');
	for (size_t n = below(20) ? below(7) : below(300); n > 0; n--)
		strbuf_adds(b, PICK("a=b", "&", "page", "=", "100", "%20", "%", "%g1", "%u005f",
				    "%u00", "?", "/../", "\\", "|", "\xc3\xa9", "+", "#",
				    "long-enough-to-be-looked-at-in-one-step"));
}

static void add_broken(struct strbuf *b)
{
	size_t breaks = below(4) == 0 ? 1 + below(2) : 0;

	for (; breaks > 0 && b->len > 0; breaks--)
		b->data[below(b->len)] =
			(char)(below(2) ? below(256) : (size_t) "\\#?/:@.% \t\x7f\0"[below(12)]);
}

/* In memory of its own length. */
static char *text(void (*add)(struct strbuf *), size_t *ret_n)
{
	struct strbuf b;
	char *copy;

	strbuf_init(&b, 65536);
	add(&b);
	add_broken(&b);
	*ret_n = b.len;
	copy = malloc(b.len ? b.len : 1);
	assert_non_null(copy);
	if (b.len > 0)
		memcpy(copy, b.data, b.len);
	strbuf_clear(&b);
	return copy;
}

static void same_err(const struct err *a, const struct err *b)
{
	assert_int_equal(a->reason, b->reason);
	assert_string_equal(a->text, b->text);
}

static void same_host(const struct host *a, const struct host *b)
{
	assert_int_equal(a->kind, b->kind);
	assert_int_equal(a->len, b->len);
	assert_string_equal(a->text, b->text);
	assert_true(ipaddr_eq(&a->addr, &b->addr));
}

static void same_slice(struct str a, struct str b)
{
	assert_true(str_eq(a, b));
}

static void same_url(const struct url *a, const struct url *b)
{
	assert_int_equal(a->scheme, b->scheme);
	assert_int_equal(a->port, b->port);
	assert_int_equal(a->has_query, b->has_query);
	same_host(&a->host, &b->host);
	same_slice(a->path, b->path);
	same_slice(a->query, b->query);
}

static void test_hosts(void **state)
{
	(void)state;
	seed = 1;
	for (size_t i = 0; i < TEXTS; i++) {
		struct host a = {0}, b = {0}, c = {0};
		struct err e = ERR_INIT, f = ERR_INIT;
		size_t n;
		char *p = text(add_host, &n);
		int rc = host_parse(str_from(p, n), &a, &e);

		assert_int_equal(rc, plain_host_parse(str_from(p, n), &b, &f));
		same_err(&e, &f);
		same_host(&a, &b);
		if (host_parse_common(str_from(p, n), &c)) {
			assert_int_equal(rc, 0);
			same_host(&c, &b);
		}
		free(p);
	}
}

/* Each IPv4 address is written as it is read, since it has one spelling. */
static void test_addresses(void **state)
{
	(void)state;
	seed = 2;
	for (size_t i = 0; i < TEXTS; i++) {
		struct ipaddr in = {.family = 4,
				    .b = {(uint8_t)below(256), (uint8_t)below(256),
					  (uint8_t)below(256), (uint8_t)below(256)}};
		char p[IPADDR_TEXT_MAX];
		struct host h, want;

		ipaddr_format(&in, p);
		host_from_ipaddr(&in, &want);
		assert_true(host_parse_common(str_from_c(p), &h));
		same_host(&h, &want);
	}
}

static void test_authorities(void **state)
{
	(void)state;
	seed = 3;
	for (size_t i = 0; i < TEXTS; i++) {
		struct host a = {0}, b = {0};
		uint16_t port = 0, port_b = 0, by_default = below(3) ? 80 : 0;
		struct err e = ERR_INIT, f = ERR_INIT;
		size_t n;
		char *p = text(add_authority, &n);
		int rc = url_parse_host_field(str_from(p, n), by_default, &a, &port, &e);

		assert_int_equal(rc, plain_parse_host_field(str_from(p, n), by_default, &b, &port_b,
							    &f));
		same_err(&e, &f);
		same_host(&a, &b);
		assert_int_equal(port, port_b);
		free(p);
	}
}

static void add_url(struct strbuf *b)
{
	strbuf_adds(b, below(8) ? "http://"
				: PICK("https://", "HTTP://", "ws://", "wss://", "ftp://", "http:/",
				       "http:", "", "://"));
	add_authority(b);
	if (below(8))
		add_target(b);
}

/* With room, without, and with less than may be needed. */
static void test_urls(void **state)
{
	char mem[256];

	(void)state;
	seed = 4;
	for (size_t i = 0; i < TEXTS; i++) {
		struct url_room room = {mem, below(3) ? sizeof(mem) : below(sizeof(mem))};
		struct url a, b;
		struct err e = ERR_INIT, f = ERR_INIT;
		size_t n;
		char *p = text(add_url, &n);
		struct str in = str_from(p, n);
		int rc = below(2) ? url_parse_asked_into(room, in, &a, &e)
				  : url_parse_asked(in, &a, &e);

		assert_int_equal(rc, plain_parse_asked(in, &b, &f));
		same_err(&e, &f);
		same_url(&a, &b);
		url_clear(&a);
		url_clear(&b);
		free(p);
	}
}

static void test_paths(void **state)
{
	struct host host;
	char mem[256];

	(void)state;
	assert_int_equal(host_parse(STR("allowed.test"), &host, NULL), 0);
	seed = 5;
	for (size_t i = 0; i < TEXTS; i++) {
		struct url_room room = {mem, below(3) ? sizeof(mem) : below(sizeof(mem))};
		struct url a, b;
		struct err e = ERR_INIT, f = ERR_INIT;
		size_t n;
		char *p = text(add_target, &n);
		struct str in = str_from(p, n);
		int rc = url_parse_origin_form_into(room, SCHEME_HTTPS, &host, 443, in, &a, &e);

		assert_int_equal(rc, plain_parse_origin_form(SCHEME_HTTPS, &host, 443, in, &b, &f));
		same_err(&e, &f);
		same_url(&a, &b);
		url_clear(&a);
		url_clear(&b);
		free(p);
	}
}

/* Around the bound of a target. */
static void test_long_paths(void **state)
{
	static char p[LIMIT_TARGET_BYTES + 3];
	struct host host;

	(void)state;
	assert_int_equal(host_parse(STR("allowed.test"), &host, NULL), 0);
	seed = 6;
	for (size_t i = 0; i < 400; i++) {
		size_t n = LIMIT_TARGET_BYTES - 2 + below(5);
		struct url a, b;
		struct err e = ERR_INIT, f = ERR_INIT;
		int rc;

		memset(p, 'a', sizeof(p));
		if (below(4))
			p[0] = '/';
		if (below(2))
			p[below(n)] = '?';
		if (below(3) == 0)
			p[below(2) ? n - 1 : below(n)] = (char)" %|\xe9/"[below(5)];
		rc = url_parse_origin_form(SCHEME_HTTPS, &host, 443, str_from(p, n), &a, &e);
		assert_int_equal(rc, plain_parse_origin_form(SCHEME_HTTPS, &host, 443,
							     str_from(p, n), &b, &f));
		same_err(&e, &f);
		same_url(&a, &b);
		url_clear(&a);
		url_clear(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hosts),	    cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_authorities), cmocka_unit_test(test_urls),
		cmocka_unit_test(test_paths),	    cmocka_unit_test(test_long_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
