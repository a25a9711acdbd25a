/*
 * HTTP/1 heads, strictly (RFC 9112): bytes to the canonical message and back. Where the RFC lets a
 * recipient be lenient this refuses: what two readers could read differently is not forwarded. It
 * touches no socket and no body (body.h).
 */
#ifndef STILE_PROXY_HTTP_H1_H
#define STILE_PROXY_HTTP_H1_H

#include "proxy/http/message.h"

/* How far a head has been looked at, so that each byte is scanned once however it arrives. Zero at
 * the start of each head. */
struct h1_scan {
	size_t pos;
	size_t line_start;
	size_t lines;
	bool response;
};

/* Is there a whole head at the start of `in`? 1: yes, *ret_len bytes of it with its blank line; 0:
 * not yet; -1: it can't become one (bare CR or LF, NUL, a control byte, a first line that is not
 * HTTP/1: a TLS record, the HTTP/2 preface, too long a line, target, name or head): e has the
 * reason and what was seen, while the head is still arriving. max is the head's bound. Up to
 * LIMIT_EMPTY_LINES empty lines before a request line are forgiven (RFC 9112 section 2.2): they
 * count as part of the head. */
int h1_scan_head(struct h1_scan *scan, struct str in, size_t max, size_t *ret_len,
		 struct err *e) ATTR_NODISCARD;

/* Where a request arrived: at the proxy port itself, or inside a tunnel to one origin. */
struct h1_context {
	bool in_tunnel;
	/* in_tunnel only */
	enum scheme scheme;
	struct host host;
	uint16_t port;
};

/* Reads a head that h1_scan_head found. 0, or -1 with one of REASON_MALFORMED_REQUEST,
 * AMBIGUOUS_URL, NAME_MISMATCH, HEAD_TOO_LARGE, TARGET_TOO_LONG, EXPECTATION_FAILED,
 * VERSION_UNSUPPORTED, METHOD_REFUSED (TRACE). *ret is filled as far as
 * could be read, also on failure (for the record): request_clear in both cases. After a failure
 * keep_alive is set only when the framing is beyond doubt all the same; body then says what
 * follows. A head that h1_scan_head refused, or that never ended, may be given too: the result is
 * -1 and *ret has what there was. Outside a tunnel: absolute-form http:// or CONNECT authority-form
 * alone. Inside: origin-form, or an absolute-form that names the same origin. Host: exactly one,
 * equal to the target's authority; without a port it means the scheme's default, for CONNECT the
 * target's. */
int h1_parse_request(struct str head, const struct h1_context *ctx, struct request *ret,
		     struct err *e) ATTR_NODISCARD;

/* Reads a response head to a request with this method. -1: REASON_UPSTREAM_MALFORMED. Interim (1xx)
 * heads are responses too: BODY_NONE. 101 only makes sense to a request that asked for it: the
 * caller checks. Framing: section 6.3, strictly: both Content-Length and Transfer-Encoding,
 * repeated or listed lengths, other codings than exactly chunked: refused. A Content-Length of a
 * 204, 1xx or 304, or in answer to HEAD, is no body. */
int h1_parse_response(struct str head, struct str method, struct response *ret,
		      struct err *e) ATTR_NODISCARD;

/* Writes the head for an origin: origin-form target, Host from the URL, the fields, framing, TE and
 * Connection of our own hop (keep-alive is HTTP/1.1's default: nothing said). No upgrade is asked
 * for but that of r->websocket, which the caller has admitted and checked (websocket.h). `extra`
 * are fields of ours (the credential), written last, or NULL; extra_query is appended to the query
 * ("key=value", already encoded; empty: none). -1 when out overflowed, or when a field would break
 * the head or double one that is written here: what is in out then must not be sent. */
int h1_write_request(const struct request *r, const struct fields *extra, struct str extra_query,
		     struct strbuf *out) ATTR_NODISCARD;
/* Writes the head for a client of version v: the status line with HTTP/1.1, fields, framing by
 * r->body (which the caller changes to what it will send; BODY_CHUNKED for an HTTP/1.0 client
 * becomes close-delimited: the caller closes), Connection: close unless keep. 1xx: neither framing
 * nor Connection, but for a 101 with r->upgrade. -1 as above. */
int h1_write_response(const struct response *r, enum http_version v, bool keep,
		      struct strbuf *out) ATTR_NODISCARD;

#endif
