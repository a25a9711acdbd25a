/*
 * Relays two sockets into each other. A direction reads only when what it read before is written:
 * that is the back-pressure, and it means that EAGAIN from the source is never a full pipe. What
 * comes in small pieces is copied through the loop's read buffer, which costs less than a way
 * through a pipe; a direction whose pieces are large goes over to splice(2). A pipe is held only
 * while bytes are in it. Where none is to be had, or a socket knows no splice(2), all is copied; a
 * direction keeps at most one buffer.
 * splice(2) raises SIGPIPE: the process must ignore it. Called by session/tunnel.c.
 */
#include "proxy/net/splice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "logging/limits.h"
#include "proxy/net/loop_internal.h"
#include "proxy/net/pipes.h"

#define TURN_BYTES  1048576 /* one direction moves before others have their turn */
#define SHORT_BYTES 4096    /* less than this in one go: the socket was most likely emptied */
#define BULK_BYTES  16384   /* from so much in one go, splice(2) costs less than a copy */

struct direction {
	/* owned */
	struct event ev_read;  /* of the source */
	struct event ev_write; /* of the sink */
	struct pipe_pair pipe;
	unsigned char *kept; /* copied bytes that the sink did not take */
	/* borrowed */
	struct splice *splice;
	/* plain */
	int from, to;
	size_t held; /* bytes in the pipe, or of kept */
	size_t kept_at;
	uint64_t bytes;
	bool has_pipe;
	bool is_bulk;	       /* the last piece was large: splice(2) pays */
	bool no_splice;	       /* a socket that splice(2) does not know */
	bool eof;	       /* the source has ended */
	bool shut;	       /* and the sink has been told */
	bool reading, writing; /* the events are with libevent */
};

struct splice {
	/* owned */
	struct direction a_to_b, b_to_a;
	struct timer idle;
	/* borrowed */
	struct loop *loop;
	void (*done)(void *arg, enum splice_end how);
	void *arg;
	/* plain */
	uint64_t idle_ms;
	int64_t moved_us; /* when the last byte moved: written often, looked at by the timer only */
	bool is_over;
};

/* What a step of one direction came to. */
enum step { STEP_MOVED, STEP_WAIT, STEP_EOF, STEP_FROM_RESET, STEP_TO_RESET, STEP_FAILED };

/* ---- moving bytes ---- */

static bool is_again(int sys_errno)
{
	return sys_errno == EAGAIN || sys_errno == EWOULDBLOCK;
}

/* The pipe goes back when it is empty; with bytes in it, it is of no use to anybody. */
static void drop_held(struct direction *d)
{
	if (d->has_pipe && d->held == 0)
		pipes_give(d->pipe);
	else if (d->has_pipe)
		pipes_close(d->pipe);
	d->has_pipe = false;
	free(d->kept);
	d->kept = NULL;
	d->held = 0;
}

static enum step copy_out(struct direction *d, const unsigned char *from)
{
	ssize_t n;

	do
		n = send(d->to, from, d->held, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return is_again(errno) ? STEP_WAIT : STEP_TO_RESET;
	d->held -= (size_t)n;
	d->bytes += (uint64_t)n;
	return STEP_MOVED;
}

/* Reads into the loop's buffer, writes at once, keeps the rest. As much as is there: a reader that
 * leaves a part makes TCP hold back a small window. */
static enum step copy_through(struct direction *d)
{
	unsigned char *buf = loop_buffers(d->splice->loop)->read;
	size_t got;
	enum step step;
	ssize_t n;

	do
		n = recv(d->from, buf, LOOP_READ_BYTES, 0);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return STEP_EOF;
	if (n < 0)
		return is_again(errno) ? STEP_WAIT : STEP_FROM_RESET;
	got = d->held = (size_t)n;
	d->is_bulk = got >= BULK_BYTES;
	step = copy_out(d, buf);
	if (d->held == 0 || step == STEP_TO_RESET)
		return step;
	d->kept = malloc(d->held);
	if (!d->kept)
		return STEP_FAILED;
	memcpy(d->kept, buf + got - d->held, d->held);
	d->kept_at = 0;
	return STEP_MOVED;
}

/* From the source into an empty pipe. */
static enum step fill(struct direction *d)
{
	ssize_t n;

	if (!d->is_bulk && !d->no_splice)
		return copy_through(d);
	if (!d->has_pipe && !d->no_splice && pipes_take(&d->pipe) == 0)
		d->has_pipe = true;
	if (!d->has_pipe)
		return copy_through(d);
	do
		n = splice(d->from, NULL, d->pipe.in, NULL, LIMIT_PIPE_BYTES,
			   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		d->held = (size_t)n;
		return STEP_MOVED;
	}
	if (n == 0)
		return STEP_EOF;
	if (errno == EINVAL) {
		d->no_splice = true;
		drop_held(d);
		return copy_through(d);
	}
	return is_again(errno) ? STEP_WAIT : STEP_FROM_RESET;
}

/* The sink knows no splice(2): what is in the pipe is read out of it. */
static enum step unpipe(struct direction *d)
{
	size_t held = d->held;
	ssize_t n;

	d->no_splice = true;
	d->kept = malloc(held);
	if (!d->kept)
		return STEP_FAILED;
	n = read(d->pipe.out, d->kept, held);
	if (n < 0 || (size_t)n != held)
		return STEP_FAILED;
	pipes_give(d->pipe);
	d->has_pipe = false;
	d->kept_at = 0;
	return STEP_MOVED;
}

/* What is held goes to the sink. */
static enum step empty(struct direction *d)
{
	size_t before = d->held;
	enum step step;
	ssize_t n;

	if (d->kept) {
		step = copy_out(d, d->kept + d->kept_at);
		d->kept_at += before - d->held;
		return step;
	}
	do
		n = splice(d->pipe.out, NULL, d->to, NULL, d->held,
			   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		d->held -= (size_t)n;
		d->bytes += (uint64_t)n;
		return STEP_MOVED;
	}
	if (n == 0)
		return STEP_FAILED; /* bytes are in the pipe, so this cannot be */
	if (errno == EINVAL)
		return unpipe(d);
	return is_again(errno) ? STEP_WAIT : STEP_TO_RESET;
}

/* Moves until one of the two would block, or the turn's share is used up. */
static enum step pump(struct direction *d)
{
	uint64_t start = d->bytes;
	enum step step = STEP_MOVED;
	bool was_short = false;

	while (step == STEP_MOVED && d->bytes - start < TURN_BYTES) {
		if (d->held > 0) {
			step = empty(d);
			continue;
		}
		if (d->kept)
			drop_held(d);
		if (d->eof || was_short)
			break;
		uint64_t had = d->bytes;
		step = fill(d);
		/* Readable, and yet nothing to splice: the next byte is an urgent one, where
		 * tcp_splice_read() stops for good. recv() steps over it. */
		if (step == STEP_WAIT && had == start)
			step = copy_through(d);
		was_short = d->held + (d->bytes - had) < SHORT_BYTES;
	}
	if (was_short)
		d->is_bulk = false;
	if (d->bytes != start)
		d->splice->moved_us = loop_now_us(d->splice->loop);
	if (d->held == 0)
		drop_held(d);
	return step;
}

/* ---- ending ---- */

static void close_fds(struct splice *s, bool reset_a, bool reset_b)
{
	struct linger hard = {.l_onoff = 1, .l_linger = 0};

	if (reset_a)
		setsockopt(s->a_to_b.from, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	if (reset_b)
		setsockopt(s->b_to_a.from, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(s->a_to_b.from);
	close(s->b_to_a.from);
}

static void clear_direction(struct direction *d)
{
	event_del(&d->ev_read);
	event_del(&d->ev_write);
	drop_held(d);
}

static void end(struct splice *s, bool reset_a, bool reset_b)
{
	s->is_over = true;
	clear_direction(&s->a_to_b);
	clear_direction(&s->b_to_a);
	timer_clear(&s->idle);
	close_fds(s, reset_a, reset_b);
	loop_bury(s->loop, s, free);
}

/* A peer that sees a FIN takes what it has for whole; so wherever bytes are lost, it is a RST. */
static void finish(struct splice *s, enum splice_end how)
{
	bool reset = how != SPLICE_DONE;

	if (how == SPLICE_IDLE)
		reset = s->a_to_b.held > 0 || s->b_to_a.held > 0;
	end(s, reset, reset);
	s->done(s->arg, how);
}

/* ---- events ---- */

static void want(struct event *ev, bool wanted, bool *is)
{
	if (wanted == *is)
		return;
	*is = wanted;
	if (wanted)
		event_add(ev, NULL);
	else
		event_del(ev);
}

static void update_interest(struct direction *d)
{
	want(&d->ev_read, d->held == 0 && !d->eof, &d->reading);
	want(&d->ev_write, d->held > 0, &d->writing);
}

/* A FIN is passed on when all that came before it has been. The second one goes with the close. */
static bool pass_on_eof(struct direction *d, const struct direction *other)
{
	if (!d->eof || d->held > 0 || d->shut)
		return true;
	d->shut = true;
	return other->shut || shutdown(d->to, SHUT_WR) == 0;
}

static void run(struct direction *d)
{
	struct splice *s = d->splice;
	bool is_a = d == &s->a_to_b;
	enum step step = pump(d);

	switch (step) {
	case STEP_FROM_RESET: finish(s, is_a ? SPLICE_RESET_A : SPLICE_RESET_B); return;
	case STEP_TO_RESET: finish(s, is_a ? SPLICE_RESET_B : SPLICE_RESET_A); return;
	case STEP_FAILED: finish(s, SPLICE_FAILED); return;
	case STEP_EOF: d->eof = true; break;
	case STEP_MOVED:
	case STEP_WAIT: break;
	}
	if (!pass_on_eof(d, is_a ? &s->b_to_a : &s->a_to_b)) {
		finish(s, is_a ? SPLICE_RESET_B : SPLICE_RESET_A);
		return;
	}
	if (s->a_to_b.shut && s->b_to_a.shut) {
		finish(s, SPLICE_DONE);
		return;
	}
	update_interest(d);
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
	struct direction *d = arg;

	(void)fd;
	(void)what;
	if (!d->splice->is_over)
		run(d);
}

static void on_idle(void *arg)
{
	struct splice *s = arg;
	int64_t idle_us = loop_now_us(s->loop) - s->moved_us;

	if (idle_us >= (int64_t)s->idle_ms * 1000)
		finish(s, SPLICE_IDLE);
	else
		timer_arm(&s->idle, s->idle_ms - (uint64_t)(idle_us > 0 ? idle_us : 0) / 1000);
}

/* ---- the interface ---- */

static void init_direction(struct splice *s, struct direction *d, int from, int to)
{
	d->splice = s;
	d->from = from;
	d->to = to;
	event_assign(&d->ev_read, loop_base(s->loop), from, EV_READ | EV_PERSIST, on_ready, d);
	event_assign(&d->ev_write, loop_base(s->loop), to, EV_WRITE | EV_PERSIST, on_ready, d);
	update_interest(d);
}

int splice_start(struct loop *l, int fd_a, int fd_b, uint64_t idle_ms,
		 void (*done)(void *arg, enum splice_end how), void *arg, struct splice **ret,
		 struct err *e)
{
	struct splice *s = calloc(1, sizeof(*s));

	if (!s || timer_init(&s->idle, l, on_idle, s) < 0) {
		free(s);
		close(fd_a);
		close(fd_b);
		return err_reason(e, REASON_OVERLOADED, "out of memory");
	}
	s->loop = l;
	s->done = done;
	s->arg = arg;
	s->idle_ms = idle_ms;
	s->moved_us = loop_now_us(l);
	init_direction(s, &s->a_to_b, fd_a, fd_b);
	init_direction(s, &s->b_to_a, fd_b, fd_a);
	timer_arm(&s->idle, idle_ms);
	*ret = s;
	return 0;
}

void splice_cancel(struct splice *s, bool reset)
{
	if (s && !s->is_over)
		end(s, reset, reset);
}

uint64_t splice_bytes_a_to_b(const struct splice *s)
{
	return s->a_to_b.bytes;
}

uint64_t splice_bytes_b_to_a(const struct splice *s)
{
	return s->b_to_a.bytes;
}
