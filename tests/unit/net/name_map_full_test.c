/*
 * A name map that is full, goes round, and is asked by many threads: more names than would do for
 * unit-torture, which fails each allocation by itself.
 */
#include "name_map_test.h"

#include <pthread.h>

static void test_full_of_names_that_are_in_use(void **state)
{
	struct host late = name("late%u.test", 0), kept = name("kept%u.test", 0), first, second;
	struct ipaddr v4, v6, of_first;
	struct err e = ERR_INIT;
	struct name_map *m;

	(void)state;
	assert_int_equal(name_map_new(&m, NULL), 0);
	assert_int_equal(name_map_keep(m, &kept, &v4, &v6, NULL), 0);
	for (unsigned i = 1; i < LIMIT_NAMES; i++) {
		struct host h = name("n%u.test", i);

		assert_int_equal(give(m, &h, 1), i + 1);
	}
	first = name("n%u.test", 1);
	second = name("n%u.test", 2);
	assert_int_equal(name_map_give(m, &late, true, TTL_US, &v4, &v6, &e), -1);
	assert_int_equal(e.reason, REASON_OVERLOADED);
	/* What is there already is answered all the same, and then it is not the oldest. */
	assert_int_equal(name_map_give(m, &first, true, TTL_US, &of_first, &v6, NULL), 0);
	/* Neither the name that was used nor the kept one goes, and a new address comes. */
	assert_int_equal(give(m, &late, TTL_US + 1), LIMIT_NAMES + 1);
	assert_int_equal(name_map_find(m, &of_first, &first), 0);
	assert_string_equal(first.text, "n1.test");
	v4 = ip("198.18.0.1");
	assert_int_equal(name_map_find(m, &v4, &first), 0);
	assert_string_equal(first.text, "kept0.test");
	v4 = ip("198.18.0.3");
	assert_int_equal(name_map_find(m, &v4, &first), -1);
	/* Who comes back finds that it is another one's turn, and another address. */
	assert_int_equal(give(m, &second, TTL_US + 1), LIMIT_NAMES + 2);
	name_map_unref(m);
}

/* A sandbox that makes names up which a pattern admits takes none from those of the rules. */
static void test_names_of_rules_find_room(void **state)
{
	struct host more = name("more%u.w.test", 0), h;
	const int64_t later = 2 * TTL_US;
	struct ipaddr v4, v6;
	struct err e = ERR_INIT;
	struct name_map *m;

	(void)state;
	assert_int_equal(name_map_new(&m, NULL), 0);
	for (unsigned i = 0; i < LIMIT_NAMES - LIMIT_NAMES_SPELT; i++) {
		h = name("n%u.w.test", i);
		assert_int_equal(name_map_give(m, &h, false, 1, &v4, &v6, NULL), 0);
	}
	assert_int_equal(name_map_give(m, &more, false, TTL_US, &v4, &v6, &e), -1);
	assert_int_equal(e.reason, REASON_OVERLOADED);
	for (unsigned i = 0; i < LIMIT_NAMES_SPELT; i++) {
		h = name("rule%u.test", i);
		give(m, &h, 1);
	}
	/* Nor later, when the places of both could be given anew. */
	for (unsigned i = 0; i < LIMIT_NAMES - LIMIT_NAMES_SPELT; i++) {
		h = name("again%u.w.test", i);
		assert_int_equal(name_map_give(m, &h, false, later, &v4, &v6, NULL), 0);
	}
	assert_int_equal(name_map_give(m, &more, false, later, &v4, &v6, &e), -1);
	for (unsigned i = 0; i < LIMIT_NAMES_SPELT; i++) {
		h = name("rule%u.test", i);
		give(m, &h, later);
	}
	name_map_unref(m);
}

/* A connection keeps the name that it came to, although nobody asked for it again. */
static void test_found_is_used(void **state)
{
	struct host h, got;
	struct ipaddr v4 = ip("198.18.0.1");
	struct name_map *m;

	(void)state;
	assert_int_equal(name_map_new(&m, NULL), 0);
	for (unsigned i = 1; i <= LIMIT_NAMES; i++) {
		h = name("n%u.test", i);
		give(m, &h, 1);
	}
	assert_int_equal(name_map_find(m, &v4, &got), 0);
	h = name("late%u.test", 1);
	give(m, &h, 2 * TTL_US);
	assert_int_equal(name_map_find(m, &v4, &got), 0);
	name_map_unref(m);
}

/* Past the end of the range it begins again, without the first and the last address and without
 * those that are in use. */
static void test_range_goes_round(void **state)
{
	struct host kept = name("kept%u.test", 0);
	struct ipaddr v4, v6;
	struct name_map *m;
	uint32_t last = 1;

	(void)state;
	assert_int_equal(name_map_new(&m, NULL), 0);
	assert_int_equal(name_map_keep(m, &kept, &v4, &v6, NULL), 0);
	for (unsigned i = 2; i < 131071; i++) {
		struct host h = name("n%u.test", i);

		last = give(m, &h, (int64_t)i * TTL_US);
		assert_int_equal(last, i);
	}
	for (unsigned i = 2; i < 5; i++) {
		struct host h = name("again%u.test", i);

		assert_int_equal(give(m, &h, (int64_t)200000 * TTL_US), i);
	}
	name_map_unref(m);
}

static void *ask_much(void *arg)
{
	struct name_map *m = arg;
	uint32_t *of = calloc(2000, sizeof(*of));

	for (unsigned round = 0; of && round < 2; round++)
		for (unsigned i = 0; i < 2000; i++) {
			struct host h = name("n%u.test", i), got;
			struct ipaddr v4, v6;
			uint32_t at = give(m, &h, 1);

			assert_true(round == 0 || of[i] == at);
			of[i] = at;
			assert_int_equal(name_map_give(m, &h, true, 1, &v4, &v6, NULL), 0);
			assert_int_equal(name_map_find(m, &v6, &got), 0);
			assert_true(host_eq(&got, &h));
		}
	name_map_unref(m);
	return of;
}

static void test_threads_agree(void **state)
{
	pthread_t threads[4];
	uint32_t *of[4];
	struct name_map *m;

	(void)state;
	assert_int_equal(name_map_new(&m, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_much, name_map_ref(m)), 0);
	name_map_unref(m);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
		pthread_join(threads[i], (void **)&of[i]);
		assert_non_null(of[i]);
		assert_memory_equal(of[i], of[0], 2000 * sizeof(uint32_t));
	}
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		free(of[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_of_names_that_are_in_use),
		cmocka_unit_test(test_names_of_rules_find_room),
		cmocka_unit_test(test_found_is_used),
		cmocka_unit_test(test_range_goes_round),
		cmocka_unit_test(test_threads_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
