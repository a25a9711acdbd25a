/*
 * Placeholders: what they look like, the search, streams in every split, and heads. What a whole
 * stile makes of them is in tests/integration/test_placeholder.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "logging/limits.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/swap.h"
#include "proxy/credentials/ws_swap.h"

/* ---- shapes ---- */

static bool matches(char c, char kind)
{
	switch (kind) {
	case 'd': return c >= '0' && c <= '9';
	case 'h': return matches(c, 'd') || (c >= 'a' && c <= 'f');
	case 'H': return matches(c, 'd') || (c >= 'A' && c <= 'F');
	case 'l': return c >= 'a' && c <= 'z';
	case 'b': return matches(c, 'd') || matches(c, 'l');
	case 'a': return matches(c, 'b') || (c >= 'A' && c <= 'Z');
	case 'u': return matches(c, 'a') || c == '-' || c == '_';
	default: return false;
	}
}

/* want: a prefix, and behind a blank a letter of matches() for each character, others as they are.
 */
static void check_shape(const struct config_placeholder *how, const char *value, const char *want)
{
	size_t prefix = strcspn(want, " ");
	struct err e = ERR_INIT;
	struct strbuf b;

	strbuf_init(&b, LIMIT_PLACEHOLDER_BYTES);
	assert_int_equal(placeholder_shape(how, str_from_c(value), &b, &e), 0);
	if (b.len != strlen(want) - 1)
		print_message("%s: %s\n", value, strbuf_cstr(&b));
	assert_int_equal(b.len, strlen(want) - 1);
	assert_memory_equal(b.data, want, prefix);
	for (size_t i = prefix; i < b.len; i++) {
		char kind = want[i + 1];

		if (strchr("dhHlbau", kind))
			assert_true(matches(b.data[i], kind));
		else
			assert_int_equal(b.data[i], kind);
	}
	strbuf_clear(&b);
}

static void test_shapes(void **state)
{
	static char prefix[] = "corp_";
	const struct config_placeholder none = {0}, given = {.prefix = prefix, .length = 30},
					length = {.length = 24};

	(void)state;
	check_shape(&none, "ghp_Abc0Abc0Abc0Abc0Abc0Abc0Abc0Abc0Abc0",
		    "ghp_ aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
	check_shape(&none, "github_pat_Ab0_Ab0-Ab0Ab0Ab0Ab0Ab0",
		    "github_pat_ uuuuuuuuuuuuuuuuuuuuuuu");
	check_shape(&none, "xoxb-123456789012-abc0abc0abc0", "xoxb- dddddddddddd-bbbbbbbbbbbb");
	check_shape(&none, "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f",
		    " hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh");
	check_shape(&none, "0A1B2C3D0A1B2C3D0A1B2C3D", " HHHHHHHHHHHHHHHHHHHHHHHH");
	check_shape(&none, "12345678:AbcAbcAbcAbcAbcAbc0", " dddddddd:aaaaaaaaaaaaaaaaaaa");
	check_shape(&none, "eyJhbGciOi0.eyJzdWIiOi0.AbcAbc0-_0AbcAbc",
		    "eyJ aaaaaaaa.aaaaaaaaaaa.uuuuuuuuuuuuuuuu");
	/* Bytes that a URL or a header would escape are in no placeholder. */
	check_shape(&none, "Ab0+/Ab0+/Ab0+/Ab0+/Ab==", " aaaaaaaaaaaaaaaaaaaaaaaa");
	/* A short one, and one of few characters, needs a longer one in its place. */
	check_shape(&none, "hunter2", " bbbbbbbbbbbbbbbbbbbb");
	check_shape(&none, "1234", " ddddddddddddddddddddddddddd");
	check_shape(&none, "", " aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
	check_shape(&given, "", "corp_ aaaaaaaaaaaaaaaaaaaaaaaaa");
	check_shape(&given, "corp_abc", "corp_ lllllllllllllllllllllllll");
	check_shape(&length, "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
		    " hhhhhhhhhhhhhhhhhhhhhhhh");
}

/* Two of the same are never the same, and what they have of the value is what is public. */
static void test_nothing_of_the_value(void **state)
{
	const struct config_placeholder how = {0};
	struct str value = STR("sk-ant-api03-Q7zR2mX9tK4vN8pL1cB6wY3dF5gH0jS");
	char last[LIMIT_PLACEHOLDER_BYTES + 1] = "";

	(void)state;
	for (int i = 0; i < 200; i++) {
		struct strbuf b;

		strbuf_init(&b, LIMIT_PLACEHOLDER_BYTES);
		assert_int_equal(placeholder_shape(&how, value, &b, NULL), 0);
		assert_int_equal(b.len, value.n);
		assert_string_not_equal(b.data, last);
		memcpy(last, b.data, b.len + 1);
		for (size_t at = 13; at + 5 <= value.n; at++)
			assert_null(memmem(b.data + 13, b.len - 13, value.p + at, 5));
		strbuf_clear(&b);
	}
}

static void test_a_long_value(void **state)
{
	const struct config_placeholder how = {0};
	static char value[4000];
	struct strbuf b;

	(void)state;
	memset(value, 'q', sizeof(value));
	strbuf_init(&b, LIMIT_PLACEHOLDER_BYTES);
	assert_int_equal(placeholder_shape(&how, str_from(value, sizeof(value)), &b, NULL), 0);
	assert_int_equal(b.len, LIMIT_PLACEHOLDER_BYTES);
	strbuf_clear(&b);
}

/* ---- the search ---- */

static void test_needles(void **state)
{
	const struct str v[] = {STR("abcabcabd"), STR("bcabcabc"), STR("zzzzzzzzzzzz")};
	struct needles *s = needles_new(v, 3);
	char text[64];
	size_t which = 9;

	(void)state;
	assert_non_null(s);
	/* Each at each place, between what looks like the beginning of another one. */
	for (size_t i = 0; i < 3; i++)
		for (size_t at = 0; at + v[i].n <= sizeof(text); at++) {
			memset(text, i == 2 ? 'a' : 'z', sizeof(text));
			if (i < 2)
				for (size_t k = 11; k < sizeof(text); k += 12)
					text[k] = 'b';
			memcpy(text + at, v[i].p, v[i].n);
			assert_int_equal(needles_find(s, str_from(text, sizeof(text)), &which), at);
			assert_int_equal(which, i);
			assert_int_equal(needles_find(s, str_from(text, at + v[i].n - 1), &which),
					 -1);
		}
	assert_int_equal(needles_find(s, STR_NONE, &which), -1);
	assert_int_equal(needles_tail(s, STR("xxabcabcab")), 8);
	assert_int_equal(needles_tail(s, STR("xxabcabcx")), 0);
	assert_int_equal(needles_tail(s, STR("zzzzzzzzzzzzz")), 11);
	assert_int_equal(needles_longest(s), 12);
	needles_free(s);
	assert_null(needles_new(v, 0));
	assert_null(needles_new((const struct str[]){STR("short")}, 1));
}

/* ---- streams ---- */

#define FAKE  "ghp_0123456789abcdefghij"
#define REAL  "ghp_REALREALREALREALREAL"
#define OTHER "xoxb-9876543210zyxwvutsrq"

static struct needles *two(void)
{
	const struct str v[] = {STR(FAKE), STR(OTHER)};
	struct needles *s = needles_new(v, 2);

	assert_non_null(s);
	return s;
}

static struct secret *secret_of(const char *text)
{
	struct secret *s = secret_copy(str_from_c(text));

	assert_non_null(s);
	return s;
}

static void sink(void *arg, struct str data)
{
	strbuf_add(arg, data);
}

/* In pieces of `size`. What came out is in out. */
static int feed(struct body_swap *b, struct str in, size_t size, struct strbuf *out, struct err *e)
{
	strbuf_init(out, 1 << 20);
	while (in.n > 0) {
		struct str now = str_head(in, size);

		if (body_swap_feed(b, now, sink, out, e) < 0)
			return -1;
		in = str_skip(in, now.n);
	}
	body_swap_end(b, sink, out);
	return 0;
}

static void check_body(const char *in, const char *want, enum reason reason, const char *value,
		       uint64_t bound)
{
	struct needles *n = two();

	for (size_t size = 1; size <= strlen(in) + 1; size++) {
		struct err e = ERR_INIT;
		struct body_swap b;
		struct strbuf out;
		int rc;

		body_swap_init(&b, n);
		if (value)
			body_swap_give(&b, "c", 0, secret_of(value), bound);
		rc = feed(&b, str_from_c(in), size, &out, &e);
		assert_int_equal(rc, reason == REASON_NONE ? 0 : -1);
		assert_int_equal(e.reason, reason);
		if (rc == 0)
			assert_string_equal(strbuf_cstr(&out), want);
		/* Not even most of it, nor the value of another length. */
		if (rc < 0 && value)
			assert_true(strlen(want) >= out.len &&
				    memcmp(want, strbuf_cstr(&out), out.len) == 0);
		if (rc < 0)
			assert_null(strstr(strbuf_cstr(&out), OTHER));
		strbuf_clear(&out);
		body_swap_clear(&b);
	}
	needles_free(n);
}

static void test_bodies(void **state)
{
	(void)state;
	check_body(FAKE, REAL, REASON_NONE, REAL, 1000);
	check_body("a" FAKE FAKE "g" FAKE "ghp_0123ghp_", "a" REAL REAL "g" REAL "ghp_0123ghp_",
		   REASON_NONE, REAL, 1000);
	check_body("ghp_012345678ghp_ghp_0123456789abcdefghi",
		   "ghp_012345678ghp_ghp_0123456789abcdefghi", REASON_NONE, REAL, 1000);
	check_body("a" FAKE "b" OTHER "c", "a" REAL "b", REASON_PLACEHOLDER_MISUSED, REAL, 1000);
	check_body("a" FAKE "b", "a", REASON_CREDENTIAL_UNAVAILABLE, REAL "x", 1000);
	check_body("a" FAKE "b", "a", REASON_CREDENTIAL_UNAVAILABLE, "ghp_REALREALREALREAL\"EAL",
		   1000);
	check_body("abc" FAKE, "abc" REAL, REASON_NONE, REAL, 27);
	check_body("abc" FAKE, "abc", REASON_PLACEHOLDER_MISUSED, REAL, 26);
	check_body("a" FAKE "b", "", REASON_PLACEHOLDER_MISUSED, NULL, 0);
	check_body("ghp_0123456789abcdefghiX", "ghp_0123456789abcdefghiX", REASON_NONE, NULL, 0);
}

/* Where nothing is swapped no byte waits, as the client may wait for an answer to it. */
static void test_a_search_holds_nothing_back(void **state)
{
	struct needles *n = two();
	struct body_swap b;
	struct strbuf out;

	(void)state;
	body_swap_init(&b, n);
	strbuf_init(&out, 1000);
	assert_int_equal(body_swap_feed(&b, STR("hello ghp_0123"), sink, &out, NULL), 0);
	assert_string_equal(strbuf_cstr(&out), "hello ghp_0123");
	assert_int_equal(body_swap_feed(&b, STR("456789abcdefghij"), sink, &out, NULL), -1);
	assert_string_equal(strbuf_cstr(&out), "hello ghp_0123");
	strbuf_clear(&out);
	needles_free(n);
}

static void add_frame(struct strbuf *b, unsigned first, const char *text, bool masked)
{
	static const char mask[] = "\x11\x92\x33\x84";
	size_t n = strlen(text);

	strbuf_addc(b, (char)first);
	strbuf_addc(b, (char)((masked ? 0x80 : 0) | (n < 126 ? n : 126)));
	if (n >= 126) {
		strbuf_addc(b, (char)(n >> 8));
		strbuf_addc(b, (char)(n & 255));
	}
	if (masked)
		strbuf_add(b, str_from(mask, 4));
	for (size_t i = 0; i < n; i++)
		strbuf_addc(b, (char)(text[i] ^ (masked ? mask[i % 4] : 0)));
}

#define TEXT   0x81
#define BINARY 0x82
#define PING   0x89

static void add_frames(struct strbuf *b, const char *key)
{
	char text[400];

	strbuf_init(b, 10000);
	snprintf(text, sizeof(text), "%s-%s%s", key, key, "ghp_01234");
	add_frame(b, TEXT, text, true);
	add_frame(b, PING, FAKE, true);
	add_frame(b, BINARY, FAKE, true);
	add_frame(b, 0x01, "begun", true);
	add_frame(b, PING, FAKE, true);
	add_frame(b, 0x80, key, true);
	add_frame(b, TEXT, key, false);
	add_frame(b, 0x02, "begun", true);
	add_frame(b, 0x80, FAKE, true);
	add_frame(b, TEXT | 0x40, FAKE, true);
	snprintf(text, sizeof(text), "%0200d%s", 0, key);
	add_frame(b, TEXT, text, true);
	add_frame(b, TEXT, "", true);
	add_frame(b, 0x88, "ab", true);
}

static void test_frames(void **state)
{
	struct needles *n = two();
	struct strbuf in, want;

	(void)state;
	add_frames(&in, FAKE);
	add_frames(&want, REAL);
	for (size_t size = 1; size < 80; size++) {
		struct str rest = strbuf_str(&in);
		struct ws_swap w;
		struct strbuf out;

		ws_swap_init(&w, n);
		body_swap_give(&w.text, "c", 0, secret_of(REAL), 1000);
		strbuf_init(&out, 10000);
		while (rest.n > 0) {
			struct str now = str_head(rest, size);

			assert_int_equal(ws_swap_feed(&w, now, sink, &out, NULL), 0);
			rest = str_skip(rest, now.n);
		}
		ws_swap_end(&w, sink, &out);
		assert_int_equal(out.len, want.len);
		assert_memory_equal(out.data, want.data, want.len);
		strbuf_clear(&out);
		ws_swap_clear(&w);
	}
	strbuf_clear(&in);
	strbuf_clear(&want);
	needles_free(n);
}

/* The bound is of a message, over all of its frames. */
static void test_a_message_has_a_bound(void **state)
{
	struct needles *n = two();

	(void)state;
	for (unsigned bound = 40; bound < 60; bound++) {
		struct err e = ERR_INIT;
		struct strbuf in, out;
		struct ws_swap w;

		strbuf_init(&in, 1000);
		strbuf_init(&out, 1000);
		add_frame(&in, TEXT, "another message", true);
		add_frame(&in, 0x01, "0123456789012345678901", true); /* 22 */
		add_frame(&in, 0x80, "abcd" FAKE, true);	      /* 26 + 24 */
		ws_swap_init(&w, n);
		body_swap_give(&w.text, "c", 0, secret_of(REAL), bound);
		assert_int_equal(ws_swap_feed(&w, strbuf_str(&in), sink, &out, &e),
				 bound < 50 ? -1 : 0);
		assert_int_equal(e.reason, bound < 50 ? REASON_PLACEHOLDER_MISUSED : REASON_NONE);
		ws_swap_clear(&w);
		strbuf_clear(&in);
		strbuf_clear(&out);
	}
	needles_free(n);
}

/* ---- the table ---- */

static struct config *load(const char *text)
{
	struct config *c = NULL;
	struct faults f;

	faults_init(&f, "stile.yaml");
	assert_int_equal(config_load_text("stile.yaml", str_from_c(text), &c, &f), 0);
	faults_clear(&f);
	return c;
}

/* The same after a reload, also when the credential was gone for a while, and then still known. */
static void test_the_same_across_configurations(void **state)
{
	static const char with[] = "version: 1\ncredentials:\n  k: {from: {env: NOT_THERE}, as: "
				   "{placeholder: {env: A}}}\n"
				   "policies: {p: {rules: [{allow: a.test, credential: k}]}}\n";
	static const char without[] = "version: 1\npolicies: {p: {rules: [{allow: a.test}]}}\n";
	struct config *a = load(with), *b = load(without);
	struct placeholders *p = NULL, *q = NULL, *r = NULL;
	size_t i, k;

	(void)state;
	assert_int_equal(placeholders_new(a, &p, NULL), 0);
	assert_int_equal(placeholders_new(b, &q, NULL), 0);
	assert_int_equal(placeholders_new(a, &r, NULL), 0);
	assert_non_null(q);
	assert_true(placeholders_find(p, STR_NONE, "k", &i));
	assert_true(placeholders_find(r, STR_NONE, "k", &k));
	assert_false(placeholders_find(r, STR_NONE, "other", &k));
	assert_string_equal(needles_text(placeholders_needles(p), i).p,
			    needles_text(placeholders_needles(r), k).p);
	assert_int_equal(needles_find(placeholders_needles(q),
				      needles_text(placeholders_needles(p), i), &k),
			 0);
	assert_string_equal(placeholders_name(q, k), "k");
	placeholders_free(p);
	placeholders_free(q);
	placeholders_free(r);
	config_unref(a);
	config_unref(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_nothing_of_the_value),
		cmocka_unit_test(test_a_long_value),
		cmocka_unit_test(test_needles),
		cmocka_unit_test(test_bodies),
		cmocka_unit_test(test_a_search_holds_nothing_back),
		cmocka_unit_test(test_frames),
		cmocka_unit_test(test_a_message_has_a_bound),
		cmocka_unit_test(test_the_same_across_configurations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
