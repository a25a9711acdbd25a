/*
 * Where an accepted connection was meant to go, of either family and of one socket for both; and
 * the ways in which another namespace cannot be entered. What is redirected, and a namespace that
 * can be entered, need privileges: tests/integration/test_transparent.py.
 */
#include "net_test.h"

#include "proxy/net/netns.h"
#include "proxy/net/original_dst.h"

static int listen_at(const struct sockaddr_in6 *at, bool both, uint16_t *ret_port)
{
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), only = !both;
	struct sockaddr_in6 got = {0};
	socklen_t n = sizeof(got);

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only)), 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)at, sizeof(*at)), 0);
	assert_int_equal(listen(fd, 4), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&got, &n), 0);
	*ret_port = ntohs(got.sin6_port);
	return fd;
}

static void check(int listener, const struct sockaddr *to, socklen_t n, const char *address,
		  uint16_t port)
{
	int client = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	struct ipaddr want = ip(address), got;
	uint16_t got_port = 0;

	assert_int_equal(connect(client, to, n), 0);
	fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	assert_int_equal(original_dst(fd, &got, &got_port), 0);
	assert_true(ipaddr_eq(&got, &want));
	assert_int_equal(got_port, port);
	close(fd);
	close(client);
}

static void test_of_either_family(void **state)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f010203)};
	uint16_t port;
	int fd = listen_at(&any, true, &port);

	(void)state;
	to6.sin6_port = to4.sin_port = htons(port);
	check(fd, (struct sockaddr *)&to6, sizeof(to6), "::1", port);
	/* One socket for both: mapped, and told as what it is. */
	check(fd, (struct sockaddr *)&to4, sizeof(to4), "127.1.2.3", port);
	close(fd);
}

static void test_of_no_connection(void **state)
{
	struct ipaddr a;
	uint16_t port;
	int pair[2];

	(void)state;
	assert_int_equal(original_dst(-1, &a, &port), -1);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(original_dst(pair[0], &a, &port), -1);
	close(pair[0]);
	close(pair[1]);
}

static int never(const void *arg, int *ret_fd, struct err *e)
{
	(void)arg;
	*ret_fd = -1;
	return err_set(e, "it was entered");
}

static void test_what_cannot_be_entered(void **state)
{
	static const char *const rows[][2] = {
		{"/nonexistent/ns", "/nonexistent/ns: No such file"},
		{"/dev/null", "/dev/null is no network namespace"},
		{"/proc/self/ns/uts", "/proc/self/ns/uts is no network namespace"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err e = ERR_INIT;
		int fd = -7, before = open("/dev/null", O_RDONLY), after;

		assert_int_equal(netns_open(rows[i][0], never, NULL, &fd, &e), -1);
		assert_int_equal(fd, -7);
		if (!strstr(e.text, "CAP_SYS_ADMIN"))
			assert_non_null(strstr(e.text, rows[i][1]));
		/* Nothing stays open. */
		close(before);
		after = open("/dev/null", O_RDONLY);
		assert_int_equal(after, before);
		close(after);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_of_either_family),
		cmocka_unit_test(test_of_no_connection),
		cmocka_unit_test(test_what_cannot_be_entered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
