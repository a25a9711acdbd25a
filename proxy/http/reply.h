/*
 * The proxy's own answers: status line, Proxy-Status (RFC 9209), Cache-Control and a body that
 * people and agents can act on, text or JSON by Accept. Nothing in them tells what the allowlist
 * holds beyond the request made.
 */
#ifndef STILE_PROXY_HTTP_REPLY_H
#define STILE_PROXY_HTTP_REPLY_H

#include "proxy/http/message.h"

struct reply {
	enum reason reason;
	struct str detail; /* one sentence; made printable while being written */
	struct str id;	   /* of the record */
	struct str accept; /* reply_accept; JSON unless text/plain or text/html is preferred */
	bool head;	   /* answer to HEAD: no body bytes, the same Content-Length */
	bool keep;	   /* else Connection: close */
	bool grpc;	   /* reply_response: a gRPC client asked, who reads trailers alone */
	unsigned status;   /* 0: the reason's own */
};

/* In what form to answer this request: its Accept (RFC 9110 section 12.5.1), but text for git,
 * which asks for anything, shows its user a refusal that is text, and keeps the reason of any other
 * to itself. Borrowed from the request. */
struct str reply_accept(const struct request *q);
/* "HTTP/1.1 403 Forbidden ..." whole, body included; the reason phrase names the reason word. 405
 * carries Allow, 407 Proxy-Authenticate, 429/503 Retry-After. */
void reply_write(const struct reply *r, struct strbuf *out);
/* The same as a message, for HTTP/2: *ret (response_clear it) and its body. For gRPC it is one head
 * without a body: status 200, grpc-status and grpc-message. -1: memory is out. */
int reply_response(const struct reply *r, struct response *ret, struct strbuf *body) ATTR_NODISCARD;
/* "HTTP/1.1 200 Connection established" for CONNECT: no framing fields (RFC 9110 section 9.3.6). */
struct str reply_connect_ok(void);
struct str reply_continue(void); /* "HTTP/1.1 100 Continue" */
/* The standard phrase of a status, "" if unknown. */
const char *reply_phrase(unsigned status);

#endif
