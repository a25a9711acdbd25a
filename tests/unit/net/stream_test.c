/*
 * Streams over socket pairs, plain and TLS: what is delivered, what is kept, what is bounded, and
 * how it ends. Each test runs a real loop until a condition holds or a bounded number of turns is
 * over.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "certs/signer.h"
#include "certs/trust.h"
#include "logging/limits.h"
#include "proxy/net/stream.h"

struct side {
	struct loop *loop;
	struct stream *s;
	unsigned seen; /* all events so far */
	size_t got;    /* bytes consumed */
	uint32_t sum;  /* of them */
	size_t leave;  /* do not consume more than this a callback; 0: all */
	bool stop_on_event;
};

static struct loop *loop;
static struct timer guard;
static bool timed_out;

static void on_guard(void *arg)
{
	(void)arg;
	timed_out = true;
	loop_stop(loop);
}

static void on_event(void *arg, unsigned events)
{
	struct side *d = arg;
	struct str in = stream_data(d->s);
	size_t n = d->leave && in.n > d->leave ? d->leave : in.n;

	d->seen |= events;
	for (size_t i = 0; i < n; i++)
		d->sum = d->sum * 31 + (unsigned char)in.p[i];
	d->got += n;
	stream_consume(d->s, n);
	if (d->stop_on_event)
		loop_stop(loop);
}

static void on_tick(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

/* Runs the loop for some ms: for "nothing more happens". */
static void run_ms(unsigned ms)
{
	struct timer t;

	assert_int_equal(timer_init(&t, loop, on_tick, NULL), 0);
	timer_arm(&t, ms);
	loop_run(loop);
	timer_clear(&t);
}

/* Runs until *value reaches want, in small slices; at most 5 s. */
#define RUN_UNTIL(cond)                                                                            \
	do {                                                                                       \
		for (int turn = 0; turn < 500 && !(cond); turn++)                                  \
			run_ms(10);                                                                \
		assert_true(cond);                                                                 \
	} while (0)

static void pair(struct side *a, int *ret_raw)
{
	int fds[2];
	struct err e = ERR_INIT;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	memset(a, 0, sizeof(*a));
	assert_int_equal(stream_new(loop, fds[0], on_event, a, &a->s, &e), 0);
	*ret_raw = fds[1];
}

static void pair_streams(struct side *a, struct side *b)
{
	int raw;
	struct err e = ERR_INIT;

	pair(a, &raw);
	memset(b, 0, sizeof(*b));
	assert_int_equal(stream_new(loop, raw, on_event, b, &b->s, &e), 0);
}

static int setup(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	timed_out = false;
	return loop_new(&loop, &e) < 0 || timer_init(&guard, loop, on_guard, NULL) < 0;
}

static int teardown(void **state)
{
	(void)state;
	timer_clear(&guard);
	loop_free(loop);
	return 0;
}

static void test_data_and_eof(void **state)
{
	struct side a;
	int raw;

	(void)state;
	pair(&a, &raw);
	assert_int_equal(write(raw, "hello", 5), 5);
	RUN_UNTIL(a.got == 5);
	assert_int_equal(a.seen, STREAM_DATA);
	close(raw);
	RUN_UNTIL(a.seen & STREAM_EOF);
	assert_false(a.seen & STREAM_ERROR);
	assert_true(stream_at_eof(a.s));
	assert_int_equal(stream_bytes_in(a.s), 5);
	stream_close(a.s);
}

static void test_leftover_is_kept(void **state)
{
	struct side a;
	int raw;

	(void)state;
	pair(&a, &raw);
	a.leave = 2;
	assert_int_equal(write(raw, "abcdef", 6), 6);
	RUN_UNTIL(a.got == 2);
	run_ms(20);
	assert_int_equal(a.got, 2); /* no event without something new */
	assert_int_equal(stream_data(a.s).n, 4);
	assert_memory_equal(stream_data(a.s).p, "cdef", 4);
	assert_int_equal(write(raw, "g", 1), 1);
	RUN_UNTIL(a.got == 4);
	assert_memory_equal(stream_data(a.s).p, "efg", 3);
	stream_close(a.s);
	close(raw);
}

static void test_input_is_bounded(void **state)
{
	struct side a;
	char block[4096];
	int raw;
	size_t sent = 0;

	(void)state;
	memset(block, 'x', sizeof(block));
	pair(&a, &raw);
	stream_set_owner(a.s, on_event, &a);
	a.leave = 1; /* one byte a callback: all but starves it */
	for (int i = 0; i < 2000; i++) {
		ssize_t n = write(raw, block, sizeof(block));
		if (n > 0)
			sent += (size_t)n;
		if (i % 20 == 0)
			run_ms(1);
	}
	assert_true(stream_data(a.s).n <= LIMIT_STREAM_IN_BYTES);
	assert_true(stream_data(a.s).n > LIMIT_STREAM_IN_BYTES / 2);
	/* Taken up again, everything arrives. */
	a.leave = 0;
	size_t had = stream_data(a.s).n;
	a.got += had;
	stream_consume(a.s, had);
	RUN_UNTIL(a.got == sent);
	stream_close(a.s);
	close(raw);
}

static void test_pause_and_resume(void **state)
{
	struct side a;
	int raw;

	(void)state;
	pair(&a, &raw);
	stream_pause(a.s);
	assert_int_equal(write(raw, "abc", 3), 3);
	close(raw);
	run_ms(20);
	assert_int_equal(a.seen, 0);
	stream_resume(a.s);
	RUN_UNTIL(a.got == 3 && (a.seen & STREAM_EOF));
	stream_close(a.s);
}

static void test_write_keeps_the_rest(void **state)
{
	struct side a;
	char *big = calloc(1, LIMIT_STREAM_OUT_BYTES);
	int raw, small = 4096;
	size_t room, read_n = 0, total = 0;
	char buf[65536];

	(void)state;
	pair(&a, &raw);
	setsockopt(stream_fd(a.s), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	for (int i = 0; i < 4 && (room = stream_room(a.s)) > 0; i++) {
		stream_write(a.s, str_from(big, room));
		total += room;
	}
	assert_true(stream_pending(a.s) > 0);
	assert_true(stream_pending(a.s) <= LIMIT_STREAM_OUT_BYTES);
	assert_int_equal(stream_room(a.s) + stream_pending(a.s), LIMIT_STREAM_OUT_BYTES);
	run_ms(10);
	assert_false(a.seen & STREAM_DRAINED);
	for (int i = 0; i < 1000 && read_n < total; i++) {
		ssize_t n = read(raw, buf, sizeof(buf));
		if (n > 0)
			read_n += (size_t)n;
		run_ms(1);
	}
	assert_int_equal(read_n, total);
	assert_true(a.seen & STREAM_DRAINED);
	assert_int_equal(stream_pending(a.s), 0);
	stream_close(a.s);
	close(raw);
	free(big);
}

static void test_shutdown_waits_for_pending(void **state)
{
	struct side a;
	char buf[65536];
	char *big = calloc(1, 100000);
	int raw, small = 4096;
	size_t read_n = 0;
	ssize_t n = 1;

	(void)state;
	pair(&a, &raw);
	setsockopt(stream_fd(a.s), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	stream_write(a.s, str_from(big, 100000));
	stream_shutdown(a.s);
	stream_write(a.s, STR("never sent"));
	for (int i = 0; i < 1000 && n != 0; i++) {
		n = read(raw, buf, sizeof(buf));
		if (n > 0)
			read_n += (size_t)n;
		run_ms(1);
	}
	assert_int_equal(n, 0);
	assert_int_equal(read_n, 100000);
	/* The other direction still works. */
	assert_int_equal(write(raw, "late", 4), 4);
	RUN_UNTIL(a.got == 4);
	stream_close(a.s);
	close(raw);
	free(big);
}

static void test_answer_is_read_after_a_failed_write(void **state)
{
	struct side a;
	int raw;

	(void)state;
	pair(&a, &raw);
	assert_int_equal(write(raw, "early answer", 12), 12);
	close(raw);
	stream_write(a.s, STR("into the void"));
	stream_write(a.s, STR("again"));
	RUN_UNTIL(a.seen & (STREAM_EOF | STREAM_ERROR));
	assert_int_equal(a.got, 12);
	stream_close(a.s);
}

/* A FIN is a half-close until what is written finds nobody. */
static void test_gone_after_its_fin(void **state)
{
	struct side a;
	int raw;

	(void)state;
	pair(&a, &raw);
	assert_int_equal(shutdown(raw, SHUT_WR), 0);
	RUN_UNTIL(a.seen & STREAM_EOF);
	stream_write(a.s, STR("still welcome"));
	run_ms(20);
	assert_false(a.seen & STREAM_ERROR);
	close(raw);
	stream_write(a.s, STR("into the void"));
	RUN_UNTIL(a.seen & STREAM_ERROR);
	stream_close(a.s);
}

/* A write that fails while the read side has neither bytes nor an end: nobody else would tell. */
static void test_a_failed_write_that_nothing_explains(void **state)
{
	struct side a;
	int raw;

	(void)state;
	pair(&a, &raw);
	assert_int_equal(write(raw, "x", 1), 1);
	shutdown(raw, SHUT_RD); /* of a Unix socket: EPIPE here, and no end */
	stream_write(a.s, STR("lost"));
	RUN_UNTIL(a.seen & STREAM_ERROR);
	assert_int_equal(a.got, 1); /* what had come is read first */
	assert_false(a.seen & STREAM_EOF);
	stream_close(a.s);
	close(raw);
}

static void tcp_pair(struct side *a, int *ret_raw)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t n = sizeof(at);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	struct err e = ERR_INIT;

	assert_int_equal(bind(l, (struct sockaddr *)&at, n), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&at, &n), 0);
	*ret_raw = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(*ret_raw, (struct sockaddr *)&at, n), 0);
	fd = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	close(l);
	memset(a, 0, sizeof(*a));
	assert_int_equal(stream_new(loop, fd, on_event, a, &a->s, &e), 0);
}

/* The kernel tells of a reset once. That it told a write must not make the read side see an end. */
static void test_a_reset_that_a_write_met_is_no_eof(void **state)
{
	struct linger hard = {.l_onoff = 1, .l_linger = 0};
	struct side a;
	int raw;

	(void)state;
	tcp_pair(&a, &raw);
	assert_int_equal(write(raw, "half", 4), 4);
	setsockopt(raw, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(raw);
	stream_write(a.s, STR("into the void"));
	RUN_UNTIL(a.seen & (STREAM_EOF | STREAM_ERROR));
	RUN_UNTIL(a.seen & STREAM_ERROR);
	assert_false(stream_at_eof(a.s));
	assert_int_equal(a.got, 4);
	stream_close(a.s);
}

static void test_close_within_callback(void **state);

static void closing_event(void *arg, unsigned events)
{
	struct side *d = arg;

	d->seen |= events;
	stream_close(d->s);
	d->s = NULL;
}

static void test_close_within_callback(void **state)
{
	struct side a;
	int raw;

	(void)state;
	pair(&a, &raw);
	stream_set_owner(a.s, closing_event, &a);
	assert_int_equal(write(raw, "abc", 3), 3);
	RUN_UNTIL(a.s == NULL);
	assert_int_equal(a.seen, STREAM_DATA);
	close(raw);
}

static void test_detach(void **state)
{
	struct side a;
	int raw, fd;
	char buf[8];

	(void)state;
	pair(&a, &raw);
	fd = stream_detach(a.s);
	assert_true(fd >= 0);
	run_ms(5);
	assert_int_equal(write(raw, "x", 1), 1);
	assert_int_equal(read(fd, buf, sizeof(buf)), 1);
	close(fd);
	close(raw);
}

/* ---- TLS ---- */

static struct ca *ca;
static struct signer *signer;
static struct trust *trust;
static char ca_path[] = "/tmp/stile-stream-XXXXXX";

static void keep_leaf(void *arg, struct leaf *leaf, const struct err *e)
{
	(void)e;
	*(struct leaf **)arg = leaf;
}

static int setup_tls(void **state)
{
	struct err e = ERR_INIT;
	struct strbuf pem;
	char *sources[] = {ca_path};
	int fd = mkstemp(ca_path);

	(void)state;
	strbuf_init(&pem, 65536);
	if (ca_new_memory(1, &ca, &e) < 0 || signer_new(ca, 8, &signer, &e) < 0 ||
	    ca_add_pem(ca, &pem, &e) < 0 || write(fd, pem.data, pem.len) != (ssize_t)pem.len)
		return -1;
	close(fd);
	strbuf_clear(&pem);
	return trust_new(sources, 1, &trust, &e);
}

static int teardown_tls(void **state)
{
	(void)state;
	unlink(ca_path);
	trust_unref(trust);
	signer_free(signer);
	ca_unref(ca);
	return 0;
}

static SSL *server_ssl(void)
{
	struct leaf *leaf = NULL;
	struct leaf_name name = {.text = STR("origin.test")};
	struct err e = ERR_INIT;
	SSL *ssl = NULL;

	signer_get(signer, &name, keep_leaf, &leaf);
	assert_non_null(leaf);
	assert_int_equal(signer_server_new(signer, leaf, STR("\x08http/1.1"), &ssl, &e), 0);
	leaf_unref(leaf);
	return ssl;
}

static SSL *client_ssl(const char *host)
{
	struct err e = ERR_INIT;
	SSL *ssl = NULL;

	assert_int_equal(trust_client_new(trust, host, NULL, 0, STR("\x08http/1.1"), STR("k"), &ssl,
					  &e),
			 0);
	return ssl;
}

static void tls_pair(struct side *c, struct side *s)
{
	struct err e = ERR_INIT;

	pair_streams(c, s);
	assert_int_equal(stream_start_tls(s->s, server_ssl(), &e), 0);
	assert_int_equal(stream_start_tls(c->s, client_ssl("origin.test"), &e), 0);
	RUN_UNTIL((c->seen & STREAM_HANDSHAKED) && (s->seen & STREAM_HANDSHAKED));
}

/* TLS within TLS. */
static void nested_pair(struct side *c, struct side *s)
{
	struct err e = ERR_INIT;
	SSL *more;

	tls_pair(c, s);
	c->seen = s->seen = 0;
	assert_int_equal(stream_start_tls(s->s, server_ssl(), &e), 0);
	assert_int_equal(stream_start_tls(c->s, client_ssl("origin.test"), &e), 0);
	RUN_UNTIL((c->seen & STREAM_HANDSHAKED) && (s->seen & STREAM_HANDSHAKED));
	assert_int_equal(c->got + s->got, 0);
	/* And no deeper. */
	more = client_ssl("origin.test");
	assert_int_equal(stream_start_tls(c->s, more, &e), -1);
}

static void both_ways(void (*connect_sides)(struct side *c, struct side *s))
{
	struct side c, s;

	connect_sides(&c, &s);
	stream_write(c.s, STR("request"));
	RUN_UNTIL(s.got == 7);
	stream_write(s.s, STR("an answer"));
	RUN_UNTIL(c.got == 9);
	stream_shutdown(s.s);
	RUN_UNTIL(c.seen & STREAM_EOF);
	assert_false(c.seen & STREAM_ERROR);
	stream_close(c.s);
	stream_close(s.s);
}

static void test_tls_both_ways(void **state)
{
	(void)state;
	both_ways(tls_pair);
}

static void test_nested_both_ways(void **state)
{
	(void)state;
	both_ways(nested_pair);
}

/* Four megabytes with a consumer that takes 1000 bytes at a time: every byte, in order, bounded. */
static void bulk_with_slow_consumer(void (*connect_sides)(struct side *c, struct side *s))
{
	struct side c, s;
	size_t total = 4 << 20, sent = 0;
	uint32_t sum = 0;
	char *block = malloc(LIMIT_STREAM_OUT_BYTES);

	connect_sides(&c, &s);
	s.leave = 1000;
	while (s.got < total) {
		size_t room = stream_room(c.s);

		if (room > total - sent)
			room = total - sent;
		for (size_t i = 0; i < room; i++) {
			block[i] = (char)(sent + i * 7);
			sum = sum * 31 + (unsigned char)block[i];
		}
		stream_write(c.s, str_from(block, room));
		sent += room;
		assert_false((c.seen | s.seen) & STREAM_ERROR);
		assert_true(stream_data(s.s).n <= LIMIT_STREAM_IN_BYTES);
		run_ms(1);
		/* what is left over is drained from outside too */
		struct str in = stream_data(s.s);
		for (size_t i = 0; i < in.n; i++)
			s.sum = s.sum * 31 + (unsigned char)in.p[i];
		s.got += in.n;
		stream_consume(s.s, in.n);
	}
	assert_int_equal(s.got, total);
	assert_int_equal(s.sum, sum);
	stream_close(c.s);
	stream_close(s.s);
	free(block);
}

static void test_tls_bulk_with_slow_consumer(void **state)
{
	(void)state;
	bulk_with_slow_consumer(tls_pair);
}

static void test_nested_bulk_with_slow_consumer(void **state)
{
	(void)state;
	bulk_with_slow_consumer(nested_pair);
}

static void truncation_is_an_error(void (*connect_sides)(struct side *c, struct side *s))
{
	struct side c, s;

	connect_sides(&c, &s);
	stream_write(s.s, STR("half"));
	RUN_UNTIL(c.got == 4);
	shutdown(stream_fd(s.s), SHUT_WR); /* FIN without close_notify */
	RUN_UNTIL(c.seen & STREAM_ERROR);
	assert_true(stream_error_is_tls(c.s));
	assert_true(stream_was_cut(c.s));
	stream_close(c.s);
	stream_close(s.s);
}

static void test_tls_truncation_is_an_error(void **state)
{
	(void)state;
	truncation_is_an_error(tls_pair);
}

static void test_nested_truncation_is_an_error(void **state)
{
	(void)state;
	truncation_is_an_error(nested_pair);
}

/* The outer side is who it is; the inner one is not. */
static void test_nested_wrong_name_fails(void **state)
{
	struct side c, s;
	struct err e = ERR_INIT;

	(void)state;
	tls_pair(&c, &s);
	c.seen = s.seen = 0;
	assert_int_equal(stream_start_tls(s.s, server_ssl(), &e), 0);
	assert_int_equal(stream_start_tls(c.s, client_ssl("other.test"), &e), 0);
	RUN_UNTIL(c.seen & STREAM_ERROR);
	assert_false(c.seen & STREAM_HANDSHAKED);
	stream_close(c.s);
	stream_close(s.s);
}

/* The ClientHello was looked at, byte by byte, before TLS began. */
static void test_tls_after_peeking(void **state)
{
	struct side c, s;
	struct err e = ERR_INIT;

	(void)state;
	pair_streams(&c, &s);
	s.leave = (size_t)-1; /* consume nothing: see below */
	stream_pause(s.s);
	assert_int_equal(stream_start_tls(c.s, client_ssl("origin.test"), &e), 0);
	run_ms(20);
	stream_resume(s.s);
	stream_pause(s.s);
	assert_int_equal(stream_start_tls(s.s, server_ssl(), &e), 0);
	stream_resume(s.s);
	RUN_UNTIL((c.seen & STREAM_HANDSHAKED) && (s.seen & STREAM_HANDSHAKED));
	stream_close(c.s);
	stream_close(s.s);
}

static void holding_event(void *arg, unsigned events)
{
	struct side *d = arg;

	d->seen |= events;
}

static void test_tls_fed_with_buffered_input(void **state)
{
	struct side c, s;
	struct err e = ERR_INIT;

	(void)state;
	pair_streams(&c, &s);
	stream_set_owner(s.s, holding_event, &s);
	assert_int_equal(stream_start_tls(c.s, client_ssl("origin.test"), &e), 0);
	RUN_UNTIL(stream_data(s.s).n > 100);
	assert_int_equal((unsigned char)stream_data(s.s).p[0], 0x16);
	assert_int_equal(stream_start_tls(s.s, server_ssl(), &e), 0);
	RUN_UNTIL((c.seen & STREAM_HANDSHAKED) && (s.seen & STREAM_HANDSHAKED));
	stream_set_owner(s.s, on_event, &s);
	stream_write(c.s, STR("inside"));
	RUN_UNTIL(s.got == 6);
	stream_close(c.s);
	stream_close(s.s);
}

static void test_tls_wrong_name_fails(void **state)
{
	struct side c, s;
	struct err e = ERR_INIT;

	(void)state;
	pair_streams(&c, &s);
	assert_int_equal(stream_start_tls(s.s, server_ssl(), &e), 0);
	assert_int_equal(stream_start_tls(c.s, client_ssl("other.test"), &e), 0);
	RUN_UNTIL(c.seen & STREAM_ERROR);
	assert_false(c.seen & STREAM_HANDSHAKED);
	stream_close(c.s);
	stream_close(s.s);
}

/* n messages of TLS's own, and a byte behind each. */
static void send_messages(struct side *from, int n)
{
	SSL *ssl = stream_ssl(from->s);

	for (int i = 0; i < n && !(from->seen & STREAM_ERROR); i++) {
		if (SSL_is_server(ssl))
			assert_int_equal(SSL_new_session_ticket(ssl), 1);
		else
			assert_int_equal(SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
		assert_int_equal(SSL_do_handshake(ssl), 1);
		stream_write(from->s, STR("x"));
	}
}

/* A burst is taken, and what comes with it; more end the connection, data or not. */
static void messages_have_a_bound(struct side *from, struct side *to)
{
	run_ms(20);
	send_messages(from, LIMIT_TLS_MESSAGES / 2);
	RUN_UNTIL(to->got == LIMIT_TLS_MESSAGES / 2);
	assert_false(to->seen & STREAM_ERROR);
	for (int i = 0; i < 100 && !(to->seen & STREAM_ERROR); i++) {
		send_messages(from, LIMIT_TLS_MESSAGES);
		run_ms(10);
	}
	assert_true(to->seen & STREAM_ERROR);
	assert_true(stream_error_is_tls(to->s));
	assert_false(stream_was_cut(to->s));
	assert_non_null(strstr(stream_error(to->s)->text, "too many TLS messages"));
	stream_close(from->s);
	stream_close(to->s);
}

static void test_tls_messages_of_a_client_have_a_bound(void **state)
{
	struct side c, s;

	(void)state;
	tls_pair(&c, &s);
	messages_have_a_bound(&c, &s);
}

static void test_tls_messages_of_an_origin_have_a_bound(void **state)
{
	struct side c, s;

	(void)state;
	tls_pair(&c, &s);
	messages_have_a_bound(&s, &c);
}

static void test_nested_messages_have_a_bound(void **state)
{
	struct side c, s;

	(void)state;
	nested_pair(&c, &s);
	messages_have_a_bound(&s, &c);
}

/* Of what waits in its socket no turn takes more than a part, and all turns take all of it. */
static void takes_turns(struct side *s)
{
	int before, after;

	assert_int_equal(ioctl(stream_fd(s->s), FIONREAD, &after), 0);
	assert_true(after > 2 * LIMIT_TLS_TURN);
	do {
		before = after;
		assert_int_equal(event_base_loop(loop_base(loop), EVLOOP_ONCE | EVLOOP_NONBLOCK),
				 0);
		assert_int_equal(ioctl(stream_fd(s->s), FIONREAD, &after), 0);
		/* And one read(2), which may be OpenSSL's whole buffer. */
		assert_true(before - after < LIMIT_TLS_TURN + 20000);
	} while (after > 0 && !(s->seen & STREAM_ERROR));
	assert_int_equal(after, 0);
}

/* A handshake message in records of a byte each, without end. */
static void test_tls_turn_has_a_bound(void **state)
{
	static const unsigned char head[] = {22, 3, 1, 0, 4, 1, 1, 0xff, 0xf0},
				   piece[] = {22, 3, 1, 0, 1, 3};
	unsigned char *flood = malloc(4 * LIMIT_TLS_TURN + sizeof(piece));
	size_t n = sizeof(head);
	int raw;
	struct side s;
	struct err e = ERR_INIT;

	(void)state;
	memcpy(flood, head, n);
	for (; n < 4 * LIMIT_TLS_TURN; n += sizeof(piece))
		memcpy(flood + n, piece, sizeof(piece));
	pair(&s, &raw);
	assert_int_equal(write(raw, flood, n), (ssize_t)n);
	assert_int_equal(stream_start_tls(s.s, server_ssl(), &e), 0);
	takes_turns(&s);
	stream_close(s.s);
	close(raw);
	free(flood);
}

/* Data in records of a byte each. */
static void test_tls_turn_of_small_records_has_a_bound(void **state)
{
	struct side c, s;
	const size_t n = 6000;

	(void)state;
	tls_pair(&c, &s);
	run_ms(20);
	stream_cork(c.s);
	for (size_t i = 0; i < n; i++)
		stream_write(c.s, STR("x"));
	stream_uncork(c.s);
	takes_turns(&s);
	RUN_UNTIL(s.got == n);
	stream_close(c.s);
	stream_close(s.s);
}

/* Pausing with records inside OpenSSL loses nothing and does not spin. */
static void test_tls_pause_with_pending(void **state)
{
	struct side c, s;
	char *block = calloc(1, 100000);

	(void)state;
	tls_pair(&c, &s);
	stream_pause(s.s);
	stream_write(c.s, str_from(block, 100000));
	run_ms(20);
	assert_int_equal(s.got, 0);
	stream_resume(s.s);
	RUN_UNTIL(s.got == 100000);
	stream_close(c.s);
	stream_close(s.s);
	free(block);
}

static void test_cork_gathers(void **state)
{
	struct side a;
	int raw;
	char buf[64];

	(void)state;
	pair(&a, &raw);
	stream_cork(a.s);
	stream_write(a.s, STR("one "));
	stream_write(a.s, STR("two"));
	assert_int_equal(read(raw, buf, sizeof(buf)), -1);
	assert_int_equal(errno, EAGAIN);
	stream_uncork(a.s);
	assert_int_equal(read(raw, buf, sizeof(buf)), 7);
	stream_close(a.s);
	close(raw);
}

/* Writes until the kernel takes no more and some is kept. */
static void fill(struct side *d)
{
	char *block = calloc(1, LIMIT_STREAM_OUT_BYTES);
	int small = 4096;
	size_t room;

	setsockopt(stream_fd(d->s), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	for (int i = 0; (room = stream_room(d->s)) > 0; i++) {
		assert_true(i < 1000); /* a stream that has failed has room for ever */
		stream_write(d->s, str_from(block, room));
	}
	free(block);
	d->seen = 0;
}

/* The other end takes what is there. */
static void take_all(int fd)
{
	char buf[65536];

	while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

/* A read of TLS gives the kernel what is kept, too, and what came need be nothing to be told of:
 * a ticket, a part of a record. That all is written must be heard nevertheless. */
static void test_tls_drained_by_a_read(void **state)
{
	struct side c, s;
	int big = 1 << 20;

	(void)state;
	tls_pair(&c, &s);
	stream_pause(s.s);
	run_ms(5);
	fill(&c);
	/* Of two events of one turn, that of reading comes first. */
	stream_pause(c.s);
	run_ms(5);
	stream_resume(c.s);
	run_ms(5);
	assert_false(c.seen & STREAM_DRAINED);
	setsockopt(stream_fd(c.s), SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
	take_all(stream_fd(s.s));
	assert_int_equal(send(stream_fd(s.s), "\x17\x03\x03", 3, 0), 3);
	RUN_UNTIL(stream_pending(c.s) == 0);
	run_ms(20);
	assert_true(c.seen & STREAM_DRAINED);
	assert_false(c.seen & (STREAM_DATA | STREAM_ERROR));
	stream_close(c.s);
	stream_close(s.s);
}

/* And so does uncorking, and a half-close. */
static void drained_from_outside(void (*flush)(struct stream *s))
{
	struct side a;
	int raw, big = 1 << 20;

	pair(&a, &raw);
	fill(&a);
	run_ms(5);
	assert_false(a.seen & STREAM_DRAINED);
	setsockopt(stream_fd(a.s), SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
	take_all(raw);
	flush(a.s);
	assert_int_equal(stream_pending(a.s), 0);
	assert_false(a.seen & STREAM_DRAINED);
	run_ms(20);
	assert_true(a.seen & STREAM_DRAINED);
	stream_close(a.s);
	close(raw);
}

static void cork_and_uncork(struct stream *s)
{
	stream_cork(s);
	stream_uncork(s);
}

static void test_drained_by_uncorking(void **state)
{
	(void)state;
	drained_from_outside(cork_and_uncork);
}

static void test_drained_by_a_half_close(void **state)
{
	(void)state;
	drained_from_outside(stream_shutdown);
}

/* ---- the loop itself ---- */

static int fired;

static void on_fire(void *arg)
{
	(void)arg;
	fired++;
}

static void test_timers_are_exact_though_lazy(void **state)
{
	struct timer t;
	int64_t begun;

	(void)state;
	fired = 0;
	assert_int_equal(timer_init(&t, loop, on_fire, NULL), 0);
	timer_arm(&t, 10);
	timer_arm(&t, 60); /* moved away: the heap still says 10 */
	run_ms(35);
	assert_int_equal(fired, 0);
	begun = loop_clock_us(loop);
	RUN_UNTIL(fired == 1);
	assert_true(loop_clock_us(loop) - begun < 2000000);
	timer_arm(&t, 5);
	timer_stop(&t);
	run_ms(20);
	assert_int_equal(fired, 1);
	timer_arm(&t, 1000);
	timer_arm(&t, 5); /* moved nearer */
	RUN_UNTIL(fired == 2);
	timer_clear(&t);
}

static void on_post(void *arg)
{
	(*(int *)arg)++;
}

static void test_mailbox(void **state)
{
	struct letter m[100] = {0};
	int n = 0;

	(void)state;
	for (int i = 0; i < 100; i++) {
		m[i].fn = on_post;
		m[i].arg = &n;
		loop_post(loop, &m[i]);
		loop_post(loop, &m[i]); /* it is on its way: once is enough */
	}
	RUN_UNTIL(n >= 100);
	assert_int_equal(n, 100);
	loop_post(loop, &m[7]);
	RUN_UNTIL(n == 101);
}

int main(void)
{
	const struct CMUnitTest plain[] = {
		cmocka_unit_test_setup_teardown(test_data_and_eof, setup, teardown),
		cmocka_unit_test_setup_teardown(test_leftover_is_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(test_input_is_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pause_and_resume, setup, teardown),
		cmocka_unit_test_setup_teardown(test_write_keeps_the_rest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_shutdown_waits_for_pending, setup, teardown),
		cmocka_unit_test_setup_teardown(test_answer_is_read_after_a_failed_write, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_gone_after_its_fin, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_failed_write_that_nothing_explains, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_reset_that_a_write_met_is_no_eof, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_close_within_callback, setup, teardown),
		cmocka_unit_test_setup_teardown(test_detach, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cork_gathers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_drained_by_uncorking, setup, teardown),
		cmocka_unit_test_setup_teardown(test_drained_by_a_half_close, setup, teardown),
		cmocka_unit_test_setup_teardown(test_timers_are_exact_though_lazy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mailbox, setup, teardown),
	};
	const struct CMUnitTest tls[] = {
		cmocka_unit_test_setup_teardown(test_tls_both_ways, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nested_both_ways, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tls_bulk_with_slow_consumer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nested_bulk_with_slow_consumer, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_tls_truncation_is_an_error, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nested_truncation_is_an_error, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_tls_after_peeking, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tls_fed_with_buffered_input, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tls_wrong_name_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nested_wrong_name_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tls_messages_of_a_client_have_a_bound, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_tls_messages_of_an_origin_have_a_bound, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_nested_messages_have_a_bound, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tls_turn_has_a_bound, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tls_turn_of_small_records_has_a_bound, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_tls_pause_with_pending, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tls_drained_by_a_read, setup, teardown),
	};
	int failed = cmocka_run_group_tests_name("stream: plain", plain, NULL, NULL);

	failed += cmocka_run_group_tests_name("stream: tls", tls, setup_tls, teardown_tls);
	return failed;
}
