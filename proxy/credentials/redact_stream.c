/*
 * Runs a redactor over bytes as they stream by; see redact.h. The leftmost match wins, and of those
 * that begin there the longest, whatever follows: so the outcome does not depend on how the bytes
 * were cut. What is undecided at the end of a piece is kept, and looked at again with the next.
 */
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "logging/limits.h"
#include "proxy/credentials/redact_internal.h"

static const struct str LABEL = {"[redacted]", 10};

static void blank(unsigned char *p, size_t n)
{
	memset(p, '*', n);
	if (n >= LABEL.n)
		memcpy(p, LABEL.p, LABEL.n);
}

void redaction_init(struct redaction *x, const struct redactor *r)
{
	*x = (struct redaction){.r = r};
}

void redaction_clear(struct redaction *x)
{
	if (x->held)
		OPENSSL_cleanse(x->held, x->cap);
	free(x->held);
	x->held = NULL;
	x->n = x->cap = x->released = 0;
}

/* Behind what is held. What was held is never left behind in memory that is given back. */
static int keep(struct redaction *x, struct str in)
{
	if (in.n > x->cap - x->n) {
		size_t cap = x->n + in.n;
		unsigned char *fresh = malloc(cap);

		if (!fresh)
			return -1;
		if (x->n > 0)
			memcpy(fresh, x->held, x->n);
		if (x->held)
			OPENSSL_cleanse(x->held, x->cap);
		free(x->held);
		x->held = fresh;
		x->cap = cap;
	}
	if (in.n > 0)
		memcpy(x->held + x->n, in.p, in.n);
	x->n += in.n;
	return 0;
}

/* Where, in p from `from` on, the first match or undecided beginning stands; n: nowhere. */
static size_t look(const struct redactor *r, const unsigned char *p, size_t from, size_t n,
		   bool whole, struct redact_found *ret)
{
	size_t at = redact_candidate(r, p, from, n);

	for (; at < n; at = redact_candidate(r, p, at + 1, n)) {
		*ret = redact_at(r, p, at, n, whole);
		if (ret->undecided || ret->end > 0)
			return at;
	}
	return n;
}

/* Blanks what is in x->held, from a match on that was found already. What is decided ends at the
 * result. */
static size_t blank_from(struct redaction *x, size_t at, struct redact_found f, bool whole)
{
	while (at < x->n && !f.undecided) {
		size_t from = at > x->released ? at : x->released;

		if (f.end > from)
			blank(x->held + from, f.end - from);
		x->found++;
		at = look(x->r, x->held, f.end, x->n, whole, &f);
	}
	return at;
}

/* Gives away what is decided and was not given yet; keeps the rest. */
static void give(struct redaction *x, size_t decided, redact_sink sink, void *arg)
{
	size_t from = x->released;

	if (decided > from)
		sink(arg, str_from((const char *)x->held + from, decided - from));
	if (decided == x->n) {
		redaction_clear(x);
		return;
	}
	memmove(x->held, x->held + decided, x->n - decided);
	x->n -= decided;
	x->released = from > decided ? from - decided : 0;
}

static void process(struct redaction *x, bool whole, redact_sink sink, void *arg)
{
	struct redact_found f;
	size_t at = look(x->r, x->held, 0, x->n, whole, &f);

	give(x, blank_from(x, at, f, whole), sink, arg);
}

int redaction_push(struct redaction *x, struct str in, redact_sink sink, void *arg, struct err *e)
{
	struct redact_found f;
	size_t at = 0;

	if (in.n == 0)
		return 0;
	/* Most of what comes has nothing to be found in it, and is not copied. */
	if (x->n == 0) {
		at = look(x->r, (const unsigned char *)in.p, 0, in.n, false, &f);
		if (at > 0)
			sink(arg, str_head(in, at));
		in = str_skip(in, at);
		if (in.n == 0)
			return 0;
	}
	if (keep(x, in) < 0)
		return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
	process(x, false, sink, arg);
	return 0;
}

void redaction_end(struct redaction *x, redact_sink sink, void *arg)
{
	if (x->n > 0)
		process(x, true, sink, arg);
}

/* Another match may be further than the first, or whole. */
unsigned redaction_patience_ms(const struct redaction *x)
{
	size_t seen = 0;

	if (x->n == x->released)
		return 0;
	for (size_t at = 0; at < x->n; at = redact_candidate(x->r, x->held, at + 1, x->n)) {
		struct redact_found f = redact_at(x->r, x->held, at, x->n, false);

		if (f.half || f.end > 0)
			return 0;
		seen = f.seen > seen ? f.seen : seen;
	}
	return seen <= LIMIT_REDACT_FEW ? LIMIT_MS_REDACT_FEW : LIMIT_MS_REDACT_HALF;
}

void redaction_release(struct redaction *x, redact_sink sink, void *arg)
{
	if (redaction_patience_ms(x) == 0)
		return;
	sink(arg, str_from((const char *)x->held + x->released, x->n - x->released));
	x->released = x->n;
}

size_t redact_in_place(const struct redactor *r, char *p, size_t n, bool cut)
{
	unsigned char *text = (unsigned char *)p;
	struct redact_found f;
	size_t found = 0, at = look(r, text, 0, n, !cut, &f);

	while (at < n) {
		size_t end = f.undecided ? n : f.end;

		blank(text + at, end - at);
		found++;
		at = look(r, text, end, n, !cut, &f);
	}
	return found;
}

bool redact_finds(const struct redactor *r, struct str s)
{
	struct redact_found f;

	return s.n > 0 && look(r, (const unsigned char *)s.p, 0, s.n, true, &f) < s.n;
}
