/*
 * Descriptors between processes: one goes over whole, two never do and neither stays open, one for
 * which there is no room is told from none, and the message beside it is read all the same.
 */
#include "net_test.h"

#include <sys/resource.h>

#include "proxy/net/pass_fd.h"

struct pair {
	int a, b;
};

static struct pair new_pair(void)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	return (struct pair){fds[0], fds[1]};
}

static void end_pair(struct pair p)
{
	close(p.a);
	close(p.b);
}

static void send_word(int fd, int pass)
{
	struct iovec v = {(char *)"word", 4};

	assert_int_equal(pass_fd_send(fd, &v, 1, pass), 4);
}

static ssize_t recv_word(int fd, size_t room, int *ret_fd)
{
	char word[8] = "";
	struct iovec v = {word, room};
	ssize_t n = pass_fd_recv(fd, &v, 1, ret_fd);

	if (n == 4)
		assert_string_equal(word, "word");
	return n;
}

static void test_none_and_one(void **state)
{
	struct pair p = new_pair();
	int got = 7;

	(void)state;
	send_word(p.a, -1);
	assert_int_equal(recv_word(p.b, 8, &got), 4);
	assert_int_equal(got, -1);
	send_word(p.a, STDIN_FILENO);
	assert_int_equal(recv_word(p.b, 8, &got), 4);
	assert_true(got > STDERR_FILENO);
	assert_int_equal(fcntl(got, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	close(got);
	end_pair(p);
}

/* What a hostile sender may do: the padding behind the first would have room for a second. */
static void test_two_are_none(void **state)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} c = {0};
	struct iovec v = {(char *)"word", 4};
	struct msghdr h = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = c.room,
			   .msg_controllen = sizeof(c.room)};
	int two[2] = {STDIN_FILENO, STDERR_FILENO}, got;
	struct cmsghdr *cm = CMSG_FIRSTHDR(&h);
	struct pair p = new_pair();
	size_t before;

	(void)state;
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(two));
	memcpy(CMSG_DATA(cm), two, sizeof(two));
	assert_int_equal(sendmsg(p.a, &h, 0), 4);
	before = count_fds();
	assert_int_equal(recv_word(p.b, 8, &got), -1);
	assert_int_equal(errno, EPROTO);
	assert_int_equal(got, -1);
	assert_int_equal(count_fds(), before);
	end_pair(p);
}

static void test_what_does_not_fit(void **state)
{
	struct pair p = new_pair();
	size_t before = count_fds();
	int got;

	(void)state;
	send_word(p.a, STDIN_FILENO);
	assert_int_equal(recv_word(p.b, 3, &got), -1);
	assert_int_equal(errno, EPROTO);
	assert_int_equal(count_fds(), before);
	end_pair(p);
}

static void test_no_room_for_one_more(void **state)
{
	struct pair p = new_pair();
	struct rlimit was, low;
	int got;

	(void)state;
	send_word(p.a, STDIN_FILENO);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	low = (struct rlimit){1, was.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	assert_int_equal(recv_word(p.b, 8, &got), 4);
	assert_int_equal(got, PASS_FD_LOST);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	/* The next one is as if nothing had been. */
	send_word(p.a, STDIN_FILENO);
	assert_int_equal(recv_word(p.b, 8, &got), 4);
	assert_true(got >= 0);
	close(got);
	end_pair(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none_and_one),
		cmocka_unit_test(test_two_are_none),
		cmocka_unit_test(test_what_does_not_fit),
		cmocka_unit_test(test_no_room_for_one_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
