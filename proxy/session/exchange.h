/*
 * One request, from its head to its record: decide, credential, route, record, send, relay, end.
 * Read exchange_drive in exchange.c from top to bottom: the states stand there in the order in
 * which a request passes through them.
 *
 * The client's side is behind `struct downstream`, so that every wire format walks the same line;
 * client_h1.c is the HTTP/1 one.
 */
#ifndef STILE_PROXY_SESSION_EXCHANGE_H
#define STILE_PROXY_SESSION_EXCHANGE_H

#include "proxy/http/message.h"
#include "proxy/http/reply.h"
#include "proxy/session/worker.h"

enum exchange_state {
	EXCHANGE_DECIDE,  /* policy, log, credential, pool */
	EXCHANGE_HOLD,	  /* the body comes, to be signed as a whole */
	EXCHANGE_RESOLVE, /* the name's addresses are asked for and judged */
	EXCHANGE_RECORD,  /* request.start is on its way to the kernel */
	EXCHANGE_DIAL,	  /* connecting; TLS */
	EXCHANGE_ANSWER,  /* the request is being sent; no final head yet */
	EXCHANGE_BODY,	  /* the answer's body is relayed */
	EXCHANGE_RELAY,	  /* it has become a WebSocket: bytes both ways, unread */
	EXCHANGE_REFUSE,  /* the refusal's record is on its way to the kernel; then the answer */
	EXCHANGE_DONE,
};

enum exchange_outcome {
	EXCHANGE_WHOLE,	  /* the answer reached the downstream to its end */
	EXCHANGE_REFUSED, /* nothing was sent downstream: send `reply` */
	EXCHANGE_CUT,	  /* part of an answer was sent: it must not look whole */
};

struct downstream;

struct downstream_ops {
	/* Gives request body data to sink, at most max bytes; *ret_done when it is whole. -1:
	 * broken. */
	int (*pull)(struct downstream *d, size_t max, void (*sink)(void *arg, struct str data),
		    void *arg, bool *ret_done, struct err *e);
	const struct fields *(*trailers)(struct downstream *d);
	size_t (*room)(struct downstream *d);
	/* After a head of 101 (never but to a `websocket` request) what pull gives and send_body
	 * takes are the bytes of the WebSocket, and send_end is the end of one way alone. Another
	 * wire format may say it with another status (RFC 8441: 200).
	 * `more`: the client is still sending its request, so this connection serves no other. */
	int (*send_head)(struct downstream *d, const struct response *r, bool more, struct err *e);
	void (*send_body)(struct downstream *d, struct str data);
	void (*send_end)(struct downstream *d, const struct fields *trailers);
	void (*send_continue)(struct downstream *d);
	void (*flush)(struct downstream *d);
	/* Last call. `reply` is for EXCHANGE_REFUSED. */
	void (*finished)(struct downstream *d, enum exchange_outcome how,
			 const struct reply *reply);
};

struct downstream {
	const struct downstream_ops *ops;
};

struct caller_memo;

/* What the record says of the connection that a request came in on. */
struct caller {
	/* borrowed from the connection, which outlives its exchanges */
	const struct entrance *entrance;
	struct sandbox *sandbox; /* whose token it brought; NULL: the entrance speaks */
	struct str client;
	struct str http; /* "1.1" */
	struct str tls_sni, tls_version, tls_alpn;
	/* No rule admitted the CONNECT; the tunnel is there to say so to what comes inside. */
	bool explained;
	bool claimed; /* a request has said who is calling: no other one is taken up */
	/* owned by the connection: caller_memo.h; NULL: nothing was asked yet */
	struct caller_memo *memo;
};

struct exchange;

/* Starts judging r. The request belongs to the caller and must stay until `finished`, which may
 * come before this returns. NULL only when memory is out. */
struct exchange *exchange_new(struct worker *w, struct downstream *d, struct caller *caller,
			      struct request *r);
/* Goes as far as it can; call it when the downstream has more to read or more room. */
void exchange_drive(struct exchange *x);
/* The downstream is gone (reset, closed): ends without `finished`, with its record. */
void exchange_abandon(struct exchange *x, enum reason why, const char *detail);
/* For the worker, of those in EXCHANGE_RELAY (worker->relays): the policy has changed. What s does
 * not admit any more ends (policy_revoked). */
void exchange_recheck(struct exchange *x, struct snapshot *s);
/* For the worker's end, before its loop's: what ends from now on is not kept. */
void exchange_free_spares(struct worker *w);
struct exchange *exchange_next(const struct exchange *x);

#endif
