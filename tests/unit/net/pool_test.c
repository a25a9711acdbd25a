/*
 * Idle connections: freshest first, bounds, the one timer, and that nothing is handed out that the
 * origin has closed or spoken on.
 */
#include "net_test.h"

#include "proxy/net/pool.h"

struct origin {
	struct loop *loop;
	struct pool *pool;
	int ends[16]; /* the origin's */
	size_t n;
	unsigned events; /* of a stream that was taken */
};

static void setup(struct origin *o, size_t max, size_t per_key, uint64_t idle_ms)
{
	*o = (struct origin){.loop = new_loop()};
	assert_int_equal(pool_new(o->loop, max, per_key, idle_ms, &o->pool, NULL), 0);
}

static void teardown(struct origin *o)
{
	pool_free(o->pool);
	loop_free(o->loop);
	for (size_t i = 0; i < o->n; i++)
		close(o->ends[i]);
}

static void on_event(void *arg, unsigned events)
{
	struct origin *o = arg;

	o->events |= events;
}

static struct stream *open_stream(struct origin *o)
{
	struct stream *s = NULL;
	int a;

	tcp_pair(&a, &o->ends[o->n++]);
	set_nonblocking(a);
	assert_int_equal(stream_new(o->loop, a, on_event, o, &s, NULL), 0);
	return s;
}

static void put_as(struct origin *o, struct str key, struct stream *s, const struct ipaddr *a,
		   uint16_t port)
{
	struct pool_key *k = pool_key_new(o->pool, key);

	assert_non_null(k);
	pool_put(o->pool, k, s, a, port, 0);
	pool_key_unref(k);
}

static struct stream *take_as(struct origin *o, struct str key, struct ipaddr *ret_addr,
			      uint16_t *ret_port)
{
	struct pool_key *k = pool_key_new(o->pool, key);
	struct stream *s = pool_take(o->pool, k, ret_addr, ret_port);

	pool_key_unref(k);
	return s;
}

/* A connection for key; its port tells it apart. */
static struct stream *put(struct origin *o, const char *key, uint16_t port)
{
	struct ipaddr a = ip("127.0.0.1");
	struct stream *s = open_stream(o);

	put_as(o, str_from_c(key), s, &a, port);
	return s;
}

/* The port of the one that is taken (and closed again), or 0. */
static uint16_t take(struct origin *o, const char *key)
{
	struct ipaddr want = ip("127.0.0.1"), a;
	uint16_t port = 0;
	struct stream *s = take_as(o, str_from_c(key), &a, &port);

	if (!s)
		return 0;
	assert_true(ipaddr_eq(&a, &want));
	stream_close(s);
	return port;
}

static bool is_closed(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_DONTWAIT) == 0;
}

static void test_freshest_first(void **state)
{
	struct origin o;

	(void)state;
	setup(&o, 10, 10, 1000);
	assert_int_equal(take(&o, "a"), 0);
	put(&o, "a", 1);
	put(&o, "b", 2);
	put(&o, "a", 3);
	put(&o, "aa", 4);
	assert_int_equal(pool_size(o.pool), 4);
	assert_int_equal(take(&o, "a"), 3);
	assert_int_equal(take(&o, "a"), 1);
	assert_int_equal(take(&o, "a"), 0);
	assert_int_equal(take(&o, "aa"), 4);
	assert_int_equal(take(&o, "b"), 2);
	assert_int_equal(pool_size(o.pool), 0);
	teardown(&o);
}

/* A key is bytes: what stands behind a NUL counts. */
static void test_keys_with_nul(void **state)
{
	struct ipaddr a = ip("127.0.0.1");
	struct origin o;
	uint16_t port;

	(void)state;
	setup(&o, 10, 10, 1000);
	put_as(&o, STR("k\0x"), open_stream(&o), &a, 1);
	assert_null(take_as(&o, STR("k\0y"), &a, &port));
	assert_null(take_as(&o, STR("k"), &a, &port));
	struct stream *s = take_as(&o, STR("k\0x"), &a, &port);
	assert_non_null(s);
	stream_close(s);
	teardown(&o);
}

/* One key made once serves as well as the same bytes made twice, and outlives what it was for. */
static void test_keys_are_counted(void **state)
{
	struct ipaddr a = ip("127.0.0.1");
	struct pool_key *k, *same, *other;
	struct origin o, p;
	uint16_t port;

	(void)state;
	setup(&o, 10, 10, 1000);
	setup(&p, 10, 10, 1000);
	k = pool_key_new(o.pool, STR("a"));
	same = pool_key_new(o.pool, STR("a"));
	other = pool_key_new(o.pool, STR("b"));
	assert_true(pool_key_eq(k, k) && pool_key_eq(k, same));
	assert_false(pool_key_eq(k, other));
	assert_string_equal(k->text, "a");
	/* Keyed: nobody can choose names that collide. */
	assert_true(k->hash == same->hash && k->hash != other->hash);
	pool_key_unref(other);
	other = pool_key_new(p.pool, STR("a"));
	assert_true(k->hash != other->hash);
	for (uint16_t i = 1; i <= 3; i++)
		pool_put(o.pool, k, open_stream(&o), &a, i, 0);
	pool_key_unref(k);
	for (uint16_t i = 3; i >= 1; i--) {
		struct stream *s = pool_take(o.pool, same, &a, &port);

		assert_non_null(s);
		assert_int_equal(port, i);
		stream_close(s);
	}
	assert_null(pool_take(o.pool, same, &a, &port));
	teardown(&o);
	teardown(&p);
	pool_key_unref(same);
	pool_key_unref(other);
}

static void test_bounds(void **state)
{
	struct origin o;

	(void)state;
	setup(&o, 3, 2, 1000);
	put(&o, "a", 1);
	put(&o, "a", 2);
	put(&o, "a", 3); /* 1 goes: the oldest of its key */
	assert_int_equal(pool_size(o.pool), 2);
	assert_true(is_closed(o.ends[0]));
	put(&o, "b", 4);
	put(&o, "c", 5); /* 2 goes: the oldest of all */
	assert_int_equal(pool_size(o.pool), 3);
	assert_true(is_closed(o.ends[1]));
	assert_int_equal(take(&o, "a"), 3);
	assert_int_equal(take(&o, "a"), 0);
	assert_int_equal(take(&o, "b"), 4);
	assert_int_equal(take(&o, "c"), 5);
	teardown(&o);
	setup(&o, 0, 0, 1000);
	put(&o, "a", 1);
	assert_int_equal(pool_size(o.pool), 0);
	assert_true(is_closed(o.ends[0]));
	teardown(&o);
}

static void test_closed_by_origin(void **state)
{
	struct linger hard = {.l_onoff = 1};
	struct origin o;

	(void)state;
	setup(&o, 10, 10, 1000);
	put(&o, "a", 1);
	put(&o, "a", 2);
	put(&o, "a", 3);
	put(&o, "a", 4);
	shutdown(o.ends[0], SHUT_WR);
	assert_int_equal(send(o.ends[1], "unasked", 7, 0), 7);
	setsockopt(o.ends[2], SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(o.ends[2]);
	run_for(o.loop, 20);
	assert_int_equal(pool_size(o.pool), 1);
	assert_int_equal(take(&o, "a"), 4);
	o.ends[2] = dup(0);
	teardown(&o);
}

/* A stream that is not fit for another request is not kept at all. */
static void test_unfit_is_not_kept(void **state)
{
	struct ipaddr a = ip("127.0.0.1");
	struct stream *s;
	struct origin o;

	(void)state;
	setup(&o, 10, 10, 1000);
	s = open_stream(&o);
	assert_int_equal(send(o.ends[0], "x", 1, 0), 1);
	run_for(o.loop, 10);
	assert_int_equal(stream_data(s).n, 1);
	put_as(&o, STR("a"), s, &a, 1);
	s = open_stream(&o);
	shutdown(o.ends[1], SHUT_WR);
	run_for(o.loop, 10);
	assert_true(stream_at_eof(s));
	put_as(&o, STR("a"), s, &a, 2);
	assert_int_equal(pool_size(o.pool), 0);
	/* Paused is no reason, but then it must hear again. */
	s = open_stream(&o);
	stream_pause(s);
	put_as(&o, STR("a"), s, &a, 3);
	assert_int_equal(pool_size(o.pool), 1);
	shutdown(o.ends[2], SHUT_WR);
	run_for(o.loop, 10);
	assert_int_equal(pool_size(o.pool), 0);
	teardown(&o);
}

static void test_idle_time(void **state)
{
	struct origin o;

	(void)state;
	setup(&o, 10, 10, 100);
	put(&o, "a", 1);
	run_for(o.loop, 60);
	put(&o, "b", 2);
	run_for(o.loop, 60); /* 120 ms: 1 is over, 2 is not */
	assert_int_equal(pool_size(o.pool), 1);
	assert_true(is_closed(o.ends[0]));
	run_for(o.loop, 70);
	assert_int_equal(pool_size(o.pool), 0);
	assert_true(is_closed(o.ends[1]));
	/* Emptied by hand, filled again: the timer is still right. */
	put(&o, "c", 3);
	run_for(o.loop, 60);
	assert_int_equal(take(&o, "c"), 3);
	put(&o, "c", 4);
	run_for(o.loop, 70);
	assert_int_equal(pool_size(o.pool), 1);
	run_for(o.loop, 60);
	assert_int_equal(pool_size(o.pool), 0);
	teardown(&o);
}

/* An origin that gives a connection less time than we do: it is not handed out behind that, and
 * goes when it is asked for or with the others. */
static void test_less_time(void **state)
{
	struct origin o;
	struct pool_key *k;
	struct ipaddr a = {0};
	uint16_t port;

	(void)state;
	setup(&o, 10, 10, 60000);
	k = pool_key_new(o.pool, STR("a"));
	pool_put(o.pool, k, open_stream(&o), &a, 1, 120000); /* no more than ours */
	pool_put(o.pool, k, open_stream(&o), &a, 2, 30);
	pool_put(o.pool, k, open_stream(&o), &a, 3, 30000);
	stream_close(pool_take(o.pool, k, &a, &port));
	assert_int_equal(port, 3);
	run_for(o.loop, 40);
	assert_int_equal(pool_size(o.pool), 2);
	stream_close(pool_take(o.pool, k, &a, &port));
	assert_int_equal(port, 1);
	assert_int_equal(pool_size(o.pool), 0);
	assert_true(is_closed(o.ends[1]));
	pool_key_unref(k);
	teardown(&o);
}

/* The loop did not turn for long: what is handed out is looked at first. */
static void test_take_looks_at_old_ones(void **state)
{
	struct timespec pause = {.tv_sec = 1, .tv_nsec = 20000000};
	struct origin o;

	(void)state;
	setup(&o, 10, 10, 60000);
	put(&o, "a", 1);
	put(&o, "a", 2);
	put(&o, "a", 3);
	shutdown(o.ends[2], SHUT_WR);
	assert_int_equal(send(o.ends[1], "x", 1, 0), 1);
	nanosleep(&pause, NULL);
	loop_clock_us(o.loop);
	assert_int_equal(take(&o, "a"), 1);
	assert_int_equal(pool_size(o.pool), 0);
	teardown(&o);
}

/* The new owner hears what the connection says, the pool no longer does. */
static void test_taken_is_the_callers(void **state)
{
	struct ipaddr a;
	struct stream *s;
	struct origin o;
	uint16_t port;

	(void)state;
	setup(&o, 10, 10, 50);
	put(&o, "a", 1);
	s = take_as(&o, STR("a"), &a, &port);
	assert_non_null(s);
	stream_set_owner(s, on_event, &o);
	assert_int_equal(send(o.ends[0], "x", 1, 0), 1);
	run_for(o.loop, 80); /* and the pool's timer passes by */
	assert_int_equal(o.events, STREAM_DATA);
	assert_int_equal(stream_data(s).n, 1);
	stream_close(s);
	teardown(&o);
}

static void test_close_all(void **state)
{
	struct origin o;

	(void)state;
	setup(&o, 10, 10, 1000);
	put(&o, "a", 1);
	put(&o, "b", 2);
	pool_close_all(o.pool);
	assert_int_equal(pool_size(o.pool), 0);
	assert_true(is_closed(o.ends[0]));
	assert_true(is_closed(o.ends[1]));
	put(&o, "a", 3);
	assert_int_equal(pool_size(o.pool), 1);
	teardown(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_freshest_first),
		cmocka_unit_test(test_keys_with_nul),
		cmocka_unit_test(test_keys_are_counted),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_closed_by_origin),
		cmocka_unit_test(test_unfit_is_not_kept),
		cmocka_unit_test(test_idle_time),
		cmocka_unit_test(test_less_time),
		cmocka_unit_test(test_take_looks_at_old_ones),
		cmocka_unit_test(test_taken_is_the_callers),
		cmocka_unit_test(test_close_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
