/*
 * Message bodies of HTTP/1 (RFC 9112 sections 6 and 7): where the data lies within the framing. The
 * outcome does not depend on how the bytes were cut: the same are refused, at the same place. It
 * copies no data, reads no socket, and decides nothing about what the body is for. The session
 * calls it for both directions.
 */
#include "proxy/http/body.h"

#include <stdlib.h>
#include <string.h>

#include "logging/hex.h"
#include "logging/limits.h"
#include "proxy/http/field_kind.h"
#include "proxy/http/h1_text.h"

/* Chunks of one byte cost five bytes of framing and are sent by honest event streams; what costs
 * more is padding or extensions, and has LIMIT_CHUNK_OVERHEAD to spend. */
#define OVERHEAD_PER_BYTE 8
#define SIZE_DIGITS	  16

enum chunk_state {
	AT_SIZE, /* a chunk-size line */
	IN_DATA,
	AT_DATA_END, /* the CRLF behind the data */
	IN_TRAILER,  /* `left` is how far the section has been looked at */
	BROKEN,
};

static ptrdiff_t broken(struct err *e, const char *what)
{
	return err_reason(e, REASON_MALFORMED_REQUEST, "%s", what);
}

void body_reader_init(struct body_reader *b, enum body_kind kind, uint64_t length)
{
	*b = (struct body_reader){.kind = kind, .state = AT_SIZE};
	b->left = kind == BODY_LENGTH ? length : 0;
	b->done = kind == BODY_NONE || (kind == BODY_LENGTH && length == 0);
}

void body_reader_clear(struct body_reader *b)
{
	if (!b)
		return;
	free(b->trailer_mem);
	fields_clear(&b->trailers);
	b->trailer_mem = NULL;
}

/* ---- chunk lines ---- */

static size_t skip_blanks(struct str s, size_t at)
{
	while (at < s.n && (s.p[at] == ' ' || s.p[at] == '\t'))
		at++;
	return at;
}

/* 1*HEXDIG and nothing that other readers might take for more of it, but for blanks before the CRLF
 * if `padded`. Returns the bytes read, or -1. */
static ptrdiff_t read_size(struct str in, bool padded, uint64_t *ret, struct err *e)
{
	size_t n = 0;

	*ret = 0;
	while (n < in.n && hex_value(in.p[n]) >= 0) {
		if (n == SIZE_DIGITS)
			return broken(e, "a chunk size of more than 16 digits");
		*ret = *ret << 4 | (uint64_t)hex_value(in.p[n]);
		n++;
	}
	if (*ret > INT64_MAX)
		return broken(e, "a chunk size past 2^63");
	if (padded && n > 0) {
		size_t digits = n;

		n = skip_blanks(in, n);
		if (n > digits && n < in.n && in.p[n] != '\r')
			return broken(e, "blanks within a chunk line");
	}
	if (n < in.n && (n == 0 || (in.p[n] != ';' && in.p[n] != '\r')))
		return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x in a chunk size",
				  (unsigned char)in.p[n]);
	return (ptrdiff_t)n;
}

/* CRLF at in[at]? 2; 0 while it may become one; -1. */
static ptrdiff_t read_crlf(struct str in, size_t at, const char *where, struct err *e)
{
	if (at < in.n && in.p[at] != '\r')
		return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x %s, where CRLF belongs",
				  (unsigned char)in.p[at], where);
	if (at + 1 < in.n && in.p[at + 1] != '\n')
		return err_reason(e, REASON_MALFORMED_REQUEST, "a bare CR %s", where);
	return at + 1 < in.n ? 2 : 0;
}

/* Where the token at s[at] ends; 0: there is none. */
static size_t skip_token(struct str s, size_t at)
{
	size_t n = h1_span(str_skip(s, at), H1_TOKEN);

	return n > 0 ? at + n : 0;
}

/* The quoted-string at s[at] (RFC 9110 section 5.6.4), all of which is H1_VALUE: where it ends. 0:
 * it does not. */
static size_t skip_quoted(struct str s, size_t at)
{
	while (++at < s.n && s.p[at] != '"')
		if (s.p[at] == '\\')
			at++;
	return at < s.n ? at + 1 : 0;
}

/* Section 7.1.1, `;name`, `;name=value` and `;name="value"` in a row. Nothing reads them, but where
 * one is open a more lenient reader may find the end of the line elsewhere. */
static bool are_extensions(struct str s)
{
	size_t at = 0, next;

	for (; at < s.n; at = next) {
		if (s.p[at] != ';')
			return false;
		at = skip_blanks(s, at + 1);
		if (!(next = skip_token(s, at)))
			return false;
		at = next;
		next = skip_blanks(s, at);
		if (next < s.n && s.p[next] == '=') {
			next = skip_blanks(s, next + 1);
			at = next < s.n && s.p[next] == '"' ? skip_quoted(s, next)
							    : skip_token(s, next);
			if (at == 0)
				return false;
			next = skip_blanks(s, at);
		}
		if (next == s.n)
			return at == next; /* no blanks behind the last */
	}
	return true;
}

/* Takes a whole chunk-size line (section 7.1). Bytes taken, 0 if more are needed, or -1. */
static ptrdiff_t take_size_line(struct body_reader *b, struct str in, struct err *e)
{
	struct str line = str_head(in, LIMIT_CHUNK_LINE_BYTES);
	uint64_t size;
	ptrdiff_t size_n = read_size(line, b->padded_sizes, &size, e), end;
	size_t ext = 0;

	if (size_n < 0)
		return -1;
	/* Extensions are for this hop, and none is known here: bounded, skipped. */
	if ((size_t)size_n < line.n && line.p[size_n] == ';')
		ext = h1_span(str_skip(line, (size_t)size_n), H1_VALUE);
	if (b->ext_bytes + ext > LIMIT_CHUNK_EXT_BYTES)
		return broken(e, "too many bytes of chunk extensions");
	end = read_crlf(line, (size_t)size_n + ext, "in a chunk line", e);
	if (end < 0)
		return -1;
	if (end == 0)
		return in.n < LIMIT_CHUNK_LINE_BYTES ? 0
						     : broken(e, "a chunk line that is too long");
	if (!are_extensions(str_head(str_skip(line, (size_t)size_n), ext)))
		return broken(e, "chunk extensions that are none");
	end += size_n + (ptrdiff_t)ext;
	b->ext_bytes += ext;
	b->overhead += (uint64_t)end + 2;
	if (b->overhead > LIMIT_CHUNK_OVERHEAD + OVERHEAD_PER_BYTE * b->data_bytes)
		return broken(e, "far more chunk framing than data");
	b->left = size;
	b->state = size > 0 ? IN_DATA : IN_TRAILER;
	return end;
}

/* ---- trailers ---- */

/* The length of the trailer section with its blank line; 0 if more is needed; -1. */
static ptrdiff_t find_trailer_end(struct body_reader *b, struct str in, struct err *e)
{
	struct str seen = str_head(in, LIMIT_TRAILER_BYTES);
	size_t at = b->left;

	for (;;) {
		ptrdiff_t rc;

		at += h1_span(str_skip(seen, at), H1_VALUE);
		b->left = at;
		rc = read_crlf(seen, at, "in the trailers", e);
		if (rc < 0)
			return -1;
		if (rc == 0)
			break;
		at += 2;
		if (at == 2 || seen.p[at - 3] == '\n')
			return (ptrdiff_t)at;
	}
	return in.n < LIMIT_TRAILER_BYTES ? 0 : broken(e, "a trailer section that is too long");
}

/* Trailers that would frame or route the message are an attack; others that section 6.5.1 of RFC
 * 9110 excludes are of no use to anyone and are left out. */
static int keep_trailer(struct body_reader *b, const struct field *f, struct err *e)
{
	enum field_kind k = field_kind(f->name);

	if (k == FIELD_HOST || k == FIELD_CONTENT_LENGTH || k == FIELD_TRANSFER_ENCODING)
		return err_reason(e, REASON_MALFORMED_REQUEST, "%.*s among the trailers",
				  STR_FMT(f->name));
	if (!field_may_trail(f->name))
		return 0;
	if (fields_add(&b->trailers, f->name, f->value) < 0)
		return err_reason(e, REASON_MALFORMED_REQUEST, "too many trailers");
	return 0;
}

static ptrdiff_t take_trailers(struct body_reader *b, struct str in, struct err *e)
{
	ptrdiff_t end = find_trailer_end(b, in, e);
	struct field f;
	struct str rest;
	size_t lines = 0;
	int rc;

	if (end <= 0)
		return end;
	if (end > 2) {
		b->trailer_mem = str_dup(str_head(in, (size_t)end));
		if (!b->trailer_mem)
			return err_reason(e, REASON_INTERNAL_ERROR, "out of memory");
		rest = str_from(b->trailer_mem, (size_t)end);
		while ((rc = h1_next_field(&rest, &f, e)) > 0) {
			if (++lines > LIMIT_HEAD_FIELDS)
				return broken(e, "too many trailers");
			if (keep_trailer(b, &f, e) < 0)
				return -1;
		}
		if (rc < 0)
			return -1;
	}
	b->done = true;
	return end;
}

/* ---- all kinds ---- */

static struct str take_data(struct body_reader *b, struct str in)
{
	struct str data = str_head(in, b->left < in.n ? (size_t)b->left : in.n);

	b->left -= data.n;
	b->data_bytes += data.n;
	return data;
}

/* One step of the chunked coding. Bytes taken, 0 if more are needed, or -1. */
static ptrdiff_t step(struct body_reader *b, struct str in, struct str *ret_data, struct err *e)
{
	ptrdiff_t n;

	switch ((enum chunk_state)b->state) {
	case AT_SIZE: return take_size_line(b, in, e);
	case IN_DATA:
		*ret_data = take_data(b, in);
		if (b->left == 0)
			b->state = AT_DATA_END;
		return (ptrdiff_t)ret_data->n;
	case AT_DATA_END:
		n = read_crlf(in, 0, "behind a chunk", e);
		if (n > 0)
			b->state = AT_SIZE;
		return n;
	case IN_TRAILER: return take_trailers(b, in, e);
	case BROKEN: break;
	}
	return broken(e, "the body's framing was broken before");
}

/* Returns after each piece of data, so that what is refused behind it does not swallow it. */
static int read_chunked(struct body_reader *b, struct str in, size_t *ret_consumed,
			struct str *ret_data, struct err *e)
{
	while (!b->done && ret_data->n == 0) {
		ptrdiff_t n = step(b, str_skip(in, *ret_consumed), ret_data, e);

		if (n < 0) {
			b->state = BROKEN;
			*ret_consumed = 0;
			return -1;
		}
		if (n == 0)
			break;
		*ret_consumed += (size_t)n;
	}
	return 0;
}

int body_read(struct body_reader *b, struct str in, size_t *ret_consumed, struct str *ret_data,
	      struct err *e)
{
	*ret_consumed = 0;
	*ret_data = STR_NONE;
	if (b->done)
		return 0;
	switch (b->kind) {
	case BODY_NONE: return 0;
	case BODY_LENGTH:
		*ret_data = take_data(b, in);
		b->done = b->left == 0;
		break;
	case BODY_CLOSE:
		*ret_data = in;
		b->data_bytes += in.n;
		break;
	case BODY_CHUNKED: return read_chunked(b, in, ret_consumed, ret_data, e);
	}
	*ret_consumed = ret_data->n;
	return 0;
}

int body_eof(struct body_reader *b, struct err *e)
{
	if (b->kind == BODY_CLOSE)
		b->done = true;
	if (b->done)
		return 0;
	if (b->kind == BODY_LENGTH)
		return err_reason(e, REASON_CLIENT_CLOSED,
				  "the body ended %llu bytes before its Content-Length",
				  (unsigned long long)b->left);
	return err_reason(e, REASON_CLIENT_CLOSED, "the body ended before its last chunk");
}

/* ---- writing ---- */

size_t body_chunk_head(uint64_t n, char out[BODY_CHUNK_HEAD_MAX])
{
	static const char digits[] = "0123456789abcdef";
	size_t len = 1;

	/* A chunk of no bytes would be the last one. */
	if (n == 0)
		return 0;
	while (len < SIZE_DIGITS && n >> 4 * len)
		len++;
	for (size_t i = 0; i < len; i++)
		out[i] = digits[n >> 4 * (len - 1 - i) & 0xf];
	memcpy(out + len, "\r\n", 2);
	return len + 2;
}

void body_chunk_end(const struct fields *trailers, struct strbuf *out)
{
	strbuf_add(out, STR("0\r\n"));
	for (size_t i = 0; trailers && i < trailers->n; i++) {
		const struct field *f = &trailers->v[i];

		if (!h1_is_field(f) || !field_may_trail(f->name))
			continue;
		strbuf_add(out, f->name);
		strbuf_add(out, STR(": "));
		strbuf_add(out, f->value);
		strbuf_add(out, STR("\r\n"));
	}
	strbuf_add(out, STR("\r\n"));
}
