/*
 * Listening sockets: opening (TCP, Unix paths in every state), who called, the bounds, the pause
 * when descriptors are out.
 */
#include "net_test.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "proxy/net/listener.h"
#include "proxy/net/listener_counts.h"

struct seen {
	struct loop *loop;
	struct listener *li;
	int accepted, refused, stop_at; /* stop after so many of both together */
	bool free_when_called;
	int fds[64];
	struct listener_peer peers[64];
	enum reason why;
};

static void count(struct seen *s)
{
	if (s->accepted + s->refused >= s->stop_at)
		loop_stop(s->loop);
}

static void on_accept(void *arg, int fd, const struct listener_peer *peer)
{
	struct seen *s = arg;

	s->fds[s->accepted] = fd;
	s->peers[s->accepted++] = *peer;
	if (s->free_when_called)
		listener_free(s->li);
	count(s);
}

static void on_refused(void *arg, int fd, const struct listener_peer *peer, enum reason why)
{
	struct seen *s = arg;

	assert_true(peer->text[0] != '\0');
	close(fd);
	s->refused++;
	s->why = why;
	count(s);
}

static void close_accepted(struct seen *s)
{
	for (int i = 0; i < s->accepted; i++)
		close(s->fds[i]);
}

static struct listener *listen_on(struct seen *s, struct loop *l, int fd,
				  struct listener_counts *counts)
{
	*s = (struct seen){.loop = l, .stop_at = 1};
	assert_int_equal(listener_new(l, fd, counts, on_accept, on_refused, s, &s->li, NULL), 0);
	return s->li;
}

static int open_tcp(const char *addr, bool reuseport, uint16_t *port)
{
	struct config_listener c = {.addr = ip(addr), .port = *port};
	struct err e = ERR_INIT;
	int fd = -1;

	assert_int_equal(listener_open(&c, reuseport, &fd, port, &e), 0);
	return fd;
}

static void test_open_tcp(void **state)
{
	uint16_t port = 0;
	int fd = open_tcp("127.0.0.1", false, &port), other = -1;
	struct config_listener c = {.addr = ip("127.0.0.1"), .port = port};
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(port, port_of(fd));
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(listener_open(&c, false, &other, &port, &e), -1);
	assert_int_equal(e.sys_errno, EADDRINUSE);
	assert_int_equal(other, -1);
	close(fd);

	port = 0;
	fd = open_tcp("127.0.0.1", true, &port);
	other = open_tcp("127.0.0.1", true, &port);
	assert_int_equal(port_of(other), port_of(fd));
	/* Who comes with SO_REUSEPORT is let in; this tells before. */
	c.port = port;
	assert_int_equal(listener_check_free(&c, &e), -1);
	assert_int_equal(e.sys_errno, EADDRINUSE);
	close(fd);
	close(other);
	assert_int_equal(listener_check_free(&c, &e), 0);
}

static void test_accept_tcp(void **state)
{
	struct listener_counts *counts = listener_counts_new(10, 10);
	struct loop *l = new_loop();
	uint16_t port = 0;
	int fd = open_tcp("127.0.0.1", false, &port), c = connect_to(port), on = 0;
	socklen_t n = sizeof(on);
	struct ipaddr want = ip("127.0.0.1");
	char text[64];
	struct seen s;

	(void)state;
	listen_on(&s, l, fd, counts);
	run_loop(l, 1000);
	assert_int_equal(s.accepted, 1);
	assert_true(ipaddr_eq(&s.peers[0].addr, &want));
	assert_int_equal(s.peers[0].port, port_of(c));
	snprintf(text, sizeof(text), "127.0.0.1:%u", port_of(c));
	assert_string_equal(s.peers[0].text, text);
	assert_true(fcntl(s.fds[0], F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(s.fds[0], F_GETFD) & FD_CLOEXEC);
	assert_int_equal(getsockopt(s.fds[0], IPPROTO_TCP, TCP_NODELAY, &on, &n), 0);
	assert_true(on);
	listener_counts_leave(counts, &s.peers[0]);
	listener_free(s.li);
	listener_counts_unref(counts);
	close_accepted(&s);
	close(c);
	close(fd);
	loop_free(l);
}

/* A dual-stack socket that was opened elsewhere: IPv4 clients are IPv4 clients. */
static void test_mapped_peer_is_ipv4(void **state)
{
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
	struct listener_counts *counts = listener_counts_new(10, 10);
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), off = 0, c;
	struct loop *l = new_loop();
	struct ipaddr want = ip("127.0.0.1");
	struct seen s;

	(void)state;
	if (fd < 0)
		skip();
	assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&in6, sizeof(in6)), 0);
	assert_int_equal(listen(fd, 4), 0);
	c = connect_to(port_of(fd));
	listen_on(&s, l, fd, counts);
	run_loop(l, 1000);
	assert_true(ipaddr_eq(&s.peers[0].addr, &want));
	listener_counts_leave(counts, &s.peers[0]);
	listener_free(s.li);
	listener_counts_unref(counts);
	close_accepted(&s);
	close(c);
	close(fd);
	loop_free(l);
}

static void test_bounds(void **state)
{
	static const struct {
		uint64_t max, per_addr;
		enum reason why;
	} rows[] = {{3, 100, REASON_OVERLOADED}, {100, 3, REASON_RATE_LIMITED}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct listener_counts *counts = listener_counts_new(rows[i].max, rows[i].per_addr);
		struct loop *l = new_loop();
		uint16_t port = 0;
		int fd = open_tcp("127.0.0.1", false, &port), c[6];
		struct seen s;

		for (size_t k = 0; k < 5; k++)
			c[k] = connect_to(port);
		listen_on(&s, l, fd, counts);
		s.stop_at = 5;
		run_loop(l, 1000);
		assert_int_equal(s.accepted, 3);
		assert_int_equal(s.refused, 2);
		assert_int_equal(s.why, rows[i].why);
		/* One leaves, one may come. */
		listener_counts_leave(counts, &s.peers[0]);
		c[5] = connect_to(port);
		s.stop_at = 6;
		run_loop(l, 1000);
		assert_int_equal(s.accepted, 4);
		for (int k = 1; k < 4; k++)
			listener_counts_leave(counts, &s.peers[k]);
		listener_free(s.li);
		listener_counts_unref(counts);
		close_accepted(&s);
		for (size_t k = 0; k < 6; k++)
			close(c[k]);
		close(fd);
		loop_free(l);
	}
}

/* More than one batch waits: nobody is forgotten. */
static void test_batches(void **state)
{
	struct listener_counts *counts = listener_counts_new(1, 1);
	struct loop *l = new_loop();
	uint16_t port = 0;
	int fd = open_tcp("127.0.0.1", false, &port), c[LIMIT_ACCEPT_BATCH + 9];
	struct seen s;

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(c); k++)
		c[k] = connect_to(port);
	listen_on(&s, l, fd, counts);
	s.stop_at = (int)ARRAY_LEN(c);
	run_loop(l, 1000);
	assert_int_equal(s.accepted, 1);
	listener_counts_leave(counts, &s.peers[0]);
	listener_free(s.li);
	listener_counts_unref(counts);
	close_accepted(&s);
	for (size_t k = 0; k < ARRAY_LEN(c); k++)
		close(c[k]);
	close(fd);
	loop_free(l);
}

static void test_free_within_callback(void **state)
{
	struct listener_counts *counts = listener_counts_new(10, 10);
	struct loop *l = new_loop();
	uint16_t port = 0;
	int fd = open_tcp("127.0.0.1", false, &port);
	int c[2] = {connect_to(port), connect_to(port)};
	struct seen s;

	(void)state;
	listen_on(&s, l, fd, counts);
	s.free_when_called = true;
	run_loop(l, 1000);
	run_for(l, 10);
	assert_int_equal(s.accepted, 1);
	listener_counts_leave(counts, &s.peers[0]);
	listener_counts_unref(counts);
	close_accepted(&s);
	close(c[0]);
	close(c[1]);
	close(fd);
	loop_free(l);
}

/* ---- counts ---- */

#define ROUNDS	 50000
#define PER_ADDR 2

struct contender {
	struct listener_counts *counts;
	struct listener_peer peer;
	uint64_t entered;
};

static void *contend(void *arg)
{
	struct contender *c = arg;

	for (int i = 0; i < ROUNDS; i++)
		if (listener_counts_enter(c->counts, &c->peer) == REASON_NONE) {
			c->entered++;
			listener_counts_leave(c->counts, &c->peer);
		}
	return NULL;
}

/* Four threads, two of them with the same address: nothing is lost and nothing left over. */
static void test_counts_of_many_threads(void **state)
{
	static const char *const addrs[] = {"10.0.0.1", "10.0.0.1", "10.0.0.2", "2001:db8::1"};
	struct listener_counts *counts = listener_counts_new(100, PER_ADDR);
	struct contender c[4];
	pthread_t threads[4];

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		c[i] = (struct contender){.counts = counts, .peer = {.addr = ip(addrs[i])}};
		assert_int_equal(pthread_create(&threads[i], NULL, contend, &c[i]), 0);
	}
	for (size_t i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(c[i].entered, ROUNDS);
	}
	for (int i = 0; i < PER_ADDR; i++)
		assert_int_equal(listener_counts_enter(counts, &c[0].peer), REASON_NONE);
	assert_int_equal(listener_counts_enter(counts, &c[0].peer), REASON_RATE_LIMITED);
	for (int i = 0; i < PER_ADDR; i++)
		listener_counts_leave(counts, &c[0].peer);
	listener_counts_unref(counts);
}

/* A host has a whole /64 to choose from; its neighbour counts apart. */
static void test_ipv6_counts_by_64(void **state)
{
	struct listener_counts *counts = listener_counts_new(100, 1);
	struct listener_peer one = {.addr = ip("2001:db8::1")};
	struct listener_peer same = {.addr = ip("2001:db8::ffff:2")};
	struct listener_peer other = {.addr = ip("2001:db8:0:1::1")};

	(void)state;
	assert_int_equal(listener_counts_enter(counts, &one), REASON_NONE);
	assert_int_equal(listener_counts_enter(counts, &same), REASON_RATE_LIMITED);
	assert_int_equal(listener_counts_enter(counts, &other), REASON_NONE);
	listener_counts_leave(counts, &one);
	assert_int_equal(listener_counts_enter(counts, &same), REASON_NONE);
	/* A reference keeps it; the last one takes the counts with it. */
	listener_counts_unref(listener_counts_ref(counts));
	listener_counts_leave(counts, &same);
	listener_counts_unref(counts);
	listener_counts_unref(NULL);
}

/* ---- descriptors ---- */

static void test_reserve_and_pause(void **state)
{
	struct listener_counts *counts = listener_counts_new(100, 100);
	struct loop *l = new_loop();
	uint16_t port = 0;
	int fd = open_tcp("127.0.0.1", false, &port), c[3];
	struct rlimit old, low;
	int64_t from;
	struct seen s;
	int next;

	(void)state;
	log_set_level(LOG_LEVEL_ERROR);
	for (size_t k = 0; k < ARRAY_LEN(c); k++)
		c[k] = connect_to(port);
	next = dup(0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);

	/* Within the reserve: refused, so that it can be answered and recorded. */
	low = old;
	low.rlim_cur = (rlim_t)(next + LIMIT_DESCRIPTOR_RESERVE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	listen_on(&s, l, fd, counts);
	s.stop_at = 3;
	run_loop(l, 1000);
	assert_int_equal(s.refused, 3);
	assert_int_equal(s.why, REASON_OVERLOADED);
	listener_free(s.li);

	/* None at all: a pause, and on it goes. */
	for (size_t k = 0; k < ARRAY_LEN(c); k++) {
		close(c[k]);
		c[k] = -1;
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	c[0] = connect_to(port);
	next = dup(0);
	close(next);
	low.rlim_cur = (rlim_t)next;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	listen_on(&s, l, fd, counts);
	from = clock_ms();
	clock_t cpu = clock();
	run_for(l, 50);
	assert_true(clock() - cpu < CLOCKS_PER_SEC / 50); /* it does not spin */
	assert_int_equal(s.accepted + s.refused, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	run_loop(l, 1000);
	assert_int_equal(s.accepted, 1);
	assert_true(clock_ms() - from >= LIMIT_MS_ACCEPT_PAUSE - 20);
	listener_counts_leave(counts, &s.peers[0]);
	listener_free(s.li);
	listener_counts_unref(counts);
	close_accepted(&s);
	close(c[0]);
	close(fd);
	loop_free(l);
	log_set_level(LOG_LEVEL_INFO);
}

/* ---- Unix paths ---- */

struct dir {
	char path[64], sock[96];
};

static void make_dir(struct dir *d)
{
	snprintf(d->path, sizeof(d->path), "/tmp/stile-listener-test-XXXXXX");
	assert_non_null(mkdtemp(d->path));
	snprintf(d->sock, sizeof(d->sock), "%s/s", d->path);
}

static void remove_dir(struct dir *d)
{
	unlink(d->sock);
	assert_int_equal(rmdir(d->path), 0);
}

static int open_unix(const char *path, unsigned mode, struct err *e)
{
	struct config_listener c = {.unix_path = (char *)(uintptr_t)path, .unix_mode = mode};
	uint16_t port = 1;
	int fd = -1;

	if (listener_open(&c, true, &fd, &port, e) < 0)
		return -1;
	assert_int_equal(port, 0);
	return fd;
}

static unsigned mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return (unsigned)st.st_mode & 0777;
}

static void test_unix_mode(void **state)
{
	static const unsigned modes[] = {0660, 0600, 0666};
	struct dir d;

	(void)state;
	make_dir(&d);
	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		mode_t old = umask(i == 1 ? 0 : 0177);
		int fd = open_unix(d.sock, modes[i], NULL);

		umask(old);
		assert_true(fd >= 0);
		assert_int_equal(mode_of(d.sock), modes[i]);
		close(fd); /* and the next one replaces what is left behind */
	}
	remove_dir(&d);
}

static void test_unix_path_in_use(void **state)
{
	struct err e = ERR_INIT;
	struct dir d;
	int fd, file;

	(void)state;
	make_dir(&d);
	fd = open_unix(d.sock, 0600, &e);
	assert_true(fd >= 0);
	assert_int_equal(open_unix(d.sock, 0600, &e), -1);
	assert_non_null(strstr(e.text, "another process listens"));
	assert_int_equal(mode_of(d.sock), 0600);
	close(fd);
	unlink(d.sock);

	file = open(d.sock, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	assert_int_equal(write(file, "x", 1), 1);
	close(file);
	assert_int_equal(open_unix(d.sock, 0600, &e), -1);
	assert_non_null(strstr(e.text, "no socket"));
	assert_int_equal(access(d.sock, F_OK), 0);
	unlink(d.sock);

	/* A link is no socket either, wherever it leads. */
	assert_int_equal(symlink("/nowhere", d.sock), 0);
	assert_int_equal(open_unix(d.sock, 0600, &e), -1);
	unlink(d.sock);
	remove_dir(&d);
}

/* The path goes with a clean end, but not when something else stands there by then. */
static void test_unix_path_goes(void **state)
{
	struct listener_path p, none;
	struct dir d;
	int fd, other;

	(void)state;
	make_dir(&d);
	fd = open_unix(d.sock, 0600, NULL);
	listener_path_note(d.sock, &p);
	assert_int_not_equal(p.ino, 0);
	listener_path_remove(d.sock, &p);
	assert_int_equal(access(d.sock, F_OK), -1);
	other = open_unix(d.sock, 0600, NULL);
	assert_true(other >= 0);
	listener_path_remove(d.sock, &p); /* once */
	assert_int_equal(access(d.sock, F_OK), 0);
	close(fd);

	listener_path_note(d.sock, &p);
	unlink(d.sock);
	fd = open_unix(d.sock, 0600, NULL);
	assert_true(fd >= 0);
	listener_path_remove(d.sock, &p);
	assert_int_equal(access(d.sock, F_OK), 0);
	unlink(d.sock);
	listener_path_note(d.sock, &none);
	assert_int_equal(none.ino, 0);
	listener_path_remove(d.sock, &none);
	close(fd);
	close(other);
	remove_dir(&d);
}

static void test_unix_path_too_long(void **state)
{
	char path[200];
	struct err e = ERR_INIT;

	(void)state;
	memset(path, 'a', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(open_unix(path, 0600, &e), -1);
	assert_non_null(strstr(e.text, "107"));
	assert_int_equal(open_unix("", 0600, &e), -1);
}

static void test_unix_peer(void **state)
{
	struct listener_counts *counts = listener_counts_new(1, 0);
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct loop *l = new_loop();
	char text[64];
	struct seen s;
	struct dir d;
	int fd, c;

	(void)state;
	make_dir(&d);
	fd = open_unix(d.sock, 0600, NULL);
	assert_true(fd >= 0);
	c = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	memcpy(sa.sun_path, d.sock, strlen(d.sock) + 1);
	assert_int_equal(connect(c, (struct sockaddr *)&sa, sizeof(sa)), 0);
	listen_on(&s, l, fd, counts);
	run_loop(l, 1000);
	assert_int_equal(s.accepted, 1);
	assert_int_equal(s.peers[0].addr.family, 0);
	assert_int_equal(s.peers[0].uid, getuid());
	assert_int_equal(s.peers[0].pid, getpid());
	snprintf(text, sizeof(text), "unix:uid=%u,pid=%u", (unsigned)getuid(), (unsigned)getpid());
	assert_string_equal(s.peers[0].text, text);
	listener_counts_leave(counts, &s.peers[0]);
	listener_free(s.li);
	listener_counts_unref(counts);
	close_accepted(&s);
	close(c);
	close(fd);
	loop_free(l);
	remove_dir(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_tcp),
		cmocka_unit_test(test_accept_tcp),
		cmocka_unit_test(test_mapped_peer_is_ipv4),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_free_within_callback),
		cmocka_unit_test(test_counts_of_many_threads),
		cmocka_unit_test(test_ipv6_counts_by_64),
		cmocka_unit_test(test_reserve_and_pause),
		cmocka_unit_test(test_unix_mode),
		cmocka_unit_test(test_unix_path_in_use),
		cmocka_unit_test(test_unix_path_goes),
		cmocka_unit_test(test_unix_path_too_long),
		cmocka_unit_test(test_unix_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
