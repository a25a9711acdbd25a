/*
 * splice.h over the fake sockets: each turn moves what is there and what the other side takes.
 */
#include "proxy/net/splice.h"

#include <stdlib.h>

#include "tests/replay/fake.h"

struct side {
	struct fake_socket *k;
	uint64_t moved; /* from here to the other */
	bool ended;	/* its end was passed on */
};

struct splice {
	struct splice *next;
	struct side a, b;
	struct timer timer;
	struct loop *loop;
	uint64_t idle_ms;
	void (*done)(void *arg, enum splice_end how);
	void *arg;
	bool over;
};

static struct splice *splices;

static void free_splice(void *p)
{
	free(p);
}

static void bury(struct splice *s)
{
	struct splice **at = &splices;

	s->over = true;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	timer_clear(&s->timer);
	loop_bury(s->loop, s, free_splice);
}

static void end(struct splice *s, enum splice_end how)
{
	bool reset = how != SPLICE_DONE;

	fake_socket_close(s->a.k, reset);
	fake_socket_close(s->b.k, reset);
	bury(s);
	s->done(s->arg, how);
}

static void on_idle(void *arg)
{
	end(arg, SPLICE_IDLE);
}

/* True: something moved. */
static bool move(struct side *from, struct side *to)
{
	size_t n = 0;

	if (from->ended)
		return false;
	if (from->k->in.n > 0 && !to->k->in_reset)
		n = fake_socket_put(to->k, from->k->in.p, from->k->in.n);
	bytes_drop(&from->k->in, n);
	from->moved += n;
	if (from->k->in.n == 0 && from->k->in_eof && !from->k->in_reset) {
		from->ended = true;
		to->k->fin = true;
		return true;
	}
	return n > 0;
}

static bool one_turn(struct splice *s)
{
	bool there = move(&s->a, &s->b);
	bool back = move(&s->b, &s->a);

	if (s->a.k->in_reset && (s->a.k->in.n == 0 || s->b.k->in_reset)) {
		end(s, SPLICE_RESET_A);
		return true;
	}
	if (s->b.k->in_reset && (s->b.k->in.n == 0 || s->a.k->in_reset)) {
		end(s, SPLICE_RESET_B);
		return true;
	}
	if (s->a.ended && s->b.ended) {
		end(s, SPLICE_DONE);
		return true;
	}
	if (there || back)
		timer_arm(&s->timer, s->idle_ms);
	return there || back;
}

bool fake_splices_turn(void)
{
	bool any = false;
	struct splice *next;

	for (struct splice *s = splices; s; s = next) {
		next = s->next;
		any = one_turn(s) || any;
	}
	return any;
}

size_t fake_splice_count(void)
{
	size_t n = 0;

	for (struct splice *s = splices; s; s = s->next)
		n++;
	return n;
}

int splice_start(struct loop *l, int fd_a, int fd_b, uint64_t idle_ms,
		 void (*done)(void *arg, enum splice_end how), void *arg, struct splice **ret,
		 struct err *e)
{
	struct splice *s = calloc(1, sizeof(*s));
	struct fake_socket *a = fake_socket_of(fd_a), *b = fake_socket_of(fd_b);

	if (!a || !b) {
		fake_fault("a relay of a closed descriptor");
		abort();
	}
	if (!s || timer_init(&s->timer, l, on_idle, s) < 0) {
		free(s);
		fake_socket_close(a, false);
		fake_socket_close(b, false);
		return err_set(e, "out of memory");
	}
	s->a.k = a;
	s->b.k = b;
	s->loop = l;
	s->idle_ms = idle_ms;
	s->done = done;
	s->arg = arg;
	s->next = splices;
	splices = s;
	timer_arm(&s->timer, idle_ms);
	*ret = s;
	return 0;
}

void splice_cancel(struct splice *s, bool reset)
{
	if (!s || s->over)
		return;
	fake_socket_close(s->a.k, reset);
	fake_socket_close(s->b.k, reset);
	bury(s);
}

uint64_t splice_bytes_a_to_b(const struct splice *s)
{
	return s->a.moved;
}

uint64_t splice_bytes_b_to_a(const struct splice *s)
{
	return s->b.moved;
}
