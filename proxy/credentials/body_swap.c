/*
 * See body_swap.h. Where nothing is swapped the bytes go on at once, and only a copy of those at
 * the end is kept for the search: so a client that waits for an answer in the middle of its body is
 * not held up by a request that has nothing to do with a placeholder.
 */
#include "proxy/credentials/body_swap.h"

#include <string.h>

#include "proxy/credentials/secret.h"

void body_swap_init(struct body_swap *b, const struct needles *needles)
{
	memset(b, 0, sizeof(*b));
	b->needles = needles;
}

void body_swap_give(struct body_swap *b, const char *name, size_t own, struct secret *value,
		    uint64_t bound)
{
	secret_unref(b->value);
	b->name = name;
	b->own = own;
	b->value = value;
	b->bound = bound;
}

void body_swap_clear(struct body_swap *b)
{
	secret_unref(b->value);
	b->value = NULL;
	b->kept_n = 0;
}

static int unusable(const struct body_swap *b, const char *why, struct err *e)
{
	return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE,
			  "credential %s cannot stand in this body: %s", b->name, why);
}

/* In quotes of JSON, in text, in a form: bytes that would end what they stand in, or mean another
 * one, are refused. */
static int check_value(const struct body_swap *b, struct err *e)
{
	struct str v = secret_value(b->value);

	if (v.n != needles_text(b->needles, b->own).n)
		return unusable(b, "its length is not that of the placeholder", e);
	for (size_t i = 0; i < v.n; i++) {
		char c = v.p[i];

		if (c <= 0x20 || c > 0x7e || strchr("\"\\<>&'`", c) ||
		    (b->form && strchr("+%=#;", c)))
			return unusable(b, "it holds a byte that would be read as another there",
					e);
	}
	return 0;
}

/* at: in the stream, of what was found. */
static int found(const struct body_swap *b, uint64_t at, size_t which, struct err *e)
{
	if (!b->value || which != b->own)
		return err_reason(e, REASON_PLACEHOLDER_MISUSED,
				  "the body holds a placeholder that is not swapped in it");
	if (at + needles_text(b->needles, which).n > b->bound)
		return err_reason(e, REASON_PLACEHOLDER_MISUSED,
				  "the body holds its placeholder beyond its first %llu bytes",
				  (unsigned long long)b->bound);
	return check_value(b, e);
}

static void keep(struct body_swap *b, struct str tail)
{
	if (tail.n > 0)
		memmove(b->kept, tail.p, tail.n);
	b->kept_n = tail.n;
}

/* Without anything kept: swaps all that stand in `in` whole, and keeps what may be the next one. */
static int swap_all(struct body_swap *b, struct str in, body_swap_sink *sink, void *arg,
		    struct err *e)
{
	for (;;) {
		size_t which, tail;
		ptrdiff_t at = needles_find(b->needles, in, &which);

		if (at < 0) {
			tail = needles_tail(b->needles, in);
			if (in.n > tail)
				sink(arg, str_head(in, in.n - tail));
			b->at += in.n - tail;
			keep(b, str_skip(in, in.n - tail));
			return 0;
		}
		if (found(b, b->at + (uint64_t)at, which, e) < 0)
			return -1;
		if (at > 0)
			sink(arg, str_head(in, (size_t)at));
		sink(arg, secret_value(b->value));
		b->at += (uint64_t)at + secret_value(b->value).n;
		in = str_skip(in, (size_t)at + secret_value(b->value).n);
	}
}

/* The kept bytes and those behind them, as far as one that begins in the kept ones can go: *ret is
 * how much of `in` is behind. */
static int settle_kept(struct body_swap *b, struct str in, size_t *ret, body_swap_sink *sink,
		       void *arg, struct err *e)
{
	char mem[2 * LIMIT_PLACEHOLDER_BYTES];
	struct str joint = {mem, b->kept_n};
	size_t kept_n = b->kept_n, take = needles_longest(b->needles), which;
	ptrdiff_t at;

	if (take > in.n)
		take = in.n;
	memcpy(mem, b->kept, kept_n);
	memcpy(mem + kept_n, in.p, take);
	joint.n += take;
	at = needles_find(b->needles, joint, &which);
	if (at >= 0 && (size_t)at < kept_n) {
		if (found(b, b->at + (uint64_t)at, which, e) < 0)
			return -1;
		if (at > 0)
			sink(arg, str_head(joint, (size_t)at));
		sink(arg, secret_value(b->value));
		b->at += (uint64_t)at + secret_value(b->value).n;
		b->kept_n = 0;
		*ret = (size_t)at + secret_value(b->value).n - kept_n;
		return 0;
	}
	if (take == in.n && at < 0) {
		size_t tail = needles_tail(b->needles, joint);

		if (joint.n > tail)
			sink(arg, str_head(joint, joint.n - tail));
		b->at += joint.n - tail;
		keep(b, str_skip(joint, joint.n - tail));
		*ret = in.n;
		return 0;
	}
	sink(arg, str_head(joint, kept_n));
	b->at += kept_n;
	b->kept_n = 0;
	*ret = 0;
	return 0;
}

/* The search alone. */
static int look(struct body_swap *b, struct str in, struct err *e)
{
	char mem[2 * LIMIT_PLACEHOLDER_BYTES];
	struct str joint = {mem, b->kept_n};
	size_t take = needles_longest(b->needles), which;

	if (take > in.n)
		take = in.n;
	if (b->kept_n > 0) {
		memcpy(mem, b->kept, b->kept_n);
		memcpy(mem + b->kept_n, in.p, take);
		joint.n += take;
		if (needles_find(b->needles, joint, &which) >= 0)
			return found(b, b->at, which, e);
	}
	if (needles_find(b->needles, in, &which) >= 0)
		return found(b, b->at, which, e);
	if (b->kept_n == 0 || take < in.n) {
		keep(b, str_skip(in, in.n - needles_tail(b->needles, in)));
		return 0;
	}
	keep(b, str_skip(joint, joint.n - needles_tail(b->needles, joint)));
	return 0;
}

int body_swap_feed(struct body_swap *b, struct str data, body_swap_sink *sink, void *arg,
		   struct err *e)
{
	size_t used = 0;

	if (data.n == 0)
		return 0;
	if (!b->value) {
		if (look(b, data, e) < 0)
			return -1;
		sink(arg, data);
		return 0;
	}
	if (b->kept_n > 0 && settle_kept(b, data, &used, sink, arg, e) < 0)
		return -1;
	return used < data.n ? swap_all(b, str_skip(data, used), sink, arg, e) : 0;
}

void body_swap_end(struct body_swap *b, body_swap_sink *sink, void *arg)
{
	if (b->value && b->kept_n > 0)
		sink(arg, str_from(b->kept, b->kept_n));
	b->kept_n = 0;
}
