/*
 * The record's line, read back by jansson: key order, absence, cut, bound; ids; the time it takes.
 */
#include "out_fixture.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "logging/record.h"

static struct record full_record(void)
{
	return (struct record){
		.time = {1700000000, 123456789},
		.event = RECORD_REQUEST_END,
		.id = STR("01abc"),
		.sandbox = STR("sb"),
		.client = STR("10.0.0.1:5"),
		.listener = STR("proxy"),
		.method = STR("GET"),
		.scheme = STR("https"),
		.host = STR("a.test"),
		.port = 443,
		.path = STR("/x"),
		.query = STR("a=1&token=CANARY"),
		.http = STR("1.1"),
		.has_decision = true,
		.allow = true,
		.reason = REASON_UPSTREAM_CLOSED,
		.rule = STR("r"),
		.rule_at = STR("f:1"),
		.policy = STR("default"),
		.policy_version = STR("7"),
		.credential = STR("c"),
		.credential_stripped = true,
		.upstream = STR("1.2.3.4:443"),
		.via = STR("p.test:3128"),
		.status = 200,
		.has_bytes = true,
		.bytes_out = 0,
		.bytes_in = 99,
		.redacted = 2,
		.has_ms = true,
		.ms = {1234, 1500, 2000, 0, 1000001},
		.tls_sni = STR("a.test"),
		.tls_version = STR("1.3"),
		.tls_alpn = STR("h2"),
		.upstream_tls_version = STR("TLSv1.2"),
		.upstream_tls_alpn = STR("http/1.1"),
		.ech = true,
		.error = STR("upstream_closed"),
		.error_detail = STR("eof"),
	};
}

static void test_whole_line(void **state)
{
	struct record r = full_record();

	(void)state;
	strbuf_reset(&out);
	assert_int_equal(record_format(&r, &out), 0);
	assert_string_equal(
		strbuf_cstr(&out),
		"{\"time\":\"2023-11-14T22:13:20.123456Z\",\"event\":\"request.end\",\"id\":"
		"\"01abc\","
		"\"sandbox\":\"sb\",\"client\":\"10.0.0.1:5\",\"listener\":\"proxy\",\"method\":"
		"\"GET\","
		"\"scheme\":\"https\",\"host\":\"a.test\",\"port\":443,\"path\":\"/x\","
		"\"query\":\"a=1&token=[redacted]\",\"http\":\"1.1\",\"decision\":\"allow\","
		"\"reason\":\"upstream_closed\",\"rule\":\"r\",\"rule_at\":\"f:1\","
		"\"policy\":\"default\",\"policy_version\":\"7\",\"credential\":\"c\","
		"\"credential_stripped\":true,\"upstream\":\"1.2.3.4:443\","
		"\"via\":\"p.test:3128\",\"status\":200,"
		"\"bytes_out\":0,\"bytes_in\":99,\"redacted\":2,\"ms\":{\"dns\":1.234,\"connect\":"
		"1.5,\"tls\":2,"
		"\"first_byte\":0,\"total\":1000.001},\"tls\":{\"sni\":\"a.test\",\"version\":\"1."
		"3\","
		"\"alpn\":\"h2\",\"ech\":true,\"upstream_version\":\"TLSv1.2\","
		"\"upstream_alpn\":\"http/1.1\"},\"error\":\"upstream_closed\","
		"\"error_detail\":\"eof\"}\n");
}

/* The table of keys in logging/README.md has the keys of the full line, in the same order. */
static void test_readme_keys(void **state)
{
	struct record r = full_record();
	FILE *f = fopen("logging/README.md", "r");
	char line[512];
	const char *at;
	size_t keys = 0;

	(void)state;
	assert_non_null(f);
	strbuf_reset(&out);
	assert_int_equal(record_format(&r, &out), 0);
	at = out.data;
	while (fgets(line, sizeof(line), f)) {
		struct str row = str_from_c(line), cell;

		if (!str_starts(row, STR("| `")))
			continue;
		row = str_skip(row, 2);
		cell = str_split(&row, '|');
		while (cell.n) {
			char quoted[64];
			struct str key;

			str_split(&cell, '`');
			key = str_split(&cell, '`');
			snprintf(quoted, sizeof(quoted), "\"%.*s\":", STR_FMT(key));
			if (strcmp(quoted, "\"\":") == 0)
				break;
			at = strstr(at, quoted);
			if (!at)
				fail_msg("%s is not where the table has it", quoted);
			at += strlen(quoted);
			/* Past the members of an object, which the table gives in one row. */
			if (*at == '{')
				at = strchr(at, '}');
			keys++;
		}
	}
	fclose(f);
	assert_int_equal(keys, 31);
}

static void test_absent(void **state)
{
	struct record r = {.time = {1, 0}, .event = RECORD_PROXY_START};

	(void)state;
	strbuf_reset(&out);
	r.has_ms = true;
	r.ms = (struct record_ms){RECORD_MS_NONE, RECORD_MS_NONE, RECORD_MS_NONE, RECORD_MS_NONE,
				  RECORD_MS_NONE};
	assert_int_equal(record_format(&r, &out), 0);
	assert_string_equal(
		strbuf_cstr(&out),
		"{\"time\":\"1970-01-01T00:00:01.000000Z\",\"event\":\"proxy.start\"}\n");
	strbuf_reset(&out);
	r.ms.total_us = 10;
	r.has_path = r.has_query = true;
	r.has_decision = true;
	assert_int_equal(record_format(&r, &out), 0);
	assert_string_equal(
		strbuf_cstr(&out),
		"{\"time\":\"1970-01-01T00:00:01.000000Z\",\"event\":\"proxy.start\",\"path\":\"\","
		"\"query\":\"\",\"decision\":\"deny\",\"ms\":{\"total\":0.01}}\n");
}

static void check_time(struct timespec t, const char *want)
{
	struct record r = {.time = t, .event = RECORD_DNS_DENY};
	char got[64];

	strbuf_reset(&out);
	assert_int_equal(record_format(&r, &out), 0);
	snprintf(got, sizeof(got), "%.*s", 27, out.data + strlen("{\"time\":\""));
	assert_string_equal(got, want);
}

static void test_time(void **state)
{
	struct record r = {.event = RECORD_DNS_DENY};
	time_t before = time(NULL);
	struct tm tm;
	char day[32];

	(void)state;
	check_time((struct timespec){1700000000, 999999999}, "2023-11-14T22:13:20.999999Z");
	check_time((struct timespec){1700000000, 1000}, "2023-11-14T22:13:20.000001Z");
	check_time((struct timespec){1700000001, 0}, "2023-11-14T22:13:21.000000Z");
	check_time((struct timespec){1709164800, 0}, "2024-02-29T00:00:00.000000Z");
	check_time((struct timespec){253402300799, 0}, "9999-12-31T23:59:59.000000Z");
	check_time((struct timespec){253402300800, 0}, "1970-01-01T00:00:00.000000Z");
	check_time((struct timespec){-1, 0}, "1969-12-31T23:59:59.000000Z");
	/* Zero is now. */
	strbuf_reset(&out);
	record_format(&r, &out);
	gmtime_r(&before, &tm);
	strftime(day, sizeof(day), "{\"time\":\"%Y-%m-%dT%H", &tm);
	assert_int_equal(strncmp(out.data, day, strlen("{\"time\":\"2024-01-01")), 0);
}

/* Points every slice of r at s. */
static void fill_slices(struct record *r, struct str s)
{
	struct str *all[] = {
		&r->id,		  &r->sandbox, &r->client,	&r->listener,	    &r->method,
		&r->scheme,	  &r->host,    &r->path,	&r->query,	    &r->http,
		&r->rule,	  &r->rule_at, &r->policy,	&r->policy_version, &r->credential,
		&r->upstream,	  &r->tls_sni, &r->tls_version, &r->tls_alpn,	    &r->error,
		&r->error_detail,
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		*all[i] = s;
}

/* Whatever comes: one line, within the bound, valid JSON with all keys. */
static void test_bound(void **state)
{
	static const unsigned char kinds[] = {'a', 0x01, 0xff, '"', 0x80, 0x00, '&'};
	static const size_t lengths[] = {1, 90, 97, 250, 700, 1100, 4096, 4097, 70000};
	static char bytes[70000];

	(void)state;
	for (size_t k = 0; k < sizeof(kinds); k++) {
		for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
			struct record r = full_record();
			json_t *back;

			memset(bytes, kinds[k], sizeof(bytes));
			fill_slices(&r, str_from(bytes, lengths[l]));
			r.bytes_in = r.bytes_out = INT64_MAX;
			r.ms = (struct record_ms){INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX,
						  INT64_MAX};
			strbuf_reset(&out);
			strbuf_adds(&out, "before\n");
			assert_int_equal(record_format(&r, &out), 0);
			assert_true(out.len - 7 <= LIMIT_RECORD_BYTES);
			assert_int_equal(memcmp(out.data, "before\n", 7), 0);
			assert_ptr_equal(strchr(out.data + 7, '\n'), out.data + out.len - 1);
			back = json_loads(out.data + 7, JSON_ALLOW_NUL, NULL);
			assert_non_null(back);
			assert_int_equal(json_object_size(back), 31);
			json_decref(back);
		}
	}
}

static void test_cut(void **state)
{
	struct record r = {.event = RECORD_REQUEST_DENY};
	static char path[5000];
	json_t *back;
	const char *got;

	(void)state;
	memset(path, 'p', sizeof(path));
	r.path = str_from(path, sizeof(path));
	strbuf_reset(&out);
	assert_int_equal(record_format(&r, &out), 0);
	back = json_loads(out.data, 0, NULL);
	got = json_string_value(json_object_get(back, "path"));
	assert_int_equal(strlen(got), LIMIT_RECORD_VALUE + strlen("[cut]"));
	assert_string_equal(got + LIMIT_RECORD_VALUE, "[cut]");
	json_decref(back);
	/* A query that is long only because of its marks is cut as well, and one that redaction
	 * made short is not. */
	r.path = STR_NONE;
	for (size_t i = 0; i + 6 <= 4092; i += 6)
		memcpy(path + i, "key=1&", 6);
	r.query = str_from(path, 4092);
	strbuf_reset(&out);
	assert_int_equal(record_format(&r, &out), 0);
	back = json_loads(out.data, 0, NULL);
	got = json_string_value(json_object_get(back, "query"));
	assert_string_equal(got + strlen(got) - 5, "[cut]");
	assert_int_equal(strncmp(got, "key=[redacted]&key=[redacted]&", 30), 0);
	json_decref(back);
	memset(path, 's', sizeof(path));
	memcpy(path, "key=", 4);
	r.query = str_from(path, sizeof(path));
	strbuf_reset(&out);
	assert_int_equal(record_format(&r, &out), 0);
	assert_non_null(strstr(out.data, "\"query\":\"key=[redacted]\""));
}

/* A line made with the part that was formatted before is the same line, and what has an escape in
 * it is kept as well. */
static void test_same_part(void **state)
{
	struct record r = full_record(), end;
	struct record_same same;
	struct strbuf whole;

	(void)state;
	for (int i = 0; i < 2; i++) {
		strbuf_init(&whole, 1 << 20);
		r.keep = NULL;
		assert_int_equal(record_format(&r, &whole), 0);
		r.keep = &same;
		strbuf_reset(&out);
		assert_int_equal(record_format(&r, &out), 0);
		assert_string_equal(strbuf_cstr(&whole), strbuf_cstr(&out));
		assert_true(same.n > 0 && same.upstream_n > 0);
		end = r;
		end.keep = NULL;
		end.same = &same;
		end.same_upstream = true;
		end.id = end.host = end.upstream = STR("not looked at");
		strbuf_reset(&out);
		assert_int_equal(record_format(&end, &out), 0);
		assert_string_equal(strbuf_cstr(&whole), strbuf_cstr(&out));
		end.same_upstream = false;
		strbuf_reset(&out);
		assert_int_equal(record_format(&end, &out), 0);
		assert_non_null(strstr(strbuf_cstr(&out), "\"upstream\":\"not looked at\""));
		assert_null(strstr(strbuf_cstr(&out), "\"host\":\"not looked at\""));
		strbuf_clear(&whole);
		r.path = STR("/\"quoted\"\n");
	}
	/* Not what was too long, or would have been cut. */
	r.path = str_from(same.text, sizeof(same.text));
	strbuf_reset(&out);
	assert_int_equal(record_format(&r, &out), 0);
	assert_int_equal(same.n, 0);
}

/* What was kept stands beside whatever has to be cut. */
static void test_same_part_of_a_long_line(void **state)
{
	static char junk[20000];
	struct record r = full_record();
	struct record_same same;
	json_t *back;

	(void)state;
	memset(junk, 0x01, sizeof(junk));
	r.rule = str_from(junk, 100);
	r.keep = &same;
	strbuf_reset(&out);
	assert_int_equal(record_format(&r, &out), 0);
	assert_true(same.n > 6 * 100);
	r.keep = NULL;
	r.same = &same;
	r.via = r.error = r.error_detail = r.tls_sni = r.tls_alpn = r.tls_version =
		r.upstream_tls_version = r.upstream_tls_alpn = str_from(junk, sizeof(junk));
	strbuf_reset(&out);
	assert_int_equal(record_format(&r, &out), 0);
	assert_true(out.len <= LIMIT_RECORD_BYTES);
	back = json_loads(out.data, JSON_ALLOW_NUL, NULL);
	assert_non_null(back);
	assert_int_equal(json_object_size(back), 31);
	assert_int_equal(json_string_length(json_object_get(back, "rule")), 100);
	json_decref(back);
}

static void test_no_room(void **state)
{
	struct record r = full_record();
	struct strbuf small;

	(void)state;
	strbuf_reset(&out);
	record_format(&r, &out);
	strbuf_init(&small, out.len + 3);
	strbuf_adds(&small, "abcd");
	assert_int_equal(record_format(&r, &small), -1);
	assert_string_equal(strbuf_cstr(&small), "abcd");
	assert_false(small.overflowed);
	assert_int_equal(small.max, out.len + 3);
	strbuf_reset(&small);
	strbuf_adds(&small, "abc");
	assert_int_equal(record_format(&r, &small), 0);
	assert_int_equal(small.len, out.len + 3);
	strbuf_clear(&small);
}

static void test_events(void **state)
{
	static const char *const words[] = {
		"request.start", "request.end", "request.deny", "tunnel.start", "tunnel.end",
		"tunnel.deny",	 "dns.deny",	"proxy.start",	"proxy.stop",	"policy.load",
		"policy.reject", "sandbox.new", "sandbox.end",
	};

	(void)state;
	for (int e = RECORD_REQUEST_START; e < RECORD_EVENTS; e++)
		assert_string_equal(record_event_word((enum record_event)e), words[e]);
}

#define IDS 20000

static char ids[4][IDS][RECORD_ID_LEN + 1];

static void *make_ids(void *arg)
{
	char(*mine)[RECORD_ID_LEN + 1] = arg;

	for (int i = 0; i < IDS; i++)
		record_new_id(mine[i]);
	return NULL;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The first half is the time in milliseconds. */
static void test_id_time(void **state)
{
	char id[RECORD_ID_LEN + 1];

	(void)state;
	for (int i = 0; i < 1000; i++) {
		static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
		uint64_t before = now_ms(), ms = 0;

		record_new_id(id);
		for (size_t k = 0; k < 10; k++)
			ms = ms << 5 | (uint64_t)(strchr(digits, id[k]) - digits);
		assert_true(before <= ms && ms <= now_ms());
	}
}

static int compare_ids(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void test_ids(void **state)
{
	pthread_t threads[4];
	char(*all)[RECORD_ID_LEN + 1] = ids[0];

	(void)state;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, make_ids, ids[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 4 * IDS; i++) {
		assert_int_equal(strlen(all[i]), RECORD_ID_LEN);
		assert_int_equal(strspn(all[i], "0123456789abcdefghjkmnpqrstvwxyz"), RECORD_ID_LEN);
		/* Sorted by time within a thread: the first ten characters never go back. */
		if (i % IDS)
			assert_true(strncmp(all[i - 1], all[i], 10) <= 0);
	}
	qsort(all, 4 * IDS, RECORD_ID_LEN + 1, compare_ids);
	for (int i = 1; i < 4 * IDS; i++)
		assert_string_not_equal(all[i - 1], all[i]);
}

/* Prints, asserts nothing about time. */
static void test_speed(void **state)
{
	struct record r = full_record();
	struct timespec a, b;
	char id[RECORD_ID_LEN + 1];
	double ns;

	(void)state;
	r.time = (struct timespec){0, 0};
	r.path = STR("/repos/acme/widget/contents/src/main.c");
	r.query = STR("ref=main&per_page=100&access_token=abcdefghijklmnop");
	strbuf_reset(&out);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < 200000; i++) {
		strbuf_reset(&out);
		record_format(&r, &out);
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
	print_message("record_format: %.0f ns for a line of %zu bytes\n", ns / 200000, out.len);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < 200000; i++)
		record_new_id(id);
	clock_gettime(CLOCK_MONOTONIC, &b);
	ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
	print_message("record_new_id: %.0f ns\n", ns / 200000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_line),
		cmocka_unit_test(test_same_part),
		cmocka_unit_test(test_same_part_of_a_long_line),
		cmocka_unit_test(test_readme_keys),
		cmocka_unit_test(test_absent),
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_ids),
		cmocka_unit_test(test_id_time),
		cmocka_unit_test(test_speed),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
