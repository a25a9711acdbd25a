/*
 * The exchange's inside, shared by exchange.c (a request, from head to record) and, in the order in
 * which a request passes them: exchange_decide.c (its first state), exchange_swap.c (placeholders
 * in it), exchange_sign.c (one that is signed), exchange_send.c (its body), exchange_answer.c (what
 * the origin says), exchange_redact.c (what the answer must not hold) and exchange_relay.c (the
 * WebSocket that one may become). Nobody else includes it.
 */
#ifndef STILE_PROXY_SESSION_EXCHANGE_INTERNAL_H
#define STILE_PROXY_SESSION_EXCHANGE_INTERNAL_H

#include "proxy/credentials/body_swap.h"
#include "proxy/credentials/inject.h"
#include "proxy/credentials/ws_swap.h"
#include "proxy/credentials/signing.h"
#include "proxy/http/websocket.h"
#include "proxy/session/exchange.h"
#include "proxy/session/identity.h"
#include "proxy/session/route.h"
#include "proxy/session/upstream.h"

struct exchange {
	/* What the memory of one that ended brings along: the timer, which may stay where it is,
	 * and what is as it was made (exchange.c: take_memory). */
	struct timer timer;
	struct injection injection;
	struct strbuf sent; /* the body so far, while it may have to be sent again */
	/* owned; zeroed from here on */
	struct upstream *up;
	struct body_swap *search;	/* for placeholders in the body; NULL: none can be there */
	struct ws_swap *ws;		/* the same for a WebSocket; NULL: nothing of it is read */
	struct exchange_redact *redact; /* NULL: nothing is looked for in the answer */
	struct signing *signing;	/* NULL: it is not signed */
	struct stream *connected;	/* between the route's end and the upstream's birth */
	/* counted */
	struct pool_key *pool_key;
	struct snapshot *snapshot;
	struct client_cert *cert; /* what the origin is shown; NULL: none */
	/* borrowed */
	struct worker *worker;
	struct exchange *next, *prev; /* worker->relays, in EXCHANGE_RELAY alone */
	struct downstream *down;      /* NULL once abandoned or finished */
	struct caller *caller;
	struct request *request;
	const struct rule *rule;	 /* the snapshot's */
	const struct config_parent *via; /* the snapshot's; NULL: dialled directly */
	/* plain */
	enum exchange_state state;
	struct log_waiter waiter;
	struct share_seat seat;
	bool driving;
	bool closed;   /* the last record was handed over */
	bool recorded; /* request.start was handed over: the end must follow */
	bool injected;
	bool stripped;	 /* the client had brought a credential of its own */
	bool swaps_body; /* the credential may go into the body in its placeholder's place */
	bool unasked;	 /* no placeholder of the rule's credential is there, and none may come */
	bool misused;	 /* the body held a placeholder that it may not: x->error */
	bool retried;
	bool refused;	   /* the origin had not looked at it: so it is sent again */
	bool h1_only;	   /* the origin is not offered HTTP/2 */
	bool request_done; /* its body went upstream whole */
	bool relayed;	   /* it became a WebSocket */
	bool answer_done;  /* then: its origin has ended its way */
	bool end_held;	   /* then: the client has, which its origin was not told yet */
	bool answer_begun; /* a byte of an answer went downstream */
	bool continued;	   /* 100 went downstream */
	size_t held_bytes; /* of a body that is held to be signed */
	size_t held_sent;
	size_t resent; /* of `sent`, in a second attempt */
	unsigned interims;
	unsigned status;
	struct ipaddr addr;
	struct str up_tls_version, up_tls_alpn; /* static text */
	uint64_t bytes_out, bytes_in;
	uint64_t bytes_down; /* of the answer, as its client got them: decoded */
	int64_t begun_us, sent_us, relay_us, held_us;
	/* What follows is set by its own means: most of it is not touched by most requests. */
	struct identity identity;
	struct record_ms ms;
	struct err error;
	struct route route;
	char id[RECORD_ID_LEN + 1];
	char max_forwards[24];
	char websocket_key[WEBSOCKET_KEY_MAX]; /* ours, of a WebSocket that came over HTTP/2 */
	struct ipaddr same_addr;	       /* what its start says of the upstream */
	const struct config_parent *same_via;
	struct record_same same; /* what both records say alike */
};

/* exchange_decide.c */
/* What the policy is asked. */
struct policy_request exchange_question(const struct exchange *x);
/* 0: admitted, its identity set, x->rule and x->pool_key filled. -1: refused, or what it needs is
 * not to be had. */
int exchange_decide(struct exchange *x, struct err *e) ATTR_NODISCARD;

/* exchange_swap.c */
/* The client's identity and the rule's credential, which has a placeholder. */
int exchange_swap(struct exchange *x, const struct config_credential *c,
		  struct err *e) ATTR_NODISCARD;
int exchange_search_begin(struct exchange *x, struct err *e) ATTR_NODISCARD;
/* What the client sent, with the values in place; and its end. x->misused: it may not go out. */
void exchange_search(struct exchange *x, struct str data, body_swap_sink *sink);
void exchange_search_flush(struct exchange *x, body_swap_sink *sink);
void exchange_search_clear(struct exchange *x);
/* How much of the body may be asked for when there is room for so much. */
size_t exchange_search_room(const struct exchange *x, size_t room);
int exchange_check_trailers(const struct exchange *x, const struct fields *trailers,
			    struct err *e) ATTR_NODISCARD;

/* exchange.c */
const struct config_limits *exchange_limits(const struct exchange *x);
/* Ends with x->error: an answer of ours if none has begun. */
void exchange_fail(struct exchange *x);
void exchange_fail_with(struct exchange *x, const struct err *e);
/* The one exit. */
void exchange_finish(struct exchange *x, enum exchange_outcome how);
/* The only assignment to the state. */
void exchange_goto(struct exchange *x, enum exchange_state to);
void exchange_forget_sent(struct exchange *x); /* it will not be sent again */

/* exchange_send.c */
int exchange_pump_more(struct exchange *x); /* for what follows alone */
/* What the client sends, as far as both sides allow. -1: the exchange has ended. */
static inline int exchange_pump_request(struct exchange *x)
{
	return x->request_done ? 0 : exchange_pump_more(x);
}

/* exchange_answer.c */
/* Heads until the final one. 1: it came; 0: not yet; -1: the exchange has ended; 2: start over. */
int exchange_read_heads(struct exchange *x);
/* The answer's body. True: the exchange has ended. */
bool exchange_pump_answer(struct exchange *x);

/* exchange_redact.c */
/* s was added to the request: from here on the answer is searched for it. Asks the origin for an
 * answer that can be looked into. */
int exchange_redact_begin(struct exchange *x, struct secret *s, struct err *e) ATTR_NODISCARD;
/* Each head before it is passed on. -1: the answer cannot be looked into. */
int exchange_redact_head(struct exchange *x, struct response *r, struct err *e) ATTR_NODISCARD;
/* What came of the answer's body to the client, as far as both sides allow: upstream_pull, with
 * what must not come back blanked on the way. */
int exchange_redact_pull(struct exchange *x, bool *ret_done, struct err *e) ATTR_NODISCARD;
/* NULL, with a reason in e: memory is out. */
const struct fields *exchange_redact_trailers(struct exchange *x, struct err *e);
/* x->error may quote the origin. */
void exchange_redact_error(struct exchange *x);
uint64_t exchange_redact_count(const struct exchange *x);
void exchange_redact_stop(struct exchange *x); /* no timer is left */
void exchange_redact_free(struct exchange *x);

void exchange_arm(struct exchange *x, uint64_t ms); /* but no longer than the whole may take */

/* exchange_sign.c */
/* The request as it came; c's as is CREDENTIAL_AS_SIGV4. */
int exchange_sign_prepare(struct exchange *x, const struct config_credential *c, struct secret *s,
			  struct err *e) ATTR_NODISCARD;
bool exchange_must_hold(const struct exchange *x);
/* True: the body is whole; false: more is to come, or the exchange has ended. */
bool exchange_hold(struct exchange *x);
/* Into x->injection, for r, whose head is about to be written. */
int exchange_sign(struct exchange *x, const struct request *r, struct err *e) ATTR_NODISCARD;
/* The client's body, or what is held of it. */
int exchange_pull_client(struct exchange *x, size_t room, void (*sink)(void *arg, struct str data),
			 bool *ret_done, struct err *e) ATTR_NODISCARD;
/* Of what is signed: bytes that are about to go, `last` when none follow. -1: with them the body is
 * not what was declared: x->misused, and x->error says so. */
int exchange_check_signed(struct exchange *x, struct str data, bool last) ATTR_NODISCARD;
void exchange_sign_end(struct exchange *x);

/* exchange_relay.c */
/* The 101 r that answers what was asked: nothing but it makes this a pipe. -1: it may not. */
int exchange_relay_begin(struct exchange *x, const struct response *r,
			 struct err *e) ATTR_NODISCARD;
/* As far as both sides allow; each way ends by itself. */
void exchange_relay_drive(struct exchange *x);
void exchange_relay_arm(struct exchange *x);
void exchange_relay_client_ended(struct exchange *x);
bool exchange_relay_timed_out(struct exchange *x); /* true: it is over, x->error says of what */
void exchange_relay_leave(struct exchange *x);	   /* no longer among worker->relays */

#endif
