/*
 * Fields as a list, the table of field kinds, and what methods promise.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

#include "logging/limits.h"
#include "proxy/http/field_kind.h"
#include "proxy/http/message.h"

static void test_fields(void **state)
{
	struct fields f = {0};

	(void)state;
	assert_null(fields_get(&f, STR("a")));
	assert_int_equal(fields_remove(&f, STR("a")), 0);
	assert_int_equal(fields_add(&f, STR("A"), STR("1")), 0);
	assert_int_equal(fields_add(&f, STR("b"), STR("2")), 0);
	assert_int_equal(fields_add(&f, STR("a"), STR("3")), 0);
	assert_int_equal(fields_add(&f, STR("ab"), STR("4")), 0);
	assert_true(str_eq(fields_get(&f, STR("a"))->value, STR("1")));
	assert_true(str_eq(fields_get(&f, STR("AB"))->value, STR("4")));
	assert_null(fields_get(&f, STR("")));
	assert_int_equal(fields_remove(&f, STR("A")), 2);
	assert_int_equal(f.n, 2);
	/* the order stays */
	assert_true(str_eq(f.v[0].name, STR("b")));
	assert_true(str_eq(f.v[1].name, STR("ab")));
	fields_clear(&f);
	assert_int_equal(f.n, 0);
	assert_null(f.v);
}

static void test_fields_are_bounded(void **state)
{
	struct fields f = {0};

	(void)state;
	for (int i = 0; i < LIMIT_HEAD_FIELDS; i++)
		assert_int_equal(fields_add(&f, STR("n"), STR("v")), 0);
	assert_int_equal(fields_add(&f, STR("n"), STR("v")), -1);
	assert_int_equal(f.n, LIMIT_HEAD_FIELDS);
	assert_int_equal(fields_remove(&f, STR("n")), LIMIT_HEAD_FIELDS);
	assert_int_equal(fields_add(&f, STR("n"), STR("v")), 0);
	fields_clear(&f);
}

static void test_clear_accepts_null(void **state)
{
	struct request r;
	struct response p;

	(void)state;
	request_clear(NULL);
	response_clear(NULL);
	request_init(&r);
	response_init(&p);
	request_clear(&r);
	request_clear(&r);
	response_clear(&p);
	response_clear(&p);
}

/* Each name that means something, and neighbours that mean nothing. */
static const struct {
	const char *name;
	enum field_kind kind;
} kinds[] = {
	{"Host", FIELD_HOST},
	{"Content-Length", FIELD_CONTENT_LENGTH},
	{"Transfer-Encoding", FIELD_TRANSFER_ENCODING},
	{"Connection", FIELD_CONNECTION},
	{"TE", FIELD_TE},
	{"Upgrade", FIELD_UPGRADE},
	{"HTTP2-Settings", FIELD_HTTP2_SETTINGS},
	{"Expect", FIELD_EXPECT},
	{"Proxy-Authorization", FIELD_PROXY_AUTHORIZATION},
	{"Keep-Alive", FIELD_KEEP_ALIVE},
	{"Proxy-Connection", FIELD_HOP},
	{"Proxy-Authenticate", FIELD_HOP},
	{"Proxy-Status", FIELD_HOP},
	{"Proxy-X", FIELD_HOP},
	{"Proxy", FIELD_HOP},
	{"Alt-Svc", FIELD_ALT_SVC},
	{"Accept", FIELD_ACCEPT},
	{"Trailer", FIELD_TRAILER},
	{"Age", FIELD_CONTROL},
	{"Date", FIELD_CONTROL},
	{"Vary", FIELD_CONTROL},
	{"Range", FIELD_CONTROL},
	{"Cookie", FIELD_CONTROL},
	{"Pragma", FIELD_CONTROL},
	{"Expires", FIELD_CONTROL},
	{"Warning", FIELD_CONTROL},
	{"If-Match", FIELD_CONTROL},
	{"If-Range", FIELD_CONTROL},
	{"Location", FIELD_CONTROL},
	{"Forwarded", FIELD_CONTROL},
	{"Destination", FIELD_CONTROL},
	{"X-Rewrite-URI", FIELD_CONTROL},
	{"X-Original-Path", FIELD_CONTROL},
	{"X-Forwarded-Uri", FIELD_CONTROL},
	{"X-Forwarded-Prefix", FIELD_CONTROL},
	{"X-Script-Name", FIELD_CONTROL},
	{"Script-Name", FIELD_CONTROL},
	{"X-Forwarded-Path", FIELD_CONTROL},
	{"X-Original-Method", FIELD_CONTROL},
	{"X-Forwarded-Method", FIELD_CONTROL},
	{"Set-Cookie", FIELD_CONTROL},
	{"Retry-After", FIELD_CONTROL},
	{"Content-Type", FIELD_CONTROL},
	{"Max-Forwards", FIELD_CONTROL},
	{"Authorization", FIELD_CONTROL},
	{"Cache-Control", FIELD_CONTROL},
	{"Content-Range", FIELD_CONTROL},
	{"If-None-Match", FIELD_CONTROL},
	{"X-HTTP-Method", FIELD_CONTROL},
	{"Content-Encoding", FIELD_CONTROL},
	{"Content-Location", FIELD_CONTROL},
	{"WWW-Authenticate", FIELD_CONTROL},
	{"If-Modified-Since", FIELD_CONTROL},
	{"X-Method-Override", FIELD_CONTROL},
	{"If-Unmodified-Since", FIELD_CONTROL},
	{"Authentication-Info", FIELD_CONTROL},
	{"X-HTTP-Method-Override", FIELD_CONTROL},
	{"", FIELD_PLAIN},
	{"X", FIELD_PLAIN},
	{"Proxy-", FIELD_PLAIN},
	{"Prox", FIELD_PLAIN},
	{"X-Proxy-Status", FIELD_PLAIN},
	{"Hosts", FIELD_PLAIN},
	{"Content_Length", FIELD_PLAIN},
	{"Content-Length-", FIELD_PLAIN},
	{"Transfer-Encodings", FIELD_PLAIN},
	{"User-Agent", FIELD_PLAIN},
	{"Accept-Encoding", FIELD_PLAIN},
	{"Content-Digest", FIELD_PLAIN},
	{"grpc-status", FIELD_PLAIN},
	{"Server-Timing", FIELD_PLAIN},
	{"x-forwarded-host", FIELD_CONTROL},
	{"x-forwarded-server", FIELD_CONTROL},
	{"x-host", FIELD_CONTROL},
	{"x-host-override", FIELD_CONTROL},
	{"x-http-destinationurl", FIELD_CONTROL},
	{"x-http-host", FIELD_CONTROL},
	{"x-http-host-override", FIELD_CONTROL},
	{"x-original-forwarded-host", FIELD_CONTROL},
	{"x-original-host", FIELD_CONTROL},
	{"x-original-uri", FIELD_CONTROL},
	{"x-original-url", FIELD_CONTROL},
	{"x-override-url", FIELD_CONTROL},
	{"x-real-host", FIELD_CONTROL},
	{"x-rewrite-url", FIELD_CONTROL},
};

static void test_kinds(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		char upper[64];
		size_t n = strlen(kinds[i].name);

		for (size_t at = 0; at < n; at++) {
			char c = kinds[i].name[at];

			upper[at] = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
		}
		if (field_kind(str_from_c(kinds[i].name)) != kinds[i].kind ||
		    field_kind(str_from(upper, n)) != kinds[i].kind)
			fail_msg("%s is of another kind", kinds[i].name);
		assert_int_equal(field_may_trail(str_from_c(kinds[i].name)),
				 field_kind_folded(str_from_c(kinds[i].name)) == FIELD_PLAIN);
	}
	assert_int_equal(field_kind_folded(STR("CONTENT_length")), FIELD_CONTENT_LENGTH);
	assert_int_equal(field_kind_folded(STR("x_http-method_override")), FIELD_CONTROL);
	assert_int_equal(field_kind_folded(STR("proxy_and-a-name-that-is-long")), FIELD_HOP);
	assert_int_equal(field_kind_folded(STR("X_Y")), FIELD_PLAIN);
	assert_true(field_is_framing(FIELD_HOST));
	assert_true(field_is_framing(FIELD_CONTENT_LENGTH));
	assert_false(field_is_framing(FIELD_PLAIN));
	assert_false(field_is_framing(FIELD_CONTROL));
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* By the list above, a byte after the other. */
static enum field_kind kind_plainly(struct str name)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		size_t at = 0;

		if (strlen(kinds[i].name) != name.n)
			continue;
		while (at < name.n && lower(name.p[at]) == lower(kinds[i].name[at]))
			at++;
		if (at == name.n)
			return kinds[i].kind;
	}
	return name.n > 6 && strncasecmp(name.p, "proxy-", 6) == 0 ? FIELD_HOP : FIELD_PLAIN;
}

/* With any byte in the place of each, and in memory that ends with the name. */
static void test_kinds_but_one_byte(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		size_t n = strlen(kinds[i].name);
		char *name = malloc(n ? n : 1);

		assert_non_null(name);
		memcpy(name, kinds[i].name, n);
		for (size_t at = 0; at < n; at++) {
			char was = name[at];

			for (unsigned c = 0; c < 256; c++) {
				struct str s = str_from(name, n);
				enum field_kind kind;

				name[at] = (char)c;
				kind = field_kind(s);
				assert_int_equal(kind, kind_plainly(s));
				assert_true(field_may_be_framing(s) || !field_is_framing(kind));
			}
			name[at] = was;
		}
		free(name);
	}
}

/* Heads of usual size get memory that was used before; more fields than have room there move. */
static void test_memory(void **state)
{
	struct request r;
	char *bytes, *first;

	(void)state;
	for (size_t size = 0; size < 8192; size += 1000) {
		for (int round = 0; round < 2; round++) {
			request_init(&r);
			r.spare = true;
			r.mem = message_new_mem(size, &r.fields, &bytes, &r.spare);
			assert_non_null(r.mem);
			memset(bytes, 'x', size);
			if (round == 1 && r.spare)
				assert_ptr_equal(r.mem, first);
			first = r.mem;
			for (size_t i = 0; i < LIMIT_HEAD_FIELDS; i++)
				assert_int_equal(fields_add(&r.fields, STR("n"),
							    str_head(STR("0123456789"), i % 10)),
						 0);
			assert_int_equal(fields_add(&r.fields, STR("n"), STR("v")), -1);
			for (size_t i = 0; i < LIMIT_HEAD_FIELDS; i++)
				assert_int_equal(r.fields.v[i].value.n, i % 10);
			request_clear(&r);
			assert_null(r.mem);
		}
	}
	/* One that stays is no larger than it must be. */
	request_init(&r);
	r.mem = message_new_mem(10, &r.fields, &bytes, &r.spare);
	assert_non_null(r.mem);
	assert_ptr_equal(r.mem, bytes);
	assert_false(r.spare);
	for (size_t i = 0; i < LIMIT_HEAD_FIELDS; i++)
		assert_int_equal(fields_add(&r.fields, STR("n"), STR("v")), 0);
	assert_int_equal(fields_add(&r.fields, STR("n"), STR("v")), -1);
	request_clear(&r);
	message_free_spares();
	message_free_spares();
}

static void test_methods(void **state)
{
	static const struct {
		const char *method;
		bool safe, idempotent;
	} rows[] = {
		{"GET", true, true},	{"HEAD", true, true},	    {"OPTIONS", true, true},
		{"TRACE", true, true},	{"PUT", false, true},	    {"DELETE", false, true},
		{"POST", false, false}, {"PATCH", false, false},    {"CONNECT", false, false},
		{"get", false, false},	{"GETX", false, false},	    {"GE", false, false},
		{"", false, false},	{"PROPFIND", false, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(method_is_safe(str_from_c(rows[i].method)), rows[i].safe);
		assert_int_equal(method_is_idempotent(str_from_c(rows[i].method)),
				 rows[i].idempotent);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),	cmocka_unit_test(test_fields_are_bounded),
		cmocka_unit_test(test_kinds),	cmocka_unit_test(test_clear_accepts_null),
		cmocka_unit_test(test_methods), cmocka_unit_test(test_kinds_but_one_byte),
		cmocka_unit_test(test_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
