/*
 * HTTP/1 heads a byte at a time: the plain readers and the plain writer that those of proxy/http/,
 * which look at sixteen bytes at once, are compared with. Strictness is defined here; what is wrong
 * with a line, in which words, too.
 */
#ifndef STILE_TESTS_UNIT_HTTP_H1_PLAIN_H
#define STILE_TESTS_UNIT_HTTP_H1_PLAIN_H

#include "logging/limits.h"
#include "proxy/http/h1.h"
#include "proxy/http/h1_text.h"
#include "proxy/http/reply.h"

#define SHOWN 64 /* bytes of a name in a message */

static size_t plain_span(struct str s, unsigned class)
{
	size_t i = 0;

	while (i < s.n && (h1_class[(uint8_t)s.p[i]] & class))
		i++;
	return i;
}

static bool plain_all(struct str s, unsigned class)
{
	return plain_span(s, class) == s.n;
}

static bool plain_is_field(const struct field *f)
{
	return f->name.n > 0 && plain_all(f->name, H1_TOKEN) && plain_all(f->value, H1_VALUE);
}

static int malformed(struct err *e, const char *what)
{
	return err_reason(e, REASON_MALFORMED_REQUEST, "%s", what);
}

static int plain_next_line(struct str *rest, struct str *ret, struct err *e)
{
	ptrdiff_t lf = str_find(*rest, '\n');

	if (lf < 0)
		return malformed(e, "the head ends in the middle of a line");
	if (lf == 0 || rest->p[lf - 1] != '\r')
		return malformed(e, "a line that ends in a bare LF");
	*ret = str_head(*rest, (size_t)lf - 1);
	*rest = str_skip(*rest, (size_t)lf + 1);
	return 0;
}

/* Why the line is none: its name ends at `at`, and not at a colon. */
static int refuse_name(struct str line, size_t at, struct err *e)
{
	unsigned char c;

	if (at == line.n)
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "a field line without a colon: \"%.*s\"",
				  (int)str_head(line, SHOWN).n, line.p);
	c = (unsigned char)line.p[at];
	if (at == 0 && (c == ' ' || c == '\t'))
		return malformed(e, "a line that begins with white space (folded lines are not "
				    "taken)");
	if (at == 0 && c == ':')
		return malformed(e, "a field without a name");
	if (c == ' ' || c == '\t')
		return err_reason(e, REASON_MALFORMED_REQUEST,
				  "white space in or behind the field name \"%.*s\"",
				  (int)str_head(line, at < SHOWN ? at : SHOWN).n, line.p);
	return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x in a field name", c);
}

static int plain_next_field(struct str *rest, struct field *ret, struct err *e)
{
	struct str line = STR_NONE, value;
	size_t n, bad;

	if (plain_next_line(rest, &line, e) < 0)
		return -1;
	if (line.n == 0)
		return 0;
	n = plain_span(line, H1_TOKEN);
	if (n > LIMIT_FIELD_NAME_BYTES)
		return err_reason(e, REASON_HEAD_TOO_LARGE, "a field name of more than %d bytes",
				  LIMIT_FIELD_NAME_BYTES);
	if (n == 0 || n == line.n || line.p[n] != ':')
		return refuse_name(line, n, e);
	value = str_trim_ows(str_skip(line, n + 1));
	bad = plain_span(value, H1_VALUE);
	if (bad < value.n)
		return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x in the value of %.*s",
				  (unsigned char)value.p[bad], (int)(n < SHOWN ? n : SHOWN),
				  line.p);
	*ret = (struct field){str_head(line, n), value};
	return 1;
}

static int read_version(struct str v, enum http_version *ret, struct err *e)
{
	if (str_eq(v, STR("HTTP/1.1"))) {
		*ret = HTTP_11;
		return 0;
	}
	if (str_eq(v, STR("HTTP/1.0"))) {
		*ret = HTTP_10;
		return 0;
	}
	if (v.n == 8 && str_starts(v, STR("HTTP/")) && v.p[5] >= '2' && v.p[5] <= '9' &&
	    v.p[6] == '.' && v.p[7] >= '0' && v.p[7] <= '9')
		return err_reason(e, REASON_VERSION_UNSUPPORTED,
				  "%.*s in the request line (HTTP/1.1 and 1.0 are spoken here)",
				  STR_FMT(v));
	return malformed(e, "the request line does not end in \" HTTP/1.1\" or \" HTTP/1.0\"");
}

/* What the line begins with if it is another protocol. */
static int refuse_other_protocol(struct str line, struct err *e)
{
	if (str_starts(line, STR("PRI * HTTP/2")))
		return err_reason(e, REASON_VERSION_UNSUPPORTED,
				  "HTTP/2 with prior knowledge (in clear only HTTP/1.1 is spoken "
				  "here)");
	if (line.n > 0 && line.p[0] == 0x16)
		return malformed(e, "TLS on the plain port (this port speaks HTTP: the proxy's own "
				    "URL begins with http://)");
	return 0;
}

static int plain_split_request_line(struct str line, struct h1_request_line *ret, struct err *e)
{
	struct str rest = line, word;
	size_t bad;

	*ret = (struct h1_request_line){0};
	ret->target = str_head(line, LIMIT_TARGET_BYTES);
	if (refuse_other_protocol(line, e) < 0)
		return -1;
	word = str_split(&rest, ' ');
	if (word.n == 0 || !plain_all(word, H1_TOKEN))
		return malformed(e, "the first line does not begin with a method (is this HTTP?)");
	if (word.n > LIMIT_METHOD_BYTES)
		return err_reason(e, REASON_MALFORMED_REQUEST, "a method of more than %d bytes",
				  LIMIT_METHOD_BYTES);
	/* RFC 9113 section 11.6: never used, so that no preface is taken for a request. */
	if (str_eq(word, STR("PRI")))
		return malformed(e, "PRI is a method of the HTTP/2 preface alone");
	if (!rest.p)
		return malformed(e, "a request line without a target");
	ret->method = word;
	word = str_split(&rest, ' ');
	ret->target = str_head(word, LIMIT_TARGET_BYTES);
	ret->version = rest;
	if (word.n > LIMIT_TARGET_BYTES)
		return err_reason(e, REASON_TARGET_TOO_LONG, "the target is longer than %d bytes",
				  LIMIT_TARGET_BYTES);
	if (word.n == 0)
		return malformed(e, "more than one space in the request line");
	bad = plain_span(word, H1_TARGET);
	if (bad < word.n)
		return err_reason(e, REASON_MALFORMED_REQUEST, "byte 0x%02x at %zu of the target",
				  (unsigned char)word.p[bad], bad + 1);
	if (!rest.p)
		return malformed(e, "a request line without a version (HTTP/0.9 is not spoken)");
	return read_version(rest, &ret->http, e);
}

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
	size_t method = plain_span(str_head(line, LIMIT_METHOD_BYTES + 1), H1_TOKEN);
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
		if (plain_split_request_line(line, &parts, e) < 0)
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

static int scan(struct h1_scan *s, struct str in, size_t *ret_len, struct err *e)
{
	for (;;) {
		struct str line;

		s->pos += plain_span(str_skip(in, s->pos), H1_VALUE);
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

static int plain_scan_head(struct h1_scan *s, struct str in, size_t max, size_t *ret_len,
			   struct err *e)
{
	int rc = in.n > 0 ? scan(s, str_head(in, max), ret_len, e) : 0;

	if (rc == 0 && in.n >= max)
		rc = err_reason(e, REASON_HEAD_TOO_LARGE, "a head of more than %zu bytes", max);
	/* To the client it is all one which of its rules the origin broke. */
	if (rc < 0 && e && s->response)
		e->reason = REASON_UPSTREAM_MALFORMED;
	return rc;
}

static void add_line(struct strbuf *out, struct str name, struct str value)
{
	strbuf_add(out, name);
	strbuf_add(out, STR(": "));
	strbuf_add(out, value);
	strbuf_add(out, STR("\r\n"));
}

static void add_length(struct strbuf *out, uint64_t n)
{
	strbuf_add(out, STR("Content-Length: "));
	strbuf_addu(out, n);
	strbuf_add(out, STR("\r\n"));
}

/* -1 for a field that would break the head, or that would stand beside the one we write ourselves:
 * then whoever put it there has a fault, and the message is not sent. */
static int add_fields(struct strbuf *out, const struct fields *f)
{
	for (size_t i = 0; i < f->n; i++) {
		if (!plain_is_field(&f->v[i]) || field_is_framing(field_kind(f->v[i].name)))
			return -1;
		add_line(out, f->v[i].name, f->v[i].value);
	}
	return 0;
}

static void add_request_framing(struct strbuf *out, const struct request *r)
{
	if (r->body == BODY_LENGTH)
		add_length(out, r->length);
	else if (r->body == BODY_CHUNKED)
		strbuf_add(out, STR("Transfer-Encoding: chunked\r\n"));
	if (r->websocket) {
		strbuf_add(out, STR("Connection: Upgrade\r\nUpgrade: websocket\r\n"));
		return;
	}
	/* RFC 9110 section 10.1.4: TE is for the next hop alone, so Connection names it. */
	if (r->te_trailers)
		strbuf_add(out, STR("TE: trailers\r\n"));
	if (request_has_odd_body(r))
		strbuf_add(out, r->te_trailers ? STR("Connection: close, TE\r\n")
					       : STR("Connection: close\r\n"));
	else if (r->te_trailers)
		strbuf_add(out, STR("Connection: TE\r\n"));
	if (r->expect_continue)
		strbuf_add(out, STR("Expect: 100-continue\r\n"));
}

static int plain_write_request(const struct request *r, const struct fields *extra,
			       struct str extra_query, struct strbuf *out)
{
	if (r->method.n == 0 || !plain_all(r->method, H1_TOKEN) || r->form == TARGET_AUTHORITY ||
	    r->url.path.n == 0 || !plain_all(extra_query, H1_TARGET) ||
	    str_find(extra_query, '#') >= 0)
		return -1;
	strbuf_add(out, r->method);
	strbuf_addc(out, ' ');
	request_add_target(&r->url, extra_query, out);
	strbuf_add(out, STR(" HTTP/1.1\r\nHost: "));
	url_add_authority(&r->url, out);
	strbuf_add(out, STR("\r\n"));
	if (add_fields(out, &r->fields) < 0)
		return -1;
	add_request_framing(out, r);
	if (extra && add_fields(out, extra) < 0)
		return -1;
	strbuf_add(out, STR("\r\n"));
	return out->overflowed ? -1 : 0;
}

/* Our own refusals name us in their phrase (reply.c), so nobody else's does. */
static bool names_us(struct str phrase)
{
	struct str us = STR("stile");

	for (size_t i = 0; i + us.n <= phrase.n; i++)
		if (str_eq_nocase(str_head(str_skip(phrase, i), us.n), us))
			return true;
	return false;
}

static void add_status_line(struct strbuf *out, const struct response *r)
{
	struct str phrase = r->reason;

	if (phrase.n == 0 || !plain_all(phrase, H1_VALUE) || names_us(phrase))
		phrase = str_from_c(reply_phrase(r->status));
	strbuf_add(out, STR("HTTP/1.1 "));
	strbuf_addu(out, r->status);
	/* The space stands there even before an empty phrase (RFC 9112 section 4). */
	strbuf_addc(out, ' ');
	strbuf_add(out, phrase);
	strbuf_add(out, STR("\r\n"));
}

/* An interim response has neither framing nor a say about the connection, but for 101. */
static void add_interim(struct strbuf *out, const struct response *r)
{
	if (r->status == 101 && r->upgrade.n > 0) {
		strbuf_add(out, STR("Connection: Upgrade\r\n"));
		add_line(out, STR("Upgrade"), r->upgrade);
	}
}

static void add_response_framing(struct strbuf *out, const struct response *r, enum http_version v,
				 bool keep)
{
	switch (r->body) {
	case BODY_NONE:
		if (r->has_content_length && r->status != 204)
			add_length(out, r->content_length);
		break;
	case BODY_LENGTH: add_length(out, r->length); break;
	case BODY_CHUNKED:
		if (v == HTTP_10)
			keep = false;
		else
			strbuf_add(out, STR("Transfer-Encoding: chunked\r\n"));
		break;
	case BODY_CLOSE: keep = false; break;
	}
	if (!keep)
		strbuf_add(out, STR("Connection: close\r\n"));
}

static int plain_write_response(const struct response *r, enum http_version v, bool keep,
				struct strbuf *out)
{
	if (r->status < 100 || r->status > 599 || !plain_all(r->upgrade, H1_VALUE))
		return -1;
	add_status_line(out, r);
	if (add_fields(out, &r->fields) < 0)
		return -1;
	if (r->status < 200)
		add_interim(out, r);
	else
		add_response_framing(out, r, v, keep);
	strbuf_add(out, STR("\r\n"));
	return out->overflowed ? -1 : 0;
}

#endif
