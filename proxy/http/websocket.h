/*
 * The opening handshake of a WebSocket (RFC 6455 section 4), as one who stands between both sides
 * must see it: is this request one, and is that 101 the answer to it? What follows the handshake is
 * not looked at. Called by the session's exchange.
 */
#ifndef STILE_PROXY_HTTP_WEBSOCKET_H
#define STILE_PROXY_HTTP_WEBSOCKET_H

#include "proxy/http/message.h"

/* The text of Sec-WebSocket-Accept, with its NUL. */
#define WEBSOCKET_ACCEPT_MAX 29

/* Is an HTTP/1.1 request that asks for a WebSocket (r->websocket) a whole and unambiguous handshake
 * (section 4.2.1)? 0, or -1 with REASON_UPGRADE_REFUSED. */
int websocket_check_request(const struct request *r, struct err *e) ATTR_NODISCARD;
/* Is this 101 its answer (section 4.1): the key answered, no protocol and no extension that was not
 * offered? 0, or -1 with REASON_UPSTREAM_MALFORMED. */
int websocket_check_response(const struct request *r, const struct response *answer,
			     struct err *e) ATTR_NODISCARD;
/* What answers a key. */
int websocket_accept(struct str key, char out[WEBSOCKET_ACCEPT_MAX]) ATTR_NODISCARD;

#endif
