/*
 * The opening handshake of a WebSocket (RFC 6455 section 4, RFC 8441), as one who stands between
 * both sides must see it: is this request one, and is that 101 the answer to it? What follows the
 * handshake is not looked at. Called by the session's exchange.
 */
#ifndef STILE_PROXY_HTTP_WEBSOCKET_H
#define STILE_PROXY_HTTP_WEBSOCKET_H

#include "proxy/http/message.h"

/* The texts of Sec-WebSocket-Key and Sec-WebSocket-Accept, with their NUL. */
#define WEBSOCKET_KEY_MAX    25
#define WEBSOCKET_ACCEPT_MAX 29

/* Is a request that asks for a WebSocket (r->websocket) a whole and unambiguous handshake (section
 * 4.2.1)? 0, or -1 with REASON_UPGRADE_REFUSED. One that came over HTTP/2 has got a key of ours. */
int websocket_check_request(const struct request *r, struct err *e) ATTR_NODISCARD;
/* Is this 101 its answer (section 4.1): the key answered (not from HTTP/2 to HTTP/2), no protocol
 * and no extension that was not offered? 0, or -1 with REASON_UPSTREAM_MALFORMED. */
int websocket_check_response(const struct request *r, const struct response *answer,
			     struct err *e) ATTR_NODISCARD;
/* May this final answer be told to who asked? A 2xx of an origin that did not switch would open the
 * WebSocket in HTTP/2 (RFC 8441 section 5). 0, or -1 with REASON_UPSTREAM_MALFORMED. */
int websocket_check_refusal(const struct request *r, const struct response *answer,
			    struct err *e) ATTR_NODISCARD;
/* A key that nobody has had before; -1: there is no chance to be had. */
int websocket_new_key(char out[WEBSOCKET_KEY_MAX]) ATTR_NODISCARD;
/* What answers a key. */
int websocket_accept(struct str key, char out[WEBSOCKET_ACCEPT_MAX]) ATTR_NODISCARD;

#endif
