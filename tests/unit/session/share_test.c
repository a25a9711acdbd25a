/*
 * Who dials and who waits: one for a key, taken over when it leaves, and nobody for longer than is
 * worth it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "logging/attrs.h"
#include "logging/limits.h"
#include "proxy/session/share.h"

#define SEATS 4
#define KEY   42

struct room {
	struct loop *loop;
	struct share *share;
	struct share_seat seats[SEATS];
	int woken[SEATS];
	int order[SEATS * 2];
	int n;
};

static struct room room;

static void on_woken(void *arg)
{
	struct share_seat *s = arg;

	room.woken[s - room.seats]++;
	room.order[room.n++] = (int)(s - room.seats);
}

static int setup(void **state)
{
	(void)state;
	room = (struct room){0};
	for (size_t i = 0; i < SEATS; i++)
		room.seats[i] = (struct share_seat){.fn = on_woken, .arg = &room.seats[i]};
	return loop_new(&room.loop, NULL) < 0 || share_new(room.loop, &room.share, NULL) < 0 ? -1
											     : 0;
}

static int teardown(void **state)
{
	(void)state;
	share_free(room.share);
	loop_free(room.loop);
	return 0;
}

static void on_stop(void *arg)
{
	(void)arg;
	loop_stop(room.loop);
}

/* Lets ms pass, and the loop do what is due. */
static void pass(uint64_t ms)
{
	struct timer t;

	assert_int_equal(timer_init(&t, room.loop, on_stop, NULL), 0);
	timer_arm(&t, ms + 1);
	loop_run(room.loop);
	timer_clear(&t);
}

static bool enter(int i)
{
	return share_enter(room.share, &room.seats[i], KEY);
}

static void the_first_dials_and_wakes_the_others(void **state)
{
	(void)state;
	assert_true(enter(0));
	for (int i = 1; i < SEATS; i++)
		assert_false(enter(i));
	share_know(room.share, KEY, true);
	share_end(room.share, &room.seats[0], SHARE_END_H2);
	assert_int_equal(room.n, 0); /* never from within a call */
	share_leave(room.share, &room.seats[2]);
	pass(1);
	assert_int_equal(room.n, 2);
	assert_int_equal(room.order[0], 1);
	assert_int_equal(room.order[1], 3);
	/* Where the connection is full they go on alike. */
	assert_true(enter(1));
	assert_false(enter(3));
	share_leave(room.share, &room.seats[3]);
	share_end(room.share, &room.seats[1], SHARE_END_H2);
}

static void after_anything_else_each_dials(void **state)
{
	(void)state;
	assert_true(enter(0));
	assert_false(enter(1));
	assert_false(enter(2));
	share_end(room.share, &room.seats[0], SHARE_END_OTHER);
	pass(1);
	assert_int_equal(room.n, 2);
	assert_true(enter(1));
	assert_true(enter(2));
	/* They dial for themselves alone. */
	share_end(room.share, &room.seats[1], SHARE_END_OTHER);
	assert_true(enter(3));
	share_end(room.share, &room.seats[3], SHARE_END_OTHER);
}

static void nobody_waits_for_http1(void **state)
{
	(void)state;
	share_know(room.share, KEY, false);
	for (int i = 0; i < SEATS; i++)
		assert_true(enter(i));
	share_know(room.share, KEY + 1, true); /* another one says nothing of it */
	assert_true(enter(0));
}

static void who_leaves_is_replaced(void **state)
{
	(void)state;
	assert_true(enter(0));
	assert_false(enter(1));
	assert_false(enter(2));
	share_end(room.share, &room.seats[0], SHARE_END_NOBODY);
	pass(1);
	assert_int_equal(room.n, 2);
	assert_true(enter(1));
	assert_false(enter(2));
	share_leave(room.share, &room.seats[2]);
	share_end(room.share, &room.seats[1], SHARE_END_NOBODY);
	share_end(room.share, &room.seats[1], SHARE_END_NOBODY); /* nothing any more */
	pass(1);
	assert_int_equal(room.n, 2);
}

static void a_wait_ends(void **state)
{
	uint64_t left;

	(void)state;
	assert_true(enter(0));
	assert_false(enter(1));
	left = share_left_ms(room.share, &room.seats[1]);
	assert_in_range(left, LIMIT_MS_SHARE_UNKNOWN / 2, LIMIT_MS_SHARE_UNKNOWN);
	pass(left);
	share_leave(room.share, &room.seats[1]);
	assert_int_equal(share_left_ms(room.share, &room.seats[1]), 0);
	assert_true(enter(1));
	share_know(room.share, KEY, true);
	assert_false(enter(2));
	assert_in_range(share_left_ms(room.share, &room.seats[2]), LIMIT_MS_SHARE / 2,
			LIMIT_MS_SHARE);
	share_leave(room.share, &room.seats[2]);
	share_end(room.share, &room.seats[0], SHARE_END_H2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_first_dials_and_wakes_the_others, setup,
						teardown),
		cmocka_unit_test_setup_teardown(after_anything_else_each_dials, setup, teardown),
		cmocka_unit_test_setup_teardown(nobody_waits_for_http1, setup, teardown),
		cmocka_unit_test_setup_teardown(who_leaves_is_replaced, setup, teardown),
		cmocka_unit_test_setup_teardown(a_wait_ends, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
