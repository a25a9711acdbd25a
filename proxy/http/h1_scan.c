/*
 * Finds the end of a head in bytes that arrive in any pieces, each byte looked at once, and stops
 * as soon as it cannot become a head that would be accepted. It reads no field; h1_request.c and
 * h1_response.c do, and check everything again that they rely on.
 */
#include "logging/limits.h"
#include "proxy/http/h1.h"
#include "proxy/http/h1_text.h"

#define TLS_HANDSHAKE 0x16 /* content type of a ClientHello's record */

static int refuse_byte(const struct h1_scan *s, struct str in, struct err *e)
{
	unsigned char c = (unsigned char)in.p[s->pos];

	if (c == TLS_HANDSHAKE && s->pos == 0 && !s->response)
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "TLS on the plain port (this port speaks HTTP: the proxy's own "
				  "URL begins with http://)");
	if (c == '\n')
		return err_reason(e, REASON_MALFORMED_REQUEST, "a bare LF at byte %zu of the head",
				  s->pos + 1);
	if (c == '\r')
		return err_reason(e, REASON_MALFORMED_REQUEST, "a bare CR at byte %zu of the head",
				  s->pos + 1);
	return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x at %zu of the head", c,
			  s->pos + 1);
}

/* A request line that is still arriving, so that neither an endless method nor an endless target
 * has to be waited for. */
static int check_begun_request(struct str line, struct err *e)
{
	size_t method = h1_span(str_head(line, LIMIT_METHOD_BYTES + 1), H1_TOKEN);
	struct str target;

	if (method > LIMIT_METHOD_BYTES)
		return err_reason(e, REASON_MALFORMED_REQUEST, "a method of more than %d bytes",
				  LIMIT_METHOD_BYTES);
	if (method == line.n)
		return 0;
	if (method == 0 || line.p[method] != ' ')
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "the first line does not begin with a method (is this HTTP?)");
	target = str_skip(line, method + 1);
	if (target.n <= LIMIT_TARGET_BYTES)
		return 0;
	if (str_find(str_head(target, LIMIT_TARGET_BYTES + 1), ' ') < 0)
		return err_reason(e, REASON_TARGET_TOO_LONG, "the target is longer than %d bytes",
				  LIMIT_TARGET_BYTES);
	if (target.n > LIMIT_TARGET_BYTES + sizeof(" HTTP/1.1\r"))
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "the request line does not end behind its version");
	return 0;
}

static int check_begun_response(struct str line, struct err *e)
{
	if (!str_starts(H1_RESPONSE_PREFIX, str_head(line, H1_RESPONSE_PREFIX.n)))
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "the answer does not begin with HTTP/1 (another protocol?)");
	return 0;
}

/* The name of a field must end within its bound; what is wrong with it otherwise is told when the
 * head is read. */
static int check_begun_field(struct str line, struct err *e)
{
	if (line.n > LIMIT_FIELD_NAME_BYTES &&
	    str_find(str_head(line, LIMIT_FIELD_NAME_BYTES + 1), ':') < 0)
		return err_reason(e, REASON_HEAD_TOO_LARGE, "a field name of more than %d bytes",
				  LIMIT_FIELD_NAME_BYTES);
	return 0;
}

static int check_begun(const struct h1_scan *s, struct str line, struct err *e)
{
	if (s->lines > 0)
		return check_begun_field(line, e);
	return s->response ? check_begun_response(line, e) : check_begun_request(line, e);
}

/* A line that is whole, without its CRLF and not empty. */
static int check_line(struct h1_scan *s, struct str line, struct err *e)
{
	struct h1_request_line parts;

	if (s->lines == 0 && !s->response) {
		if (h1_split_request_line(line, &parts, e) < 0)
			return -1;
	} else if (check_begun(s, line, e) < 0) {
		return -1;
	}
	if (s->lines++ > LIMIT_HEAD_FIELDS)
		return err_reason(e, REASON_HEAD_TOO_LARGE, "more than %d fields",
				  LIMIT_HEAD_FIELDS);
	return 0;
}

/* Before a request line only (RFC 9112 section 2.2); there each line so far was two bytes. */
static int check_empty_line(const struct h1_scan *s, struct err *e)
{
	if (s->response || s->line_start / 2 >= LIMIT_EMPTY_LINES)
		return err_reason(e, REASON_MALFORMED_REQUEST, "%s before the first line",
				  s->response ? "an empty line" : "too many empty lines");
	return 0;
}

/* Steps over whole field lines of which no name could be too long; nothing else is to be said of
 * them here. True: the head ends behind them. */
static bool skip_short_fields(struct h1_scan *s, struct str in, size_t *ret_len)
{
	struct bytes16_walk walk = bytes16_walk(in.p, s->pos, in.n, h1_stops_value);
	size_t pos, start = s->line_start;
	bool ended = false;

	for (;;) {
		pos = bytes16_next(&walk, h1_stops_value);
		if (pos < in.n && in.p[pos] == '\t')
			continue;
		if (in.n - pos < 2 || in.p[pos] != '\r' || in.p[pos + 1] != '\n')
			break;
		ended = pos == start;
		if (ended || pos - start > LIMIT_FIELD_NAME_BYTES || s->lines > LIMIT_HEAD_FIELDS)
			break;
		s->lines++;
		start = bytes16_next(&walk, h1_stops_value) + 1; /* behind the LF */
	}
	s->pos = pos;
	s->line_start = start;
	if (ended)
		*ret_len = pos + 2;
	return ended;
}

static int scan(struct h1_scan *s, struct str in, size_t *ret_len, struct err *e)
{
	struct h1_request_line parts;
	size_t first;

	if (s->pos == 0 && !s->response && (first = h1_common_request_line(in, &parts)) > 0) {
		s->pos = s->line_start = first + 2;
		s->lines = 1;
	}
	for (;;) {
		struct str line;

		if (s->lines > 0 && skip_short_fields(s, in, ret_len))
			return 1;
		s->pos = h1_value_end(in.p, s->pos, in.n);
		if (s->pos == in.n || (in.p[s->pos] == '\r' && s->pos + 1 == in.n))
			return check_begun(s,
					   str_head(str_skip(in, s->line_start),
						    s->pos - s->line_start),
					   e);
		if (in.p[s->pos] != '\r' || in.p[s->pos + 1] != '\n')
			return refuse_byte(s, in, e);
		line = str_head(str_skip(in, s->line_start), s->pos - s->line_start);
		if (line.n == 0 && s->lines > 0) {
			*ret_len = s->pos + 2;
			return 1;
		}
		if ((line.n == 0 ? check_empty_line(s, e) : check_line(s, line, e)) < 0)
			return -1;
		s->pos += 2;
		s->line_start = s->pos;
	}
}

int h1_scan_head(struct h1_scan *s, struct str in, size_t max, size_t *ret_len, struct err *e)
{
	int rc = in.n > 0 ? scan(s, str_head(in, max), ret_len, e) : 0;

	if (rc == 0 && in.n >= max)
		rc = err_reason(e, REASON_HEAD_TOO_LARGE, "a head of more than %zu bytes", max);
	/* To the client it is all one which of its rules the origin broke. */
	if (rc < 0 && e && s->response)
		e->reason = REASON_UPSTREAM_MALFORMED;
	return rc;
}
