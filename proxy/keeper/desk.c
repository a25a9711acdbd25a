/*
 * See desk.h. At most LIMIT_LEAVES_ASKED questions are with the keeper, which is what always fits
 * into the socket; the others wait here for an answer to make room.
 */
#include "proxy/keeper/desk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/keeper/wire.h"
#include "proxy/net/watch.h"

struct desk_job {
	TAILQ_ENTRY(desk_job) next;
	TAILQ_HEAD(, desk_ask) asks;
	struct host host;
	uint16_t port;
	uint32_t id; /* 0: not sent yet */
};

struct desk {
	/* owned */
	struct watch *watch;
	char *in;
	TAILQ_HEAD(jobs, desk_job) jobs; /* oldest first: those that were sent stand in front */
	/* borrowed */
	struct loop *loop;
	struct signer *signer;
	/* plain */
	int fd;
	uint32_t last_id;
	size_t jobs_n, sent_n;
	bool is_broken;
};

static void fail(const struct err *why, struct desk_ask *a)
{
	a->done(a->arg, NULL, why);
}

static void name_of(const struct host *h, struct leaf_name *ret)
{
	*ret = (struct leaf_name){.text = host_str(h)};
	if (h->kind != HOST_NAME) {
		ret->ip = h->addr.b;
		ret->ip_len = h->kind == HOST_IPV4 ? 4 : 16;
	}
}

static void drop_job(struct desk *d, struct desk_job *j)
{
	TAILQ_REMOVE(&d->jobs, j, next);
	d->jobs_n--;
	if (j->id)
		d->sent_n--;
	free(j);
}

/* Each who waits is told, and may ask again from there. der.p NULL: why says it. */
static void finish(struct desk *d, struct desk_job *j, struct str der, const struct err *why)
{
	struct leaf *leaf = NULL;
	struct err e = *why;
	struct leaf_name name;
	struct desk_ask *a;

	name_of(&j->host, &name);
	if (der.p && signer_put(d->signer, &name, der, &leaf, &e) < 0)
		leaf = NULL;
	while ((a = TAILQ_FIRST(&j->asks))) {
		TAILQ_REMOVE(&j->asks, a, next);
		a->job = NULL;
		a->done(a->arg, leaf ? leaf_ref(leaf) : NULL, &e);
	}
	leaf_unref(leaf);
	drop_job(d, j);
}

static void break_down(struct desk *d)
{
	struct err e = ERR_INIT;
	struct desk_job *j;

	d->is_broken = true;
	watch_free(d->watch);
	d->watch = NULL;
	(void)err_reason(&e, REASON_INTERNAL_ERROR, "stile's keeper has ended");
	while ((j = TAILQ_FIRST(&d->jobs)))
		/* finish takes it off. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		finish(d, j, STR_NONE, &e);
}

static int send_job(struct desk *d, struct desk_job *j)
{
	struct wire_leaf q = {.port = j->port};
	char text[LIMIT_HOST_BYTES + 3];
	struct strbuf b;
	struct str parts[2];

	strbuf_init_fixed(&b, text, sizeof(text));
	host_add_url(&j->host, &b);
	parts[0] = str_from((const char *)&q, sizeof(q));
	parts[1] = strbuf_str(&b);
	if (++d->last_id == 0)
		d->last_id = 1;
	if (wire_send(d->fd, WIRE_LEAF, d->last_id, parts, 2, -1) < 0)
		return -1;
	j->id = d->last_id;
	d->sent_n++;
	return 0;
}

static void send_waiting(struct desk *d)
{
	struct desk_job *j;

	TAILQ_FOREACH(j, &d->jobs, next)
	{
		if (d->sent_n >= LIMIT_LEAVES_ASKED)
			return;
		if (j->id)
			continue;
		if (send_job(d, j) < 0) {
			/* EAGAIN with answers to come: they make room. */
			if (errno != EAGAIN || d->sent_n == 0)
				break_down(d);
			return;
		}
	}
}

static struct desk_job *job_of(struct desk *d, uint32_t id)
{
	struct desk_job *j;

	TAILQ_FOREACH(j, &d->jobs, next)
	if (j->id == id)
		return j;
	return NULL;
}

static void on_message(struct desk *d, const struct wire_msg *m)
{
	struct desk_job *j = m->head.id ? job_of(d, m->head.id) : NULL;
	struct err why = ERR_INIT;

	if (!j)
		return;
	if (m->head.kind == WIRE_LEAF_IS) {
		finish(d, j, str_from(m->body, m->head.n), &why);
		return;
	}
	if (m->head.kind == WIRE_FAILED && m->head.n > 0)
		(void)err_reason(&why, (enum reason)(unsigned char)m->body[0], "%.*s",
				 (int)m->head.n - 1, m->body + 1);
	else
		(void)err_reason(&why, REASON_INTERNAL_ERROR, "the keeper's answer is no leaf");
	finish(d, j, STR_NONE, &why);
}

static void on_readable(void *arg)
{
	struct desk *d = arg;
	struct wire_msg m = {.body = d->in};
	int got = 1;

	bool any = false;

	while (!d->is_broken && (got = wire_recv(d->fd, &m)) > 0) {
		on_message(d, &m);
		any = true;
	}
	if (got == 0 || (got < 0 && errno != EAGAIN))
		break_down(d);
	else if (!d->is_broken)
		send_waiting(d);
	/* Who waited has been told, and what that led to was sent. */
	if (any)
		signer_prepare(d->signer);
}

int desk_new(struct loop *l, struct signer *s, int fd, struct desk **ret, struct err *e)
{
	struct desk *d = calloc(1, sizeof(*d));

	if (!d)
		return err_set(e, "out of memory");
	d->loop = l;
	d->signer = s;
	d->fd = fd;
	TAILQ_INIT(&d->jobs);
	if (fd >= 0) {
		d->in = malloc(LIMIT_KEEPER_MESSAGE);
		if (!d->in || watch_new(l, fd, on_readable, d, &d->watch, e) < 0) {
			desk_free(d);
			return err_set(e, "out of memory");
		}
	}
	*ret = d;
	return 0;
}

void desk_free(struct desk *d)
{
	struct desk_job *j;

	if (!d)
		return;
	while ((j = TAILQ_FIRST(&d->jobs)))
		/* drop_job takes it off. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		drop_job(d, j);
	watch_free(d->watch);
	free(d->in);
	free(d);
}

static struct desk_job *find(struct desk *d, const struct host *h, uint16_t port)
{
	struct desk_job *j;

	TAILQ_FOREACH(j, &d->jobs, next)
	if (j->port == port && host_eq(&j->host, h))
		return j;
	return NULL;
}

static struct desk_job *new_job(struct desk *d, const struct host *h, uint16_t port)
{
	struct desk_job *j = d->jobs_n < LIMIT_LEAF_CACHE ? calloc(1, sizeof(*j)) : NULL;

	if (!j)
		return NULL;
	j->host = *h;
	j->port = port;
	TAILQ_INIT(&j->asks);
	TAILQ_INSERT_TAIL(&d->jobs, j, next);
	d->jobs_n++;
	return j;
}

void desk_get(struct desk *d, const struct host *h, uint16_t port, struct desk_ask *a,
	      void (*done)(void *arg, struct leaf *leaf, const struct err *e), void *arg)
{
	struct err e = ERR_INIT;
	struct leaf_name name;
	struct desk_job *j;
	struct leaf *leaf;

	*a = (struct desk_ask){.done = done, .arg = arg};
	name_of(h, &name);
	if (!signer_is_remote(d->signer)) {
		signer_get(d->signer, &name, done, arg);
		return;
	}
	leaf = signer_find(d->signer, &name);
	if (leaf) {
		done(arg, leaf, &e);
		return;
	}
	j = d->is_broken ? NULL : find(d, h, port);
	if (!j && !d->is_broken)
		j = new_job(d, h, port);
	if (!j) {
		(void)err_reason(&e, d->is_broken ? REASON_INTERNAL_ERROR : REASON_OVERLOADED, "%s",
				 d->is_broken ? "stile's keeper has ended"
					      : "too many certificates are being made");
		fail(&e, a);
		return;
	}
	TAILQ_INSERT_TAIL(&j->asks, a, next);
	a->job = j;
	send_waiting(d);
}

void desk_forget(struct desk *d, struct desk_ask *a)
{
	(void)d;
	if (!a->job)
		return;
	TAILQ_REMOVE(&a->job->asks, a, next);
	a->job = NULL;
}
