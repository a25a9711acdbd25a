/*
 * The sink alone: syslog's datagrams at a socket of the test's own, and which facilities there are.
 */
#include "writer_fixture.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "logging/sink.h"

static int listen_syslog(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	memcpy(addr.sun_path, path, strlen(path) + 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

/* The sink alone, at a socket of the test's own. */
static void test_syslog(void **state)
{
	char text[] = "one\ntwo\n", got[64];
	struct iovec iov = {text, sizeof(text) - 1};
	struct sink proto = {.kind = SINK_SYSLOG, .fd = -1, .facility = 16 << 3, .path = path};
	struct sink s;
	int fd = listen_syslog();
	ssize_t n;

	(void)state;
	assert_int_equal(sink_open_again(&proto, &s, NULL), 0);
	assert_int_equal(sink_write(&s, &iov, 1, 100), 8);
	n = recv(fd, got, sizeof(got), 0);
	assert_str(str_from(got, (size_t)n), "<134>stile: one");
	n = recv(fd, got, sizeof(got), 0);
	assert_str(str_from(got, (size_t)n), "<134>stile: two");
	/* The daemon goes away and comes back. */
	close(fd);
	unlink(path);
	assert_int_equal(sink_write(&s, &iov, 1, 100), -1);
	fd = listen_syslog();
	assert_int_equal(sink_write(&s, &iov, 1, 100), 8);
	n = recv(fd, got, sizeof(got), 0);
	assert_str(str_from(got, (size_t)n), "<134>stile: one");
	/* A full socket: whole lines only, and the rest is for later. */
	do
		n = sink_write(&s, &iov, 1, 0);
	while (n == 8);
	assert_true(n == -1 || n == 4);
	close(fd);
	sink_close(&s);
}

/* A half line can be taken back only while it is the end of the file. */
static void test_unwrite(void **state)
{
	char text[] = "whole\nhalf";
	struct iovec iov = {text, sizeof(text) - 1};
	struct stat st;
	struct sink s, other;

	(void)state;
	assert_int_equal(sink_open(&s, path, NULL), 0);
	assert_int_equal(sink_write(&s, &iov, 1, 0), 10);
	assert_int_equal(sink_unwrite(&s, 11), -1);
	assert_int_equal(sink_unwrite(&s, 4), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 6);
	assert_int_equal(sink_write(&s, &iov, 1, 0), 10);
	assert_int_equal(sink_open(&other, path, NULL), 0);
	iov.iov_len = 6;
	assert_int_equal(sink_write(&other, &iov, 1, 0), 6);
	assert_int_equal(sink_unwrite(&s, 4), -1);
	sink_close(&other);
	sink_close(&s);
}

static void test_state(void **state)
{
	struct sink s, full;
	char old[128];

	(void)state;
	assert_int_equal(sink_open(&s, path, NULL), 0);
	assert_int_equal(sink_state(&s), SINK_SAME);
	snprintf(old, sizeof(old), "%s.1", path);
	assert_int_equal(rename(path, old), 0);
	assert_int_equal(sink_state(&s), SINK_MOVED);
	fclose(fopen(path, "w"));
	assert_int_equal(sink_state(&s), SINK_MOVED);
	assert_int_equal(unlink(old), 0);
	assert_int_equal(sink_state(&s), SINK_GONE);
	assert_int_equal(sink_open(&full, "/dev/full", NULL), 0);
	assert_int_equal(sink_state(&full), SINK_SAME);
	assert_int_equal(sink_sync(&full), 0);
	assert_int_equal(sink_sync(&s), 0);
	sink_close(&full);
	sink_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_syslog),
		TEST(test_unwrite),
		TEST(test_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
