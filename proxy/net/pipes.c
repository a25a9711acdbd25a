/*
 * A thread's free pipes: making one costs two descriptors, three calls and kernel memory, and a
 * tunnel needs one only while bytes are on their way. Bounded; closed when the thread ends.
 */
#include "proxy/net/pipes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "logging/limits.h"
#include "proxy/net/fd_reserve.h"

#define FREE_MAX 64

struct free_pipes {
	size_t n;
	bool is_registered;
	struct pipe_pair pairs[FREE_MAX];
};

static _Thread_local struct free_pipes mine;
static pthread_key_t at_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void pipes_close(struct pipe_pair p)
{
	close(p.out);
	close(p.in);
}

static void close_all(void *arg)
{
	struct free_pipes *f = arg;

	while (f->n > 0)
		pipes_close(f->pairs[--f->n]);
}

static void make_key(void)
{
	pthread_key_create(&at_exit, close_all);
}

int pipes_take(struct pipe_pair *ret)
{
	int fds[2];

	if (mine.n > 0) {
		*ret = mine.pairs[--mine.n];
		return 0;
	}
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -1;
	*ret = (struct pipe_pair){.out = fds[0], .in = fds[1]};
	if (fd_reserve_has(fds[0], LIMIT_DESCRIPTOR_RESERVE / 2) ||
	    fd_reserve_has(fds[1], LIMIT_DESCRIPTOR_RESERVE / 2)) {
		pipes_close(*ret);
		errno = EMFILE;
		return -1;
	}
	/* A user with many pipes gets small ones (pipe-user-pages-soft); ask, and live with less.
	 */
	if (fcntl(fds[0], F_GETPIPE_SZ) != LIMIT_PIPE_BYTES)
		(void)fcntl(fds[0], F_SETPIPE_SZ, LIMIT_PIPE_BYTES);
	return 0;
}

void pipes_give(struct pipe_pair p)
{
	if (mine.n == FREE_MAX) {
		pipes_close(p);
		return;
	}
	if (!mine.is_registered) {
		pthread_once(&once, make_key);
		mine.is_registered = pthread_setspecific(at_exit, &mine) == 0;
	}
	mine.pairs[mine.n++] = p;
}
