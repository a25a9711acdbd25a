/*
 * Idle upstream connections: a table by key whose chains have the freshest first, and one list by
 * age over all of them. Since no entry may idle for longer than the oldest, one timer for that does
 * for all; one whose origin gives it less time is looked at when it is asked for. It opens nothing
 * and judges nothing; the key is the caller's promise.
 */
#include "proxy/net/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>

#define BUCKETS 2048 /* a power of two, well over LIMIT_POOL_IDLE */
/* Entries' memory that is kept: each request takes a connection out and puts it back. Not where use
 * after free is looked for. */
#define SPARES_MAX 64
/* Longer idle: ask the kernel whether the origin closed meanwhile. Shorter, and the loop would have
 * heard it, but for the turn that is running. */
#define PEEK_US 1000000

struct entry {
	TAILQ_ENTRY(entry) age;
	TAILQ_ENTRY(entry) chain;
	/* owned */
	struct stream *stream;
	/* counted */
	struct pool_key *key;
	/* borrowed */
	struct pool *pool;
	/* plain */
	int64_t put_us, idle_us;
	struct ipaddr addr;
	uint16_t port;
};

TAILQ_HEAD(entries, entry);

struct pool {
	/* owned */
	struct entries buckets[BUCKETS];  /* freshest first */
	struct entries ages;		  /* oldest first */
	struct entry *spares[SPARES_MAX]; /* memory alone */
	struct timer timer;
	/* borrowed */
	struct loop *loop;
	/* plain */
	size_t n, max, max_per_key, spares_n;
	uint64_t idle_ms;
	uint64_t seed;
};

struct pool_key *pool_key_new(const struct pool *p, struct str text)
{
	struct pool_key *k = malloc(sizeof(*k) + text.n + 1);

	if (!k)
		return NULL;
	*k = (struct pool_key){.refs = 1, .hash = str_hash(p->seed, text), .n = text.n};
	if (text.n > 0)
		memcpy(k->text, text.p, text.n);
	k->text[text.n] = '\0';
	return k;
}

struct pool_key *pool_key_ref(struct pool_key *k)
{
	k->refs++;
	return k;
}

void pool_key_unref(struct pool_key *k)
{
	if (k && --k->refs == 0)
		free(k);
}

bool pool_key_eq(const struct pool_key *a, const struct pool_key *b)
{
	return a == b ||
	       (a->hash == b->hash && a->n == b->n && memcmp(a->text, b->text, a->n) == 0);
}

static struct entries *bucket(struct pool *p, const struct pool_key *key)
{
	return &p->buckets[key->hash & (BUCKETS - 1)];
}

static struct entry *take_memory(struct pool *p)
{
	return p->spares_n > 0 ? p->spares[--p->spares_n] : malloc(sizeof(struct entry));
}

static void give_memory(struct pool *p, struct entry *n)
{
	if (!HAS_ADDRESS_SANITIZER && p->spares_n < SPARES_MAX)
		p->spares[p->spares_n++] = n;
	else
		free(n);
}

/* Takes the entry out; the stream is the caller's. */
static struct stream *cut(struct entry *n)
{
	struct pool *p = n->pool;
	struct stream *s = n->stream;

	TAILQ_REMOVE(&p->ages, n, age);
	TAILQ_REMOVE(bucket(p, n->key), n, chain);
	p->n--;
	pool_key_unref(n->key);
	give_memory(p, n);
	return s;
}

/* Whatever an idle connection has to say, it is of no more use: closed, broken, or bytes that no
 * request asked for, which would be read as the answer to the next one. */
static void on_event(void *arg, unsigned events)
{
	if (events != STREAM_DRAINED)
		stream_close(cut(arg));
}

/* For a stream that was just handed out, until its new owner says who it is. */
static void on_event_of_nobody(void *arg, unsigned events)
{
	(void)arg;
	(void)events;
}

static void arm(struct pool *p, int64_t now_us)
{
	struct entry *oldest = TAILQ_FIRST(&p->ages);
	int64_t idle_us = oldest ? now_us - oldest->put_us : 0;

	if (oldest)
		timer_arm(&p->timer, p->idle_ms - (uint64_t)(idle_us > 0 ? idle_us : 0) / 1000);
}

static bool is_over(const struct entry *n, int64_t now_us)
{
	return now_us - n->put_us >= n->idle_us;
}

static void on_timer(void *arg)
{
	struct pool *p = arg;
	int64_t now = loop_now_us(p->loop);
	struct entry *n;

	while ((n = TAILQ_FIRST(&p->ages)) && is_over(n, now))
		stream_close(cut(n));
	arm(p, now);
}

int pool_new(struct loop *l, size_t max, size_t max_per_key, uint64_t idle_ms, struct pool **ret,
	     struct err *e)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p || timer_init(&p->timer, l, on_timer, p) < 0) {
		free(p);
		return err_set(e, "out of memory");
	}
	p->loop = l;
	p->max = max;
	p->max_per_key = max_per_key;
	p->idle_ms = idle_ms;
	if (getrandom(&p->seed, sizeof(p->seed), 0) != (ssize_t)sizeof(p->seed))
		p->seed = (uint64_t)(uintptr_t)p;
	TAILQ_INIT(&p->ages);
	for (size_t i = 0; i < BUCKETS; i++)
		TAILQ_INIT(&p->buckets[i]);
	*ret = p;
	return 0;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	pool_close_all(p);
	while (p->spares_n > 0)
		free(p->spares[--p->spares_n]);
	timer_clear(&p->timer);
	free(p);
}

void pool_close_all(struct pool *p)
{
	while (!TAILQ_EMPTY(&p->ages))
		stream_close(cut(TAILQ_FIRST(&p->ages)));
}

size_t pool_size(const struct pool *p)
{
	return p->n;
}

/* Makes room for one more under both bounds. */
static void make_room(struct pool *p, const struct pool_key *key)
{
	struct entry *n, *oldest = NULL;
	size_t same = 0;

	if (p->n < p->max && p->n < p->max_per_key)
		return;
	TAILQ_FOREACH(n, bucket(p, key), chain)
	if (pool_key_eq(n->key, key)) {
		same++;
		oldest = n;
	}
	if (oldest && same >= p->max_per_key)
		stream_close(cut(oldest));
	else if (p->n >= p->max)
		stream_close(cut(TAILQ_FIRST(&p->ages)));
}

void pool_put(struct pool *p, struct pool_key *key, struct stream *s, const struct ipaddr *addr,
	      uint16_t port, uint64_t idle_ms)
{
	struct entry *n = NULL;

	/* Already over, or with bytes that nobody will read, or not all sent: not fit for another.
	 */
	if (p->max > 0 && p->max_per_key > 0 && !stream_at_eof(s) && stream_data(s).n == 0 &&
	    stream_pending(s) == 0)
		n = take_memory(p);
	if (!n) {
		stream_close(s);
		return;
	}
	make_room(p, key);
	n->stream = s;
	n->key = pool_key_ref(key);
	n->pool = p;
	n->put_us = loop_now_us(p->loop);
	n->idle_us = (int64_t)(idle_ms > 0 && idle_ms < p->idle_ms ? idle_ms : p->idle_ms) * 1000;
	n->addr = *addr;
	n->port = port;
	TAILQ_INSERT_TAIL(&p->ages, n, age);
	TAILQ_INSERT_HEAD(bucket(p, key), n, chain);
	p->n++;
	stream_set_owner(s, on_event, n);
	stream_resume(s); /* so that its end is heard */
	if (p->n == 1)
		arm(p, n->put_us);
}

/* Nothing to read and no end of it: what a connection that waits for a request looks like. Bytes
 * are no good sign over TLS either: after so long they are a close_notify. */
static bool is_quiet(const struct stream *s)
{
	char byte;

	return recv(stream_fd(s), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
	       (errno == EAGAIN || errno == EWOULDBLOCK);
}

struct stream *pool_take(struct pool *p, const struct pool_key *key, struct ipaddr *ret_addr,
			 uint16_t *ret_port)
{
	int64_t now = loop_now_us(p->loop);
	struct entry *n, *next;

	for (n = TAILQ_FIRST(bucket(p, key)); n; n = next) {
		next = TAILQ_NEXT(n, chain);
		if (!pool_key_eq(n->key, key))
			continue;
		if (is_over(n, now) || (now - n->put_us > PEEK_US && !is_quiet(n->stream))) {
			stream_close(cut(n));
			continue;
		}
		stream_set_owner(n->stream, on_event_of_nobody, NULL);
		*ret_addr = n->addr;
		*ret_port = n->port;
		return cut(n);
	}
	return NULL;
}
