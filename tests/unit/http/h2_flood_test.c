/* The counters of what a peer may make an HTTP/2 connection do, and where frames begin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "logging/limits.h"
#include "proxy/http/h2_flood.h"

#define NOW 1000000000

static void a_burst_and_a_rate(void **state)
{
	struct h2_flood f;
	int n = 0;

	(void)state;
	h2_flood_init(&f);
	while (h2_flood_control(&f, NOW))
		n++;
	assert_in_range(n, LIMIT_H2_CONTROL, LIMIT_H2_CONTROL + 1);
	for (n = 0; h2_flood_control(&f, NOW + 1000000); n++)
		;
	assert_int_equal(n, LIMIT_H2_CONTROL_PER_S);
	assert_true(h2_flood_reset(&f, NOW));
	assert_true(h2_flood_window(&f, NOW));
}

/* Some clients measure the way by a PING for each DATA frame, and open two windows for it. */
static void data_pays(void **state)
{
	struct h2_flood f;
	int n = 0;

	(void)state;
	h2_flood_init(&f);
	for (int i = 0; i < 100000; i++) {
		h2_flood_sent_data(&f, false);
		assert_true(h2_flood_control(&f, NOW));
		assert_true(h2_flood_window(&f, NOW));
		assert_true(h2_flood_window(&f, NOW));
	}
	for (; n < 2 * LIMIT_H2_WINDOWS && h2_flood_window(&f, NOW); n++)
		h2_flood_sent_data(&f, true);
	assert_in_range(n, LIMIT_H2_WINDOWS - 2, LIMIT_H2_WINDOWS + 1);
}

static void padding_is_paid_by_data(void **state)
{
	struct h2_flood f;
	int n = 0;

	(void)state;
	h2_flood_init(&f);
	for (int i = 0; i < 100000; i++)
		assert_true(h2_flood_padding(&f, 32, 255));
	while (h2_flood_padding(&f, 1, 255))
		n++;
	assert_in_range(n, LIMIT_H2_PADDING / 255, LIMIT_H2_PADDING / 240);
}

static void what_was_reset_may_have_a_window_under_way(void **state)
{
	struct h2_flood f;
	int n = 0;

	(void)state;
	h2_flood_init(&f);
	assert_false(h2_flood_was_reset(&f, 7));
	h2_flood_sent_reset(&f, 7);
	assert_true(h2_flood_was_reset(&f, 7));
	for (int i = 0; i < LIMIT_H2_STREAM_WINDOW; i += 100)
		assert_true(h2_flood_stray(&f, 100));
	while (n < 100000 && h2_flood_stray(&f, 0))
		n++;
	assert_in_range(n, 1, 10000);
	for (int i = 0; i < H2_RESETS_KEPT; i++)
		h2_flood_sent_reset(&f, 9 + 2 * i);
	assert_false(h2_flood_was_reset(&f, 7));
}

static size_t put(char *at, uint8_t type, uint32_t stream, uint32_t n)
{
	memset(at, 'x', H2_FRAME_HEAD + n);
	at[0] = (char)(n >> 16);
	at[1] = (char)(n >> 8);
	at[2] = (char)n;
	at[3] = (char)type;
	at[4] = 5;
	at[5] = (char)(0x80 | stream >> 24); /* the reserved bit is ignored */
	at[6] = (char)(stream >> 16);
	at[7] = (char)(stream >> 8);
	at[8] = (char)stream;
	return H2_FRAME_HEAD + n;
}

/* However the bytes are cut, the same frames are seen, each before its payload's end. */
static void frames_are_found(void **state)
{
	static const uint32_t sizes[] = {0, 1, 8, 9, 300, 0, 70000, 2};
	static char wire[80000];
	size_t n = 24;

	(void)state;
	for (uint32_t i = 0; i < 8; i++)
		n += put(wire + n, (uint8_t)(i + 240), i * 0x01010101u, sizes[i]);
	for (size_t cut = 1; cut < 30; cut++) {
		struct h2_frames f = {.preface = 24};
		uint32_t seen = 0;

		for (size_t at = 0; at < n;) {
			size_t end = at + cut < n ? at + cut : n;

			while (at < end) {
				bool begins;
				size_t k =
					h2_frames_next(&f, str_from(wire + at, end - at), &begins);

				assert_in_range(k, 1, end - at);
				at += k;
				if (!begins)
					continue;
				assert_int_equal(f.length, sizes[seen]);
				assert_int_equal(f.type, seen + 240);
				assert_int_equal(f.flags, 5);
				assert_int_equal(f.stream, seen * 0x01010101u);
				seen++;
			}
		}
		assert_int_equal(seen, 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_burst_and_a_rate),
		cmocka_unit_test(data_pays),
		cmocka_unit_test(padding_is_paid_by_data),
		cmocka_unit_test(what_was_reset_may_have_a_window_under_way),
		cmocka_unit_test(frames_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
