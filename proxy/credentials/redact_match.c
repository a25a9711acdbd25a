/*
 * Whether a needle stands at a place of a text; see redact.h. Each character of the needle may
 * stand there as itself or escaped, so that no mixture of both is missed and none needs a needle
 * of its own.
 */
#include <string.h>

#include "logging/hex.h"
#include "logging/limits.h"
#include "proxy/credentials/redact_internal.h"

/* How often an escape may be escaped itself, and what the longest of them takes. */
#define NESTED	   3
#define NESTED_MAX 32

bool redact_folds_to(enum redact_fold f, unsigned char text, unsigned char needle)
{
	if (text == needle)
		return true;
	switch (f) {
	case REDACT_PLAIN: return text == '+' && needle == ' ';
	case REDACT_BASE64: return (text == '-' && needle == '+') || (text == '_' && needle == '/');
	case REDACT_HEX: return text >= 'A' && text <= 'F' && (text | 0x20) == needle;
	case REDACT_FOLDS: break;
	}
	return false;
}

/* ---- escapes ---- */

/* n hexadecimal digits at p[at]: 1; 0: no; -1: they may follow. */
static int read_hex(const unsigned char *p, size_t n, size_t at, unsigned digits, uint32_t *ret)
{
	*ret = 0;
	for (size_t i = at; i < at + digits; i++) {
		if (i >= n)
			return -1;
		if (hex_value((char)p[i]) < 0)
			return 0;
		*ret = *ret << 4 | (uint32_t)hex_value((char)p[i]);
	}
	return 1;
}

static unsigned put_utf8(uint32_t c, unsigned char out[4])
{
	if (c < 0x80) {
		out[0] = (unsigned char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (unsigned char)(0xc0 | c >> 6);
		out[1] = (unsigned char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (unsigned char)(0xe0 | c >> 12);
		out[1] = (unsigned char)(0x80 | (c >> 6 & 63));
		out[2] = (unsigned char)(0x80 | (c & 63));
		return 3;
	}
	out[0] = (unsigned char)(0xf0 | (c >> 18 & 7));
	out[1] = (unsigned char)(0x80 | (c >> 12 & 63));
	out[2] = (unsigned char)(0x80 | (c >> 6 & 63));
	out[3] = (unsigned char)(0x80 | (c & 63));
	return 4;
}

/* \uXXXX, two of them for what is beyond U+FFFF (RFC 8259 section 7). */
static int read_unicode(const unsigned char *p, size_t n, unsigned char out[4], unsigned *ret_n)
{
	uint32_t hi, lo;
	int rc = read_hex(p, n, 2, 4, &hi);

	if (rc <= 0)
		return rc;
	if (hi < 0xd800 || hi > 0xdfff) {
		*ret_n = put_utf8(hi, out);
		return 6;
	}
	if (hi > 0xdbff || (n > 6 && p[6] != '\\') || (n > 7 && p[7] != 'u'))
		return 0;
	rc = n > 7 ? read_hex(p, n, 8, 4, &lo) : -1;
	if (rc <= 0)
		return rc;
	if (lo < 0xdc00 || lo > 0xdfff)
		return 0;
	*ret_n = put_utf8(0x10000 + ((hi & 0x3ff) << 10 | (lo & 0x3ff)), out);
	return 12;
}

static int read_backslash(const unsigned char *p, size_t n, unsigned char out[4], unsigned *ret_n)
{
	uint32_t c;
	int rc;

	if (n < 2)
		return -1;
	switch (p[1]) {
	case 'u': return read_unicode(p, n, out, ret_n);
	case 'x':
		rc = read_hex(p, n, 2, 2, &c);
		out[0] = (unsigned char)c;
		*ret_n = 1;
		return rc <= 0 ? rc : 4;
	default: break;
	}
	/* Beside those of JSON: whatever else was given a backslash to be on the safe side. */
	if ((p[1] >= 'a' && p[1] <= 'z') || (p[1] >= 'A' && p[1] <= 'Z') ||
	    (p[1] >= '0' && p[1] <= '9'))
		return 0;
	out[0] = p[1];
	*ret_n = 1;
	return 2;
}

#define REFERENCE_DIGITS 7

/* &#43; and &#x2b; */
static int read_number(const unsigned char *p, size_t n, unsigned char out[4], unsigned *ret_n)
{
	bool hex = n > 2 && (p[2] | 0x20) == 'x';
	size_t from = hex ? 3 : 2, i = from;
	uint32_t c = 0;

	for (; i < n && i - from < REFERENCE_DIGITS && hex_value((char)p[i]) >= 0; i++) {
		if (!hex && (p[i] < '0' || p[i] > '9'))
			return 0;
		c = c * (hex ? 16 : 10) + (uint32_t)hex_value((char)p[i]);
	}
	if (i == n)
		return i - from <= REFERENCE_DIGITS ? -1 : 0;
	if (i == from || p[i] != ';' || c > 0x10ffff)
		return 0;
	*ret_n = put_utf8(c, out);
	return (int)i + 1;
}

static int read_reference(const unsigned char *p, size_t n, unsigned char out[4], unsigned *ret_n)
{
	static const struct {
		const char *name;
		char c;
	} named[] = {
		{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};

	if (n < 2)
		return -1;
	if (p[1] == '#')
		return read_number(p, n, out, ret_n);
	for (size_t i = 0; i < ARRAY_LEN(named); i++) {
		size_t len = strlen(named[i].name);

		if (memcmp(p, named[i].name, n < len ? n : len) != 0)
			continue;
		out[0] = (unsigned char)named[i].c;
		*ret_n = 1;
		return n < len ? -1 : (int)len;
	}
	return 0;
}

int redact_read_escape(const unsigned char *p, size_t n, unsigned char out[4], unsigned *ret_n)
{
	uint32_t c;
	int rc;

	switch (p[0]) {
	case '%':
		rc = read_hex(p, n, 1, 2, &c);
		out[0] = (unsigned char)c;
		*ret_n = 1;
		return rc <= 0 ? rc : 3;
	case '\\': return read_backslash(p, n, out, ret_n);
	case '&': return read_reference(p, n, out, ret_n);
	default: return 0;
	}
}

static bool begins_escape(unsigned char c)
{
	return c == '%' || c == '\\' || c == '&';
}

/* A text within a text: an escape whose own beginning was escaped, `depth` times (`%252B`,
 * `\\u002b`,
 * `&amp;#43;`). As redact_read_escape. */
static int read_nested(const unsigned char *p, size_t n, unsigned depth, unsigned char out[4],
		       unsigned *ret_n)
{
	unsigned char inner[NESTED_MAX];
	int len = redact_read_escape(p, n, out, ret_n), rc;
	size_t rest;

	if (depth == 0 || len <= 0)
		return len;
	if (*ret_n != 1 || !begins_escape(out[0]))
		return 0;
	rest = n - (size_t)len;
	if (rest > sizeof(inner) - 1)
		rest = sizeof(inner) - 1;
	inner[0] = out[0];
	memcpy(inner + 1, p + len, rest);
	rc = read_nested(inner, rest + 1, depth - 1, out, ret_n);
	if (rc <= 0)
		return rc < 0 && rest == sizeof(inner) - 1 ? 0 : rc;
	return len - 1 + rc;
}

/* ---- one needle ---- */

struct text {
	const unsigned char *p;
	size_t n;
	size_t limit; /* no match ends behind it */
	bool whole;
	size_t seen;	   /* of the needle, when the text ended */
	unsigned branches; /* that may still be tried */
};

enum { NO = 0, OPEN = -1 };

/* An escape at t->p[at] that stands for what the needle has at i: its length; NO; OPEN. */
static int fits_at_depth(const struct needle *d, size_t i, const struct text *t, size_t at,
			 unsigned depth, unsigned *ret_n)
{
	unsigned char bytes[4];
	int len = read_nested(t->p + at, t->n - at, depth, bytes, ret_n);

	if (len < 0) {
		/* Half of a percent-encoding tells already what it cannot be. */
		if (depth == 0 && t->p[at] == '%' && t->n - at == 2 && d->fold == REDACT_PLAIN &&
		    hex_value((char)t->p[at + 1]) != d->p[i] >> 4)
			return NO;
		return t->whole ? NO : OPEN;
	}
	if (len == 0 || *ret_n > d->n - i)
		return NO;
	for (unsigned k = 0; k < *ret_n; k++)
		if (!redact_folds_to(d->fold, bytes[k], d->p[i + k]))
			return NO;
	return len;
}

/* The same, from that depth on; *depth becomes the one it fits at. */
static int fits_escape(const struct needle *d, size_t i, const struct text *t, size_t at,
		       unsigned *depth, unsigned *ret_n)
{
	int len = NO;

	for (; *depth <= NESTED; (*depth)++) {
		len = fits_at_depth(d, i, t, at, *depth, ret_n);
		if (len != NO)
			break;
	}
	return len;
}

/* A carriage return or line feed at t->p[at], as it is or escaped: its length; NO; OPEN. */
static int read_newline(const struct text *t, size_t at, char which)
{
	unsigned char bytes[4];
	unsigned n = 0;
	int len;

	if (at == t->n)
		return t->whole ? NO : OPEN;
	if (t->p[at] == (unsigned char)which)
		return 1;
	if (t->p[at] == '\\' && at + 1 < t->n && t->p[at + 1] == (which == '\r' ? 'r' : 'n'))
		return 2;
	len = redact_read_escape(t->p + at, t->n - at, bytes, &n);
	if (len < 0)
		return t->whole ? NO : OPEN;
	return len > 0 && n == 1 && bytes[0] == (unsigned char)which ? len : NO;
}

/* The end of a line within base64 (RFC 2045 section 6.8), LF or CRLF: its length; NO; OPEN. */
static int read_break(const struct text *t, size_t at)
{
	int cr = read_newline(t, at, '\r'), lf;

	if (cr == OPEN)
		return OPEN;
	lf = read_newline(t, at + (size_t)cr, '\n');
	return lf <= 0 ? lf : cr + lf;
}

/* The needle from i on, at t->p[at]: the end; NO; OPEN. An escape never begins with an alphanumeric
 * character, so most steps are one comparison. */
static ptrdiff_t fits(const struct needle *d, size_t i, struct text *t, size_t at)
{
	size_t broken = 0; /* in front of which of its characters a line has ended */

	while (i < d->n) {
		unsigned char c;
		bool plain;
		int len = NO, deeper = NO;
		unsigned taken = 1, depth = 0, more = 1;

		if (at >= t->limit)
			return NO;
		if (at == t->n) {
			t->seen = i;
			return t->whole ? NO : OPEN;
		}
		c = t->p[at];
		plain = redact_folds_to(d->fold, c, d->p[i]);
		/* As it is, in front of anything else: that is what most texts mean. The last one
		 * is to be taken whole. */
		if (begins_escape(c) && plain && i + 1 < d->n && t->branches > 0) {
			ptrdiff_t end;

			t->branches--;
			end = fits(d, i + 1, t, at + 1);
			if (end != NO)
				return end;
			plain = false;
		}
		if (begins_escape(c) && (!plain || i + 1 == d->n))
			len = fits_escape(d, i, t, at, &depth, &taken);
		/* A character that begins escapes itself may have been escaped more often. */
		if (len > 0 && t->branches > 0 && begins_escape(d->p[i])) {
			depth++;
			deeper = fits_escape(d, i, t, at, &depth, &more);
		}
		if (len == OPEN || deeper == OPEN) {
			t->seen = i;
			return OPEN;
		}
		if (deeper != NO) {
			ptrdiff_t end;

			t->branches--;
			end = fits(d, i + more, t, at + (size_t)deeper);
			if (end != NO)
				return end;
		}
		if (len == NO && !plain) {
			if (d->fold != REDACT_BASE64 || i == 0 ||
			    (broken > 0 && i - broken < REDACT_LINE))
				return NO;
			len = read_break(t, at);
			if (len <= 0) {
				t->seen = len == OPEN ? i : t->seen;
				return len;
			}
			broken = i;
			at += (size_t)len;
			continue;
		}
		i += len == NO ? 1 : taken;
		at += len == NO ? 1 : (size_t)len;
	}
	return (ptrdiff_t)at;
}

/* ---- all needles ---- */

/* Most escapes stand for what no needle begins with. */
static bool may_begin(const struct redactor *r, const unsigned char *p, size_t n)
{
	unsigned char bytes[4];
	unsigned bytes_n;

	if (r->begins[p[0]])
		return true;
	for (unsigned depth = 0; depth <= NESTED; depth++) {
		int len = read_nested(p, n, depth, bytes, &bytes_n);

		if (len < 0 || (len > 0 && r->begins[bytes[0]]))
			return true;
		if (len == 0)
			return false;
	}
	return false;
}

struct redact_found redact_at(const struct redactor *r, const unsigned char *p, size_t at, size_t n,
			      bool whole)
{
	struct redact_found f = {0};
	size_t limit = n - at > LIMIT_REDACT_SPAN ? at + LIMIT_REDACT_SPAN : SIZE_MAX;

	if (!may_begin(r, p + at, n - at))
		return f;
	for (size_t i = 0; i < r->needles_n; i++) {
		const struct needle *d = &r->needles[i];
		struct text t = {
			.p = p, .n = n, .limit = limit, .whole = whole, .branches = d->branches};
		ptrdiff_t end = fits(d, 0, &t, at);

		if (end == OPEN) {
			f.undecided = true;
			f.half |= 2 * t.seen >= d->n;
			f.seen = t.seen > f.seen ? t.seen : f.seen;
		} else if (end > 0 && (size_t)end > f.end) {
			f.end = (size_t)end;
		}
	}
	return f;
}

static bool is_marked(const struct redactor *r, unsigned pair)
{
	return r->pairs[pair / 64] >> pair % 64 & 1;
}

static unsigned pair_at(const unsigned char *p)
{
	return (unsigned)p[0] | (unsigned)p[1] << 8;
}

/* In [from, to), of n bytes in all; to: nowhere. */
static size_t look_closely(const struct redactor *r, const unsigned char *p, size_t from, size_t to,
			   size_t n)
{
	size_t i = from;

	/* Four looks at a time, which do not wait for each other. */
	for (; i + 4 <= to && i + 5 <= n; i += 4) {
		bool a = is_marked(r, pair_at(p + i)), b = is_marked(r, pair_at(p + i + 1));
		bool c = is_marked(r, pair_at(p + i + 2)), d = is_marked(r, pair_at(p + i + 3));

		if (a | b | c | d)
			return a ? i : b ? i + 1 : c ? i + 2 : i + 3;
	}
	for (; i < to; i++)
		if (i + 1 < n ? is_marked(r, pair_at(p + i)) : r->first[p[i]])
			return i;
	return to;
}

#define BLOCK 64

typedef unsigned char lanes __attribute__((vector_size(16)));

static bool has_escape(const unsigned char *p)
{
	lanes found = {0};
	uint64_t halves[2];

	for (size_t i = 0; i < BLOCK; i += sizeof(lanes)) {
		lanes v;

		memcpy(&v, p + i, sizeof(v));
		found |= (lanes)((v == (unsigned char)'%') | (v == (unsigned char)'\\') |
				 (v == (unsigned char)'&'));
	}
	memcpy(halves, &found, sizeof(halves));
	return (halves[0] | halves[1]) != 0;
}

static bool has_gram(const struct redactor *r, const unsigned char *p)
{
	uint64_t found = 0;

	for (size_t i = 0; i < BLOCK; i += 4) {
		uint32_t four;
		unsigned bit;

		memcpy(&four, p + i, sizeof(four));
		bit = redact_gram(four);
		found |= r->grams[bit / 64] >> bit % 64;
	}
	return found & 1;
}

/* What begins in a block, or up to REDACT_RUN in front of it, either has an escape so near that it
 * lies in the block, or so many raw characters that four of them are looked up here. */
size_t redact_candidate(const struct redactor *r, const unsigned char *p, size_t from, size_t n)
{
	size_t at = from;

	for (; n - at >= BLOCK + 4; at += BLOCK) {
		size_t begin = at - from < REDACT_RUN ? from : at - REDACT_RUN, found;

		if (!has_gram(r, p + at) && !has_escape(p + at))
			continue;
		found = look_closely(r, p, begin, at + BLOCK, n);
		if (found < at + BLOCK)
			return found;
	}
	return look_closely(r, p, at - from < REDACT_RUN ? from : at - REDACT_RUN, n, n);
}
