/*
 * Sockets and buffers of a stream: reading into the loop's lent buffer, keeping what is left over,
 * writing at once and keeping what the kernel did not take. TLS is stream_tls.c's.
 */
#include "proxy/net/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/net/stream_internal.h"

static size_t in_used(const struct stream *s)
{
	return s->in_end - s->in_start;
}

static void free_in(struct stream *s)
{
	if (!s->in_lent)
		free(s->in);
	s->in = NULL;
	s->in_lent = false;
	s->in_start = s->in_end = s->in_cap = 0;
}

static void free_out(struct stream *s)
{
	struct loop_buffers *b = loop_buffers(s->loop);

	if (s->out && s->out_cap == LOOP_SPARE_BYTES && b->spare_n < LOOP_SPARE_MAX)
		b->spare[b->spare_n++] = s->out;
	else
		free(s->out);
	s->out = NULL;
	s->out_start = s->out_end = s->out_cap = 0;
}

/* The event interest follows from the state; called after whatever may have changed it. */
static void update_interest(struct stream *s)
{
	/* Without branches: this is asked for often, and the answer is mostly the same. */
	bool over = s->dead | s->failed;
	bool reading =
		!(over | s->eof | (s->paused & !s->handshaking)) & (in_used(s) < STREAM_IN_MAX);
	bool writing = !(over | s->write_failed | s->corked) & (s->out_end > s->out_start);

	if (reading != s->reading) {
		s->reading = reading;
		if (reading)
			event_add(&s->ev_read, NULL);
		else
			event_del(&s->ev_read);
	}
	if (writing != s->writing) {
		s->writing = writing;
		if (writing)
			event_add(&s->ev_write, NULL);
		else
			event_del(&s->ev_write);
	}
}

void stream_schedule(struct stream *s)
{
	if (s->dead)
		return;
	s->again = true;
	event_active(&s->ev_again, EV_TIMEOUT, 0);
}

static struct err *error_of(struct stream *s)
{
	if (!s->error)
		s->error = calloc(1, sizeof(*s->error));
	return s->error;
}

void stream_fail_sys(struct stream *s, int sys_errno, const char *what)
{
	s->failed = true;
	(void)err_sys(error_of(s), sys_errno, "%s", what);
}

void stream_fail_text(struct stream *s, const char *what)
{
	s->failed = true;
	(void)err_set(error_of(s), "%s", what);
}

/* Leftovers must not stay in the loop's buffer when the callback is over. */
static void keep_leftover(struct stream *s)
{
	size_t n = in_used(s);
	unsigned char *own;

	if (n == 0) {
		free_in(s);
		return;
	}
	if (!s->in_lent)
		return;
	size_t cap = n < 4096 ? 4096 : n;
	own = malloc(cap);
	if (!own) {
		free_in(s);
		stream_fail_text(s, "out of memory");
		stream_schedule(s);
		return;
	}
	memcpy(own, s->in + s->in_start, n);
	s->in = own;
	s->in_lent = false;
	s->in_start = 0;
	s->in_end = n;
	s->in_cap = cap;
}

/* The whole of the loop's buffer, for a stream that has none. */
static unsigned char *lend_in(struct stream *s)
{
	s->in = loop_buffers(s->loop)->read;
	s->in_lent = true;
	s->in_cap = LOOP_READ_BYTES;
	return s->in;
}

unsigned char *stream_in_space(struct stream *s, size_t *ret_n)
{
	size_t used = in_used(s);

	if (used == 0) {
		free_in(s);
		*ret_n = LOOP_READ_BYTES;
		return lend_in(s);
	}
	if (used >= STREAM_IN_MAX)
		return NULL;
	if (s->in_start > 0) {
		memmove(s->in, s->in + s->in_start, used);
		s->in_start = 0;
		s->in_end = used;
	}
	if (s->in_cap - used < 2048 && s->in_cap < STREAM_IN_MAX) {
		size_t cap = s->in_cap * 2 > STREAM_IN_MAX ? STREAM_IN_MAX : s->in_cap * 2;
		unsigned char *grown = realloc(s->in, cap);

		if (!grown) {
			stream_fail_text(s, "out of memory");
			return NULL;
		}
		s->in = grown;
		s->in_cap = cap;
	}
	*ret_n = s->in_cap - used;
	return *ret_n ? s->in + used : NULL;
}

static unsigned read_plain(struct stream *s)
{
	size_t room = LOOP_READ_BYTES;
	unsigned char *at = s->in ? stream_in_space(s, &room) : lend_in(s);
	ssize_t n;

	if (!at)
		return s->failed ? STREAM_ERROR : 0;
	do
		n = recv(s->fd, at, room, 0);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		s->in_end += (size_t)n;
		s->bytes_in += (uint64_t)n;
		return STREAM_DATA;
	}
	if (n == 0 && s->write_reset) {
		/* The kernel tells of a reset once, and the write was told. */
		stream_fail_sys(s, ECONNRESET, "read");
		return STREAM_ERROR;
	}
	if (n == 0) {
		s->eof = true;
		return STREAM_EOF;
	}
	if ((errno == EAGAIN || errno == EWOULDBLOCK) && !s->write_failed)
		return 0;
	stream_fail_sys(s, errno, s->write_failed ? "write" : "read");
	return STREAM_ERROR;
}

/* After its FIN a peer can tell that it is gone by refusing what is written alone. */
static unsigned gone_both_ways(struct stream *s)
{
	if (!s->eof || !s->write_failed || s->failed)
		return 0;
	stream_fail_sys(s, EPIPE, "write");
	return STREAM_ERROR;
}

/* Whichever call gave the kernel the last of what was kept: the owner waits to hear of it. */
static bool is_drained(const struct stream *s)
{
	return s->kept && s->out_end == s->out_start && !s->failed;
}

static void deliver(struct stream *s, unsigned events)
{
	if (is_drained(s)) {
		s->kept = false;
		events |= STREAM_DRAINED;
	}
	if (events && !s->dead) {
		s->in_callback = true;
		s->on_event(s->arg, events);
		s->in_callback = false;
	}
	if (s->dead) {
		/* The lent buffer belongs to the loop; the rest goes with the burial. */
		if (s->in_lent)
			free_in(s);
		return;
	}
	keep_leftover(s);
	if (s->ssl && !s->paused && !s->failed && !s->eof && in_used(s) < STREAM_IN_MAX &&
	    !s->again && stream_tls_has_pending(s))
		stream_schedule(s);
	update_interest(s);
}

/* The socket has something, or (EV_TIMEOUT) stream_schedule asked for a callback. */
static void on_read(evutil_socket_t fd, short what, void *arg)
{
	struct stream *s = arg;
	unsigned events = 0;

	(void)fd;
	if (s->dead)
		return;
	s->socket_empty = (what & EV_TIMEOUT) != 0 && !s->write_failed;
	if (what & EV_TIMEOUT) {
		s->again = false;
		if (in_used(s) > 0 && !s->paused)
			events |= STREAM_DATA;
		if (s->eof && !s->paused)
			events |= STREAM_EOF;
		/* Woken by the owner, not by the socket: only TLS may hold bytes of its own, and
		 * what the socket has comes with its own event. */
	}
	if (s->failed)
		events |= STREAM_ERROR;
	else if (s->handshaking)
		events |= stream_tls_handshake(s);
	else if (!s->eof && !s->paused && s->ssl)
		events |= stream_tls_read(s);
	else if (!s->eof && !s->paused && !s->socket_empty) {
		unsigned got = read_plain(s);

		if (got == STREAM_DATA && s->write_failed)
			stream_schedule(s); /* what is behind it? see write_failed */
		events |= got;
	}
	events |= gone_both_ways(s);
	deliver(s, events);
}

static void on_write(evutil_socket_t fd, short what, void *arg)
{
	struct stream *s = arg;

	(void)fd;
	(void)what;
	if (s->dead)
		return;
	stream_flush(s);
	deliver(s, 0);
}

int stream_new(struct loop *l, int fd, void (*on_event)(void *arg, unsigned events), void *arg,
	       struct stream **ret, struct err *e)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s) {
		close(fd);
		return err_set(e, "out of memory");
	}
	s->loop = l;
	s->fd = fd;
	s->on_event = on_event;
	s->arg = arg;
	event_assign(&s->ev_read, loop_base(l), fd, EV_READ | EV_PERSIST, on_read, s);
	event_assign(&s->ev_again, loop_base(l), -1, 0, on_read, s);
	event_assign(&s->ev_write, loop_base(l), fd, EV_WRITE | EV_PERSIST, on_write, s);
	update_interest(s);
	*ret = s;
	return 0;
}

void stream_set_owner(struct stream *s, void (*on_event)(void *arg, unsigned events), void *arg)
{
	s->on_event = on_event;
	s->arg = arg;
}

static void free_stream(void *obj)
{
	struct stream *s = obj;

	SSL_free(s->ssl);
	SSL_free(s->outer);
	free_in(s);
	free_out(s);
	free(s->pre);
	free(s->error);
	free(s);
}

static void bury(struct stream *s)
{
	s->dead = true;
	event_del(&s->ev_read);
	event_del(&s->ev_write);
	event_del(&s->ev_again);
	loop_bury(s->loop, s, free_stream);
}

void stream_close(struct stream *s)
{
	if (!s || s->dead)
		return;
	if (s->tls_up && !s->failed && !s->shut_done)
		stream_tls_close_notify(s);
	s->corked = false;
	if (!s->failed && !s->write_failed)
		stream_flush(s);
	bury(s);
	close(s->fd);
}

void stream_reset(struct stream *s)
{
	struct linger hard = {.l_onoff = 1, .l_linger = 0};

	if (!s || s->dead)
		return;
	setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	bury(s);
	close(s->fd);
}

int stream_detach(struct stream *s)
{
	int fd = s->fd;

	if (s->ssl || s->out_end > s->out_start || s->failed)
		return -1;
	bury(s);
	return fd;
}

struct str stream_data(const struct stream *s)
{
	return str_from(s->in ? s->in + s->in_start : NULL, in_used(s));
}

void stream_consume(struct stream *s, size_t n)
{
	s->in_start += n > in_used(s) ? in_used(s) : n;
	if (s->in_callback)
		return; /* deliver() settles the rest */
	if (in_used(s) == 0)
		free_in(s);
	if (!s->paused && !s->eof && !s->again && stream_tls_has_pending(s))
		stream_schedule(s);
	update_interest(s);
}

void stream_pause(struct stream *s)
{
	s->paused = true;
	if (!s->in_callback)
		update_interest(s);
}

void stream_resume(struct stream *s)
{
	if (!s->paused)
		return;
	s->paused = false;
	if ((in_used(s) > 0 || s->eof || s->failed || stream_tls_has_pending(s)) && !s->again)
		stream_schedule(s);
	if (!s->in_callback)
		update_interest(s);
}

bool stream_at_eof(const struct stream *s)
{
	return s->eof;
}

size_t stream_pending(const struct stream *s)
{
	return s->out_end - s->out_start;
}

size_t stream_room(const struct stream *s)
{
	size_t used = stream_pending(s);

	return used >= LIMIT_STREAM_OUT_BYTES ? 0 : LIMIT_STREAM_OUT_BYTES - used;
}

static int out_reserve(struct stream *s, size_t n)
{
	struct loop_buffers *b = loop_buffers(s->loop);
	size_t used = stream_pending(s);
	size_t cap = s->out_cap ? s->out_cap : LOOP_SPARE_BYTES;
	unsigned char *grown;

	if (used + n > LIMIT_STREAM_OUT_BYTES + STREAM_OUT_SLACK)
		return -1;
	if (!s->out && n <= LOOP_SPARE_BYTES && b->spare_n > 0) {
		s->out = b->spare[--b->spare_n];
		s->out_cap = LOOP_SPARE_BYTES;
		return 0;
	}
	if (s->out_end + n <= s->out_cap)
		return 0;
	if (s->out && s->out_start > 0) {
		memmove(s->out, s->out + s->out_start, used);
		s->out_start = 0;
		s->out_end = used;
		if (used + n <= s->out_cap)
			return 0;
	}
	while (cap < used + n)
		cap *= 2;
	grown = realloc(s->out, cap);
	if (!grown)
		return -1;
	s->out = grown;
	s->out_cap = cap;
	return 0;
}

int stream_out_add(struct stream *s, const void *p, size_t n)
{
	if (n == 0)
		return 0;
	if (out_reserve(s, n) < 0) {
		stream_fail_text(s, "out of memory or over the output bound");
		stream_schedule(s);
		return -1;
	}
	memcpy(s->out + s->out_end, p, n);
	s->out_end += n;
	return 0;
}

/* A write that fails is no end yet: the peer may have answered before it closed, and that is still
 * to be read. The read side then says how it ended; where it has neither bytes nor an end, it was
 * not the peer that failed, and nobody would ever hear of it. */
static void write_failed(struct stream *s)
{
	int why = errno;
	char next;

	s->write_failed = true;
	s->write_reset = why == ECONNRESET;
	free_out(s);
	if (recv(s->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
	    (errno == EAGAIN || errno == EWOULDBLOCK) && !s->failed)
		stream_fail_sys(s, why, "write");
	stream_schedule(s);
}

static void finish_shutdown(struct stream *s)
{
	if (!s->shut_wanted || s->shut_done || stream_pending(s) > 0)
		return;
	s->shut_done = true;
	shutdown(s->fd, SHUT_WR);
}

/* How many bytes of iov the kernel took; -1 when the socket is broken. */
static ssize_t send_now(struct stream *s, const struct iovec *iov, int n)
{
	struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n};
	ssize_t sent;

	do
		sent = n == 1 ? send(s->fd, iov[0].iov_base, iov[0].iov_len, MSG_NOSIGNAL)
			      : sendmsg(s->fd, &m, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return 0;
	return sent;
}

int stream_out_last(struct stream *s, const void *p, size_t n)
{
	size_t before = stream_pending(s);
	struct iovec v[2] = {{.iov_base = s->out ? s->out + s->out_start : NULL, .iov_len = before},
			     {.iov_base = (void *)(uintptr_t)p, .iov_len = n}};
	ssize_t r = before > 0 ? send_now(s, v, 2) : send_now(s, v + 1, 1);
	size_t sent = r > 0 ? (size_t)r : 0;

	if (r < 0) {
		write_failed(s);
		return 0;
	}
	if (sent < before + n)
		s->kept = s->took_less = true;
	if (sent < before) {
		s->out_start += sent;
		return stream_out_add(s, p, n);
	}
	if (before > 0)
		free_out(s);
	return stream_out_add(s, (const char *)p + (sent - before), n - (sent - before));
}

void stream_flush(struct stream *s)
{
	while (stream_pending(s) > 0) {
		struct iovec v = {.iov_base = s->out + s->out_start, .iov_len = stream_pending(s)};
		ssize_t sent = send_now(s, &v, 1);

		if (sent < 0) {
			write_failed(s);
			return;
		}
		s->out_start += (size_t)sent;
		if ((size_t)sent < v.iov_len) {
			s->kept = true;
			return;
		}
	}
	free_out(s);
	finish_shutdown(s);
}

static void writev_plain(struct stream *s, const struct iovec *iov, int n)
{
	size_t sent = 0;

	if (stream_pending(s) == 0 && !s->corked) {
		ssize_t r = send_now(s, iov, n);

		if (r < 0) {
			write_failed(s);
			return;
		}
		sent = (size_t)r;
		s->bytes_out += sent;
	}
	for (int i = 0; i < n; i++) {
		size_t skip = sent < iov[i].iov_len ? sent : iov[i].iov_len;

		sent -= skip;
		if (skip == iov[i].iov_len)
			continue;
		if (stream_out_add(s, (const char *)iov[i].iov_base + skip, iov[i].iov_len - skip) <
		    0)
			return;
		s->bytes_out += iov[i].iov_len - skip;
	}
	if (stream_pending(s) > 0 && !s->corked)
		s->kept = true;
}

void stream_writev(struct stream *s, const struct iovec *iov, int n)
{
	if (s->dead || s->failed || s->write_failed || s->shut_wanted)
		return;
	if (s->ssl)
		stream_tls_writev(s, iov, n);
	else
		writev_plain(s, iov, n);
	/* All of it has left, as nearly always: nothing else is waited for than before. */
	if (s->out_end > s->out_start || s->writing || s->failed)
		update_interest(s);
}

void stream_write(struct stream *s, struct str data)
{
	struct iovec v = {.iov_base = (void *)(uintptr_t)data.p, .iov_len = data.n};

	if (data.n > 0)
		stream_writev(s, &v, 1);
}

void stream_cork(struct stream *s)
{
	s->corked = true;
}

/* A flush that an owner's call makes: it tells of nothing from within. */
static void flush_now(struct stream *s)
{
	stream_flush(s);
	if (is_drained(s))
		stream_schedule(s);
}

void stream_uncork(struct stream *s)
{
	s->corked = false;
	if (!s->failed && !s->write_failed)
		flush_now(s);
	update_interest(s);
}

void stream_shutdown(struct stream *s)
{
	if (s->dead || s->failed || s->write_failed || s->shut_wanted)
		return;
	if (s->tls_up)
		stream_tls_close_notify(s);
	s->shut_wanted = true;
	flush_now(s);
	update_interest(s);
}

const struct err *stream_error(const struct stream *s)
{
	static const struct err none = {REASON_NONE, 0, "closed"};

	return s->error ? s->error : &none;
}

bool stream_error_is_tls(const struct stream *s)
{
	return s->error_is_tls;
}

bool stream_was_cut(const struct stream *s)
{
	return s->error_is_tls && s->tls_up && s->socket_eof && !s->tls_refused;
}

SSL *stream_ssl(const struct stream *s)
{
	return s->ssl;
}

uint64_t stream_bytes_in(const struct stream *s)
{
	return s->bytes_in;
}

uint64_t stream_bytes_out(const struct stream *s)
{
	return s->bytes_out;
}

int stream_fd(const struct stream *s)
{
	return s->fd;
}
