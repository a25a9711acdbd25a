/*
 * The host's own addresses: loopback is always among them, each once, and the kernel is not asked
 * twice within two seconds.
 */
#include "net_test.h"

#include <sys/resource.h>

#include "proxy/net/own_addrs.h"

static size_t count(const struct ipaddr *list, size_t n, const struct ipaddr *a)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++)
		found += ipaddr_eq(&list[i], a);
	return found;
}

static void test_loopback_is_own(void **state)
{
	struct ipaddr v4 = ip("127.0.0.1");
	const struct ipaddr *list;
	struct own_addrs *o;
	struct err e;
	size_t n;

	(void)state;
	assert_int_equal(own_addrs_new(&o, &e), 0);
	assert_int_equal(own_addrs_get(o, 1000, &list, &n, &e), 0);
	assert_int_equal(count(list, n, &v4), 1);
	for (size_t i = 0; i < n; i++) {
		assert_true(list[i].family == 4 || list[i].family == 6);
		assert_int_equal(count(list, n, &list[i]), 1);
	}
	own_addrs_free(o);
	own_addrs_free(NULL);
}

static void test_list_is_kept_for_two_seconds(void **state)
{
	const struct ipaddr *first, *second;
	struct own_addrs *o;
	size_t n, m;

	(void)state;
	assert_int_equal(own_addrs_new(&o, NULL), 0);
	assert_int_equal(own_addrs_get(o, 0, &first, &n, NULL), 0);
	assert_int_equal(own_addrs_get(o, 1999999, &second, &m, NULL), 0);
	assert_ptr_equal(first, second);
	/* Read anew: whatever the pointer, the content is the same as long as nobody changes it. */
	assert_int_equal(own_addrs_get(o, 2000000, &second, &m, NULL), 0);
	assert_int_equal(n, m);
	own_addrs_free(o);
}

/* Out of descriptors the kernel cannot be asked: the old list stays, and without one it is an
 * error. */
static void test_fails_closed(void **state)
{
	struct own_addrs *with, *without;
	const struct ipaddr *list = NULL;
	struct rlimit old, none;
	struct err e = ERR_INIT;
	size_t n = 0;

	(void)state;
	assert_int_equal(own_addrs_new(&with, NULL), 0);
	assert_int_equal(own_addrs_new(&without, NULL), 0);
	assert_int_equal(own_addrs_get(with, 0, &list, &n, NULL), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	n = 0;
	int kept = own_addrs_get(with, 5000000, &list, &n, &e);
	int failed = own_addrs_get(without, 0, &list, &n, &e);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(kept, 0);
	assert_true(n > 0);
	assert_int_equal(failed, -1);
	assert_int_equal(e.reason, REASON_INTERNAL_ERROR);
	assert_int_equal(own_addrs_get(without, 1, &list, &n, &e), 0);
	own_addrs_free(with);
	own_addrs_free(without);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loopback_is_own),
		cmocka_unit_test(test_list_is_kept_for_two_seconds),
		cmocka_unit_test(test_fails_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
