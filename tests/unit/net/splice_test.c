/*
 * The relay: bytes arrive as they were sent, ends and resets are passed on, a slow side stops the
 * other, an idle tunnel holds no pipe, and nothing a peer can do makes it spin.
 */
#include "net_test.h"

#include <pthread.h>
#include <sys/resource.h>

#include "proxy/net/splice.h"

struct tunnel {
	struct loop *loop;
	struct splice *splice;
	int a, b;	      /* the peers' ends */
	int relay_a, relay_b; /* the relay's, until it has them */
	int calls;
	enum splice_end how;
	uint64_t a_to_b, b_to_a;
};

static void on_done(void *arg, enum splice_end how)
{
	struct tunnel *t = arg;

	t->calls++;
	t->how = how;
	t->a_to_b = splice_bytes_a_to_b(t->splice);
	t->b_to_a = splice_bytes_b_to_a(t->splice);
	loop_stop(t->loop);
}

static void start(struct tunnel *t, uint64_t idle_ms)
{
	set_nonblocking(t->relay_a);
	set_nonblocking(t->relay_b);
	assert_int_equal(splice_start(t->loop, t->relay_a, t->relay_b, idle_ms, on_done, t,
				      &t->splice, NULL),
			 0);
}

static void setup(struct tunnel *t, uint64_t idle_ms)
{
	*t = (struct tunnel){.loop = new_loop()};
	tcp_pair(&t->a, &t->relay_a);
	tcp_pair(&t->b, &t->relay_b);
	start(t, idle_ms);
}

static void teardown(struct tunnel *t)
{
	loop_free(t->loop);
	if (t->a >= 0)
		close(t->a);
	if (t->b >= 0)
		close(t->b);
}

static void reset(int *fd)
{
	struct linger hard = {.l_onoff = 1};

	setsockopt(*fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(*fd);
	*fd = -1;
}

static void expect(int fd, const char *text)
{
	char buf[64];
	ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);

	assert_int_equal(n, strlen(text));
	assert_memory_equal(buf, text, strlen(text));
}

/* ---- bytes ---- */

#define BULK 8000000

static unsigned char byte_at(size_t i)
{
	return (unsigned char)((i * 2654435761U) >> 13);
}

static void *send_bulk(void *arg)
{
	int fd = *(int *)arg;
	unsigned char buf[5000];

	for (size_t sent = 0; sent < BULK;) {
		for (size_t i = 0; i < sizeof(buf); i++)
			buf[i] = byte_at(sent + i);
		size_t want = BULK - sent < sizeof(buf) ? BULK - sent : sizeof(buf);
		ssize_t n = send(fd, buf, want, MSG_NOSIGNAL);

		if (n < 0)
			return arg;
		sent += (size_t)n;
	}
	shutdown(fd, SHUT_WR);
	return NULL;
}

/* NULL when exactly the bytes of send_bulk came, and then the end. */
static void *recv_bulk(void *arg)
{
	int fd = *(int *)arg;
	unsigned char buf[7001];
	size_t got = 0;
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		for (ssize_t i = 0; i < n; i++)
			if (buf[i] != byte_at(got++))
				return arg;
	return n == 0 && got == BULK ? NULL : arg;
}

/* Both ways at once, while the loop runs; true when all came over. */
static bool relay_bulk(struct tunnel *t)
{
	void *(*const work[4])(void *) = {send_bulk, recv_bulk, send_bulk, recv_bulk};
	int *fds[4] = {&t->a, &t->b, &t->b, &t->a};
	pthread_t threads[4];
	bool ok = true;

	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work[i], fds[i]), 0);
	run_loop(t->loop, 10000);
	for (size_t i = 0; i < 4; i++) {
		void *bad;

		pthread_join(threads[i], &bad);
		ok = ok && !bad;
	}
	return ok;
}

static void test_bulk_both_ways(void **state)
{
	struct tunnel t;

	(void)state;
	setup(&t, 5000);
	assert_true(relay_bulk(&t));
	assert_int_equal(t.calls, 1);
	assert_int_equal(t.how, SPLICE_DONE);
	assert_int_equal(t.a_to_b, BULK);
	assert_int_equal(t.b_to_a, BULK);
	teardown(&t);
}

/* No descriptor left for a pipe: the bytes are copied. */
static void test_bulk_without_pipes(void **state)
{
	struct rlimit old, low;
	struct tunnel t;
	bool ok;

	(void)state;
	setup(&t, 5000);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	ok = relay_bulk(&t);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_true(ok);
	assert_int_equal(t.how, SPLICE_DONE);
	assert_int_equal(t.a_to_b, BULK);
	teardown(&t);
}

static void test_bulk_over_unix_sockets(void **state)
{
	struct tunnel t = {.loop = new_loop()};
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	t.a = pair[0];
	t.relay_a = pair[1];
	tcp_pair(&t.b, &t.relay_b);
	start(&t, 5000);
	assert_true(relay_bulk(&t));
	assert_int_equal(t.how, SPLICE_DONE);
	assert_int_equal(t.b_to_a, BULK);
	teardown(&t);
}

/* ---- ends ---- */

static void test_half_close(void **state)
{
	struct tunnel t;
	char c;

	(void)state;
	setup(&t, 5000);
	assert_int_equal(send(t.a, "ask", 3, 0), 3);
	shutdown(t.a, SHUT_WR);
	run_for(t.loop, 20);
	expect(t.b, "ask");
	assert_int_equal(recv(t.b, &c, 1, MSG_DONTWAIT), 0);
	assert_int_equal(t.calls, 0);
	assert_int_equal(recv(t.a, &c, 1, MSG_DONTWAIT), -1); /* the other way is open */
	assert_int_equal(send(t.b, "answer", 6, 0), 6);
	close(t.b);
	t.b = -1;
	run_loop(t.loop, 1000);
	expect(t.a, "answer");
	assert_int_equal(recv(t.a, &c, 1, MSG_DONTWAIT), 0);
	assert_int_equal(t.how, SPLICE_DONE);
	assert_int_equal(t.a_to_b, 3);
	assert_int_equal(t.b_to_a, 6);
	teardown(&t);
}

static void expect_reset(int fd)
{
	char c;

	assert_int_equal(recv(fd, &c, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, ECONNRESET);
}

static void test_reset_is_passed_on(void **state)
{
	struct tunnel t;

	(void)state;
	setup(&t, 5000);
	reset(&t.a);
	run_loop(t.loop, 1000);
	assert_int_equal(t.how, SPLICE_RESET_A);
	expect_reset(t.b);
	teardown(&t);

	setup(&t, 5000);
	reset(&t.b);
	run_loop(t.loop, 1000);
	assert_int_equal(t.how, SPLICE_RESET_B);
	expect_reset(t.a);
	teardown(&t);
}

/* One side has ended and is gone; what the other still sends meets a reset, and hears of it. */
static void test_write_to_a_dead_side(void **state)
{
	struct tunnel t;
	char c;

	(void)state;
	setup(&t, 5000);
	close(t.a);
	t.a = -1;
	run_for(t.loop, 10);
	assert_int_equal(recv(t.b, &c, 1, MSG_DONTWAIT), 0);
	assert_int_equal(t.calls, 0);
	assert_int_equal(send(t.b, "x", 1, 0), 1);
	run_for(t.loop, 10);
	send(t.b, "y", 1, MSG_NOSIGNAL);
	if (!t.calls)
		run_loop(t.loop, 1000);
	assert_int_equal(t.how, SPLICE_RESET_A);
	/* Behind a FIN a reset is no longer read, but it is met when writing. */
	assert_int_equal(send(t.b, "z", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	teardown(&t);
}

static void test_cancel(void **state)
{
	size_t before = count_fds();
	struct tunnel t;
	char c;

	(void)state;
	setup(&t, 5000);
	assert_int_equal(send(t.a, "x", 1, 0), 1);
	run_for(t.loop, 10);
	expect(t.b, "x");
	splice_cancel(t.splice, false);
	splice_cancel(NULL, true);
	assert_int_equal(recv(t.b, &c, 1, MSG_DONTWAIT), 0);
	run_for(t.loop, 10);
	assert_int_equal(t.calls, 0);
	teardown(&t);

	setup(&t, 5000);
	splice_cancel(t.splice, true);
	expect_reset(t.a);
	expect_reset(t.b);
	teardown(&t);
	assert_true(count_fds() <= before + 2); /* the thread's one spare pipe */
}

/* ---- time, memory, processor ---- */

static void test_idle(void **state)
{
	struct tunnel t;
	int64_t from;
	char c;

	(void)state;
	setup(&t, 100);
	from = clock_ms();
	for (int i = 0; i < 4; i++) { /* not idle while something moves, whichever way */
		assert_int_equal(send(i % 2 ? t.a : t.b, "x", 1, 0), 1);
		run_for(t.loop, 60);
		assert_int_equal(t.calls, 0);
	}
	run_loop(t.loop, 1000);
	assert_int_equal(t.how, SPLICE_IDLE);
	assert_true(clock_ms() - from >= 260 && clock_ms() - from < 400);
	expect(t.a, "xx");
	assert_int_equal(recv(t.a, &c, 1, MSG_DONTWAIT), 0);
	teardown(&t);
}

/* What a blocking sender gets rid of when nobody reads; more would be a buffer without a bound. */
static size_t fill(struct tunnel *t)
{
	static char block[65536];
	size_t sent = 0;
	int quiet = 0;

	while (quiet < 3) {
		ssize_t n = send(t->a, block, sizeof(block), MSG_DONTWAIT);

		quiet = n > 0 ? 0 : quiet + 1;
		sent += n > 0 ? (size_t)n : 0;
		run_for(t->loop, 2);
	}
	return sent;
}

/* Reads until `want` bytes are here; small windows make TCP think before it sends on. */
static size_t drain(struct tunnel *t, size_t want)
{
	static char block[65536];
	int64_t until = clock_ms() + 3000;
	size_t got = 0;

	while (got < want && clock_ms() < until) {
		ssize_t n = recv(t->b, block, sizeof(block), MSG_DONTWAIT);

		got += n > 0 ? (size_t)n : 0;
		run_for(t->loop, 2);
	}
	return got;
}

static void shrink(int fd)
{
	int size = 16384;

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

static void test_slow_reader_stops_the_writer(void **state)
{
	struct tunnel t = {.loop = new_loop()};
	size_t sent;
	clock_t cpu;

	(void)state;
	tcp_pair(&t.a, &t.relay_a);
	tcp_pair(&t.b, &t.relay_b);
	shrink(t.a);
	shrink(t.b);
	shrink(t.relay_a);
	shrink(t.relay_b);
	start(&t, 300);
	sent = fill(&t);
	assert_true(sent > 0 && sent < 1000000);
	cpu = clock();
	run_for(t.loop, 50);
	assert_true(clock() - cpu < CLOCKS_PER_SEC / 50); /* it waits, it does not spin */
	assert_int_equal(drain(&t, sent), sent);
	/* Stuck again, for good: the idle time ends it, and as bytes are lost, with resets. */
	fill(&t);
	run_loop(t.loop, 1000);
	assert_int_equal(t.how, SPLICE_IDLE);
	run_for(t.loop, 5);
	assert_int_equal(send(t.a, "x", 1, MSG_NOSIGNAL), -1);
	teardown(&t);
}

/* tcp_splice_read() never gets past an urgent byte. */
static void test_urgent_byte_does_not_spin(void **state)
{
	struct tunnel t;
	clock_t cpu;

	(void)state;
	setup(&t, 5000);
	assert_int_equal(send(t.a, "one", 3, 0), 3);
	assert_int_equal(send(t.a, "!", 1, MSG_OOB), 1);
	assert_int_equal(send(t.a, "two", 3, 0), 3);
	cpu = clock();
	run_for(t.loop, 100);
	assert_true(clock() - cpu < CLOCKS_PER_SEC / 20);
	expect(t.b, "onetwo");
	assert_int_equal(send(t.a, "!", 1, MSG_OOB), 1);
	shutdown(t.a, SHUT_WR);
	shutdown(t.b, SHUT_WR);
	run_loop(t.loop, 1000);
	assert_int_equal(t.how, SPLICE_DONE);
	teardown(&t);
}

static void test_idle_tunnel_holds_no_pipe(void **state)
{
	struct tunnel t[8];
	struct loop *l = new_loop();
	size_t before;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		t[i] = (struct tunnel){.loop = l};
		tcp_pair(&t[i].a, &t[i].relay_a);
		tcp_pair(&t[i].b, &t[i].relay_b);
	}
	before = count_fds();
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		start(&t[i], 5000);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		assert_int_equal(send(t[i].a, "x", 1, 0), 1);
		assert_int_equal(send(t[i].b, "y", 1, 0), 1);
	}
	run_for(l, 20);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		expect(t[i].a, "y");
		expect(t[i].b, "x");
	}
	/* All of them took turns with one, or with those that were spare from before. */
	assert_true(count_fds() <= before + 2);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		splice_cancel(t[i].splice, false);
		close(t[i].a);
		close(t[i].b);
	}
	loop_free(l);
}

/* A thread's spare pipes end with it. */
static void *relay_in_thread(void *arg)
{
	struct tunnel t;

	setup(&t, 5000);
	assert_int_equal(send(t.a, "x", 1, 0), 1);
	run_for(t.loop, 10);
	splice_cancel(t.splice, false);
	teardown(&t);
	return arg;
}

static void test_pipes_end_with_the_thread(void **state)
{
	size_t before = count_fds();
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, relay_in_thread, NULL), 0);
	pthread_join(thread, NULL);
	assert_int_equal(count_fds(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First: afterwards this thread may have a spare pipe. */
		cmocka_unit_test(test_bulk_without_pipes),
		cmocka_unit_test(test_idle_tunnel_holds_no_pipe),
		cmocka_unit_test(test_bulk_both_ways),
		cmocka_unit_test(test_bulk_over_unix_sockets),
		cmocka_unit_test(test_half_close),
		cmocka_unit_test(test_reset_is_passed_on),
		cmocka_unit_test(test_write_to_a_dead_side),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_slow_reader_stops_the_writer),
		cmocka_unit_test(test_urgent_byte_does_not_spin),
		cmocka_unit_test(test_pipes_end_with_the_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
