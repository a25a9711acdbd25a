/*
 * What only shows inside real namespaces: that the canary sees every way out that is dug for it,
 * and that privileges are gone for good. Each case runs in a child with namespaces of its own;
 * where the kernel gives none the test says so and passes over them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <linux/capability.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "proxy/sandbox/canary.h"
#include "proxy/sandbox/confine.h"
#include "proxy/sandbox/files.h"
#include "proxy/sandbox/namespace.h"

#define NOT_TO_BE_HAD 99

/* Runs fn as pid 1 of fresh namespaces with loopback up; its return value, or skips. */
/* ip(8), which the tests run, is to keep them: root is not root in there, and would lose them. */
static int keep_capabilities(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[2];

	if (syscall(SYS_capget, &h, sets) != 0)
		return -1;
	for (int i = 0; i < 2; i++)
		sets[i].inheritable = sets[i].permitted;
	if (syscall(SYS_capset, &h, sets) != 0)
		return -1;
	return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_ADMIN, 0, 0);
}

static int inside(int (*fn)(void))
{
	struct err e = ERR_INIT;
	uid_t uid = geteuid();
	gid_t gid = getegid();
	pid_t pid = namespace_fork(&e);
	int status;

	if (pid < 0) {
		print_message("skipped: %s\n", e.text);
		skip();
	}
	if (pid == 0) {
		if (namespace_map_ids(uid, gid, &e) != 0 || namespace_loopback_up(&e) != 0 ||
		    files_enter(&e) != 0 || keep_capabilities() != 0) {
			fprintf(stderr, "%s\n", e.text);
			_exit(1);
		}
		_exit(fn());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NOT_TO_BE_HAD)
		skip();
	return WEXITSTATUS(status);
}

static int says(const char *word)
{
	struct err e = ERR_INIT;

	if (canary_check(&e) == 0)
		return word ? 1 : 0;
	if (word && strstr(e.text, word))
		return 0;
	fprintf(stderr, "%s\n", e.text);
	return 1;
}

static int canary_alone(void)
{
	return says(NULL);
}

static int canary_route(void)
{
	if (system("ip route add 203.0.113.0/24 dev lo") != 0)
		return NOT_TO_BE_HAD;
	return says("a route by way of lo");
}

/* A route that the main table does not show: only the attempt itself finds it. */
static int canary_hidden_route(void)
{
	if (system("ip route add 203.0.113.0/24 dev lo table 100 && ip rule add lookup 100") != 0)
		return NOT_TO_BE_HAD;
	return says("a TCP connection to 203.0.113.1");
}

static int canary_hidden_dns(void)
{
	if (system("ip route add 203.0.113.53/32 dev lo table 100 && ip rule add lookup 100") != 0)
		return NOT_TO_BE_HAD;
	return says("a DNS query to 203.0.113.53");
}

static int canary_hidden_v6(void)
{
	if (system("ip -6 route add 2001:db8::/32 dev lo table 100 && ip -6 rule add lookup 100") !=
	    0)
		return NOT_TO_BE_HAD;
	return says("to 2001:db8::1");
}

static int canary_interface(void)
{
	if (system("ip link add c0 type veth peer name c1 2>/dev/null && ip link set c0 up") != 0 &&
	    system("ip tuntap add c0 mode tun 2>/dev/null && ip link set c0 up") != 0 &&
	    system("ip link add c0 type dummy 2>/dev/null && ip link set c0 up") != 0)
		return NOT_TO_BE_HAD;
	return says("a network interface beside loopback");
}

static void test_canary(void **state)
{
	(void)state;
	assert_int_equal(inside(canary_alone), 0);
}

static void test_canary_route(void **state)
{
	(void)state;
	assert_int_equal(inside(canary_route), 0);
}

static void test_canary_hidden_route(void **state)
{
	(void)state;
	assert_int_equal(inside(canary_hidden_route), 0);
}

static void test_canary_hidden_dns(void **state)
{
	(void)state;
	assert_int_equal(inside(canary_hidden_dns), 0);
}

static void test_canary_hidden_v6(void **state)
{
	(void)state;
	assert_int_equal(inside(canary_hidden_v6), 0);
}

static void test_canary_interface(void **state)
{
	(void)state;
	assert_int_equal(inside(canary_interface), 0);
}

static int no_capabilities(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2];
	struct err e = ERR_INIT;

	if (confine_drop_privileges(&e) != 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	if (syscall(SYS_capget, &h, d) != 0 || d[0].effective || d[0].permitted ||
	    d[0].inheritable || d[1].effective || d[1].permitted || d[1].inheritable)
		return 2;
	/* None comes back by exec, for uid 0 neither. */
	if (system("test $(grep -c '^Cap[IPEBA].*0000000000000000$' /proc/self/status) = 5") != 0)
		return 3;
	if (system("grep -q '^NoNewPrivs:.1$' /proc/self/status") != 0)
		return 4;
	return sethostname("x", 1) == 0 ? 5 : 0;
}

static int socket_errno(int family)
{
	int fd = socket(family, SOCK_STREAM, 0);

	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

static int filtered(void)
{
	struct confine_filter *filter = NULL;
	struct err e = ERR_INIT;

	if (confine_drop_privileges(&e) != 0 || confine_filter_make(&filter, &e) != 0 ||
	    confine_filter_calls(filter, &e) != 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	if (ioctl(0, TIOCSTI, "x") == 0 || errno != EPERM)
		return 2;
	/* The kernel looks at 32 bits of the request. */
	if (syscall(SYS_ioctl, 0, 0xff00000000000000UL | TIOCSTI, "x") == 0 || errno != EPERM)
		return 3;
	if (socket_errno(AF_INET) != 0 || socket_errno(AF_UNIX) != 0)
		return 4;
	if (socket_errno(AF_VSOCK) != EAFNOSUPPORT || socket_errno(AF_ALG) != EAFNOSUPPORT ||
	    socket_errno(AF_X25) != EAFNOSUPPORT)
		return 5;
	if (syscall(SYS_keyctl, 0, 0, 0, 0, 0) == 0 || errno != EPERM)
		return 6;
	if (syscall(SYS_io_uring_setup, 1, NULL) == 0 || errno != ENOSYS)
		return 7;
	return 0;
}

static void test_no_capabilities(void **state)
{
	(void)state;
	assert_int_equal(inside(no_capabilities), 0);
}

static void test_filter(void **state)
{
	(void)state;
	assert_int_equal(inside(filtered), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_canary),
		cmocka_unit_test(test_canary_route),
		cmocka_unit_test(test_canary_hidden_route),
		cmocka_unit_test(test_canary_hidden_dns),
		cmocka_unit_test(test_canary_hidden_v6),
		cmocka_unit_test(test_canary_interface),
		cmocka_unit_test(test_no_capabilities),
		cmocka_unit_test(test_filter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
