/*
 * The record's line beside a reference that goes one piece after the other; and the parts that make
 * it fast beside plain ones: the pen over all lengths, alignments and bytes, and numbers. Each text
 * ends where its allocation ends, so that a sanitizer sees a look beyond it.
 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "logging/pen.h"
#include "record_reference.h"

static struct strbuf got, want;

static int set_up(void **state)
{
	(void)state;
	strbuf_init(&got, 1 << 20);
	strbuf_init(&want, 1 << 20);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	strbuf_clear(&got);
	strbuf_clear(&want);
	return 0;
}

static unsigned picked = 1;

static unsigned pick(unsigned below)
{
	picked = picked * 1664525 + 1013904223;
	return (picked >> 8) % below;
}

/* ---- the pen ---- */

static bool is_plain_byte(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void check_pen(const char *text, size_t n, size_t in_at, size_t out_at, bool is_plain)
{
	char *in = malloc(in_at + n + 1), *out = malloc(out_at + n + 2), *exact;
	bytes16 odd = {0};
	struct pen w = {out + out_at + 1, &odd};

	assert_non_null(in);
	assert_non_null(out);
	/* The text begins at any alignment and ends with its memory. */
	exact = realloc(in, in_at + n ? in_at + n : 1);
	assert_non_null(exact);
	memcpy(exact + in_at, text, n);
	memset(out, '~', out_at + n + 2);
	pen_text(&w, str_from(exact + in_at, n));
	assert_ptr_equal(w.at, out + out_at + 1 + n);
	assert_memory_equal(out + out_at + 1, text, n);
	for (size_t i = 0; i <= out_at; i++)
		assert_int_equal(out[i], '~');
	assert_int_equal(out[out_at + 1 + n], '~');
	assert_int_equal(plain_any(odd), !is_plain);
	assert_int_equal(plain_is(str_from(exact + in_at, n)), is_plain);
	free(exact);
	free(out);
}

static void test_pen(void **state)
{
	char text[80];

	(void)state;
	for (size_t n = 0; n <= sizeof(text); n++) {
		for (size_t i = 0; i < n; i++)
			text[i] = (char)(' ' + 1 + i);
		for (size_t i = 0; i < n; i++)
			if (!is_plain_byte((unsigned char)text[i]))
				text[i] = 'x';
		for (size_t at = 0; at < 16; at++) {
			check_pen(text, n, at, 0, true);
			check_pen(text, n, 0, at, true);
		}
		/* One byte at each place, of the first ones of each kind and the last. */
		for (size_t i = 0; i < n; i++) {
			static const unsigned char bytes[] = {0x00, 0x01, 0x1f, 0x20, 0x21, 0x22,
							      0x23, 0x5b, 0x5c, 0x5d, 0x7e, 0x7f,
							      0x80, 0x81, 0xa2, 0xdc, 0xfe, 0xff};
			char kept = text[i];

			for (size_t k = 0; k < sizeof(bytes); k++) {
				text[i] = (char)bytes[k];
				check_pen(text, n, i % 16, k % 16, is_plain_byte(bytes[k]));
			}
			text[i] = kept;
		}
	}
	for (unsigned c = 0; c < 256; c++) {
		char one = (char)c;

		check_pen(&one, 1, 0, 0, is_plain_byte((unsigned char)c));
	}
}

/* ---- numbers ---- */

static void check_number(uint64_t n)
{
	char text[32], out[DIGITS_MAX + 2];
	int len = snprintf(text, sizeof(text), "%llu", (unsigned long long)n);

	memset(out, '~', sizeof(out));
	assert_int_equal(digits_put(out, n), len);
	assert_memory_equal(out, text, (size_t)len);
	assert_int_equal(out[len], '~');
	strbuf_reset(&got);
	strbuf_addu(&got, n);
	assert_string_equal(strbuf_cstr(&got), text);
}

static void test_numbers(void **state)
{
	uint64_t power = 1;
	struct strbuf tight;
	char mem[6];

	(void)state;
	for (uint64_t n = 0; n < 20000; n++)
		check_number(n);
	for (int i = 0; i < 20; i++, power *= 10)
		for (uint64_t k = 0; k < 3; k++)
			check_number(power + k - 1);
	for (int i = 0; i < 64; i++)
		for (uint64_t k = 0; k < 3; k++)
			check_number((UINT64_C(1) << i) + k - 1);
	for (int i = 0; i < 20000; i++)
		check_number((uint64_t)pick(1U << 24) << 40 ^ (uint64_t)pick(1U << 24) << 20 ^
			     pick(1U << 24));
	check_number(UINT64_MAX);
	/* Where there is just the room that it takes, and one less. */
	strbuf_init_fixed(&tight, mem, sizeof(mem));
	strbuf_addu(&tight, 12345);
	assert_string_equal(mem, "12345");
	assert_false(tight.overflowed);
	strbuf_addu(&tight, 6);
	assert_true(tight.overflowed);
}

/* ---- the line ---- */

static void *texts[64];
static size_t texts_n;

static struct str some_text(void)
{
	static const char plain[] = "abcXYZ019-._~/&=%?#:;{}[] key=token=";
	static const char odd[] = "\"\\\x01\x1f\x7f\x80\xc3\xff\n";
	unsigned kind = pick(100);
	size_t n = kind < 30 ? 0 : kind < 90 ? pick(40) : kind < 99 ? pick(300) : pick(6000);
	bool is_odd = pick(60) == 0;
	char *p;

	if (n == 0)
		return STR_NONE;
	p = malloc(n);
	assert_non_null(p);
	texts[texts_n++] = p;
	for (size_t i = 0; i < n; i++)
		p[i] = plain[pick(sizeof(plain) - 1)];
	for (size_t i = pick(30); is_odd && i < n; i += 1 + pick(30))
		p[i] = odd[pick(sizeof(odd))];
	return str_from(p, n);
}

static int64_t some_us(void)
{
	static const int64_t edges[] = {-1,    0,	1,	   9,	      10,	99,
					100,   500,	999,	   1000,      1001,	99990,
					99999, 1234567, 123456789, 987654321, INT64_MAX};

	return edges[pick(ARRAY_LEN(edges))];
}

static struct record some_record(void)
{
	struct record r = {
		.time = {pick(1U << 24) * 100, (long)pick(1000000) * 1000 + pick(1000)},
		.event = (enum record_event)pick(RECORD_EVENTS),
		.port = (uint16_t)(pick(2) ? pick(65536) : 0),
		.has_path = pick(2),
		.has_query = pick(2),
		.has_decision = pick(2),
		.allow = pick(2),
		.reason = pick(3) ? REASON_NONE : (enum reason)pick(REASON_COUNT),
		.credential_stripped = pick(4) == 0,
		.status = pick(2) ? pick(1000) : 0,
		.has_bytes = pick(2),
		.bytes_out = pick(1U << 24),
		.bytes_in = (uint64_t)pick(1U << 24) << pick(40),
		.redacted = pick(4) ? 0 : pick(200),
		.has_ms = pick(2),
		.ms = {some_us(), some_us(), some_us(), some_us(), some_us()},
		.ech = pick(4) == 0,
	};
	struct str *all[] = {
		&r.id,
		&r.sandbox,
		&r.client,
		&r.listener,
		&r.method,
		&r.scheme,
		&r.host,
		&r.path,
		&r.query,
		&r.http,
		&r.rule,
		&r.rule_at,
		&r.policy,
		&r.policy_version,
		&r.credential,
		&r.upstream,
		&r.via,
		&r.tls_sni,
		&r.tls_version,
		&r.tls_alpn,
		&r.error,
		&r.error_detail,
		&r.upstream_tls_version,
		&r.upstream_tls_alpn,
	};

	r.time.tv_sec++;
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		*all[i] = some_text();
	return r;
}

static void forget_texts(void)
{
	while (texts_n > 0)
		free(texts[--texts_n]);
}

static void check_line(const struct record *r)
{
	strbuf_reset(&got);
	assert_int_equal(record_format(r, &got), 0);
	if (strcmp(strbuf_cstr(&got), strbuf_cstr(&want)) != 0)
		fail_msg("got  %s\nwant %s", strbuf_cstr(&got), strbuf_cstr(&want));
	assert_int_equal(got.len, want.len);
}

/* What follows a start that kept what it said: the same line as without it. */
static void check_end(const struct record *start, const struct record_same *same)
{
	struct record end = *start, brief = some_record();

	end.event = brief.event = RECORD_REQUEST_END;
	end.status = brief.status;
	end.has_bytes = brief.has_bytes;
	end.bytes_out = brief.bytes_out;
	end.bytes_in = brief.bytes_in;
	end.redacted = brief.redacted;
	end.has_ms = brief.has_ms;
	end.ms = brief.ms;
	end.time = brief.time;
	end.tls_sni = brief.tls_sni;
	end.tls_version = brief.tls_version;
	end.tls_alpn = brief.tls_alpn;
	end.upstream_tls_version = brief.upstream_tls_version;
	end.upstream_tls_alpn = brief.upstream_tls_alpn;
	end.ech = brief.ech;
	end.error = brief.error;
	end.error_detail = brief.error_detail;
	brief.same = same;
	brief.same_upstream = pick(2);
	if (!brief.same_upstream) {
		end.upstream = brief.upstream;
		end.via = brief.via;
	}
	record_reference(&end, &want);
	/* Of a line that must be cut only what it says itself is. */
	if (want.len > LIMIT_RECORD_BYTES - 200 || strstr(strbuf_cstr(&want), JSON_CUT_MARK))
		return;
	check_line(&brief);
}

/* What is kept of a rule stands in the line as it would without. */
static void check_rule(struct record r)
{
	char text[LIMIT_RECORD_RULE];
	size_t n = record_format_rule(&r, text);

	if (n == 0)
		return;
	r.rule_members = str_from(text, n);
	r.rule = r.rule_at = r.policy = r.policy_version = STR("not looked at");
	/* Of a line that must be cut what was kept is not. */
	if (!strstr(strbuf_cstr(&want), JSON_CUT_MARK))
		check_line(&r);
}

static void test_beside_reference(void **state)
{
	size_t kept = 0, not_kept = 0;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct record r = some_record();
		struct record_same same;

		record_reference(&r, &want);
		check_line(&r);
		check_rule(r);
		r.keep = &same;
		check_line(&r);
		if (same.n > 0) {
			kept++;
			assert_true(same.n + same.upstream_n <= sizeof(same.text));
			r.keep = NULL;
			check_end(&r, &same);
		} else {
			not_kept++;
		}
		forget_texts();
	}
	assert_true(kept > 1000 && not_kept > 1000);
}

/* As long as it may be on the quick way, with the longest of everything: in memory that is just
 * what is asked for. */
static void test_quick_bound(void **state)
{
	static char text[LIMIT_RECORD_QUICK + 1];
	struct record r = {
		.time = {253402300799, 999999999},
		.port = 65535,
		.has_decision = true,
		.allow = true,
		.credential_stripped = true,
		.status = UINT32_MAX,
		.has_bytes = true,
		.bytes_out = UINT64_MAX,
		.bytes_in = UINT64_MAX,
		.redacted = UINT64_MAX,
		.has_ms = true,
		.ms = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX},
		.ech = true,
	};
	struct str *all[] = {
		&r.id,
		&r.sandbox,
		&r.client,
		&r.listener,
		&r.method,
		&r.scheme,
		&r.host,
		&r.query,
		&r.http,
		&r.rule,
		&r.policy,
		&r.rule_at,
		&r.policy_version,
		&r.credential,
		&r.upstream,
		&r.via,
		&r.tls_sni,
		&r.tls_version,
		&r.tls_alpn,
		&r.error,
		&r.path,
		&r.error_detail,
		&r.upstream_tls_version,
		&r.upstream_tls_alpn,
	};

	(void)state;
	memset(text, 't', sizeof(text));
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		*all[i] = str_from(text, 1);
	for (int e = 0; e < RECORD_EVENTS; e++) {
		for (int why = 0; why < REASON_COUNT; why++) {
			for (size_t more = 0; more < 2; more++) {
				size_t room = LIMIT_RECORD_FRAME + LIMIT_RECORD_QUICK;
				char *mem = malloc(room + 1);
				struct strbuf exact;

				assert_non_null(mem);
				r.event = (enum record_event)e;
				r.reason = (enum reason)why;
				r.path.n = LIMIT_RECORD_QUICK - ARRAY_LEN(all) + 1 + more;
				strbuf_init_fixed(&exact, mem, room + 1);
				assert_int_equal(record_format(&r, &exact), 0);
				record_reference(&r, &want);
				assert_string_equal(mem, strbuf_cstr(&want));
				free(mem);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pen),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_beside_reference),
		cmocka_unit_test(test_quick_bound),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
