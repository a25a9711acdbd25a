/*
 * A request that is signed on its way out (credentials/signing.h), as an exchange sees it: held
 * until its body is whole where that must be hashed first, signed as its head is written, and its
 * body looked at as it goes by.
 */
#include <time.h>

#include "proxy/session/exchange_internal.h"

int exchange_sign_prepare(struct exchange *x, const struct config_credential *c, struct secret *s,
			  struct err *e)
{
	return signing_new(c, s, x->request, &x->signing, e);
}

bool exchange_must_hold(const struct exchange *x)
{
	return x->signing && signing_holds_body(x->signing);
}

static void sink_hold(void *arg, struct str data)
{
	struct exchange *x = arg;
	struct worker *w = x->worker;

	if (x->error.reason != REASON_NONE)
		return;
	if (data.n > LIMIT_SIGV4_BODIES - w->held_bytes) {
		(void)err_reason(&x->error, REASON_OVERLOADED,
				 "too many bodies wait to be signed (send X-Amz-Content-Sha256)");
		return;
	}
	if (signing_hold(x->signing, data, &x->error) < 0)
		return;
	w->held_bytes += data.n;
	x->held_bytes += data.n;
}

static void held_whole(struct exchange *x)
{
	struct request *r = x->request;

	/* Known now, and services take no chunks. */
	if (r->body == BODY_CHUNKED) {
		r->body = BODY_LENGTH;
		r->length = x->held_bytes;
	}
	/* The client was told to go on already. */
	r->expect_continue = false;
}

bool exchange_hold(struct exchange *x)
{
	struct downstream *d = x->down;
	struct err e = ERR_INIT;
	uint64_t before, first = x->held_bytes;
	bool done = false;

	if (x->request->expect_continue && !x->continued) {
		x->continued = true;
		d->ops->send_continue(d);
	}
	do {
		before = x->held_bytes;
		if (d->ops->pull(d, LIMIT_READ_CHUNK, sink_hold, x, &done, &e) < 0) {
			exchange_fail_with(x, &e);
			return false;
		}
		if (x->error.reason != REASON_NONE) {
			exchange_fail(x);
			return false;
		}
	} while (!done && x->held_bytes != before);
	if (!done) {
		if (x->held_bytes != first)
			exchange_arm(x, exchange_limits(x)->body_idle_ms);
		return false;
	}
	if (signing_hold_end(x->signing, &e) < 0) {
		exchange_fail_with(x, &e);
		return false;
	}
	held_whole(x);
	return true;
}

int exchange_sign(struct exchange *x, const struct request *r, struct err *e)
{
	struct worker *w = x->worker;

	if (!w->sigv4 && sigv4_new(&w->sigv4, e) < 0)
		return -1;
	return signing_sign(x->signing, w->sigv4, r, time(NULL), &x->injection, e);
}

/* From where the last call has stopped, as long as the origin takes it: nothing else calls again as
 * long as it does. */
static void pull_held(struct exchange *x, void (*sink)(void *arg, struct str data), bool *ret_done)
{
	struct str rest = str_skip(signing_held(x->signing), x->held_sent);
	size_t room;

	while (rest.n > 0 && !x->misused && (room = upstream_room(x->up)) > 0) {
		struct str now = str_head(rest, room);

		sink(x, now);
		x->held_sent += now.n;
		rest = str_skip(rest, now.n);
	}
	*ret_done = rest.n == 0;
}

int exchange_pull_client(struct exchange *x, size_t room, void (*sink)(void *arg, struct str data),
			 bool *ret_done, struct err *e)
{
	if (!exchange_must_hold(x))
		return x->down->ops->pull(x->down, room, sink, x, ret_done, e);
	pull_held(x, sink, ret_done);
	return 0;
}

int exchange_check_signed(struct exchange *x, struct str data, bool last)
{
	if (!x->misused)
		x->misused = signing_check(x->signing, data, last, &x->error) < 0;
	return x->misused ? -1 : 0;
}

void exchange_sign_end(struct exchange *x)
{
	if (!x->signing)
		return;
	x->worker->held_bytes -= x->held_bytes;
	x->held_bytes = 0;
	signing_free(x->signing);
	x->signing = NULL;
}
