/*
 * What the tests of net/ share: a loop that runs until something has happened, loopback sockets,
 * and a count of open descriptors.
 */
#ifndef STILE_TESTS_NET_TEST_H
#define STILE_TESTS_NET_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "logging/attrs.h"
#include "policy/ipaddr.h"
#include "proxy/net/loop.h"

#define UNUSED __attribute__((unused))

static UNUSED struct ipaddr ip(const char *text)
{
	struct ipaddr a = {0};

	assert_int_equal(ipaddr_parse(str_from_c(text), &a), 0);
	return a;
}

static UNUSED int64_t clock_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void stop_loop(void *arg)
{
	loop_stop(arg);
}

/* Runs the loop until somebody stops it; fails the test after max_ms. */
static UNUSED void run_loop(struct loop *l, uint64_t max_ms)
{
	struct timer t;
	bool in_time;

	assert_int_equal(timer_init(&t, l, stop_loop, l), 0);
	loop_clock_us(l);
	timer_arm(&t, max_ms);
	loop_run(l);
	in_time = t.armed;
	timer_clear(&t);
	assert_true(in_time);
}

/* Runs it for a while, whatever happens. */
static UNUSED void run_for(struct loop *l, uint64_t ms)
{
	struct timer t;

	assert_int_equal(timer_init(&t, l, stop_loop, l), 0);
	loop_clock_us(l);
	timer_arm(&t, ms);
	loop_run(l);
	timer_clear(&t);
}

static UNUSED struct loop *new_loop(void)
{
	struct loop *l = NULL;

	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(loop_new(&l, NULL), 0);
	return l;
}

static UNUSED size_t count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 3; /* "." and ".." and the directory itself */
}

static UNUSED uint16_t port_of(int fd)
{
	struct sockaddr_in in;
	socklen_t n = sizeof(in);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &n), 0);
	return ntohs(in.sin_port); /* stands at the same place in both families */
}

/* Bound to a free port (or the one given); with a backlog, listening. -1: the port is taken. */
static UNUSED int try_bound_at(const char *addr, uint16_t port, int type, int backlog)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), on = 1;

	assert_true(fd >= 0);
	assert_int_equal(inet_pton(AF_INET, addr, &in.sin_addr), 1);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&in, sizeof(in)) < 0) {
		close(fd);
		return -1;
	}
	if (backlog >= 0)
		assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

static UNUSED int bound_at(const char *addr, uint16_t port, int type, int backlog)
{
	int fd = try_bound_at(addr, port, type, backlog);

	assert_true(fd >= 0);
	return fd;
}

static UNUSED int connect_to(uint16_t port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	return fd;
}

static UNUSED void set_nonblocking(int fd)
{
	assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

/* Two ends of one TCP connection, blocking. */
static UNUSED void tcp_pair(int *ret_a, int *ret_b)
{
	int ls = bound_at("127.0.0.1", 0, SOCK_STREAM, 4);

	*ret_a = connect_to(port_of(ls));
	*ret_b = accept4(ls, NULL, NULL, SOCK_CLOEXEC);
	assert_true(*ret_b >= 0);
	close(ls);
}

#endif
