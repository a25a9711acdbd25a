/*
 * See oneshot.h. A question may be a token's, and an answer one: both are wiped.
 */
#include "proxy/cli/oneshot.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "logging/limits.h"

struct client {
	int fd; /* -1: free */
	unsigned uid;
	int64_t end_ms;
	char *in; /* of question_bytes */
	size_t n; /* of in */
	bool answered;
	size_t sent;
	struct strbuf out;
};

struct oneshot {
	/* owned */
	int fd;
	char *rooms; /* of all clients' questions */
	/* borrowed */
	const struct oneshot_kind *kind;
	/* plain */
	int64_t paused_ms; /* none is taken before then */
	struct client clients[];
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int oneshot_new(int fd, const struct oneshot_kind *kind, struct oneshot **ret, struct err *e)
{
	struct oneshot *o = calloc(1, sizeof(*o) + kind->clients * sizeof(o->clients[0]));

	if (o)
		o->rooms = calloc(kind->clients, kind->question_bytes);
	if (!o || !o->rooms) {
		free(o);
		return err_set(e, "out of memory");
	}
	o->fd = fd;
	o->kind = kind;
	for (size_t i = 0; i < kind->clients; i++)
		o->clients[i] =
			(struct client){.fd = -1, .in = o->rooms + i * kind->question_bytes};
	*ret = o;
	return 0;
}

/* ---- one connection ---- */

static void drop(const struct oneshot *o, struct client *c)
{
	close(c->fd);
	c->fd = -1;
	strbuf_wipe(&c->out);
	OPENSSL_cleanse(c->in, o->kind->question_bytes);
}

/* From when on another may take the place of c, which has not asked: a question comes at once
 * behind its connection. */
static int64_t keeps_until(const struct oneshot *o, const struct client *c)
{
	return c->end_ms - (int64_t)o->kind->life_ms + LIMIT_MS_ONESHOT_SILENT;
}

/* The place that is free the soonest, and when: 0, it is free now. NULL: each has its answer under
 * way. */
static struct client *find_place(struct oneshot *o, int64_t *ret_at_ms)
{
	struct client *found = NULL;

	*ret_at_ms = 0;
	for (size_t i = 0; i < o->kind->clients; i++) {
		struct client *c = &o->clients[i];

		if (c->fd < 0) {
			*ret_at_ms = 0;
			return c;
		}
		if (c->answered || (found && keeps_until(o, c) >= *ret_at_ms))
			continue;
		found = c;
		*ret_at_ms = keeps_until(o, c);
	}
	return found;
}

static void accept_some(struct oneshot *o)
{
	const struct oneshot_kind *k = o->kind;

	o->paused_ms = now_ms() + (int64_t)k->pause_ms;
	for (size_t i = 0; i < k->clients; i++) {
		int64_t free_ms;
		struct client *c = find_place(o, &free_ms);
		unsigned uid = 0;
		int fd;

		if (!c || now_ms() < free_ms)
			return;
		fd = accept4(o->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno != EAGAIN)
				o->paused_ms = now_ms() + LIMIT_MS_ACCEPT_PAUSE;
			return;
		}
		if (k->may_ask && !k->may_ask(fd, &uid)) {
			close(fd);
			continue;
		}
		if (c->fd >= 0)
			drop(o, c);
		c->fd = fd;
		c->uid = uid;
		c->end_ms = now_ms() + (int64_t)k->life_ms;
		c->n = c->sent = 0;
		c->answered = false;
		strbuf_init(&c->out, k->answer_bytes);
	}
}

/* True: gone, or nothing more can be done now. */
static bool write_some(const struct oneshot *o, struct client *c)
{
	struct str rest = str_skip(strbuf_str(&c->out), c->sent);
	ssize_t n = send(c->fd, rest.p, rest.n, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n > 0)
		c->sent += (size_t)n;
	if (n <= 0 || c->sent == c->out.len) {
		(void)shutdown(c->fd, SHUT_WR);
		drop(o, c);
		return true;
	}
	return false;
}

static void write_out(const struct oneshot *o, struct client *c)
{
	while (!write_some(o, c))
		;
}

static void read_in(const struct oneshot *o, struct client *c, void *arg)
{
	size_t room = o->kind->question_bytes;
	ssize_t n = recv(c->fd, c->in + c->n, room - c->n, MSG_DONTWAIT);
	int found;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		drop(o, c);
		return;
	}
	c->n += (size_t)n;
	found = o->kind->on_bytes(arg, str_from(c->in, c->n), c->uid, &c->out);
	if (found > 0) {
		c->answered = true;
		write_out(o, c);
	} else if (found < 0 || c->n == room) {
		drop(o, c);
	}
}

/* ---- the loop's side ---- */

nfds_t oneshot_poll(struct oneshot *o, struct pollfd *v, int *wait_ms)
{
	nfds_t n = 0;
	int64_t free_ms, now = now_ms();
	const struct client *place = o ? find_place(o, &free_ms) : NULL;

	for (size_t i = 0; o && i < o->kind->clients; i++) {
		const struct client *c = &o->clients[i];

		if (c->fd >= 0)
			v[n++] = (struct pollfd){.fd = c->fd,
						 .events = c->answered ? POLLOUT : POLLIN};
	}
	if (!place)
		return n;
	if (free_ms > now && free_ms - now < *wait_ms)
		*wait_ms = (int)(free_ms - now);
	if (now >= free_ms && now >= o->paused_ms)
		v[n++] = (struct pollfd){.fd = o->fd, .events = POLLIN};
	return n;
}

static void serve(struct oneshot *o, int fd, void *arg)
{
	if (fd == o->fd) {
		accept_some(o);
		return;
	}
	for (size_t i = 0; i < o->kind->clients; i++) {
		struct client *c = &o->clients[i];

		if (c->fd != fd)
			continue;
		if (c->answered)
			write_out(o, c);
		else
			read_in(o, c, arg);
		return;
	}
}

void oneshot_turn(struct oneshot *o, const struct pollfd *v, nfds_t n, void *arg)
{
	if (!o)
		return;
	for (nfds_t i = 0; i < n; i++)
		if (v[i].revents)
			serve(o, v[i].fd, arg);
	for (size_t i = 0; i < o->kind->clients; i++)
		if (o->clients[i].fd >= 0 && now_ms() >= o->clients[i].end_ms)
			drop(o, &o->clients[i]);
}

void oneshot_free(struct oneshot *o)
{
	if (!o)
		return;
	for (size_t i = 0; i < o->kind->clients; i++)
		if (o->clients[i].fd >= 0)
			drop(o, &o->clients[i]);
	close(o->fd);
	free(o->rooms);
	free(o);
}
