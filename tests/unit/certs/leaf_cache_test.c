/*
 * The bounded table, its order of eviction, and the rules by which a leaf is handed out again.
 */
#include "pki.h"

#include "certs/leaf_cache.h"
#include "certs/lru.h"

static size_t freed;

static void count_free(void *value)
{
	freed++;
	free(value);
}

static void *number(int n)
{
	int *p = malloc(sizeof(*p));

	*p = n;
	return p;
}

static void bound_and_order(void **state)
{
	struct err e = ERR_INIT;
	struct lru *l;
	void *taken;

	(void)state;
	freed = 0;
	assert_int_equal(lru_new(3, count_free, &l, &e), 0);
	assert_null(lru_get(l, "a", 1));
	assert_int_equal(lru_put(l, "a", 1, number(1)), 0);
	assert_int_equal(lru_put(l, "b", 1, number(2)), 0);
	assert_int_equal(lru_put(l, "c", 1, number(3)), 0);
	assert_int_equal(*(int *)lru_get(l, "a", 1), 1); /* now b is the oldest */
	assert_int_equal(lru_put(l, "d", 1, number(4)), 0);
	assert_int_equal(lru_count(l), 3);
	assert_int_equal(freed, 1);
	assert_null(lru_get(l, "b", 1));
	assert_int_equal(*(int *)lru_get(l, "c", 1), 3);
	/* The same key: replaced, which counts as a touch and evicts nothing. */
	assert_int_equal(lru_put(l, "a", 1, number(5)), 0);
	assert_int_equal(lru_count(l), 3);
	assert_int_equal(freed, 2);
	assert_int_equal(lru_put(l, "e", 1, number(6)), 0);
	assert_null(lru_get(l, "d", 1));
	assert_int_equal(*(int *)lru_get(l, "a", 1), 5);
	/* Keys are bytes of a length, not strings. */
	assert_null(lru_get(l, "a\0x", 3));
	assert_null(lru_get(l, "", 0));
	taken = lru_take(l, "a", 1);
	assert_int_equal(*(int *)taken, 5);
	free(taken);
	assert_null(lru_take(l, "a", 1));
	assert_int_equal(lru_count(l), 2);
	lru_free(l);
	assert_int_equal(freed, 5);
}

/* Against a plain model: what was touched last is there, and never more than the bound. */
static void against_a_model(void **state)
{
	enum { MAX = 16, KEYS = 64, STEPS = 20000 };
	unsigned stamp[KEYS] = {0};
	int value[KEYS] = {0};
	struct err e = ERR_INIT;
	struct lru *l;
	unsigned seed = 7;

	(void)state;
	assert_int_equal(lru_new(MAX, count_free, &l, &e), 0);
	for (unsigned step = 1; step <= STEPS; step++) {
		int k = rand_r(&seed) % KEYS;
		unsigned newer = 0;
		int *got;

		for (int i = 0; i < KEYS; i++)
			newer += stamp[i] > stamp[k];
		if (rand_r(&seed) % 3 == 0) {
			value[k] = (int)step;
			assert_int_equal(lru_put(l, &k, sizeof(k), number(value[k])), 0);
			stamp[k] = step;
		} else {
			got = lru_get(l, &k, sizeof(k));
			assert_int_equal(got != NULL, stamp[k] != 0 && newer < MAX);
			if (got) {
				assert_int_equal(*got, value[k]);
				stamp[k] = step;
			}
		}
		assert_true(lru_count(l) <= MAX);
	}
	assert_int_equal(lru_count(l), MAX);
	lru_free(l);
}

static void zero_and_null(void **state)
{
	struct err e = ERR_INIT;
	struct lru *l;

	(void)state;
	assert_int_equal(lru_new(0, count_free, &l, &e), 0);
	assert_int_equal(lru_put(l, NULL, 0, number(1)), 0);
	assert_non_null(lru_get(l, NULL, 0));
	assert_int_equal(lru_put(l, "b", 1, number(1)), 0);
	assert_int_equal(lru_count(l), 1);
	lru_free(l);
	lru_free(NULL);
	leaf_cache_free(NULL);
}

static void leaves(void **state)
{
	struct err e = ERR_INIT;
	struct ca *ca;
	struct leaf_maker *m;
	struct leaf_cache *c;
	struct leaf_key k;
	struct leaf *a, *b, *got;
	time_t now = time(NULL);

	(void)state;
	assert_int_equal(ca_new_memory(30, &ca, &e), 0);
	assert_int_equal(leaf_maker_new(ca, &m, &e), 0);
	assert_int_equal(leaf_cache_new(2, &c, &e), 0);
	assert_int_equal(leaf_key_init(&k, &(struct leaf_name){STR("a.test"), NULL, 0}, &e), 0);
	assert_null(leaf_cache_get(c, &k, now));
	assert_int_equal(leaf_make(m, &k, STR("a.test"), now, &a, &e), 0);
	assert_ptr_equal(leaf_cache_put(c, &k, a, now), a);
	leaf_unref(a);
	got = leaf_cache_get(c, &k, now);
	assert_ptr_equal(got, a);
	leaf_unref(got);
	/* The slower of two threads gets the faster one's. */
	assert_int_equal(leaf_make(m, &k, STR("a.test"), now, &b, &e), 0);
	got = leaf_cache_put(c, &k, b, now);
	assert_ptr_equal(got, a);
	leaf_unref(got);
	/* Up to the moment of renewal, and not before it was made. */
	got = leaf_cache_get(c, &k, a->renew_at - 1);
	assert_ptr_equal(got, a);
	assert_null(leaf_cache_get(c, &k, a->renew_at));
	assert_null(leaf_cache_get(c, &k, a->usable_from - 1));
	/* A due one is replaced. */
	assert_int_equal(leaf_make(m, &k, STR("a.test"), a->renew_at, &b, &e), 0);
	assert_ptr_equal(leaf_cache_put(c, &k, b, a->renew_at), b);
	assert_int_equal(leaf_cache_count(c), 1);
	leaf_unref(got);
	leaf_unref(b);
	leaf_cache_free(c);
	leaf_maker_free(m);
	ca_unref(ca);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bound_and_order),
		cmocka_unit_test(against_a_model),
		cmocka_unit_test(zero_and_null),
		cmocka_unit_test(leaves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
