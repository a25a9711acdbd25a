/*
 * The writer's thread: takes all chunks that wait, writes them with one writev, tells their ports.
 * It copes with a disk that is full, a file that is deleted or moved away, and rotation, and it is
 * the only one that touches the sink. It formats nothing (record.c) and never waits for a worker.
 */
#include "logging/writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "logging/limits.h"
#include "logging/log.h"
#include "logging/queue.h"
#include "logging/thread.h"

#define IOV_CHUNKS	256 /* chunks in one writev */
#define LOOK_EVERY_MS	500 /* whether the path still names the open file */
#define STREAM_WAIT_MS	200 /* one poll of a pipe; orders are looked at in between */
#define REOPEN_PAUSE_NS 200000
#define REOPEN_LOOKS	2500 /* half a second */
#define LENT_SLOW_MS	10 /* so long a write tells of a busy disk: only the thread may meet it... */
#define LENT_REST_MS	5000 /* ...until then */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void notify_all_ports(struct log_writer *w)
{
	pthread_mutex_lock(&w->lock);
	for (struct log_port *p = w->ports; p; p = p->next)
		port_signal(p);
	pthread_mutex_unlock(&w->lock);
}

/* A transition is said once, however often it is tried again. */
static void set_failing(struct log_writer *w, const char *why)
{
	w->is_failing = true;
	w->retry_at_ms = now_ms() + LIMIT_MS_LOG_RETRY;
	if (!atomic_exchange(&w->available, false))
		return;
	log_error("the log %s cannot be written: %s (requests are refused until it can)",
		  sink_name(&w->sink), why);
	notify_all_ports(w);
}

static void say_untaken(struct log_writer *w)
{
	size_t n = atomic_exchange(&w->untaken, 0);

	if (n)
		log_error("%zu line(s) found no room to wait for the log %s and are lost", n,
			  sink_name(&w->sink));
}

static void set_working(struct log_writer *w)
{
	if (atomic_load(&w->available))
		return;
	atomic_store(&w->available, true);
	log_warn("the log %s is written again", sink_name(&w->sink));
	say_untaken(w);
	notify_all_ports(w);
}

/* Where the line begins in which w->offset stands; w->offset itself between two lines. */
static size_t line_start(const struct log_writer *w)
{
	const char *data = w->writing.head ? w->writing.head->text.data : NULL;
	const char *newline = data && w->offset ? memrchr(data, '\n', w->offset) : NULL;

	return newline ? (size_t)(newline - data) + 1 : 0;
}

/* Moves what is fully written to `done`. */
static void advance(struct log_writer *w, size_t n)
{
	w->moved_on_ms = now_ms();
	w->offset += n;
	while (w->writing.head && w->offset >= w->writing.head->text.len) {
		w->offset -= w->writing.head->text.len;
		chunk_list_push(&w->done, chunk_list_pop(&w->writing));
	}
}

/* Before the sink is exchanged: a line that stands half in the old one is ended there, or taken
 * back, so that it is whole in exactly one of the two. */
static void leave_line(struct log_writer *w)
{
	size_t start = line_start(w);

	while (w->offset > start) {
		struct chunk *c = w->writing.head;
		char *rest = c->text.data + w->offset;
		size_t n = (size_t)((char *)memchr(rest, '\n', c->text.len - w->offset) - rest) + 1;
		struct iovec iov = {rest, n};
		ssize_t wrote = sink_write(&w->sink, &iov, 1, STREAM_WAIT_MS);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			break;
		advance(w, (size_t)wrote);
		if ((size_t)wrote == n)
			return;
	}
	if (w->offset == start)
		return;
	if (sink_unwrite(&w->sink, w->offset - start) < 0) {
		log_error("the log %s ends in half a line; the whole line is in the next one",
			  sink_name(&w->sink));
		w->sink.is_begun = false; /* in case it is the next one */
	}
	w->offset = start;
}

static void swap_sink(struct log_writer *w, const struct sink *fresh)
{
	bool is_same = fresh->is_regular && w->sink.is_regular && fresh->dev == w->sink.dev &&
		       fresh->ino == w->sink.ino;
	bool is_begun;

	if (w->is_gone)
		w->offset = line_start(w); /* its beginning went with the file */
	else
		leave_line(w);
	/* What is in the old one is synced now or never. */
	if (atomic_load(&w->wait) == LOG_WAIT_SYNCED && !w->is_gone && sink_sync(&w->sink) < 0)
		log_error("the log %s could not be synced before it was closed",
			  sink_name(&w->sink));
	is_begun = is_same ? w->sink.is_begun : fresh->is_begun;
	sink_close(&w->sink);
	w->sink = *fresh;
	w->sink.is_begun = is_begun;
	w->is_gone = false;
	w->is_failing = false;
	w->move_is_said = false;
	w->look_at_ms = now_ms() + LOOK_EVERY_MS;
}

/* The path no longer names the open file. One that was only moved keeps what it is given, so it
 * stays in use when no new one can be made; one that is deleted does not. */
static void look_at_path(struct log_writer *w)
{
	enum sink_state state = w->is_gone ? SINK_GONE : sink_state(&w->sink);
	struct err e = ERR_INIT;
	struct sink fresh;

	w->look_at_ms = now_ms() + LOOK_EVERY_MS;
	if (state == SINK_SAME)
		return;
	w->is_gone = state == SINK_GONE;
	if (sink_open_again(&w->sink, &fresh, &e) == 0) {
		log_warn("the log %s was %s; a new file is in use", sink_name(&w->sink),
			 w->is_gone ? "deleted" : "moved");
		swap_sink(w, &fresh);
	} else if (w->is_gone) {
		set_failing(w, e.text);
	} else if (!w->move_is_said) {
		w->move_is_said = true;
		log_error("the log was moved and %s; the old file stays in use", e.text);
	}
}

static void reopen(struct log_writer *w)
{
	struct err e = ERR_INIT;
	struct sink fresh;

	if (sink_open_again(&w->sink, &fresh, &e) == 0)
		swap_sink(w, &fresh);
	else
		log_error("cannot open the log anew: %s; the old file stays in use", e.text);
}

/* Tells the ports that wait for it, except `self`, that their lines are written. */
static void mark_written(struct log_writer *w, const struct log_port *self)
{
	uint64_t before, awaited;
	size_t bytes = 0;

	for (struct chunk *c = w->done.head; c; c = c->next) {
		bytes += c->text.len;
		before = atomic_load_explicit(&c->port->written, memory_order_relaxed);
		atomic_store(&c->port->written, c->last_ticket);
		awaited = atomic_load(&c->port->awaited);
		if (before < awaited && awaited <= c->last_ticket)
			c->port->is_awaited = true;
	}
	atomic_fetch_sub_explicit(&w->queued, bytes, memory_order_relaxed);
	/* After all the marks: a port with several chunks is told once. */
	for (struct chunk *c = w->done.head; c; c = c->next) {
		bool is_told = self && c->port == self;

		if (c->port->is_awaited && !is_told)
			port_signal(c->port);
		c->port->is_awaited = false;
	}
}

/* With the lock held. */
static void return_chunks(struct log_writer *w)
{
	while (w->done.head)
		port_return_chunk(chunk_list_pop(&w->done));
}

static void commit(struct log_writer *w)
{
	if (!w->done.head)
		return;
	mark_written(w, NULL);
	pthread_mutex_lock(&w->lock);
	return_chunks(w);
	pthread_mutex_unlock(&w->lock);
}

/* A pipe that nobody reads is no failure until a start record would have waited too long for it. */
static void on_write_error(struct log_writer *w, int error)
{
	char buf[128];

	if (error == EINTR)
		return;
	if (error == EAGAIN && now_ms() - w->moved_on_ms < LIMIT_MS_LOG_WAIT)
		return;
	set_failing(w, strerror_r(error, buf, sizeof(buf)));
}

static int stream_wait_ms(const struct log_writer *w, bool is_stopping)
{
	int64_t left = is_stopping ? w->stop_at_ms - now_ms() : STREAM_WAIT_MS;

	if (left < 0)
		return 0;
	return left < STREAM_WAIT_MS ? (int)left : STREAM_WAIT_MS;
}

/* What is to be written next; how many of iov it fills. */
static int gather(const struct log_writer *w, struct iovec iov[IOV_CHUNKS])
{
	size_t skip = w->offset;
	int count = 0;

	for (struct chunk *c = w->writing.head; c && count < IOV_CHUNKS; c = c->next) {
		iov[count++] = (struct iovec){c->text.data + skip, c->text.len - skip};
		skip = 0;
	}
	return count;
}

/* One writev for what waits, and the sync if it is asked for. */
static void write_some(struct log_writer *w, bool is_stopping)
{
	struct iovec iov[IOV_CHUNKS];
	int count = gather(w, iov);
	ssize_t n = 0;

	if (count)
		n = sink_write(&w->sink, iov, count, stream_wait_ms(w, is_stopping));
	if (n < 0) {
		on_write_error(w, errno);
		return;
	}
	if (n > 0)
		advance(w, (size_t)n);
	if (atomic_load(&w->wait) == LOG_WAIT_SYNCED && w->done.head && sink_sync(&w->sink) < 0) {
		on_write_error(w, errno);
		return;
	}
	w->is_failing = false;
	/* A disk that takes a little and is full again has not recovered. */
	if (!w->writing.head)
		set_working(w);
	commit(w);
}

/* ---- what a port writes itself ---- */

static void take_waiting(struct log_writer *w)
{
	if (w->writing.tail)
		w->writing.tail->next = w->waiting.head;
	else
		w->writing.head = w->waiting.head;
	w->writing.tail = w->waiting.tail;
	w->waiting = (struct chunk_list){NULL, NULL};
}

/* Only while the thread sleeps for want of work: whatever is out of the ordinary is for it. */
bool writer_lend(struct log_writer *w)
{
	if (!w->is_sleeping || w->is_lent || w->reopen_wanted || w->has_next || w->is_stopping ||
	    w->is_failing || w->is_gone || w->writing.head || w->done.head)
		return false;
	if (!w->sink.is_quick || !w->sink.is_begun || now_ms() < w->lend_at_ms ||
	    atomic_load_explicit(&w->wait, memory_order_relaxed) == LOG_WAIT_SYNCED ||
	    !atomic_load_explicit(&w->available, memory_order_relaxed))
		return false;
	w->is_lent = true;
	take_waiting(w);
	return true;
}

/* What goes wrong here is not judged: it stays in `writing`, and the thread meets the same. */
bool writer_write_lent(struct log_writer *w, const struct log_port *p)
{
	struct iovec iov[IOV_CHUNKS];
	int64_t begun = now_ms(), ended;
	bool is_whole, must_wake;
	ssize_t n = sink_write_quick(&w->sink, iov, gather(w, iov));

	w->moved_on_ms = begun;
	if (n > 0)
		advance(w, (size_t)n);
	ended = now_ms();
	if (n < 0 || ended - begun > LENT_SLOW_MS)
		w->lend_at_ms = ended + LENT_REST_MS;
	mark_written(w, p);
	pthread_mutex_lock(&w->lock);
	return_chunks(w);
	w->is_lent = false;
	is_whole = !w->writing.head;
	must_wake = !is_whole || w->waiting.head || !w->is_sleeping;
	if (must_wake)
		w->is_sleeping = false;
	pthread_mutex_unlock(&w->lock);
	if (must_wake)
		pthread_cond_signal(&w->wake);
	return is_whole;
}

/* ---- the thread ---- */

/* With the lock held. */
static void take_back(struct log_writer *w)
{
	while (w->is_lent)
		pthread_cond_wait(&w->wake, &w->lock);
}

/* Sleeps until there is something to do. With the lock held. */
static void wait_for_work(struct log_writer *w)
{
	while (!w->reopen_wanted && !w->has_next) {
		bool has_work = w->waiting.head || w->writing.head || w->done.head;
		int64_t until = w->look_at_ms;
		struct timespec t;

		if (w->is_failing) {
			until = w->retry_at_ms;
			if (w->is_stopping && w->stop_at_ms < until)
				until = w->stop_at_ms;
		} else if (has_work || w->is_stopping) {
			break;
		}
		if (now_ms() >= until)
			break;
		t = (struct timespec){until / 1000, until % 1000 * 1000000};
		w->is_sleeping = true;
		pthread_cond_timedwait(&w->wake, &w->lock, &t);
		w->is_sleeping = false;
		take_back(w);
	}
}

/* Takes over what the others left under the lock; returns whether the end was asked for. */
static bool take_orders(struct log_writer *w)
{
	struct sink next = {.fd = -1};
	enum log_wait wait = LOG_WAIT_WRITTEN;
	bool must_reopen, must_change, is_stopping;

	pthread_mutex_lock(&w->lock);
	wait_for_work(w);
	if (!w->writing.head && w->waiting.head)
		w->moved_on_ms = now_ms();
	if (w->waiting.head)
		take_waiting(w);
	must_reopen = w->reopen_wanted;
	must_change = w->has_next;
	if (must_change) {
		next = w->next;
		wait = w->next_wait;
	}
	w->reopen_wanted = w->has_next = false;
	w->reopens_taken = w->reopens;
	is_stopping = w->is_stopping;
	pthread_mutex_unlock(&w->lock);
	/* Opening may take its time; nobody waits for the lock meanwhile. */
	if (must_change) {
		swap_sink(w, &next);
		atomic_store(&w->wait, (int)wait);
	} else if (must_reopen) {
		reopen(w);
	}
	return is_stopping;
}

static void *writer_main(void *arg)
{
	struct log_writer *w = arg;

	/* By the thread itself: for another one libc would write a file of /proc. */
	(void)pthread_setname_np(pthread_self(), "stile-log");
	for (;;) {
		bool is_stopping = take_orders(w);
		int64_t now = now_ms();

		if (now >= w->look_at_ms || (w->is_gone && now >= w->retry_at_ms))
			look_at_path(w);
		/* With nothing to write this only sees that a new sink is open. */
		if (!w->is_gone && (!w->is_failing || now >= w->retry_at_ms))
			write_some(w, is_stopping);
		/* Not before: what a file ends in is looked at with the first line for it. */
		atomic_store(&w->reopens_done, w->reopens_taken);
		if (is_stopping && ((!w->writing.head && !w->done.head) || now >= w->stop_at_ms))
			return NULL;
	}
}

int log_writer_start(struct log_writer *w, struct err *e)
{
	if (thread_start(&w->thread, writer_main, w, "thread of the log", e) < 0)
		return -1;
	w->is_started = true;
	return 0;
}

int log_writer_give(struct log_writer *w, unsigned uid, unsigned gid, struct err *e)
{
	if (sink_give(&w->sink, uid, gid) < 0)
		return err_sys(e, errno, "cannot give the log %s to its new owner",
			       sink_name(&w->sink));
	return 0;
}

int log_writer_new(const char *to, enum log_wait wait, struct log_writer **ret, struct err *e)
{
	if (log_writer_open(to, wait, ret, e) < 0)
		return -1;
	if (log_writer_start(*ret, e) == 0)
		return 0;
	log_writer_free(*ret, 0);
	*ret = NULL;
	return -1;
}

int log_writer_open(const char *to, enum log_wait wait, struct log_writer **ret, struct err *e)
{
	struct log_writer *w = calloc(1, sizeof(*w));
	pthread_condattr_t attr;

	if (!w)
		return err_set(e, "out of memory");
	if (sink_open(&w->sink, to, e) < 0) {
		free(w);
		return -1;
	}
	atomic_init(&w->available, true);
	atomic_init(&w->wait, (int)wait);
	w->look_at_ms = now_ms() + LOOK_EVERY_MS;
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &attr);
	pthread_condattr_destroy(&attr);
	*ret = w;
	return 0;
}

/* Frees what the thread left unwritten and counts its lines. */
static size_t drop_chunks(struct chunk_list *l, size_t offset)
{
	size_t lines = 0;
	struct chunk *c;

	while ((c = chunk_list_pop(l))) {
		for (size_t i = offset; i < c->text.len; i++)
			lines += c->text.data[i] == '\n';
		offset = 0;
		port_return_chunk(c);
	}
	return lines;
}

void log_writer_free(struct log_writer *w, int drain_ms)
{
	size_t lost;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop_at_ms = now_ms() + drain_ms;
	w->is_stopping = true;
	pthread_mutex_unlock(&w->lock);
	pthread_cond_signal(&w->wake);
	if (w->is_started)
		pthread_join(w->thread, NULL);
	drop_chunks(&w->done, 0);
	lost = drop_chunks(&w->writing, w->offset) + drop_chunks(&w->waiting, 0);
	if (lost)
		log_error("%zu line(s) of the log %s could not be written and are lost", lost,
			  sink_name(&w->sink));
	say_untaken(w);
	if (w->has_next)
		sink_close(&w->next);
	sink_close(&w->sink);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

void log_writer_reopen(struct log_writer *w)
{
	pthread_mutex_lock(&w->lock);
	w->reopen_wanted = true;
	w->reopens++;
	pthread_mutex_unlock(&w->lock);
	pthread_cond_signal(&w->wake);
}

void log_writer_await_reopen(struct log_writer *w)
{
	struct timespec pause = {.tv_nsec = REOPEN_PAUSE_NS};
	unsigned asked;

	pthread_mutex_lock(&w->lock);
	asked = w->reopens;
	pthread_mutex_unlock(&w->lock);
	for (int i = 0; i < REOPEN_LOOKS && atomic_load(&w->reopens_done) != asked; i++)
		nanosleep(&pause, NULL);
}

int log_writer_retarget(struct log_writer *w, const char *to, enum log_wait wait, struct err *e)
{
	struct sink fresh;

	if (sink_open(&fresh, to, e) < 0)
		return -1;
	pthread_mutex_lock(&w->lock);
	if (w->has_next) /* an earlier change that the thread has not seen */
		sink_close(&w->next);
	w->next = fresh;
	w->next_wait = wait;
	w->has_next = true;
	pthread_mutex_unlock(&w->lock);
	pthread_cond_signal(&w->wake);
	return 0;
}
