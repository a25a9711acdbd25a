/*
 * Dialling: who wins, what a failure is called, how long it takes. A black hole is a listening
 * socket whose queue is full: the kernel drops what else comes.
 */
#include "net_test.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "logging/limits.h"
#include "proxy/net/dial.h"

struct result {
	struct loop *loop;
	bool inside; /* within dial_start */
	int calls;
	int fd;
	struct ipaddr addr;
	struct err e;
};

static void on_done(void *arg, int fd, const struct ipaddr *addr, const struct err *e)
{
	struct result *r = arg;

	assert_false(r->inside);
	r->calls++;
	r->fd = fd;
	if (fd >= 0) {
		assert_null(e);
		r->addr = *addr;
	} else {
		assert_non_null(e);
		r->e = *e;
	}
	loop_stop(r->loop);
}

static struct dial *start(struct result *r, struct loop *l, const char *const *addrs, size_t n,
			  uint16_t port, uint64_t timeout_ms)
{
	struct ipaddr list[16];
	struct dial *d = NULL;

	for (size_t i = 0; i < n; i++)
		list[i] = ip(addrs[i]);
	*r = (struct result){.loop = l, .inside = true, .fd = -2};
	assert_int_equal(dial_start(l, list, n, port, timeout_ms, on_done, r, &d, NULL), 0);
	r->inside = false;
	return d;
}

/* Dials and waits; the result is how many milliseconds it took. */
static int64_t dial(struct result *r, const char *const *addrs, size_t n, uint16_t port,
		    uint64_t timeout_ms)
{
	struct loop *l = new_loop();
	int64_t from = clock_ms(), took;

	start(r, l, addrs, n, port, timeout_ms);
	run_loop(l, 3000);
	took = clock_ms() - from;
	loop_free(l);
	assert_int_equal(r->calls, 1);
	return took;
}

struct hole {
	int listening, queued[8];
};

static void open_hole(struct hole *h, const char *addr, uint16_t port)
{
	struct sockaddr_in in = {.sin_family = AF_INET};

	h->listening = bound_at(addr, port, SOCK_STREAM, 0);
	in.sin_port = htons(port_of(h->listening));
	assert_int_equal(inet_pton(AF_INET, addr, &in.sin_addr), 1);
	for (size_t i = 0; i < ARRAY_LEN(h->queued); i++) {
		h->queued[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		connect(h->queued[i], (struct sockaddr *)&in, sizeof(in));
	}
}

static void close_hole(struct hole *h)
{
	for (size_t i = 0; i < ARRAY_LEN(h->queued); i++)
		close(h->queued[i]);
	close(h->listening);
}

static void test_connects(void **state)
{
	const char *const addrs[] = {"127.0.0.1"};
	int ls = bound_at("127.0.0.1", 0, SOCK_STREAM, 4);
	struct ipaddr want = ip("127.0.0.1");
	size_t before = count_fds();
	struct result r;
	socklen_t n = sizeof(int);
	int nodelay = 0;

	(void)state;
	assert_true(dial(&r, addrs, 1, port_of(ls), 1000) < 200);
	assert_true(r.fd >= 0);
	assert_true(ipaddr_eq(&r.addr, &want));
	assert_true(fcntl(r.fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(r.fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(getsockopt(r.fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, &n), 0);
	assert_true(nodelay);
	close(r.fd);
	assert_int_equal(count_fds(), before);
	close(ls);
}

static void test_refused_names_the_address(void **state)
{
	const char *const addrs[] = {"127.0.0.1", "127.0.0.2"};
	int fd = bound_at("127.0.0.1", 0, SOCK_STREAM, -1);
	size_t before = count_fds();
	struct result r;
	char want[64];

	(void)state;
	assert_true(dial(&r, addrs, 2, port_of(fd), 1000) < 200);
	assert_int_equal(r.fd, -1);
	assert_int_equal(r.e.reason, REASON_CONNECT_REFUSED);
	assert_int_equal(r.e.sys_errno, ECONNREFUSED);
	for (size_t i = 0; i < 2; i++) {
		snprintf(want, sizeof(want), "%s:%u: Connection refused", addrs[i], port_of(fd));
		assert_non_null(strstr(r.e.text, want));
	}
	assert_int_equal(count_fds(), before);
	close(fd);
}

/* Taken and reset before the loop has looked: that is no refusal. */
static void test_reset_at_once_is_no_refusal(void **state)
{
	const char *const addrs[] = {"127.0.0.1", "127.0.0.2"};
	const struct linger at_once = {.l_onoff = 1};
	int ls = bound_at("127.0.0.1", 0, SOCK_STREAM, 4);
	size_t before = count_fds();

	(void)state;
	for (int ended = 0; ended < 2; ended++) {
		struct loop *l = new_loop();
		struct result r;
		int fd;

		start(&r, l, addrs, 2, port_of(ls), 1000);
		fd = accept(ls, NULL, NULL);
		assert_true(fd >= 0);
		if (ended)
			assert_int_equal(shutdown(fd, SHUT_WR), 0);
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)),
				 0);
		close(fd);
		run_loop(l, 3000);
		loop_free(l);
		assert_int_equal(r.calls, 1);
		assert_int_equal(r.fd, -1);
		assert_int_equal(r.e.reason, REASON_UPSTREAM_CLOSED);
		assert_int_equal(r.e.sys_errno, ended ? EPIPE : ECONNRESET);
		assert_non_null(strstr(r.e.text, "127.0.0.2:")); /* the next one was tried */
	}
	assert_int_equal(count_fds(), before);
	close(ls);
}

/* The next address at once, not after the delay. */
static void test_falls_back_at_once_when_refused(void **state)
{
	const char *const addrs[] = {"::1", "127.0.0.2", "127.0.0.1"};
	const char *const no_route[] = {"224.0.0.1", "ff02::1", "127.0.0.1"};
	int ls = bound_at("127.0.0.1", 0, SOCK_STREAM, 4);
	struct ipaddr want = ip("127.0.0.1");
	struct result r;

	(void)state;
	assert_true(dial(&r, addrs, 3, port_of(ls), 1000) < 200);
	assert_true(r.fd >= 0);
	assert_true(ipaddr_eq(&r.addr, &want));
	close(r.fd);
	/* And those that the kernel refuses before a packet is sent. */
	assert_true(dial(&r, no_route, 3, port_of(ls), 1000) < 200);
	assert_true(r.fd >= 0);
	assert_true(ipaddr_eq(&r.addr, &want));
	close(r.fd);
	close(ls);
}

static void test_black_hole_delays_by_250_ms(void **state)
{
	const char *const addrs[] = {"127.0.0.2", "127.0.0.1"};
	int ls = bound_at("127.0.0.1", 0, SOCK_STREAM, 4);
	struct ipaddr want = ip("127.0.0.1");
	struct result r;
	struct hole hole;
	size_t before;
	int64_t took;

	(void)state;
	open_hole(&hole, "127.0.0.2", port_of(ls));
	before = count_fds();
	took = dial(&r, addrs, 2, port_of(ls), 2000);
	assert_true(took >= LIMIT_MS_ATTEMPT_DELAY - 20 && took < LIMIT_MS_ATTEMPT_DELAY + 200);
	assert_true(r.fd >= 0);
	assert_true(ipaddr_eq(&r.addr, &want));
	close(r.fd);
	assert_int_equal(count_fds(), before); /* the loser is closed */
	close_hole(&hole);
	close(ls);
}

/* Attempts overlap: one that is slow but in time still wins over later ones that fail. The queue
 * is emptied while the dial waits, so the SYN's retransmission (after a second) gets through. */
static void drain_hole(void *arg)
{
	struct hole *h = arg;

	for (int i = 0; i < 2; i++) {
		int fd = accept(h->listening, NULL, NULL);

		if (fd >= 0)
			close(fd);
	}
}

static void test_slow_attempt_is_not_aborted(void **state)
{
	const char *const addrs[] = {"127.0.0.2", "127.0.0.3"};
	struct loop *l = new_loop();
	struct ipaddr want = ip("127.0.0.2");
	struct result r;
	struct hole hole;
	struct timer t;

	(void)state;
	open_hole(&hole, "127.0.0.2", 0);
	set_nonblocking(hole.listening);
	assert_int_equal(timer_init(&t, l, drain_hole, &hole), 0);
	start(&r, l, addrs, 2, port_of(hole.listening), 2500);
	timer_arm(&t, 400);
	run_loop(l, 3000);
	assert_true(r.fd >= 0);
	assert_true(ipaddr_eq(&r.addr, &want));
	close(r.fd);
	timer_clear(&t);
	loop_free(l);
	close_hole(&hole);
}

static void test_times_out(void **state)
{
	const char *const addrs[] = {"127.0.0.2"};
	struct result r;
	struct hole hole;
	size_t before;
	int64_t took;

	(void)state;
	open_hole(&hole, "127.0.0.2", 0);
	before = count_fds();
	took = dial(&r, addrs, 1, port_of(hole.listening), 300);
	assert_true(took >= 280 && took < 500);
	assert_int_equal(r.e.reason, REASON_CONNECT_TIMEOUT);
	assert_non_null(strstr(r.e.text, "127.0.0.2"));
	assert_int_equal(count_fds(), before);
	close_hole(&hole);
}

/* A refusal says more than silence, whichever came first. */
static void test_refused_ranks_before_timeout(void **state)
{
	const char *const orders[][2] = {{"127.0.0.2", "127.0.0.3"}, {"127.0.0.3", "127.0.0.2"}};
	struct result r;
	struct hole hole;

	(void)state;
	open_hole(&hole, "127.0.0.2", 0);
	for (size_t i = 0; i < 2; i++) {
		dial(&r, orders[i], 2, port_of(hole.listening), 350);
		assert_int_equal(r.e.reason, REASON_CONNECT_REFUSED);
		assert_non_null(strstr(r.e.text, "127.0.0.2"));
		assert_non_null(strstr(r.e.text, "127.0.0.3"));
	}
	close_hole(&hole);
}

static void test_unreachable(void **state)
{
	/* A TCP connection to a group is refused by the kernel itself. */
	const char *const addrs[] = {"224.0.0.1"};
	struct result r;

	(void)state;
	assert_true(dial(&r, addrs, 1, 80, 1000) < 200);
	assert_int_equal(r.e.reason, REASON_CONNECT_UNREACHABLE);
}

static void test_attempts_are_bounded(void **state)
{
	const char *const addrs[] = {"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5",
				     "127.0.0.6", "127.0.0.7", "127.0.0.1"};
	int ls = bound_at("127.0.0.1", 0, SOCK_STREAM, 4);
	struct result r;

	(void)state;
	assert_int_equal(LIMIT_DIAL_ATTEMPTS, 6);
	dial(&r, addrs, 7, port_of(ls), 1000);
	assert_int_equal(r.fd, -1);
	assert_null(strstr(r.e.text, "127.0.0.1:"));
	dial(&r, addrs + 1, 6, port_of(ls), 1000);
	assert_true(r.fd >= 0);
	close(r.fd);
	close(ls);
}

/* Linux takes these for this host. */
static void test_unspecified_and_port_0(void **state)
{
	const char *const addrs[] = {"0.0.0.0", "::", "::ffff:0.0.0.0"};
	const char *const good[] = {"127.0.0.1"};
	int ls = bound_at("127.0.0.1", 0, SOCK_STREAM, 4);
	struct result r;

	(void)state;
	dial(&r, addrs, 3, port_of(ls), 1000);
	assert_int_equal(r.fd, -1);
	assert_int_equal(r.e.reason, REASON_CONNECT_UNREACHABLE);
	dial(&r, good, 1, 0, 1000);
	assert_int_equal(r.fd, -1);
	assert_int_equal(r.e.reason, REASON_CONNECT_UNREACHABLE);
	dial(&r, good, 0, port_of(ls), 1000);
	assert_int_equal(r.fd, -1);
	assert_int_equal(r.e.reason, REASON_CONNECT_UNREACHABLE);
	close(ls);
}

static void test_cancel(void **state)
{
	const char *const addrs[] = {"127.0.0.1"};
	int ls = bound_at("127.0.0.1", 0, SOCK_STREAM, 4);
	struct loop *l = new_loop();
	size_t before = count_fds();
	struct result r;

	(void)state;
	dial_cancel(start(&r, l, addrs, 1, port_of(ls), 1000));
	dial_cancel(NULL);
	/* And one whose failure is already on its way. */
	dial_cancel(start(&r, l, addrs, 1, 0, 1000));
	run_for(l, 20);
	assert_int_equal(r.calls, 0);
	assert_int_equal(count_fds(), before);
	loop_free(l);
	close(ls);
}

static void test_out_of_descriptors(void **state)
{
	const char *const addrs[] = {"127.0.0.1"};
	int ls = bound_at("127.0.0.1", 0, SOCK_STREAM, 4);
	struct loop *l = new_loop();
	struct rlimit old, low;
	struct result r;
	int next = dup(0);

	(void)state;
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = (rlim_t)next;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	start(&r, l, addrs, 1, port_of(ls), 1000);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	run_loop(l, 1000);
	assert_int_equal(r.fd, -1);
	assert_int_equal(r.e.reason, REASON_OVERLOADED);
	loop_free(l);
	close(ls);
}

/* In a network of its own, where there is one port to connect from: the one that is dialled. */
static int self_connect_child(void)
{
	const char *const addrs[] = {"127.0.0.1"};
	struct ifreq ifr = {.ifr_name = "lo"};
	struct result r;
	int fd, s;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return 77;
	s = socket(AF_INET, SOCK_DGRAM, 0);
	ifr.ifr_flags = IFF_UP;
	if (ioctl(s, SIOCSIFFLAGS, &ifr) < 0)
		return 77;
	close(s);
	fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY);
	if (fd < 0 || write(fd, "40000 40000", 11) != 11)
		return 77;
	close(fd);
	dial(&r, addrs, 1, 40000, 1000);
	return r.fd == -1 && r.e.reason == REASON_CONNECT_REFUSED && strstr(r.e.text, "itself") ? 0
												: 1;
}

static void test_self_connect_is_refused(void **state)
{
	int status = -1;
	pid_t pid;

	(void)state;
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(self_connect_child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connects),
		cmocka_unit_test(test_refused_names_the_address),
		cmocka_unit_test(test_reset_at_once_is_no_refusal),
		cmocka_unit_test(test_falls_back_at_once_when_refused),
		cmocka_unit_test(test_black_hole_delays_by_250_ms),
		cmocka_unit_test(test_slow_attempt_is_not_aborted),
		cmocka_unit_test(test_times_out),
		cmocka_unit_test(test_refused_ranks_before_timeout),
		cmocka_unit_test(test_unreachable),
		cmocka_unit_test(test_attempts_are_bounded),
		cmocka_unit_test(test_unspecified_and_port_0),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_out_of_descriptors),
		cmocka_unit_test(test_self_connect_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
