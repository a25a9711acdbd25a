/*
 * The addresses that names are given: the same again, in order, of both families, and found again.
 * What happens when there are many is name_map_full_test.c's.
 */
#include "name_map_test.h"

static void test_addresses_come_in_order_and_stay(void **state)
{
	struct host a = name("a%u.test", 1), b = name("b%u.test", 1), got;
	struct ipaddr v4, v6;
	char text[IPADDR_TEXT_MAX];
	struct name_map *m;

	(void)state;
	assert_int_equal(name_map_new(&m, NULL), 0);
	assert_int_equal(give(m, &a, 1), 1);
	assert_int_equal(give(m, &b, 2), 2);
	assert_int_equal(give(m, &a, 1000 * TTL_US), 1);
	assert_int_equal(name_map_give(m, &b, true, 3, &v4, &v6, NULL), 0);
	ipaddr_format(&v4, text);
	assert_string_equal(text, "198.18.0.2");
	ipaddr_format(&v6, text);
	assert_string_equal(text, "fd73:7469:6c65::c612:2");
	assert_int_equal(name_map_find(m, &v4, &got), 0);
	assert_true(host_eq(&got, &b));
	assert_int_equal(name_map_find(m, &v6, &got), 0);
	assert_true(host_eq(&got, &b));
	assert_string_equal(got.text, "b1.test");
	name_map_unref(m);
}

static void test_no_name_has_the_rest(void **state)
{
	static const char *const others[] = {
		"198.18.0.0",
		"198.18.0.2",
		"198.19.255.255",
		"198.17.0.1",
		"198.20.0.1",
		"127.0.0.1",
		"fd73:7469:6c65::1",
		"::ffff:198.18.0.1",
		"64:ff9b::c612:1",
		"fd73:7469:6c65:1::c612:1",
		"fd73:7469:6c65::1:c612:1",
		"::",
	};
	struct host a = name("a%u.test", 1), got;
	struct host literal;
	struct ipaddr v4, v6;
	struct err e = ERR_INIT;
	struct name_map *m;

	(void)state;
	assert_int_equal(name_map_new(&m, NULL), 0);
	assert_int_equal(give(m, &a, 1), 1);
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		struct ipaddr x = ip(others[i]);

		if (name_map_find(m, &x, &got) == 0)
			fail_msg("%s is %s", others[i], got.text);
	}
	assert_int_equal(host_parse(STR("198.18.0.1"), &literal, NULL), 0);
	assert_int_equal(name_map_give(m, &literal, true, 1, &v4, &v6, &e), -1);
	assert_int_equal(name_map_keep(m, &literal, &v4, &v6, &e), -1);
	name_map_unref(m);
}

/* No origin can have one, so a client cannot be led past its name by one. */
static void test_addresses_are_refused_as_upstreams(void **state)
{
	struct host a = name("a%u.test", 1);
	struct ipaddr v4, v6;
	struct name_map *m;

	(void)state;
	assert_int_equal(name_map_new(&m, NULL), 0);
	assert_int_equal(name_map_give(m, &a, true, 1, &v4, &v6, NULL), 0);
	assert_int_equal(ipaddr_judge(&v4, NULL, 0, NULL, 0, NULL), -1);
	assert_int_equal(ipaddr_judge(&v6, NULL, 0, NULL, 0, NULL), -1);
	assert_true(name_map_is_made_up(&v4));
	assert_true(name_map_is_made_up(&v6));
	v4 = ip("198.20.0.1");
	v6 = ip("fd73:7469:6c66::c612:1");
	assert_false(name_map_is_made_up(&v4));
	assert_false(name_map_is_made_up(&v6));
	name_map_unref(m);
}

static void test_kept_are_bounded(void **state)
{
	struct err e = ERR_INIT;
	struct ipaddr v4, v6;
	struct name_map *m;
	struct host h;

	(void)state;
	assert_int_equal(name_map_new(&m, NULL), 0);
	for (unsigned i = 0; i < LIMIT_NAMES_KEPT; i++) {
		h = name("n%u.test", i);
		assert_int_equal(name_map_keep(m, &h, &v4, &v6, NULL), 0);
		assert_int_equal(name_map_keep(m, &h, &v4, &v6, NULL), 0);
	}
	h = name("one-more%u.test", 1);
	assert_int_equal(name_map_keep(m, &h, &v4, &v6, &e), -1);
	assert_int_equal(e.reason, REASON_OVERLOADED);
	name_map_unref(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses_come_in_order_and_stay),
		cmocka_unit_test(test_no_name_has_the_rest),
		cmocka_unit_test(test_addresses_are_refused_as_upstreams),
		cmocka_unit_test(test_kept_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
