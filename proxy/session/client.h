/*
 * START READING HERE. One client connection, from accept to close: it reads heads, starts an
 * exchange for each request (exchange.h: the straight line from head to record), answers CONNECT
 * (connect.c), lets TLS be intercepted (intercept.c), becomes a tunnel (tunnel.h), refuses
 * (client_deny.c), and lingers.
 *
 * client_goto is the only assignment to the state and arms that state's timer; client_close is the
 * only way out.
 */
#ifndef STILE_PROXY_SESSION_CLIENT_H
#define STILE_PROXY_SESSION_CLIENT_H

#include "proxy/http/body.h"
#include "proxy/http/clienthello.h"
#include "proxy/http/h1.h"
#include "proxy/keeper/desk.h"
#include "proxy/net/stream.h"
#include "proxy/session/exchange.h"
#include "proxy/session/tunnel.h"

enum client_state {
	CLIENT_ACCEPTED, /* a moment: what it is to be depends on where it came in */
	CLIENT_IDLE,	 /* waits for the first byte of a request */
	CLIENT_HEAD,	 /* part of a head is here */
	CLIENT_TOKEN,	 /* the head is whole; whose it is is being asked for (client_token.h) */
	CLIENT_EXCHANGE, /* a request is being served */
	CLIENT_PEEK,	 /* the target is known: waits for the first bytes inside */
	CLIENT_LEAF,	 /* the certificate is being made */
	CLIENT_TLS,	 /* handshake with the client */
	CLIENT_H2,	 /* HTTP/2 is spoken: exchanges run side by side (client_h2.h) */
	CLIENT_TUNNEL,	 /* an opaque tunnel is being opened or runs */
	CLIENT_REFUSE,	 /* a refusal's record is on its way to the kernel; then the answer */
	CLIENT_LINGER,	 /* answered and half-closed: what still comes is dropped */
	CLIENT_CLOSED,
};

/* What a CONNECT asked for, or what the address of a transparent connection stands for, until the
 * first request inside is recorded. */
struct client_connect {
	struct host host;
	uint16_t port;
	char id[RECORD_ID_LEN + 1];
	const char *barred; /* why no rule can admit it; NULL: one may */
	bool transparent;   /* there was no CONNECT */
	bool admitted;	    /* at the beginning */
	bool pending;	    /* nothing about it is recorded yet: its end must be */
	bool explain;	    /* a refusal is told inside (connect.c) */
	struct clienthello_scan hello;
	struct policy_connect may; /* rules of `snapshot` */
	struct snapshot *snapshot; /* counted */
};

/* A refusal that waits for its record. */
struct client_refusal {
	struct err e;
	char id[RECORD_ID_LEN + 1];
	bool answer;   /* in HTTP; otherwise the connection just ends */
	bool held;     /* not to be said yet */
	bool recorded; /* it could be */
};

struct client_h2;

struct client {
	/* owned */
	struct stream *s;
	struct timer timer;
	struct request request;
	struct body_reader body;
	struct exchange *exchange;
	struct tunnel *tunnel;
	struct client_h2 *h2;		/* from CLIENT_H2 on */
	struct client_connect *connect; /* NULL until a target is known */
	struct client_refusal *refusal; /* CLIENT_REFUSE alone */
	char *tls_sni;			/* NULL: none seen */
	struct strbuf head;		/* an answer's head, waiting for the first body bytes */
	/* borrowed */
	struct worker *worker;
	struct client *next, *prev; /* worker->clients */
	TAILQ_ENTRY(client) asker;  /* worker->askers: CLIENT_TOKEN alone */
	/* plain */
	enum client_state state;
	struct downstream down; /* the exchange's view of us */
	struct caller caller;
	struct listener_peer peer;
	struct h1_context where; /* at the proxy port, or inside a tunnel */
	struct h1_scan scan;
	struct log_waiter waiter;
	struct desk_ask leaf; /* CLIENT_LEAF alone */
	bool driving;
	bool keep;	    /* another request may follow the current one */
	bool chunked;	    /* how the current answer's body goes out: in chunks, */
	bool until_close;   /* or until the connection ends */
	bool upgraded;	    /* it has become a WebSocket */
	bool served;	    /* a request was read on this connection */
	bool leaf_unproven; /* TLS is up, but the client may still reject the leaf (TLS 1.3) */
	size_t lingered;    /* bytes dropped */
	uint64_t asked;	    /* the ticket of its token (state.h); 0: none */
	uint64_t hold_ms;   /* a refusal is held back for so long (client_token.h) */
};

/* From the listener: owns fd. */
void client_accept(struct worker_listener *wl, int fd, const struct listener_peer *peer);
/* A connection over a bound: answered, recorded, closed. Owns fd. */
void client_refuse(struct worker_listener *wl, int fd, const struct listener_peer *peer,
		   enum reason why);
/* Goes as far as the input allows. */
void client_drive(struct client *c);
/* Idempotent. `why` is what the record of something unfinished says; REASON_NONE when nothing is.
 */
void client_close(struct client *c, enum reason why, const char *detail);
/* No further request: idle connections close now, busy ones after their answer. */
void client_drain(struct client *c);

/* For the files named here, client_token.c, client_h2.c and tunnel.c alone: */

/* The only assignment to the state; a move that is not in its table ends the process. */
void client_goto(struct client *c, enum client_state to);
/* Writes an answer of ours, then closes (lingering) unless `keep`. */
void client_answer(struct client *c, const struct reply *r, bool keep);
/* client_deny.c: */
/* Refuses a head that cannot be read or served: a request.deny record with e, an answer, then
 * close, since where a next request would begin is never guessed. */
void client_deny_head(struct client *c, const struct err *e);
/* Refuses the CONNECT that is pending on this connection: a tunnel.deny record with e, and an
 * answer in HTTP if one can be read at this point, then close. */
void client_deny_connect(struct client *c, enum scheme scheme, const struct err *e, bool answer);
/* The record of a request that was refused unread. The ticket, or 0. */
uint64_t client_record_denied(struct client *c, const struct request *q, const char *id,
			      const struct err *e);
/* The record of a connection that is at fault while no request speaks for it. */
void client_record_fault(struct client *c, const struct err *e);
/* The records of what this connection's end leaves unfinished, if anything. */
void client_record_unfinished(struct client *c, enum reason why, const char *detail);
/* CLIENT_REFUSE: the time for which a refusal is held back is over. */
void client_deny_timer(struct client *c);
/* client.c: */
/* A request is here, and will be recorded: it speaks for its CONNECT. */
void client_request_came(struct client *c);
/* The client's end of the connection came between requests. */
void client_left(struct client *c);
/* Ends the connection once what is written is sent. */
void client_end(struct client *c);
/* client_h1.c: */
extern const struct downstream_ops client_h1_ops;
/* connect.c: */
void connect_start(struct client *c);
/* Of a transparent listener: nothing has been read. */
void connect_transparent(struct client *c);
/* Who sent this CONNECT is not known: its record and its answer say e. */
void connect_refuse(struct client *c, const struct err *e);
void connect_peek(struct client *c);
/* What the record says of a refused CONNECT that nothing came of. */
void connect_denial(const struct client *c, struct err *e);
/* intercept.c: */
void intercept_start(struct client *c);
void intercept_handshaked(struct client *c);
void intercept_failed(struct client *c);

#endif
