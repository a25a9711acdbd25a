/*
 * What is looked for of a credential; see redact.h. The needles and the table that finds where one
 * may begin lie in pages like the secret's own, since they are the secret.
 */
#include "proxy/credentials/redact.h"

#include <ctype.h>
#include <string.h>

#include "logging/limits.h"
#include "proxy/credentials/redact_internal.h"
#include "proxy/credentials/secret.h"
#include "proxy/credentials/sigv4.h"

/* ---- values ---- */

struct values {
	struct str v[REDACT_VALUES];
	size_t n;
};

static void add_value(struct values *vs, struct str v)
{
	if (v.n >= LIMIT_REDACT_MIN)
		vs->v[vs->n++] = v;
}

/* The pair of Basic as a whole, since its base64 is what is sent; and the password in it. pair:
 * USER:VALUE, or empty. */
static struct values values_of(const struct config_credential *c, struct str value, struct str pair)
{
	struct values vs = {.n = 0};
	ptrdiff_t colon = str_find(value, ':');

	struct sigv4_parts parts;

	if (c->as == CREDENTIAL_AS_SIGV4) {
		/* What signs is not sent, and its id is no secret. */
		if (sigv4_read_parts(value, &parts, NULL) == 0) {
			add_value(&vs, parts.key);
			add_value(&vs, parts.token);
		}
		return vs;
	}
	add_value(&vs, pair);
	add_value(&vs, value);
	if (c->as == CREDENTIAL_AS_BASIC && !c->username && colon >= 0)
		add_value(&vs, str_skip(value, (size_t)colon + 1));
	return vs;
}

/* ---- needles ---- */

/* Where a character could be read both as itself and as the beginning of an escape of itself (a
 * value with % or \ in it), both are tried, so often at one place: who writes the text knows which
 * one costs most. Each such character of the value may want two looks. */
#define BRANCHES      16
#define EACH_BRANCHES 2
#define BRANCHES_MAX  128

struct maker {
	struct redactor *r;
	unsigned char *at, *end;
};

/* Room for n bytes was counted by room_for. */
static void add_needle(struct maker *m, const unsigned char *from, size_t n, enum redact_fold fold)
{
	unsigned branches = BRANCHES;

	for (size_t i = 0; i < n; i++)
		branches += from[i] == '%' || from[i] == '\\' || from[i] == '&' ? EACH_BRANCHES : 0;
	if (branches > BRANCHES_MAX)
		branches = BRANCHES_MAX;
	m->r->needles[m->r->needles_n++] = (struct needle){from, n, fold, branches};
}

static void add_raw(struct maker *m, struct str v)
{
	unsigned char *from = m->at;

	memcpy(from, v.p, v.n);
	m->at += v.n;
	add_needle(m, from, v.n, REDACT_PLAIN);
}

static void add_hex(struct maker *m, struct str v)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char *from = m->at;

	for (size_t i = 0; i < v.n; i++) {
		*m->at++ = (unsigned char)digits[(unsigned char)v.p[i] >> 4];
		*m->at++ = (unsigned char)digits[(unsigned char)v.p[i] & 15];
	}
	add_needle(m, from, 2 * v.n, REDACT_HEX);
}

static unsigned bits_at(struct str v, size_t bit)
{
	unsigned hi = (unsigned char)v.p[bit / 8];
	unsigned lo = bit / 8 + 1 < v.n ? (unsigned char)v.p[bit / 8 + 1] : 0;

	return (hi << 8 | lo) >> (10 - bit % 8) & 63;
}

/* Within a longer text of which `before` bytes stand in the same group of three: the characters
 * that depend on v alone. */
static void add_base64(struct maker *m, struct str v, size_t before)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	unsigned char *from = m->at;
	size_t bit = (6 - 8 * before % 6) % 6;

	for (; bit + 6 <= 8 * v.n; bit += 6)
		*m->at++ = (unsigned char)digits[bits_at(v, bit)];
	add_needle(m, from, (size_t)(m->at - from), REDACT_BASE64);
}

static void add_piece(struct maker *m, struct str v)
{
	add_raw(m, v);
	for (size_t before = 0; before < 3; before++)
		add_base64(m, v, before);
	add_hex(m, v);
}

/* Raw, hexadecimal, and four thirds three times. */
static size_t room_for(struct str v)
{
	return 7 * v.n + 12;
}

static size_t pieces_of(struct str v)
{
	return (v.n + LIMIT_REDACT_PIECE - 1) / LIMIT_REDACT_PIECE;
}

/* All pieces are of the full length: the last one overlaps the one before. */
static struct str piece(struct str v, size_t i)
{
	size_t from = i * LIMIT_REDACT_PIECE;

	if (v.n <= LIMIT_REDACT_PIECE)
		return v;
	if (from + LIMIT_REDACT_PIECE > v.n)
		from = v.n - LIMIT_REDACT_PIECE;
	return str_head(str_skip(v, from), LIMIT_REDACT_PIECE);
}

/* ---- where one may begin ---- */

static void mark(struct redactor *r, unsigned char a, unsigned char b)
{
	unsigned at = (unsigned)a | (unsigned)b << 8;

	r->first[a] = 1;
	r->pairs[at / 64] |= 1ULL << at % 64;
}

/* The second byte may be any that stands for the needle's, the beginning of an escape, or the end
 * of a line. */
static void mark_behind(struct redactor *r, unsigned char a, const struct needle *d)
{
	for (unsigned b = 0; b < 256; b++)
		if (redact_folds_to(d->fold, (unsigned char)b, d->p[1]) || b == '%' || b == '\\' ||
		    b == '&' || (d->fold == REDACT_BASE64 && (b == '\r' || b == '\n')))
			mark(r, a, (unsigned char)b);
}

static void mark_escapes(struct redactor *r, const struct needle *d)
{
	static const char hex[] = "0123456789ABCDEF", behind_and[] = "#algq";

	for (unsigned c = 0; c < 256; c++) {
		if (!redact_folds_to(d->fold, (unsigned char)c, d->p[0]))
			continue;
		mark(r, '%', (unsigned char)hex[c >> 4]);
		mark(r, '%', (unsigned char)(hex[c >> 4] | 0x20));
		if (!isalnum((int)c))
			mark(r, '\\', (unsigned char)c);
	}
	/* and where the beginning of one is escaped */
	mark(r, '%', '2');
	mark(r, '%', '5');
	mark(r, '\\', '%');
	mark(r, '\\', '&');
	mark(r, '\\', '\\');
	mark(r, '\\', 'u');
	mark(r, '\\', 'x');
	for (size_t i = 0; i < sizeof(behind_and) - 1; i++)
		mark(r, '&', (unsigned char)behind_and[i]);
}

/* The four bytes of a text, in the order in which they are read there. */
static uint32_t four_at(const unsigned char *p)
{
	uint32_t four;

	memcpy(&four, p, sizeof(four));
	return four;
}

/* What may stand at one place of a text: a byte, or one of two. */
typedef unsigned char choice[2];

/* Each text that may stand there. */
static void mark_gram(struct redactor *r, const choice may[4])
{
	for (unsigned way = 0; way < 16; way++) {
		unsigned char text[4];
		unsigned bit;

		for (size_t i = 0; i < 4; i++)
			text[i] = may[i][way >> i & 1];
		bit = redact_gram(four_at(text));
		r->grams[bit / 64] |= 1ULL << bit % 64;
	}
}

static void mark_grams_of(struct redactor *r, const choice may[REDACT_RUN])
{
	for (size_t at = 0; at + 4 <= REDACT_RUN; at++)
		mark_gram(r, may + at);
}

/* The same with the end of a line in front of its k-th character. */
static void mark_broken(struct redactor *r, const choice may[REDACT_RUN], size_t k, const char *end)
{
	choice broken[REDACT_RUN];
	size_t n = strlen(end);

	for (size_t i = 0; i < REDACT_RUN; i++) {
		if (i < k)
			memcpy(broken[i], may[i], sizeof(choice));
		else if (i < k + n)
			broken[i][0] = broken[i][1] = (unsigned char)end[i - k];
		else
			memcpy(broken[i], may[i - n], sizeof(choice));
	}
	mark_grams_of(r, (const choice *)broken);
}

static void mark_grams(struct redactor *r, const struct needle *d)
{
	choice may[REDACT_RUN];

	for (size_t i = 0; i < REDACT_RUN; i++) {
		may[i][0] = may[i][1] = d->p[i];
		for (unsigned c = 0; c < 256; c++)
			if (c != may[i][0] && redact_folds_to(d->fold, (unsigned char)c, may[i][0]))
				may[i][1] = (unsigned char)c;
	}
	mark_grams_of(r, (const choice *)may);
	for (size_t k = 1; d->fold == REDACT_BASE64 && k < REDACT_RUN; k++) {
		mark_broken(r, (const choice *)may, k, "\n");
		mark_broken(r, (const choice *)may, k, "\r\n");
	}
}

static void mark_all(struct redactor *r)
{
	for (size_t i = 0; i < r->needles_n; i++) {
		const struct needle *d = &r->needles[i];

		for (unsigned a = 0; a < 256; a++)
			if (redact_folds_to(d->fold, (unsigned char)a, d->p[0])) {
				r->begins[a] = 1;
				mark_behind(r, (unsigned char)a, d);
			}
		mark_escapes(r, d);
		mark_grams(r, d);
	}
}

/* ---- birth and end ---- */

static int make(const struct values *vs, struct redactor **ret)
{
	size_t pieces = 0, bytes = 0, needles;
	struct secret *pages;
	struct redactor *r;
	struct maker m;

	for (size_t i = 0; i < vs->n; i++) {
		pieces += pieces_of(vs->v[i]);
		for (size_t k = 0; k < pieces_of(vs->v[i]); k++)
			bytes += room_for(piece(vs->v[i], k));
	}
	needles = pieces * REDACT_FORMS * sizeof(struct needle);
	pages = secret_new(sizeof(*r) + needles + bytes);
	if (!pages)
		return -1;
	/* Pages are aligned for anything, and a secret's room for a pointer. */
	r = (struct redactor *)(void *)secret_room(pages);
	*r = (struct redactor){.pages = pages};
	r->needles = (struct needle *)(void *)(r + 1);
	m = (struct maker){.r = r, .at = (unsigned char *)(r->needles + pieces * REDACT_FORMS)};
	for (size_t i = 0; i < vs->n; i++)
		for (size_t k = 0; k < pieces_of(vs->v[i]); k++)
			add_piece(&m, piece(vs->v[i], k));
	mark_all(r);
	*ret = r;
	return 0;
}

int redactor_new(const struct config_credential *c, struct str value, struct redactor **ret,
		 struct err *e)
{
	size_t user = c->as == CREDENTIAL_AS_BASIC && c->username ? strlen(c->username) : 0;
	struct secret *pair = NULL;
	struct str whole = STR_NONE;
	struct values vs;
	int rc = 0;

	if (user > 0) {
		pair = secret_join(str_from(c->username, user), ':', value);
		if (!pair)
			return err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
		whole = secret_value(pair);
	}
	*ret = NULL;
	vs = values_of(c, value, whole);
	/* A key that signs is never sent. */
	if (c->as == CREDENTIAL_AS_SIGV4)
		vs.n = 0;
	if (vs.n > 0 && make(&vs, ret) < 0)
		rc = err_reason(e, REASON_CREDENTIAL_UNAVAILABLE, "out of memory");
	secret_unref(pair);
	return rc;
}

void redactor_free(struct redactor *r)
{
	if (r)
		secret_unref(r->pages);
}
