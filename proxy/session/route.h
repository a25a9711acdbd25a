/*
 * The way to one origin under one rule: resolve, judge every answer, then dial a judged address (or
 * have upstream.proxy connect to it) and, for https, bring TLS up. In two steps, because the record
 * of the decision is written between them. Nothing here looks a name up before route_resolve, and
 * nothing dials before route_connect.
 */
#ifndef STILE_PROXY_SESSION_ROUTE_H
#define STILE_PROXY_SESSION_ROUTE_H

#include "proxy/net/dial.h"
#include "proxy/net/stream.h"
#include "proxy/session/worker.h"

struct route {
	/* borrowed from the owner, who outlives it */
	struct worker *worker;
	struct snapshot *snapshot;
	const struct rule *rule;
	const struct host *host;
	struct client_cert *cert; /* shown to the origin: set before route_connect; NULL: none */
	/* owned */
	struct resolve *question;
	struct dial *dial;
	struct parent *parent;
	struct stream *stream; /* while its TLS comes up */
	char *session_key;
	/* Made when TLS begins: most requests meet a connection that is there. */
	struct timer timer;
	/* plain */
	uint16_t port;
	bool tls;
	bool h1_only;			 /* HTTP/2 is not offered: set before route_connect */
	const struct config_parent *via; /* the snapshot's upstream.proxy; NULL: dialled directly */
	struct ipaddr addr; /* where it leads, once connected; none when `via` was told the name */
	int64_t at_us;
	int64_t dns_us, connect_us, tls_us; /* RECORD_MS_NONE until it happened */
	/* From the loop, never from inside a call. e: NULL when it went well. */
	void (*on_judged)(void *arg, const struct err *e);
	void (*on_connected)(void *arg, struct stream *s, const struct err *e);
	void *arg;
	struct resolved judged; /* what survived; none when `via` is told the name */
};

/* Borrows all of it, until route_clear; the caller sets the callbacks. */
void route_init(struct route *r, struct worker *w, struct snapshot *s, const struct rule *rule,
		const struct host *host, uint16_t port, void *arg);
void route_clear(struct route *r); /* cancels what is under way; accepts a zeroed route */
/* 1: judged already; 0: on_judged will be called; -1: failed (dns_failed, address_denied, ...). */
int route_resolve(struct route *r, struct err *e) ATTR_NODISCARD;
bool route_is_connecting(const struct route *r);
/* 0: on_connected will be called (the stream is the callee's then, and may hold bytes of the origin
 * already); -1: failed at once. */
int route_connect(struct route *r, bool tls, struct str sandbox, struct err *e) ATTR_NODISCARD;

#endif
