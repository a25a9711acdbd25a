/*
 * The workers' side of the audit log: lines are formatted into a chunk of the port's own, without a
 * lock, and the chunk is handed to the writer once a loop turn. It never waits for the disk. The
 * session layer calls it.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "logging/limits.h"
#include "logging/queue.h"

#define SPARE_CHUNKS	2
#define RESERVE_BYTES	65536  /* for ends when memory is out; some hundred lines */
#define SPARE_CHUNK_MAX 262144 /* a chunk that grew past this in a burst is not kept */

void chunk_list_push(struct chunk_list *l, struct chunk *c)
{
	c->next = NULL;
	if (l->tail)
		l->tail->next = c;
	else
		l->head = c;
	l->tail = c;
}

struct chunk *chunk_list_pop(struct chunk_list *l)
{
	struct chunk *c = l->head;

	if (!c)
		return NULL;
	l->head = c->next;
	if (!l->head)
		l->tail = NULL;
	c->next = NULL;
	return c;
}

void chunk_free(struct chunk *c)
{
	if (!c)
		return;
	strbuf_clear(&c->text);
	free(c);
}

static struct chunk *chunk_new(struct log_port *p)
{
	struct chunk *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	strbuf_init(&c->text, LIMIT_LOG_QUEUE_BYTES);
	c->port = p;
	return c;
}

static void port_free_memory(struct log_port *p)
{
	while (p->spare) {
		struct chunk *c = p->spare;

		p->spare = c->next;
		chunk_free(c);
	}
	chunk_free(p->filling);
	chunk_free(p->reserve);
	close(p->fd);
	free(p);
}

int log_port_new(struct log_writer *w, struct log_port **ret, struct err *e)
{
	struct log_port *p = calloc(1, sizeof(*p));

	if (!p)
		return err_set(e, "out of memory");
	p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->fd < 0) {
		free(p);
		return err_sys(e, errno, "eventfd");
	}
	p->writer = w;
	pthread_mutex_lock(&w->lock);
	p->next = w->ports;
	w->ports = p;
	pthread_mutex_unlock(&w->lock);
	*ret = p;
	return 0;
}

static bool hand_over(struct log_port *p, bool is_last, bool may_write);

void log_port_free(struct log_port *p)
{
	struct log_writer *w;
	struct log_port **at;
	bool is_last;

	if (!p)
		return;
	(void)hand_over(p, true, false);
	w = p->writer;
	pthread_mutex_lock(&w->lock);
	for (at = &w->ports; *at != p; at = &(*at)->next)
		;
	*at = p->next;
	p->is_closed = true;
	is_last = p->in_flight == 0;
	pthread_mutex_unlock(&w->lock);
	if (is_last)
		port_free_memory(p);
}

int log_port_fd(const struct log_port *p)
{
	return p->fd;
}

/* The same measure for adding and for answering whether there is room, so that both agree. */
static bool queue_has_room(struct log_writer *w)
{
	return atomic_load_explicit(&w->queued, memory_order_relaxed) + LIMIT_RECORD_BYTES <=
	       LIMIT_LOG_QUEUE_BYTES;
}

/* Formats r into the chunk at hand. The bytes it took, 0 when it has no room. */
static size_t add_line(struct log_port *p, const struct record *r)
{
	size_t before;

	if (!p->filling)
		p->filling = chunk_new(p);
	if (!p->filling)
		return 0;
	before = p->filling->text.len;
	if (record_format(r, &p->filling->text) < 0)
		return 0;
	return p->filling->text.len - before;
}

/* What begins must be able to end, even when memory is out by then: without a reserve for the last
 * line nothing begins. */
static bool has_reserve(struct log_port *p)
{
	if (p->reserve)
		return true;
	p->reserve = chunk_new(p);
	if (p->reserve && strbuf_reserve(&p->reserve->text, RESERVE_BYTES)) {
		p->is_tight = false;
		return true;
	}
	chunk_free(p->reserve);
	p->reserve = NULL;
	return false;
}

static size_t add_to_reserve(struct log_port *p, const struct record *r)
{
	if (!p->reserve)
		return 0;
	chunk_free(p->filling); /* empty, and it could not grow */
	p->filling = p->reserve;
	p->reserve = NULL;
	p->is_tight = true;
	return add_line(p, r);
}

/* Refusals go on while the log takes nothing; how many of them have no record must be told. */
static uint64_t not_taken(struct log_writer *w)
{
	atomic_fetch_add_explicit(&w->untaken, 1, memory_order_relaxed);
	return 0;
}

uint64_t log_port_add(struct log_port *p, const struct record *r, bool must)
{
	struct log_writer *w = p->writer;
	size_t n;

	if (!must && (!queue_has_room(w) || !has_reserve(p)))
		return not_taken(w);
	n = add_line(p, r);
	if (n == 0) {
		/* A chunk that is full to its bound: go on in the next one. */
		(void)hand_over(p, false, false);
		n = add_line(p, r);
	}
	if (n == 0 && must)
		n = add_to_reserve(p, r);
	if (n == 0)
		return not_taken(w);
	atomic_fetch_add_explicit(&w->queued, n, memory_order_relaxed);
	p->filling->last_ticket = ++p->given;
	return p->given;
}

/* True: it is written already. */
static bool hand_over(struct log_port *p, bool is_last, bool may_write)
{
	struct log_writer *w = p->writer;
	bool must_wake, is_lent;

	if (!p->filling || p->filling->text.len == 0)
		return false;
	pthread_mutex_lock(&w->lock);
	/* When memory is out, the only chunk stays here until another comes back: the next end must
	 * find a place. */
	if (!is_last && p->is_tight && !p->spare && p->in_flight > 0) {
		pthread_mutex_unlock(&w->lock);
		return false;
	}
	chunk_list_push(&w->waiting, p->filling);
	p->in_flight++;
	p->filling = p->spare;
	if (p->spare) {
		p->spare = p->spare->next;
		p->filling->next = NULL;
		p->spare_count--;
	}
	is_lent = may_write && writer_lend(w);
	must_wake = !is_lent && w->is_sleeping;
	if (must_wake)
		w->is_sleeping = false; /* one wake-up is enough */
	pthread_mutex_unlock(&w->lock);
	if (must_wake)
		pthread_cond_signal(&w->wake);
	return is_lent && writer_write_lent(w, p);
}

void log_port_flush(struct log_port *p)
{
	(void)hand_over(p, false, false);
}

bool log_port_write(struct log_port *p)
{
	return hand_over(p, false, true);
}

void log_port_drain(struct log_port *p)
{
	uint64_t count;

	while (read(p->fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	/* An exchange, not a store: whoever finds the flag still set has its mark seen by what the
	 * worker reads after this. */
	atomic_exchange(&p->signalled, false);
}

void port_signal(struct log_port *p)
{
	const uint64_t one = 1;

	if (atomic_exchange(&p->signalled, true))
		return;
	while (write(p->fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void port_return_chunk(struct chunk *c)
{
	struct log_port *p = c->port;

	p->in_flight--;
	if (p->is_closed || p->spare_count == SPARE_CHUNKS || c->text.cap > SPARE_CHUNK_MAX) {
		chunk_free(c);
	} else {
		strbuf_reset(&c->text);
		c->next = p->spare;
		p->spare = c;
		p->spare_count++;
	}
	if (p->is_closed && p->in_flight == 0)
		port_free_memory(p);
}

uint64_t log_port_written(const struct log_port *p)
{
	if (atomic_load_explicit(&p->writer->wait, memory_order_relaxed) == LOG_WAIT_NONE)
		return p->given;
	return atomic_load_explicit(&p->written, memory_order_acquire);
}

/* The writer stores `written` and then reads `awaited`; this does it the other way round, so one of
 * the two sees the other's (both in sequentially consistent order). The lowest ticket not yet
 * reached is the one that is waited for. */
bool log_port_await(struct log_port *p, uint64_t ticket)
{
	uint64_t written = log_port_written(p);
	uint64_t awaited = atomic_load_explicit(&p->awaited, memory_order_relaxed);

	if (written >= ticket)
		return true;
	if (awaited <= written || ticket < awaited)
		atomic_store(&p->awaited, ticket);
	return atomic_load(&p->written) >= ticket;
}

bool log_port_available(const struct log_port *p)
{
	return atomic_load_explicit(&p->writer->available, memory_order_relaxed) &&
	       queue_has_room(p->writer);
}
