/*
 * One HTTP/1.1 connection to an origin, as an exchange uses it: writes a request, reads its answer.
 * The wire's details (framing, chunking) end here. A finished connection goes back to the pool when
 * both sides left it clean.
 */
#ifndef STILE_PROXY_SESSION_UPSTREAM_H
#define STILE_PROXY_SESSION_UPSTREAM_H

#include "proxy/credentials/inject.h"
#include "proxy/http/body.h"
#include "proxy/http/h1.h"
#include "proxy/net/stream.h"

struct upstream;

/* Takes s over, also on failure. on_event: something can be read, written, or went wrong. */
int upstream_new(struct stream *s, struct loop *l, bool reused, void (*on_event)(void *arg),
		 void *arg, struct upstream **ret, struct err *e) ATTR_NODISCARD;
/* Gives the connection's stream back if it may serve another request, else NULL; frees the rest. */
struct stream *upstream_release(struct upstream *u);
void upstream_close(struct upstream *u); /* NULL is accepted */

/* Writes the head (with the first body bytes, if they follow before upstream_flush). */
int upstream_send_head(struct upstream *u, const struct request *r, const struct injection *inj,
		       struct err *e) ATTR_NODISCARD;
size_t upstream_room(const struct upstream *u);
void upstream_send_body(struct upstream *u, struct str data);
void upstream_send_end(struct upstream *u, const struct fields *trailers);
void upstream_flush(struct upstream *u);

/* The next head, interim or final. 1: *ret filled (response_clear it); 0: not yet; -1: malformed,
 * or the connection ended (REASON_UPSTREAM_CLOSED), or TLS failed late (certificate wanted). */
int upstream_read_head(struct upstream *u, struct response *ret, struct err *e) ATTR_NODISCARD;
/* Gives body data to sink, at most max bytes. 0: as much as there was; *ret_done when the body is
 * whole. -1: cut or broken. */
int upstream_pull(struct upstream *u, size_t max, void (*sink)(void *arg, struct str data),
		  void *arg, bool *ret_done, struct err *e) ATTR_NODISCARD;
const struct fields *upstream_trailers(const struct upstream *u);
/* The origin has sent at least one byte of this answer. */
bool upstream_answered(const struct upstream *u);
bool upstream_reused(const struct upstream *u);
/* Before the head is sent: nothing came and nothing ended, so what comes will be the answer. */
bool upstream_is_quiet(const struct upstream *u);

#endif
