/*
 * Idle upstream connections: a table by key whose chains have the freshest first, and one list by
 * age over all of them. Since every entry may idle for the same time, one timer for the oldest does
 * for all. It opens nothing and judges nothing; the key is the caller's promise.
 */
#include "proxy/net/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>

#define BUCKETS 2048 /* a power of two, well over LIMIT_POOL_IDLE */
/* Longer idle: ask the kernel whether the origin closed meanwhile. Shorter, and the loop would have
 * heard it, but for the turn that is running. */
#define PEEK_US 1000000

struct entry {
	TAILQ_ENTRY(entry) age;
	TAILQ_ENTRY(entry) chain;
	/* owned */
	struct stream *stream;
	/* borrowed */
	struct pool *pool;
	/* plain */
	uint64_t hash;
	int64_t put_us;
	struct ipaddr addr;
	uint16_t port;
	size_t key_n;
	char key[]; /* no terminator */
};

TAILQ_HEAD(entries, entry);

struct pool {
	/* owned */
	struct entries buckets[BUCKETS]; /* freshest first */
	struct entries ages;		 /* oldest first */
	struct timer timer;
	/* borrowed */
	struct loop *loop;
	/* plain */
	size_t n, max, max_per_key;
	uint64_t idle_ms;
	uint64_t seed;
};

static uint64_t hash_of(const struct pool *p, struct str key)
{
	return str_hash(p->seed, key);
}

static struct entries *bucket(struct pool *p, uint64_t hash)
{
	return &p->buckets[hash & (BUCKETS - 1)];
}

static bool has_key(const struct entry *n, uint64_t hash, struct str key)
{
	return n->hash == hash && n->key_n == key.n && memcmp(n->key, key.p, key.n) == 0;
}

/* Takes the entry out; the stream is the caller's. */
static struct stream *cut(struct entry *n)
{
	struct pool *p = n->pool;
	struct stream *s = n->stream;

	TAILQ_REMOVE(&p->ages, n, age);
	TAILQ_REMOVE(bucket(p, n->hash), n, chain);
	p->n--;
	free(n);
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

static bool is_over(const struct pool *p, const struct entry *n, int64_t now_us)
{
	return now_us - n->put_us >= (int64_t)p->idle_ms * 1000;
}

static void on_timer(void *arg)
{
	struct pool *p = arg;
	int64_t now = loop_now_us(p->loop);
	struct entry *n;

	while ((n = TAILQ_FIRST(&p->ages)) && is_over(p, n, now))
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
static void make_room(struct pool *p, uint64_t hash, struct str key)
{
	struct entry *n, *oldest = NULL;
	size_t same = 0;

	if (p->n < p->max && p->n < p->max_per_key)
		return;
	TAILQ_FOREACH(n, bucket(p, hash), chain)
	if (has_key(n, hash, key)) {
		same++;
		oldest = n;
	}
	if (oldest && same >= p->max_per_key)
		stream_close(cut(oldest));
	else if (p->n >= p->max)
		stream_close(cut(TAILQ_FIRST(&p->ages)));
}

void pool_put(struct pool *p, struct str key, struct stream *s, const struct ipaddr *addr,
	      uint16_t port)
{
	uint64_t hash = hash_of(p, key);
	struct entry *n = NULL;

	/* Already over, or with bytes that nobody will read, or not all sent: not fit for another.
	 */
	if (p->max > 0 && p->max_per_key > 0 && !stream_at_eof(s) && stream_data(s).n == 0 &&
	    stream_pending(s) == 0)
		n = malloc(sizeof(*n) + key.n);
	if (!n) {
		stream_close(s);
		return;
	}
	make_room(p, hash, key);
	*n = (struct entry){.stream = s,
			    .pool = p,
			    .hash = hash,
			    .put_us = loop_now_us(p->loop),
			    .addr = *addr,
			    .port = port,
			    .key_n = key.n};
	if (key.n > 0)
		memcpy(n->key, key.p, key.n);
	TAILQ_INSERT_TAIL(&p->ages, n, age);
	TAILQ_INSERT_HEAD(bucket(p, hash), n, chain);
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

struct stream *pool_take(struct pool *p, struct str key, struct ipaddr *ret_addr,
			 uint16_t *ret_port)
{
	uint64_t hash = hash_of(p, key);
	int64_t now = loop_now_us(p->loop);
	struct entry *n, *next;

	for (n = TAILQ_FIRST(bucket(p, hash)); n; n = next) {
		next = TAILQ_NEXT(n, chain);
		if (!has_key(n, hash, key))
			continue;
		if (is_over(p, n, now) || (now - n->put_us > PEEK_US && !is_quiet(n->stream))) {
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
