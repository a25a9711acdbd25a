/*
 * What holds for both directions of HTTP/1 heads: the scan gives one verdict however the bytes are
 * cut, a written head has no byte that ends a line early, and a second, careless reader of the raw
 * bytes finds no more framing fields than we did.
 */
#ifndef STILE_TESTS_FUZZ_H1_HEADS_H
#define STILE_TESTS_FUZZ_H1_HEADS_H

#include "logging/limits.h"
#include "proxy/http/field_kind.h"
#include "proxy/http/h1.h"
#include "tests/fuzz/fuzz.h"

struct fuzz_verdict {
	int rc;
	size_t len;
};

static inline int scan_prefix(struct h1_scan *scan, struct str in, size_t n, size_t *ret_len)
{
	struct err e = ERR_INIT;
	char *copy = fuzz_copy(str_head(in, n));
	int rc = h1_scan_head(scan, str_from(copy, n), LIMIT_HEAD_BYTES, ret_len, &e);

	if (rc < 0) {
		fuzz_check_err(&e);
		CHECK(e.reason != REASON_NONE);
	}
	free(copy);
	return rc;
}

static inline struct fuzz_verdict scan_pieces(struct str in, bool response, struct fuzz_random *r,
					      bool single)
{
	struct h1_scan scan = {.response = response};
	struct fuzz_verdict v = {0};
	size_t have = 0;

	while (v.rc == 0 && have < in.n) {
		have += single ? 1 : fuzz_piece(r, in.n - have);
		v.rc = scan_prefix(&scan, in, have, &v.len);
	}
	if (v.rc > 0)
		CHECK(v.len <= have);
	return v;
}

/* The verdict on all at once; checked against other cuts. */
static inline struct fuzz_verdict scan_all_ways(struct str in, bool response, struct fuzz_random *r)
{
	struct h1_scan scan = {.response = response};
	struct fuzz_verdict whole = {0}, cut;

	whole.rc = scan_prefix(&scan, in, in.n, &whole.len);
	if (whole.rc > 0)
		CHECK(whole.len <= in.n && whole.len >= 4);
	for (int way = 0; way < 3; way++) {
		/* Byte by byte costs the square of the length. */
		if (way == 0 && in.n > 600)
			continue;
		cut = scan_pieces(in, response, r, way == 0);
		CHECK(cut.rc == whole.rc);
		CHECK(cut.len == whole.len);
	}
	return whole;
}

/* Lines of a written head: each ends in CRLF, no control byte but HTAB is in them, the only empty
 * one is the last. Calls `each` for every field line. */
static inline void check_written(struct str out, void (*each)(struct str, struct str, void *),
				 void *arg)
{
	struct str rest = out;
	size_t lines = 0;

	for (;;) {
		ptrdiff_t lf = str_find(rest, '\n'), colon;
		struct str line;

		CHECK(lf > 0 && rest.p[lf - 1] == '\r');
		line = str_head(rest, (size_t)lf - 1);
		rest = str_skip(rest, (size_t)lf + 1);
		for (size_t i = 0; i < line.n; i++)
			CHECK(((unsigned char)line.p[i] >= 0x20 && line.p[i] != 0x7f) ||
			      line.p[i] == '\t');
		if (line.n == 0)
			break;
		if (lines++ == 0)
			continue;
		colon = str_find(line, ':');
		CHECK(colon > 0);
		CHECK(line.p[0] != ' ' && line.p[0] != '\t');
		each(str_head(line, (size_t)colon), str_trim_ows(str_skip(line, (size_t)colon + 1)),
		     arg);
	}
	CHECK(lines > 0);
	CHECK(rest.n == 0);
}

/* How often a careless reader sees the field: lines end at any CR or LF, and blanks, control bytes
 * and bytes from 0x80 up around a name or within it are not looked at. */
static inline size_t careless_count(struct str head, const char *name)
{
	size_t count = 0, want = strlen(name);

	for (size_t i = 0; i < head.n;) {
		size_t at = 0;
		bool same = true;

		while (i < head.n && head.p[i] != '\r' && head.p[i] != '\n' && head.p[i] != ':') {
			char c = head.p[i++];

			if (c >= 'A' && c <= 'Z')
				c = (char)(c | 0x20);
			if (c <= ' ' || c == 0x7f)
				continue;
			same = same && at < want && name[at] == c;
			at++;
		}
		if (i < head.n && head.p[i] == ':' && same && at == want)
			count++;
		while (i < head.n && head.p[i] != '\r' && head.p[i] != '\n')
			i++;
		while (i < head.n && (head.p[i] == '\r' || head.p[i] == '\n'))
			i++;
	}
	return count;
}

static inline void check_same_fields(const struct fields *a, const struct fields *b)
{
	CHECK(a->n == b->n);
	for (size_t i = 0; i < a->n; i++) {
		CHECK(str_eq(a->v[i].name, b->v[i].name));
		CHECK(str_eq(a->v[i].value, b->v[i].value));
	}
}

#endif
