/*
 * What an HTTP/2 connection has to send goes out as far as the socket takes it, also beyond what
 * the stream's buffer holds at a time: nobody tells of room that was never missed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "logging/limits.h"
#include "proxy/session/h2_out.h"

#define STREAMS 3

static void on_event(void *arg, unsigned events)
{
	*(unsigned *)arg |= events;
}

/* All that one side has to say, into the other. */
static size_t carry(struct h2_conn *from, struct h2_conn *to)
{
	struct err e = ERR_INIT;
	size_t n = 0;

	for (;;) {
		struct str out = h2_conn_send(from);

		if (out.n == 0)
			return n;
		n += out.n;
		assert_int_equal(h2_conn_recv(to, out, 1, &e), 0);
	}
}

static void head(struct h2_fields *f, struct h2_field *v, size_t n)
{
	*f = (struct h2_fields){.v = v, .n = n};
}

/* A server with an answer of one full window on each of some streams. */
static void full_answers(struct h2_conn *client, struct h2_conn *server)
{
	struct h2_field ask[] = {{STR(":method"), STR("GET"), false},
				 {STR(":scheme"), STR("https"), false},
				 {STR(":authority"), STR("a.test"), false},
				 {STR(":path"), STR("/"), false}};
	struct h2_field say[] = {{STR(":status"), STR("200"), false}};
	char *body = calloc(1, LIMIT_H2_STREAM_OUT_BYTES);
	struct h2_stream *s;
	struct h2_fields f;

	head(&f, ask, ARRAY_LEN(ask));
	for (int i = 0; i < STREAMS; i++)
		assert_non_null(h2_stream_open(client, &f, false));
	(void)carry(server, client);
	(void)carry(client, server);
	(void)carry(server, client);
	head(&f, say, ARRAY_LEN(say));
	while ((s = h2_conn_ready(server))) {
		assert_int_equal(h2_stream_respond(s, &f, true), 0);
		assert_int_equal(h2_stream_room(s), LIMIT_H2_STREAM_OUT_BYTES);
		assert_int_equal(h2_stream_write(s, str_from(body, LIMIT_H2_STREAM_OUT_BYTES)), 0);
	}
	free(body);
}

static size_t take_all(int fd)
{
	char buf[65536];
	size_t n = 0;
	ssize_t r;

	while ((r = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		n += (size_t)r;
	return n;
}

static void run(int sndbuf)
{
	size_t want = (size_t)STREAMS * LIMIT_H2_STREAM_OUT_BYTES, got = 0;
	struct h2_conn *client, *server;
	struct err e = ERR_INIT;
	unsigned seen = 0;
	struct loop *loop;
	struct stream *s;
	int fds[2];

	assert_int_equal(loop_new(&loop, &e), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	assert_int_equal(stream_new(loop, fds[0], on_event, &seen, &s, &e), 0);
	assert_int_equal(h2_conn_new(false, &client, &e), 0);
	assert_int_equal(h2_conn_new(true, &server, &e), 0);
	full_answers(client, server);

	/* Each time either the buffer is full, or all is said. */
	for (int turn = 0; turn < 1000 && got < want; turn++) {
		bool any = h2_out(server, s);

		assert_true(any || turn > 0);
		if (stream_room(s) > 0)
			assert_int_equal(h2_conn_send(server).n, 0);
		got += take_all(fds[1]);
	}
	assert_true(got >= want);
	h2_conn_free(client);
	h2_conn_free(server);
	stream_close(s);
	close(fds[1]);
	loop_free(loop);
}

static void test_a_socket_that_takes_much(void **state)
{
	(void)state;
	run(1 << 20);
}

static void test_a_socket_that_takes_little(void **state)
{
	(void)state;
	run(4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_socket_that_takes_much),
		cmocka_unit_test(test_a_socket_that_takes_little),
	};

	return cmocka_run_group_tests_name("h2_out", tests, NULL, NULL);
}
