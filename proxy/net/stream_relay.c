/*
 * See stream_relay.h. Called by session/tunnel.c for tunnels through an https:// upstream.proxy.
 */
#include "proxy/net/stream_relay.h"

#include <stdlib.h>

struct side {
	/* owned */
	struct stream *s;
	/* borrowed */
	struct stream_relay *relay;
	struct side *other;
	/* plain */
	uint64_t bytes; /* moved from here to the other */
	bool ended;	/* its end was passed on */
};

struct stream_relay {
	/* owned */
	struct side sides[2]; /* a, b */
	struct timer idle;
	/* borrowed */
	struct loop *loop;
	void (*done)(void *arg, enum splice_end how);
	void *arg;
	/* plain */
	uint64_t idle_ms;
	bool over;
};

static void free_relay(void *obj)
{
	free(obj);
}

void stream_relay_cancel(struct stream_relay *r, bool reset)
{
	if (!r || r->over)
		return;
	r->over = true;
	for (size_t i = 0; i < ARRAY_LEN(r->sides); i++) {
		if (reset)
			stream_reset(r->sides[i].s);
		else
			stream_close(r->sides[i].s);
	}
	timer_clear(&r->idle);
	loop_bury(r->loop, r, free_relay);
}

static void end(struct stream_relay *r, enum splice_end how)
{
	stream_relay_cancel(r, how == SPLICE_RESET_A || how == SPLICE_RESET_B);
	r->done(r->arg, how);
}

static void on_idle(void *arg)
{
	end(arg, SPLICE_IDLE);
}

static void pump(struct side *from)
{
	struct stream *to = from->other->s;
	struct str data = stream_data(from->s);
	size_t room = stream_room(to);
	size_t n = data.n < room ? data.n : room;

	if (n > 0) {
		stream_write(to, str_head(data, n));
		stream_consume(from->s, n);
		from->bytes += n;
		timer_arm(&from->relay->idle, from->relay->idle_ms);
	}
	if (n == data.n && stream_at_eof(from->s) && !from->ended) {
		from->ended = true;
		stream_shutdown(to);
	}
}

static bool is_done(const struct side *s)
{
	return s->ended && stream_pending(s->other->s) == 0;
}

static void on_side(void *arg, unsigned events)
{
	struct side *s = arg;
	struct stream_relay *r = s->relay;

	if (r->over)
		return;
	pump(s);
	pump(s->other);
	if (events & STREAM_ERROR)
		end(r, s == &r->sides[0] ? SPLICE_RESET_A : SPLICE_RESET_B);
	else if (is_done(&r->sides[0]) && is_done(&r->sides[1]))
		end(r, SPLICE_DONE);
}

int stream_relay_start(struct loop *l, struct stream *a, struct stream *b, uint64_t idle_ms,
		       void (*done)(void *arg, enum splice_end how), void *arg,
		       struct stream_relay **ret, struct err *e)
{
	struct stream_relay *r = calloc(1, sizeof(*r));

	if (!r || timer_init(&r->idle, l, on_idle, r) < 0) {
		free(r);
		stream_close(a);
		stream_close(b);
		return err_set(e, "out of memory");
	}
	r->loop = l;
	r->done = done;
	r->arg = arg;
	r->idle_ms = idle_ms;
	r->sides[0] = (struct side){.s = a, .relay = r, .other = &r->sides[1]};
	r->sides[1] = (struct side){.s = b, .relay = r, .other = &r->sides[0]};
	timer_arm(&r->idle, idle_ms);
	for (size_t i = 0; i < ARRAY_LEN(r->sides); i++) {
		stream_set_owner(r->sides[i].s, on_side, &r->sides[i]);
		/* Whatever it holds, its end included, is told again. */
		stream_pause(r->sides[i].s);
		stream_resume(r->sides[i].s);
	}
	*ret = r;
	return 0;
}

uint64_t stream_relay_bytes_a_to_b(const struct stream_relay *r)
{
	return r->sides[0].bytes;
}

uint64_t stream_relay_bytes_b_to_a(const struct stream_relay *r)
{
	return r->sides[1].bytes;
}
